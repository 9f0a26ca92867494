//! Whom idle CPUs waited for.

use ncpu_schema::IdleReason;
use ncpu_schema::critical_path::{NAME, col};

use super::Context;

/// What threads do that samples are charged to; all else they do is wait.
const RUNNING: &str = "running";

/// Code, or a wait, that CPUs idled for.
pub(in crate::onion) struct Charged {
    pub thread: String,
    pub doing: String,
    pub code: String,
    /// CPU-seconds, and their part of all that idled for this reason.
    pub idle: f64,
    pub share: f64,
    /// For how long CPUs idled so.
    pub seconds: f64,
}

impl Charged {
    pub fn runs(&self) -> bool {
        self.doing == RUNNING
    }

    fn told(&self) -> String {
        let Charged { thread, doing, code, idle, share, seconds } = self;
        let part = format!("{idle:.2} CPU-s ({:.0} %)", 100.0 * share);
        let (who, at) = match (thread.is_empty(), code.is_empty()) {
            (true, _) => return format!("{part} while threads were {doing}"),
            (false, true) => (thread, String::new()),
            (false, false) => (thread, format!(" in {code}")),
        };
        match self.runs() {
            true => format!(
                "{part} while {who} was{at}: without it up to {seconds:.2} s sooner, with half of it {:.2} s",
                seconds / 2.0
            ),
            false => format!("{part} while {who} was {doing}{at}"),
        }
    }
}

/// What CPUs idled for by a reason, most first.
pub(in crate::onion) fn charged(context: &Context<'_>, reason: IdleReason) -> Vec<Charged> {
    let keys = [col::reason, col::thread, col::doing, col::code];
    let Some(ranked) = context.ranked(NAME, &keys, col::idle) else { return Vec::new() };
    let rows = || (0..ranked.num_rows()).filter(|&r| ranked.text(r, col::reason) == Some(reason.name()));
    let idle = |r: usize| ranked.number(r, col::idle).unwrap_or(0.0);
    let total: f64 = rows().map(idle).sum();
    let text = |r: usize, c: &str| ranked.text(r, c).unwrap_or("").to_string();
    let charged = |r: usize| Charged {
        thread: text(r, col::thread),
        doing: text(r, col::doing),
        code: text(r, col::code),
        idle: idle(r),
        share: idle(r) / total.max(f64::MIN_POSITIVE),
        seconds: ranked.number(r, col::seconds).unwrap_or(0.0),
    };
    rows().map(charged).collect()
}

/// The three largest, a line each.
pub(super) fn waited_for(context: &Context<'_>, reason: IdleReason) -> Vec<String> {
    let most = charged(context, reason).into_iter().take(3);
    most.filter(|c| c.share >= 0.03 && c.idle >= 0.005).map(|c| c.told()).collect()
}

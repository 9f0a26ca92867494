//! Which interrupts there were, and whose.

use ncpu_schema::{Counter, InterruptKind, interrupts};

use super::kinds::{
    Evidence, Interrupt, InterruptRates, Interrupts, OwnInterrupts, PerSecond, Rate, Seconds, Share,
};
use super::{Context, counter, length, total};
use crate::causes::When;
use crate::onion::case::Case;
use std::fmt;

/// Interrupts of a kind, of all intervals.
struct Kind {
    kind: InterruptKind,
    name: String,
    count: u64,
    seconds: f64,
    own: u64,
    own_seconds: f64,
    entry_seconds: f64,
}

/// Rows of the table by kind and name; empty for recordings that do not have it.
fn kinds(context: &Context<'_>) -> Vec<Kind> {
    let Ok(Some(t)) = interrupts::Reader::open(context.recording) else { return Vec::new() };
    let mut all: Vec<Kind> = Vec::new();
    for row in t.rows() {
        let Some(kind) = t.kind.get(row) else { continue };
        let name = match (kind, t.name.get(row), t.number.get(row)) {
            (InterruptKind::Softirq, name, _) => format!("softirq {}", name.unwrap_or("?")),
            (InterruptKind::Device, Some(name), Some(number)) => {
                format!("device {name} (interrupt {number})")
            }
            (InterruptKind::Device, _, Some(number)) => format!("interrupt {number}"),
            (InterruptKind::Device, ..) => "other devices".into(),
            (kind, ..) => kind.name().into(),
        };
        let at = all.iter().position(|k| k.name == name).unwrap_or_else(|| {
            all.push(Kind {
                kind,
                name,
                count: 0,
                seconds: 0.0,
                own: 0,
                own_seconds: 0.0,
                entry_seconds: 0.0,
            });
            all.len() - 1
        });
        all[at].count += t.count.get(row).unwrap_or(0);
        all[at].seconds += t.seconds.get(row).unwrap_or(0.0);
        all[at].own += t.own.get(row).unwrap_or(0);
        all[at].own_seconds += t.own_seconds.get(row).unwrap_or(0.0);
        all[at].entry_seconds += t.entry_seconds.get(row).unwrap_or(0.0);
    }
    all
}

/// Times a second.
fn rate(context: &Context<'_>, count: u64) -> PerSecond {
    PerSecond(count as f64 / context.elapsed.max(f64::MIN_POSITIVE))
}

/// Kinds that a line has room for.
const KINDS: usize = 5;

/// The kinds in the layer of interrupts. Shootdowns have a layer of their own.
pub(super) fn by_kind(context: &Context<'_>) -> Evidence {
    let mut all = kinds(context);
    all.retain(|k| k.kind != InterruptKind::Tlb && k.count > 0);
    if all.is_empty() {
        let of = |event| rate(context, counter(context, event) as u64);
        return InterruptRates { hardware: of(Counter::Interrupts), softirqs: of(Counter::Softirqs) }.into();
    }
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let total: f64 = all.iter().map(|k| k.seconds).sum::<f64>().max(f64::MIN_POSITIVE);
    let entering = entering(&all);
    let interrupts = all.into_iter().take(KINDS).map(|k| Interrupt {
        per_second: rate(context, k.count),
        each: Seconds(k.seconds / k.count.max(1) as f64),
        share: Share(k.seconds / total),
        name: k.name,
    });
    Interrupts { interrupts: interrupts.collect(), entering }.into()
}

/// From this part of the time of interrupts on, entering them is worth a word.
const MOSTLY_ENTERED: f64 = 0.3;

/// The time of one interrupt before its handler begins, where that is much of the time of all interrupts.
fn entering(all: &[Kind]) -> Option<Seconds> {
    let hard = || all.iter().filter(|k| k.kind != InterruptKind::Softirq);
    let entered: f64 = hard().map(|k| k.entry_seconds).sum();
    let seconds: f64 = all.iter().map(|k| k.seconds + k.own_seconds).sum();
    let count = total(hard().map(|k| k.count + k.own));
    (count > 0 && entered > MOSTLY_ENTERED * seconds).then(|| Seconds(entered / count as f64))
}

impl fmt::Display for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |i: &Interrupt| {
            let (rate, each) = (i.per_second.0, length(i.each.0));
            format!("{} {rate:.0}/s of {each} each ({:.0} %)", i.name, i.share.percent())
        };
        f.write_str(&self.interrupts.iter().map(words).collect::<Vec<_>>().join(", "))?;
        match &self.entering {
            Some(each) => write!(f, "; {} of each passes before its handler begins", length(each.0)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for InterruptRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s interrupts, {:.0}/s softirqs", self.hardware.0, self.softirqs.0)
    }
}

/// ncpu's own interrupts, where there were any.
pub(super) fn own(context: &Context<'_>) -> Option<OwnInterrupts> {
    let mut all = kinds(context);
    all.retain(|k| k.own > 0);
    let seconds: f64 = all.iter().map(|k| k.own_seconds).sum();
    all.sort_by(|a, b| b.own_seconds.total_cmp(&a.own_seconds));
    let rates: Vec<Rate> =
        all.into_iter().map(|k| Rate { per_second: rate(context, k.own), name: k.name }).collect();
    let share = Share(seconds / context.capacity.max(f64::MIN_POSITIVE));
    (!rates.is_empty()).then_some(OwnInterrupts { share, rates })
}

impl fmt::Display for OwnInterrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> =
            self.rates.iter().map(|r| format!("{} {:.0}/s", r.name, r.per_second.0)).collect();
        write!(f, "{:.2} % in its own interrupts: {}", self.share.percent(), kinds.join(", "))
    }
}

/// From this rate on, interrupts of devices are worth spreading.
const MANY: f64 = 1000.0;
/// Below this rate, what softirqs of the network handle does not come from a device.
const FEW: f64 = 100.0;

/// The kind that takes most time, for the rule book.
pub(in crate::onion) fn case(context: &Context<'_>) -> Case {
    let all = kinds(context);
    let per_second = |n: u64| rate(context, n).0;
    let devices = per_second(total(all.iter().filter(|k| k.kind == InterruptKind::Device).map(|k| k.count)));
    let of = |group: Group| all.iter().filter(move |k| Group::of(k) == Some(group));
    let seconds = |group: &Group| of(*group).map(|k| k.seconds).sum::<f64>();
    let top = Group::ALL.into_iter().max_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let Some(top) = top.filter(|top| seconds(top) > 0.0) else { return Case::new(When::Interrupts) };
    match top {
        Group::Timer => {
            let timers = total(of(top).filter(|k| k.kind == InterruptKind::Timer).map(|k| k.count));
            Case::new(When::TimerInterrupts).with("rate", format!("{:.0}/s", per_second(timers)))
        }
        Group::Network if devices >= MANY => Case::new(When::DeviceNetwork),
        Group::Network if devices < FEW => Case::new(When::LocalNetwork),
        Group::Network => Case::new(When::Network),
        Group::Device => {
            let largest = of(top).max_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let name = largest.map_or("", |k| k.name.as_str());
            let when = if devices >= MANY { When::DeviceInterrupts } else { When::SlowDevices };
            Case::new(when).of(name).with("device", name)
        }
        Group::Block => Case::new(When::BlockInterrupts),
        Group::Wake => Case::new(When::RescheduleInterrupts),
        Group::Call => Case::new(When::FunctionCallInterrupts),
        Group::Free => Case::new(When::RcuSoftirqs),
    }
}

/// Kinds that one remedy helps.
#[derive(Clone, Copy, PartialEq)]
enum Group {
    Timer,
    Network,
    Device,
    Block,
    Wake,
    Call,
    Free,
}

impl Group {
    const ALL: [Group; 7] =
        [Group::Timer, Group::Network, Group::Device, Group::Block, Group::Wake, Group::Call, Group::Free];

    /// `None` where no remedy is known.
    fn of(k: &Kind) -> Option<Group> {
        match k.kind {
            InterruptKind::Timer => Some(Group::Timer),
            InterruptKind::Reschedule => Some(Group::Wake),
            InterruptKind::Call => Some(Group::Call),
            InterruptKind::Device => Some(Group::Device),
            InterruptKind::Work | InterruptKind::Tlb => None,
            InterruptKind::Softirq => match k.name.trim_start_matches("softirq ") {
                "TIMER" | "HRTIMER" | "SCHED" => Some(Group::Timer),
                "NET_RX" | "NET_TX" => Some(Group::Network),
                "BLOCK" => Some(Group::Block),
                "RCU" => Some(Group::Free),
                _ => None,
            },
        }
    }
}

//! Requests to block devices: how many are in flight, whose, and how long devices take for them.

use ncpu_schema::AskedBy;
use ncpu_schema::requests::{self, col};
use ncpu_table::size;

use super::Context;
use super::threads::length;

/// From so many requests in flight on it is the device that is waited for, and not the asking.
const DEEP: f64 = 8.0;

/// Requests of a process to a device, all operations together.
struct Asked {
    device: String,
    process: String,
    by: AskedBy,
    count: f64,
    bytes: f64,
    queued: f64,
    seconds: f64,
    /// Microseconds.
    max: f64,
}

/// Those that took longest together first.
fn asked(context: &Context<'_>) -> Vec<Asked> {
    let Some(t) = context.ranked(requests::NAME, &[col::device, col::process, col::by], col::seconds) else {
        return Vec::new();
    };
    (0..t.num_rows())
        .filter_map(|r| {
            Some(Asked {
                device: t.text(r, col::device)?.into(),
                process: t.text(r, col::process)?.into(),
                by: AskedBy::of_name(t.text(r, col::by)?).ok()?,
                count: t.number(r, col::count).filter(|n| *n > 0.0)?,
                bytes: t.number(r, col::bytes)?,
                queued: t.number(r, col::queued)?,
                seconds: t.number(r, col::seconds)?,
                max: t.number(r, col::max)?,
            })
        })
        .collect()
}

/// A line for each device and process with most time in requests.
pub(super) fn requests(context: &Context<'_>) -> Vec<String> {
    let all = asked(context);
    let whole: f64 = all.iter().map(|a| a.seconds).sum();
    let elapsed = context.elapsed.max(f64::MIN_POSITIVE);
    all.iter()
        .filter(|a| a.seconds >= 0.05 * whole)
        .take(3)
        .map(|a| {
            let who = match a.by {
                AskedBy::Call => format!("of {}, waited for in the call", a.process),
                AskedBy::Ahead => format!("of {}, by io_uring or io_submit", a.process),
                AskedBy::Kernel => "of kernel threads, for whom is not known".into(),
            };
            format!(
                "{}: {} requests in flight on average {who}: {:.0}/s of {}, {} each in the device and {} queued before, longest {}",
                a.device,
                figure(a.seconds / elapsed),
                a.count / elapsed,
                size::words((a.bytes / a.count) as u64),
                length(a.seconds / a.count),
                length(a.queued / a.count),
                length(a.max / 1e6),
            )
        })
        .collect()
}

fn figure(n: f64) -> String {
    if n < 10.0 { format!("{n:.2}") } else { format!("{n:.1}") }
}

/// The device that has requests of the program in flight at all times, how many, and the seconds for each.
pub(in crate::onion) fn deepest(context: &Context<'_>) -> Option<(String, f64, f64)> {
    let mut devices: Vec<(String, f64, f64)> = Vec::new();
    for a in asked(context).into_iter().filter(|a| a.by != AskedBy::Kernel) {
        match devices.iter_mut().find(|(name, ..)| *name == a.device) {
            Some((_, seconds, count)) => (*seconds, *count) = (*seconds + a.seconds, *count + a.count),
            None => devices.push((a.device, a.seconds, a.count)),
        }
    }
    let (device, seconds, count) = devices.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let depth = seconds / context.elapsed.max(f64::MIN_POSITIVE);
    (depth >= DEEP).then_some((device, depth, seconds / count))
}

//! Requests to block devices: the number in flight, the processes they are for, and how long devices take
//! for them.

use std::fmt;

use ncpu_schema::AskedBy;
use ncpu_schema::requests::{self, col};
use ncpu_table::size;

use super::Context;
use super::kinds::{Bytes, PerSecond, Requests, Seconds};
use super::threads::length;

/// From this number of requests in flight on, the wait is for the device and not for the asking.
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

/// The devices and processes with most time in requests.
pub(super) fn requests(context: &Context<'_>) -> Vec<Requests> {
    let all = asked(context);
    let whole: f64 = all.iter().map(|a| a.seconds).sum();
    let elapsed = context.elapsed.max(f64::MIN_POSITIVE);
    all.iter()
        .filter(|a| a.seconds >= 0.05 * whole)
        .take(3)
        .map(|a| Requests {
            device: a.device.clone(),
            process: (a.by != AskedBy::Kernel).then(|| a.process.clone()),
            asked_by: a.by.name().into(),
            in_flight: a.seconds / elapsed,
            per_second: PerSecond(a.count / elapsed),
            size: Bytes((a.bytes / a.count) as u64),
            each: Seconds(a.seconds / a.count),
            before: Seconds(a.queued / a.count),
            longest: Seconds(a.max / 1e6),
        })
        .collect()
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match &self.process {
            Some(process) if self.asked_by == AskedBy::Call.name() => {
                format!("of {process}, waited for in the call")
            }
            Some(process) => format!("of {process}, by io_uring or io_submit"),
            None => "of kernel threads, for an unknown program".into(),
        };
        write!(
            f,
            "{}: {} requests in flight on average {who}: {:.0}/s of {}, {} each in the device and {} queued before, longest {}",
            self.device,
            figure(self.in_flight),
            self.per_second.0,
            size::words(self.size.0),
            length(self.each.0),
            length(self.before.0),
            length(self.longest.0),
        )
    }
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

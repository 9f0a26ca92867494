//! How often a lock is taken, waited for or not, where that was counted: by the program itself, or as system calls that take
//! it a known number of times.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::Purpose;

use super::calibrate::{self, Slack};
use super::locks::Seen;
use super::{Error, reproduce};
use crate::foretell::Effort;
use crate::model::Model;

/// Locks of the kernel, the system calls that take them, and how often each call does on Linux 5.19 and later. Calls that take
/// a lock depending on their arguments (`fcntl`, `madvise`) are left out, and so are page faults, which have locks of their own.
const TAKE: [(&str, &[(&str, f64)]); 2] = [
    (
        "files_struct.file_lock",
        &[
            ("accept", 1.0),
            ("accept4", 1.0),
            ("close", 1.0),
            ("creat", 1.0),
            ("dup", 1.0),
            ("dup2", 1.0),
            ("dup3", 1.0),
            ("epoll_create1", 1.0),
            ("eventfd2", 1.0),
            ("memfd_create", 1.0),
            ("open", 1.0),
            ("openat", 1.0),
            ("openat2", 1.0),
            ("pipe", 2.0),
            ("pipe2", 2.0),
            ("socket", 1.0),
            ("socketpair", 2.0),
            ("timerfd_create", 1.0),
        ],
    ),
    (
        "mm_struct.mmap_lock",
        &[("brk", 1.0), ("mmap", 1.0), ("mprotect", 1.0), ("mremap", 1.0), ("munmap", 1.0)],
    ),
];

/// A lock that readers take too is taken by calls and faults that nobody counted, beyond this share of its waits.
const READ: f64 = 0.05;

/// Counts that differ by less agree.
const AGREE: f64 = 1.5;

/// Effort of the check whether the recorded machine is still reproduced.
const EFFORT: Effort = Effort { within: 0.01, events: 2_000_000, seed: 23 };

/// System calls of the program, by `ncpu counters`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Calls a second.
    calls: BTreeMap<String, f64>,
    /// Units of work a second meanwhile, if the program reported them.
    throughput: Option<f64>,
}

impl Counted {
    /// The counts in a recording of `ncpu counters -e syscalls:sys_enter_…`.
    pub(super) fn of(recording: &Recording) -> Option<Counted> {
        if recording.manifest.kind != Some(Purpose::Counters) {
            return None;
        }
        let table = recording.tables.get("counters")?;
        let rows = || 0..table.num_rows();
        let elapsed = rows().filter_map(|r| table.number(r, "t")).fold(0.0, f64::max);
        let mut calls = BTreeMap::<String, f64>::new();
        for r in rows() {
            let call = table.text(r, "event").and_then(|e| e.strip_prefix("syscalls:sys_enter_"));
            if let (Some(call), Some(count)) = (call, table.number(r, "count")) {
                *calls.entry(call.trim_start_matches("new").into()).or_default() += count / elapsed;
            }
        }
        let throughput = recording.manifest.throughput.as_ref().map(|t| t.per_second);
        (elapsed > 0.0 && !calls.is_empty()).then_some(Counted { calls, throughput })
    }

    /// How often calls take a lock in a second, and which they are.
    fn takes(&self, lock: &str) -> Option<(f64, String)> {
        let (_, calls) = TAKE.iter().find(|(name, _)| *name == lock)?;
        let counted: Vec<(&str, f64)> = calls
            .iter()
            .filter_map(|(call, each)| Some((*call, each * self.calls.get(*call)?)))
            .filter(|(_, takes)| *takes > 0.0)
            .collect();
        let all: f64 = counted.iter().map(|(_, takes)| takes).sum();
        let mut most = counted.clone();
        most.sort_by(|a, b| b.1.total_cmp(&a.1));
        let names: Vec<&str> = most.iter().take(3).map(|(call, _)| *call).collect();
        (all > 0.0).then(|| (all, names.join(", ")))
    }
}

/// A lock's acquisitions for each unit of work, and who counted them.
struct Known {
    takes: f64,
    by: String,
}

/// The counts of each lock of the model. `told` are the counts that the user gave; `rate` is the recorded program's
/// units a second, and `unit` whether the program itself reported these units.
fn known(
    model: &Model,
    counted: Option<&Counted>,
    told: &[(String, f64)],
    (rate, unit): (f64, bool),
    notes: &mut Vec<String>,
) -> Vec<Option<Known>> {
    let mut of = |name: &str, reads: f64| {
        if let Some((_, takes)) = told.iter().find(|(lock, _)| lock == name) {
            return Some(Known { takes: *takes, by: "--takes".into() });
        }
        let counted = counted?;
        let (calls, names) = counted.takes(name)?;
        if reads > READ {
            notes.push(format!(
                "lock {name}: {names} take it {:.3} times a unit, and readers and page faults take it too, which nobody counted: the count \
                 is not used",
                calls / counted.throughput.filter(|_| unit).unwrap_or(rate)
            ));
            return None;
        }
        Some(Known {
            takes: calls / counted.throughput.filter(|_| unit).unwrap_or(rate),
            by: format!("the calls that take it ({names})"),
        })
    };
    model.lock.iter().map(|l| of(&l.name, l.reads)).collect()
}

/// Takes what was counted into a model that has been adjusted to its recording without it, and adjusts it again. A count is
/// exact where waits tell the number of acquisitions only together with the time each lasts. It is left out where the
/// recorded machine is reproduced better without it, and not well with it.
pub(super) fn put(
    model: &mut Model,
    (seen, lines): (&[Seen], &[Option<f64>]),
    (counted, told): (Option<&Counted>, &[(String, f64)]),
    (slack, per_unit): (Slack, f64),
    unit: bool,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(throughput) = model.recorded.as_ref().map(|r| r.throughput) else { return Ok(()) };
    if counted.is_some_and(|c| c.throughput.is_none()) && unit {
        notes.push(
            "the recording of system calls has no throughput: that of the other recording is assumed; record it with --metric"
                .into(),
        );
    }
    let mut known = known(model, counted, told, (throughput, unit), notes);
    let (mut with, mut pinned) = (model.clone(), seen.to_vec());
    for ((lock, seen), count) in with.lock.iter_mut().zip(&mut pinned).zip(&mut known) {
        let Some(Known { takes, by }) = count else { continue };
        // Waits for each unit: nobody waits for a lock without taking it.
        let waits = seen.rate / throughput;
        if *takes * AGREE < waits {
            notes.push(format!(
                "lock {}: taken {takes:.3} times a unit by {by}, and waited for {waits:.3} times: the count is of something else, and is \
                 not used",
                lock.name
            ));
            *count = None;
            continue;
        }
        // The same share of the time it is held, to begin with.
        lock.hold_ns *= lock.takes / *takes;
        lock.takes = *takes;
        seen.takes = Some(*takes);
    }
    if known.iter().all(Option::is_none) {
        return Ok(());
    }
    calibrate::calibrate(&mut with, (&pinned, lines), slack, per_unit)?;
    let (Some(before), Some(after)) =
        (reproduce(model, &EFFORT, &|| false)?, reproduce(&with, &EFFORT, &|| false)?)
    else {
        return Ok(());
    };
    let fits = after.good() || after.astray() <= before.astray();
    for ((was, is), known) in model.lock.iter().zip(&with.lock).zip(&known) {
        let Some(Known { takes, by }) = known else { continue };
        let counted = format!("lock {}: taken {takes:.3} times a unit by {by}", was.name);
        let agree = (takes / was.takes).max(was.takes / takes) < AGREE;
        notes.push(match (fits, agree) {
            (true, true) => format!("{counted}; its waits alone say {:.3}", was.takes),
            (true, false) => format!(
                "{counted}, where its waits alone say {:.3}: the count is used, and it is held for {:.0} ns instead of {:.0}",
                was.takes, is.hold_ns, was.hold_ns
            ),
            (false, _) => format!(
                "{counted}, where its waits alone say {:.3}: with the count the recorded machine is simulated {:+.1} % off its throughput, and \
                 that or a layer is {:.1} times as far off as it may be: what the waits say is used",
                was.takes,
                100.0 * after.off,
                after.astray()
            ),
        });
    }
    if fits {
        *model = with;
    }
    Ok(())
}

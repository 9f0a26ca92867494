//! Waits of goroutines, and their places: some goroutines of each Go program are looked at several times a second, as its memory shows them.
//!
//! Goroutines that wait are parked in user space; the kernel sees threads that sleep, which are the same whatever is waited for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ncpu_files::reader::{Source, Whose};
use ncpu_schema::goroutines;
use ncpu_symbols::GoState;
use ncpu_table::Table;

use super::bounds::Names;
use super::user_locks::UserLocks;
use crate::bpf_support::namespace::process_dir;
use crate::names::{Symbols, fold};

/// Time between two looks at least; and as a multiple of what the last one took, on one CPU: 0.17 % of the capacity. More often at
/// first, since short programs end soon: after a quarter of the time since the first look.
const EACH: Duration = Duration::from_millis(100);
const MULTIPLE: u32 = 600;
const AT_FIRST: u32 = 4;
/// CPUs beyond these give no more looks.
const MAX_CPUS: u32 = 30;
/// Processes that are looked at in turn, and goroutines of one in a look.
const PROCESSES: usize = 4;
const GOROUTINES: u64 = 32;
/// Places kept for an interval; others are not told.
const MAX_PLACES: usize = 1024;

/// Process, state, where, and the channel's places and whether a timer sends to it.
type Key = (u32, GoState, Vec<u64>, (Option<u64>, bool));

/// The state of goroutines that wait for a timer's channel.
const TIMER: &str = "timer";

/// Looks at a process.
struct Looks {
    count: u32,
    /// The seconds that they stand for, each those since the look before.
    seconds: f64,
    since: f64,
}

/// Looks at goroutines, and what they have shown since the last table.
#[derive(Default)]
pub(super) struct Goroutines {
    next: Option<Instant>,
    first: Option<Instant>,
    /// By process, when it was last looked at, and the number of the goroutine to begin with.
    looked: HashMap<u32, (Instant, u64)>,
    /// How many were seen, and of how many in all, times the seconds since the look before.
    seen: HashMap<Key, (u64, f64)>,
    /// By process, what is known since when.
    looks: HashMap<u32, Looks>,
    /// When the last table was made.
    told: f64,
    cpus: u32,
}

impl Goroutines {
    /// On a machine with this number of CPUs.
    pub fn new(cpus: u32) -> Goroutines {
        Goroutines { cpus, ..Goroutines::default() }
    }

    /// When they are to be looked at again, if any process has some.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, locks: &UserLocks, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let lists = locks.goroutine_lists();
        if lists.is_empty() {
            self.next = None;
            self.looked.clear();
            return;
        }
        let first = *self.first.get_or_insert(now);
        let began = Instant::now();
        self.looked.retain(|pid, _| lists.iter().any(|(of, _)| of == pid));
        // The processes with the oldest looks.
        let mut due: Vec<(Option<Instant>, u32, u64)> =
            lists.iter().map(|&(pid, list)| (self.looked.get(&pid).map(|l| l.0), pid, list)).collect();
        due.sort_unstable();
        for (_, pid, list) in due.into_iter().take(PROCESSES) {
            let (before, from) =
                self.looked.get(&pid).copied().map_or((None, 0), |(at, from)| (Some(at), from));
            let seconds = before.map_or(EACH, |at| now - at).as_secs_f64();
            let dir = process_dir(pid);
            let memory = Source::of_proc(&dir.join("mem"), Whose::process(&dir, pid));
            let found = memory.ok().and_then(|m| ncpu_symbols::goroutines(&m, list, from, GOROUTINES));
            self.looked.insert(pid, (now, from + GOROUTINES));
            let Some((all, found)) = found else { continue };
            let each = all as f64 / GOROUTINES.min(all) as f64;
            let looks = self.looks.entry(pid).or_insert(Looks { count: 0, seconds: 0.0, since: self.told });
            looks.count += 1;
            looks.seconds += seconds;
            for g in found {
                let key = (pid, g.state, g.frames, (g.places, g.timer));
                if self.seen.len() < MAX_PLACES || self.seen.contains_key(&key) {
                    let (count, number) = self.seen.entry(key).or_default();
                    *count += 1;
                    *number += each * seconds;
                }
            }
        }
        let seldom = began.elapsed() * MULTIPLE / self.cpus.clamp(1, MAX_CPUS);
        self.next = Some(now + EACH.max(seldom.min((now - first) / AT_FIRST)));
    }

    /// Table `goroutines`: what was seen since the last one.
    pub fn table(&mut self, t: f64, locks: &UserLocks, symbols: &mut Symbols, processes: &Names) -> Table {
        type Row = (u32, String, String, Option<u64>);
        let mut sums: HashMap<Row, (u64, f64)> = HashMap::new();
        for ((pid, state, frames, (places, timer)), (count, number)) in std::mem::take(&mut self.seen) {
            let Some(looks) = self.looks.get(&pid).filter(|looks| looks.count > 0) else { continue };
            let seconds = number / looks.seconds * (t - looks.since);
            let state = match state {
                GoState::Runnable => "runnable",
                GoState::Running => "running",
                GoState::Call => "in a system call",
                GoState::Waits(_) if timer => TIMER,
                GoState::Waits(reason) => {
                    let reasons = locks.go_wait_reasons(pid).unwrap_or(&[]);
                    reasons.get(usize::from(reason)).map_or("unknown", String::as_str)
                }
            };
            let names = symbols.user(pid, &frames);
            // The runtime's own goroutines wait for its own ends.
            if !names.is_empty() && names.iter().all(|name| name.starts_with("runtime.")) {
                continue;
            }
            let sum = sums.entry((pid, state.into(), fold("", &names, &[]), places)).or_default();
            sum.0 += count;
            sum.1 += seconds;
        }
        self.looks.retain(|pid, looks| {
            if looks.count > 0 {
                let row = (pid.to_owned(), "looked at".into(), String::new(), None);
                sums.insert(row, (looks.count.into(), t - looks.since));
                *looks = Looks { count: 0, seconds: 0.0, since: t };
            }
            self.looked.contains_key(pid)
        });
        self.told = t;
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|a, b| a.0.cmp(&b.0));
        let mut rows = goroutines::Rows::new();
        for ((pid, state, stack, places), (count, seconds)) in sums {
            rows.push(goroutines::Row {
                process: processes.of(pid).into(),
                pid: Some(pid.into()),
                state: state.into(),
                stack: stack.trim_start_matches(';').into(),
                places,
                count: Some(count),
                seconds: Some(seconds),
                time: Some(t),
            });
        }
        rows.finish()
    }
}

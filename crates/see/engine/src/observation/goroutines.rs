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

/// Time between two looks at least, and as a multiple of what the last one took: a third of a percent of a CPU.
const EACH: Duration = Duration::from_millis(100);
const MULTIPLE: u32 = 300;
/// Processes that are looked at in turn, and goroutines of one in a look.
const PROCESSES: usize = 4;
const GOROUTINES: u64 = 32;
/// Places kept for an interval; others are not told.
const MAX_PLACES: usize = 1024;

/// Process, state, where, and places of the channel.
type Key = (u32, GoState, Vec<u64>, Option<u64>);

/// Looks at goroutines, and what they have shown since the last table.
#[derive(Default)]
pub(super) struct Goroutines {
    next: Option<Instant>,
    /// By process, when it was last looked at, and the number of the goroutine to begin with.
    looked: HashMap<u32, (Instant, u64)>,
    /// How many were seen, and of how many in all.
    seen: HashMap<Key, (u64, f64)>,
    /// By process, how often it was looked at, and since when this is what is known of it.
    looks: HashMap<u32, (u32, f64)>,
    /// When the last table was made.
    told: f64,
}

impl Goroutines {
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
        let began = Instant::now();
        self.looked.retain(|pid, _| lists.iter().any(|(of, _)| of == pid));
        // The processes with the oldest looks.
        let mut due: Vec<(Option<Instant>, u32, u64)> =
            lists.iter().map(|&(pid, list)| (self.looked.get(&pid).map(|l| l.0), pid, list)).collect();
        due.sort_unstable();
        for (_, pid, list) in due.into_iter().take(PROCESSES) {
            let from = self.looked.get(&pid).map_or(0, |looked| looked.1);
            let dir = process_dir(pid);
            let memory = Source::of_proc(&dir.join("mem"), Whose::process(&dir, pid));
            let found = memory.ok().and_then(|m| ncpu_symbols::goroutines(&m, list, from, GOROUTINES));
            self.looked.insert(pid, (now, from + GOROUTINES));
            let Some((all, found)) = found else { continue };
            let each = all as f64 / GOROUTINES.min(all) as f64;
            self.looks.entry(pid).or_insert((0, self.told)).0 += 1;
            for g in found {
                let key = (pid, g.state, g.frames, g.places);
                if self.seen.len() < MAX_PLACES || self.seen.contains_key(&key) {
                    let (count, number) = self.seen.entry(key).or_default();
                    *count += 1;
                    *number += each;
                }
            }
        }
        self.next = Some(now + EACH.max(began.elapsed() * MULTIPLE));
    }

    /// Table `goroutines`: what was seen since the last one.
    pub fn table(&mut self, t: f64, locks: &UserLocks, symbols: &mut Symbols, processes: &Names) -> Table {
        type Row = (u32, String, String, Option<u64>);
        let mut sums: HashMap<Row, (u64, f64)> = HashMap::new();
        for ((pid, state, frames, places), (count, number)) in std::mem::take(&mut self.seen) {
            let (looks, since) = self.looks.get(&pid).copied().unwrap_or((1, t));
            let seconds = number / f64::from(looks.max(1)) * (t - since);
            let state = match state {
                GoState::Runnable => "runnable",
                GoState::Running => "running",
                GoState::Call => "in a system call",
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
        for (&pid, &(looks, since)) in self.looks.iter().filter(|(_, (looks, _))| *looks > 0) {
            sums.insert((pid, "looked at".into(), String::new(), None), (looks.into(), t - since));
        }
        self.looks.retain(|pid, _| self.looked.contains_key(pid));
        self.looks.values_mut().filter(|(looks, _)| *looks > 0).for_each(|looks| *looks = (0, t));
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

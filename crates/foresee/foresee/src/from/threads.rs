//! The threads that do the work: how many there are, how many can work at once, and what they sleep for.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_machine::CpuSet;
use ncpu_record::Recording;

/// Workers and how they spend their time, in seconds of all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Workers {
    /// How many there are at a time.
    pub(super) threads: u32,
    /// On CPU.
    pub(super) cpu: f64,
    /// Ready, without a CPU, or waiting for a lock.
    pub(super) ready: f64,
    /// Of that, ready.
    pub(super) latency: f64,
    /// Asleep.
    pub(super) sleep: f64,
    /// Voluntary switches.
    pub(super) switches: f64,
    /// Involuntary ones: their CPU was taken from them.
    pub(super) preempted: f64,
    /// Their processes.
    pub(super) pids: BTreeSet<u64>,
    /// The time of the busiest worker on CPU or ready for one.
    pub(super) busiest: f64,
    /// Those that always have work.
    pub(super) always: u32,
}

/// A thread that always has work is ready or on CPU for this share of the time: the rest passes before the first and after the last unit.
const ALWAYS: f64 = 0.9;
/// Seconds for which a thread that has woken another is ready too before it waits itself.
const ASIDE: f64 = 2e-6;

impl Workers {
    /// How many of them could have worked at the same time, on average. A thread that was woken by another waits until
    /// that one waits itself where they share a CPU: the two count double meanwhile.
    pub(super) fn active(&self, elapsed: f64) -> f64 {
        (self.cpu + self.ready) / elapsed
    }

    /// How many could work side by side, of workers on one CPU that wait for one another. Where n begin a piece of work each at the same
    /// time and wait for the last, n are ready at first and one at last: (n + 1) / 2 on average. Where they hand one piece of work from
    /// thread to thread it is one. The last of a team always has work; two that do are no team.
    pub(super) fn side_by_side(&self, elapsed: f64) -> f64 {
        let ready = self.active(elapsed);
        if self.always > 1 {
            return ready;
        }
        2.0 * (ready - self.switches * ASIDE / elapsed) - 1.0
    }

    /// Threads that ran or waited for a lock, on average, were all of the CPUs the program's, which had `share` of their time.
    pub(super) fn running(&self, elapsed: f64, share: f64) -> f64 {
        (self.cpu / share.max(0.1) + self.ready - self.latency) / elapsed
    }

    /// Mean length of a sleep.
    pub(super) fn each_sleep(&self) -> f64 {
        self.sleep / self.switches.max(1.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    pid: u64,
    cpu: f64,
    ready: f64,
    latency: f64,
    sleep: f64,
    switches: f64,
    preempted: f64,
}

/// The workers of a recording: threads with a tenth of the CPU time of the busiest, or more; and what all other threads
/// slept.
pub(super) fn workers(recording: &Recording, elapsed: f64) -> Option<(Workers, f64)> {
    let table = recording.tables.get("threads")?;
    let mut threads = BTreeMap::<u64, Thread>::new();
    for row in 0..table.num_rows() {
        let number = |c: &str| table.number(row, c).unwrap_or(0.0);
        let Some(tid) = table.int(row, "tid") else { continue };
        let t = threads.entry(tid).or_default();
        t.pid = table.int(row, "pid").unwrap_or(0);
        let on_cpu = number("USR") + number("SYS") + number("TRP");
        t.cpu += table.number(row, "CPU").unwrap_or(on_cpu);
        t.ready += number("LAT") + number("LCK");
        t.latency += number("LAT");
        // Without root the reasons of its sleep are not known.
        t.sleep += match table.number(row, "SLP") {
            Some(slept) => slept + number("DFL") + number("TFL"),
            None => number("OFF"),
        };
        t.switches += number("VCX");
        t.preempted += number("ICX");
    }
    let most = threads.values().map(|t| t.cpu).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let (busy, others): (Vec<Thread>, Vec<Thread>) = threads.values().partition(|t| t.cpu > 0.1 * most);
    let total = |of: &dyn Fn(&Thread) -> f64| busy.iter().map(of).sum::<f64>();
    // Threads that came and went were not all there at once.
    let present = total(&|t| ((t.cpu + t.ready + t.sleep) / elapsed).min(1.0));
    let came_and_went = busy.len() > 64 && present < 0.25 * busy.len() as f64;
    let workers = Workers {
        threads: if came_and_went { present.round().max(1.0) as u32 } else { busy.len() as u32 },
        cpu: total(&|t| t.cpu),
        ready: total(&|t| t.ready),
        latency: total(&|t| t.latency),
        sleep: total(&|t| t.sleep),
        switches: total(&|t| t.switches),
        preempted: total(&|t| t.preempted),
        pids: busy.iter().map(|t| t.pid).collect(),
        busiest: busy.iter().map(|t| t.cpu + t.ready).fold(0.0, f64::max),
        always: busy.iter().filter(|t| t.cpu + t.ready > ALWAYS * elapsed).count() as u32,
    };
    Some((workers, others.iter().map(|t| t.sleep).sum()))
}

/// The CPUs that the workers may use, by table `bound`, where none of their processes may use all.
pub(super) fn confined(recording: &Recording, elapsed: f64) -> Option<CpuSet> {
    let (workers, _) = workers(recording, elapsed)?;
    let table = recording.tables.get("bound")?;
    let mut sets = BTreeMap::<u64, CpuSet>::new();
    for row in 0..table.num_rows() {
        let (Some(pid), Some(list)) = (table.int(row, "pid"), table.text(row, "cpus")) else { continue };
        let set = CpuSet::parse_list(list).ok()?;
        let known = sets.entry(pid).or_insert_with(|| set.clone());
        *known = known.or(&set);
    }
    let mut all = workers.pids.iter().map(|pid| sets.get(pid));
    let first = all.next()??.clone();
    all.try_fold(first, |union, set| Some(union.or(set?)))
}

/// Calls in which servers wait for connections and for what comes over them.
const SERVING: [&str; 8] =
    ["accept", "accept4", "epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6"];
/// The busiest of workers with unequal shares of the work has hardly ever nothing to do.
const FULL: f64 = 0.85;
/// Shares that differ by less are equal.
const EQUAL: f64 = 1.2;

/// The work of a server's busiest worker, divided by the mean of all, if that delays the others: the busiest one always
/// has work, and the others wait for connections.
pub(super) fn uneven(recording: &Recording, workers: &Workers, elapsed: f64) -> Option<f64> {
    let mean = (workers.cpu + workers.ready) / f64::from(workers.threads.max(1));
    let uneven = workers.busiest / mean.max(1e-9);
    if workers.threads < 2 || workers.busiest < FULL * elapsed || uneven < EQUAL {
        return None;
    }
    let table = recording.tables.get("sleeps")?;
    let asleep = |serving: bool| -> f64 {
        let of = |r: &usize| !serving || table.text(*r, "call").is_some_and(|c| SERVING.contains(&c));
        (0..table.num_rows()).filter(of).filter_map(|r| table.number(r, "seconds")).sum()
    };
    (asleep(true) > 0.5 * asleep(false)).then_some(uneven)
}

/// A wait that lasts for this share of its timeout, on average, was a pause: nothing ended it early.
const TIMED_OUT: f64 = 0.95;

/// Sleep that threads asked for with a time: the time asked for, the time beyond it, and the number of sleeps. Calls
/// that only sleep, and waits that nearly always lasted until their timeout.
pub(super) fn pauses(recording: &Recording, workers: &Workers, others: f64, elapsed: f64) -> (f64, f64, f64) {
    // Of all intervals: threads are the most of one.
    let table = recording.tables.get("sleepers").and_then(|table| table.group_by(&["call", "pid"]).ok());
    let Some(table) = table else { return (0.0, 0.0, 0.0) };
    let (mut asked, mut slept, mut threads, mut count) = (0.0, 0.0, 0.0, 0.0);
    let mine = |row: usize| workers.pids.contains(&table.int(row, "pid").unwrap_or(0));
    for row in (0..table.num_rows()).filter(|&row| mine(row)) {
        let number = |c: &str| table.number(row, c).unwrap_or(0.0);
        let sleeps = table.text(row, "call").is_some_and(|c| c.ends_with("nanosleep"));
        if sleeps || number("slept") > TIMED_OUT * number("asked") {
            asked += number("asked");
            slept += number("slept");
            threads += number("threads");
            count += number("count");
        }
    }
    // A main thread that only waits until the others are done sleeps for all of the time.
    if threads > f64::from(workers.threads) {
        let idle = ((threads - f64::from(workers.threads)) * elapsed).min(others);
        asked -= idle;
        slept -= idle;
    }
    let slept = slept.min(workers.sleep).max(0.0);
    let asked = asked.min(slept).max(0.0);
    (asked, slept - asked, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers of a second on one CPU.
    fn workers(ready: f64, switches: f64) -> Workers {
        Workers { threads: 4, cpu: 1.0, ready, latency: ready, switches, ..Workers::default() }
    }

    #[test]
    fn a_team_on_one_cpu_is_as_wide_as_its_pieces_are_many() {
        // Each thread works for 1/n of the time, and is ready while those before it work: (n + 1) / 2 threads are ready on average.
        for n in 1..=8 {
            let ready: f64 = (0..n).map(|before| f64::from(before) / f64::from(n)).sum();
            assert!((workers(ready, 100.0).side_by_side(1.0) - f64::from(n)).abs() < 0.01, "{n}");
        }
    }

    #[test]
    fn work_that_goes_from_thread_to_thread_is_one_threads() {
        // 250,000 times a second, and each stays ready for 2 us, half of the time, after it has woken the other.
        assert!(workers(0.5, 250_000.0).side_by_side(1.0) < 1.01);
        // Two that are always ready keep the others waiting for the CPU.
        let beside = Workers { always: 2, ..workers(1.5, 100.0) };
        assert_eq!(beside.side_by_side(1.0), 2.5);
    }

    #[test]
    fn threads_that_wait_for_a_lock_have_work_and_other_programs_take_none_of_it() {
        let waits = Workers { threads: 4, cpu: 1.2, ready: 2.0, latency: 0.5, ..Workers::default() };
        assert!((waits.running(1.0, 0.6) - 3.5).abs() < 1e-9);
    }
}

//! Requested against actual: runs each call often, from starting times spread evenly over the tick.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use ncpu_schema::{WaitScope, timeouts, timer_machine};
use ncpu_table::Table;

use super::calls::{Call, Scope, Wait, clock};

/// The calls and times to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which calls.
    pub calls: Vec<&'static Call>,
    /// Times asked for, ns.
    pub times: Vec<u64>,
    /// Waits of each call for each time [default: the number that takes a few seconds at most].
    pub samples: Option<usize>,
}

/// The measured waits, and the machine.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Table `timeouts`: a row is one wait.
    pub waits: Table,
    /// Table `timer_machine`: what the kernel's clocks and timers run by.
    pub machine: Table,
    /// Calls that could not be measured, and why.
    pub notes: Vec<String>,
}

/// Waking threads this often on each CPU takes about a hundredth of it.
const WAKES_PER_CPU: f64 = 1000.0;

/// One call waiting for one time, often.
struct Job {
    /// In the order of the plan.
    place: usize,
    call: &'static Call,
    argument: u64,
    slack: u64,
    samples: usize,
}

/// One wait: how long it took by its clock, and when after a tick it ended (ns).
struct Waited {
    took: u64,
    phase: u64,
}

impl Job {
    /// ns that a wait takes at least, with half a tick to begin at a chosen time.
    fn length(&self, tick: u64) -> u64 {
        self.argument.max(50_000) + tick / 2
    }

    /// How much of the wake-ups allowed it takes; one that uses CPU time takes all.
    fn rate(&self, tick: u64, budget: f64) -> f64 {
        match self.call.scope {
            Scope::CpuTime => budget,
            _ => 2e9 / self.length(tick) as f64,
        }
    }

    fn run(&self, tick: u64, stop: &AtomicBool) -> io::Result<Vec<Waited>> {
        // SAFETY: takes a number; the slack is this thread's, and of processes it forks.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack) };
        let mut wait = (self.call.open)()?;
        match self.call.scope {
            Scope::Thread => self.waits(&mut wait, tick, libc::CLOCK_MONOTONIC, stop),
            Scope::Process => self.forked(&mut wait, tick, libc::CLOCK_MONOTONIC, stop),
            Scope::CpuTime => self.forked(&mut wait, tick, libc::CLOCK_THREAD_CPUTIME_ID, stop),
        }
    }

    fn waits(&self, wait: &mut Wait, tick: u64, by: i32, stop: &AtomicBool) -> io::Result<Vec<Waited>> {
        let mut out = Vec::with_capacity(self.samples);
        for n in 0..self.samples {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            out.push(self.one(wait, tick, by, n, stop)?);
        }
        Ok(out)
    }

    fn one(&self, wait: &mut Wait, tick: u64, by: i32, n: usize, stop: &AtomicBool) -> io::Result<Waited> {
        loop {
            sleep_to_phase(n, tick);
            let start = clock(by);
            match wait(self.argument) {
                // A signal, or the kernel's own work for this thread: no timeout, so no sample.
                Err(e) if e.kind() == io::ErrorKind::Interrupted && !stop.load(Ordering::Relaxed) => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    let took = clock(by).saturating_sub(start);
                    return Ok(Waited { took, phase: clock(libc::CLOCK_MONOTONIC) % tick });
                }
            }
        }
    }

    /// The same in a process of its own, so that its signals are nobody else's.
    fn forked(&self, wait: &mut Wait, tick: u64, by: i32, stop: &AtomicBool) -> io::Result<Vec<Waited>> {
        let (mut results, mut out) = io::pipe()?;
        // SAFETY: the child allocates nothing and takes no lock: it waits, writes and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            for n in 0..self.samples {
                let (kind, a, b) = match self.one(wait, tick, by, n, stop) {
                    Ok(w) => (0, w.took, w.phase),
                    Err(e) => (e.raw_os_error().unwrap_or(libc::EIO) as u64, 0, 0),
                };
                let words = [kind, a, b].map(u64::to_ne_bytes);
                if out.write_all(words.as_flattened()).is_err() || kind != 0 {
                    break;
                }
            }
            // SAFETY: leaves without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(out);
        let read = read_waits(&mut results, stop);
        drop(results);
        // SAFETY: our own child, whether it has ended or not.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        read
    }
}

fn read_waits(results: &mut io::PipeReader, stop: &AtomicBool) -> io::Result<Vec<Waited>> {
    let mut out = Vec::new();
    let mut words = [[0u8; 8]; 3];
    while !stop.load(Ordering::Relaxed) {
        let mut fd = libc::pollfd { fd: results.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live descriptor. Now and then it is looked whether to stop.
        if unsafe { libc::poll(&raw mut fd, 1, 100) } <= 0 {
            continue;
        }
        match results.read_exact(words.as_flattened_mut()) {
            Err(_) => break, // all written
            Ok(()) => match words.map(u64::from_ne_bytes) {
                [0, took, phase] => out.push(Waited { took, phase }),
                [e, ..] => return Err(io::Error::from_raw_os_error(e as i32)),
            },
        }
    }
    Ok(out)
}

/// Sleeps to a chosen time within a tick: the n-th of a sequence that fills the tick evenly, so that a call
/// bound to ticks shows its whole range of latenesses.
fn sleep_to_phase(n: usize, tick: u64) {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let now = clock(libc::CLOCK_MONOTONIC);
    let offset = ((n as f64 * GOLDEN).fract() * tick as f64) as u64;
    let at = now - now % tick + offset;
    let at = if at > now { at } else { at + tick };
    let t = libc::timespec { tv_sec: (at / 1_000_000_000) as _, tv_nsec: (at % 1_000_000_000) as _ };
    // SAFETY: a live local. Woken early by a signal, it starts at another time, which is as good.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const t, std::ptr::null_mut())
    };
}

/// The length of a tick, 1/CONFIG_HZ, ns: the resolution of the clocks that only ticks advance.
pub fn tick_ns() -> u64 {
    resolution(libc::CLOCK_MONOTONIC_COARSE).max(1)
}

fn resolution(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live local.
    unsafe { libc::clock_getres(id, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How much later than asked the kernel may wake this thread, to wake several at once (ns).
pub fn timer_slack() -> u64 {
    // SAFETY: reads a number.
    u64::try_from(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }).unwrap_or(0)
}

/// Runs the plan. Calls wait at the same time as far as their wake-ups do not disturb each other; those
/// that use CPU time run alone. `progress` is given how many jobs of how many are done.
pub fn measure(plan: &Plan, stop: &AtomicBool, progress: &mut dyn FnMut(usize, usize)) -> Measured {
    let (tick, slack) = (tick_ns(), timer_slack());
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let budget = WAKES_PER_CPU * cpus as f64;
    let mut jobs = jobs(plan, tick, slack);
    // The longest first, many at once; the short ones, each of which wakes often, by themselves.
    jobs.sort_by_key(|j| (j.call.scope == Scope::CpuTime, u64::MAX - j.length(tick)));
    let all = jobs.len();
    let mut results: Vec<(Job, Vec<Waited>)> = Vec::with_capacity(all);
    let mut notes: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let (send, done) = channel();
        let (mut running, mut load, mut finished) = (0, 0.0, 0);
        let mut jobs = jobs.into_iter().peekable();
        while finished < all {
            while let Some(job) = jobs.next_if(|j| running == 0 || load + j.rate(tick, budget) <= budget) {
                running += 1;
                load += job.rate(tick, budget);
                let send = send.clone();
                scope.spawn(move || {
                    let result = job.run(tick, stop);
                    _ = send.send((job, result));
                });
            }
            let Ok((job, result)) = done.recv() else { break };
            running -= 1;
            load = if running == 0 { 0.0 } else { load - job.rate(tick, budget) };
            finished += 1;
            progress(finished, all);
            match result {
                Ok(waits) => results.push((job, waits)),
                Err(_) if stop.load(Ordering::Relaxed) => {}
                Err(e) => {
                    let note = format!("{} is not measured: {e}", job.call.name);
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
        }
    });
    results.sort_by_key(|(job, _)| job.place);
    let mut waits = timeouts::Rows::new();
    for (job, all) in &results {
        all.iter().for_each(|w| waits.push(row(job, w)));
    }
    let mut machine = timer_machine::Rows::new();
    machine.push(timer_machine::Row {
        tick: Some(tick),
        slack: Some(slack),
        monotonic: Some(resolution(libc::CLOCK_MONOTONIC)),
        realtime: Some(resolution(libc::CLOCK_REALTIME)),
    });
    Measured { waits: waits.finish(), machine: machine.finish(), notes }
}

fn row(job: &Job, wait: &Waited) -> timeouts::Row<'static> {
    let scope = match job.call.scope {
        Scope::Thread => WaitScope::Thread,
        Scope::Process => WaitScope::Process,
        Scope::CpuTime => WaitScope::Cpu,
    };
    timeouts::Row {
        call: job.call.name.into(),
        scope: Some(scope),
        unit: Some(job.call.unit),
        asked: Some(job.argument),
        slack: Some(job.slack),
        took: Some(wait.took),
        phase: Some(wait.phase),
    }
}

/// Times that a call rounds to the same argument are one job; and one more, without slack, of the time
/// nearest to a millisecond.
fn jobs(plan: &Plan, tick: u64, slack: u64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for &call in &plan.calls {
        let mut arguments: Vec<u64> = plan.times.iter().map(|&t| call.argument(t)).collect();
        arguments.sort_unstable();
        arguments.dedup();
        for &argument in &arguments {
            let samples = samples(plan, call, argument, tick);
            jobs.push(Job { place: jobs.len(), call, argument, slack, samples });
        }
        let near = arguments.iter().min_by_key(|a| a.abs_diff(1_000_000));
        if let (Some(&argument), true) = (near, call.scope != Scope::CpuTime && slack > 1) {
            let samples = samples(plan, call, argument, tick);
            jobs.push(Job { place: jobs.len(), call, argument, slack: 1, samples });
        }
    }
    jobs
}

/// Enough for a percentile where it costs little: 40 of a short wait, 25 of one of 100 ms, 5 of seconds.
fn samples(plan: &Plan, call: &Call, argument: u64, tick: u64) -> usize {
    let most = if call.scope == Scope::CpuTime { 5 } else { 40 };
    plan.samples.unwrap_or((2_600_000_000 / (argument + tick / 2)).clamp(5, most) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::CALLS;

    fn plan(names: &[&str], times: &[u64], samples: usize) -> Plan {
        let calls = CALLS.iter().filter(|c| names.contains(&c.name)).collect();
        Plan { calls, times: times.to_vec(), samples: Some(samples) }
    }

    #[test]
    fn times_of_one_argument_are_measured_once() {
        let plan = plan(&["poll", "nanosleep"], &[1_000, 1_000_000, 9_000_000], 5);
        let jobs = jobs(&plan, 4_000_000, 50_000);
        let of = |name: &str, slack: u64| {
            let of = jobs.iter().filter(|j| j.call.name == name && j.slack == slack);
            of.map(|j| j.argument).collect::<Vec<_>>()
        };
        assert_eq!(of("poll", 50_000), [1_000_000, 9_000_000]);
        assert_eq!(of("nanosleep", 50_000), [1_000, 1_000_000, 9_000_000]);
        assert_eq!(of("poll", 1), [1_000_000]);
    }

    #[test]
    fn every_wait_is_a_row_and_none_is_early() {
        let names = ["nanosleep", "poll", "setitimer(REAL)", "timer_settime", "futex(WAIT)"];
        let plan = plan(&names, &[100_000, 2_000_000], 4);
        let mut last = (0, 0);
        let measured = measure(&plan, &AtomicBool::new(false), &mut |done, all| last = (done, all));
        assert!(measured.notes.is_empty(), "{:?}", measured.notes);
        let per_call = if timer_slack() > 1 { 3 } else { 2 };
        assert_eq!(last, (names.len() * per_call, names.len() * per_call));
        let waits = &measured.waits;
        assert_eq!(waits.num_rows(), names.len() * per_call * 4);
        for row in 0..waits.num_rows() {
            let (asked, took) = (waits.int(row, "asked"), waits.int(row, "took"));
            assert!(took >= asked, "{:?}: {took:?} of {asked:?}", waits.text(row, "call"));
        }
    }

    #[test]
    fn a_timer_of_cpu_time_expires_in_its_own_process() {
        let plan = plan(&["setitimer(PROF)", "timer_settime(THREAD_CPUTIME)"], &[3_000_000], 3);
        let measured = measure(&plan, &AtomicBool::new(false), &mut |_, _| {});
        assert!(measured.notes.is_empty(), "{:?}", measured.notes);
        assert_eq!(measured.waits.num_rows(), 6);
    }

    #[test]
    fn told_to_stop_it_stops() {
        let plan = plan(&["nanosleep", "alarm"], &[1_000_000], 1000);
        let measured = measure(&plan, &AtomicBool::new(true), &mut |_, _| {});
        assert_eq!(measured.waits.num_rows(), 0);
    }
}

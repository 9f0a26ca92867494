//! The overhead of tracing calls and faults on the traced threads, measured when an observation
//! begins.
//!
//! The programs on each call's entry and return read the clock, so their own time, and the kernel's on the way to
//! them, lies partly in the state before and partly in the one behind. A process of our own makes many calls and many
//! faults, first untraced and then traced; what its microstates then have too much is taken out of those of others, a
//! call and a fault at a time. How a call's time is parted between user and kernel nobody can tell from within:
//! a timer that strikes the process tells, as it does for the kernel's own accounting.
//!
//! Tracing costs a program more or less than that process, by what it leaves in caches: a few tens of ns an event, which are
//! many points of a program that does little but fault. So a timer strikes the program too, and its samples of the time
//! traced correct the costs, as far as they are steadier (a Kalman filter of the two costs).

use std::os::fd::{AsRawFd, OwnedFd};

use ncpu_observe_core::program::keep_only;
use rustix::process::{Pid, WaitOptions};

use super::{Engine, ThreadOut};
use crate::bpf_support::perf;

/// Calls and faults of a part of a round; some tenths of a millisecond. The fastest part is the least disturbed.
const CALLS: u64 = 2_500;
const FAULTS: u64 = 512;
/// Parts of a round.
const PARTS: usize = 8;
/// Rounds of a measurement. As many with tracing as without: of more of them the fastest is faster.
const ROUNDS: u64 = 6;
/// Rounds that the timer strikes: what it tells is right to a few in a hundred.
const STRUCK: u64 = 4;
const STRIKES_HZ: u32 = 20_000;
/// Pages touched before they are given back: few, which the kernel hands out again while they lie in the caches.
const PAGES: u64 = 64;

/// ns that an event's tracing adds to each microstate; less than 0 where another has got its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// To USR.
    pub user: f64,
    /// To SYS for a call, to TRP for a fault.
    pub kernel: f64,
    /// Error of `user`, with `kernel` off by as much in the other direction: a standard error.
    pub error: f64,
}

/// How much more or less tracing may cost a program than the process that was measured: a standard error, as a part of the
/// cost.
const ALIKE: f64 = 0.1;
/// An interval adds this to it: a program goes on to something else.
const DRIFT: f64 = ALIKE / 8.0;

/// Timer samples of the program in an interval, and its traced time and events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Struck {
    /// Times the timer met user code, and anything of the program.
    pub user: u64,
    pub all: u64,
    /// ns in USR, and on CPU, as they were traced.
    pub usr: f64,
    pub on_cpu: f64,
    pub calls: f64,
    pub faults: f64,
}

impl Cost {
    /// ns of an event's tracing.
    pub fn all(&self) -> f64 {
        self.user + self.kernel
    }

    /// From ns of one event: untraced, and in user and kernel microstates while traced, and what part of `all` ns, an
    /// event's time with all around it, `met` of `strikes` strikes told to be user code.
    fn of(plain: f64, user: f64, kernel: f64, met: u64, strikes: u64, all: f64) -> Cost {
        let n = strikes.max(1) as f64;
        let part = met as f64 / n;
        let truth = (part * all).min(plain);
        let chance = (part * (1.0 - part) / n).sqrt() * all;
        let cost = Cost { user: user - truth, kernel: kernel - (plain - truth), error: 0.0 };
        Cost { error: chance.hypot(ALIKE * cost.all()), ..cost }
    }

    /// A fault's cost, as far as it can be true beside a call's. One that was not measured stays so.
    fn beside(self, call: &Cost) -> Cost {
        let (all, call) = (self.all(), call.all().max(0.0));
        if self == Cost::default() {
            return self;
        }
        let off = all.clamp(FAULT_OF_CALL[0] * call, FAULT_OF_CALL[1] * call) - all;
        Cost { kernel: self.kernel + off, error: self.error.hypot(off), ..self }
    }
}

/// A fault's tracing takes about twice what a call's does. Outside of this many times the pace of a virtual CPU changed between
/// the rounds with tracing and those without: a fault's own time is several times that of its tracing.
const FAULT_OF_CALL: [f64; 2] = [1.0, 3.0];

/// Overhead of tracing in the microstates of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// A system call.
    pub call: Cost,
    /// A page fault.
    pub fault: Cost,
    /// Covariance of the two errors.
    both: f64,
    /// Strikes that were learned from.
    strikes: u64,
}

impl Costs {
    /// Subtracts the tracing overhead of `calls` and `faults` from a thread's USR, SYS and TRP (seconds), and returns
    /// the seconds subtracted, which were `ncpu`'s. No state falls below 0.
    pub fn take(&self, states: &mut [f64; 3], calls: u64, faults: u64) -> f64 {
        // ns an event, of seconds.
        let (calls, faults) = (calls as f64 / 1e9, faults as f64 / 1e9);
        let before: f64 = states.iter().sum();
        let added = [
            calls * self.call.user + faults * self.fault.user,
            calls * self.call.kernel,
            faults * self.fault.kernel,
        ];
        for (state, added) in states.iter_mut().zip(added) {
            *state = (*state - added).max(0.0);
        }
        let after: f64 = states.iter().sum();
        if after > before {
            // More was given than taken, where a state was at its end already.
            states.iter_mut().for_each(|s| *s *= before / after);
        }
        (before - after).max(0.0)
    }

    /// Corrects the costs by the timer samples of an interval.
    pub(super) fn learn(&mut self, seen: &Struck) {
        if seen.all == 0 || seen.on_cpu <= 0.0 {
            return;
        }
        for cost in [&mut self.call, &mut self.fault] {
            cost.error = cost.error.hypot(DRIFT * cost.all());
        }
        // Half a strike more of each kind, so that chance has some room where there were none.
        let n = seen.all as f64;
        let part = (seen.user as f64 + 0.5) / (n + 1.0);
        let variance = part * (1.0 - part) / n * seen.on_cpu.powi(2);
        let events = [seen.calls, seen.faults];
        let told = seen.usr - events[0] * self.call.user - events[1] * self.fault.user;
        let [call, fault] = [self.call.error.powi(2), self.fault.error.powi(2)];
        let with = [call * events[0] + self.both * events[1], self.both * events[0] + fault * events[1]];
        let total = with[0] * events[0] + with[1] * events[1] + variance;
        if total <= 0.0 {
            return;
        }
        let gain = with.map(|w| w / total);
        for (cost, (gain, with)) in
            [&mut self.call, &mut self.fault].into_iter().zip(gain.into_iter().zip(with))
        {
            let shift = gain * (told - part * seen.on_cpu);
            cost.user += shift;
            cost.kernel -= shift;
            cost.error = (cost.error.powi(2) - gain * with).max(0.0).sqrt();
        }
        self.both -= gain[0] * with[1];
        self.strikes += seen.all;
    }

    /// A line for people, where a timer strikes the program that often.
    pub fn note(&self, hz: u32) -> String {
        format!(
            "tracing costs {:.0} ns a call and {:.0} ns a fault, measured just now; that is taken out of USR, SYS and TRP \
             into NCPU. USR and SYS are uncertain by some {:.0} ns a call, USR and TRP by {:.0} ns a fault, until samples of \
             the program ({hz} a second on each CPU) narrow that",
            self.call.all().max(0.0),
            self.fault.all().max(0.0),
            2.0 * self.call.error,
            2.0 * self.fault.error
        )
    }

    /// How uncertain the split of the last interval was; `None` where no sample has told anything.
    pub fn uncertain(&self) -> Option<String> {
        (self.strikes > 0).then(|| {
            format!(
                "by {} samples of the program, USR and SYS were uncertain by some {:.0} ns a call at last, USR and TRP by \
                 {:.0} ns a fault",
                self.strikes,
                2.0 * self.call.error,
                2.0 * self.fault.error
            )
        })
    }
}

/// The job of the measured process.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Job {
    Calls = 1,
    Faults = 2,
}

/// A process that makes calls and faults on command; killed when dropped.
pub(super) struct Gauge {
    pid: Pid,
    orders: OwnedFd,
    answers: OwnedFd,
    /// ns of CPU time a call and a fault, untraced.
    plain: [f64; 2],
}

impl Gauge {
    /// Starts the process and measures it untraced.
    pub fn start() -> std::io::Result<Gauge> {
        let (orders_read, orders) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (answers, answers_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: the child calls only async-signal-safe functions until it exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            keep_only(&[orders_read.as_raw_fd(), answers_write.as_raw_fd()]);
            serve(orders_read.as_raw_fd(), answers_write.as_raw_fd());
        }
        let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(std::io::Error::last_os_error)?;
        let mut gauge = Gauge { pid, orders, answers, plain: [0.0; 2] };
        // The first round also warms up.
        for _ in 0..ROUNDS {
            for (i, job) in [Job::Calls, Job::Faults].into_iter().enumerate() {
                let ns = gauge.work(job)?;
                if gauge.plain[i] == 0.0 || ns < gauge.plain[i] {
                    gauge.plain[i] = ns;
                }
            }
        }
        Ok(gauge)
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Has it do a round of a job; ns of CPU time for each call or fault, in the fastest part.
    fn work(&self, job: Job) -> std::io::Result<f64> {
        rustix::io::write(&self.orders, &[job as u8])?;
        let mut answer = [0; 8];
        let n = rustix::io::read(&self.answers, &mut answer)?;
        if n != answer.len() {
            return Err(std::io::Error::other("the process that is measured has ended"));
        }
        Ok(f64::from_ne_bytes(answer))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// The child's part: no allocation, no locks.
fn serve(orders: i32, answers: i32) -> ! {
    let cpu_ns = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
    };
    let page = rustix::param::page_size();
    let bytes = PAGES as usize * page;
    // SAFETY: a fresh private mapping, of this process alone.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory != libc::MAP_FAILED {
        // SAFETY: the mapping just made. Huge pages would be one fault for 512 pages.
        unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
    }
    loop {
        let mut order = 0u8;
        // SAFETY: reads a byte into a live local; exits run no destructors.
        unsafe {
            if memory == libc::MAP_FAILED || libc::read(orders, (&raw mut order).cast(), 1) != 1 {
                libc::_exit(0);
            }
        }
        let mut best = f64::MAX;
        for _ in 0..PARTS {
            let (ns, n) = if order == Job::Calls as u8 {
                let begin = cpu_ns();
                for _ in 0..CALLS {
                    // SAFETY: a call without arguments.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                (cpu_ns() - begin, CALLS)
            } else {
                let mut ns = 0.0;
                for _ in 0..FAULTS / PAGES {
                    let begin = cpu_ns();
                    for i in 0..PAGES as usize {
                        // SAFETY: within the mapping.
                        unsafe { memory.cast::<u8>().add(i * page).write_volatile(1) };
                    }
                    ns += cpu_ns() - begin;
                    // SAFETY: the mapping made above.
                    unsafe { libc::madvise(memory, bytes, libc::MADV_DONTNEED) };
                }
                (ns, FAULTS)
            };
            best = best.min(ns / n as f64);
        }
        // SAFETY: writes a live local.
        unsafe {
            if libc::write(answers, best.to_ne_bytes().as_ptr().cast(), 8) != 8 {
                libc::_exit(0);
            }
        }
    }
}

impl Engine {
    /// Measures what tracing costs, by a process that was started before anything was attached.
    pub(super) fn calibrate(&mut self, gauge: &Gauge) -> std::io::Result<Costs> {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.calibrating = gauge.pid();
        }
        let costs = self.measure(gauge);
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.calibrating = 0;
        }
        costs
    }

    fn measure(&mut self, gauge: &Gauge) -> std::io::Result<Costs> {
        // It is met when it runs again.
        gauge.work(Job::Calls)?;
        let of = |t: &ThreadOut, job: Job| {
            let kernel = if matches!(job, Job::Calls) { 1 } else { 2 };
            let n = if matches!(job, Job::Calls) { t.scl } else { t.faults };
            [n as f64, t.micro[0] as f64, t.micro[kernel] as f64, t.micro[..3].iter().sum::<u64>() as f64]
        };
        let mut costs = [Cost::default(); 2];
        for (i, job) in [Job::Calls, Job::Faults].into_iter().enumerate() {
            let mut part = f64::MAX;
            let mut best = [f64::MAX; 3];
            for _ in 0..ROUNDS {
                let before = of(&self.gauged(gauge)?, job);
                part = part.min(gauge.work(job)?);
                let after = of(&self.gauged(gauge)?, job);
                let [n, user, kernel, all] = std::array::from_fn(|i| after[i] - before[i]);
                if n < 1.0 && matches!(job, Job::Faults) {
                    continue; // not every kernel reports faults
                }
                if n < 1.0 {
                    return Err(std::io::Error::other("its calls were not traced"));
                }
                if all / n < best[2] {
                    best = [user / n, kernel / n, all / n];
                }
            }
            if best[2] == f64::MAX {
                continue;
            }
            let [user, kernel, all] = best;
            // Divided as the fastest round was, which is longer than its fastest part.
            let fastest = part / (user + kernel).max(1.0);
            let timer =
                perf::attach(&self.skel.progs.tell_mode, perf::cpu_clock_of(gauge.pid(), STRIKES_HZ)?)?;
            let met = |engine: &Engine| {
                engine.skel.maps.bss_data.as_ref().map_or((0, 0), |bss| (bss.met_user, bss.met))
            };
            let before = met(self);
            for _ in 0..STRUCK {
                gauge.work(job)?;
            }
            let after = met(self);
            drop(timer);
            let (met, strikes) = (after.0 - before.0, after.1 - before.1);
            costs[i] = Cost::of(gauge.plain[i], user * fastest, kernel * fastest, met, strikes, all);
        }
        let [call, fault] = costs;
        Ok(Costs { call, fault: fault.beside(&call), ..Costs::default() })
    }

    /// The record of the process that is measured.
    fn gauged(&self, gauge: &Gauge) -> std::io::Result<ThreadOut> {
        let threads = self.threads().map_err(std::io::Error::other)?;
        let found = threads.into_iter().find(|t| t.tgid == gauge.pid());
        found.ok_or_else(|| std::io::Error::other("it is not observed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tracing_added_is_taken_out() {
        // Of 400 ns traced, 100 were there before, and a tenth of the strikes met user code.
        let call = Cost::of(100.0, 220.0, 180.0, 100, 1000, 400.0);
        assert_eq!((call.user, call.kernel, call.all()), (180.0, 120.0, 300.0));
        let fault = Cost { user: 10.0, kernel: 20.0, error: 0.0 };
        let costs = Costs { call, fault, ..Costs::default() };
        let mut states = [2200.0, 1800.0, 500.0];
        let taken = costs.take(&mut states, 10_000_000_000, 10_000_000_000);
        assert_eq!(taken, 3300.0);
        assert_eq!(states, [300.0, 600.0, 300.0]);
    }

    #[test]
    fn a_fault_costs_no_less_than_a_call_and_not_much_more() {
        let call = Cost { user: 100.0, kernel: 200.0, error: 10.0 };
        let fault = |kernel: f64| Cost { user: 100.0, kernel, error: 30.0 }.beside(&call);
        assert_eq!(fault(500.0), Cost { user: 100.0, kernel: 500.0, error: 30.0 });
        for (kernel, all) in [(-150.0, 300.0), (1500.0, 900.0)] {
            let cost = fault(kernel);
            assert!(
                (cost.all() - all).abs() < 1e-9 && cost.error > 300.0,
                "what was measured is worth little: {cost:?}"
            );
        }
        assert_eq!(Cost::default().beside(&call), Cost::default());
    }

    /// A program that faults a million times a second, and is in user code for a tenth of its time.
    fn faulting(user: u64, all: u64, faults: f64) -> Struck {
        // Tracing has added 150 ns a fault to it.
        Struck { user, all, usr: 0.1e9 + 150.0 * faults, on_cpu: 1e9, calls: 0.0, faults }
    }

    #[test]
    fn samples_of_the_program_correct_what_tracing_adds() {
        // The process that was measured had 100 ns of it: 5 points of this program.
        let fault = Cost { user: 100.0, kernel: 300.0, error: 40.0 };
        let mut costs = Costs { fault, ..Costs::default() };
        costs.learn(&faulting(1000, 10_000, 1e6));
        assert!((costs.fault.user - 150.0).abs() < 2.0 * costs.fault.error, "{costs:?}");
        assert!((costs.fault.all() - 400.0).abs() < 1e-9, "what it costs in all is known: {costs:?}");
        assert!(costs.fault.error < 5.0 && costs.fault.error > 1.0, "{costs:?}");
        assert_eq!(costs.call, Cost::default());

        // Few samples say less than what was measured, and few faults say nothing.
        for (struck, near) in [(faulting(1, 10, 1e6), 100.0), (faulting(1000, 10_000, 1e3), 100.0)] {
            let mut costs = Costs { fault, ..Costs::default() };
            costs.learn(&struck);
            assert!((costs.fault.user - near).abs() < 25.0, "{costs:?}");
            assert!(costs.fault.error > 30.0, "{costs:?}");
        }
        let mut costs = Costs { fault, ..Costs::default() };
        costs.learn(&faulting(0, 0, 1e6));
        assert_eq!(costs, Costs { fault, ..Costs::default() });
    }

    #[test]
    fn calls_and_faults_are_told_apart_by_intervals_that_differ() {
        let cost = |user| Cost { user, kernel: 300.0, error: 40.0 };
        let mut costs = Costs { call: cost(100.0), fault: cost(100.0), ..Costs::default() };
        for i in 0..20 {
            let (calls, faults) = if i % 2 == 0 { (1e6, 2e5) } else { (2e5, 1e6) };
            let usr = 0.1e9 + 70.0 * calls + 150.0 * faults;
            costs.learn(&Struck { user: 1000, all: 10_000, usr, on_cpu: 1e9, calls, faults });
        }
        assert!((costs.call.user - 70.0).abs() < 5.0 && (costs.fault.user - 150.0).abs() < 5.0, "{costs:?}");
    }

    #[test]
    fn no_state_falls_below_nothing() {
        let costs = Costs { call: Cost { user: 200.0, kernel: -50.0, error: 0.0 }, ..Costs::default() };
        let mut states = [100.0, 0.0, 0.0];
        let taken = costs.take(&mut states, 1_000_000_000, 0);
        assert!(states.iter().all(|s| *s >= 0.0), "{states:?}");
        assert!((taken + states.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{taken} {states:?}");
    }
}

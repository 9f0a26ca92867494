//! Runs a case: processes, threads, placement, calibration, sampling, and the watch for disturbance.
//!
//! The workers live in processes of their own, so that a case which changes its process, or dies, harms
//! nobody. All begin a batch at a barrier. A sample is the time from the first worker's begin to the last
//! one's end, less what reading the clock takes, over the operations of one worker, as in libMicro. Between
//! batches the first worker decides what is next (`leader.rs`).

mod barrier;
mod clock;
mod control;
mod leader;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ncpu_machine::Topology;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::case::{Bench, Case, Failure, Worker};
use crate::options::Options;
use crate::place::{self, Memory, Place};
use crate::stats::{Summary, trim};
pub(crate) use barrier::Barrier;
pub use clock::Clock;
pub(crate) use clock::{look, now};
use control::{Board, Slot, phase};
pub use control::{Sample, mark};
use leader::Leader;

/// How a case is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Processes.
    pub processes: usize,
    /// Threads in each.
    pub threads: usize,
    /// Samples at least.
    pub min_samples: usize,
    /// Sampling ends after this time, if it has not become precise enough before.
    pub duration: Duration,
    /// Half the 95 % confidence interval of the median that is narrow enough, as a share of it.
    pub precision: f64,
    /// Operations of a worker in a batch; calibrated without.
    pub batch: Option<u64>,
    /// Where the workers run.
    pub place: Place,
    /// Where their memory comes from.
    pub memory: Memory,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            processes: 1,
            threads: 1,
            min_samples: 20,
            duration: Duration::from_secs(1),
            precision: 0.01,
            batch: None,
            place: Place::Free,
            memory: Memory::Default,
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The samples that count, marked ones too, in the order of time.
    pub samples: Vec<Sample>,
    /// Samples thrown away because of disturbance, and taken again.
    pub retried: u64,
    /// Operations of a worker in a batch.
    pub batch: u64,
    /// The clock they were taken with.
    pub clock: Clock,
    /// CPU time of the workers over their wall time, 0–1 a worker.
    pub busy: f64,
    /// Share of the CPUs' time that was lost to others when they were looked at; 0–1.
    pub lost: f64,
    /// Slowest over fastest clock speed seen.
    pub speed: f64,
    /// Workers, and the CPUs there were for them.
    pub workers: (usize, usize),
    /// Further figures of the case.
    pub figures: Vec<(String, f64)>,
    /// It was stopped before it was done.
    pub stopped: bool,
}

impl Outcome {
    /// Statistics of all samples, ns an operation.
    pub fn raw(&self) -> Summary {
        Summary::of(&self.samples.iter().map(|s| s.nanos).collect::<Vec<_>>())
    }

    /// Statistics without outliers and, where enough others are left, without marked samples; and how many
    /// samples are left out. Nanoseconds an operation.
    pub fn trimmed(&self) -> (Summary, usize) {
        let good: Vec<f64> = self.samples.iter().filter(|s| s.marks == 0).map(|s| s.nanos).collect();
        let kept = if good.len() >= 6 { good } else { self.samples.iter().map(|s| s.nanos).collect() };
        let (kept, _) = trim(&kept);
        let left_out = self.samples.len() - kept.len();
        (Summary::of(&kept), left_out)
    }

    /// [`Outcome::trimmed`]'s statistics.
    pub fn summary(&self) -> Summary {
        self.trimmed().0
    }

    /// Operations that failed.
    pub fn errors(&self) -> u64 {
        self.samples.iter().map(|s| s.errors).sum()
    }

    /// Samples that are marked as disturbed.
    pub fn marked(&self) -> usize {
        self.samples.iter().filter(|s| s.marks != 0).count()
    }

    /// How much the workers were at work at the same time; 0–1.
    pub fn overlap(&self) -> f64 {
        let sum: f64 = self.samples.iter().map(|s| s.overlap).sum();
        sum / self.samples.len().max(1) as f64
    }
}

/// Runs a case with its own options in `words`; `stop` ends it early.
///
/// # Errors
/// The options or the placement make no sense, the machine lacks what the case needs, or it went wrong.
pub fn run(
    case: &Case,
    words: &[String],
    plan: &Plan,
    machine: &Topology,
    stop: &AtomicBool,
) -> Result<Outcome, Failure> {
    let told = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let options = Options::parse(case.flags, words)?.with_workers(plan.processes, plan.threads);
    let order = plan.place.order(machine).map_err(|e| told(&e))?;
    plan.memory.check(machine).map_err(|e| told(&e))?;
    let workers = options.workers();
    if workers == 0 {
        return Err(Failure::Usage("no workers: give at least one process and one thread".into()));
    }
    let usable = order.as_ref().map_or(machine.online.and(&machine.allowed).len(), Vec::len);
    let setting = Setting { plan, machine, order, room: workers <= usable };
    let board = Board::new(workers)?;
    let clock = Clock::measure();

    // SAFETY: what the child does before it ends is our own code; ncpu has no threads here that could
    // hold a lock.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(Failure::os("fork")),
        0 => in_child(&board, || lead(case, &options, &setting, clock, &board)),
        _ => {}
    }
    let stopped = watch(pid, &board, plan, stop)?;
    if let (Some(failure), false) = (board.failure(), stopped) {
        return Err(failure);
    }
    let control = &board.control;
    let load = |a: &std::sync::atomic::AtomicU64| a.load(Relaxed);
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    Ok(Outcome {
        samples: board.samples(),
        retried: load(&control.retried),
        batch: load(&control.batch),
        clock,
        busy: share(load(&control.cpu), load(&control.wall) * workers as u64),
        lost: share(load(&control.lost), load(&control.looked)),
        speed: if load(&control.slowest) == 0 {
            1.0
        } else {
            share(load(&control.slowest), load(&control.fastest))
        },
        workers: (workers, usable),
        figures: board.figures(),
        stopped,
    })
}

struct Setting<'a> {
    plan: &'a Plan,
    machine: &'a Topology,
    order: Option<Vec<u32>>,
    room: bool,
}

/// Time for a stopped run to end its batch.
const GRACE: Duration = Duration::from_millis(500);

/// Waits for the run to end; whether it was stopped.
fn watch(pid: i32, board: &Board, plan: &Plan, stop: &AtomicBool) -> Result<bool, Failure> {
    let pid = Pid::from_raw(pid).ok_or_else(|| Failure::Failed("fork gave no process".into()))?;
    let kill = || {
        // The group may have gone by itself.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    };
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(std::io::Error::from)?;
    let began = Instant::now();
    let patience = Duration::from_secs(60) + 20 * plan.duration;
    let (mut stopped, mut late) = (None, false);
    loop {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(pidfd.as_fd(), rustix::event::PollFlags::IN)];
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // Interrupted by a signal: the loop looks at `stop`.
        let _ = rustix::event::poll(&mut fds, Some(&time));
        if !fds[0].revents().is_empty() {
            break;
        }
        late = began.elapsed() > patience;
        if stopped.is_none() && stop.load(Relaxed) {
            // After its batch the case can tear down what it has set up.
            board.control.stop.store(1, Relaxed);
            stopped = Some(Instant::now());
        }
        if late || stopped.is_some_and(|t| t.elapsed() > GRACE) {
            kill();
        }
    }
    let stopped = stopped.is_some();
    let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
        .map_err(std::io::Error::from)?
        .map(|(_, status)| status);
    kill(); // what a case has left running
    if late {
        return Err(Failure::Failed(format!("no end after {} s", patience.as_secs())));
    }
    if !stopped
        && board.failure().is_none()
        && let Some(signal) = status.and_then(|s| s.terminating_signal())
    {
        return Err(Failure::Failed(format!("the benchmark was killed by signal {signal}")));
    }
    Ok(stopped)
}

/// Runs `work` and ends the process, come what may.
fn in_child(board: &Board, work: impl FnOnce() -> Result<(), Failure>) -> ! {
    // SAFETY: plain system calls. With their parent gone, workers are nobody's.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    single_threaded();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    match done {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => board.fail(&failure),
        Err(_) => board.fail(&Failure::Failed("the benchmark panicked".into())),
    }
    // SAFETY: the buffers of standard output are the parent's to write.
    unsafe { libc::_exit(0) }
}

/// Sets the C library's record of the number of threads to one, in a process just forked. glibc leaves out
/// atomic operations in malloc, stdio and mutexes while it has seen no other thread, and after `fork` still
/// assumes those that the parent once had; a case would be slower than in a program of its own.
fn single_threaded() {
    // SAFETY: glibc's `char __libc_single_threaded` where there is one (from 2.32 on); null elsewhere. It is
    // true, and pthread_create takes it back.
    unsafe {
        let at: *mut u8 = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()).cast();
        if !at.is_null() {
            at.write_volatile(1);
        }
    }
}

/// The first worker process: sets up, starts the others, works.
fn lead(
    case: &Case,
    options: &Options,
    setting: &Setting<'_>,
    clock: Clock,
    board: &Board,
) -> Result<(), Failure> {
    // SAFETY: plain system calls. Its own group, so that all of it can be killed; the terminal's Ctrl-C is
    // for the parent.
    unsafe { libc::setpgid(0, 0) };
    setting.plan.memory.apply(setting.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let bench = (case.setup)(options)?;
    let mut others = Vec::new();
    for process in 1..setting.plan.processes {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(Failure::os("fork")),
            0 => in_child(board, || process_main(&*bench, process, setting, clock, board)),
            pid => others.push(pid),
        }
    }
    let done = process_main(&*bench, 0, setting, clock, board);
    for pid in others {
        let mut status = 0;
        // SAFETY: a live int.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if libc::WIFSIGNALED(status) {
            board.fail(&Failure::Failed(format!("a worker was killed by signal {}", libc::WTERMSIG(status))));
        }
    }
    done?;
    board.set_figures(&bench.figures());
    Ok(())
}

fn process_main(
    bench: &dyn Bench,
    process: usize,
    setting: &Setting<'_>,
    clock: Clock,
    board: &Board,
) -> Result<(), Failure> {
    let plan = setting.plan;
    let me = |thread| Worker {
        index: process * plan.threads + thread,
        process,
        thread,
        workers: plan.processes * plan.threads,
    };
    let work = |thread| {
        let done = worker(bench, me(thread), setting, clock, board);
        if let Err(failure) = &done {
            board.fail(failure);
        }
        done
    };
    std::thread::scope(|scope| {
        let work = &work;
        for thread in 1..plan.threads {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || work(thread));
            if let Err(e) = spawned {
                let failure = Failure::Failed(format!("starting thread {thread}: {e}"));
                board.fail(&failure);
                return Err(failure);
            }
        }
        work(0)
    })
}

fn worker(
    bench: &dyn Bench,
    me: Worker,
    setting: &Setting<'_>,
    clock: Clock,
    board: &Board,
) -> Result<(), Failure> {
    if let Some(order) = &setting.order {
        place::bind(order[me.index % order.len()]).map_err(|e| Failure::Failed(e.to_string()))?;
    }
    let mut batch = bench.worker(me)?;
    let mut leader = (me.index == 0).then(|| Leader::new(board, setting.plan, clock, setting.room, bench));
    let delay = RunDelay::open();
    let control = &board.control;
    let (workers, slot): (u32, &Slot) = (me.workers as u32, &board.slots[me.index]);
    // A broken barrier: another has failed and said why.
    let meet = || control.barrier.wait(workers, setting.room);
    if meet().is_err() {
        return Ok(());
    }
    loop {
        match control.phase.load(Relaxed) {
            phase::STOP => return Ok(()),
            phase::LOOK => slot.set_look(clock::look()),
            _ => {
                let n = control.batch.load(Relaxed);
                batch.before(n)?;
                let delayed = delay.read();
                let cpu = cpu_time();
                if meet().is_err() {
                    return Ok(());
                }
                let begin = clock::now();
                let errors = batch.run(n);
                let end = clock::now();
                slot.begin.store(begin, Relaxed);
                slot.end.store(end, Relaxed);
                slot.errors.store(errors, Relaxed);
                slot.cpu.store(cpu_time() - cpu, Relaxed);
                slot.delay.store(delay.read().saturating_sub(delayed), Relaxed);
            }
        }
        let batch_done = control.phase.load(Relaxed) == phase::BATCH;
        let n = control.batch.load(Relaxed);
        if meet().is_err() {
            return Ok(());
        }
        if batch_done {
            batch.after(n);
        }
        if let Some(leader) = &mut leader {
            leader.decide();
        }
        if meet().is_err() {
            return Ok(());
        }
    }
}

/// Nanoseconds of CPU time of the calling thread.
pub(crate) fn cpu_time() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The calling thread's time on run queues (`/proc/thread-self/schedstat`, its second figure).
struct RunDelay(Option<std::fs::File>);

impl RunDelay {
    /// Without the file – no SCHED_INFO, no /proc – nothing is ever delayed.
    fn open() -> RunDelay {
        RunDelay(std::fs::File::open("/proc/thread-self/schedstat").ok())
    }

    /// Nanoseconds so far.
    fn read(&self) -> u64 {
        use std::os::unix::fs::FileExt;
        let Some(file) = &self.0 else { return 0 };
        let mut text = [0; 96];
        let n = file.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..n]).unwrap_or("");
        text.split_ascii_whitespace().nth(1).and_then(|w| w.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;

//! The program while it is measured: a command that is started again when it has ended, or a process that runs.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_machine::CpuSet;
use ncpu_observe_core::program::Target;
use ncpu_remedy::sys;
use rustix::event::{PollFd, PollFlags};

use crate::command::Held;
use crate::target::{must_run, pidfd};

/// Time that a command has at its start before it is measured.
const WARM_UP: Duration = Duration::from_millis(150);

/// Runs in a row that were too short to measure anything in.
const TOO_SHORT: u32 = 5;

/// The program.
pub struct Subject<'a> {
    what: What,
    stop: &'a AtomicBool,
    /// Runs so far.
    pub runs: u64,
    short: u32,
}

enum What {
    Command { argv: Vec<OsString>, running: Option<Running> },
    Process { pid: u32, end: OwnedFd },
}

struct Running {
    held: Held,
    began: Instant,
    measured: bool,
}

/// Whether the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Running,
    /// It has ended: a command that may be run again, if another run is wanted.
    Ended,
    /// The user stopped it, or a running process is gone.
    Over,
}

impl<'a> Subject<'a> {
    /// A command, not yet started.
    pub fn command(argv: &[OsString], stop: &'a AtomicBool) -> Subject<'a> {
        Subject { what: What::Command { argv: argv.to_vec(), running: None }, stop, runs: 0, short: 0 }
    }

    /// A process.
    ///
    /// # Errors
    /// It is gone.
    pub fn process(pid: u32, stop: &'a AtomicBool) -> anyhow::Result<Subject<'a>> {
        must_run(pid)?;
        let end = pidfd(&Target::Tree(pid)).with_context(|| format!("process {pid} has ended"))?;
        Ok(Subject { what: What::Process { pid, end }, stop, runs: 1, short: 0 })
    }

    /// The program's threads: those of a command are ncpu's own children, run after run.
    pub fn target(&self) -> Target {
        match &self.what {
            What::Command { .. } => Target::Tree(std::process::id()),
            What::Process { pid, .. } => Target::Tree(*pid),
        }
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        match &self.what {
            What::Command { running, .. } => running.as_ref().map(|r| r.held.child.pid()),
            What::Process { pid, .. } => Some(*pid),
        }
    }

    fn end(&self) -> Option<BorrowedFd<'_>> {
        match &self.what {
            What::Command { running, .. } => running.as_ref().map(|r| r.held.child.pidfd()),
            What::Process { end, .. } => Some(end.as_fd()),
        }
    }

    /// Has the program run: starts the command where it does not.
    ///
    /// # Errors
    /// It cannot be run, fails, or ends before anything can be measured.
    pub fn ensure(&mut self) -> anyhow::Result<State> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(State::Over);
        }
        if self.pid().is_some() {
            return self.wait(Duration::ZERO);
        }
        let What::Command { argv, running } = &mut self.what else { return Ok(State::Over) };
        let mut held = Held::new(argv, None)?;
        held.child.release()?;
        *running = Some(Running { held, began: Instant::now(), measured: false });
        self.runs += 1;
        self.wait(WARM_UP)
    }

    /// Waits, and says whether the program still runs.
    ///
    /// # Errors
    /// The command failed, or ends before anything can be measured.
    pub fn wait(&mut self, time: Duration) -> anyhow::Result<State> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let ended = match self.end() {
                None => true,
                Some(end) => {
                    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::IN)];
                    let left = rustix::time::Timespec {
                        tv_sec: left.as_secs() as i64,
                        tv_nsec: left.subsec_nanos().into(),
                    };
                    // Interrupted by a signal: the loop looks at `stop`.
                    matches!(rustix::event::poll(&mut fds, Some(&left)), Ok(n) if n > 0)
                }
            };
            if self.stop.load(Ordering::Relaxed) {
                return Ok(State::Over);
            }
            if ended {
                return self.ended();
            }
            if Instant::now() >= until {
                return Ok(State::Running);
            }
        }
    }

    fn ended(&mut self) -> anyhow::Result<State> {
        let What::Command { running, .. } = &mut self.what else { return Ok(State::Over) };
        let Some(run) = running.take() else { return Ok(State::Ended) };
        let (elapsed, measured) = (run.began.elapsed(), run.measured);
        let done = run.held.done(elapsed.as_secs_f64())?;
        if let Some(failure) = done.failure() {
            anyhow::bail!("the command fails as it is: {}", ncpu_table::safe::cut(&failure, 300));
        }
        self.short = if measured { 0 } else { self.short + 1 };
        anyhow::ensure!(
            self.short < TOO_SHORT,
            "the command ends after {:.0} ms, before anything can be measured in it: give it more work, or --runs to \
             compare whole runs",
            1e3 * elapsed.as_secs_f64()
        );
        Ok(State::Ended)
    }

    /// Notes that a window was whole in this run.
    pub fn was_measured(&mut self) {
        if let What::Command { running: Some(run), .. } = &mut self.what {
            run.measured = true;
        }
    }

    /// Ends the command.
    pub fn finish(&mut self) {
        if let What::Command { running, .. } = &mut self.what
            && let Some(run) = running.take()
        {
            run.held.stop();
        }
    }
}

/// Threads that were confined, with the CPUs they had.
pub struct Confined {
    before: Vec<(u32, CpuSet)>,
    pid: u32,
    all: CpuSet,
}

impl Confined {
    /// Confines a process and what it started to one CPU.
    ///
    /// # Errors
    /// Its CPUs cannot be read.
    pub fn to(pid: u32, cpu: u32) -> std::io::Result<Confined> {
        let all = sys::affinity(pid)?;
        let mut confined = Confined { before: Vec::new(), pid, all };
        let one: CpuSet = [cpu].into_iter().collect();
        // Threads that begin meanwhile have their parent's CPUs: a second look finds those that began before it was confined.
        for _ in 0..2 {
            for tid in sys::threads_of_tree(pid) {
                if confined.before.iter().any(|(known, _)| *known == tid) {
                    continue;
                }
                // One that has ended meanwhile needs nothing.
                if let Ok(cpus) = sys::affinity(tid)
                    && sys::set_affinity(tid, &one).is_ok()
                {
                    confined.before.push((tid, cpus));
                }
            }
        }
        Ok(confined)
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        for _ in 0..2 {
            for tid in sys::threads_of_tree(self.pid) {
                let known = self.before.iter().find(|(known, _)| *known == tid);
                let cpus = known.map_or(&self.all, |(_, cpus)| cpus);
                // One that has ended meanwhile needs nothing.
                let _ = sys::set_affinity(tid, cpus);
            }
        }
    }
}

//! A program run to its end by itself: timed, its output kept.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_collectors::cpus::parse;
use ncpu_machine::CpuSet;
use ncpu_observe_core::program::{Child, Ended, Setting};
use ncpu_remedy::guard::Guard;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};

/// So much of a program's output is looked at, its end.
pub const KEPT: u64 = 4 << 20;

/// A program that waits to begin.
pub struct Held {
    cpus: Option<CpuSet>,
    /// The process.
    pub child: Child,
    output: File,
    /// Kills the process and its group if ncpu is killed.
    _guard: Guard,
}

/// How a run ended.
pub enum Ran {
    /// By itself.
    Done(Done),
    /// A signal to ncpu ended it.
    Stopped,
    /// It took too long and was ended.
    Late,
}

/// A program that has ended.
pub struct Done {
    /// Seconds from its start to its end.
    pub elapsed: f64,
    /// How it ended.
    pub ended: Ended,
    /// Its output and errors, the last 4 MiB.
    pub output: String,
    /// Share of its CPUs' time that other programs and the hypervisor took meanwhile, 0–1, by the kernel's ticks; where
    /// it left processes behind, theirs too.
    pub others: Option<f64>,
}

impl Done {
    /// Why it is of no use, if it failed: the exit status and its last words.
    pub fn failure(&self) -> Option<String> {
        match self.ended.status {
            0 => None,
            s if s > 128 => Some(format!("killed by signal {}{}", s - 128, self.last_words())),
            s => Some(format!("exit status {s}{}", self.last_words())),
        }
    }

    /// `: its last line`.
    pub fn last_words(&self) -> String {
        last_words(&self.output)
    }
}

/// `: the last line of an output`; nothing where it is empty.
pub fn last_words(output: &str) -> String {
    match output.lines().rev().map(str::trim).find(|l| !l.is_empty()) {
        Some(line) => format!(": {}", line.chars().take(200).collect::<String>()),
        None => String::new(),
    }
}

impl Held {
    /// Makes the process.
    ///
    /// # Errors
    /// No process or no memory for its output.
    pub fn new(argv: &[OsString], cpus: Option<&CpuSet>) -> anyhow::Result<Held> {
        Held::with(argv, cpus, &[])
    }

    /// [`Held::new`] with variables in its environment.
    ///
    /// # Errors
    /// No process or no memory for its output.
    pub fn with(
        argv: &[OsString],
        cpus: Option<&CpuSet>,
        variables: &[(OsString, OsString)],
    ) -> anyhow::Result<Held> {
        let output = rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC)
            .context("memory for the program's output")?;
        let child = Child::hold_in(
            argv,
            &Setting { cpus, output: Some(output.as_fd()), variables, ..Setting::default() },
        )?;
        let group =
            i32::try_from(child.pid()).ok().and_then(Pid::from_raw).context("the program's number")?;
        let guard = Guard::over(group).context("a helper that ends the program with ncpu")?;
        Ok(Held { cpus: cpus.cloned(), child, output: output.into(), _guard: guard })
    }

    /// Lets it run to its end; `None` where `stop` ended it before.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn run(self, stop: &AtomicBool) -> anyhow::Result<Option<Done>> {
        match self.run_for(stop, Duration::MAX, &mut |_| ())? {
            Ran::Done(done) => Ok(Some(done)),
            Ran::Stopped | Ran::Late => Ok(None),
        }
    }

    /// Lets it run, for at most `most`. `each` hears ten times a second how long it has run.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn run_for(
        mut self,
        stop: &AtomicBool,
        most: Duration,
        each: &mut dyn FnMut(Duration),
    ) -> anyhow::Result<Ran> {
        let before = busy(self.cpus.as_ref());
        let begin = Instant::now();
        self.child.release()?;
        let poll = |time: Duration| {
            let mut fds = [PollFd::from_borrowed_fd(self.child.pidfd(), PollFlags::IN)];
            let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
            matches!(rustix::event::poll(&mut fds, Some(&time)), Ok(n) if n > 0)
        };
        while !poll(Duration::from_millis(100)) {
            if stop.load(Ordering::Relaxed) {
                self.stop();
                return Ok(Ran::Stopped);
            }
            if begin.elapsed() >= most {
                self.stop();
                return Ok(Ran::Late);
            }
            each(begin.elapsed());
        }
        let elapsed = begin.elapsed().as_secs_f64();
        // Ctrl-C went to ncpu alone; but a program may have had it from elsewhere, just then.
        if stop.load(Ordering::Relaxed) {
            self.stop();
            return Ok(Ran::Stopped);
        }
        let after = busy(self.cpus.as_ref());
        let mut done = self.done(elapsed)?;
        done.others = before.zip(after).map(|((before, _), (after, cpus))| {
            let taken = after - before - done.ended.user - done.ended.system;
            (taken / (elapsed * cpus as f64).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
        });
        Ok(Ran::Done(done))
    }

    /// Its results, once it has ended.
    ///
    /// # Errors
    /// Its output cannot be read.
    pub fn done(mut self, elapsed: f64) -> anyhow::Result<Done> {
        let ended = self.child.wait(true).unwrap_or_default();
        let length = self.output.seek(SeekFrom::End(0)).context("reading the program's output")?;
        self.output.seek(SeekFrom::Start(length.saturating_sub(KEPT)))?;
        let mut bytes = Vec::new();
        // A process it left behind may still be writing.
        (&mut self.output).take(KEPT).read_to_end(&mut bytes)?;
        Ok(Done { elapsed, ended, output: String::from_utf8_lossy(&bytes).into_owned(), others: None })
    }

    /// Ends it and what it started in its process group.
    pub fn stop(&self) {
        let Some(group) = i32::try_from(self.child.pid()).ok().and_then(Pid::from_raw) else { return };
        for (signal, tries) in [(Signal::TERM, 40), (Signal::KILL, 100)] {
            // Gone already is as good.
            let _ = rustix::process::kill_process_group(group, signal);
            for _ in 0..tries {
                if self.child.wait(false).is_some() {
                    let _ = rustix::process::kill_process_group(group, Signal::KILL);
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Seconds that CPUs ran programs or were stolen so far, and how many CPUs those are.
fn busy(cpus: Option<&CpuSet>) -> Option<(f64, usize)> {
    let text = std::fs::read("/proc/stat").ok()?;
    let (mut ticks, mut seen) = (0, 0);
    // user nice system idle iowait irq softirq steal
    let add = |cpu: u32, t: [u64; parse::TIMES]| {
        if cpus.is_none_or(|c| c.contains(cpu)) {
            ticks += t[0] + t[1] + t[2] + t[7];
            seen += 1;
        }
    };
    parse::stat(&text, add).ok()?;
    Some((ticks as f64 / rustix::param::clock_ticks_per_second() as f64, seen))
}

//! Starts instances, passes signals to them, starts them again, and notes how they end.

use std::time::{Duration, Instant};

use ncpu_files::reader::process_text;
use ncpu_machine::numa_maps::{self, What};
use rustix::process::{Pid, Signal};

use super::{Partition, Restart};
use crate::Result;
use crate::launch::signals::Signals;
use crate::launch::{self, Ended, Started};

/// An instance that ran shorter than this before it failed is started again ever later.
const QUICK: Duration = Duration::from_secs(2);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(10);
/// How often the memory of instances is looked at, on machines with several nodes.
const LOOK: Duration = Duration::from_secs(5);

/// How a supervised run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Every instance has ended.
    Ended,
    /// A signal asked for it.
    Signal(i32),
}

impl Partition {
    /// Starts all instances and stays with them until the last has ended.
    ///
    /// # Errors
    /// An instance cannot be started; the others are ended then.
    pub fn run(&mut self) -> Result<Until> {
        let signals = Signals::block();
        // Orphans of an instance become our children, and are waited for.
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let result = self.start_all().and_then(|()| self.stay(&signals));
        self.end_all();
        self.elapsed = self.began.elapsed().as_secs_f64() - self.ready.as_secs_f64();
        result
    }

    fn start_all(&mut self) -> Result<()> {
        let mut started = Vec::new();
        for i in 0..self.instances.len() {
            started.push(self.start(i)?);
        }
        for mut each in started {
            each.wait_for_exec()?;
        }
        self.ready = self.began.elapsed();
        Ok(())
    }

    fn start(&mut self, i: usize) -> Result<Started> {
        let started = self.launch(i)?.start()?;
        let instance = &mut self.instances[i];
        instance.pid = Some(started.pid);
        instance.began = Some(Instant::now());
        instance.again = None;
        Ok(started)
    }

    fn stay(&mut self, signals: &Signals) -> Result<Until> {
        let mut asked: Option<(i32, Instant)> = None;
        let many = self.many_nodes;
        // Early enough for a short run, and then seldom.
        let mut look = Instant::now() + Duration::from_millis(500);
        loop {
            while let Some((pid, ended)) = launch::reap() {
                self.note_end(pid, ended, asked.is_some());
            }
            let now = Instant::now();
            for i in 0..self.instances.len() {
                if self.instances[i].again.is_some_and(|at| at <= now) {
                    self.start(i)?.wait_for_exec()?;
                    self.instances[i].restarts += 1;
                }
            }
            let live = self.instances.iter().any(|i| i.pid.is_some());
            let waiting = self.instances.iter().filter_map(|i| i.again).min();
            if !live && (waiting.is_none() || asked.is_some()) {
                return Ok(asked.map_or(Until::Ended, |(signal, _)| Until::Signal(signal)));
            }
            if let Some((_, at)) = asked
                && now >= at + self.config.grace
            {
                self.kill(Signal::KILL);
            }
            if many && now >= look {
                self.look_at_memory();
                look = now + LOOK;
            }
            // Long, since a child's end is a signal too.
            let mut until = now + Duration::from_secs(1);
            for at in [waiting, asked.map(|(_, at)| at + self.config.grace), many.then_some(look)] {
                until = until.min(at.unwrap_or(until));
            }
            let wait = until.saturating_duration_since(now).max(Duration::from_millis(1));
            match signals.next(wait) {
                None | Some(libc::SIGCHLD) => {}
                Some(signal) => {
                    if let Some(passed) = Signal::from_named_raw(signal) {
                        self.kill(passed);
                    }
                    if [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT].contains(&signal) {
                        // A second one does not wait.
                        if asked.is_some() {
                            self.kill(Signal::KILL);
                        }
                        asked.get_or_insert((signal, Instant::now()));
                    }
                }
            }
        }
    }

    fn note_end(&mut self, pid: u32, ended: Ended, stopping: bool) {
        let restart = self.config.restart;
        let Some(instance) = self.instances.iter_mut().find(|i| i.pid == Some(pid)) else { return };
        let ran = instance.began.map_or(Duration::ZERO, |b| b.elapsed());
        instance.pid = None;
        instance.elapsed = ran.as_secs_f64();
        instance.ended = Some(ended);
        let again = match restart {
            Restart::No => false,
            Restart::OnFailure => ended.status != 0,
            Restart::Always => true,
        };
        if again && !stopping {
            instance.failed_quickly = if ran < QUICK { instance.failed_quickly + 1 } else { 0 };
            let later = Duration::from_millis(100) * (1 << instance.failed_quickly.min(10)) / 2;
            instance.again = Some(Instant::now() + later.min(LONGEST));
        }
    }

    /// Sends a signal to every instance: to the process group it began with.
    fn kill(&self, signal: Signal) {
        for pid in self.instances.iter().filter_map(|i| i.pid) {
            if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // Gone already is as good.
                let _ = rustix::process::kill_process_group(group, signal);
            }
        }
    }

    /// Kills what is left of instances after an error.
    fn end_all(&mut self) {
        self.kill(Signal::KILL);
        let until = Instant::now() + Duration::from_secs(5);
        while self.instances.iter().any(|i| i.pid.is_some()) && Instant::now() < until {
            match launch::reap() {
                Some((pid, ended)) => self.note_end(pid, ended, true),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Where the memory of each instance lies, files left out: their pages are shared by all, wherever they are.
    fn look_at_memory(&mut self) {
        for instance in &mut self.instances {
            let processes = match (&instance.group, instance.pid) {
                (Some(group), _) => group.processes(),
                (None, pid) => pid.into_iter().collect(),
            };
            let (mut own, mut all) = (0, 0);
            for pid in processes {
                let Ok(text) = process_text(format!("/proc/{pid}").as_ref(), pid, "numa_maps") else {
                    continue;
                };
                let private =
                    numa_maps::parse(&text).into_iter().filter(|m| !matches!(m.what, What::File(_)));
                for (node, bytes) in private.flat_map(|m| m.nodes) {
                    all += bytes;
                    if instance.part.nodes.contains(node) {
                        own += bytes;
                    }
                }
            }
            if all > 0 {
                instance.local = Some(own as f64 / all as f64);
            }
        }
    }
}

//! Whom a command observes – what runs already, or a program it starts – and for how long.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_observe::engine::{Config, Target};
use ncpu_observe::observation::{Child, Ended, Observation};
use ncpu_record::Recording;
use ncpu_table::Table;

use crate::sink::Sink;
use crate::stop;
use crate::target::{TargetArgs, pidfd};

/// The observed.
pub struct Subject {
    /// Its threads.
    pub target: Target,
    /// What to call it.
    pub words: Vec<String>,
    length: Option<Duration>,
    child: Option<Child>,
    watched: Option<OwnedFd>,
}

impl Subject {
    /// What runs already, for so many seconds; until told to stop without.
    ///
    /// # Errors
    /// It is not there, or the time is none.
    pub fn running(args: &TargetArgs, seconds: Option<f64>) -> anyhow::Result<Subject> {
        let target = args.target()?;
        let watched = pidfd(&target);
        Ok(Subject { words: args.words(), length: length(seconds)?, child: None, watched, target })
    }

    /// A program, held until [`Subject::release`].
    ///
    /// # Errors
    /// There can be no process.
    pub fn program(command: &[OsString]) -> anyhow::Result<Subject> {
        let child = Child::hold(command)?;
        Ok(Subject {
            target: Target::Tree(child.pid()),
            words: command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            length: None,
            child: Some(child),
            watched: None,
        })
    }

    /// `SECONDS | -- CMD`: a lone number is a time, anything else a program.
    ///
    /// # Errors
    /// Those of [`Subject::running`] and [`Subject::program`].
    pub fn of(args: &TargetArgs, arguments: &[OsString]) -> anyhow::Result<Subject> {
        let seconds = match arguments {
            [one] => one.to_str().and_then(|s| s.parse().ok()),
            _ => None,
        };
        match arguments.is_empty() || seconds.is_some() {
            true => Subject::running(args, seconds),
            false => Subject::program(arguments),
        }
    }

    /// Lets the program begin, once all is attached.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn release(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child {
            child.release()?;
        }
        Ok(())
    }

    /// When to stop, if from now on.
    pub fn deadline(&self) -> Option<Instant> {
        self.length.map(|length| Instant::now() + length)
    }

    /// Becomes readable when the process has ended.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        self.child.as_ref().map(Child::pidfd).or(self.watched.as_ref().map(AsFd::as_fd))
    }

    /// How the program ended; `None` while it runs, and for what was not started here.
    pub fn ended(&self) -> Option<Ended> {
        self.child.as_ref().and_then(|child| child.wait(false))
    }

    /// ncpu's own exit status: the program's, where there is one, and Ctrl-C's where that ended it.
    pub fn exit_code(&self, ended: Option<Ended>) -> ExitCode {
        match (&self.child, ended) {
            (None, _) => ExitCode::SUCCESS,
            (Some(_), Some(ended)) => ExitCode::from(ended.status as u8),
            (Some(_), None) => ExitCode::from(130),
        }
    }
}

/// What an observation left.
pub struct Observed {
    /// Its tables.
    pub recording: Recording,
    /// One stack in so many contentions was walked at last.
    pub walked_every: u32,
    exit: ExitCode,
    failed: Option<anyhow::Error>,
}

impl Observed {
    /// The exit status, once the report is out; the error of a recording that failed.
    pub fn exit(self) -> anyhow::Result<ExitCode> {
        self.failed.map_or(Ok(self.exit), Err)
    }
}

/// Observes with the engine from before the subject begins until it ends, its time is up or Ctrl-C.
///
/// # Errors
/// Nothing can be observed, the program does not start, or memory is short.
pub fn observe(
    mut subject: Subject,
    config: impl FnOnce(Target) -> Config,
    interval: Duration,
    record: Option<&Path>,
    prepare: impl FnOnce(&mut Observation),
) -> anyhow::Result<Observed> {
    let stop = stop::on_signals()?;
    let mut sink = Sink::open(subject.words.clone(), interval.as_secs_f64(), record)?;
    let mut observation = Observation::begin(&config(subject.target.clone()))?;
    prepare(&mut observation);
    if let (Some(_), Some(program)) = (&subject.child, subject.words.first()) {
        observation.expect(Path::new(program));
    }
    subject.release()?;
    let mut take = |t: &Table| sink.table(t);
    observation.watch(subject.end(), subject.deadline(), interval, &stop, &mut take)?;
    // After Ctrl-C, which the program has had too, it may still be writing its last words.
    let ended = subject.ended();
    let walked_every = observation.walked_every();
    let notes = observation.finish(ended, &mut take)?;
    let (recording, failed) = sink.finish(notes)?;
    Ok(Observed { recording, walked_every, exit: subject.exit_code(ended), failed })
}

/// Time between two reports.
///
/// # Errors
/// It is too short to be one.
pub fn interval(seconds: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if d >= Duration::from_millis(10) => Ok(d),
        _ => anyhow::bail!("an interval of {seconds} s: give 0.01 or more"),
    }
}

fn length(seconds: Option<f64>) -> anyhow::Result<Option<Duration>> {
    seconds
        .map(|s| {
            let length = Duration::try_from_secs_f64(s).ok().filter(|d| !d.is_zero());
            length.with_context(|| format!("watching for {s} s: give a positive number of seconds"))
        })
        .transpose()
}

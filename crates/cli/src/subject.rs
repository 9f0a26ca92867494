//! Whom a command observes – what runs already, or a program it starts – and for how long.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_observe::engine::Config;
use ncpu_observe::observation::Observation;
use ncpu_observe::program::Target;
use ncpu_observe::program::{Child, Ended, Setting, User};
use ncpu_record::{Recording, Throughput};
use ncpu_schema::Purpose;

use crate::metric::Measure;
use crate::observer::Observer;
use crate::out::leave_stdout_to_command;
use crate::sink::Sink;
use crate::stop::{self, PassedOn};
use crate::target::{TargetArgs, pidfd};
use crate::tee::Tee;

/// The observed.
pub struct Subject {
    /// Its threads.
    pub target: Target,
    /// What to call it.
    pub words: Vec<String>,
    length: Option<Duration>,
    _passed_on: Option<PassedOn>,
    child: Option<Child>,
    watched: Option<OwnedFd>,
    metric: Option<(Measure, Tee)>,
}

impl Subject {
    /// What runs already, for so many seconds; until told to stop without.
    ///
    /// # Errors
    /// It is not there, or the time is none.
    pub fn running(args: &TargetArgs, seconds: Option<f64>) -> anyhow::Result<Subject> {
        let target = args.target()?;
        let watched = pidfd(&target);
        Ok(Subject {
            words: args.words(),
            length: length(seconds)?,
            _passed_on: None,
            child: None,
            watched,
            target,
            metric: None,
        })
    }

    /// A program, held until [`Subject::release`].
    ///
    /// # Errors
    /// There can be no process.
    pub fn program(command: &[OsString]) -> anyhow::Result<Subject> {
        Subject::measured(command, None, None)
    }

    /// A program whose output tells its throughput: what it writes is passed on and searched. It runs as `user`, or as
    /// who runs `ncpu`.
    ///
    /// # Errors
    /// There can be no process or no pipe, or there is no such user.
    pub fn measured(
        command: &[OsString],
        metric: Option<Measure>,
        user: Option<&str>,
    ) -> anyhow::Result<Subject> {
        leave_stdout_to_command();
        let metric = metric.map(|m| Ok::<_, anyhow::Error>((m, Tee::new()?))).transpose()?;
        let stdout = metric.as_ref().and_then(|(_, tee)| tee.fd());
        let user = user.map(|name| User::find(name).context("--user")).transpose()?;
        let setting = Setting { stdout, user: user.as_ref(), ..Setting::default() };
        let child = Child::hold_in(command, &setting)?;
        Ok(Subject {
            target: Target::Tree(child.pid()),
            words: command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            length: None,
            _passed_on: Some(PassedOn::to(child.pidfd())),
            child: Some(child),
            watched: None,
            metric,
        })
    }

    /// `[SECONDS [COUNT]] | CMD`: one or two numbers are times, anything else a program.
    ///
    /// # Errors
    /// Those of [`Subject::running`] and [`Subject::program`].
    pub fn of(args: &TargetArgs, arguments: &[OsString]) -> anyhow::Result<Subject> {
        match times(arguments) {
            Some(times) => Subject::running(args, times.seconds),
            None => Subject::program(arguments),
        }
    }

    /// Lets the program begin, once all is attached.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn release(&mut self) -> anyhow::Result<()> {
        if let Some((_, tee)) = &mut self.metric {
            tee.close();
        }
        match &mut self.child {
            Some(child) => child.release()?,
            None if self.length.is_none() => {
                say!("ncpu: watching {} until Ctrl-C", self.words.join(" "));
            }
            None => {}
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

    /// ncpu's own exit status: the program's, where there is one. A program that outlived the signals which ended the
    /// observation is told of.
    pub fn exit_code(&self, ended: Option<Ended>) -> ExitCode {
        match (&self.child, ended) {
            (None, _) => ExitCode::SUCCESS,
            (Some(_), Some(ended)) => ExitCode::from(ended.status as u8),
            (Some(child), None) => {
                let name = self.words.first().map_or("", String::as_str);
                say!("ncpu: {name} still runs, as process {}", child.pid());
                ExitCode::from(stop::status())
            }
        }
    }
}

/// How long is observed, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// `None` is until Ctrl-C.
    pub seconds: Option<f64>,
    /// Reports, one after the other.
    pub count: u64,
}

/// `[SECONDS [COUNT]]`; `None` where the arguments are a command.
fn times(arguments: &[OsString]) -> Option<Times> {
    let number = |word: &OsString| word.to_str()?.parse::<f64>().ok();
    match arguments {
        [] => Some(Times { seconds: None, count: 1 }),
        [seconds] => Some(Times { seconds: Some(number(seconds)?), count: 1 }),
        [seconds, count] => {
            Some(Times { seconds: Some(number(seconds)?), count: count.to_str()?.parse().ok()? })
        }
        _ => None,
    }
}

/// Gives as many reports as the arguments ask for, or until Ctrl-C; the exit status is the last one's.
///
/// # Errors
/// There are to be none, or several in one recording; and those of a report.
pub fn reports(
    arguments: &[OsString],
    record: Option<&Path>,
    report: impl FnMut() -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    repeat(times(arguments).map_or(1, |times| times.count), record, report)
}

/// [`reports`] of a number that is known.
///
/// # Errors
/// As [`reports`].
pub fn repeat(
    count: u64,
    record: Option<&Path>,
    mut report: impl FnMut() -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(count > 0, "0 reports: give 1 or more");
    anyhow::ensure!(count == 1 || record.is_none(), "--record takes one report, and {count} are asked for");
    let mut code = report()?;
    for _ in 1..count {
        if stop::seen() {
            break;
        }
        crate::out::between()?;
        code = report()?;
    }
    Ok(code)
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
    kind: Purpose,
    mut subject: Subject,
    config: impl FnOnce(Target) -> Config,
    interval: Duration,
    record: Option<&Path>,
    prepare: impl FnOnce(&mut Observation),
) -> anyhow::Result<Observed> {
    let stop = stop::on_signals()?;
    let mut sink = Sink::open(kind, subject.words.clone(), interval.as_secs_f64(), record)?;
    let mut observer =
        Observer::begin(kind, &config(subject.target.clone()), subject.child.is_some(), &mut sink)?;
    if let Observer::Whole(observation) = &mut observer {
        prepare(observation);
        if let (Some(_), Some(program)) = (&subject.child, subject.words.first()) {
            observation.expect(Path::new(program));
        }
    }
    subject.release()?;
    observer.watch(subject.end(), subject.deadline(), interval, &stop, &mut sink)?;
    // After Ctrl-C, which the program has had too, it may still be writing its last words.
    let ended = subject.ended();
    let walked_every = observer.walked_every();
    let mut notes = observer.finish(ended, &mut sink)?;
    if let Some((measure, tee)) = subject.metric.take() {
        match measure.in_output(&tee.finish()) {
            Ok(per_second) => sink.throughput(Throughput { metric: measure.name(), per_second }),
            Err(why) => notes.push(format!("no throughput: {why}")),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_times_and_anything_else_a_command() {
        let told = |words: &[&str]| times(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(told(&[]), Some(Times { seconds: None, count: 1 }));
        assert_eq!(told(&["0.5"]), Some(Times { seconds: Some(0.5), count: 1 }));
        assert_eq!(told(&["1", "3"]), Some(Times { seconds: Some(1.0), count: 3 }));
        for command in [&["ls"][..], &["ls", "1"], &["1", "ls"], &["1", "1", "1"], &["1", "1.5"]] {
            assert_eq!(told(command), None, "{command:?}");
        }
    }
}

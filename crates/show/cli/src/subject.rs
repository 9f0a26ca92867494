//! The subject of an observation – running programs, or a program that it starts – and its duration.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_daemon::pace::Pace;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_observe_core::program::Target;
use ncpu_observe_core::program::{Child, Ended, Setting, User};
use ncpu_record::{Incomplete, Recording, Sink, Throughput};
use ncpu_schema::Purpose;

use crate::metric::Measure;
use crate::observer::{Observer, go_ahead};
use crate::out::leave_stdout_to_command;
use crate::preload_locks::PreloadLocks;
use crate::sink;
use crate::stop::{self, PassedOn};
use crate::target::{TargetArgs, pidfd};
use crate::tee::Tee;

/// The observed.
pub struct Subject {
    /// Its threads.
    pub target: Target,
    /// Its name.
    pub words: Vec<String>,
    length: Option<Duration>,
    _passed_on: Option<PassedOn>,
    child: Option<Child>,
    watched: Option<OwnedFd>,
    metric: Option<(Measure, Tee)>,
    locks: Option<PreloadLocks>,
}

impl Subject {
    /// Running programs, for this number of seconds [default: until a signal].
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
            locks: None,
        })
    }

    /// A program, held until [`Subject::release`].
    ///
    /// # Errors
    /// There can be no process.
    pub fn program(command: &[OsString]) -> anyhow::Result<Subject> {
        Subject::measured(command, None, None, None)
    }

    /// A program whose output tells its throughput: what it writes is passed on and searched. It runs as `user`
    /// [default: the current user]. With `locks` it loads the library that notes its waits for them.
    ///
    /// # Errors
    /// There can be no process or no pipe, or there is no such user.
    pub fn measured(
        command: &[OsString],
        metric: Option<Measure>,
        user: Option<&str>,
        mut locks: Option<PreloadLocks>,
    ) -> anyhow::Result<Subject> {
        leave_stdout_to_command();
        let metric = metric.map(|m| Ok::<_, anyhow::Error>((m, Tee::new()?))).transpose()?;
        let stdout = metric.as_ref().and_then(|(_, tee)| tee.fd());
        if let Some(name) = user.filter(|_| !rustix::process::geteuid().is_root()) {
            anyhow::bail!("--user {name}: only root can run a program as another user");
        }
        let user = user.map(|name| User::find(name).context("--user")).transpose()?;
        let variables = match &mut locks {
            Some(locks) => locks.variables(command, user.as_ref())?,
            None => Vec::new(),
        };
        let setting = Setting { stdout, user: user.as_ref(), variables: &variables, ..Setting::default() };
        let child = Child::hold_in(command, &setting)?;
        Ok(Subject {
            target: Target::Tree(child.pid()),
            words: command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            length: None,
            _passed_on: Some(PassedOn::to(child.pidfd())),
            child: Some(child),
            watched: None,
            metric,
            locks,
        })
    }

    /// A program that notes its waits for locks by a library.
    ///
    /// # Errors
    /// No program is given, or there is no such library.
    pub fn with_locks(when: &WhenArgs) -> anyhow::Result<Subject> {
        require!(!when.command.is_empty(), "--preload takes a command: ncpu locks --preload -- CMD");
        Subject::measured(&when.command, None, None, Some(PreloadLocks::new()?))
    }

    /// Running programs, or a program of `when`.
    ///
    /// # Errors
    /// Those of [`Subject::running`] and [`Subject::program`].
    pub fn of(args: &TargetArgs, when: &WhenArgs) -> anyhow::Result<Subject> {
        match when.command.as_slice() {
            [] => Subject::running(args, when.seconds),
            command => Subject::program(command),
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

    /// Hands over the throughput in the program's output, once it has ended; a note says why it is missing.
    pub fn throughput(&mut self, sink: Option<&mut Sink>) -> Option<String> {
        let (measure, tee) = self.metric.take()?;
        match measure.in_output(&tee.finish()) {
            Ok(per_second) => {
                sink?.throughput(Throughput { metric: measure.name(), per_second });
                None
            }
            Err(why) => Some(format!("no throughput: {why}")),
        }
    }

    /// ncpu's own exit status: the program's, where there is one. A program that outlived the signals which ended the
    /// observation is reported.
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

/// How long to observe what runs already and how often, or a program to start.
#[derive(Args, Clone, Debug)]
pub struct WhenArgs {
    /// Seconds to watch [default: until Ctrl-C]
    #[arg(value_parser = number)]
    pub seconds: Option<f64>,

    /// Number of reports, each of SECONDS [default: 1]
    pub count: Option<u64>,

    /// A command to run and to observe until it ends
    #[arg(last = true, value_name = "CMD", conflicts_with = "seconds")]
    pub command: Vec<OsString>,
}

impl WhenArgs {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.seconds.is_none() && self.command.is_empty()
    }
}

fn number(word: &str) -> Result<f64, String> {
    crate::duration::seconds(word).map_err(|e| format!("{e}; a command goes after `--`"))
}

/// Gives as many reports as the arguments ask for, or until Ctrl-C; the exit status is the last one's.
///
/// # Errors
/// There are to be none, or several in one recording; and those of a report.
pub fn reports(
    when: &WhenArgs,
    record: Option<&Path>,
    report: impl FnMut() -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    repeat(when.count.unwrap_or(1), record, report)
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
    require!(count > 0, "0 reports: give 1 or more");
    require!(count == 1 || record.is_none(), "--record takes one report, and {count} are asked for");
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

/// Results of an observation.
pub struct Observed {
    /// Its tables.
    pub recording: Recording,
    /// One stack in N contentions was walked at the end.
    pub walked_every: u32,
    exit: ExitCode,
    failed: Option<Incomplete>,
}

impl Observed {
    /// The exit status, once the report is out; the error of a recording that failed.
    pub fn exit(self) -> anyhow::Result<ExitCode> {
        self.failed.map_or(Ok(self.exit), |failed| Err(failed.into()))
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
    // A report on one program waits for its names.
    if kind == Purpose::Watch {
        ncpu_files::reader::end_with(&stop);
    }
    let pace = Pace::keep(&stop, Vec::new());
    let mut sink = sink::open(kind, subject.words.clone(), interval.as_secs_f64(), record)?;
    let locks = subject.locks.as_ref().map(PreloadLocks::dir);
    let ours = subject.child.is_some();
    let mut observer = Observer::begin(kind, &config(subject.target.clone()), ours, locks, &mut sink)?;
    if let Observer::Whole(observation) = &mut observer {
        prepare(observation);
        if let (Some(_), Some(program)) = (&subject.child, subject.words.first()) {
            observation.expect(Path::new(program));
        }
    }
    subject.release()?;
    if let (Observer::Whole(observation), Some(child)) = (&mut observer, &subject.child) {
        observation.begun(child.pid());
    }
    observer.watch(subject.end(), subject.deadline(), interval, &stop, &mut |t| Ok(sink.table(t)?))?;
    // The user waits for the report, and other programs may leave it a tenth of a CPU.
    if stop.load(Ordering::Relaxed) {
        go_ahead();
    }
    // After Ctrl-C, which the program has had too, it may still be writing its last words.
    let ended = subject.ended();
    let walked_every = observer.walked_every();
    let whole = matches!(observer, Observer::Whole(_));
    let mut notes = observer.finish(ended, &mut |t| Ok(sink.table(t)?))?;
    notes.extend(subject.locks.iter().flat_map(|locks| locks.notes(whole)));
    notes.extend(subject.throughput(Some(&mut sink)));
    notes.extend(pace.note());
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
        _ => usage!("an interval of {seconds} s: give 0.01 or more"),
    }
}

fn length(seconds: Option<f64>) -> anyhow::Result<Option<Duration>> {
    seconds
        .map(|s| {
            let length = Duration::try_from_secs_f64(s).ok().filter(|d| !d.is_zero());
            length.ok_or_else(|| mistake!("watching for {s} s: give a positive number of seconds"))
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        when: WhenArgs,
        #[arg(short)]
        key: Option<String>,
    }

    #[test]
    fn times_come_before_options_or_after_and_a_command_after_dashes() {
        let parse = |words: &str| {
            Cli::try_parse_from(std::iter::once("locks").chain(words.split_whitespace()))
                .map(|cli| (cli.when.seconds, cli.when.count, cli.when.command.len(), cli.key))
        };
        let key = || Some("count".to_string());
        assert_eq!(parse("").unwrap(), (None, None, 0, None));
        assert_eq!(parse("0.5 3 -k count").unwrap(), (Some(0.5), Some(3), 0, key()));
        assert_eq!(parse("-k count 1").unwrap(), (Some(1.0), None, 0, key()));
        assert_eq!(parse("-k count -- make -k 1").unwrap(), (None, None, 3, key()));
        for wrong in ["make", "1 1.5", "1 1 1", "1 -- make"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let told = parse("make").unwrap_err().to_string();
        assert!(told.contains("a command goes after `--`"), "{told}");
    }
}

//! `ncpu run`, `ncpu watch` and `ncpu report`: the onion.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_observe::engine::{Config, Target};
use ncpu_observe::observation::{Child, Observation};
use ncpu_record::Recording;
use ncpu_report::onion::{Onion, render};
use ncpu_table::Format;

use crate::sink::Sink;
use crate::stop;
use crate::table_args::{TableArgs, text_width};
use crate::target::{TargetArgs, pidfd};

/// Options common to run, watch and report.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print a table of the observation instead of the onion: layers, locks, lock_callers,
    /// user_locks, threads, samples, stacks, sleeps, cpu_time, idle_time, counters
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    select: TableArgs,
}

/// Options common to run and watch.
#[derive(Args, Debug)]
pub struct ObserveArgs {
    /// Timer samples a second on each CPU (fewer on machines of more than 200 CPUs)
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: u32,

    /// Record the observation in DIR (conventionally NAME.ncpu)
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Seconds between rows of the tables over time
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,

    #[command(flatten)]
    report: ReportArgs,
}

/// Run a command and peel it: where every CPU-second of CPUs x elapsed went
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    observe: ObserveArgs,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Watch the machine, a process or a cgroup, and peel it
#[derive(Args, Debug)]
pub struct WatchArgs {
    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    observe: ObserveArgs,

    /// How long; until Ctrl-C without
    seconds: Option<f64>,
}

/// Print a recording again
#[derive(Args, Debug)]
pub struct ReportCommand {
    #[command(flatten)]
    report: ReportArgs,

    /// The recording: a directory made by --record
    dir: PathBuf,
}

/// Time between two reports.
pub fn interval(seconds: f64) -> anyhow::Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if d >= Duration::from_millis(10) => Ok(d),
        _ => anyhow::bail!("an interval of {seconds} s: give 0.01 or more"),
    }
}

/// How long to watch; until told to stop without.
pub fn length(seconds: Option<f64>) -> anyhow::Result<Option<Duration>> {
    seconds
        .map(|s| {
            let length = Duration::try_from_secs_f64(s).ok().filter(|d| !d.is_zero());
            length.with_context(|| format!("watching for {s} s: give a positive number of seconds"))
        })
        .transpose()
}

/// `ncpu run -- CMD`: exits with CMD's status.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let interval = interval(args.observe.interval)?;
    let stop = stop::on_signals()?;
    let mut child = match Child::hold(&args.command) {
        Ok(child) => child,
        Err(e) => return start_failed(e),
    };
    let words: Vec<String> = args.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut sink = Sink::open(words, args.observe.interval, args.observe.record.as_deref())?;
    let config = Config::onion(Target::Tree(child.pid()), args.observe.hz);
    let mut observation = Observation::begin(&config)?;
    if let Err(e) = child.release() {
        return start_failed(e);
    }
    let mut take = |t: &ncpu_table::Table| sink.table(t);
    observation.watch(Some(child.pidfd()), None, interval, &stop, &mut take)?;
    // Stopped by Ctrl-C, the program has had the same signal and may still be writing its last words.
    let ended = child.wait(false);
    let notes = observation.finish(ended, &mut take)?;
    let (recording, failed) = sink.finish(notes)?;
    report(&recording, &args.observe.report, true)?;
    if let Some(e) = failed {
        return Err(e);
    }
    let status = match ended {
        Some(e) => e.status,
        None => 130,
    };
    Ok(ExitCode::from(status as u8))
}

/// A command that did not start: told as a shell does.
pub fn start_failed(e: ncpu_observe::observation::StartError) -> anyhow::Result<ExitCode> {
    eprintln!("ncpu: {e}");
    Ok(ExitCode::from(e.exit_status()))
}

/// `ncpu watch [SECONDS] [-p|-c|-a]`.
pub fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let interval = interval(args.observe.interval)?;
    let length = length(args.seconds)?;
    let stop = stop::on_signals()?;
    let target = args.target.target()?;
    let mut sink = Sink::open(args.target.words(), args.observe.interval, args.observe.record.as_deref())?;
    let pidfd = pidfd(&target);
    let mut observation = Observation::begin(&Config::onion(target, args.observe.hz))?;
    let mut take = |t: &ncpu_table::Table| sink.table(t);
    let deadline = length.map(|l| Instant::now() + l);
    use std::os::fd::AsFd;
    observation.watch(pidfd.as_ref().map(|fd| fd.as_fd()), deadline, interval, &stop, &mut take)?;
    let notes = observation.finish(None, &mut take)?;
    let (recording, failed) = sink.finish(notes)?;
    report(&recording, &args.observe.report, false)?;
    match failed {
        Some(e) => Err(e),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// `ncpu report DIR`.
pub fn report_again(args: ReportCommand) -> anyhow::Result<ExitCode> {
    let recording = Recording::open(&args.dir)?;
    report(&recording, &args.report, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was asked for. A command's own output has stdout, so `run` reports to stderr unless
/// a format for machines is asked for.
fn report(recording: &Recording, args: &ReportArgs, own_stdout: bool) -> anyhow::Result<()> {
    let onion = Onion::peel(recording)?;
    if let Some(file) = &args.html {
        let page = ncpu_report::html::page(recording)?;
        std::fs::write(file, page).with_context(|| format!("writing {}", file.display()))?;
        eprintln!("ncpu: wrote {}", file.display());
    }
    let table = match args.table.as_deref() {
        None if args.select.format() == Format::Text => {
            let text = render(&onion, text_width());
            if own_stdout {
                eprint!("\n{text}");
            } else {
                crate::put(&text)?;
            }
            return Ok(());
        }
        None | Some("layers") => onion.table(),
        Some(name) => match recording.tables.get(name) {
            Some(table) => grouped(table)?,
            None => {
                let names: Vec<&str> = recording.tables.keys().map(String::as_str).collect();
                anyhow::bail!("this observation has no table `{name}`; it has layers, {}", names.join(", "))
            }
        },
    };
    let mut printer = args.select.printer()?;
    printer.table(&args.select.select().apply(table)?)?;
    Ok(printer.finish()?)
}

/// Rows of one key put together over the intervals, but for tables over time.
fn grouped(table: &ncpu_table::Table) -> anyhow::Result<ncpu_table::Table> {
    if matches!(table.name(), "cpu_time" | "idle_time" | "counters") {
        return Ok(table.clone());
    }
    let keys: Vec<&str> = table
        .columns()
        .iter()
        .filter(|c| c.kind == ncpu_table::Kind::Key && c.name != "t")
        .map(|c| c.name.as_str())
        .collect();
    Ok(if keys.is_empty() { table.clone() } else { table.group_by(&keys)? })
}

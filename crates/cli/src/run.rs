//! `ncpu run`, `ncpu watch` and `ncpu report`: the onion.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ncpu_observe::engine::Config;
use ncpu_record::Recording;
use ncpu_report::onion::{Onion, render};
use ncpu_report::scale::Scale;
use ncpu_table::Format;

use crate::subject::{Subject, interval, observe};
use crate::table_args::{TableArgs, text_width};
use crate::target::TargetArgs;

/// Options common to run, watch and report.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print a table of the observation instead of the onion: layers, locks, lock_callers,
    /// user_locks, threads, samples, stacks, sleeps, sleepers, cpu_time, idle_time, counters, hardware,
    /// throttling, limits_met, memory_change, memory_events, pressure
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

/// `ncpu run -- CMD`: exits with CMD's status.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    peel(Subject::program(&args.command)?, &args.observe, true)
}

/// `ncpu watch [SECONDS] [-p|-c|-a]`.
pub fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    peel(Subject::running(&args.target, args.seconds)?, &args.observe, false)
}

fn peel(subject: Subject, args: &ObserveArgs, own_stdout: bool) -> anyhow::Result<ExitCode> {
    let interval = interval(args.interval)?;
    let config = |target| Config::onion(target, args.hz);
    let observed = observe(subject, config, interval, args.record.as_deref(), |_| ())?;
    report(&observed.recording, &args.report, own_stdout)?;
    observed.exit()
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
    let scale = recording.tables.contains_key("curves").then(|| {
        Scale::read(
            recording.tables.values(),
            &recording.manifest.command.join(" "),
            &recording.manifest.notes,
        )
    });
    if let Some(file) = &args.html {
        let page = match &scale {
            Some(scale) => scale.html(),
            None => ncpu_report::html::page(recording)?,
        };
        std::fs::write(file, page).with_context(|| format!("writing {}", file.display()))?;
        eprintln!("ncpu: wrote {}", file.display());
    }
    let observed = recording.tables.contains_key("cpu_time");
    let tables = match args.table.as_deref() {
        None if !observed
            && recording.tables.contains_key("numa_processes")
            && args.select.format() == Format::Text =>
        {
            let numa = ncpu_report::numa::Numa::read(recording.tables.values());
            return crate::put(&ncpu_report::numa::render(&numa, text_width(), false));
        }
        None if args.select.format() == Format::Text
            && let Some((scale, points)) = scale.as_ref().zip(recording.tables.get("scale")) =>
        {
            let points = args.select.select().apply(points.clone())?;
            return crate::put(&ncpu_report::scale::render(scale, &points, text_width()));
        }
        // A recording of a command that looks once: its tables are all there is.
        None if !observed && !recording.tables.is_empty() => recording.tables.values().cloned().collect(),
        None if args.select.format() == Format::Text => {
            let text = render(&Onion::peel(recording)?, text_width());
            if own_stdout {
                eprint!("\n{text}");
            } else {
                crate::put(&text)?;
            }
            return Ok(());
        }
        None | Some("layers") => vec![Onion::peel(recording)?.table()],
        Some(name) => match recording.tables.get(name) {
            Some(table) => vec![grouped(table)?],
            None => {
                let layers = observed.then_some("layers");
                let names: Vec<&str> =
                    layers.into_iter().chain(recording.tables.keys().map(String::as_str)).collect();
                anyhow::bail!("there is no table `{name}`; there are {}", names.join(", "))
            }
        },
    };
    let select = args.select.select();
    let mut printer = args.select.printer()?;
    for table in tables {
        printer.table(&select.apply(table)?)?;
    }
    Ok(printer.finish()?)
}

/// Rows of one key put together over the intervals, but for tables over time.
fn grouped(table: &ncpu_table::Table) -> anyhow::Result<ncpu_table::Table> {
    if matches!(table.name(), "cpu_time" | "idle_time" | "counters" | "throttling") {
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

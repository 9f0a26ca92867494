//! `ncpu numa`: where memory lies against where its users run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ncpu_collectors::numa::{Config, Numa, Scope};
use ncpu_report::numa as view;
use ncpu_schema::Purpose;
use ncpu_table::{Format, Table};

use crate::sink;
use crate::subject::interval;
use crate::table_args::{TableArgs, text_width};
use crate::target::TargetArgs;
use crate::{out::put, stop};

/// Show on which NUMA nodes memory lies, on which its users run, and what was asked against what happened
#[derive(Args, Debug)]
pub struct NumaArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Every process and segment looked at, idle ones too (always with -p)
    #[arg(long)]
    every: bool,

    /// Walk the page tables of processes above 64 GiB too, which are sampled otherwise
    #[arg(long)]
    exact: bool,

    /// Print this table instead of text for people [default: `processes` with -o csv, json or parquet]
    #[arg(long, value_enum, value_name = "TABLE")]
    table: Option<TableName>,

    /// Read the machine whose sys/ and proc/ are in DIR; no CPU time is observed
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    select: TableArgs,

    /// Record the observation in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Seconds of CPU time in a report [default: 1]
    #[arg(value_parser = crate::duration::seconds)]
    interval: Option<f64>,

    /// Number of reports [default: until Ctrl-C with INTERVAL, else 1]
    count: Option<u64>,
}

/// The tables of this command.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum TableName {
    /// A row for each process, with its verdict
    Processes,
    /// A row for each shared segment
    Segments,
    /// A row for each policy asked for, and what came of it
    Requests,
    /// A row for each node
    Nodes,
    /// A row for each process, object, policy, page size and node
    Memory,
    /// A row for each process and node it ran on
    Cpu,
    /// The machine's NUMA counters
    Events,
}

/// Runs the command.
pub fn run(args: NumaArgs) -> anyhow::Result<ExitCode> {
    let seconds = args.interval.unwrap_or(1.0);
    let every = interval(seconds)?;
    if args.count == Some(0) {
        usage!("0 reports: give 1 or more");
    }
    let here = args.root == Path::new("/");
    // Without an interval on the command line, one look; a recorded machine does not change.
    let count = if here { args.count.or(args.interval.is_none().then_some(1)) } else { Some(1) };
    let scope = scope(&args.target, here)?;
    let words = args.target.words();
    let mut config = Config { root: args.root.clone(), ..Config::of(scope.clone()) };
    if args.exact {
        config.sample_above = u64::MAX;
    }
    // A column that the table lacks is an error before anything is observed.
    let raw = match args.table {
        Some(TableName::Memory) => Some("numa_memory"),
        Some(TableName::Cpu) => Some("numa_cpu"),
        Some(TableName::Events) => Some("numa_events"),
        _ => None,
    };
    let raw: Vec<Table> =
        raw.and_then(ncpu_schema::definition).map(|shown| shown.builder().finish()).into_iter().collect();
    let shown = rows(&view::Numa::read(&raw)?, &raw, args.table);
    args.select.select().check(shown.columns(), shown.name())?;
    let stop = stop::on_signals()?;
    let mut numa = Numa::begin(config)?;
    let mut sink = sink::open(Purpose::Numa, words, seconds, args.record.as_deref())?;
    let select = args.select.select();
    let text = args.select.format() == Format::Text
        && args.table.is_none()
        && select == ncpu_table::Select::default();
    let mut printer = args.select.printer()?;
    let (mut told, mut first, mut distances) = (0, true, None);
    let mut next = Instant::now();
    for n in 1.. {
        next += every;
        while here && !stop.load(Ordering::Relaxed) {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
            numa.poll();
        }
        let mut tables = numa.tick();
        for note in &numa.notes()[told..] {
            say!("ncpu numa: {note}");
        }
        told = numa.notes().len();
        if args.record.is_some() {
            for table in &tables {
                sink.table(table)?;
            }
        }
        if let Scope::Cgroup(path) = &scope
            && first
            && tables.iter().any(|t| t.name() == "numa_processes" && t.num_rows() == 0)
        {
            anyhow::bail!(
                "no process of cgroup {path} is there to look at; give a path as /proc/PID/cgroup tells it"
            );
        }
        if let Scope::Tree(pid) = scope
            && !Path::new(&format!("/proc/{pid}")).exists()
            && here
        {
            say!("ncpu numa: process {pid} has ended");
            break;
        }
        // Nodes stay where they are: their distances come once.
        match tables.iter().find(|t| t.name() == "numa_distances") {
            Some(table) => distances = Some(table.clone()),
            None => tables.extend(distances.clone()),
        }
        let read = view::Numa::read(&tables)?;
        if text {
            if !first {
                put("\n")?;
            }
            put(&view::render(&read, text_width(), args.every || scope != Scope::All))?;
        } else {
            printer.table(&select.apply(rows(&read, &tables, args.table))?)?;
        }
        first = false;
        if stop.load(Ordering::Relaxed) || count.is_some_and(|c| n >= c) {
            break;
        }
        next = next.max(Instant::now());
    }
    printer.finish()?;
    let notes = numa.notes().to_vec();
    sink.finish(notes)?.1.map_or(Ok(ExitCode::SUCCESS), |failed| Err(failed.into()))
}

fn rows(read: &view::Numa, tables: &[Table], name: Option<TableName>) -> Table {
    let raw =
        |name: &str| tables.iter().find(|t| t.name() == name).cloned().unwrap_or_else(|| read.processes());
    match name {
        None | Some(TableName::Processes) => read.processes(),
        Some(TableName::Segments) => read.segment_rows(),
        Some(TableName::Requests) => read.requests(),
        Some(TableName::Nodes) => read.node_rows(),
        Some(TableName::Memory) => raw("numa_memory"),
        Some(TableName::Cpu) => raw("numa_cpu"),
        Some(TableName::Events) => raw("numa_events"),
    }
}

/// Owners of memory: cgroups of v1 as well as v2, since only /proc is read.
fn scope(target: &TargetArgs, here: bool) -> anyhow::Result<Scope> {
    if let Some(pid) = target.pid {
        if here {
            target.target()?;
        }
        return Ok(Scope::Tree(pid));
    }
    let Some(path) = &target.cgroup else { return Ok(Scope::All) };
    let mut below = path.as_str();
    // /sys/fs/cgroup/PATH of v2, /sys/fs/cgroup/CONTROLLER/PATH of v1.
    if let Some(rest) = path.strip_prefix("/sys/fs/cgroup") {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = mounts
            .lines()
            .filter_map(|l| l.split(' ').nth(1))
            .filter(|m| m.starts_with("/sys/fs/cgroup") && Path::new(path).starts_with(m))
            .max_by_key(|m| m.len());
        below = mount.and_then(|m| path.strip_prefix(m)).unwrap_or(rest);
    }
    Ok(Scope::Cgroup(below.to_string()))
}

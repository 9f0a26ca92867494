//! `ncpu partition`: instances of a program on parts of the machine, with clones of their data.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ncpu_machine::Topology;
use ncpu_measure::compare::Ratio;
use ncpu_measure::stats::Summary;
use ncpu_observe_core::program::Ended;
use ncpu_remedy::partition::{self, By, Config, Data, Isolate, Part, Partition, Restart, Until};
use ncpu_table::{Column, Format, Kind, Table, Unit, safe};

use crate::command::Done;
use crate::metric::MetricArgs;
use crate::out;
use crate::table_args::{TableArgs, known_table, text_width};
use crate::undo;

/// Run N instances of a command, each on CPUs and memory nodes of its own and on a clone of its data that shares cached pages
#[derive(Args, Debug)]
pub struct PartitionArgs {
    /// How many instances
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    instances: u32,

    /// Divide at the borders of `node` (NUMA) or `cache` (last level), or give each instance `cores=K` [default: the split that is even]
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    /// Let instances share a CPU where there are more of them than CPUs
    #[arg(long, conflicts_with = "by")]
    share: bool,

    /// Give each instance a copy-on-write clone of DIR, seen at AT or at DIR itself; may be repeated
    #[arg(long = "clone", value_name = "DIR[:AT]")]
    clones: Vec<OsString>,

    /// Directory of the clones' changes [default: beside DIR]
    #[arg(long, value_name = "DIR", requires = "clones")]
    upper: Option<PathBuf>,

    /// Keep the clones, and say where they are
    #[arg(long, requires = "clones")]
    keep: bool,

    /// Take the changes of instance I over into DIR at the end
    #[arg(long, value_name = "I", requires = "clones")]
    commit: Option<usize>,

    /// Set a variable for each instance; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<OsString>,

    /// Namespaces of its own for each instance: net, ipc, pid, with commas between them
    #[arg(long, value_name = "LIST")]
    isolate: Option<Isolate>,

    /// Start an instance again: no, on-failure or always
    #[arg(long, value_name = "WHEN", default_value = "no", num_args = 0..=1, default_missing_value = "on-failure",
          require_equals = true)]
    restart: Restart,

    /// Seconds from a signal to end until instances are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = crate::duration::seconds)]
    grace: f64,

    /// Append the output of each instance to FILE, which takes {i}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["metric", "time"])]
    log: Option<OsString>,

    #[command(flatten)]
    metric: MetricArgs,

    /// Compare the number of commands done a second
    #[arg(long, conflicts_with = "metric")]
    time: bool,

    /// Rounds of the comparison that --metric or --time asks for: N instances and one on all CPUs, in turn
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// Print a table alone: instances, data, or compare
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    rows: TableArgs,

    /// The command and its arguments; {i} stands for the instance's number from 0, {5432+i} for a sum, n in braces for
    /// N, {cpus} for how many CPUs it has
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// The machine cannot be divided so, or an instance cannot be started.
pub fn run(args: &PartitionArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.table {
        known_table(name, ["instances", "data", "compare"])?;
    }
    let machine = Topology::read("/".as_ref())?;
    let n = args.instances as usize;
    let parts = match args.share {
        true => partition::share(&machine, n)?,
        false => partition::divide(&machine, n, args.by)?,
    };
    if args.metric.metric.is_some() || args.time {
        return compare(args, &machine, &parts);
    }
    if args.log.is_none() {
        out::leave_stdout_to_command();
    }
    args.rows.select().check(partition::instances_table(&[]).columns(), "instances")?;
    let mut done = once(args, &machine, parts, false)?;
    let mut tables = vec![done.instances];
    if !args.clones.is_empty() {
        tables.push(done.data);
    }
    print(args, &tables)?;
    if args.rows.format() == Format::Text {
        say!("ncpu: {} instances by {}, ready in {:.1} ms", args.instances, done.confined, done.ready_ms);
    }
    done.notes.iter().for_each(|note| say!("ncpu: {note}"));
    Ok(match done.until {
        Until::Signal(signal) => ExitCode::from(128 + signal as u8),
        // The first that failed speaks for all.
        Until::Ended => done
            .ended
            .drain(..)
            .find(|e| e.status != 0)
            .map_or(ExitCode::SUCCESS, |e| ExitCode::from(e.status as u8)),
    })
}

/// Results of a run.
struct Run {
    instances: Table,
    data: Table,
    ended: Vec<Ended>,
    outputs: Vec<String>,
    each: Vec<f64>,
    elapsed: f64,
    until: Until,
    confined: String,
    ready_ms: f64,
    notes: Vec<String>,
}

fn once(args: &PartitionArgs, machine: &Topology, parts: Vec<Part>, capture: bool) -> anyhow::Result<Run> {
    let n = parts.len();
    let mut partition = Partition::prepare(machine, config(args, capture)?, parts, undo::begin()?)?;
    let until = match partition.run() {
        Ok(until) => until,
        Err(e) => {
            undo::tell(&partition.abandon(), false);
            return Err(e.into());
        }
    };
    let caches = partition.cache()?;
    let ended = partition.instances.iter().map(|i| {
        let e = i.ended.unwrap_or_default();
        Ended { status: e.status, user: e.user, system: e.system, max_rss: e.max_rss, ..Ended::default() }
    });
    let mut run = Run {
        ended: ended.collect(),
        instances: partition::instances_table(&partition.instances),
        data: partition::data_table(&caches, n),
        outputs: (0..n).map(|i| partition.output(i)).collect::<Result<_, _>>().context("reading output")?,
        each: partition.instances.iter().map(|i| i.elapsed).collect(),
        elapsed: partition.elapsed,
        until,
        confined: partition.confined.clone(),
        ready_ms: 1000.0 * partition.ready.as_secs_f64(),
        notes: partition.notes.clone(),
    };
    let (kept, replayed) = partition.finish()?;
    undo::tell(&replayed, false);
    run.notes.extend(kept.iter().map(|path| format!("clones kept in {}", path.display())));
    Ok(run)
}

fn config(args: &PartitionArgs, capture: bool) -> anyhow::Result<Config> {
    use std::os::unix::ffi::OsStrExt;
    let mut environment = Vec::new();
    for pair in &args.env {
        let at = pair.as_bytes().iter().position(|&b| b == b'=').filter(|&at| at > 0);
        let at = at.with_context(|| format!("--env {}: give NAME=VALUE", pair.to_string_lossy()))?;
        let part = |bytes: &[u8]| std::ffi::OsStr::from_bytes(bytes).to_owned();
        environment.push((part(&pair.as_bytes()[..at]), part(&pair.as_bytes()[at + 1..])));
    }
    let clones: Vec<Data> = args.clones.iter().map(|c| partition::parse_data(c)).collect();
    let grace = Duration::try_from_secs_f64(args.grace).ok();
    Ok(Config {
        argv: args.command.clone(),
        environment,
        clones,
        upper: args.upper.clone(),
        isolate: args.isolate.unwrap_or_default(),
        restart: args.restart,
        grace: grace.with_context(|| format!("--grace {}: give seconds", args.grace))?,
        log: args.log.clone(),
        capture,
        keep: args.keep,
        commit: args.commit,
    })
}

fn print(args: &PartitionArgs, tables: &[Table]) -> anyhow::Result<()> {
    let mut printer = args.rows.printer()?;
    for table in tables {
        if args.table.as_deref().is_none_or(|name| name == table.name()) {
            printer.table(&args.rows.select().apply(table.clone())?)?;
        }
    }
    Ok(printer.finish()?)
}

/// Runs one instance on all CPUs and N on their parts, in turn and each first half of the time.
fn compare(args: &PartitionArgs, machine: &Topology, parts: &[Part]) -> anyhow::Result<ExitCode> {
    require!(args.restart == Restart::No, "--restart: a comparison runs each instance once");
    require!(!args.keep && args.commit.is_none(), "--keep, --commit: a comparison keeps nothing");
    let measure = args.metric.measure()?;
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    let mut notes = Vec::new();
    for round in 0..args.rounds {
        let mut figures = [0.0; 2];
        let mut order = [0, 1];
        fastrand::shuffle(&mut order);
        for which in order {
            let n = [1, parts.len()][which];
            out::progress(&format!("round {} of {}: {n} instances", round + 1, args.rounds));
            let own = if which == 0 { vec![partition::whole(machine)] } else { parts.to_vec() };
            let run = once(args, machine, own, true)?;
            if let Until::Signal(signal) = run.until {
                return Ok(ExitCode::from(128 + signal as u8));
            }
            let mut sum = 0.0;
            for (i, output) in run.outputs.iter().enumerate() {
                let done =
                    Done { elapsed: run.each[i], ended: run.ended[i], output: output.clone(), others: None };
                let figure = measure.of(&done);
                sum +=
                    figure.map_err(|why| anyhow::anyhow!("instance {i} of {}: {why}", run.outputs.len()))?;
            }
            // Without a metric it is commands a second until the last is done.
            figures[which] = if args.time { run.outputs.len() as f64 / run.elapsed } else { sum };
            if which == 1 {
                last = Some(run);
            }
        }
        pairs.push((figures[0], figures[1]));
    }
    out::progress_over();
    let columns = [
        Column::count("instances", "instances that ran at once"),
        Column::text("cpus", "CPUs of each"),
        Column::float("throughput", Unit::Figure, Kind::Gauge, "median throughput of all instances together"),
        Column::float("low", Unit::Figure, Kind::Gauge, "lower end of its 95 % interval"),
        Column::float("high", Unit::Figure, Kind::Gauge, "upper end of its 95 % interval"),
        Column::float("x", Unit::None, Kind::Gauge, "median of the rounds' ratios to one instance"),
        Column::float("x_low", Unit::None, Kind::Gauge, "lower end of the ratio's 95 % interval"),
        Column::float("x_high", Unit::None, Kind::Gauge, "upper end of the ratio's 95 % interval"),
    ];
    let mut table = Table::builder("compare", &columns);
    let ratio = Ratio::of_pairs(&pairs);
    for which in [0, 1] {
        let figures: Vec<f64> = pairs.iter().map(|p| if which == 0 { p.0 } else { p.1 }).collect();
        let s = Summary::of(&figures);
        let cpus: Vec<String> = match which {
            0 => vec![partition::whole(machine).cpus.to_list()],
            _ => parts.iter().map(|p| p.cpus.to_list()).collect(),
        };
        let ratio = ratio.filter(|_| which == 1);
        table
            .row()
            .int(if which == 0 { 1 } else { parts.len() as u64 })
            .text(safe::cut(&cpus.join(" "), 60))
            .float(s.median)
            .float(s.interval.0)
            .float(s.interval.1)
            .float_opt(ratio.map(|r| r.value))
            .float_opt(ratio.and_then(|r| r.interval).map(|i| i.0))
            .float_opt(ratio.and_then(|r| r.interval).map(|i| i.1));
    }
    let mut tables = vec![table.finish()];
    if let Some(run) = last {
        tables.push(run.instances);
        if !args.clones.is_empty() {
            tables.push(run.data);
        }
        notes.push(format!("confined by {}; ready in {:.1} ms, the last time", run.confined, run.ready_ms));
        notes.extend(run.notes);
    }
    if args.rows.format() == Format::Text && args.table.is_none() {
        out::put(&format!("throughput: {}\n", measure.name()))?;
        for table in &tables {
            out::put(&ncpu_table::render_text(&args.rows.select().apply(table.clone())?, text_width()))?;
        }
    } else {
        print(args, &tables)?;
    }
    notes.iter().for_each(|note| say!("ncpu: {note}"));
    Ok(ExitCode::SUCCESS)
}

//! `ncpu cpus`: what each CPU does.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_collectors::cpus::{Metric, Options, Sampler};
use ncpu_machine::Topology;
use ncpu_table::{Column, Compact, Format, Select, Table};
use ncpu_tui::Place;

use crate::stop;
use crate::table_args::{OutPrinter, RowArgs, text_width};

/// Solaris `mpstat`'s columns.
const WIDTHS: [(&str, usize); 17] = [
    ("CPU", 3),
    ("minf", 5),
    ("mjf", 4),
    ("xcal", 5),
    ("intr", 6),
    ("ithr", 5),
    ("csw", 5),
    ("icsw", 5),
    ("migr", 5),
    ("smtx", 5),
    ("srw", 5),
    ("syscl", 6),
    ("usr", 5),
    ("sys", 4),
    ("wt", 4),
    ("st", 4),
    ("idl", 4),
];

/// Blanks between blocks of `--wide`.
const GAP: usize = 4;

/// See what each CPU does: faults, cross-calls, interrupts, switches, lock contention, times
#[derive(Args, Debug)]
pub struct CpusArgs {
    /// Seconds between reports, as in 0.5 [default: one report of one second]
    #[arg(value_parser = seconds)]
    interval: Option<Duration>,

    /// Number of reports [default: until Ctrl-C]
    count: Option<u64>,

    #[command(flatten)]
    rows: RowArgs,

    /// Print a row for each of N bands of equal size of the sorted CPUs, or for each core, package
    /// or NUMA node
    #[arg(short = 'A', value_name = "N|core|package|node")]
    bands: Option<Aggregate>,

    /// Show only these columns; `util` stands for usr,sys,wt,st,idl and `all` for every one
    #[arg(long, value_name = "LIST", value_parser = columns)]
    columns: Option<Metrics>,

    /// Put blocks of CPUs side by side, as many as fit the terminal
    #[arg(long)]
    wide: bool,

    /// Watch all CPUs as a coloured grid
    #[arg(long, conflicts_with_all = ["wide", "bands", "sort", "mean", "top", "format", "count"])]
    live: bool,

    /// Read /proc and /sys below DIR: another machine's, gathered
    #[arg(long, value_name = "DIR", default_value = "/", hide_short_help = true)]
    root: PathBuf,
}

/// Argument of `-A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Bands(usize),
    Level(Level),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Core,
    Package,
    Node,
}

impl FromStr for Aggregate {
    type Err = String;

    fn from_str(s: &str) -> Result<Aggregate, String> {
        match s {
            "core" => Ok(Aggregate::Level(Level::Core)),
            "package" | "soc" => Ok(Aggregate::Level(Level::Package)),
            "node" => Ok(Aggregate::Level(Level::Node)),
            _ => s
                .parse()
                .map(Aggregate::Bands)
                .map_err(|_| format!("`{s}` is neither a number of bands nor one of core, package and node")),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Metrics(Vec<Metric>);

fn columns(list: &str) -> Result<Metrics, String> {
    let mut metrics = Vec::new();
    for name in list.split(',').map(str::trim).filter(|n| !n.is_empty() && *n != "CPU") {
        let named = match name {
            "all" => Metric::ALL.to_vec(),
            "util" => Metric::ALL.into_iter().filter(|m| m.is_share()).collect(),
            _ => vec![name.parse()?],
        };
        metrics.extend(named.into_iter().filter(|m| !metrics.contains(m)).collect::<Vec<_>>());
    }
    if metrics.is_empty() { Err("name at least one column".into()) } else { Ok(Metrics(metrics)) }
}

fn seconds(s: &str) -> Result<Duration, String> {
    let seconds = crate::duration::seconds(s)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if d >= Duration::from_millis(1) => Ok(d),
        _ => Err(format!("invalid interval of `{s}` seconds; the shortest is 0.001")),
    }
}

/// Runs the command.
///
/// # Errors
/// `/proc/stat` cannot be read, a column is not there, or the output cannot be written.
pub fn run(args: CpusArgs) -> anyhow::Result<ExitCode> {
    let metrics = args.columns.clone().map_or(Metric::ALL.to_vec(), |m| m.0);
    let format = args.rows.format();
    let options = Options { root: args.root.clone(), metrics, time: format != Format::Text };
    let view = View::new(&args, format)?;
    let printer = args.rows.printer()?;
    let stop = stop::on_signals()?;
    let mut sampler = Sampler::new(options)?;
    tell(&mut sampler);
    // A mistaken -k is an error now, not after the first interval.
    view.shape(Table::builder("cpus", sampler.columns()).finish())?;
    if args.live {
        return live(&args, sampler, &stop);
    }
    report(&args, sampler, view, printer, &stop)?;
    Ok(ExitCode::SUCCESS)
}

fn report(
    args: &CpusArgs,
    mut sampler: Sampler,
    mut view: View,
    mut printer: OutPrinter,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    require!(args.count != Some(0), "0 reports: give 1 or more");
    let count = args.count.unwrap_or(if args.interval.is_some() { u64::MAX } else { 1 });
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for done in 0..count {
        // Times lie on a grid, so that reports do not drift; those that cannot be kept are left out.
        due = (due + interval).max(start.elapsed());
        stop::wait(start + due, stop);
        let stopped = stop.load(Ordering::Relaxed);
        if stopped && done > 0 {
            break;
        }
        let table = sampler.sample()?;
        if tell(&mut sampler) {
            view.look_again(args);
        }
        view.print(table, &mut printer)?;
        if stopped {
            break;
        }
    }
    printer.finish()?;
    Ok(())
}

/// Whether there was anything to tell.
fn tell(sampler: &mut Sampler) -> bool {
    let notes = sampler.notes();
    for note in &notes {
        say!("ncpu: {note}");
    }
    !notes.is_empty()
}

fn live(args: &CpusArgs, mut sampler: Sampler, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let out = std::io::stdout();
    anyhow::ensure!(out.is_terminal(), "--live needs a terminal; without it, reports go to a pipe or file");
    let paint = crate::paint::wanted(true);
    let view = ncpu_tui::View::new(places(&args.root)?, paint);
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    ncpu_tui::run(view, interval, stop, || -> anyhow::Result<_> {
        Ok((sampler.sample()?, sampler.notes()))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where each CPU is.
///
/// # Errors
/// The topology cannot be read.
pub fn places(root: &Path) -> anyhow::Result<Vec<Place>> {
    let topology = Topology::read(root).context("reading where each CPU is")?;
    let place = |cpu: u32| Place {
        cpu,
        core: place(&topology, Level::Core, cpu).unwrap_or(cpu),
        package: place(&topology, Level::Package, cpu).unwrap_or(u32::MAX),
    };
    Ok(topology.cpus.iter().map(|cpu| place(cpu.id)).collect())
}

/// The number of the core (over all packages), package or node a CPU is in.
fn place(topology: &Topology, level: Level, cpu: u32) -> Option<u32> {
    let index = |i: usize| u32::try_from(i).ok();
    match level {
        Level::Core => index(topology.cpu(cpu)?.core?),
        Level::Package => index(topology.cpu(cpu)?.package?),
        Level::Node => Some(topology.node_of(cpu)?.id),
    }
}

/// Processing of a sample before it is printed, and its format.
struct View {
    select: Select,
    level: Option<(Level, Topology)>,
    mean: bool,
    format: Format,
    wide: bool,
}

impl View {
    fn new(args: &CpusArgs, format: Format) -> anyhow::Result<View> {
        let (bands, level) = match args.bands {
            Some(Aggregate::Bands(n)) => (Some(n), None),
            Some(Aggregate::Level(level)) => (None, Some(level)),
            None => (None, None),
        };
        let level = match level {
            Some(level) => Some((level, Topology::read(&args.root).context("-A: reading the topology")?)),
            None => None,
        };
        let mut select = args.rows.select(bands);
        let mean = select.mean;
        select.mean &= bands.is_some();
        Ok(View { select, level, mean, format, wide: args.wide })
    }

    /// CPUs came or went: they are in cores that were not known, or no longer are.
    fn look_again(&mut self, args: &CpusArgs) {
        if let Some((_, topology)) = &mut self.level
            && let Ok(new) = Topology::read(&args.root)
        {
            *topology = new;
        }
    }

    fn shape(&self, table: Table) -> anyhow::Result<Table> {
        let table = match &self.level {
            None => table,
            Some((level, topology)) => {
                let of = |row| {
                    let cpu = table.int(row, "CPU")? as u32;
                    place(topology, *level, cpu).map(u64::from)
                };
                let name = match level {
                    Level::Core => "core",
                    Level::Package => "package",
                    Level::Node => "node",
                };
                table.merge_by(Column::id(name, "number of the machine level"), of, self.mean)?
            }
        };
        Ok(self.select.apply(table)?)
    }

    fn print(&self, table: Table, printer: &mut OutPrinter) -> anyhow::Result<()> {
        let table = self.shape(table)?;
        if self.format != Format::Text {
            return Ok(printer.table(&table)?);
        }
        let mut width = text_width();
        if self.wide && width == usize::MAX {
            // A file has no edge; this is four blocks of all columns.
            width = 320;
        }
        let compact = Compact { widths: &WIDTHS, width, side_by_side: self.wide.then_some(GAP) };
        crate::out::put_table(&compact.render(&table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        cpus: CpusArgs,
    }

    fn parse(args: &str) -> Result<CpusArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("cpus").chain(args.split_whitespace())).map(|c| c.cpus)
    }

    #[test]
    fn the_solaris_example() {
        let args = parse("-k intr -A 4 -m 10 5").unwrap();
        assert_eq!((args.interval, args.count), (Some(Duration::from_secs(10)), Some(5)));
        assert_eq!(args.bands, Some(Aggregate::Bands(4)));
        let view = View::new(&args, Format::Text).unwrap();
        assert!(view.select.mean && view.select.bands == Some(4));
    }

    #[test]
    fn columns_by_name_and_by_group() {
        let names = |list| columns(list).map(|m| m.0.iter().map(|m| m.name()).collect::<Vec<_>>().join(" "));
        assert_eq!(names("usr,intr").unwrap(), "usr intr");
        assert_eq!(names("idl,util").unwrap(), "idl usr sys wt st");
        assert_eq!(columns("all").unwrap().0.len(), 16);
        assert!(names("usr,foo").unwrap_err().contains("expected one of: minf"));
        assert!(names(",").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in ["0", "-1", "nan", "1e30", "1 x", "-A die", "-m", "--live --wide", "--live -k intr"] {
            assert!(parse(args).is_err(), "{args}");
        }
        assert!(parse("0.01 3 -A package -m").is_ok());
    }
}

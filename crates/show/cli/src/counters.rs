//! `ncpu counters`: hardware and software events by CPU, core, package, node or process.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::{Args, ValueEnum};
use ncpu_collectors::counters::{Collector, Counted, Options, countable};
use ncpu_machine::Topology;
use ncpu_machine::events::{Class, Event, Sources, Width};
use ncpu_record::Sink;
use ncpu_report::counters::{By, Facts, Layout, View, totals, totals_text};
use ncpu_schema::Purpose;
use ncpu_table::{Column, Compact, Format, Table, render_text};

use crate::metric::MetricArgs;
use crate::out::put;
use crate::sink;
use crate::stop;
use crate::subject::{Subject, interval};
use crate::table_args::{OutPrinter, TableArgs, text_width};
use crate::target::TargetArgs;

/// Count hardware and software events by CPU, core, package, node or process
#[derive(Args, Debug)]
#[command(after_help = "EVENTS are named as perf names them: cycles, LLC-load-misses:u, page-faults, \
    cpu/event=0x3c,umask=1/, r01c2, power/energy-pkg/, sched:sched_switch, 'sched:*'. Modifiers: u user, \
    k kernel, h hypervisor, G guests, H the host.")]
pub struct CountersArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Unit of a row [default: all in one row for a process or command, else a CPU]
    #[arg(long, value_enum)]
    by: Option<ByArg>,

    /// Events to count, separated by commas [default: a few of each kind]
    #[arg(short, long, value_name = "EVENTS", group = "what")]
    events: Vec<String>,

    /// How well cores and their strands are used: busy, instructions a cycle, issue slots filled
    /// (corestat); [default: --by core]
    #[arg(long, group = "what")]
    core: bool,

    /// TLB misses and the time they take (trapstat -T)
    #[arg(long, group = "what")]
    tlb: bool,

    /// The last-level cache, and reads of memory near and far
    #[arg(long, group = "what")]
    memory: bool,

    /// List the events this machine counts; tracepoints where GLOB matches them, as 'sched:*'
    #[arg(long, value_name = "GLOB", num_args = 0..=1, default_missing_value = "", group = "what",
          conflicts_with_all = ["by", "pid", "cgroup", "all", "interval", "count", "record", "command"])]
    list: Option<String>,

    /// Put blocks of rows side by side, as many as fit the terminal
    #[arg(long)]
    wide: bool,

    /// Instructions a core can issue in a cycle, where ncpu does not know it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    width: Option<u32>,

    /// List the events of the machine whose sys/ and proc/ are in DIR
    #[arg(long, value_name = "DIR", default_value = "/", requires = "list", hide_short_help = true)]
    root: PathBuf,

    #[command(flatten)]
    select: TableArgs,

    /// Record the counts in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    #[command(flatten)]
    metric: MetricArgs,

    /// Seconds between reports [default: one report, when the command or process ends, else after one
    /// second]
    #[arg(value_parser = crate::duration::seconds)]
    interval: Option<f64>,

    /// Number of reports [default: until Ctrl-C]
    count: Option<u64>,

    /// A command to count; with -a the whole machine while it runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    Cpu,
    Core,
    Package,
    Node,
    Process,
    /// Everything put together
    All,
}

impl ByArg {
    fn row(self) -> Option<By> {
        match self {
            ByArg::Cpu => Some(By::Cpu),
            ByArg::Core => Some(By::Core),
            ByArg::Package => Some(By::Package),
            ByArg::Node => Some(By::Node),
            ByArg::Process => Some(By::Process),
            ByArg::All => None,
        }
    }
}

impl CountersArgs {
    fn view(&self) -> View {
        match self {
            CountersArgs { core: true, .. } => View::Core,
            CountersArgs { tlb: true, .. } => View::Tlb,
            CountersArgs { memory: true, .. } => View::Memory,
            CountersArgs { events, .. } if !events.is_empty() => View::Events,
            _ => View::Summary,
        }
    }

    /// The rows, by what is counted.
    fn by(&self) -> anyhow::Result<ByArg> {
        let tasks = self.target.pid.is_some() || !self.command.is_empty() && !self.target.all;
        if self.target.cgroup.is_some() && self.by == Some(ByArg::Process) {
            usage!("a cgroup is counted by CPU, not by process: give --by cpu, core, package, node or all");
        }
        Ok(match self.by {
            Some(by) => by,
            None if self.core && !tasks => ByArg::Core,
            None if tasks || self.target.cgroup.is_some() => ByArg::All,
            None => ByArg::Cpu,
        })
    }
}

/// Runs the command.
///
/// # Errors
/// An event is none or may not be counted, the command does not start, or the output cannot be written.
pub fn run(args: CountersArgs) -> anyhow::Result<ExitCode> {
    let mut sources = Sources::read(&args.root)?;
    for warning in &sources.warnings {
        say!("ncpu: {warning}");
    }
    if let Some(pattern) = &args.list {
        // A pattern of all names matches some tracepoints' too.
        sources.read_tracepoints(&args.root, if pattern.contains(':') { pattern } else { "*:*" });
        return list(&args, &sources, pattern);
    }
    if args.count == Some(0) {
        usage!("0 reports: give 1 or more");
    }
    if !args.command.is_empty() && (args.target.pid.is_some() || args.target.cgroup.is_some()) {
        usage!("-p and -c count what runs already; a command counts itself, or with -a the whole machine");
    }
    let metric = args.metric.of_command(&args.command)?;
    let every = args.interval.map(interval).transpose()?;
    let by = args.by()?;
    let topology = Topology::read(Path::new("/"))?;
    let mut facts = Facts::of(&sources, topology.packages.iter().find_map(|p| p.mhz));
    if let Some(slots) = args.width {
        facts.width = Width { slots, from: "--width".into() };
    }
    let events = events(&args, &mut sources, &facts)?;

    let stop = stop::on_signals()?;
    let mut subject = match (&args.command[..], args.target.pid) {
        ([], None) => None,
        ([], Some(_)) => Some(Subject::running(&args.target, None)?),
        (command, _) => Some(Subject::measured(command, metric, None, None)?),
    };
    let target = counted(&args, by, subject.as_ref());
    let by_cpu = matches!(by, ByArg::Cpu | ByArg::Core | ByArg::Package | ByArg::Node);
    let words = subject.as_ref().map_or_else(|| args.target.words(), |s| s.words.clone());
    let mut counters = Collector::begin(Options { target, events, by_cpu })?;
    let notes = tell(&mut counters);

    let time = args.select.format() != Format::Text;
    let counted: Vec<&Event> = counters.events().collect();
    let layout = by.row().map(|row| Layout::new(args.view(), row, time, &counted, facts.clone()));
    if args.core {
        say!("ncpu: a core issues {} instructions a cycle ({})", facts.width.slots, facts.width.from);
    }
    let mut report = Report {
        printer: args.select.printer()?,
        sink: match &args.record {
            Some(dir) => Some(sink::open(
                Purpose::Counters,
                words,
                every.unwrap_or_default().as_secs_f64(),
                Some(dir),
            )?),
            None => None,
        },
        args: &args,
        layout,
        topology,
        facts,
        since: Instant::now(),
        notes,
    };
    // A mistaken -k is an error now, not after the first interval.
    report.check()?;
    let started = Instant::now();
    report.since = started;
    if let Some(subject) = &mut subject {
        subject.release()?;
    }
    take_reports(&mut report, &mut counters, subject.as_ref(), every, &stop)?;
    let used = subject.as_ref().and_then(Subject::ended);
    if let (Some(used), Format::Text) = (used, args.select.format()) {
        let (user, system) = (used.user, used.system);
        put(&format!(
            "{:.3} s elapsed, {user:.3} s user, {system:.3} s system\n",
            started.elapsed().as_secs_f64()
        ))?;
    }
    if let Some(why) = subject.as_mut().and_then(|subject| subject.throughput(report.sink.as_mut())) {
        say!("ncpu: {why}");
        report.notes.push(why);
    }
    report.finish()?;
    Ok(subject.map_or(ExitCode::SUCCESS, |s| s.exit_code(used)))
}

/// The scope of the counters: processes, a cgroup or all CPUs.
fn counted(args: &CountersArgs, by: ByArg, subject: Option<&Subject>) -> Counted {
    match (subject, &args.target.cgroup) {
        (Some(subject), _) if !args.target.all => match (&subject.target, args.command.is_empty()) {
            (ncpu_observe_core::program::Target::Tree(pid), true) => Counted::Tree(*pid),
            (ncpu_observe_core::program::Target::Tree(pid), false) => Counted::Program(*pid),
            _ => Counted::Cpus,
        },
        (_, Some(path)) => Counted::Cgroup(path.clone()),
        _ if by == ByArg::Process => Counted::Processes,
        _ => Counted::Cpus,
    }
}

/// Counts until all reports are out and the command, if any, has ended.
fn take_reports(
    report: &mut Report<'_>,
    counters: &mut Collector,
    subject: Option<&Subject>,
    every: Option<Duration>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let until_end = subject.is_some();
    let reports = report.args.count.unwrap_or(if every.is_some() || until_end { u64::MAX } else { 1 });
    let step = every.unwrap_or(if until_end { Duration::MAX } else { Duration::from_secs(1) });
    let mut due = Duration::ZERO;
    let mut ended = false;
    for done in 0..reports {
        // Times lie on a grid, so that reports do not drift; those that cannot be kept are left out.
        due = due.saturating_add(step).max(report.since.elapsed());
        ended = wait(report.since.checked_add(due), subject, stop)?;
        let stopped = stop.load(Ordering::Relaxed);
        if stopped && !until_end && done > 0 {
            break;
        }
        let table = counters.sample()?;
        report.one(&table, tell(counters))?;
        if stopped || ended {
            break;
        }
    }
    if let Some(subject) = subject
        && !ended
        && !report.args.command.is_empty()
        && !stop.load(Ordering::Relaxed)
    {
        // The reports asked for are out; the command's status is ncpu's.
        wait(None, Some(subject), stop)?;
    }
    Ok(())
}

/// The events asked for, or the view's. One line names those that are missing because there is no PMU.
fn events(args: &CountersArgs, sources: &mut Sources, facts: &Facts) -> anyhow::Result<Vec<Event>> {
    let names = match args.view() {
        View::Events => args.events.join(","),
        view => view.events(sources, facts).join(","),
    };
    // A colon is a modifier's or a tracepoint's.
    if names.contains(':') {
        sources.read_tracepoints(Path::new("/"), &names);
    }
    let (events, mut absent) = sources.parse_present(&names)?;
    let no_pmu =
        "this machine shows no hardware PMU (no cpu, cpu_core or armv8_* in /sys/bus/event_source/devices)";
    if args.view() == View::Summary && sources.cores().next().is_none() {
        absent.push("cycles, instructions, caches, TLBs, remote memory".into());
    }
    if events.is_empty() {
        anyhow::bail!("nothing to count: {}: {no_pmu}", absent.join(", "));
    }
    if !absent.is_empty() {
        say!("ncpu: {}: {no_pmu}", absent.join(", "));
    }
    Ok(events)
}

/// Sleeps until then, until the observed ends or until a signal; whether it has ended.
fn wait(until: Option<Instant>, subject: Option<&Subject>, stop: &AtomicBool) -> anyhow::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};
    while !stop.load(Ordering::Relaxed) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        let left = left.map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs().min(1 << 30) as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let end = subject.and_then(Subject::end);
        let mut fds: Vec<PollFd<'_>> =
            end.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        match poll(&mut fds, left.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(e).context("waiting"),
        }
    }
    Ok(false)
}

/// Tells what is new, and gives it for the recording.
fn tell(counters: &mut Collector) -> Vec<String> {
    let notes = counters.notes();
    for note in &notes {
        say!("ncpu: {note}");
    }
    notes
}

/// Prints and records.
struct Report<'a> {
    args: &'a CountersArgs,
    printer: OutPrinter,
    sink: Option<Sink>,
    /// `None` where everything is put together.
    layout: Option<Layout>,
    topology: Topology,
    facts: Facts,
    since: Instant,
    notes: Vec<String>,
}

impl Report<'_> {
    /// Whether the rows asked for can be chosen from an empty table.
    fn check(&self) -> anyhow::Result<()> {
        let none = Table::builder("counters", &[]).finish();
        let table = match &self.layout {
            Some(layout) => layout.table(&none, &self.topology, 0.0),
            None => totals(&none)?,
        };
        self.args.select.select().apply(table)?;
        Ok(())
    }

    fn one(&mut self, raw: &Table, notes: Vec<String>) -> anyhow::Result<()> {
        let elapsed = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        if let Some(sink) = &mut self.sink {
            sink.table(raw)?;
        }
        // A CPU that came is in a core that was not known.
        if !notes.is_empty() {
            self.topology = Topology::read(Path::new("/"))?;
            self.notes.extend(notes);
        }
        let select = self.args.select.select();
        let Some(layout) = &self.layout else {
            if self.args.select.format() == Format::Text && select == ncpu_table::Select::default() {
                return put(&totals_text(raw, &self.facts, elapsed));
            }
            return self.print(&select.apply(totals(raw)?)?);
        };
        let when = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let table = select.apply(layout.table(raw, &self.topology, when))?;
        self.print(&table)
    }

    fn print(&mut self, table: &Table) -> anyhow::Result<()> {
        if self.args.select.format() != Format::Text {
            return Ok(self.printer.table(table)?);
        }
        if self.layout.is_none() {
            return put(&render_text(table, text_width()));
        }
        let width = match text_width() {
            // A file has no edge; this is as wide as screens are.
            usize::MAX if self.args.wide => 320,
            width => width,
        };
        let compact = Compact { widths: &[("CPU", 3)], width, side_by_side: self.args.wide.then_some(4) };
        put(&compact.render(table))
    }

    fn finish(self) -> anyhow::Result<()> {
        self.printer.finish()?;
        match self.sink {
            Some(sink) => sink.finish(self.notes)?.1.map_or(Ok(()), |failed| Err(failed.into())),
            None => Ok(()),
        }
    }
}

/// `--list`: every event there is, and what it is made of.
fn list(args: &CountersArgs, sources: &Sources, pattern: &str) -> anyhow::Result<ExitCode> {
    let listed = sources
        .list(Some(pattern).filter(|p| !p.is_empty()))
        .with_context(|| format!("--list {pattern}: no pattern"))?;
    // Events of another machine's PMU cannot be tried here.
    let here = args.root == Path::new("/");
    let mut out = Table::builder(
        "events",
        &[
            Column::text("event", "name for -e"),
            Column::text(
                "kind",
                "hardware: the core's, by the kernel's name; core: by the PMU's; shared; software; tracepoint",
            ),
            Column::text("unit", "unit of a count; empty for a bare number"),
            Column::text("PMU", "what counts it"),
            Column::text("is", "the fields it stands for, or another name"),
        ],
    );
    for event in &listed {
        if here && event.event.encodings.iter().all(|e| e.kind <= 3) && countable(&event.event) == Some(false)
        {
            continue;
        }
        let pmus: Vec<&str> = match event.event.class {
            Class::Tracepoint => Vec::new(),
            _ => event.event.encodings.iter().map(|e| e.pmu.as_str()).collect(),
        };
        let is = event.also.map(|also| format!("or {also}")).unwrap_or_else(|| event.terms.clone());
        let unit = match (&event.event.unit, event.event.scale) {
            (Some(unit), _) => Some(unit.clone()),
            (None, scale) if scale != 1.0 => Some(format!("x {scale}")),
            _ => None,
        };
        out.row()
            .text(&event.name)
            .text(event.kind())
            .text(unit.as_deref().unwrap_or(""))
            .text(pmus.join(","))
            .text(is);
    }
    let table = args.select.select().apply(out.finish())?;
    if table.num_rows() == 0 {
        anyhow::bail!("no event of this machine matches `{pattern}`");
    }
    args.select.print_all(&table)?;
    if args.select.format() == Format::Text {
        for pmu in sources.pmus.iter().filter(|p| !p.formats.is_empty()) {
            let fields: Vec<&str> = pmu.formats.keys().map(String::as_str).collect();
            put(&format!("{}/FIELD=N,.../  fields: {}\n", pmu.name, fields.join(", ")))?;
        }
        if sources.cores().next().is_none() {
            say!("ncpu: hardware events: this machine shows no hardware PMU");
        }
        match (&sources.tracepoints, &sources.no_tracefs) {
            (_, Some(why)) => say!("ncpu: tracepoints: /sys/kernel/tracing cannot be read: {why}"),
            (Some(tracepoints), _) if pattern.is_empty() => {
                say!("ncpu: and {} tracepoints: --list '*:*', --list 'sched:*'", tracepoints.len());
            }
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

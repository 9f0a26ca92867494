//! `ncpu run`, `ncpu watch` and `ncpu report`: the onion.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use ncpu_engine::engine::{CalledFunction, Config, MOST_FUNCTIONS};
use ncpu_observe_core::program::Target;
use ncpu_record::Recording;
use ncpu_report::findings::Findings;
use ncpu_report::onion::{Onion, render};
use ncpu_report::scale::Scale;
use ncpu_report::timeline::{self, Timeline};
use ncpu_schema::{Length, Purpose};
use ncpu_table::Format;

use crate::annotate;
use crate::causes::CausesArgs;
use crate::export::ExportArgs;
use crate::metric::MetricArgs;
use crate::moment;
use crate::patterns::PatternArgs;
use crate::preload_locks::PreloadLocks;
use crate::probes::ProbesArgs;
use crate::series::{self, SeriesArgs};
use crate::subject::{Subject, interval, observe, repeat};
use crate::table_args::{TableArgs, known_table, no_table, text_width};
use crate::target::TargetArgs;
use crate::tenants::TenantArgs;

/// Tables that are made of those of an observation.
const MADE: [&str; 8] =
    ["causes", "layers", "tenants", "ledger", "timeline", "phases", "percentiles", "request_bands"];

/// Tables that there can be of an observation.
fn tables() -> impl Iterator<Item = &'static str> {
    MADE.into_iter().chain(ncpu_schema::of_observations().iter().map(|t| t.name))
}

/// Any name, for recordings of other commands have other tables; completion offers those of an observation.
#[derive(Clone)]
struct TableName;

impl TypedValueParser for TableName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        Ok(StringValueParser::new().parse_ref(command, arg, value)?.replace('-', "_"))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(tables().map(PossibleValue::new)))
    }
}

/// Options common to run, watch and report.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Open that page in a browser, by xdg-open [default of --html: a file of its own]
    #[arg(long)]
    open: bool,

    /// Print a table of the observation instead of the onion
    #[arg(long, value_name = "TABLE", value_parser = TableName)]
    table: Option<String>,

    /// Print all layers with their evidence and advice instead of the causes and a summary
    #[arg(short, long)]
    verbose: bool,

    /// Print the layers over time too, with the moments at which they change, and the onion of each phase between them
    #[arg(long)]
    timeline: bool,

    /// Print the instructions of FUNCTION with their samples and what took the time, between the lines of its source
    #[arg(long, value_name = "FUNCTION")]
    annotate: Option<String>,

    #[command(flatten)]
    tenants: TenantArgs,

    #[command(flatten)]
    causes: CausesArgs,

    #[command(flatten)]
    select: TableArgs,
}

impl ReportArgs {
    /// Whether nothing but the onion is asked for.
    fn is_default(&self) -> bool {
        self.html.is_none()
            && !self.open
            && !self.tenants.is_given()
            && self.table.is_none()
            && !self.timeline
            && self.annotate.is_none()
            && self.select.format() == Format::Text
            && self.select.select() == ncpu_table::Select::default()
    }

    /// Whether there can be such a table, before a program runs for it; and whether the options go together: the onion has
    /// no rows to sort or choose. Users' causes are read, too.
    fn check(&self) -> anyhow::Result<()> {
        require!(
            !self.open || self.html.as_deref() != Some(Path::new("-")),
            "--open needs a file: name one with --html, or leave --html out"
        );
        self.causes.install()?;
        self.tenants.naming()?;
        if let Some(name) = self.table.as_deref() {
            known_table(name, tables())?;
        }
        let rows = self.select.select() != ncpu_table::Select::default();
        if self.table.is_none() && self.select.format() == Format::Text && rows {
            usage!("-k, -A, -m and --top are for rows of a table: name one, as in --table layers");
        }
        if let Some(known) = self.table.as_deref().and_then(ncpu_schema::definition) {
            self.select.select().check(&(known.columns)(), known.name)?;
        }
        if self.table.as_deref() == Some("causes") {
            self.select.select().check(&Findings::columns(), "causes")?;
        }
        if self.table.as_deref() == Some("layers") {
            self.select.select().check(&Onion::columns(), "layers")?;
        }
        let text_alone =
            self.table.is_none() && self.select.format() == Format::Text && !self.tenants.is_given();
        if self.annotate.is_some() && (!text_alone || self.timeline) {
            usage!("--annotate prints text: for its table give --table instructions");
        }
        if self.timeline && (self.table.is_some() || self.select.format() != Format::Text) {
            usage!("--timeline prints text: for a table give --table timeline, or --table phases");
        }
        Ok(())
    }
}

/// Options common to run and watch.
#[derive(Args, Debug)]
pub struct ObserveArgs {
    /// Timer samples a second on each CPU (fewer on machines of more than 200 CPUs) [default: 99; with --rotate 19]
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: Option<u32>,

    /// Record the observation in DIR (conventionally NAME.ncpu)
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Seconds between rows of the tables over time [default: 1; with --timeline 0.1, with --rotate 5]
    #[arg(long, value_name = "SECONDS", value_parser = crate::duration::seconds)]
    interval: Option<f64>,

    /// Time each CALL of the program from entry to return, as in futex,fsync: table percentiles has the answer. Costs some
    /// 0.2 us a call
    #[arg(long, value_name = "CALL", value_delimiter = ',', value_parser = call_number)]
    latency_of: Vec<u32>,

    /// Follow each request of a client from its arrival on a connection to the end of the answer: latencies, and what the slow
    /// ones waited for
    #[arg(long)]
    requests: bool,

    /// Follow each call of function FUNC of the program, or of LIBRARY:FUNC, from entry to return: latencies, and what the slow ones
    /// waited for
    #[arg(long, value_name = "FUNC", conflicts_with = "requests")]
    request: Vec<CalledFunction>,

    #[command(flatten)]
    probes: ProbesArgs,

    #[command(flatten)]
    patterns: PatternArgs,

    #[command(flatten)]
    report: ReportArgs,
}

/// The number of a system call.
fn call_number(name: &str) -> Result<u32, String> {
    let found =
        (0..ncpu_observe_core::names::MOST_CALLS).find(|nr| ncpu_observe_core::names::call_name(*nr) == name);
    found.ok_or_else(|| format!("unknown system call {name:?}"))
}

/// Timer samples a second on each CPU, where nothing else is asked for.
pub const HZ: u32 = 99;

/// Seconds between rows where nothing else is asked for, and where phases are looked for: these may be short.
const INTERVALS: [f64; 2] = [1.0, 0.1];

impl ObserveArgs {
    /// The target of the observation.
    fn config(&self, user_locks_of_all: bool, hz: u32) -> anyhow::Result<impl Fn(Target) -> Config> {
        let (hz, patterns, probes) = (self.hz.unwrap_or(hz), self.patterns.read()?, self.probes.get());
        let (latency_of, requests) = (self.latency_of.clone(), self.requests);
        if self.request.len() > MOST_FUNCTIONS {
            usage!("--request: at most {MOST_FUNCTIONS} functions are followed");
        }
        let functions = self.request.clone();
        // A recording is for questions that come later.
        let source_lines = self.report.annotate.is_some() || self.record.is_some();
        Ok(move |target| Config {
            user_locks_of_all,
            latency_of: latency_of.clone(),
            requests,
            functions: functions.clone(),
            source_lines,
            probes,
            patterns: patterns.clone(),
            ..Config::onion(target, hz)
        })
    }

    fn interval(&self) -> anyhow::Result<std::time::Duration> {
        let over_time = matches!(self.report.table.as_deref(), Some("timeline" | "phases"));
        let short = self.report.timeline || over_time;
        interval(self.interval.unwrap_or(INTERVALS[usize::from(short)]))
    }
}

/// Run a command and peel it: where every CPU-second of CPUs x elapsed went
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    observe: ObserveArgs,

    #[command(flatten)]
    metric: MetricArgs,

    /// Time the command's waits for pthread locks by a library that it loads, and say who held them: for users who may
    /// not load programs into the kernel, which otherwise time them
    #[arg(long, value_name = "WHAT")]
    preload: Option<Preloaded>,

    /// Run the command as NAME with NAME's groups [default: current user, which is root under sudo]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Libraries that `run --preload` may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preloaded {
    /// libncpu_locks.so
    Locks,
}

/// Watch the machine, a process or a cgroup, and peel it
#[derive(Args, Debug)]
pub struct WatchArgs {
    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    observe: ObserveArgs,

    /// With -a: trace the locks of libncpu too, in every program of the machine that has them. That puts breakpoints
    /// into their files, which debuggers and Valgrind may trip over
    #[arg(long)]
    user_locks: bool,

    #[command(flatten)]
    series: SeriesArgs,

    /// How long, in seconds or as in 10m [default: until Ctrl-C]
    #[arg(value_parser = crate::duration::seconds)]
    seconds: Option<f64>,

    /// How many reports, one after the other
    #[arg(default_value_t = 1)]
    count: u64,
}

/// Print a recording again
#[derive(Args, Debug)]
pub struct ReportCommand {
    #[command(flatten)]
    report: ReportArgs,

    #[command(flatten)]
    export: ExportArgs,

    /// Of the recordings that `ncpu watch --rotate` made in DIR, print the one that holds this moment: 03:12 (the last one),
    /// 2026-11-23T03:12, 2026-11-23T03:12:30Z (UTC), or -2h
    #[arg(long, value_name = "TIME", value_parser = moment::parse, allow_hyphen_values = true, requires = "dir")]
    at: Option<moment::At>,

    /// The recording: a directory made by --record [default: the last `ncpu run` or `ncpu watch`]
    dir: Option<PathBuf>,
}

/// `ncpu run -- CMD`: exits with CMD's status.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    args.observe.report.check()?;
    let metric = args.metric.of_command(&args.command)?;
    let config = args.observe.config(false, HZ)?;
    let locks = args.preload.map(|Preloaded::Locks| PreloadLocks::new()).transpose()?;
    let subject = Subject::measured(&args.command, metric, args.user.as_deref(), locks)?;
    peel(Purpose::Run, subject, config, &args.observe, true)
}

/// `ncpu watch [SECONDS] [-p|-c|-a]`.
pub fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    args.observe.report.check()?;
    if let Some(rotate) = args.series.rotate {
        let alone = args.count == 1 && args.observe.report.is_default();
        require!(alone, "--rotate writes recordings and prints no report: `ncpu report` prints them");
        let config = args.observe.config(args.user_locks, series::HZ)?;
        let interval = interval(args.observe.interval.unwrap_or(series::INTERVAL.min(rotate.as_secs_f64())))?;
        let subject = Subject::running(&args.target, args.seconds)?;
        return series::watch(&args.series, subject, config, interval, args.observe.record.as_deref());
    }
    repeat(args.count, args.observe.record.as_deref(), || {
        let config = args.observe.config(args.user_locks, HZ)?;
        peel(Purpose::Watch, Subject::running(&args.target, args.seconds)?, config, &args.observe, false)
    })
}

fn peel(
    kind: Purpose,
    subject: Subject,
    config: impl FnOnce(Target) -> Config,
    args: &ObserveArgs,
    own_stdout: bool,
) -> anyhow::Result<ExitCode> {
    let interval = args.interval()?;
    let observed = observe(kind, subject, config, interval, args.record.as_deref(), |_| ())?;
    let again = match &args.record {
        Some(dir) => Some(named(dir)),
        None => crate::last::place().map(|_| String::new()),
    };
    report(&observed.recording, &args.report, own_stdout, again.as_deref())?;
    if args.record.is_none() {
        crate::last::keep(&observed.recording);
    }
    observed.exit()
}

/// A recording as an argument that follows others.
fn named(dir: &Path) -> String {
    format!(" {}", ncpu_machine::shell_word(&ncpu_table::safe::os(dir)))
}

/// `ncpu report [DIR]`.
pub fn report_again(args: ReportCommand) -> anyhow::Result<ExitCode> {
    let dir = args.dir.clone().map_or_else(crate::last::dir, Ok)?;
    let recording = match &args.at {
        Some(at) => moment::find(&dir, at)?,
        None => Recording::open(&dir).map_err(|e| of_many(e, &dir))?,
    };
    if recording.tables.contains_key("cpu_time") {
        args.report.check()?;
    }
    if args.export.write(&recording)? && args.report.is_default() {
        return Ok(ExitCode::SUCCESS);
    }
    let again = args.at.is_none().then(|| args.dir.as_deref().map_or_else(String::new, named));
    report(&recording, &args.report, false, again.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Error for a directory that is not a recording: it may hold recordings.
fn of_many(error: ncpu_record::Error, dir: &std::path::Path) -> anyhow::Error {
    let many = matches!(error, ncpu_record::Error::NotARecording(_))
        && ncpu_record::Moments::read(dir).is_ok_and(|moments| !moments.is_empty());
    match many {
        true => anyhow::anyhow!(
            "{} holds recordings that follow one another: name one of them, or a moment, as in --at 03:12",
            ncpu_table::safe::os(dir)
        ),
        false => error.into(),
    }
}

/// Prints what was asked for. A command's own output has stdout, so `run` reports to stderr unless
/// a format for machines is asked for. `again` names the recording to commands that read it; `None`: it is not kept.
fn report(
    recording: &Recording,
    args: &ReportArgs,
    own_stdout: bool,
    again: Option<&str>,
) -> anyhow::Result<()> {
    let incomplete = ncpu_report::incomplete::words(recording);
    let notes: Vec<String> = incomplete.iter().chain(&recording.manifest.notes).cloned().collect();
    let scale = (recording.purpose() == Purpose::Scale)
        .then(|| Scale::read(recording.tables.values(), &recording.manifest.command.join(" "), &notes));
    if args.html.is_some() || args.open {
        let page = match &scale {
            Some(scale) => scale.html(),
            None => ncpu_report::html::page(recording)?,
        };
        let file = args.html.clone().map_or_else(crate::out::new_page, Ok)?;
        crate::out::page(&file, &page)?;
        if args.open {
            crate::out::open(&file)?;
        }
    }
    let observed = is_observed(recording);
    // The onion and the curves have a place for notes; a table has none.
    let noted = args.table.is_none() && args.select.format() == Format::Text && (observed || scale.is_some());
    if let Some(words) = incomplete.filter(|_| !noted) {
        say!("ncpu: {words}");
    }
    let text = match args.table {
        None if args.select.format() == Format::Text => text(recording, args, scale.as_ref(), again)?,
        _ => None,
    };
    if let Some(text) = text {
        // A blank line between what the command said and the report.
        return crate::out::put(&if own_stdout { format!("\n{text}") } else { text });
    }
    let select = args.select.select();
    let mut printer = args.select.printer()?;
    for table in chosen_tables(recording, args)? {
        let table = select.apply(table)?;
        // A program that reads tables does not read standard error.
        let table = match args.select.format() {
            Format::Text => table,
            _ => ncpu_report::incomplete::marked(recording, table),
        };
        printer.table(&table)?;
    }
    Ok(printer.finish()?)
}

/// The report for people; `None` where a recording has nothing but its tables.
fn text(
    recording: &Recording,
    args: &ReportArgs,
    scale: Option<&Scale>,
    again: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let width = text_width();
    if recording.purpose() == Purpose::Numa {
        return Ok(Some(ncpu_report::numa::render(&ncpu_report::numa::Numa::read(recording)?, width, false)));
    }
    if let Some((scale, points)) = scale.zip(recording.tables.get("scale")) {
        let points = args.select.select().apply(points.clone())?;
        return Ok(Some(ncpu_report::scale::render(scale, &points, width)));
    }
    if !is_observed(recording) && !recording.tables.is_empty() {
        return Ok(None);
    }
    if let Some(function) = &args.annotate {
        return Ok(Some(annotate::text(recording, function, args.verbose, width)?));
    }
    if args.tenants.is_given() {
        return Ok(Some(ncpu_report::tenants::render(&args.tenants.read(recording)?, width)));
    }
    let onion = Onion::peel(recording)?;
    let mut causes = 0;
    let mut text = match args.verbose {
        true => {
            let lives = ncpu_report::thread_time::ThreadTime::of(recording)?.render(width);
            format!("{}{lives}", render(&onion, width))
        }
        false => {
            let findings = Findings::of(recording)?;
            causes = findings.list.len();
            ncpu_report::findings::render(&onion, &findings, width)
        }
    };
    text += &ncpu_report::served::Requests::of(recording)?.render(width, args.verbose);
    let kinds: &[Length] = if args.verbose { &Length::ALL } else { &[Length::Call] };
    if let Some(percentiles) = ncpu_report::lengths::of_recording(recording, kinds)? {
        text += &format!("\n{}", ncpu_table::render_text(&percentiles, width));
    }
    if let Some(again) = again.filter(|_| !args.verbose && !onion.short) {
        let why = if causes > 0 { format!(" · ncpu why N{again}") } else { String::new() };
        text += &format!("more: ncpu report -v{again}{why}\n");
    }
    if args.timeline {
        let timeline = over_time(recording)?;
        text.push('\n');
        text += &timeline::render(&timeline, &timeline.onions(recording)?, width);
    }
    Ok(Some(text))
}

/// Whether a recording holds what an observation, or a prediction of one, consists of.
fn is_observed(recording: &Recording) -> bool {
    matches!(recording.purpose(), Purpose::Run | Purpose::Watch | Purpose::Locks | Purpose::Foresee)
}

/// The tables that were asked for.
fn chosen_tables(recording: &Recording, args: &ReportArgs) -> anyhow::Result<Vec<ncpu_table::Table>> {
    let observed = is_observed(recording);
    Ok(match args.table.as_deref() {
        // A recording of a command that looks once: it has nothing but its tables.
        None if !observed && !recording.tables.is_empty() => recording.tables.values().cloned().collect(),
        None if args.tenants.is_given() => {
            let tenancy = args.tenants.read(recording)?;
            vec![tenancy.table(), tenancy.ledger()]
        }
        Some("tenants") => vec![args.tenants.read(recording)?.table()],
        Some("ledger") => vec![args.tenants.read(recording)?.ledger()],
        Some("causes") => vec![Findings::of(recording)?.table()],
        None | Some("layers") => vec![Findings::of(recording)?.layers(&Onion::peel(recording)?)],
        Some("percentiles") if observed => {
            let table = ncpu_report::lengths::of_recording(recording, &Length::ALL)?;
            vec![table.unwrap_or_else(|| ncpu_schema::percentiles::Rows::new().finish())]
        }
        Some("request_bands") if observed => vec![ncpu_report::served::Requests::of(recording)?.bands()],
        Some(name @ ("timeline" | "phases")) if observed => {
            over_time(recording)?.tables().into_iter().filter(|table| table.name() == name).collect()
        }
        Some(name) => match recording.tables.get(name) {
            Some(table) => vec![grouped(table)?],
            None if let Some(table) =
                ncpu_schema::of_observations().iter().find(|t| observed && t.name == name) =>
            {
                say!("ncpu: nothing was seen for table `{name}`");
                vec![table.builder().finish()]
            }
            None => {
                let layers = observed.then_some(MADE).into_iter().flatten();
                return Err(no_table(name, layers.chain(recording.tables.keys().map(String::as_str))));
            }
        },
    })
}

fn over_time(recording: &Recording) -> anyhow::Result<Timeline> {
    Timeline::of(recording)?.context(
        "the recording has no layers over time: it holds no interval, or was made by an ncpu that kept no times of samples",
    )
}

/// Rows of one key put together over the intervals, but for tables over time.
fn grouped(table: &ncpu_table::Table) -> anyhow::Result<ncpu_table::Table> {
    if matches!(table.name(), "cpu_time" | "idle_time" | "events" | "throttling" | "cgroup_cpu" | "bandwidth")
    {
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

//! `ncpu dose`: what a cause costs, measured by making it a little worse.

pub mod candidates;
pub mod subject;
mod url;
pub mod windows;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_collectors::doses::{Doses, Survey};
use ncpu_collectors::lock_names::LockNamer;
use ncpu_dose::place::Candidate;
use ncpu_dose::search::{Found, Options, search};
use ncpu_dose::show;
use ncpu_engine::engine::Config;
use ncpu_observe_core::names::{Symbols, call_name};
use ncpu_observe_core::program::Target;
use ncpu_record::Recording;
use ncpu_remedy::sys;
use ncpu_schema::{Purpose, dose_program, dose_windows, doses};
use ncpu_table::{Format, Table, safe};

use crate::metric::MetricArgs;
use crate::observer::Observer;
use crate::out::{progress, progress_over};
use crate::sink::{self, record_once};
use crate::stop;
use crate::table_args::{TableArgs, known_table};
use candidates::{BIN, Looked};
use subject::{State, Subject};
use url::Counter;
use windows::{Speed, Spot, Windows};

/// Measure what causes cost: make each a little slower in short windows, and see how much the program slows
#[derive(Args, Debug)]
pub struct DoseArgs {
    /// Measure process PID, its threads and all it starts, while it serves
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,

    /// Speed is a counter's growth: http://HOST:PORT/PATH#NAME or file:///PATH#NAME, NAME as Prometheus has it
    #[arg(long, value_name = "URL", conflicts_with_all = ["count", "metric"])]
    metric_url: Option<String>,

    /// Speed is counted in these: a system call, or function:[FILE:]NAME [default: the most regular system call, else
    /// whole runs]
    #[arg(long, value_name = "WHAT", conflicts_with = "metric")]
    count: Option<String>,

    #[command(flatten)]
    metric: MetricArgs,

    /// Compare whole runs, of which speed is one over the elapsed time
    #[arg(long, conflicts_with_all = ["pid", "metric_url", "count"])]
    runs: bool,

    /// Try this place and no others: lock:NAME, call:NAME, faults, wake-ups, processes, function:[FILE:]NAME,
    /// user-lock:[FILE:]NAME (a function that takes a lock), softirq:NUMBER, interrupt:NUMBER [default: where a first
    /// look finds 1 % of the CPUs]
    #[arg(long = "place", value_name = "PLACE")]
    places: Vec<String>,

    /// Begin no block of windows after SECONDS
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60.0, value_parser = crate::duration::seconds)]
    length: f64,

    /// Length of a window, 50 to 500 ms
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(50..=500))]
    window: u64,

    /// Blocks of windows of each place, at most
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(3..=1000))]
    blocks: u32,

    /// Slow the program by at most PERCENT on average [default: 3% with -p, else no limit]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    most_slowdown: Option<f64>,

    /// Print a table instead of the text: doses, dose_program, dose_windows
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the tables in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// The command and its arguments; it is started again when it has ended
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD",
        required_unless_present = "pid"
    )]
    command: Vec<OsString>,
}

/// `3` or `3%`, as a part of one.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(p) if p > 0.0 && p <= 100.0 => Ok(p / 100.0),
        _ => Err("expected a percentage above 0, as in 3%".into()),
    }
}

/// Time that a running service may be slowed by default.
const OF_A_SERVICE: f64 = 0.03;

/// The first look at the program: observed for its layers, then for its places.
const OBSERVED: Duration = Duration::from_millis(2000);
const SURVEYED: Duration = Duration::from_millis(400);

/// Timer samples a second on each CPU of the first look.
const HZ: u32 = 99;

/// Bins in which calls are counted.
const BINS: usize = 20;

/// Work that a window needs for its count to be good to some per cent.
const WORK_A_WINDOW: f64 = 200.0;

/// The longest window.
const LONGEST: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// The program cannot be run or measured, or the kernel gives no doses.
pub fn run(args: &DoseArgs) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.table {
        known_table(name, [doses::NAME, dose_program::NAME, dose_windows::NAME])?;
    }
    let name = args.table.as_deref().unwrap_or(doses::NAME);
    let none = Found::default();
    let made = tables(&none, "", 1).into_iter().find(|table| table.name() == name);
    let made = made.context("one of the tables")?;
    args.rows.select().check(made.columns(), made.name())?;
    require!(
        args.metric.metric.is_none() || args.pid.is_none(),
        "--metric is of a command's output: with -p give --metric-url or --count"
    );
    let stop = stop::on_signals()?;
    let measured = measure(args, &stop);
    progress_over();
    let Some(Measured { found, metric, cpus, notes, words }) = measured? else {
        return Ok(ExitCode::from(stop::status()));
    };
    let made = tables(&found, &metric, cpus);
    record_once(args.record.as_deref(), Purpose::Dose, vec![words.clone()], &made, notes.clone())?;
    report(args, &found, made, &show::text(&found, &words, &metric, cpus), &notes)?;
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

fn tables(found: &Found, metric: &str, cpus: u32) -> Vec<Table> {
    vec![show::doses_table(found), show::program_table(found, metric, cpus), show::windows_table(found)]
}

fn report(
    args: &DoseArgs,
    found: &Found,
    tables: Vec<Table>,
    text: &str,
    notes: &[String],
) -> anyhow::Result<()> {
    let name = args.table.as_deref().unwrap_or(doses::NAME);
    if args.table.is_some() || args.rows.format() != Format::Text {
        if found.places.is_empty() && name == doses::NAME {
            say!("ncpu dose: no place was found to make slower");
        }
        let table = tables.into_iter().find(|table| table.name() == name).context("one of the tables")?;
        return args.rows.print(table);
    }
    crate::out::put(text)?;
    for note in notes {
        crate::out::put(&format!("note     {note}\n"))?;
    }
    Ok(())
}

/// Result of a measurement.
struct Measured {
    found: Found,
    metric: String,
    cpus: u32,
    notes: Vec<String>,
    words: String,
}

/// Looks at the program, chooses places, and measures them; `None` where the user stopped it before.
fn measure(args: &DoseArgs, stop: &AtomicBool) -> anyhow::Result<Option<Measured>> {
    let mut subject = match args.pid {
        Some(pid) => Subject::process(pid, stop)?,
        None => Subject::command(&args.command, stop),
    };
    let words = match args.pid {
        Some(pid) => ncpu_machine::process::name(Path::new(&format!("/proc/{pid}")))
            .map_or(format!("process {pid}"), |name| format!("{name} ({pid})")),
        None => args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
    };
    let mut doses = Doses::load(&subject.target())?;
    let mut notes = doses.notes().to_vec();
    let mut symbols = Symbols::of_bpf();
    notes.extend(symbols.load_kernel());
    let mut namer = LockNamer::open(symbols.kernel_symbols());

    progress("a first look at the program");
    let wants_runs = args.runs || args.metric.metric.is_some();
    let Some(looked) = look(&mut subject, &mut doses, args)? else { return Ok(None) };
    let (looked, bins) = looked;
    let mut length = Duration::from_millis(args.window);
    let (speed, metric) = if wants_runs {
        let words = if args.metric.metric.is_some() { "units of its output" } else { "runs" };
        (Speed::Runs(args.metric.measure()?), words.to_owned())
    } else {
        match speed_of(args.metric_url.as_deref(), args.count.as_deref(), &looked.files, &bins)? {
            Some(Chosen { speed, words, rate }) => {
                if let Some(rate) = rate {
                    length = length.max(Duration::from_secs_f64(WORK_A_WINDOW / rate)).min(LONGEST);
                }
                (speed, words)
            }
            None if args.pid.is_some() => anyhow::bail!(NOTHING_TO_COUNT),
            None => (Speed::Runs(args.metric.measure()?), "runs".into()),
        }
    };

    let starts_processes = looked.starts_processes();
    let found = match args.places.as_slice() {
        [] => looked.candidates(&mut namer)?,
        places => {
            let named = places.iter().map(|text| candidates::named(text, &looked.files, &looked.survey));
            named.collect::<anyhow::Result<Vec<_>>>()?
        }
    };
    let allowed = sys::affinity(args.pid.unwrap_or(0)).context("the CPUs it may use")?;
    let cpus = allowed.len() as u32;
    let cpu = allowed.iter().next().context("the CPUs it may use")?;
    let whole = matches!(speed, Speed::Runs(_));
    if whole {
        subject.finish();
    }
    let mut bench = Windows::new(doses, subject, speed, length, Some(namer), cpu, &args.command, stop);
    bench.spots = found.iter().map(|place| place.1.clone()).collect();
    bench.several = starts_processes;
    bench.count()?;
    let (found, too_often) = match whole || !args.places.is_empty() {
        true => (found, Vec::new()),
        false => candidates::worth_a_probe(found, |at| bench.probed(at))?,
    };
    if !too_often.is_empty() {
        let names: Vec<String> = too_often.iter().map(|name| safe::cut(name, 40)).collect();
        notes.push(format!("called too often for a probe: {}", names.join(", ")));
    }
    let (places, spots): (Vec<Candidate>, Vec<Spot>) = found.into_iter().unzip();
    bench.spots = spots;
    let options = Options {
        length: Duration::from_secs_f64(args.length),
        blocks: args.blocks as usize,
        most_slowdown: args.most_slowdown.or(args.pid.map(|_| OF_A_SERVICE)),
        cpus: f64::from(cpus),
        threads: looked.threads,
        // A service is not confined: that would cost more than any dose.
        anchor: args.pid.is_none() && cpus > 1,
        window: length.as_secs_f64(),
    };
    let searched = search(&mut bench, &options, places);
    bench.subject.finish();
    notes.extend(bench.unread.take().map(|why| format!("the counter could not be read at times: {why}")));
    let found = searched?;
    if whole && found.windows.is_empty() && !found.over {
        notes.push(format!(
            "of no place were there enough runs of the command within the {} s of --for: give a shorter command, more time, or one \
             --place",
            args.length
        ));
    }
    if args.pid.is_some() {
        notes.push("a running service is not confined to one CPU, so the gain of a lock is what its waiters' CPU time gives: at least that".into());
    }
    Ok(Some(Measured { found, metric, cpus, notes, words }))
}

/// The unit of speed of a running program.
pub struct Chosen {
    pub speed: Speed,
    /// Its name, in the plural.
    pub words: String,
    /// How often a second it comes, where it was found by looking.
    rate: Option<f64>,
}

/// The error where the unit of speed has to be given.
pub const NOTHING_TO_COUNT: &str = "no system call is frequent enough to count the program's work by: give --metric-url, or \
                                --count function:NAME";

/// The counter, function or call that the user has named, else the most regular system call; `None` where no call is frequent.
///
/// # Errors
/// There is no such counter, function or call.
pub fn speed_of(
    url: Option<&str>,
    count: Option<&str>,
    files: &[PathBuf],
    bins: &[Vec<u64>],
) -> anyhow::Result<Option<Chosen>> {
    let (speed, words, rate) = if let Some(url) = url {
        let counter = Counter::parse(url)?;
        counter.read().context("--metric-url")?;
        let words = counter.words();
        (Speed::Counter(counter), words, None)
    } else if let Some(function) = count.and_then(|what| what.strip_prefix("function:")) {
        let found = candidates::function(function, files, false)?;
        let words = format!("calls of {}", function.rsplit(':').next().unwrap_or(function));
        (Speed::Function(found), words, None)
    } else if let Some(call) = count {
        (Speed::Call(candidates::call_number(call)?), format!("{call} calls"), None)
    } else {
        let Some((call, rate)) = candidates::regular(bins, BIN.as_secs_f64()) else { return Ok(None) };
        (Speed::Call(call), format!("{} calls", call_name(call)), Some(rate))
    };
    Ok(Some(Chosen { speed, words, rate }))
}

/// The first look, and the calls of each bin; `None` where the user stopped it.
fn look(
    subject: &mut Subject<'_>,
    doses: &mut Doses,
    args: &DoseArgs,
) -> anyhow::Result<Option<(Looked, Vec<Vec<u64>>)>> {
    let recording = match args.places.is_empty() {
        true => observe(subject)?,
        false => None,
    };
    let mut survey = Survey::default();
    let mut files = Vec::new();
    let mut threads = 0;
    // A run that ends meanwhile does not count as a look.
    for _ in 0..4 {
        match subject.ensure()? {
            State::Running => {}
            State::Ended => continue,
            State::Over => return Ok(None),
        }
        files = subject.pid().map(candidates::code_of).unwrap_or_default();
        let before = subject.pid().map(computed_by_threads).unwrap_or_default();
        let (seen, state) = doses.survey(|| subject.wait(SURVEYED))?;
        let state = state?;
        if state == State::Over {
            return Ok(None);
        }
        survey = seen;
        let after = subject.pid().map(computed_by_threads).unwrap_or_default();
        threads = working(&before, &after, SURVEYED);
        if state == State::Running {
            break;
        }
    }
    let Some(bins) = count_bins(subject, doses)? else { return Ok(None) };
    let cpus = sys::affinity(args.pid.unwrap_or(0)).context("the CPUs it may use")?.len() as f64;
    Ok(Some((Looked { survey, recording, cpus, threads, files }, bins)))
}

/// ns for which each thread of a process and of its children has been on CPU.
fn computed_by_threads(pid: u32) -> HashMap<PathBuf, u64> {
    let tasks =
        sys::tree_of(pid).into_iter().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    let of_thread = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((task.path(), text.split(' ').next()?.parse().ok()?))
    };
    tasks.flatten().flatten().filter_map(of_thread).collect()
}

/// Threads that compute, of which the time on CPU is known at both ends of some time; 0 where others came meanwhile.
fn working(before: &HashMap<PathBuf, u64>, after: &HashMap<PathBuf, u64>, time: Duration) -> usize {
    /// The part of the time for which a thread computes.
    const LEAST: f64 = 0.005;
    if after.keys().any(|thread| !before.contains_key(thread)) {
        return 0;
    }
    let least = (LEAST * time.as_nanos() as f64) as u64;
    after.iter().filter(|(thread, ns)| ns.saturating_sub(before[*thread]) >= least).count()
}

/// Counts each system call in short times; `None` where the user stopped it.
///
/// # Errors
/// The kernel refuses, or the command fails.
pub fn count_bins(subject: &mut Subject<'_>, doses: &mut Doses) -> anyhow::Result<Option<Vec<Vec<u64>>>> {
    let mut bins = Vec::new();
    doses.count_calls(true)?;
    while bins.len() < BINS {
        match subject.ensure()? {
            State::Running => {}
            State::Ended if bins.is_empty() => {
                // A command that is too short for a bin is compared by whole runs.
                break;
            }
            State::Ended => continue,
            State::Over => return Ok(None),
        }
        let before = doses.all_calls();
        match subject.wait(BIN)? {
            State::Running => {
                subject.was_measured();
                let after = doses.all_calls();
                bins.push(after.iter().zip(&before).map(|(after, before)| after - before).collect());
            }
            State::Ended => {}
            State::Over => return Ok(None),
        }
    }
    doses.count_calls(false)?;
    Ok(Some(bins))
}

/// Observes the program's layers for a while; `None` where that cannot be done here.
fn observe(subject: &mut Subject<'_>) -> anyhow::Result<Option<Recording>> {
    let State::Running = subject.ensure()? else { return Ok(None) };
    let Some(pid) = subject.pid() else { return Ok(None) };
    let mut sink = sink::open(Purpose::Watch, vec!["first look".into()], 1.0, None)?;
    let config = Config::onion(Target::Tree(pid), HZ);
    let mut observer = Observer::begin(Purpose::Watch, &config, false, None, &mut sink)?;
    let deadline = Instant::now() + OBSERVED;
    let never = AtomicBool::new(false);
    observer.watch(None, Some(deadline), Duration::from_secs(1), &never, &mut |t| Ok(sink.table(t)?))?;
    let notes = observer.finish(None, &mut |t| Ok(sink.table(t)?))?;
    let (recording, _) = sink.finish(notes)?;
    Ok(Some(recording))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_compute_are_counted_where_none_comes() {
        let of =
            |threads: &[(&str, u64)]| threads.iter().map(|(name, ns)| (PathBuf::from(*name), *ns)).collect();
        let before = of(&[("a", 5), ("b", 7), ("c", 0)]);
        let time = Duration::from_secs(1);
        assert_eq!(working(&before, &of(&[("a", 50_000_005), ("b", 100_000_007), ("c", 900)]), time), 2);
        // One that ended is not missed; one that came is not known.
        assert_eq!(working(&before, &of(&[("a", 50_000_005)]), time), 1);
        assert_eq!(working(&before, &of(&[("a", 50_000_005), ("d", 1)]), time), 0);
        let own = computed_by_threads(std::process::id());
        assert!(own.values().any(|ns| *ns > 0), "{own:?}");
    }
}

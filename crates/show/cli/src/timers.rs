//! `ncpu timers`: how well calls keep time, who arms timers, what keeping time costs each CPU.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use ncpu_collectors::timers::{CALLS, Call, Doings, Plan, Who, herd, herd_table, measure, tick_ns};
use ncpu_report::timers as view;
use ncpu_schema::{
    Purpose, cpu_doings, herd as herd_rows, timeouts, timer_arms, timer_callers, timer_machine, timer_span,
};
use ncpu_table::{Format, Table};

use crate::locks::with_stacks;
use crate::out::{progress, progress_over};
use crate::sink::record_once;
use crate::subject::{Subject, WhenArgs, reports};
use crate::table_args::TableArgs;
use crate::target::TargetArgs;
use crate::{out::put, stop};

/// Measure how well calls keep time; see who arms timers and what housekeeping costs each CPU
#[derive(Args, Debug)]
pub struct TimersArgs {
    /// Only calls whose name matches GLOB, as in 'pthread_*'
    #[arg(long, value_name = "GLOB", help_heading = "Measuring calls")]
    calls: Vec<String>,

    /// Times to ask for [default: 9ms,10ms,11ms,1us,1ms,100ms]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = time,
          help_heading = "Measuring calls")]
    times: Vec<u64>,

    /// Waits of each call for each time [default: as many as a few seconds allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          help_heading = "Measuring calls")]
    samples: Option<u32>,

    /// Instead, let THREADS threads poll nothing with a timeout, over and over, and count calls and
    /// context switches, for each time of --times [default: 9ms,10ms,11ms]. SECONDS is how
    /// long for each, 5 unless given
    #[arg(long, value_name = "THREADS", conflicts_with_all = ["calls", "samples", "by"],
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    poll: Option<u64>,

    /// Instead, show who arms timers, for how long, and what their handlers cost
    #[arg(long, conflicts_with_all = ["calls", "samples", "times", "poll", "cpus"])]
    who: bool,

    /// Instead, show what each CPU spends on ticks, timers and other housekeeping
    #[arg(long, conflicts_with_all = ["calls", "samples", "times", "poll", "by", "stack", "pid", "cgroup"])]
    cpus: bool,

    /// Unit of a row [default: call; with --who, caller]
    #[arg(long, value_enum)]
    by: Option<ByArg>,

    #[command(flatten)]
    target: TargetArgs,

    /// With --who, show DEPTH frames of each stack
    #[arg(short, long = "stack", value_name = "DEPTH", requires = "who")]
    stack: Option<usize>,

    #[command(flatten)]
    select: TableArgs,

    /// Record what was measured in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    #[command(flatten)]
    when: WhenArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    Call,
    /// A call and one of the times
    Time,
    /// A handler, a process and what armed the timer (--who)
    Caller,
    /// A handler (--who)
    Function,
    /// A process (--who)
    Process,
}

/// `9ms`, `1us`, `500ns`, `1s`, in ns.
fn time(s: &str) -> Result<u64, String> {
    let at = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let scale = match s[at..].trim() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{s}`: give a number and a unit, as in 500ns, 1us, 9ms or 1s")),
    };
    match s[..at].parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) {
        Some(ns @ 1..=3_600_000_000_000) => Ok(ns),
        _ => Err(format!("`{s}`: give 1ns to 3600s")),
    }
}

/// Whether `*` and `?` of a pattern can stand for what is in a name.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|n| matches(rest, &name[n..])),
        (Some((p, rest)), Some((n, left))) => (p == n || *p == b'?') && matches(rest, left),
        _ => false,
    }
}

fn chosen(globs: &[String]) -> anyhow::Result<Vec<&'static Call>> {
    for glob in globs {
        if !CALLS.iter().any(|c| matches(glob.as_bytes(), c.name.as_bytes())) {
            let names: Vec<&str> = CALLS.iter().map(|c| c.name).collect();
            usage!("--calls {glob}: unknown call; expected one of: {}", names.join(", "));
        }
    }
    let wanted =
        |c: &&Call| globs.is_empty() || globs.iter().any(|g| matches(g.as_bytes(), c.name.as_bytes()));
    Ok(CALLS.iter().filter(wanted).collect())
}

/// Runs the command.
///
/// # Errors
/// What was asked for is not there, or cannot be measured, recorded or written.
pub fn run(mut args: TimersArgs) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signals()?;
    if args.times.is_empty() {
        // About a tick of 10 ms, where kernels differ most, then the range.
        args.times = vec![9_000_000, 10_000_000, 11_000_000];
        if args.poll.is_none() {
            args.times.extend([1_000, 1_000_000, 100_000_000]);
        }
    }
    let mut seen = HashSet::new();
    args.times.retain(|t| seen.insert(*t));
    use ByArg::{Call, Caller, Function, Process, Time};
    match (args.by, args.who) {
        (Some(Caller | Function | Process), false) => usage!("--by {:?}: add --who", args.by),
        (Some(Call | Time), true) => usage!("--who: --by takes caller, function or process"),
        _ => {}
    }
    if args.who {
        return reports(&args.when, args.record.as_deref(), || who(&args, &stop));
    }
    if args.cpus {
        return reports(&args.when, args.record.as_deref(), || cpus(&args, &stop));
    }
    if args.target.words() != ["the machine"] {
        usage!("-p and -c choose whose timers to see: add --who");
    }
    match args.poll {
        Some(threads) => poll(&args, threads, &stop),
        None if args.when.is_empty() => calls(&args, &stop),
        None => usage!("SECONDS and CMD are for --poll, --who and --cpus"),
    }
}

fn who(args: &TimersArgs, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let by = match args.by {
        Some(ByArg::Function) => view::By::Function,
        Some(ByArg::Process) => view::By::Process,
        _ => view::By::Caller,
    };
    // A column that the table lacks is an error before anything is observed.
    let (arms, callers) = (timer_arms::Rows::new().finish(), timer_callers::Rows::new().finish());
    let shown = view::who(&timer_arms::Reader::of(&arms)?, &timer_callers::Reader::of(&callers)?, 0.0, by);
    args.select.select().check(shown.columns(), shown.name())?;
    let mut subject = Subject::of(&args.target, &args.when)?;
    let mut who = Who::begin(&subject.target)?;
    subject.release()?;
    who.watch(subject.end(), subject.deadline(), stop);
    let ended = subject.ended();
    let (tables, notes) = who.finish();
    for note in &notes {
        say!("ncpu: {note}");
    }
    let arms = timer_arms::Reader::of(&tables[0])?;
    let callers = timer_callers::Reader::of(&tables[1])?;
    let elapsed = timer_span::Reader::of(&tables[2])?.elapsed.sum();
    let table = args.select.select().apply(view::who(&arms, &callers, elapsed, by))?;
    let text = args.select.format() == Format::Text;
    match args.stack {
        _ if text && table.num_rows() == 0 => put("no timer was armed\n")?,
        Some(depth) if text && by == view::By::Caller => put(&with_stacks(&table, depth)?)?,
        _ => {
            // People see stacks with -s.
            let names: Vec<&str> = table.columns().iter().map(|c| c.name.as_str()).collect();
            let shown: Vec<&str> = names.into_iter().filter(|n| !text || *n != "stack").collect();
            args.select.print_all(&table.project(&shown)?)?;
        }
    }
    record_once(args.record.as_deref(), Purpose::Timers, subject.words.clone(), &tables, notes)?;
    Ok(subject.exit_code(ended))
}

fn cpus(args: &TimersArgs, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let mut subject = Subject::of(&args.target, &args.when)?;
    let mut doings = Doings::begin()?;
    subject.release()?;
    doings.watch(subject.end(), subject.deadline(), stop);
    let ended = subject.ended();
    let (raw, notes) = doings.finish();
    for note in &notes {
        say!("ncpu: {note}");
    }
    let table = view::doings(&cpu_doings::Reader::of(&raw)?);
    let line = view::doings_line(&table, tick_ns());
    print(args, table, &line)?;
    record_once(args.record.as_deref(), Purpose::Timers, subject.words.clone(), &[raw], notes)?;
    Ok(subject.exit_code(ended))
}

fn calls(args: &TimersArgs, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let calls = chosen(&args.calls)?;
    let plan = Plan { calls, times: args.times.clone(), samples: args.samples.map(|n| n as usize) };
    let measured =
        measure(&plan, stop, &mut |done, all| progress(&format!("ncpu: {done} of {all} measured")));
    progress_over();
    for note in &measured.notes {
        say!("ncpu: {note}");
    }
    let stopped = stop.load(Ordering::Relaxed);
    if stopped {
        say!("ncpu: stopped: what was measured until then");
    }
    let by = if args.by == Some(ByArg::Time) { view::by_time } else { view::by_call };
    let machine = timer_machine::Reader::of(&measured.machine)?;
    let table = by(&timeouts::Reader::of(&measured.waits)?, &machine, &args.times);
    print(args, table, &view::machine_line(&machine))?;
    let tables = [measured.waits, measured.machine];
    record_once(args.record.as_deref(), Purpose::Timers, words(args), &tables, measured.notes)?;
    Ok(if stopped { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

fn words(args: &TimersArgs) -> Vec<String> {
    let poll = args.poll.map(|n| format!("--poll {n}"));
    ["ncpu timers".to_string()].into_iter().chain(poll).collect()
}

fn print(args: &TimersArgs, table: Table, line: &str) -> anyhow::Result<()> {
    args.select.print(table)?;
    if args.select.format() == Format::Text {
        put(line)?;
    }
    Ok(())
}

fn poll(args: &TimersArgs, threads: u64, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let when = &args.when;
    require!(when.count.is_none() && when.command.is_empty(), "--poll takes SECONDS alone");
    let seconds = when.seconds.unwrap_or(5.0);
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero());
    let length = length.ok_or_else(|| mistake!("--poll: give a positive number of seconds"))?;
    let mut herds = Vec::new();
    for &ns in &args.times {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        herds.push(herd(threads, ns.div_ceil(1_000_000), length, stop)?);
    }
    let raw = herd_table(&herds);
    print(args, view::herd(&herd_rows::Reader::of(&raw)?, tick_ns()), "")?;
    record_once(args.record.as_deref(), Purpose::Timers, words(args), &[raw], Vec::new())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        timers: TimersArgs,
    }

    fn parse(args: &str) -> Result<TimersArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("timers").chain(args.split_whitespace())).map(|c| c.timers)
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse("--times 9ms,1us,500ns,1s").unwrap().times, [9_000_000, 1_000, 500, 1_000_000_000]);
        for bad in ["9", "0ms", "ms", "-1ms", "1.5ms", "9999999s", "99999999999999999999s"] {
            assert!(parse(&format!("--times={bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn globs_choose_calls() {
        let names =
            |glob: &str| chosen(&[glob.to_string()]).map(|c| c.iter().map(|c| c.name).collect::<Vec<_>>());
        assert_eq!(names("poll").unwrap(), ["poll"]);
        assert_eq!(names("?poll").unwrap(), ["ppoll"]);
        assert_eq!(names("mq_*").unwrap(), ["mq_timedreceive", "mq_timedsend"]);
        assert_eq!(names("*").unwrap().len(), CALLS.len());
        assert!(names("port_get*").unwrap_err().to_string().contains("nanosleep"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            "--poll 0",
            "--poll 3 --by time",
            "--who --cpus",
            "--samples 0",
            "-m",
            "-s 3",
            "--cpus -p 1",
            "--poll 3 x",
        ] {
            assert!(parse(args).is_err(), "{args}");
        }
        for args in ["5", "-p 1", "--by function", "--who --by time", "--poll 3 1 2"] {
            assert!(run(parse(args).unwrap()).is_err(), "{args}");
        }
        assert_eq!(parse("--poll 100 2").unwrap().when.seconds, Some(2.0));
    }
}

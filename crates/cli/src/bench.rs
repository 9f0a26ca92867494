//! `ncpu bench`: benchmarks one can trust.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use ncpu_machine::Topology;
use ncpu_measure::place::{Memory, Place};
use ncpu_measure::{Case, Plan, Row, cases, runner, table};
use ncpu_table::Format;

use crate::sink::record_once;
use crate::stop;
use crate::table_args::TableArgs;

/// Measure system calls, locks and memory with benchmarks one can trust
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Names of benchmarks, or patterns as in 'mem*'; without any, the list of them
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Threads in each process
    #[arg(short = 'T', long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Processes
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    processes: usize,

    /// Samples at least
    #[arg(short = 'C', long, value_name = "N", default_value_t = 20)]
    samples: usize,

    /// Milliseconds of sampling at most, if the figure is not precise before
    #[arg(short = 'D', long, value_name = "MS", default_value_t = 1000)]
    duration: u64,

    /// Operations in a sample; found by the runner without
    #[arg(short = 'B', long, value_name = "N")]
    batch: Option<u64>,

    /// Stop once the median is known to within so many per cent, with 95 % confidence
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    precision: f64,

    /// Where workers run: spread, pack, node:N, cpus:LIST
    #[arg(long, value_name = "WHERE")]
    place: Option<Place>,

    /// Where memory comes from: local, node:N, interleave
    #[arg(long, value_name = "WHERE")]
    mem: Option<Memory>,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the table in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// The benchmark's own options, as in `-- -s 8k`
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if args.names.is_empty() {
        crate::put(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&args.names)?;
    let machine = Topology::read("/".as_ref())?;
    let plan = Plan {
        processes: args.processes,
        threads: args.threads,
        min_samples: args.samples.max(1),
        duration: Duration::from_millis(args.duration.max(1)),
        precision: args.precision / 100.0,
        batch: args.batch,
        place: args.place.clone().unwrap_or_default(),
        memory: args.mem.unwrap_or_default(),
    };
    let stop = stop::on_signals()?;
    let progress = std::io::stderr().is_terminal();
    let mut rows = Vec::new();
    for (i, case) in chosen.iter().enumerate() {
        if progress {
            eprint!("\r\x1b[K{}/{} {}", i + 1, chosen.len(), case.name);
            std::io::stderr().flush()?;
        }
        let outcome = runner::run(case, &args.options, &plan, &machine, &stop);
        rows.push(Row { name: case.name.into(), plan: plan.clone(), outcome });
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    let table = table(&rows);
    record_once(args.record.as_deref(), args.names.clone(), std::slice::from_ref(&table), vec![])?;
    let failed = rows.iter().filter_map(|r| r.outcome.as_ref().err().map(|e| (&r.name, e)));
    let mut code = ExitCode::SUCCESS;
    for (name, failure) in failed {
        eprintln!("ncpu bench: {name}: {failure}");
        if matches!(failure, ncpu_measure::Failure::Failed(_)) {
            code = ExitCode::FAILURE;
        }
    }
    let mut printer = args.rows.printer()?;
    let table = args.rows.select().apply(table)?;
    let short =
        ["benchmark", "prc", "thr", "time", "low", "high", "p99", "samples", "errors", "cnt/samp", "notes"];
    match args.rows.format() {
        Format::Text => printer.table(&table.project(&short)?)?,
        _ => printer.table(&table)?,
    }
    printer.finish()?;
    Ok(code)
}

fn list() -> String {
    let mut out = String::new();
    for case in cases::all() {
        out += &format!("{:<16} {}\n", case.name, case.about);
        for f in case.flags {
            let default = if f.default.is_empty() { String::new() } else { format!(" [{}]", f.default) };
            out += &format!("{:<16}   -{} {}  {}{default}\n", "", f.letter, f.value, f.about);
        }
    }
    out
}

/// The cases that the patterns name, in the order of the patterns.
fn choose(patterns: &[String]) -> anyhow::Result<Vec<&'static Case>> {
    let mut chosen: Vec<&'static Case> = Vec::new();
    for pattern in patterns {
        let before = chosen.len();
        for case in cases::all().filter(|c| glob(pattern, c.name)) {
            if !chosen.iter().any(|c| c.name == case.name) {
                chosen.push(case);
            }
        }
        if chosen.len() == before && !cases::all().any(|c| glob(pattern, c.name)) {
            anyhow::bail!("there is no benchmark `{pattern}`; `ncpu bench` without a name lists them");
        }
    }
    Ok(chosen)
}

/// Shell patterns of `*` and `?`.
fn glob(pattern: &str, name: &str) -> bool {
    fn matches(p: &[char], n: &[char]) -> bool {
        match p.split_first() {
            None => n.is_empty(),
            Some(('*', rest)) => (0..=n.len()).any(|i| matches(rest, &n[i..])),
            Some((c, rest)) => {
                n.split_first().is_some_and(|(d, n)| (c == d || *c == '?') && matches(rest, n))
            }
        }
    }
    matches(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_names() {
        assert!(
            glob("*", "getpid")
                && glob("get*", "getpid")
                && glob("g?tpid", "getpid")
                && glob("*p*d", "getpid")
        );
        assert!(!glob("get", "getpid") && !glob("?", "") && !glob("*x", "getpid"));
        assert!(choose(&["no-such".into()]).is_err());
        assert_eq!(
            choose(&["getpid".into(), "get*".into()]).unwrap().iter().filter(|c| c.name == "getpid").count(),
            1
        );
    }
}

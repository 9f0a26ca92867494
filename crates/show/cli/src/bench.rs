//! `ncpu bench`: benchmarks one can trust.

mod survey;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ncpu_machine::Topology;
use ncpu_measure::place::{Memory, Place};
use ncpu_measure::suite::{self, Files, Invocation};
use ncpu_measure::{Case, Flag, Plan, Row, WORDS, cases, runner, surveys, table};
use ncpu_schema::Purpose;
use ncpu_table::Format;

use crate::compare::{self, CompareArgs};
use crate::energy::{self, Joules};
use crate::out::{progress, progress_over};
use crate::sink::record_once;
use crate::stop;
use crate::table_args::TableArgs;

/// Measure system calls, locks and memory with benchmarks one can trust
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Names of benchmarks, or patterns as in 'mem*' [default: list them]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Run all of a suite: libmicro
    #[arg(long, value_name = "SUITE", conflicts_with = "options")]
    suite: Option<String>,

    /// Threads in each process
    #[arg(short = 'T', long, value_name = "N", default_value_t = 1, value_parser = crate::usage::one_or_more)]
    threads: usize,

    /// Processes
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = crate::usage::one_or_more)]
    processes: usize,

    /// Samples at least
    #[arg(short = 'C', long, value_name = "N", default_value_t = 20)]
    samples: usize,

    /// Milliseconds of sampling at most, if the figure is not precise before
    #[arg(short = 'D', long, value_name = "MS", default_value_t = 1000)]
    duration: u64,

    /// Operations in a sample [default: chosen by the runner]
    #[arg(short = 'B', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,

    /// Stop once the median is known to within PERCENT, with 95 % confidence
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    precision: f64,

    /// Where workers run: spread, pack, node:N, cpus:LIST
    #[arg(long, value_name = "WHERE")]
    place: Option<Place>,

    /// Where memory comes from: local, node:N, interleave
    #[arg(long, value_name = "WHERE")]
    mem: Option<Memory>,

    /// Report the watts while each benchmark ran and the joules of an operation, by meters below DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "/")]
    energy: Option<PathBuf>,

    #[command(flatten)]
    compare: CompareArgs,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the table in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// The benchmark's own options, as in `-- -s 8k`
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    options: Vec<String>,
}

impl BenchArgs {
    /// How the runner is to run a case.
    fn plan(&self) -> Plan {
        Plan {
            processes: self.processes,
            threads: self.threads,
            min_samples: self.samples.max(1),
            duration: Duration::from_millis(self.duration.max(1)),
            precision: self.precision / 100.0,
            batch: self.batch,
            place: self.place.clone().unwrap_or_default(),
            memory: self.mem.unwrap_or_default(),
        }
    }

    /// The options that another build is given to do the same, a quarter of the time each round.
    fn for_another(&self) -> Vec<String> {
        let mut words: Vec<String> = vec![
            format!("-T{}", self.threads),
            format!("-P{}", self.processes),
            format!("-C{}", self.samples),
            format!("-D{}", (self.duration / 4).max(1)),
            format!("--precision={}", self.precision),
        ];
        words.extend(self.batch.map(|b| format!("-B{b}")));
        words.extend(self.place.as_ref().map(|p| format!("--place={p}")));
        words.extend(self.mem.as_ref().map(|m| format!("--mem={m}")));
        if !self.options.is_empty() {
            words.push("--".into());
            words.extend(self.options.iter().cloned());
        }
        words
    }
}

/// Whether a process has room for so many threads: each takes four mappings, two of them its guards, and one that cannot
/// have them panics.
fn check_threads(threads: usize) -> anyhow::Result<()> {
    let read = |name: &str| std::fs::read_to_string(name).ok()?.trim().parse::<usize>().ok();
    let mappings = read("/proc/sys/vm/max_map_count").unwrap_or(65_530);
    let most =
        (mappings.saturating_sub(1000) / 4).min(read("/proc/sys/kernel/threads-max").unwrap_or(usize::MAX));
    require!(
        threads <= most,
        "-T {threads}: a process has room for {most} threads (vm.max_map_count {mappings}); give fewer, or more processes with -P"
    );
    Ok(())
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let names = || {
        let chosen = choose(args)?;
        Ok(chosen.iter().map(|job| job.name().to_string()).collect())
    };
    let rest = compare::Rest {
        names: &names,
        options: &args.for_another(),
        rows: &args.rows,
        record: args.record.as_deref(),
    };
    if let Some(code) = compare::run(&args.compare, &rest)? {
        return Ok(code);
    }
    if args.names.is_empty() && args.suite.is_none() {
        crate::out::put(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    check_threads(args.threads)?;
    if let [name] = args.names.as_slice()
        && let Some(survey) = surveys::find(name)
    {
        return survey::run(survey, args);
    }
    let chosen = choose(args)?;
    let machine = Topology::read("/".as_ref())?;
    let plan = args.plan();
    let stop = stop::on_signals()?;
    let mut rows = Vec::new();
    let files = Files::default();
    let mut energy = args.energy.as_deref().and_then(Joules::begin);
    for (i, job) in chosen.iter().enumerate() {
        let name = job.name();
        progress(&format!("{}/{} {name}", i + 1, chosen.len()));
        let (case, plan, options) = match job {
            Job::Case(case) => (*case, plan.clone(), args.options.clone()),
            Job::Standard(invocation, case) => {
                let (plan, options) = invocation.resolve(&plan, &files)?;
                (*case, plan, options)
            }
        };
        let run = || runner::run(case, &options, &plan, &machine, &stop);
        let outcome = match &mut energy {
            Some(energy) => energy.during(plan.processes * plan.threads, run),
            None => run(),
        };
        if let Err(mistaken @ ncpu_measure::Failure::Usage(_)) = outcome {
            progress_over();
            return Err(mistaken).context(name);
        }
        rows.push(Row { name: name.into(), plan, outcome });
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    progress_over();
    let table = match &energy {
        Some(energy) => energy.add(&table(&rows))?,
        None => table(&rows),
    };
    record_once(
        args.record.as_deref(),
        Purpose::Bench,
        args.names.clone(),
        std::slice::from_ref(&table),
        vec![],
    )?;
    let failed = rows.iter().filter_map(|r| r.outcome.as_ref().err().map(|e| (&r.name, e)));
    let mut code = ExitCode::SUCCESS;
    for (name, failure) in failed {
        say!("ncpu bench: {name}: {failure}");
        if matches!(failure, ncpu_measure::Failure::Failed(_)) {
            code = ExitCode::FAILURE;
        }
    }
    if stop.load(Ordering::Relaxed) {
        code = ExitCode::from(stop::status());
    }
    let mut printer = args.rows.printer()?;
    let table = args.rows.select().apply(table)?;
    let mut short =
        vec!["benchmark", "prc", "thr", "time", "+-", "p99", "samples", "errors", "cnt/samp", "notes"];
    if energy.is_some() {
        short.splice(9..9, energy::COLUMNS);
    }
    match args.rows.format() {
        Format::Text => text::print(&mut printer, &table.project(&short)?)?,
        _ => printer.table(&table)?,
    }
    printer.finish()?;
    Ok(code)
}

fn list() -> String {
    let entry = |name: &str, about: &str, flags: &[Flag]| {
        let mut out = format!("{name:<16} {about}\n");
        for f in flags {
            let default = if f.default.is_empty() { String::new() } else { format!(" [{}]", f.default) };
            let letter = if f.letter == WORDS { String::new() } else { format!("-{} ", f.letter) };
            out += &format!("{:<16}   {letter}{}  {}{default}\n", "", f.value, f.about);
        }
        out
    };
    let mut out: String = cases::all().map(|c| entry(c.name, c.about, c.flags)).collect();
    out += "\nEach of these alone, with a table of its own:\n";
    out.extend(surveys::SURVEYS.iter().map(|s| entry(s.name, s.about, s.flags)));
    out
}

/// Benchmarks to run.
enum Job {
    Case(&'static Case),
    Standard(Invocation, &'static Case),
}

impl Job {
    fn name(&self) -> &'static str {
        match self {
            Job::Case(case) => case.name,
            Job::Standard(invocation, _) => invocation.name,
        }
    }
}

/// The benchmarks that names and patterns stand for, in their order: cases, and standard invocations of them; a name
/// that is both is the case.
fn choose(args: &BenchArgs) -> anyhow::Result<Vec<Job>> {
    let standard = |suite: Vec<Invocation>| {
        suite.into_iter().filter_map(|i| {
            let case = cases::find(i.case)?;
            Some(Job::Standard(i, case))
        })
    };
    let mut chosen: Vec<Job> = Vec::new();
    if let Some(name) = &args.suite {
        let suite =
            suite::find(name).ok_or_else(|| mistake!("--suite {name}: unknown suite; expected libmicro"))?;
        chosen.extend(
            standard(suite).filter(|j| {
                args.names.is_empty() || args.names.iter().any(|pattern| glob(pattern, j.name()))
            }),
        );
        if chosen.is_empty() {
            usage!("suite {name} has nothing of these names");
        }
        return Ok(chosen);
    }
    for pattern in &args.names {
        let all = cases::all().map(Job::Case).chain(standard(suite::libmicro()));
        let mut found = false;
        for job in all.filter(|j| glob(pattern, j.name())) {
            found = true;
            if !chosen.iter().any(|c| c.name() == job.name()) {
                chosen.push(job);
            }
        }
        if !found && surveys::find(pattern).is_some() {
            usage!("`{pattern}` has a table of its own: run it alone");
        }
        if !found {
            usage!("unknown benchmark `{pattern}`; `ncpu bench` without a name lists all benchmarks");
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
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn names(words: &[&str]) -> Result<Vec<&'static str>, String> {
        use clap::Parser;
        let words = [&["bench"], words].concat();
        let args = Command::try_parse_from(words).map_err(|e| e.to_string())?.bench;
        Ok(choose(&args).map_err(|e| e.to_string())?.iter().map(Job::name).collect())
    }

    #[test]
    fn names_and_suites_choose_jobs() {
        assert_eq!(names(&["getpid", "getpi*"]).unwrap(), ["getpid"]);
        assert_eq!(names(&["--suite", "libmicro", "getpid"]).unwrap(), ["getpid"]);
        assert!(names(&["no-such"]).unwrap_err().contains("unknown benchmark `no-such`"));
        assert!(names(&["--suite", "none"]).unwrap_err().contains("unknown suite"));
    }
}

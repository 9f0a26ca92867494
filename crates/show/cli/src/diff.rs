//! `ncpu diff A… -- B…`: what changed between two sides of recordings.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ncpu_record::Recording;
use ncpu_report::diff::{Diff, Gate, Met, Side, page, render};
use ncpu_table::Format;

use crate::out::put;
use crate::table_args::{TableArgs, text_width};

/// Compare recordings: which layers, locks, calls and functions grew or shrank, for a unit of work
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Units of work done in each recording, of side A and of side B: figures are for one unit. Without it they are for
    /// what `run --metric` recorded, else for a run of the command, or for a second where nothing was run
    #[arg(long, value_name = "A[,B]")]
    work: Option<String>,

    /// Exit with status 1 where a change is beyond a limit and beyond chance: 'kernel lock spin > +2%' in points of
    /// capacity, 'NAME > x1.5' in times, 'throughput < -5%'; may be given several times
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Gate>,

    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    select: TableArgs,

    /// Recordings of side A; a second one without `--` is side B
    #[arg(required = true, value_name = "A")]
    a: Vec<PathBuf>,

    /// Recordings of side B
    #[arg(last = true, value_name = "B")]
    b: Vec<PathBuf>,
}

/// Exits with 1 where a condition of `--fail-if` is met, with 2 where one cannot be judged.
pub fn run(mut args: DiffArgs) -> anyhow::Result<ExitCode> {
    let rows = args.select.select() != ncpu_table::Select::default();
    require!(
        !rows || args.select.format() != Format::Text,
        "-k, -A, -m and --top are for rows of a table: give -o csv, json or parquet, too"
    );
    if args.b.is_empty() {
        match args.a.len() {
            2 => args.b = args.a.split_off(1),
            n => usage!(
                "{n} recording{} and no `--`: name both sides, as in `ncpu diff before.ncpu after.ncpu` or \
                 `ncpu diff before*.ncpu -- after*.ncpu`",
                if n == 1 { "" } else { "s" }
            ),
        }
    }
    if let Some(option) =
        args.b.iter().find(|d| d.to_str().is_some_and(|d| d.starts_with('-')) && !d.exists())
    {
        usage!("{}: after `--` come the recordings of side B; put options before side A", option.display());
    }
    let open = |dirs: &[PathBuf]| dirs.iter().map(|d| Recording::open(d)).collect::<Result<Vec<_>, _>>();
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    let work = args.work.as_deref().map(work).transpose()?;
    let work = work.map(|[of_a, of_b]| [vec![of_a; a.len()], vec![of_b; b.len()]]);
    let names = [name(&args.a), name(&args.b)];
    let side = |i: usize, recordings| Side {
        name: &names[i],
        recordings,
        work: work.as_ref().map(|w| w[i].as_slice()),
    };
    let mut diff = Diff::of(side(0, &a), side(1, &b))?;
    for (dir, recording) in args.a.iter().zip(&a).chain(args.b.iter().zip(&b)) {
        let words = ncpu_report::incomplete::words(recording);
        diff.notes.extend(words.map(|words| format!("{}: {words}", dir.display())));
    }
    if let Some(twice) = args.a.iter().find(|d| args.b.iter().any(|e| same(d, e))) {
        diff.notes.push(format!("{} is on both sides", twice.display()));
    }
    if let Some(file) = &args.html {
        crate::out::page(file, &page(&diff))?;
    }
    if args.select.format() == Format::Text && args.fail_if.is_empty() {
        put(&render(&diff, text_width()))?;
    } else if args.select.format() != Format::Text {
        args.select.print(diff.table())?;
    }
    Ok(gates(&args.fail_if, &diff))
}

/// A line for each condition; silence would leave a script's log without a reason.
fn gates(gates: &[Gate], diff: &Diff) -> ExitCode {
    let mut code = 0;
    for gate in gates {
        let (rank, line) = match gate.judge(diff) {
            Met::No(line) => (0, format!("ok: {line}")),
            Met::Unknown(line) => (2, format!("not judged: {line}")),
            Met::Yes(line) => (1, format!("FAILED: {line}")),
        };
        say!("ncpu: {line}");
        // A failure proven outweighs one that could not be judged.
        code = match (code, rank) {
            (1, _) | (_, 1) => 1,
            (code, rank) => code.max(rank),
        };
    }
    ExitCode::from(code)
}

fn same(a: &PathBuf, b: &PathBuf) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// Units of work that a run can have done: rates of others overflow.
const WORK: std::ops::RangeInclusive<f64> = 1e-12..=1e24;

/// `3617871` or `3617871,7813154`.
fn work(text: &str) -> anyhow::Result<[f64; 2]> {
    let one = |s: &str| s.trim().parse::<f64>().ok().filter(|x| WORK.contains(x));
    let parts: Option<Vec<f64>> = text.split(',').map(one).collect();
    match parts.as_deref() {
        Some([both]) => Ok([*both, *both]),
        Some([a, b]) => Ok([*a, *b]),
        _ => usage!("--work {text}: give the units of work of each side, as in 3617871,7813154"),
    }
}

fn name(dirs: &[PathBuf]) -> String {
    match dirs {
        [one] => one.display().to_string(),
        [first, ..] => format!("{} and {} more", first.display(), dirs.len() - 1),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::work;

    #[test]
    fn units_of_work_are_numbers_that_rates_can_be_made_of() {
        assert_eq!(work("3, 4.5").unwrap(), [3.0, 4.5]);
        assert_eq!(work("7").unwrap(), [7.0, 7.0]);
        for wrong in ["", "0", "-1", "nan", "inf", "1e-320", "1e308,1", "1,2,3", "1,x"] {
            assert!(work(wrong).is_err(), "{wrong}");
        }
    }
}

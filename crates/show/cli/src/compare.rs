//! `ncpu bench --compare` and `--against`: two runs, two builds, two commands beside each other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use ncpu_measure::compare::runs::{self, Key, Pairs, Run};
use ncpu_record::Recording;
use ncpu_schema::Purpose;
use ncpu_table::{Format, Table, Unit};

use crate::command::Held;
use crate::out::progress;
use crate::sink::record_once;
use crate::stop;
use crate::table_args::{TableArgs, text_width};

/// Options that compare.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Compare runs: recordings, or files made with -o json, csv or parquet; several of each with commas between them,
    /// as it takes two of each to tell a difference of builds from one of runs
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["names", "suite", "against", "command"])]
    compare: Option<Vec<PathBuf>>,

    /// Run the same benchmarks with another ncpu in turn with this one; with --command, another command
    #[arg(long, value_name = "NCPU|CMD")]
    against: Option<OsString>,

    /// Time a whole command instead of benchmarks, in turn with that of --against
    #[arg(long, value_name = "CMD", requires = "against", conflicts_with_all = ["names", "suite"])]
    command: Option<OsString>,

    /// Rounds of --against; in each both are run, in random order
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,

    /// Seed of that order [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write the comparison to FILE as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Options of the rest of the command line that a comparison needs.
pub struct Rest<'a> {
    /// Names of the benchmarks chosen.
    pub names: &'a dyn Fn() -> anyhow::Result<Vec<String>>,
    /// Options that both builds are given.
    pub options: &'a [String],
    /// How the table is printed.
    pub rows: &'a TableArgs,
    /// Where it is recorded.
    pub record: Option<&'a Path>,
}

/// Compares, if that is what is asked for.
///
/// # Errors
/// Nothing can be read, or a build or a command fails.
pub fn run(args: &CompareArgs, rest: &Rest<'_>) -> anyhow::Result<Option<ExitCode>> {
    let mut notes = Vec::new();
    let mut code = ExitCode::SUCCESS;
    let (table, a, b) = if let Some([a, b]) = args.compare.as_deref() {
        let (of_a, of_b) = (saved(a)?, saved(b)?);
        if of_a.len() < 2 || of_b.len() < 2 {
            notes.push(
                "runs of one build differ by more than a run shows, so there is no verdict: give two runs or more of \
                 each (--compare A1,A2,A3 B1,B2,B3), or let --against run both in turn"
                    .into(),
            );
        }
        let table = runs::apart(&of_a, &of_b);
        (table, a.display().to_string(), b.display().to_string())
    } else if let Some(other) = &args.against {
        if args.rounds == 0 {
            usage!("--rounds 0: give 1 or more");
        }
        let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
        notes.push(format!("seed {seed}: `--seed {seed}` repeats the order of the runs"));
        if args.rounds == 1 {
            notes.push("one round does not show how much runs differ, so there is no verdict".into());
        }
        let stop = stop::on_signals()?;
        let (table, a, b) = match &args.command {
            Some(command) => {
                (commands(command, other, args.rounds, seed, &stop)?, command.clone(), other.clone())
            }
            None => {
                let ours = std::env::current_exe().context("finding ncpu itself")?.into_os_string();
                let table = builds([&ours, other], &(rest.names)()?, rest.options, args.rounds, seed, &stop)?;
                (table, ours, other.clone())
            }
        };
        if stop.load(Ordering::Relaxed) {
            notes.push("stopped early: what was done is shown".into());
            code = ExitCode::from(stop::status());
        }
        (table, a.to_string_lossy().into_owned(), b.to_string_lossy().into_owned())
    } else {
        return Ok(None);
    };
    record_once(
        rest.record,
        Purpose::Compare,
        vec!["compare".into(), a.clone(), b.clone()],
        std::slice::from_ref(&table),
        notes.clone(),
    )?;
    if let Some(file) = &args.html {
        crate::out::page(file, &ncpu_report::compare::html(&table, &a, &b, &notes))?;
    }
    let said = ncpu_report::compare::verdict(&table);
    let table = rest.rows.select().apply(table)?;
    if rest.rows.format() != Format::Text {
        rest.rows.print_all(&table)?;
        return Ok(Some(code));
    }
    let mut columns = vec!["benchmark", "prc", "thr", "A", "B", "ratio", "low", "high", "verdict", "notes"];
    let silent = |c: &str| {
        (0..table.num_rows())
            .all(|r| table.text(r, c).is_none_or(str::is_empty) && table.int(r, c).is_none_or(|n| n == 1))
    };
    columns.retain(|c| !matches!(*c, "prc" | "thr" | "notes") || !silent(c));
    let shown = table.project(&columns).unwrap_or(table);
    crate::out::put(&format!(
        "A: {a}\nB: {b}\n\n{}\n{said}\n",
        ncpu_table::render_text(&shown, text_width())
    ))?;
    notes.iter().try_for_each(|n| crate::out::put(&format!("Note: {n}\n")))?;
    Ok(Some(code))
}

/// Reads runs of benchmarks from recordings or files, with commas between them, each in its order.
fn saved(paths: &Path) -> anyhow::Result<Vec<Run>> {
    let names = paths.to_string_lossy();
    match paths.exists() || !names.contains(',') {
        true => Ok(vec![saved_one(paths)?]),
        false => names.split(',').map(|name| saved_one(Path::new(name))).collect(),
    }
}

fn saved_one(path: &Path) -> anyhow::Result<Run> {
    let table = if path.is_dir() {
        let recording = Recording::open(path)?;
        if let Some(words) = ncpu_report::incomplete::words(&recording) {
            say!("ncpu bench: {}: {words}", path.display());
        }
        let names: Vec<&str> = recording.tables.keys().map(String::as_str).collect();
        recording.tables.get("bench").cloned().with_context(|| {
            format!("{}: no recording of ncpu bench; it has {}", path.display(), names.join(", "))
        })?
    } else {
        Table::read(path)?
    };
    runs::read(&table).with_context(|| format!("{}: no table of ncpu bench", path.display()))
}

/// Whole commands in turn.
fn commands(
    a: &OsString,
    b: &OsString,
    rounds: usize,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Table> {
    let argv = [words(a), words(b)];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pairs = Pairs::default();
    'rounds: for round in 1..=rounds {
        let mut times = [0.0; 2];
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for side in order {
            progress(&format!("round {round}/{rounds}: {}", if side == 0 { "A" } else { "B" }));
            let Some(done) = Held::new(&argv[side], None)?.run(stop)? else { break 'rounds };
            if let Some(failure) = done.failure() {
                progress("");
                anyhow::bail!("{}: {failure}", [a, b][side].to_string_lossy());
            }
            times[side] = done.elapsed * 1000.0;
        }
        pairs.times.push((times[0], times[1]));
    }
    progress("");
    if pairs.times.is_empty() {
        pairs.why = "stopped before the first round was done".into();
    }
    pairs.raw.clone_from(&pairs.times);
    Ok(runs::paired(Unit::Milliseconds, &[(Key::of_command(), pairs)]))
}

/// A command's words; what only a shell understands goes to one.
fn words(command: &OsString) -> Vec<OsString> {
    let text = command.to_string_lossy();
    match text.contains(|c: char| "|&;<>()$`\\\"'*?[]#~=%{}!\n".contains(c)) {
        true => ["sh".into(), "-c".into(), command.clone()].into(),
        false => text.split_whitespace().map(Into::into).collect(),
    }
}

/// Two builds of ncpu: each benchmark is run by both in each round.
fn builds(
    ncpu: [&OsString; 2],
    names: &[String],
    options: &[String],
    rounds: usize,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Table> {
    if names.is_empty() {
        usage!("--against: say which benchmarks, or give --command; `ncpu bench` lists them");
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut done: Vec<(Key, Pairs)> = Vec::new();
    'rounds: for round in 1..=rounds {
        let mut order: Vec<&String> = names.iter().collect();
        random.shuffle(&mut order);
        for name in order {
            let mut sides = [0, 1];
            random.shuffle(&mut sides);
            let mut got: [Run; 2] = Default::default();
            for side in sides {
                progress(&format!("round {round}/{rounds}: {name} by {}", if side == 0 { "A" } else { "B" }));
                let mut argv: Vec<OsString> = vec![ncpu[side].clone(), "bench".into(), name.into()];
                argv.extend(["-o", "json"].map(Into::into));
                argv.extend(options.iter().map(Into::into));
                let Some(ran) = Held::new(&argv, None)?.run(stop)? else { break 'rounds };
                // Standard error is among it.
                let json: Vec<&str> = ran.output.lines().filter(|l| l.starts_with('{')).collect();
                if json.is_empty() {
                    progress("");
                    let why =
                        ran.failure().unwrap_or_else(|| format!("it printed no figure{}", ran.last_words()));
                    anyhow::bail!("{} bench {name}: {why}", ncpu[side].to_string_lossy());
                }
                let table = Table::from_bytes("bench", json.join("\n").into_bytes())?;
                got[side] = runs::read(&table)
                    .with_context(|| format!("{} bench {name}", ncpu[side].to_string_lossy()))?;
            }
            for (key, a) in &got[0] {
                let at = done.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
                    done.push((key.clone(), Pairs::default()));
                    done.len() - 1
                });
                done[at].1.add(a, got[1].iter().find(|(k, _)| k == key).map(|(_, b)| b));
            }
        }
    }
    progress("");
    // In the order asked for, not that of the first round.
    done.sort_by_key(|(k, _)| names.iter().position(|n| *n == k.name));
    Ok(runs::paired(Unit::MicrosecondsPerCall, &done))
}

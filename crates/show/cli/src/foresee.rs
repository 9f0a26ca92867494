//! `ncpu foresee`: what a program does on a machine one does not have.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ncpu_foresee::buy::{self as foresee_buy, Catalogue, Target};
use ncpu_foresee::fix::Fix;
use ncpu_foresee::foretell::{self, Effort, Point};
use ncpu_foresee::from::{Beside, Learnt};
use ncpu_foresee::hardware::{Hardware, Order, Shape, ShapeError};
use ncpu_foresee::model::Model;
use ncpu_foresee::{from, machines, rank, tables};
use ncpu_record::Recording;
use ncpu_report::foresee::{Answer, Fixed, Instead, Offered, Purchase, Told};
use ncpu_schema::Purpose;
use ncpu_table::{Format, Table};

use crate::stop;
use crate::table_args::{TableArgs, no_table, text_width};

/// Predict a program's performance on a machine that you do not have, from a recording or a model
#[derive(Args, Debug)]
pub struct ForeseeArgs {
    /// The machine: a number of CPUs, PACKAGESxCORES[xSTRANDS], a name of --machines, a directory with a topology
    /// tree, or a file MACHINE.toml
    #[arg(long, value_name = "MACHINE")]
    on: Option<String>,

    /// CPU counts, as in 2,8,32,128 [default: powers of two up to all CPUs of the machine]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Worker threads, or `same` for as many as were recorded [default: one on each CPU, at least as many as were recorded]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,

    /// Units of work a second that the recorded program did, from its own output
    #[arg(long, value_name = "X", conflicts_with = "model")]
    throughput: Option<f64>,

    /// The recorded program was bound to N CPUs (taskset, a cpuset); a list where several recordings differ
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=65_536),
        conflicts_with = "model"
    )]
    bound: Vec<u32>,

    /// A unit of the program's work takes lock NAME N times, by its own counters or its code; may be given more than once
    #[arg(long, value_name = "NAME=N", value_parser = takes, conflicts_with = "model")]
    takes: Vec<(String, f64)>,

    /// Which CPUs are taken first
    #[arg(long, value_name = "WHERE", default_value = "spread")]
    place: PlaceName,

    #[command(flatten)]
    causes: crate::causes::CausesArgs,

    /// Change something, as in 'lock files_struct.file_lock split 64'; may be given more than once
    #[arg(long, value_name = "FIX")]
    fix: Vec<String>,

    /// Try every applicable fix at the largest point, beside those of --fix, and rank them by their gain
    #[arg(long)]
    rank: bool,

    /// Machines on offer in TOML (name, machine, price, memory): prints the cheapest that meets the target with a probability of
    /// 90 %, what takes most there, and a fix that is worth more than the more expensive machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "cpus", "rank", "record", "html"])]
    buy: Option<PathBuf>,

    /// Units of work a second that --buy is to find a machine for [default: the target of its file]
    #[arg(long, value_name = "X", requires = "buy")]
    target: Option<f64>,

    /// A model in TOML, written by hand or by --to-model, instead of a recording
    #[arg(long, value_name = "FILE", conflicts_with = "recording")]
    model: Option<PathBuf>,

    /// Print the model as TOML, to be edited, and stop
    #[arg(long)]
    to_model: bool,

    /// List the catalogue of machines
    #[arg(
        long,
        conflicts_with_all = ["recording", "model", "to_model", "buy", "on", "fix", "rank", "record", "html", "table"]
    )]
    machines: bool,

    /// Seed of the simulation; the same seed gives the same tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Record the largest point as if it had been observed
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Write one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print a table instead of the report: foresee, fixes, or one of the simulated observation
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    rows: TableArgs,

    /// The recording: a directory made by `ncpu run --record`; several of the same program at different CPU counts make
    /// one model. Recordings beside it add to the model: `ncpu crosscalls` the program's shootdowns, `ncpu scale --peel` the
    /// growth of CPU time with CPUs, `ncpu lines` the words that share lines, `ncpu counters -e syscalls:sys_enter_…` the
    /// calls that take locks of the kernel, `ncpu bench core-to-core` the line transfers of its machine
    recording: Vec<PathBuf>,
}

/// How many worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    Same,
    Number(u32),
}

impl std::str::FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        match text.parse::<u32>() {
            _ if text == "same" => Ok(Threads::Same),
            Ok(n) if (1..=1_000_000).contains(&n) => Ok(Threads::Number(n)),
            _ => Err("give a number from 1 to 1000000, or `same`".into()),
        }
    }
}

/// `NAME=N`; a name may have `=` in it.
fn takes(text: &str) -> Result<(String, f64), String> {
    let (name, n) = text.rsplit_once('=').ok_or("give NAME=N, as in files_struct.file_lock=2")?;
    match n.parse::<f64>() {
        Ok(n) if n > 0.0 && n.is_finite() => Ok((name.into(), n)),
        _ => Err(format!("`{n}`: give a number above 0, of acquisitions for each unit of work")),
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceName {
    /// A core of each package in turn
    Spread,
    /// One package after another, all its strands
    Pack,
    /// One package's cores after another's, second strands last
    Fill,
}

/// Runs the command.
pub fn run(args: &ForeseeArgs) -> anyhow::Result<ExitCode> {
    args.causes.install()?;
    if args.machines {
        args.rows.print(machines::table())?;
        return Ok(ExitCode::SUCCESS);
    }
    machine_can_be(args)?;
    let fixes = args.fix.iter().map(|fix| fix.parse()).collect::<Result<Vec<Fix>, _>>();
    let fixes = fixes.map_err(|why| mistake!("{why}"))?;
    let (mut model, mut notes, beside) = model(args)?;
    if args.to_model {
        crate::out::put(&model.to_toml())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.buy {
        return buy(args, file, &model, notes);
    }
    let mut hardware = hardware(args, &model, &beside)?;
    let mut order = match args.place {
        PlaceName::Spread => Order::Spread,
        PlaceName::Pack => Order::Pack,
        PlaceName::Fill => Order::Fill,
    };
    set_threads(args, &mut model)?;
    let (plain, cpus_before) = (model.clone(), hardware.shape.cpus());
    for fix in &fixes {
        fix.apply(&mut model, &mut hardware, &mut order)?;
    }
    notes.push(format!("{}: {}", hardware.name, hardware.source));
    notes.extend(strands(&plain, &hardware));
    let stop = stop::on_signals()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let effort = Effort { seed: args.seed, ..Effort::default() };
    let reproduced = reproduce(&plain, &notes, &effort, &stopped)?;
    let (counts, fewer) = counts(args.cpus.as_deref(), &hardware, cpus_before)?;
    notes.extend(fewer);
    let points: Vec<Point> = foretell::points(&model, &hardware, &counts, order, &effort, &stopped)?;
    let Some(last) = points.last() else { anyhow::bail!("stopped before the first point was done") };
    let mut answer = Answer {
        reproduced,
        name: model.name.clone(),
        unit: model.unit.clone(),
        machine: format!("{} ({} CPUs)", hardware.name, hardware.shape.cpus()),
        recorded: model.recorded.as_ref().map(|r| (f64::from(r.cpus), r.throughput)),
        fixes: fixes.iter().map(Fix::to_string).collect(),
        ..Answer::default()
    };
    for point in &points {
        let recording = tables::recording(&model, &hardware, point, Vec::new());
        let mut told = Told::of(&recording, point.cpus, point.threads, point.throughput, point.band)?;
        told.slower = chance_of_less(&model, point);
        waits_for_lines(&model, point, &mut told);
        answer.points.push(told);
    }
    let reproduced = answer.reproduced.as_ref().is_none_or(|(good, _)| *good);
    if args.rank && !reproduced {
        notes.push("fixes are not ranked: the recorded machine is not reproduced".into());
    }
    if args.rank && reproduced && !stopped() {
        // Beside the fixes that the curve has already.
        rank_fixes(&mut answer, &model, &hardware, last, order, &effort, &stopped)?;
    }
    if !stopped() {
        notes.extend(hangs_on(&model, &hardware, last, order, &effort, &stopped)?);
    }
    if stopped() {
        notes.push(format!("stopped early: {} of {} points were done", points.len(), counts.len()));
    }
    if let Some((_, words)) = &answer.reproduced {
        notes.insert(0, words.clone());
    }
    answer.notes.clone_from(&notes);
    let mut recording = tables::recording(&model, &hardware, last, notes);
    for table in answer.tables() {
        recording.tables.insert(table.name().to_string(), table);
    }
    if let Some(dir) = &args.record {
        recording.save(dir)?;
        say!("ncpu: recorded in {}; `ncpu report {0}` prints it", dir.display());
    }
    if let Some(file) = &args.html {
        crate::out::page(file, &ncpu_report::html::page(&recording)?)?;
    }
    print(args, &recording, &answer)?;
    Ok(if stopped() { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

/// Checks that `--on` names a machine that can be simulated, before a recording is read.
fn machine_can_be(args: &ForeseeArgs) -> anyhow::Result<()> {
    match args.on.as_deref().map(str::parse::<Shape>) {
        None if !args.to_model && args.buy.is_none() => {
            usage!(
                "--on says on which machine: as in --on 8 or --on 8x64x2; --machines lists those that are known"
            )
        }
        Some(Err(why @ (ShapeError::Zero(_) | ShapeError::Large { .. }))) => usage!("{why}"),
        _ => Ok(()),
    }
}

/// The machine that `--on` names, with line transfers measured on it where the recording has them.
fn hardware(args: &ForeseeArgs, model: &Model, beside: &Beside) -> anyhow::Result<Hardware> {
    let on = args.on.as_deref().context("no --on")?;
    let like = model.recorded.as_ref().map(|r| r.cpu_model.clone());
    let mut hardware = machines::find(on, like.as_deref())?;
    if let Some(transfer) = beside.transfer.filter(|_| machines::has_kin(&hardware)) {
        transfer.put(&mut hardware);
        hardware.source = format!("line transfers are those measured by ncpu bench; {}", hardware.source);
    }
    Ok(hardware)
}

/// Sets the number of threads that `--threads` asks for.
fn set_threads(args: &ForeseeArgs, model: &mut Model) -> anyhow::Result<()> {
    match args.threads {
        Some(Threads::Number(n)) => model.threads = foretell::active(model, n),
        Some(Threads::Same) => match &model.recorded {
            Some(r) => model.threads = r.threads,
            None if model.threads > 0 => {}
            None => anyhow::bail!("--threads same: the model says neither `threads` nor what was recorded"),
        },
        None => {}
    }
    Ok(())
}

/// Tries each fix beside those of the curve, and puts them into the answer by their gain.
fn rank_fixes(
    answer: &mut Answer,
    model: &Model,
    hardware: &Hardware,
    last: &Point,
    order: Order,
    effort: &Effort,
    stopped: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<()> {
    let told = |recording: &Recording, p: &Point| {
        let told = Told::of(recording, p.cpus, p.threads, p.throughput, p.band);
        told.map(|told| (p.throughput, told.first))
    };
    let ranked = rank::rank(model, hardware, last, order, effort, stopped, told)?;
    answer.scatter = ranked.scatter;
    for tried in ranked.tried {
        let (throughput, first) = tried.told?;
        answer.ranked.push(Fixed { fix: tried.fix.to_string(), throughput, gain: tried.gain, first });
    }
    Ok(())
}

/// A note on the parameters of the model that change the answer most.
fn hangs_on(
    model: &Model,
    hardware: &Hardware,
    last: &Point,
    order: Order,
    effort: &Effort,
    stopped: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<String>> {
    let hangs = foretell::hangs_on(model, hardware, last, order, effort, stopped)?;
    let much: Vec<String> = hangs
        .iter()
        .filter(|(_, x)| x.ln().abs() > 0.05)
        .take(2)
        .map(|(name, x)| format!("{name} (times 1.5: x{x:.2})"))
        .collect();
    Ok((!much.is_empty())
        .then(|| format!("at {} CPUs the answer hangs most on {}", last.cpus, much.join(" and on "))))
}

/// Prints which of the machines on offer to buy.
fn buy(args: &ForeseeArgs, file: &Path, model: &Model, mut notes: Vec<String>) -> anyhow::Result<ExitCode> {
    let like = model.recorded.as_ref().map(|r| r.cpu_model.clone());
    let mut catalogue = Catalogue::read(file, like.as_deref())?;
    if let Some(x) = args.target {
        catalogue.target = Target { throughput: Some(x), latency_ms: None };
    }
    let wanted = [catalogue.target.throughput, catalogue.target.latency_ms];
    if wanted.iter().flatten().any(|x| !(*x > 0.0 && x.is_finite())) || wanted.iter().all(Option::is_none) {
        anyhow::bail!(
            "{}: no target: give --target X, or [target] with throughput (units a second) or latency_ms, above 0",
            file.display()
        );
    }
    let order = match args.place {
        PlaceName::Spread => Order::Spread,
        PlaceName::Pack => Order::Pack,
        PlaceName::Fill => Order::Fill,
    };
    let stop = stop::on_signals()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let effort = Effort { seed: args.seed, ..Effort::default() };
    let reproduced = reproduce(model, &notes, &effort, &stopped)?;
    if let Some((good, words)) = &reproduced {
        anyhow::ensure!(*good, "{words}");
        notes.insert(0, words.clone());
    }
    let bought = foresee_buy::buy(model, &catalogue, order, &effort, &stopped)?;
    let mut answer = Purchase {
        name: model.name.clone(),
        unit: model.unit.clone(),
        currency: catalogue.currency.clone(),
        throughput: catalogue.target.throughput,
        latency_ms: catalogue.target.latency_ms,
        chosen: bought.chosen,
        instead: bought.instead.map(|i| Instead {
            name: i.name,
            price: i.price,
            fix: i.fix.to_string(),
            gain: i.gain,
            chance: i.chance,
        }),
        notes,
        offers: Vec::new(),
    };
    for judged in &bought.all {
        let (point, offer) = (&judged.point, &judged.offer);
        let recording = tables::recording(model, &offer.hardware, point, Vec::new());
        let mut told = Told::of(&recording, point.cpus, point.threads, point.throughput, point.band)?;
        waits_for_lines(model, point, &mut told);
        answer.offers.push(Offered {
            name: offer.name.clone(),
            price: offer.price,
            chance: judged.chance,
            too_small: judged.too_small,
            told,
        });
    }
    if args.table.is_none() && args.rows.format() == Format::Text {
        crate::out::put(&answer.render(text_width()))?;
    } else {
        args.rows.print_all(&args.rows.select().apply(answer.table())?)?;
    }
    Ok(if stopped() { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

fn model(args: &ForeseeArgs) -> anyhow::Result<(Model, Vec<String>, Beside)> {
    if let Some(file) = &args.model {
        return Ok((Model::read(file)?, Vec::new(), Beside::default()));
    }
    if args.recording.is_empty() {
        usage!(
            "no recording and no model; give a recording (`ncpu run --record DIR -- CMD`) or --model FILE"
        );
    }
    if let Some(x) = args.throughput.filter(|x| !(*x > 0.0 && x.is_finite())) {
        usage!("--throughput {x}: give units a second, above 0");
    }
    let mut beside = Beside { takes: args.takes.clone(), ..Beside::default() };
    let mut recordings = Vec::new();
    for dir in &args.recording {
        let recording = Recording::open(dir)?;
        let lacks = match recording.manifest.kind {
            Some(Purpose::Crosscalls) => "cross-calls (`ncpu crosscalls --record`)",
            Some(Purpose::Bench) => "line transfers (`ncpu bench core-to-core --record`)",
            Some(Purpose::Scale) => {
                "layers at two CPU counts or more that the machine had CPUs for (`ncpu scale --peel --record`)"
            }
            Some(Purpose::Lines) => "words that share lines (`ncpu lines --record`)",
            Some(Purpose::Counters) => {
                "how often the program makes system calls (`ncpu counters -e 'syscalls:sys_enter_*' --record DIR -- CMD`)"
            }
            _ => {
                recordings.push((dir, recording));
                continue;
            }
        };
        if !beside.add(&recording) {
            anyhow::bail!("{}: it does not tell {lacks}", dir.display());
        }
    }
    if recordings.is_empty() {
        anyhow::bail!("no recording of the program is among them (`ncpu run --record DIR -- CMD`)");
    }
    let several = recordings.len();
    if several > 1 && args.throughput.is_some() {
        usage!("--throughput is of one recording: with several, record each with --metric");
    }
    if args.bound.len() > 1 && args.bound.len() != several {
        usage!(
            "--bound has {} numbers for {several} recordings: give one for all, or one for each",
            args.bound.len()
        );
    }
    let mut all = Vec::new();
    for (i, (dir, recording)) in recordings.iter().enumerate() {
        let bound = args.bound.get(i).or(args.bound.first());
        all.push(learn(dir, recording, args.throughput, bound.copied(), several > 1, &beside)?);
    }
    let learnt = from::sharpen(all)?.context("no recording")?;
    Ok((learnt.model, learnt.notes, beside))
}

/// The model of one recording.
fn learn(
    dir: &Path,
    recording: &Recording,
    throughput: Option<f64>,
    bound: Option<u32>,
    several: bool,
    beside: &Beside,
) -> anyhow::Result<Learnt> {
    if recording.manifest.simulated {
        anyhow::bail!("{}: this recording is a simulation; predict from an observation", dir.display());
    }
    if several && recording.manifest.throughput.is_none() {
        anyhow::bail!(
            "{}: it has no throughput, so it cannot be compared with the others: record with `ncpu run --metric`",
            dir.display()
        );
    }
    let mut beside = beside.clone();
    if recording.tables.contains_key("cpu_time") && recording.tables.contains_key("user_locks") {
        let named = ncpu_report::findings::named_locks(recording)?;
        let lock = |l: ncpu_report::findings::NamedLock| from::NamedLock {
            name: l.name,
            rows: l.rows,
            lost: l.lost,
            inside: l.inside,
            entering: l.entering,
        };
        beside.locks = Some(named.into_iter().map(lock).collect());
    }
    let mut learnt = from::recording_beside(recording, throughput, bound, &beside)
        .with_context(|| dir.display().to_string())?;
    let locks: Vec<&str> = learnt.model.lock.iter().map(|l| l.name.as_str()).collect();
    if let Some((name, _)) = beside.takes.iter().find(|(name, _)| !locks.contains(&name.as_str())) {
        let there =
            if locks.is_empty() { "it has none".into() } else { format!("it has {}", locks.join(", ")) };
        anyhow::bail!("--takes {name}: no lock of that name was waited for in {}; {there}", dir.display());
    }
    if !recording.recovered.is_empty() {
        learnt.notes.push("the recording was cut off: what it lacks is not in the model".into());
    }
    Ok(learnt)
}

/// How likely less is done there than was recorded.
fn chance_of_less(model: &Model, point: &Point) -> Option<f64> {
    Some(point.chances.as_ref()?.at_most(model.recorded.as_ref()?.throughput))
}

/// Waiting for lines that CPUs take from each other is in the program's code: where that takes more than any layer, it is first.
fn waits_for_lines(model: &Model, point: &Point, told: &mut Told) {
    let capacity = point.outcome.cpus.len() as f64 * point.outcome.elapsed as f64;
    let lines = point.outcome.activities.iter().skip(usize::from(ncpu_foresee::model::FIRST_LINE));
    let waited = lines.zip(&model.line).max_by_key(|(time, _)| **time);
    let all: u64 = point.outcome.activities.iter().skip(usize::from(ncpu_foresee::model::FIRST_LINE)).sum();
    let share = all as f64 / capacity.max(1.0);
    told.work = (told.work - share).max(0.0);
    if let Some((time, line)) = waited
        && *time as f64 / capacity.max(1.0) > told.share
    {
        (told.first, told.share) = (format!("line {}", line.name), *time as f64 / capacity.max(1.0));
    }
}

/// Advice where the recorded machine is not reproduced.
fn would_help(model: &Model, notes: &[String]) -> String {
    let mut all = Vec::new();
    let noted = |text: &str| notes.iter().any(|n| n.contains(text));
    if noted("took") && noted("of the recorded capacity") {
        all.push("a recording without other programs beside it");
    }
    if noted("no throughput is known") {
        all.push("the program's throughput (--metric of `ncpu run`)");
    }
    match model.recorded.as_ref().map_or(0, |r| r.cpus) {
        1 => all.push("a recording on two CPUs"),
        _ => all.push("a second recording on fewer CPUs (taskset), given beside this one"),
    }
    all.join("; ")
}

/// Simulates the machine of the recording; whether that went well, and what to say of it.
fn reproduce(
    model: &Model,
    notes: &[String],
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<(bool, String)>> {
    let (Some(recorded), Some(found)) = (&model.recorded, from::reproduce(model, effort, stop)?) else {
        return Ok(None);
    };
    let layer = found.layer.as_ref().map_or_else(String::new, |(name, was, is)| {
        format!(", its layers by {:.1} points at most ({name})", 100.0 * (was - is).abs())
    });
    let words = format!(
        "the recording's own machine ({} CPUs, {} workers) is simulated {:+.1} % off its throughput{layer}",
        recorded.cpus,
        recorded.threads,
        100.0 * found.off
    );
    Ok(Some(match found.good() {
        true => (true, words),
        false => (
            false,
            format!(
                "NOT REPRODUCED: {words}; what follows is worth no more than that. It would help: {}",
                would_help(model, notes)
            ),
        ),
    }))
}

/// Note where the recorded CPUs may have been strands of the same cores.
fn strands(model: &Model, hardware: &Hardware) -> Option<String> {
    let recorded = model.recorded.as_ref().filter(|r| r.shape.is_none() && r.cpus > 1)?;
    (hardware.shape.strands > 1).then(|| {
        format!(
            "the recording does not say which of its {} CPUs share a core (older recordings do not, nor those of machines whose cores \
             differ): each is taken for a core of its own, and if some were strands, the prediction is too low",
            recorded.cpus
        )
    })
}

/// The CPU counts to predict, and a note on counts for which fixes leave too few CPUs; the machine had `before` without
/// them.
fn counts(
    list: Option<&str>,
    hardware: &Hardware,
    before: usize,
) -> anyhow::Result<(Vec<usize>, Option<String>)> {
    let all = hardware.shape.cpus();
    let Some(list) = list else {
        let mut counts: Vec<usize> = (0..).map(|i| 1usize << i).take_while(|n| *n < all).collect();
        counts.push(all);
        return Ok((counts, None));
    };
    let (mut counts, mut fewer) = (Vec::new(), Vec::new());
    for word in list.split(',') {
        match word.trim().parse::<usize>() {
            Ok(n) if (1..=all).contains(&n) => counts.push(n),
            Ok(n) if (1..=before).contains(&n) => {
                counts.push(all);
                fewer.push(n.to_string());
            }
            Ok(n) if n > all => anyhow::bail!("--cpus {n}: {} has {before} CPUs", hardware.name),
            _ => usage!("--cpus {list}: `{word}` is not a number of CPUs; give a list as in 2,8,32"),
        }
    }
    counts.sort_unstable();
    counts.dedup();
    let note = (!fewer.is_empty()).then(|| {
        format!(
            "--cpus {}: with one strand a core (`smt off`) {} has {all} CPUs of its {before}, and is predicted for those",
            fewer.join(","),
            hardware.name
        )
    });
    Ok((counts, note))
}

fn print(args: &ForeseeArgs, recording: &Recording, answer: &Answer) -> anyhow::Result<()> {
    let select = args.rows.select();
    if args.table.is_none() && args.rows.format() == Format::Text {
        return crate::out::put(&ncpu_report::foresee::render(answer, recording, text_width())?);
    }
    let name = args.table.as_deref().unwrap_or("foresee");
    let table: Table = match recording.tables.get(name) {
        Some(table) => table.clone(),
        None if name == "layers" => ncpu_report::onion::Onion::peel(recording)?.table(),
        None => {
            let tables = recording.tables.keys().map(String::as_str);
            return Err(no_table(name, ["layers"].into_iter().chain(tables)));
        }
    };
    args.rows.print_all(&select.apply(table)?)
}

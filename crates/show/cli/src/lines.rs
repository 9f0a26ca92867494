//! `ncpu lines`: writable words that share a cache line.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ncpu_collectors::accesses::{Collector, Mappings, Scope};
use ncpu_lines::{Options, Report, Tables};
use ncpu_machine::events::Sources;
use ncpu_machine::{CacheType, Topology};
use ncpu_observe_core::program::Child;
use ncpu_observe_core::program::Target;
use ncpu_remedy::program::{self, Program};
use ncpu_report::lines::{self as view, Moving};
use ncpu_schema::{Purpose, access_totals, accesses, findings, objects, variables, words};
use ncpu_table::{Format, Select, Table};

use crate::sink::record_once;
use crate::table_args::{TableArgs, text_width};
use crate::target::pidfd;
use crate::{out::put, sets, stop};

/// Findings shown by default: more are not repaired at once.
const SHOWN: usize = 20;
/// Default time of sampling a process.
const PROCESS: Duration = Duration::from_secs(5);

/// Show locks, atomics and counters that share a cache line, and the padding that parts them
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "kernel", "pid", "command"]))]
pub struct LinesArgs {
    /// Program, shared library, object file or vmlinux to look at
    file: Option<PathBuf>,

    /// The running kernel: its types, and its variables where it lists them
    #[arg(long)]
    kernel: bool,

    /// The program and libraries of process PID, at its addresses; and which lines move between CPUs, where
    /// the machine samples that
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// Sample for SECONDS; 0 does not sample [default: a command until it ends, a process for 5 s]
    #[arg(long, value_name = "SECONDS", value_parser = crate::duration::seconds)]
    seconds: Option<f64>,

    /// Bytes of a line, a power of two; 128 where CPUs fetch lines in pairs [default: this machine's]
    #[arg(long, value_name = "BYTES", value_parser = line_size)]
    line: Option<u64>,

    /// Locks beside other data and lines of data only, too
    #[arg(long)]
    all: bool,

    /// Only lines, structs and arrays that name TEXT
    #[arg(long = "match", value_name = "TEXT")]
    only: Option<String>,

    /// Locks, atomics, counters and stacks of process PID that compete for one set of a cache of this machine, l1 or l2,
    /// or of the UltraSPARC T2's hashed second level, t2; all variables with --all
    #[arg(long, value_name = "CACHE", num_args = 0..=1, default_missing_value = "l1", requires = "pid",
          conflicts_with_all = ["table", "record", "file", "kernel", "command"])]
    sets: Option<sets::Which>,

    /// A further type that is a lock
    #[arg(long = "lock-type", value_name = "NAME")]
    lock_types: Vec<String>,

    /// Where debug information lies that was split off
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/debug")]
    debug_dir: PathBuf,

    /// Print a table instead: findings, their words, the objects looked at; of what was sampled the lines
    /// that moved, the offsets touched in them, every access
    #[arg(long, value_name = "TABLE", value_enum)]
    table: Option<Which>,

    /// Read the machine whose sys/ and proc/ are in DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the tables in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// A command to start, look at and sample
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    Findings,
    Words,
    Objects,
    Lines,
    Offsets,
    Accesses,
}

fn line_size(text: &str) -> Result<u64, String> {
    let size: u64 = text.parse().map_err(|_| "give a number of bytes".to_owned())?;
    if !(8..=4096).contains(&size) || !size.is_power_of_two() {
        return Err("a cache line is a power of two from 8 to 4096 bytes".into());
    }
    Ok(size)
}

/// Runs `ncpu lines`.
///
/// # Errors
/// There is nothing to look at: no such file or process, or it is no ELF file.
pub fn run(args: &LinesArgs) -> anyhow::Result<ExitCode> {
    // A column that the table lacks is an error before a program runs.
    let shown = match args.table.unwrap_or(Which::Findings) {
        Which::Findings => Some(findings::NAME),
        Which::Words => Some(words::NAME),
        Which::Objects => Some(objects::NAME),
        Which::Accesses => Some(accesses::NAME),
        Which::Lines | Which::Offsets => None,
    };
    if let Some(which @ (Which::Lines | Which::Offsets)) = args.table {
        let none = view::Moving::none()?;
        let shown = if which == Which::Lines { none.lines } else { none.offsets };
        args.rows.select().check(shown.columns(), shown.name())?;
    }
    if let Some(shown) = shown.and_then(ncpu_schema::definition) {
        args.rows.select().check(&(shown.columns)(), shown.name)?;
    }
    let mut notes = Vec::new();
    let line = args.line.unwrap_or_else(|| this_machines_line(&args.root, &mut notes));
    let options = Options {
        line,
        lock_types: args.lock_types.clone(),
        debug_dir: args.debug_dir.clone(),
        // Samples fall on any variable, not only on those that share a line.
        words: args.pid.is_some() || !args.command.is_empty(),
        ..Options::default()
    };
    if let (Some(which), Some(pid)) = (args.sets, args.pid) {
        return compete(args, which, pid, &options);
    }
    let mut watched = Watched::default();
    let reports = match (&args.file, args.pid, &args.command[..]) {
        (Some(file), ..) => vec![ncpu_lines::file(file, &options)?],
        (_, None, []) => vec![ncpu_lines::kernel(&args.root, &options)?],
        (_, pid, command) => {
            watched = watch(args, pid, command, line)?;
            match watched.mapped.take() {
                Some((pid, maps)) => ncpu_lines::mapped(&args.root, pid, &maps, &options),
                None if watched.exit.is_some() => {
                    notes.push(format!(
                        "{} ended before its mappings could be read: these are the words of its file, without its libraries",
                        command[0].display()
                    ));
                    vec![ncpu_lines::file(&loaded(&command[0])?, &options)?]
                }
                None => ncpu_lines::process(&args.root, watched.pid, &options)?,
            }
        }
    };
    notes.extend(all_notes(&reports));
    notes.append(&mut watched.notes);
    if watched.accesses.is_none() {
        notes.extend(not_sampled(args));
    }
    for note in &notes {
        say!("ncpu lines: {note}");
    }
    let tables = ncpu_lines::tables(&reports, line, args.all, args.only.as_deref());
    let sampled = watched.accesses.map(|[accesses, totals]| {
        let variables = ncpu_lines::variables(&reports);
        let all = ncpu_lines::tables(&reports, line, true, None);
        let moving = view::moving(
            &accesses::Reader::of(&accesses)?,
            &variables::Reader::of(&variables)?,
            &findings::Reader::of(&all.findings)?,
            &words::Reader::of(&all.words)?,
            Some(watched.pid),
        );
        anyhow::Ok(Sampled { moving, accesses, totals })
    });
    let sampled = sampled.transpose()?;
    let words = std::env::args().skip(1).collect();
    let mut recorded = vec![tables.findings.clone(), tables.words.clone(), tables.objects.clone()];
    if let Some(s) = &sampled {
        recorded.extend([&s.moving.lines, &s.moving.offsets, &s.accesses, &s.totals].map(Table::clone));
    }
    record_once(args.record.as_deref(), Purpose::Lines, words, &recorded, notes)?;
    print(args, tables, sampled)?;
    Ok(watched.exit.unwrap_or(ExitCode::SUCCESS))
}

/// The file that the kernel loads for a command: its own, or that of a script's interpreter.
fn loaded(command: &OsStr) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH");
    let file = program::find(command, path.as_deref())?;
    Ok(Program::look(&file, path.as_deref())?.loaded)
}

/// Words and stacks that compete for one set of a cache.
fn compete(args: &LinesArgs, which: sets::Which, pid: u32, options: &Options) -> anyhow::Result<ExitCode> {
    let machine = Topology::read(&args.root)?;
    let reports = ncpu_lines::process(&args.root, pid, options)?;
    for note in all_notes(&reports) {
        say!("ncpu lines: {note}");
    }
    let found = sets::find(which, &machine, pid, &reports, args.all, args.only.as_deref())?;
    args.rows.print(found.table)?;
    found.notes.iter().for_each(|note| say!("ncpu lines: {note}"));
    Ok(ExitCode::SUCCESS)
}

/// Results of sampling.
struct Sampled {
    moving: Moving,
    accesses: Table,
    totals: Table,
}

/// Results of watching a process.
#[derive(Default)]
struct Watched {
    /// The owner of the listed words.
    pid: u32,
    /// Its mappings, where it may have ended.
    mapped: Option<(u32, Vec<u8>)>,
    /// `accesses` and `access_totals`, where they were sampled.
    accesses: Option<[Table; 2]>,
    notes: Vec<String>,
    exit: Option<ExitCode>,
}

/// Starts the command, if there is one; samples, if the machine can; and remembers what is mapped.
fn watch(args: &LinesArgs, pid: Option<u32>, command: &[OsString], line: u64) -> anyhow::Result<Watched> {
    if !command.is_empty() {
        crate::out::leave_stdout_to_command();
    }
    let mut child = (!command.is_empty()).then(|| Child::hold(command)).transpose()?;
    let pid = child.as_ref().map(Child::pid).or(pid).unwrap_or_default();
    let scope = if child.is_some() { Scope::Program(pid) } else { Scope::Process(pid) };
    let mut watched = Watched { pid, ..Watched::default() };
    // Of a machine in another directory nothing runs here.
    let own = args.root == Path::new("/");
    let sampler = match Sources::read(&args.root).ok().map(|s| s.access_events()) {
        _ if args.seconds == Some(0.0) => None,
        Some(Ok(events)) => Some(Collector::open(scope, &events)),
        Some(Err(_)) | None if own => Some(Collector::watching(scope)),
        Some(Err(_)) | None => None,
    };
    let mut sampler = match sampler {
        Some(Ok(sampler)) => Some(sampler),
        Some(Err(e)) => {
            let why = anyhow::Error::from(e);
            watched
                .notes
                .push(format!("this shows what shares a line, not how often the line moves: {why:#}"));
            None
        }
        None => None,
    };
    let stop = stop::on_signals()?;
    let _passed_on = child.as_ref().map(|child| stop::PassedOn::to(child.pidfd()));
    let mut mappings = Mappings::default();
    let limit = args.seconds.filter(|s| *s > 0.0).map(Duration::try_from_secs_f64).transpose()?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    let deadline = match (&child, limit) {
        (_, Some(limit)) => Some(Instant::now() + limit),
        (Some(_), None) => None,
        (None, None) => Some(Instant::now() + PROCESS),
    };
    let watched_pid = child.is_none().then(|| pidfd(&Target::Tree(pid))).flatten();
    let end = child.as_ref().map(Child::pidfd).or(watched_pid.as_ref().map(AsFd::as_fd));
    match &mut sampler {
        Some(sampler) => {
            sampler.start()?;
            mappings.look_again(pid);
            sampler.watch(end, deadline, &stop);
            watched.pid =
                sampler.counted().hottest().filter(|hot| child.is_some() && *hot != 0).unwrap_or(pid);
            watched.notes.extend(sampler.notes());
            watched.accesses = Some(sampler.tables(line));
            let maps = sampler.mappings().text(watched.pid).or(mappings.text(watched.pid));
            watched.mapped = maps.map(|text| (watched.pid, text.to_vec()));
        }
        None if child.is_some() => {
            mappings.follow(pid, end, deadline, &stop);
            watched.mapped = mappings.text(pid).map(|text| (pid, text.to_vec()));
        }
        None => {}
    }
    if let Some(child) = &child {
        // Its status is ncpu's, also where the time was up before.
        let ended = child.wait(!stop.load(Ordering::Relaxed));
        if ended.is_none() {
            say!("ncpu: {} still runs, as process {}", command[0].display(), child.pid());
        }
        watched.exit = Some(ExitCode::from(ended.map_or(stop::status(), |e| e.status as u8)));
    }
    Ok(watched)
}

fn print(args: &LinesArgs, tables: Tables, sampled: Option<Sampled>) -> anyhow::Result<()> {
    let select = args.rows.select();
    if args.rows.format() == Format::Text && select.bands.is_none() && args.table.is_none() {
        let most = select.top.unwrap_or(SHOWN);
        let mut out = String::new();
        if let Some(s) = &sampled {
            out = view::moving_text(&s.moving, &access_totals::Reader::of(&s.totals)?, most, text_width())
                + "\n";
        }
        let all = tables.findings.num_rows();
        let findings = Select { top: Some(most), ..select }.apply(tables.findings)?;
        let findings = findings::Reader::of(&findings)?;
        let (words, objects) = (words::Reader::of(&tables.words)?, objects::Reader::of(&tables.objects)?);
        out += &view::text(&findings, &words, &objects, all, text_width());
        return put(&out);
    }
    let sampled = |take: fn(Sampled) -> Table| match sampled {
        Some(s) => Ok(take(s)),
        None => Err(anyhow::anyhow!("nothing was sampled, so there is no such table")),
    };
    let table = match args.table.unwrap_or(Which::Findings) {
        Which::Findings => tables.findings,
        Which::Words => tables.words,
        Which::Objects => tables.objects,
        Which::Lines => sampled(|s| s.moving.lines)?,
        Which::Offsets => sampled(|s| s.moving.offsets)?,
        Which::Accesses => sampled(|s| s.accesses)?,
    };
    args.rows.print_all(&select.apply(table)?)
}

/// The line of the caches between which words move, the largest of the machine's.
fn this_machines_line(root: &Path, notes: &mut Vec<String>) -> u64 {
    let machine = Topology::read(root);
    let caches = machine.iter().flat_map(|m| &m.caches);
    let lines =
        caches.filter(|c| c.ty != CacheType::Instruction && !c.memory_side).map(|c| u64::from(c.line));
    match lines.max().filter(|line| line.is_power_of_two()) {
        Some(line) => line,
        None => {
            notes.push("the machine does not tell the size of its lines: 64 bytes taken; see --line".into());
            64
        }
    }
}

/// Each report's notes. A note that several files share is printed once.
fn all_notes(reports: &[Report]) -> Vec<String> {
    let mut grouped: Vec<(&str, Vec<&str>)> = Vec::new();
    for (report, note) in reports.iter().flat_map(|r| r.notes.iter().map(move |n| (r, n))) {
        match grouped.iter_mut().find(|(text, _)| text == note) {
            Some((_, objects)) => objects.push(&report.object),
            None => grouped.push((note, vec![&report.object])),
        }
    }
    let line = |(note, objects): (&str, Vec<&str>)| match objects[..] {
        [one] => format!("{one}: {note}"),
        [first, ..] => format!("{first} and {} more: {note}", objects.len() - 1),
        [] => note.to_owned(),
    };
    grouped.into_iter().map(line).collect()
}

/// Why nothing was measured, in one line.
fn not_sampled(args: &LinesArgs) -> Option<String> {
    const TOLD: &str = "this shows what shares a line, not how often the line moves";
    match Sources::read(&args.root).ok()?.access_events() {
        // It was asked for, or the sampler has said why.
        _ if args.seconds != Some(0.0) && (args.pid.is_some() || !args.command.is_empty()) => None,
        Err(e) => Some(format!("{TOLD}: {e}; -p PID or -- CMD watches lines with debug registers")),
        Ok(_) => Some(format!("{TOLD}: this machine samples that with -p PID or -- CMD")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_powers_of_two() {
        assert_eq!(line_size("64"), Ok(64));
        assert_eq!(line_size("256"), Ok(256));
        for bad in ["0", "63", "8192", "-64", "x", ""] {
            assert!(line_size(bad).is_err(), "{bad}");
        }
    }
}

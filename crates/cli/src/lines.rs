//! `ncpu lines`: writable words that share a cache line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ncpu_lines::{Options, Report, Tables};
use ncpu_machine::{CacheType, Topology};
use ncpu_report::lines as view;
use ncpu_table::{Format, Select};

use crate::put;
use crate::sink::record_once;
use crate::table_args::{TableArgs, text_width};

/// Findings shown unless told otherwise: nobody repairs more at once.
const SHOWN: usize = 20;

/// Show locks, atomics and counters that share a cache line, and the padding that parts them
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "kernel", "pid"]))]
pub struct LinesArgs {
    /// Program, shared library, object file or vmlinux to look at
    file: Option<PathBuf>,

    /// The running kernel: its types, and its variables where it lists them
    #[arg(long)]
    kernel: bool,

    /// The program and libraries of process PID, at its addresses
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,

    /// Bytes of a line, a power of two; 128 where CPUs fetch lines in pairs [default: this machine's]
    #[arg(long, value_name = "BYTES", value_parser = line_size)]
    line: Option<u64>,

    /// Locks beside other data and lines of data only, too
    #[arg(long)]
    all: bool,

    /// Only lines, structs and arrays that name TEXT
    #[arg(long = "match", value_name = "TEXT")]
    only: Option<String>,

    /// A further type that is a lock
    #[arg(long = "lock-type", value_name = "NAME")]
    lock_types: Vec<String>,

    /// Where debug information lies that was split off
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/debug")]
    debug_dir: PathBuf,

    /// Print the words of all findings as rows, not the findings
    #[arg(long)]
    words: bool,

    /// Read the machine whose sys/ and proc/ are in DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    #[command(flatten)]
    rows: TableArgs,

    /// Record the tables in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
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
    let mut notes = Vec::new();
    let line = args.line.unwrap_or_else(|| this_machines_line(&args.root, &mut notes));
    let options = Options { line, lock_types: args.lock_types.clone(), debug_dir: args.debug_dir.clone() };
    let reports = match (&args.file, args.pid) {
        (Some(file), _) => vec![ncpu_lines::file(file, &options)?],
        (_, Some(pid)) => ncpu_lines::process(&args.root, pid, &options)?,
        _ => vec![ncpu_lines::kernel(&args.root, &options)?],
    };
    notes.extend(all_notes(&reports));
    notes.extend(not_sampled(&args.root));
    for note in &notes {
        eprintln!("ncpu lines: {note}");
    }
    let tables = ncpu_lines::tables(&reports, line, args.all, args.only.as_deref());
    let words = std::env::args().skip(1).collect();
    let recorded = [tables.findings.clone(), tables.words.clone(), tables.objects.clone()];
    record_once(args.record.as_deref(), words, &recorded, notes)?;
    print(args, tables)?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &LinesArgs, tables: Tables) -> anyhow::Result<()> {
    let select = args.rows.select();
    if args.rows.format() == Format::Text && select.bands.is_none() && !args.words {
        let all = tables.findings.num_rows();
        let select = Select { top: select.top.or(Some(SHOWN)), ..select };
        let findings = select.apply(tables.findings)?;
        return put(&view::text(&findings, &tables.words, &tables.objects, all, text_width()));
    }
    let table = if args.words { tables.words } else { tables.findings };
    let mut printer = args.rows.printer()?;
    printer.table(&select.apply(table)?)?;
    Ok(printer.finish()?)
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

/// Each report's notes; one that several files have is told once.
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

/// That nothing was measured, in one line.
fn not_sampled(root: &Path) -> Option<String> {
    let devices = root.join("sys/bus/event_source/devices");
    let intel =
        ["cpu/events/mem-loads", "cpu_core/events/mem-loads"].iter().any(|f| devices.join(f).exists());
    let found = if intel || devices.join("ibs_op").exists() {
        "what shares a line is told, not how often it moves: `perf c2c record` samples that on this machine"
    } else {
        "what shares a line is told, not how often it moves: this machine has no counters that sample it"
    };
    Some(found.into())
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

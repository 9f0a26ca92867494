//! `ncpu limits`: what does not scale with CPUs and memory.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use ncpu_machine::limits::{Limits, Size};
use ncpu_report::limits as view;
use ncpu_schema::Purpose;
use ncpu_table::Format;

use crate::out::put;
use crate::sink::record_once;
use crate::table_args::{TableArgs, text_width};

/// Show limits against use, CPUs and memory: which are hit, near or too small, and what to set
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Show every limit, not only those that are hit, near or too small
    #[arg(long)]
    all: bool,

    /// Judge for a planned machine instead: CPUs, memory and NUMA nodes, as in 2048,32T or 2048,32T,16
    #[arg(long = "for", value_name = "CPUS,MEM[,NODES]", value_parser = planned_size)]
    planned: Option<Planned>,

    /// Write the sysctl lines to set into FILE; `-` is standard output, instead of the report
    #[arg(long, value_name = "FILE")]
    sysctl: Option<PathBuf>,

    /// A table; with -o, -k or --top it is `limits`, or `plan` with --for
    #[arg(long, value_name = "TABLE")]
    table: Option<TableName>,

    /// Read the machine whose sys/ and proc/ are in DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Keep what was read as a recording in DIR, which must not exist yet
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    #[command(flatten)]
    rows: TableArgs,
}

/// The tables of this command.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum TableName {
    /// Every limit
    Limits,
    /// Limits on the machine of --for
    Plan,
    /// Stalls for want of CPU, memory and I/O
    Pressure,
    /// Timer, RCU, scheduler and memory settings
    Settings,
}

/// A machine that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    cpus: u64,
    memory: u64,
    nodes: Option<u64>,
}

impl Planned {
    fn size(self, here: Size) -> Size {
        Size {
            cpus: self.cpus,
            memory: self.memory,
            nodes: self.nodes.unwrap_or(here.nodes),
            page: here.page,
        }
    }
}

/// `2048,32T`, `2048,32T,16`.
fn planned_size(text: &str) -> Result<Planned, String> {
    let wrong = || {
        format!(
            "invalid machine `{text}`; expected CPUs, memory and perhaps nodes, as in 2048,32T or 2048,32T,16"
        )
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let (cpus, memory, nodes) = match parts[..] {
        [cpus, memory] => (cpus, memory, None),
        [cpus, memory, nodes] => (cpus, memory, Some(nodes)),
        _ => return Err(wrong()),
    };
    let number = |t: &str| t.parse::<u64>().ok().filter(|&n| n > 0);
    let cpus = number(cpus).filter(|&n| n <= 1 << 20).ok_or_else(wrong)?;
    let memory = bytes(memory).filter(|&n| n >= 1 << 20).ok_or_else(wrong)?;
    let nodes = match nodes {
        Some(nodes) => Some(number(nodes).filter(|&n| n <= 1 << 20).ok_or_else(wrong)?),
        None => None,
    };
    Ok(Planned { cpus, memory, nodes })
}

/// `32T`, `512G`, `512GiB`, `549755813888`.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[end..].to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Runs `ncpu limits`.
///
/// # Errors
/// The machine cannot be read, a column is not there, or the output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let limits = Limits::read(&args.root)?;
    for line in &limits.unread {
        say!("ncpu limits: {line}");
    }
    let size = args.planned.map(|p| p.size(limits.size));
    if let Some(file) = &args.sysctl {
        let lines = view::sysctl_file(&limits, size);
        if file.as_os_str() == "-" {
            put(&lines)?;
            return Ok(ExitCode::SUCCESS);
        }
        ncpu_files::NewFile::write(file, crate::out::mode(), lines.as_bytes())
            .with_context(|| format!("--sysctl: cannot write {}", file.display()))?;
        say!("ncpu limits: wrote {}", file.display());
    }
    if args.record.is_some() {
        let mut tables = vec![view::table(&limits), view::pressure(&limits), view::settings(&limits)];
        tables.extend(size.map(|size| view::plan_table(&limits, size)));
        tables.retain(|t| t.num_rows() > 0);
        let words = vec!["the limits".into()];
        record_once(args.record.as_deref(), Purpose::Limits, words, &tables, limits.unread.clone())?;
    }
    let select = args.rows.select();
    let rows = args.rows.format() != Format::Text || select != ncpu_table::Select::default();
    let asked = args
        .table
        .or_else(|| rows.then_some(if size.is_some() { TableName::Plan } else { TableName::Limits }));
    let Some(asked) = asked else {
        let text = match size {
            Some(size) => view::plan(&limits, size, args.all, text_width()),
            None => view::render(&limits, args.all, text_width()),
        };
        put(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut printer = args.rows.printer()?;
    let table = match asked {
        TableName::Limits => view::table(&limits),
        TableName::Plan => view::plan_table(&limits, size.unwrap_or(limits.size)),
        TableName::Pressure => view::pressure(&limits),
        TableName::Settings => view::settings(&limits),
    };
    printer.table(&select.apply(table)?)?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_machine_is_read() {
        let p = planned_size("2048,32T").unwrap();
        assert_eq!((p.cpus, p.memory, p.nodes), (2048, 32 << 40, None));
        assert_eq!(planned_size("64, 512GiB, 4").unwrap().nodes, Some(4));
        for wrong in
            ["", "2048", "x,32T", "0,1T", "8,1", "8,1Q", "8,99999999999999999T", "1,2G,3,4", "8,1G,0"]
        {
            assert!(planned_size(wrong).is_err(), "{wrong}");
        }
    }
}

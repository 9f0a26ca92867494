//! `ncpu populate`: what creating, locking and destroying a large segment costs, and what helpers save.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args;
use ncpu_machine::Topology;
use ncpu_measure::memory::PageSize;
use ncpu_measure::place::Memory;
use ncpu_measure::populate::{SegmentKind, SegmentPlan, doubling, number};
use ncpu_schema::Purpose;
use ncpu_table::Format;

use crate::out::{progress, progress_over};
use crate::sink::record_once;
use crate::stop;
use crate::table_args::TableArgs;

/// Time the creation, locking and destruction of a large memory segment, by one thread and by several
#[derive(Args, Debug)]
pub struct PopulateArgs {
    /// Bytes of the segment, as in 4g
    #[arg(value_name = "SIZE", value_parser = size)]
    size: u64,

    /// Kind of memory: private, memfd, posix or sysv
    #[arg(long, value_name = "KIND", default_value = "private")]
    kind: SegmentKind,

    /// Its pages: 4k, thp, 2m or 1g [default: the kernel's setting]
    #[arg(long, value_name = "SIZE")]
    page: Option<PageSize>,

    /// Origin of pages: local, node:N or interleave [default: the thread's policy]
    #[arg(long, value_name = "WHERE")]
    mem: Option<Memory>,

    /// Threads that make and destroy it, the caller among them, as in 1,2,4 [default: powers of two up to one per
    /// CPU, at most 17]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=1025))]
    threads: Vec<u64>,

    /// How often each is measured, in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,

    /// Do not lock it in memory
    #[arg(long)]
    no_lock: bool,

    #[command(flatten)]
    rows: TableArgs,

    /// Record what was measured in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

/// The caller and as many helpers as vmtasks had.
const MOST: u64 = 17;

fn size(text: &str) -> Result<u64, String> {
    match number(text) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("give bytes, as in 512m or 4g (k, m, g, t: powers of 1024)".into()),
    }
}

/// Runs the command.
///
/// # Errors
/// The segment cannot be made, or the table cannot be written.
pub fn run(args: &PopulateArgs) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    let machine = Topology::read(root)?;
    let mut threads: Vec<usize> = args.threads.iter().map(|&n| n as usize).collect();
    if threads.is_empty() {
        let cpus = machine.online.and(&machine.allowed).len().max(1) as u64;
        threads = doubling(cpus.min(MOST)).into_iter().map(|n| n as usize).collect();
    }
    threads.sort_unstable();
    threads.dedup();
    let plan = SegmentPlan {
        bytes: args.size,
        kind: args.kind,
        page: args.page.unwrap_or_default(),
        memory: args.mem.unwrap_or_default(),
        threads,
        rounds: args.rounds as usize,
        lock: !args.no_lock,
    };
    plan.check(&machine, root)?;
    let stop = stop::on_signals()?;
    let measured = plan.run(&machine, &stop, &|doing| progress(doing));
    progress_over();
    let measured = measured?;
    let words = std::env::args().skip(1).collect();
    record_once(
        args.record.as_deref(),
        Purpose::Populate,
        words,
        &[measured.rounds, measured.table.clone()],
        measured.notes.clone(),
    )?;
    let table = args.rows.select().apply(measured.table)?;
    let mut printer = args.rows.printer()?;
    match args.rows.format() {
        // People count rounds themselves.
        Format::Text => {
            let shown: Vec<&str> =
                table.columns().iter().map(|c| c.name.as_str()).filter(|c| *c != "rounds").collect();
            printer.table(&table.project(&shown)?)?;
        }
        _ => printer.table(&table)?,
    }
    printer.finish()?;
    if args.rows.format() == Format::Text {
        crate::out::put("ms a GB; x: times as fast as the plain calls\n")?;
    }
    for note in &measured.notes {
        say!("ncpu: {note}");
    }
    Ok(if stop.load(Ordering::Relaxed) { ExitCode::from(stop::status()) } else { ExitCode::SUCCESS })
}

//! `ncpu memory`: what each physical page is for.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use ncpu_collectors::memory::{self, By, Memory, Options, Source};
use ncpu_report::memory as view;
use ncpu_schema::Purpose;
use ncpu_table::{Format, Select, Table};

use crate::sink;
use crate::stop;
use crate::subject::interval;
use crate::table_args::{OutPrinter, TableArgs, text_width};

/// Owners that text shows where `--top` does not say how many.
const LARGEST: usize = 20;

/// Show what every physical page is for, by class and NUMA node
#[derive(Args, Debug)]
pub struct MemoryArgs {
    /// Where the answer comes from [default: the best source there is]
    #[arg(long, value_enum)]
    source: Option<SourceArg>,

    /// Threads that walk the pages [default: one on each CPU]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,

    /// Only page frames A to B-1, as in 0x100000-0x140000
    #[arg(long, value_name = "A-B", value_parser = frames)]
    pfns: Option<Range<u64>>,

    /// Print the largest owners instead of classes
    #[arg(long, value_enum, conflicts_with_all = ["walk", "pfns", "interval"])]
    by: Option<ByArg>,

    /// Print every page: its class, how often it is mapped and referenced, its flags
    #[arg(long, conflicts_with_all = ["sort", "bands", "mean", "record", "interval"])]
    walk: bool,

    #[command(flatten)]
    rows: TableArgs,

    /// Keep the tables in a recording
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Seconds between reports [default: one report]
    #[arg(value_parser = crate::duration::seconds)]
    interval: Option<f64>,

    /// Number of reports [default: until Ctrl-C]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceArg {
    /// The kernel's array of struct page, by BPF
    Bpf,
    /// /proc/kpageflags
    Kpageflags,
    /// /proc/meminfo: an estimate, for those who are not root
    Meminfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    /// Processes: proportional set size, by their page tables
    Process,
    /// Cgroups: what is charged to each
    Cgroup,
    /// Files in the page cache, and shared memory
    File,
}

fn frames(text: &str) -> Result<Range<u64>, String> {
    let number = |s: &str| match s.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => s.trim().parse().ok(),
    };
    let range = text.split_once('-').and_then(|(a, b)| Some(number(a)?..number(b)?));
    // The highest page frame of 64 bits of address and pages of 4 KiB.
    range.filter(|r| r.start < r.end && r.end <= 1 << 52).ok_or_else(|| {
        format!("invalid range of page frames `{text}`; expected FROM-TO as in 0x100000-0x140000")
    })
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> By {
        match by {
            ByArg::Process => By::Process,
            ByArg::Cgroup => By::Cgroup,
            ByArg::File => By::File,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The source asked for cannot be used, or the output cannot be written.
pub fn run(args: MemoryArgs) -> anyhow::Result<ExitCode> {
    let every = args.interval.map(interval).transpose()?;
    if args.count == Some(0) {
        usage!("0 reports: give 1 or more");
    }
    let stop = stop::on_signals()?;
    let select = args.rows.select();
    // A mistaken -k is an error before the long look at memory.
    if args.by.is_none() && !args.walk {
        select.apply(ncpu_schema::memory::TABLE.builder().finish())?;
    }
    let printer = args.rows.printer()?;
    let options = Options {
        source: args.source.map(|s| match s {
            SourceArg::Bpf => Source::Bpf,
            SourceArg::Kpageflags => Source::Kpageflags,
            SourceArg::Meminfo => Source::Meminfo,
        }),
        threads: args.threads,
        frames: args.pfns.clone(),
        rows: args.walk,
        owners: args.by.is_some(),
    };
    let mut memory = Memory::open(&options)?;
    if args.walk {
        return walk(&args, &mut memory, printer, &stop);
    }
    report(&args, every, memory, select, printer, &stop)?;
    Ok(ExitCode::SUCCESS)
}

fn report(
    args: &MemoryArgs,
    every: Option<Duration>,
    mut memory: Memory,
    select: Select,
    mut printer: OutPrinter,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let layout = args.rows.format() == Format::Text && select == Select::default();
    let seconds = every.unwrap_or_default().as_secs_f64();
    let mut sink = match &args.record {
        Some(dir) => {
            Some(sink::open(Purpose::Memory, vec!["the machine's memory".into()], seconds, Some(dir))?)
        }
        None => None,
    };
    let mut notes = Vec::new();
    let count = args.count.unwrap_or(if every.is_some() { u64::MAX } else { 1 });
    let start = Instant::now();
    for done in 0..count {
        let time = start.elapsed();
        let looked = match args.by {
            Some(by) => memory.owners(by.into(), stop).map(|table| (table, None)),
            None => memory.look(stop).map(|s| (memory::table(&s, time.as_secs_f64()), Some(s))),
        };
        let (table, snapshot) = match looked {
            Err(memory::Error::Interrupted) => break,
            result => result?,
        };
        for note in std::mem::take(&mut memory.notes) {
            say!("ncpu: {note}");
            notes.push(note);
        }
        if let Some(sink) = &mut sink {
            sink.table(&table)?;
        }
        if args.rows.format() == Format::Text && every.is_some() {
            let gap = if done == 0 { "" } else { "\n" };
            crate::out::put(&format!("{gap}after {:.1} s\n", time.as_secs_f64()))?;
        }
        if let (true, Some(snapshot)) = (layout, &snapshot) {
            let read = ncpu_schema::memory::Reader::of(&table)?;
            crate::out::put(&(view::memstat(&read) + &view::nodes(&read, text_width())))?;
            if snapshot.source != Source::Meminfo {
                let uses = memory::kernel_uses(Path::new("/"), snapshot.page_size);
                let uses: Vec<_> =
                    uses.iter().map(|(name, bytes)| format!("{name} {} MB", bytes >> 20)).collect();
                if !uses.is_empty() {
                    crate::out::put(&format!("of Kernel: {}\n", uses.join(", ")))?;
                }
                say!(
                    "ncpu: by {} in {:.3} s, of which {:.3} s for finding executables",
                    snapshot.source.word(),
                    (snapshot.walk + snapshot.exec).as_secs_f64(),
                    snapshot.exec.as_secs_f64()
                );
            }
        } else if args.rows.format() == Format::Text {
            let select = match snapshot {
                // The largest are what is asked for.
                None => Select { top: select.top.or(Some(LARGEST)), ..select.clone() },
                Some(_) => select.clone(),
            };
            printer.table(&view::in_mb(&select.apply(table)?))?;
        } else {
            printer.table(&select.apply(table)?)?;
        }
        let Some(every) = every.filter(|_| done + 1 < count) else { break };
        // Looks lie on a grid of intervals, so that they do not drift.
        let due = every.mul_f64((start.elapsed().as_secs_f64() / every.as_secs_f64()).floor() + 1.0);
        stop::wait(start + due, stop);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    printer.finish()?;
    if let Some(sink) = sink {
        sink.finish(notes)?.1.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Prints every page, a batch at a time.
fn walk(
    args: &MemoryArgs,
    memory: &mut Memory,
    mut printer: OutPrinter,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    for note in std::mem::take(&mut memory.notes) {
        say!("ncpu: {note}");
    }
    let text = args.rows.format() == Format::Text;
    let mut out = std::io::BufWriter::new(crate::out::Out::new(true));
    let mut head = true;
    let mut left = args.rows.select().top.unwrap_or(usize::MAX);
    let result = memory.rows(stop, |pages: &Table| -> anyhow::Result<()> {
        let top = Select { top: Some(left.max(1)), ..Select::default() };
        let pages = if left < pages.num_rows() { &top.apply(pages.clone())? } else { pages };
        if text {
            let read = ncpu_schema::pages::Reader::of(pages)?;
            let text = view::pages(&read, std::mem::take(&mut head));
            out.write_all(ncpu_table::safe::block(&text).as_bytes())?;
        } else {
            printer.table(pages)?;
        }
        left -= pages.num_rows();
        anyhow::ensure!(left > 0, Enough);
        Ok(())
    });
    match result {
        Err(e) if e.is::<Enough>() => {}
        result => result?,
    }
    out.flush()?;
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// As many rows as were asked for.
#[derive(Debug)]
struct Enough;

impl std::fmt::Display for Enough {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("as many rows as were asked for")
    }
}

impl std::error::Error for Enough {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_page_frames() {
        assert_eq!(frames("0x100-0x200"), Ok(256..512));
        assert_eq!(frames("7-8"), Ok(7..8));
        for text in ["", "8", "8-7", "7-7", "x-9", "0-0xffffffffffffffff", "-5"] {
            assert!(frames(text).unwrap_err().contains("0x100000-0x140000"), "{text}");
        }
    }
}

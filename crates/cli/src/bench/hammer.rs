//! `ncpu bench memhammer`: the Silly Little Benchmark and its scripts.

use std::process::ExitCode;

use anyhow::Context;
use ncpu_machine::Topology;
use ncpu_measure::memhammer::{self, Access, PageSize, Spot};
use ncpu_measure::memory::{human, largest_cache};
use ncpu_measure::preset::{self, Preset};
use ncpu_measure::{Failure, surveys};

use super::{BenchArgs, survey};

/// Options of its own.
#[derive(clap::Args, Debug)]
pub struct HammerArgs {
    /// memhammer: what is done to each word: write, read, chase pointers, which is latency, or scan, which is bandwidth
    #[arg(long, value_name = "HOW", default_value = "write")]
    access: Access,

    /// memhammer: size of the pages: 4k, thp, 2m or 1g; as malloc gives them without
    #[arg(long, value_name = "SIZE")]
    page: Option<PageSize>,

    /// memhammer: which CPUs at once, as in the benchmark's scripts: one, same-core, same-socket, different-sockets, per-socket, all; script for all of them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["place", "threads", "processes", "matrix"])]
    preset: Option<String>,

    /// memhammer: latency and bandwidth from the CPUs of each node to the memory of each
    #[arg(long, conflicts_with_all = ["place", "mem", "threads", "processes", "access"])]
    matrix: bool,
}

const USAGE: &str =
    "memhammer wants two numbers: PAGES of 4 KiB and LOOPS over them, as in `memhammer 262144 100`";

/// A line for each worker, as the original prints it.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let numbers: Vec<u64> =
        args.names[1..].iter().map(|w| w.parse().context(USAGE)).collect::<Result<_, _>>()?;
    if args.hammer.matrix {
        return matrix(args, &numbers);
    }
    let [pages, loops] = numbers[..] else { anyhow::bail!(USAGE) };
    let machine = Topology::read("/".as_ref())?;
    let memory = args.mem.unwrap_or_default();
    memory.check(&machine)?;
    let hammer = |cpus: Vec<Option<u32>>| -> anyhow::Result<()> {
        let spots: Vec<Spot> = cpus.into_iter().map(|cpu| Spot { cpu, memory }).collect();
        let (access, page) = (args.hammer.access, args.hammer.page.unwrap_or_default());
        let done = memhammer::run(&spots, pages as usize, loops, access, page, &machine)?;
        for worker in done {
            crate::put(&format!("{}\n", worker.line()))?;
            if worker.speed > 1.05 {
                eprintln!(
                    "ncpu bench: the clock of that worker's CPU moved by {:.0} %",
                    100.0 * (worker.speed - 1.0)
                );
            }
        }
        Ok(())
    };
    // The lines touched are a 64th of the memory, except where all of it is.
    let touched = match args.hammer.access {
        Access::Write | Access::Read => pages * 64,
        Access::Chase | Access::Scan => pages * 4096,
    };
    let cache = largest_cache(&machine);
    if touched < cache {
        eprintln!(
            "ncpu bench: a worker touches {} of cache lines, which a cache of {} can hold: give more PAGES to see memory",
            human(touched),
            human(cache)
        );
    }
    match &args.hammer.preset {
        None => {
            let order = args.place.clone().unwrap_or_default().order(&machine)?;
            let workers = 0..args.processes * args.threads;
            hammer(workers.map(|i| order.as_ref().map(|o| o[i % o.len()])).collect())?;
        }
        Some(name) => {
            let presets = match preset::find(name, &machine) {
                Err(Failure::Lacks(why)) => {
                    eprintln!("ncpu bench: memhammer: skipped: {why}");
                    return Ok(ExitCode::SUCCESS);
                }
                presets => presets?,
            };
            for Preset { title, cpus } in presets {
                crate::put(&format!("{title}\n"))?;
                hammer(cpus.into_iter().map(Some).collect())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `memhammer --matrix [PAGES [LOOPS]]` is the survey `matrix`.
fn matrix(args: &BenchArgs, numbers: &[u64]) -> anyhow::Result<ExitCode> {
    let mut words = args.options.clone();
    for (letter, number) in ["-p", "-l"].iter().zip(numbers) {
        words.extend([letter.to_string(), number.to_string()]);
    }
    if numbers.len() > 2 {
        anyhow::bail!("memhammer --matrix takes PAGES and LOOPS at most");
    }
    if let Some(page) = args.hammer.page {
        let name = match page {
            PageSize::Default => None,
            PageSize::Small => Some("4k"),
            PageSize::Transparent => Some("thp"),
            PageSize::Huge2M => Some("2m"),
            PageSize::Huge1G => Some("1g"),
        };
        words.extend(name.into_iter().flat_map(|n| ["-s".to_string(), n.to_string()]));
    }
    let matrix = surveys::find("matrix").context("there is no survey `matrix`")?;
    survey::run(matrix, args, &words)
}

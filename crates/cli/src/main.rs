//! The `ncpu` command: arguments in, tables out.

mod bench;
mod command;
mod compare;
mod counters;
mod cpus;
mod crosscalls;
mod energy;
mod generate;
mod import;
mod limits;
mod lines;
mod locks;
mod memory;
mod numa;
mod populate;
mod power;
mod preload;
mod run;
mod scale;
mod sink;
mod stop;
mod subject;
mod table_args;
mod target;
mod threads;
mod timers;
mod topology;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ncpu_observe::observation::StartError;

/// See where a large Linux machine's CPU capacity goes.
#[derive(Parser)]
#[command(name = "ncpu", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Watch(run::WatchArgs),
    Report(run::ReportCommand),
    #[command(visible_alias = "lockstat")]
    Locks(locks::LocksArgs),
    #[command(visible_alias = "prstat")]
    Threads(threads::ThreadsArgs),
    #[command(visible_alias = "mpstat")]
    Cpus(cpus::CpusArgs),
    Numa(numa::NumaArgs),
    Timers(timers::TimersArgs),
    #[command(visible_alias = "cpustat")]
    Counters(Box<counters::CountersArgs>),
    #[command(visible_alias = "xcall")]
    Crosscalls(crosscalls::CrosscallsArgs),
    Topology(topology::Args),
    Limits(limits::Args),
    Lines(lines::LinesArgs),
    #[command(visible_alias = "memstat")]
    Memory(memory::MemoryArgs),
    Bench(Box<bench::BenchArgs>),
    Scale(Box<scale::ScaleArgs>),
    Populate(Box<populate::PopulateArgs>),
    Power(power::PowerArgs),
    Preload(preload::PreloadArgs),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Watch(args) => run::watch(args),
        Command::Report(args) => run::report_again(args),
        Command::Locks(args) => locks::run(args),
        Command::Threads(args) => threads::run(args),
        Command::Cpus(args) => cpus::run(args),
        Command::Numa(args) => numa::run(args),
        Command::Timers(args) => timers::run(args),
        Command::Counters(args) => counters::run(*args),
        Command::Crosscalls(args) => crosscalls::run(args),
        Command::Topology(args) => topology::run(&args),
        Command::Limits(args) => limits::run(&args),
        Command::Lines(args) => lines::run(&args),
        Command::Memory(args) => memory::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Populate(args) => populate::run(&args),
        Command::Power(args) => power::run(&args),
        Command::Preload(args) => preload::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    };
    match result {
        Ok(code) => code,
        Err(e) if broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ncpu: {e:#}");
            // A command that did not start is told as a shell tells it.
            e.downcast_ref::<StartError>().map_or(ExitCode::FAILURE, |e| ExitCode::from(e.exit_status()))
        }
    }
}

/// Writes to standard output; unlike `print!` it gives the error back.
fn put(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Whether the reader of our output went away (`ncpu cpus | head`).
fn broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|cause| {
        cause.downcast_ref::<ncpu_table::Error>().is_some_and(ncpu_table::Error::is_broken_pipe)
            || cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

//! The `ncpu` command: arguments in, tables out.

#[macro_use]
mod out;
#[macro_use]
mod usage;

mod annotate;
mod bench;
mod beside;
mod causes;
mod colour;
mod command;
mod compare;
mod config;
mod counters;
mod cpus;
mod crosscalls;
mod diff;
mod doctor;
mod dose;
mod dump;
mod duration;
mod energy;
mod exhausted;
mod explain;
mod export;
mod fix;
mod fix_process;
mod fix_tenant;
mod fleet;
mod foresee;
mod generate;
mod help;
mod hugepages;
mod import;
mod import_perf;
mod last;
mod limits;
mod lines;
mod locks;
mod mcp;
mod memory;
mod metric;
mod moment;
mod numa;
mod observer;
mod paint;
mod partition;
mod patterns;
mod place;
mod populate;
mod power;
mod preload;
mod preload_locks;
mod probes;
mod run;
mod scale;
mod series;
mod serve;
mod sets;
mod sink;
mod stop;
mod subject;
mod table_args;
mod target;
mod tee;
mod tenants;
mod threads;
mod timers;
mod top;
mod topology;
mod undo;
mod version;
mod why;

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use ncpu_observe_core::program::StartError;

/// See where a large Linux machine's CPU capacity goes.
#[derive(Parser)]
#[command(name = "ncpu", version, long_version = version::LONG, max_term_width = 100)]
struct Cli {
    /// Take options of watch, serve and top from FILE instead of /etc/ncpu.toml
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    config: Option<std::path::PathBuf>,

    /// Colour text: on a terminal, always or never [default: auto, as NO_COLOR and CLICOLOR_FORCE say]
    #[arg(long, value_name = "WHEN", global = true, hide = true)]
    color: Option<paint::When>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Watch(run::WatchArgs),
    Serve(Box<serve::ServeArgs>),
    Top(top::TopArgs),
    Report(run::ReportCommand),
    Diff(Box<diff::DiffArgs>),
    Import(import_perf::ImportArgs),
    Explain(explain::ExplainArgs),
    Why(why::WhyArgs),
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
    Foresee(Box<foresee::ForeseeArgs>),
    Populate(Box<populate::PopulateArgs>),
    Power(power::PowerArgs),
    Preload(preload::PreloadArgs),
    Dump(Box<dump::DumpArgs>),
    Partition(Box<partition::PartitionArgs>),
    Place(place::PlaceArgs),
    Hugepages(hugepages::HugepagesArgs),
    Colour(colour::ColourArgs),
    Fix(fix::FixArgs),
    Dose(Box<dose::DoseArgs>),
    Fleet(Box<fleet::FleetArgs>),
    Mcp(mcp::McpArgs),
    Doctor(doctor::DoctorArgs),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
}

/// The stack that arguments and reports are made for. `ulimit -s` may leave much less.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    begin_quietly();
    exhausted::explain();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= STACK as u64) {
        return command_line();
    }
    // The stack of a thread has no limit. A program that is run gets the user's.
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(command_line);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) => ExitCode::from(FAULT),
        Err(e) => {
            out::say_line(&format!("ncpu: no memory for a stack: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// The exit status of a fault of ours.
const FAULT: u8 = 101;

/// Has the end of a limit (`ulimit -f`) be an error of the call that meets it, and a fault of ours be a line.
fn begin_quietly() {
    // SAFETY: the handler does nothing. A handler and not SIG_IGN, which a program that is run would inherit.
    let caught = unsafe { signal_hook_registry::register(libc::SIGXFSZ, || ()) };
    if let Err(e) = caught {
        out::say_line(&format!("ncpu: cannot catch SIGXFSZ: {e}"));
    }
    std::panic::set_hook(Box::new(|fault| {
        let at = fault.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let (payload, none) = (fault.payload(), "no message");
        let why = payload.downcast_ref::<String>().map_or(none, String::as_str);
        let why = payload.downcast_ref::<&str>().map_or(why, |text| text);
        // A limit that was set, and not a fault.
        if why.starts_with("failed to spawn thread") {
            return out::say_line(&format!(
                "ncpu: {why}: raise the limits on processes and memory (ulimit -u, ulimit -v, pids.max)"
            ));
        }
        let asked = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        out::say_line(&format!("ncpu: a fault of ncpu{at}: {why}; please report it"));
        if asked {
            out::say_line(&std::backtrace::Backtrace::force_capture().to_string());
        }
    }));
}

fn command_line() -> ExitCode {
    let read = |command: clap::Command, arguments: Vec<std::ffi::OsString>| {
        let matches = command.try_get_matches_from(arguments)?;
        Ok::<_, clap::Error>((Cli::from_arg_matches(&matches)?, matches))
    };
    let parse = |arguments| read(help::command(), arguments);
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.len() == 1 {
        return match out::raw(help::FIRST.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                if !broken_pipe(&e) {
                    out::say_line(&format!("ncpu: {}", causes(&e)));
                }
                ExitCode::FAILURE
            }
        };
    }
    let (cli, matches) = match parse(arguments.clone()) {
        Ok(parsed) => parsed,
        // Arguments that clap repeats, escaped for a terminal.
        Err(e) if e.use_stderr() => {
            let shown = arguments.iter().map(|a| ncpu_table::safe::os(a).into()).collect();
            return out::usage(&help::nearer(parse(shown).err().unwrap_or(e)));
        }
        Err(e) => {
            let status = out::usage(&e);
            // -V tells the number alone.
            if e.kind() == clap::error::ErrorKind::DisplayVersion && e.to_string().contains("\ncommit:") {
                let _ = out::raw(version::features().as_bytes());
            }
            return status;
        }
    };
    // The same arguments again, with the defaults of a file.
    let again = match config::defaults(help::command(), &matches, cli.config.as_deref()) {
        Ok(None) => Ok((cli, matches)),
        Ok(Some(command)) => read(command, arguments),
        Err(e) => {
            out::say_line(&format!("ncpu: {}", causes(&e)));
            return ExitCode::FAILURE;
        }
    };
    let (cli, matches) = match again {
        Ok(parsed) => parsed,
        Err(e) => return out::usage(&e),
    };
    if let Some(when) = cli.color {
        paint::choose(when);
    }
    let result = out::begin(&matches).and_then(|()| run(cli.command));
    let result = match result {
        Ok(code) => out::end(true).map(|()| code),
        Err(e) => {
            // The error is the command's; what is left of its files is removed.
            let _ = out::end(false);
            Err(e)
        }
    };
    match result {
        Ok(code) => code,
        Err(e) if broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            out::say_line(&format!("ncpu: {}", causes(&e)));
            // A command that did not start gets the message and the status that a shell would give.
            let remedy = e.downcast_ref::<ncpu_remedy::Error>().and_then(ncpu_remedy::Error::exit_status);
            let status = e.downcast_ref::<StartError>().map(StartError::exit_status).or(remedy);
            let status = status.or(usage::is_usage(&e).then_some(usage::STATUS));
            status.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Watch(args) => run::watch(args),
        Command::Serve(args) => serve::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Report(args) => run::report_again(args),
        Command::Diff(args) => diff::run(*args),
        Command::Import(args) => import_perf::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Why(args) => why::run(&args),
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
        Command::Foresee(args) => foresee::run(&args),
        Command::Populate(args) => populate::run(&args),
        Command::Power(args) => power::run(&args),
        Command::Preload(args) => preload::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Partition(args) => partition::run(&args),
        Command::Place(args) => place::run(&args),
        Command::Hugepages(args) => hugepages::run(&args),
        Command::Colour(args) => colour::run(&args),
        Command::Fix(args) => fix::run(&args),
        Command::Dose(args) => dose::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    }
}

/// An error and what caused it, outermost first. A cause that the message before it contains is left out.
fn causes(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told + &too_large(error)
}

/// The limit that a file met, if one did.
fn too_large(error: &anyhow::Error) -> String {
    let words = error.chain().any(|cause| cause.to_string().contains("(os error 27)"));
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit.filter(|_| words) {
        Some(bytes) => format!("; files are limited to {} kB (ulimit -f)", bytes / 1000),
        None => String::new(),
    }
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

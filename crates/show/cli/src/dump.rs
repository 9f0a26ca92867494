//! `ncpu dump`: cores of processes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ncpu_dump::core_file::{self, Info};
use ncpu_dump::crash::{self, Crash, Settings};
use ncpu_dump::live::{self, Method, Options, Progress};
use ncpu_dump::read::{self, Contents};
use ncpu_dump::seekable::Codec;
use ncpu_measure::populate::number;
use ncpu_table::safe;

use crate::{out, stop};

/// Write a core of a running process without stopping it, by all CPUs; read such cores; catch crashes
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The process
    #[arg(value_name = "PID", required_unless_present_any = ["extract", "cat", "info", "mount", "install", "uninstall", "crash", "crash_server", "crash_socket", "reap"])]
    pid: Option<i32>,

    /// The dump, or with --extract the core; `-` is standard output [default: core.PID.zst]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// `no`: never stop the process; memory is read as it changes
    #[arg(long, value_name = "yes|no", default_value = "yes")]
    consistent: Consistent,

    /// Snapshot method [default: least intrusive that works]
    #[arg(long, value_name = "HOW")]
    method: Option<Way>,

    /// Level of zstd
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-7..=19))]
    level: i32,

    /// LZ4 in place of zstd: faster, larger
    #[arg(long, conflicts_with = "level")]
    lz4: bool,

    /// Threads that compress or expand [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: Option<u64>,

    /// Niceness of the threads that compress
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(i32).range(0..=19))]
    nice: i32,

    /// Leave mappings out: by name with * and ?, or by addresses, as in 7f00-7fff; may be repeated
    #[arg(long, value_name = "MAPPING")]
    exclude: Vec<String>,

    /// Bytes a dump may have, as in 10g; a longer dump is kept in part
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit: Option<u64>,

    /// Bytes of the disk to leave free
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0")]
    leave: u64,

    /// Write the plain core of a dump to the file of -o, with its holes
    #[arg(long, value_name = "FILE", group = "other")]
    extract: Option<PathBuf>,

    /// Write the plain core of a dump to standard output
    #[arg(long, value_name = "FILE", group = "other")]
    cat: Option<PathBuf>,

    /// Show the contents of a dump: threads, signal, segments, files with build IDs
    #[arg(long, value_name = "FILE", group = "other")]
    info: Option<PathBuf>,

    /// Show the plain core of a dump as DIR/core until DIR is unmounted or Ctrl-C
    #[arg(long, num_args = 2, value_names = ["FILE", "DIR"], group = "other")]
    mount: Vec<PathBuf>,

    /// Catch crashes (core_pattern)
    #[arg(long, group = "other")]
    install: bool,

    /// Undo --install
    #[arg(long, group = "other")]
    uninstall: bool,

    /// With --install: where dumps go
    #[arg(long, value_name = "DIR", default_value = "/var/crash/ncpu", requires = "install")]
    directory: PathBuf,

    /// With --install: number of dumps to keep, the oldest of the user with most of them going first; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 10, requires = "install")]
    keep: u64,

    /// With --install: dumps to write a minute for each user; 0 writes all
    #[arg(long, value_name = "N", default_value_t = 10, requires = "install")]
    rate: u64,

    /// With --install: have the kernel start ncpu for each crash, also where it can connect to a socket (Linux 6.17)
    #[arg(long, requires = "install")]
    pipe: bool,

    /// The server of that socket, which is its standard input
    #[arg(long, group = "other", hide = true)]
    crash_server: bool,

    /// Run by the server for a crash; standard input is the connection
    #[arg(long, group = "other", hide = true)]
    crash_socket: bool,

    /// Run by `--method fork`: has process PID forget its copy if standard input ends early
    #[arg(long, value_name = "PID", group = "other", hide = true)]
    reap: Option<i32>,

    /// Run by the kernel for a crash: PID, signal, user, group, time, mode
    #[arg(long, num_args = 6, group = "other", hide = true)]
    crash: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Consistent {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Write-protected from outside while it runs
    Protect,
    /// From a copy that it makes of itself (fork)
    Fork,
    /// Stopped until all is written
    Stop,
}

fn size(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| "give bytes, as in 512m or 4g (k, m, g, t: powers of 1024)".into())
}

/// Runs the command.
///
/// # Errors
/// The process cannot be dumped, or a file not be read or written.
pub fn run(args: &DumpArgs) -> anyhow::Result<ExitCode> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cpus, |n| n as usize);
    if let &[pid, signal, uid, gid, time, mode] = &args.crash[..] {
        let (pid, signal, mode) = (pid as i32, signal as i32, mode as u32);
        crash::run(Some(Crash { pid, signal, uid: uid as u32, gid: gid as u32, time, mode }))?;
    } else if let Some(pid) = args.reap {
        ncpu_dump::reap(pid)?;
    } else if args.crash_socket {
        crash::run(None)?;
    } else if args.crash_server {
        let stop = stop::on_signals()?;
        crash::serve(&stop)?;
    } else if let Some(file) = &args.cat {
        crate::out::stdout_is_open()?;
        read::cat(&read::open(file)?, &mut std::io::stdout().lock(), threads)?;
    } else if let Some(file) = &args.extract {
        let output = args.output.as_ref().context("--extract: name the core with -o")?;
        read::extract(&read::open(file)?, output, threads)?;
    } else if let Some(file) = &args.info {
        let info = core_file::info(&Contents::new(read::open(file)?))?;
        out::put(&words(file, &info))?;
    } else if let [file, directory] = &args.mount[..] {
        let stop = stop::on_signals()?;
        let dump = Contents::new(read::open(file)?);
        let mounted =
            || say!("ncpu: {}/{} until it is unmounted", directory.display(), ncpu_dump::mount::NAME);
        ncpu_dump::mount::mount(dump, directory, &stop, mounted)?;
    } else if args.install {
        install(args)?;
    } else if args.uninstall {
        let before = crash::uninstall()?;
        say!("ncpu: core_pattern is {:?} again", before.pattern_before);
    } else {
        return dump(args, threads);
    }
    Ok(ExitCode::SUCCESS)
}

fn install(args: &DumpArgs) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding out where ncpu is")?;
    let settings = Settings {
        directory: std::path::absolute(&args.directory)?,
        keep: args.keep,
        per_minute: args.rate,
        limit: args.limit.unwrap_or(u64::MAX),
        spare: args.leave,
        level: args.level,
        exclude: args.exclude.clone(),
        pattern_before: String::new(),
        pipe_limit_before: String::new(),
    };
    let by = match crash::install(&program, settings, args.pipe)? {
        crash::Way::Pipe => "by a pipe",
        crash::Way::Socket => "by a socket",
    };
    say!("ncpu: crashes are dumped to {}, {by}; `ncpu dump --uninstall` ends that", args.directory.display());
    Ok(())
}

fn dump(args: &DumpArgs, threads: usize) -> anyhow::Result<ExitCode> {
    let pid = args.pid.context("which process?")?;
    let options = Options {
        output: args.output.clone().unwrap_or_else(|| live::default_name(pid)),
        reaper: std::env::current_exe().ok(),
        method: match (args.consistent, args.method) {
            (Consistent::No, _) => Some(Method::Never),
            (Consistent::Yes, Some(Way::Protect)) => Some(Method::Protect),
            (Consistent::Yes, Some(Way::Fork)) => Some(Method::Fork),
            (Consistent::Yes, Some(Way::Stop)) => Some(Method::Stop),
            (Consistent::Yes, None) => None,
        },
        codec: if args.lz4 { Codec::Lz4 } else { Codec::Zstd(args.level) },
        threads,
        nice: args.nice,
        exclude: args.exclude.clone(),
        limit: args.limit.unwrap_or(u64::MAX),
        spare: args.leave,
    };
    let stop = stop::on_signals()?;
    let progress = Arc::new(Progress::default());
    let over = Arc::new(AtomicBool::new(false));
    let teller = {
        let (progress, over) = (progress.clone(), over.clone());
        std::thread::Builder::new().spawn(move || tell(&progress, &over))
    };
    let result = live::dump(pid, &options, &progress, &stop);
    over.store(true, Ordering::Relaxed);
    // It only shows progress, and may not have been started.
    if let Ok(teller) = teller {
        teller.thread().unpark();
        let _ = teller.join();
    }
    let summary = match result {
        Err(ncpu_dump::Error::Interrupted) => return Ok(ExitCode::from(crate::stop::status())),
        result => result?,
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    say!(
        "ncpu: {}: {:.1} MB of memory in {:.1} MB, {} threads, {:.2} s; stopped for {:.3} ms",
        options.output.display(),
        mb(summary.memory),
        mb(summary.written),
        summary.threads,
        summary.elapsed.as_secs_f64(),
        summary.stopped.as_secs_f64() * 1e3,
    );
    for note in &summary.notes {
        say!("ncpu: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows how far a dump is, ten times a second.
fn tell(progress: &Progress, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let (done, all) = (progress.done.load(Ordering::Relaxed), progress.all.load(Ordering::Relaxed));
        if all > 0 {
            let mb = |chunks: u64| chunks * live::CHUNK_BYTES / 1_000_000;
            out::progress(&format!("{} of {} MB", mb(done), mb(all)));
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    out::progress_over();
}

/// Contents of a dump, for people.
fn words(file: &Path, info: &Info) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("file       {}", safe::os(file)));
    let whole = match &info.trailer {
        Some(trailer) if trailer.complete && info.missing == 0 => "whole".to_owned(),
        Some(trailer) => {
            format!("a part, {} bytes are missing: {}", info.missing, safe::line(&trailer.reason))
        }
        None if info.missing == 0 => "whole; not written by ncpu".to_owned(),
        None => format!("a part, {} bytes are missing", info.missing),
    };
    line(format_args!("core       {whole}"));
    line(format_args!(
        "process    {} {}, user {}: {}",
        safe::bytes(&info.program),
        info.pid,
        info.uid,
        safe::bytes(&info.arguments)
    ));
    line(format_args!("taken      {}", safe::line(&info.own)));
    for lost in info.trailer.iter().flat_map(|trailer| &trailer.lost) {
        line(format_args!(
            "lost       {:x}-{:x}: given back by the process before it was copied",
            lost.0, lost.1
        ));
    }
    for thread in &info.threads {
        let signal = if thread.signal == 0 { String::new() } else { format!(", signal {}", thread.signal) };
        line(format_args!(
            "thread     {:<8} pc {:#018x}, sp {:#018x}{signal}",
            thread.tid, thread.pc, thread.sp
        ));
    }
    let (size, stored) = info.loads.iter().fold((0, 0), |sum, load| (sum.0 + load.size, sum.1 + load.stored));
    line(format_args!(
        "segments   {}, {} kB of memory, {} kB stored",
        info.loads.len(),
        size >> 10,
        stored >> 10
    ));
    for file in &info.files {
        let id: String = file.build_id.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        let id = if id.is_empty() { "-".to_owned() } else { id };
        line(format_args!(
            "mapped     {:012x}-{:012x} {id:<40} {}",
            file.start,
            file.end,
            safe::bytes(&file.name)
        ));
    }
    text
}

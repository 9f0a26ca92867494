//! `ncpu hugepages`: what lies on huge pages, why the rest does not, and commands with more of them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ncpu_files::reader::Whose;
use ncpu_machine::{CpuSet, Topology};
use ncpu_observe_core::program::Child;
use ncpu_remedy::hugepages::{self, Looked, collapse, coverage, foretell, pools, text};
use ncpu_remedy::journal::{Journal, Undo};
use ncpu_remedy::preload::{self, Places};
use ncpu_remedy::program::{self, Program};
use ncpu_table::{Format, safe};

use crate::table_args::TableArgs;
use crate::undo;
use crate::{out, stop};

/// Copies of smaller files are not spoken of.
const WORTH_A_LINE: u64 = 16 << 20;

/// Show what of a process lies on huge pages and why the rest does not; put it there; run a command with more of them
#[derive(Args, Debug)]
pub struct HugepagesArgs {
    /// Look at process PID
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["cgroup", "all", "command"])]
    pid: Option<u32>,

    /// Look at the processes of a control group, given by its directory
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["all", "command"])]
    cgroup: Option<PathBuf>,

    /// Look at every process (the default without a command)
    #[arg(short, long, conflicts_with = "command")]
    all: bool,

    /// Print a row for each mapping instead of each object
    #[arg(long, conflicts_with = "command")]
    mappings: bool,

    /// Predict what huge pages save process PID: measure what reads cost all over as much memory as could be put
    /// together, on small pages and on huge ones
    #[arg(long, requires = "pid", conflicts_with = "apply")]
    foretell: bool,

    /// Put small pages of running processes together, with -p or -c
    #[arg(long, conflicts_with = "command")]
    apply: bool,

    /// Share of one CPU's time that --apply may take, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, requires = "apply")]
    share: f64,

    /// While the command runs, hold pools of huge pages: SIZE[:2m|1g][@NODES] on each of these nodes; may be repeated
    #[arg(long = "pool", value_name = "POOL", requires = "command")]
    pools: Vec<String>,

    /// While the command runs, have this machine give huge pages to shared memory on request (shmem_enabled)
    #[arg(long, requires = "command")]
    shm: bool,

    /// Leave pools and settings as they are at the end
    #[arg(long, requires = "command")]
    keep: bool,

    /// Leave the command's text on small pages
    #[arg(long, requires = "command")]
    no_text: bool,

    /// A library whose text is to be on huge pages too; may be repeated
    #[arg(long, value_name = "FILE", requires = "command")]
    text: Vec<PathBuf>,

    #[command(flatten)]
    rows: TableArgs,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
/// The process is not there or not ours, or the command cannot be started.
pub fn run(args: &HugepagesArgs) -> anyhow::Result<ExitCode> {
    // A column that the table lacks is an error before a program runs and before anything is changed.
    let shown = if args.mappings { hugepages::mappings_table(&[]) } else { hugepages::objects_table(&[]) };
    args.rows.select().check(shown.columns(), shown.name())?;
    if !args.command.is_empty() {
        return start(args);
    }
    let pids = match (args.pid, &args.cgroup) {
        (Some(pid), _) => vec![pid],
        (None, Some(dir)) => {
            let file = dir.join("cgroup.procs");
            let list = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            list.lines().filter_map(|l| l.parse().ok()).collect()
        }
        _ => ncpu_remedy::sys::processes(),
    };
    let one = args.pid.is_some();
    require!(!args.apply || one || args.cgroup.is_some(), "--apply: give -p PID or -c DIR");
    let mut all = Vec::new();
    let mut refused = 0;
    // Each answer that does not come takes its time: a user may have one such process, and not a thousand.
    let (mut late, mut late_users) = (0, HashSet::new());
    for pid in pids {
        let user = Whose::process(format!("/proc/{pid}").as_ref(), pid);
        if late_users.contains(&user) {
            late += 1;
            continue;
        }
        match hugepages::look(pid) {
            Ok(looked) => all.push(looked),
            Err(e) if one => return Err(e.into()),
            Err(ncpu_remedy::Error::File { source, .. }) if source.kind() == std::io::ErrorKind::TimedOut => {
                late += 1;
                late_users.insert(user);
            }
            // Threads of the kernel have no memory, and some are gone by now.
            Err(ncpu_remedy::Error::File { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                refused += 1;
            }
            Err(_) => {}
        }
    }
    if args.apply {
        return apply(args, &all);
    }
    print(args, &all)?;
    if args.foretell
        && let [looked] = &all[..]
    {
        let told = foretell::measure(hugepages::whole(looked).could, looked.allowed.huge)?;
        say!(
            "ncpu: a read anywhere in {} MiB that waits for the read before it: {:.1} ns on small pages, {:.1} on huge \
             ones: {:.0} % less",
            told.bytes >> 20,
            told.small,
            told.huge,
            100.0 * (1.0 - told.huge / told.small)
        );
        // Where the processor counts them, what TLB misses cost this very process is known.
        if ncpu_machine::events::Sources::read_cores("/".as_ref())?.cores().next().is_some() {
            let own = std::env::current_exe().context("finding ncpu itself")?;
            let pid = looked.pid.to_string();
            let status =
                std::process::Command::new(own).args(["counters", "--tlb", "-p", &pid, "1", "1"]).status();
            let status = status.context("counting TLB misses")?;
            anyhow::ensure!(status.success(), "counting TLB misses: {status}");
        }
    }
    if late > 0 {
        let what = if late == 1 { "process" } else { "processes" };
        say!("ncpu: {late} {what} left out: the kernel did not give the mappings in time");
    }
    if refused > 0 {
        let what = if refused == 1 { "process" } else { "processes" };
        say!("ncpu: {refused} {what} of others cannot be looked at: that needs root");
    }
    if args.rows.format() == Format::Text && !all.is_empty() {
        let whole: Vec<_> = all.iter().map(hugepages::whole).collect();
        let sum = |f: &dyn Fn(&coverage::Coverage) -> u64| whole.iter().map(f).sum::<u64>();
        let (resident, huge) = (sum(&|c| c.resident), sum(&|c| c.thp + c.pool + c.giant));
        let could = sum(&|c| c.could);
        say!(
            "ncpu: {:.1} % of {} MiB on huge pages; {} MiB more could be put together: up to {} TLB entries fewer",
            100.0 * huge as f64 / resident.max(1) as f64,
            resident >> 20,
            could >> 20,
            could / ncpu_machine::page_size() - could / all[0].allowed.huge
        );
        let (free, huge) = (all[0].allowed.free, all[0].allowed.huge);
        if free < could / huge {
            let text = std::fs::read_to_string("/proc/pagetypeinfo").unwrap_or_default();
            let able = coverage::blocks(&text).map_or(String::new(), |(able, all)| {
                format!(
                    "; compaction can make some of {able} of its {all} blocks, which hold movable pages only"
                )
            });
            say!("ncpu: memory is in pieces: {free} free blocks are large enough for a huge page{able}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &HugepagesArgs, all: &[Looked]) -> anyhow::Result<()> {
    let table = if args.mappings { hugepages::mappings_table(all) } else { hugepages::objects_table(all) };
    args.rows.print(table)
}

fn apply(args: &HugepagesArgs, all: &[Looked]) -> anyhow::Result<ExitCode> {
    require!(args.share > 0.0 && args.share <= 100.0, "--share {}: give 1 to 100", args.share);
    let stop = stop::on_signals()?;
    let mut failed = false;
    let mut after = Vec::new();
    for looked in all {
        let mut progress = |pages: u64| {
            out::progress(&format!("process {}: {pages} huge pages", looked.pid));
        };
        let huge = looked.allowed.huge;
        let share = args.share / 100.0;
        let done = collapse::collapse(looked.pid, &looked.mappings, huge, share, &stop, &mut progress);
        out::progress_over();
        match done {
            Ok(done) => {
                say!(
                    "ncpu: process {}: {} huge pages put together or there already, {:.1} ms each{}",
                    looked.pid,
                    done.pages,
                    1000.0 * done.busy / (done.pages + done.failed.values().sum::<u64>()).max(1) as f64,
                    if done.cut_short { "; cut short" } else { "" }
                );
                for (why, pages) in done.failed {
                    say!("ncpu: process {}: {pages} not: {}", looked.pid, safe::cut(&why, 200));
                }
            }
            Err(e) => {
                failed = true;
                let why = match e.raw_os_error() {
                    Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => {
                        "this kernel cannot: it takes Linux 6.1".to_string()
                    }
                    _ => e.to_string(),
                };
                say!("ncpu: process {}: {why}", looked.pid);
            }
        }
        after.extend(hugepages::look(looked.pid));
    }
    print(args, &after)?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a command with its heap, mappings, stacks, shared memory and text on huge pages.
fn start(args: &HugepagesArgs) -> anyhow::Result<ExitCode> {
    let path = std::env::var_os("PATH");
    let file = match program::find(&args.command[0], path.as_deref()) {
        Ok(file) => file,
        Err(e) => {
            say!("ncpu hugepages: {e}");
            return Ok(e.exit_status().into());
        }
    };
    let program = Program::look(&file, path.as_deref())?;
    let mut notes = Vec::new();
    if let Err(e) = preloaded(&program, &mut notes) {
        notes.push(format!("heap, mappings and stacks stay as they are: {e:#}"));
    }
    if !args.no_text {
        let huge = coverage::Allowed::read(std::process::id()).huge;
        let mut candidates = Vec::new();
        for (file, asked) in
            std::iter::once((&program.loaded, false)).chain(args.text.iter().map(|f| (f, true)))
        {
            match text::candidate(file, huge) {
                Ok(candidate) => candidates.push(candidate),
                Err(e) if asked => return Err(e.into()),
                Err(e) => notes.push(format!("text stays on small pages: {e}")),
            }
        }
        if !candidates.is_empty() {
            match text::mount(&candidates, huge) {
                Err(e) => notes.push(format!("text stays on small pages: {e}")),
                Ok(()) => notes.extend(candidates.iter().filter_map(|c| copied(&c.path))),
            }
        }
    }
    // Last, so that nothing is left to be undone where the command cannot be started.
    let machine = Topology::read("/".as_ref())?;
    let settings = !args.pools.is_empty() || args.shm;
    let mut journal = None;
    if settings {
        let mut own = undo::begin()?;
        match settle(args, &machine, &mut own) {
            Ok(lines) => notes.extend(lines),
            Err(e) => {
                undo::tell(&own.finish(), false);
                return Err(e);
            }
        }
        journal = Some(own);
    }
    notes.iter().for_each(|n| say!("ncpu hugepages: {}", safe::cut(n, 300)));
    let Some(journal) = journal else {
        let environment = std::env::vars_os().collect();
        let mut argv = args.command.clone();
        argv[0] = file.into_os_string();
        let error = ncpu_remedy::launch::Launch::new(&argv, environment).become_it();
        say!("ncpu hugepages: {error}");
        return Ok(error.exit_status().into());
    };
    let stop = stop::on_signals()?;
    let status = held(&args.command, &stop);
    if args.keep {
        journal.keep()?;
    } else {
        undo::tell(&journal.finish(), false);
    }
    Ok(ExitCode::from(status?))
}

/// Time of copying a large file.
fn copied(file: &Path) -> Option<String> {
    let size = std::fs::metadata(file).ok()?.len();
    (size >= WORTH_A_LINE).then(|| {
        format!(
            "{} of {} were copied to memory, as at each start; --no-text leaves its text on small pages",
            ncpu_table::size::words(size),
            file.display()
        )
    })
}

/// Runs a command to its end, and passes a wish to end on to it.
fn held(command: &[OsString], stop: &std::sync::atomic::AtomicBool) -> anyhow::Result<u8> {
    let mut child = Child::hold(command)?;
    child.release()?;
    loop {
        if let Some(ended) = child.wait(false) {
            return Ok(ended.status as u8);
        }
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            // The program has had Ctrl-C too; SIGTERM went to us alone.
            if let Some(pid) = i32::try_from(child.pid()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            return Ok(child.wait(true).unwrap_or_default().status as u8);
        }
        stop::wait(std::time::Instant::now() + std::time::Duration::from_millis(50), stop);
    }
}

/// Pools and settings of the machine; each is in the journal first.
fn settle(args: &HugepagesArgs, machine: &Topology, journal: &mut Journal) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    let all: CpuSet = machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).map(|n| n.id).collect();
    let all = if all.is_empty() { [0].into_iter().collect() } else { all };
    for words in &args.pools {
        let pools = pools::parse(words, &all).map_err(|e| anyhow::anyhow!("--pool {e}"))?;
        for filled in pools::fill(journal, Path::new("/"), &pools)? {
            let got = filled.after.saturating_sub(filled.before);
            if got < filled.pool.pages {
                notes.push(format!(
                    "node {}: {got} of {} pages of {} KiB: its memory is full or in pieces",
                    filled.pool.node,
                    filled.pool.pages,
                    filled.pool.page >> 10
                ));
            }
        }
    }
    if args.shm {
        let file = PathBuf::from("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let before = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let before = ncpu_remedy::journal::chosen(&before).to_string();
        if !["advise", "always", "within_size", "force"].contains(&before.as_str()) {
            journal.will(Undo::Setting { path: (&file).into(), old: before, new: "advise".into() })?;
            std::fs::write(&file, "advise").with_context(|| file.display().to_string())?;
        }
    }
    Ok(notes)
}

/// Sets the environment for the library and for glibc.
fn preloaded(program: &Program, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let executable = std::env::current_exe().context("cannot find the path of ncpu, and so its libraries")?;
    let places = Places::of(&executable, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
    let (library, image) = places.find("hugepages")?;
    if let Some(obstacle) = program.obstacle(&image) {
        notes.push(format!(
            "heap, mappings and stacks stay as they are: {} {obstacle}",
            program.loaded.display()
        ));
        return Ok(());
    }
    let already = std::env::var_os("LD_PRELOAD");
    let value = preload::value(&[library], already.as_deref(), &program.image)?;
    let mut tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    if !tunables.contains("glibc.malloc.hugetlb") {
        if !tunables.is_empty() {
            tunables.push(':');
        }
        tunables.push_str("glibc.malloc.hugetlb=1");
    }
    // SAFETY: this process has one thread, and becomes or starts the command next.
    unsafe {
        std::env::set_var("LD_PRELOAD", value);
        std::env::set_var("GLIBC_TUNABLES", tunables);
    }
    Ok(())
}

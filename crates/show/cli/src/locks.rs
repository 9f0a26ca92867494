//! `ncpu locks`: kernel and user locks, live or from lockstat files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ncpu_engine::engine::Config;
use ncpu_record::Recording;
use ncpu_report::locks::{By, capacity, is_traced, second_estimate, table, user_table};
use ncpu_schema::{Length, Purpose, View};
use ncpu_table::{Format, Table};

use crate::out::put;
use crate::patterns::PatternArgs;
use crate::probes::ProbesArgs;
use crate::subject::{Subject, WhenArgs, observe, reports};
use crate::table_args::{TableArgs, text_width};
use crate::target::TargetArgs;

/// Show contended kernel and user locks by name and caller, with the capacity they cost
#[derive(Args, Debug)]
pub struct LocksArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Unit of a row [default: lock and caller]
    #[arg(long, value_enum)]
    by: Option<ByArg>,

    /// Walk every contention's stack and show DEPTH frames (walking slows contended code)
    #[arg(short, long = "stack", value_name = "DEPTH", default_value_t = 0)]
    stack: usize,

    /// Only kernel locks
    #[arg(long, conflicts_with = "user")]
    kernel: bool,

    /// Only user locks
    #[arg(long)]
    user: bool,

    /// All futexes, conditions and unknown ones too
    #[arg(long)]
    futexes: bool,

    /// With -a: trace the locks of libncpu too, in every program of the machine that has them. That puts breakpoints
    /// into their files, which debuggers and Valgrind may trip over
    #[arg(long)]
    user_locks: bool,

    /// Time waits for pthread locks by a library that the command loads; needs no root, and leaves the kernel's locks out
    #[arg(long, conflicts_with_all = ["kernel", "user_locks", "pid", "cgroup", "all"])]
    preload: bool,

    /// Read lockstat output of Solaris, illumos, FreeBSD or NetBSD from FILE (- is standard input) instead, and print
    /// lockutil's table
    #[arg(long, value_name = "FILE", requires = "ncpu", conflicts_with_all = ["pid", "cgroup", "all", "seconds", "command", "record"])]
    import: Option<PathBuf>,

    /// CPUs of the machine the imported file comes from
    #[arg(short, long, value_name = "NCPU", requires = "import")]
    ncpu: Option<u64>,

    /// Elapsed seconds, for imported files that do not have them
    #[arg(long, value_name = "SECONDS", requires = "import", value_parser = crate::duration::seconds)]
    elapsed: Option<f64>,

    #[command(flatten)]
    probes: ProbesArgs,

    #[command(flatten)]
    patterns: PatternArgs,

    #[command(flatten)]
    select: TableArgs,

    /// Record the observation in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    #[command(flatten)]
    when: WhenArgs,
}

/// Locks of programs and files.
const USER_LOCKS: [Length; 3] = [Length::UserLock, Length::FileLock, Length::Semaphore];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    Lock,
    Caller,
    Process,
}

impl LocksArgs {
    fn by(&self) -> By {
        match self.by {
            None => By::LockAndCaller,
            Some(ByArg::Lock) => By::Lock,
            Some(ByArg::Caller) => By::Caller,
            Some(ByArg::Process) => By::Process,
        }
    }
}

/// Runs the command.
pub fn run(args: LocksArgs) -> anyhow::Result<ExitCode> {
    if let (Some(file), Some(ncpu)) = (&args.import, args.ncpu) {
        return crate::import::run(file, ncpu, args.elapsed, &args.select);
    }
    reports(&args.when, args.record.as_deref(), || once(&args))
}

fn once(args: &LocksArgs) -> anyhow::Result<ExitCode> {
    // A column that neither table has is an error before anything is observed.
    let kernel = table(
        &Recording::empty(Purpose::Locks, ncpu_schema::locks::Rows::new().finish()),
        args.by(),
        args.stack,
    )?;
    let user = Recording::empty(Purpose::Locks, ncpu_schema::user_locks::Rows::new().finish());
    let user = user_table(&user, args.futexes, args.stack)?;
    let select = args.select.select();
    let in_user = user.is_some_and(|user| select.check(user.columns(), user.name()).is_ok());
    if !in_user || args.kernel {
        select.check(kernel.columns(), kernel.name())?;
    }
    let subject = match args.preload {
        true => Subject::with_locks(&args.when)?,
        false => Subject::of(&args.target, &args.when)?,
    };
    let patterns = args.patterns.read()?;
    let config = |target| Config {
        explain: false,
        registers: false,
        patterns,
        tlb: false,
        user_locks_of_all: args.user_locks,
        probes: args.probes.get(),
        ..Config::onion(target, 99)
    };
    let observed =
        observe(Purpose::Locks, subject, config, Duration::from_secs(1), args.record.as_deref(), |o| {
            if args.stack > 0 {
                o.walk_all();
            }
        })?;
    print(&observed.recording, args, observed.walked_every)?;
    observed.exit()
}

fn print(recording: &Recording, args: &LocksArgs, every: u32) -> anyhow::Result<()> {
    let by = args.by();
    let select = args.select.select();
    let text = args.select.format() == Format::Text;
    let mut printer = args.select.printer()?;
    if args.preload && text {
        put(&notes(recording))?;
    }
    if !args.user && !args.preload {
        let kernel = select.apply(table(recording, by, args.stack)?)?;
        if text && args.stack > 0 && by == By::LockAndCaller {
            put(&with_stacks(&kernel, args.stack)?)?;
        } else if kernel.num_rows() > 0 || !text {
            printer.table(&kernel)?;
        } else if is_traced(recording) {
            put("no kernel lock was contended\n")?;
        } else if matches!(recording.manifest.view, Some(View::Machine | View::Program)) {
            put("no sample was in the slow path of a kernel lock\n")?;
        } else {
            put("waits for kernel locks are not seen here\n")?;
        }
        if text {
            put(&footer(recording, every)?)?;
        }
    }
    // CSV and Parquet hold one table: the kernel's, unless --user chooses.
    let both = matches!(args.select.format(), Format::Text | Format::Json);
    if !args.kernel && (args.user || args.preload || both) {
        match user_table(recording, args.futexes, args.stack)? {
            Some(user) if user.num_rows() > 0 || !text => {
                // A column to sort by may be the kernel table's alone.
                let user = select
                    .apply(user.clone())
                    .or_else(|e| if args.user || args.preload { Err(e) } else { Ok(user) })?;
                match text && args.stack > 0 {
                    true => put(&with_stacks(&user, args.stack)?)?,
                    false => printer.table(&user)?,
                }
            }
            _ if text && !args.preload && !is_traced(recording) => put(
                "waits for user locks are not traced here; `ncpu locks --preload -- CMD` times those of pthreads\n",
            )?,
            _ if text => put("no user lock was waited for\n")?,
            _ => {}
        }
    }
    let kinds: &[Length] = match (args.kernel, args.user) {
        (true, _) => &[Length::KernelLock],
        (_, true) => &USER_LOCKS,
        _ => &[Length::KernelLock, Length::UserLock, Length::FileLock, Length::Semaphore],
    };
    if both && let Some(percentiles) = ncpu_report::lengths::of_recording(recording, kinds)? {
        printer.table(&percentiles)?;
    }
    Ok(printer.finish()?)
}

fn footer(recording: &Recording, every: u32) -> anyhow::Result<String> {
    if !is_traced(recording) {
        return Ok(notes(recording) + "\n");
    }
    let total = ncpu_schema::locks::Reader::open(recording)?.map_or(0.0, |t| t.spin.sum());
    let capacity = capacity(recording).max(f64::MIN_POSITIVE);
    let mut out = format!("{:>5.3}  TOTAL CPU-util, of {capacity:.2} CPU-seconds\n", total / capacity);
    if let Some((inside, outside)) = second_estimate(recording)? {
        out += &format!(
            "second estimate, by sampling: {:.3} inside traced waits,\n  {:.3} in slow paths that the tracepoints do not cover\n",
            inside / capacity,
            outside / capacity
        );
    }
    out += &format!("callers: one stack in {every} contentions walked\n");
    Ok(out + &notes(recording) + "\n")
}

fn notes(recording: &Recording) -> String {
    let wrap = |note: &String| ncpu_report::wrap(&format!("note: {note}"), text_width(), "", "      ");
    recording.manifest.notes.iter().map(wrap).collect()
}

/// The table with the first `depth` of each row's frames below it.
pub fn with_stacks(table: &Table, depth: usize) -> anyhow::Result<String> {
    let names: Vec<&str> =
        table.columns().iter().map(|c| c.name.as_str()).filter(|n| *n != "stack").collect();
    let text = ncpu_table::render_text(&table.project(&names)?, text_width());
    // Above the rows are the names of columns, and cells that all rows share.
    let head = text.lines().count().saturating_sub(table.num_rows());
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        out.push_str(line);
        out.push('\n');
        let Some(row) = i.checked_sub(head) else { continue };
        for frame in table.text(row, "stack").unwrap_or("").split(';').filter(|f| !f.is_empty()).take(depth) {
            out.push_str("        ");
            out.push_str(frame);
            out.push('\n');
        }
    }
    Ok(out)
}

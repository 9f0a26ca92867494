//! `ncpu crosscalls`: interrupts between CPUs, by who sends them and why.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ncpu_collectors::crosscalls::{Config, Crosscalls, Received, package_of};
use ncpu_observe_core::bpf_support::Error;
use ncpu_record::{Manifest, Recording};
use ncpu_report::crosscalls::{By, footer, senders_known, table};
use ncpu_schema::Purpose;
use ncpu_table::{Format, Table};

use crate::locks::with_stacks;
use crate::metric::MetricArgs;
use crate::out::put;
use crate::sink;
use crate::stop;
use crate::subject::{Subject, WhenArgs, reports};
use crate::table_args::{TableArgs, text_width};
use crate::target::TargetArgs;

/// Show which CPUs interrupt others, why, for whom, and what it costs both
///
/// TLB shootdowns, reschedules, function calls and irq work: by process, system call and caller, with their
/// fan-out, the time senders wait and receivers take, and what one message a package would send.
#[derive(Args, Debug)]
pub struct CrosscallsArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Unit of a row [default: cause, process, system call and caller]
    #[arg(long, value_enum)]
    by: Option<ByArg>,

    /// Walk the stack of every call and show DEPTH frames (walking slows senders)
    #[arg(short, long = "stack", value_name = "DEPTH", default_value_t = 0)]
    stack: usize,

    /// Count packages as if the CPUs lay on N of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    packages: Option<u32>,

    #[command(flatten)]
    select: TableArgs,

    /// Record the observation in DIR
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    #[command(flatten)]
    metric: MetricArgs,

    #[command(flatten)]
    when: WhenArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ByArg {
    Caller,
    Process,
    Cpu,
    Syscall,
    Cause,
}

/// Runs the command.
///
/// # Errors
/// Nothing can be observed, the program does not start, or standard output cannot be written.
pub fn run(args: CrosscallsArgs) -> anyhow::Result<ExitCode> {
    reports(&args.when, args.record.as_deref(), || once(&args))
}

fn once(args: &CrosscallsArgs) -> anyhow::Result<ExitCode> {
    // A column that the table lacks is an error before anything is observed.
    let nothing = Recording::new(Manifest::new(Purpose::Crosscalls, 1, Vec::new(), 1.0));
    let shown = table(&nothing, args.by(), args.stack);
    args.select.select().check(shown.columns(), shown.name())?;
    let mut subject = match args.metric.of_command(&args.when.command)? {
        Some(metric) => Subject::measured(&args.when.command, Some(metric), None, None)?,
        None => Subject::of(&args.target, &args.when)?,
    };
    let stop = stop::on_signals()?;
    let mut sink = sink::open(Purpose::Crosscalls, subject.words.clone(), 1.0, args.record.as_deref())?;
    let package_of = package_of(args.packages)?;
    let packages = package_of.iter().collect::<BTreeSet<_>>().len();
    let config = Config { target: subject.target.clone(), package_of, walk_all: args.stack > 0 };
    let mut take = |t: &Table| sink.table(t);
    let (ended, mut notes) = match Crosscalls::begin(&config) {
        Err(Error::OldKernel(old)) => {
            let received = Received::begin(Path::new("/"), old.to_string(), packages)?;
            subject.release()?;
            received.watch(subject.end(), subject.deadline(), &stop);
            (subject.ended(), received.finish(&mut take)?)
        }
        begun => {
            let mut observation = begun?;
            subject.release()?;
            observation.watch(subject.end(), subject.deadline(), Duration::from_secs(1), &stop, &mut take)?;
            (subject.ended(), observation.finish(&mut take)?)
        }
    };
    notes.extend(subject.throughput(Some(&mut sink)));
    let (recording, failed) = sink.finish(notes)?;
    print(&recording, args)?;
    failed.map_or_else(|| Ok(subject.exit_code(ended)), |failed| Err(failed.into()))
}

impl CrosscallsArgs {
    fn by(&self) -> By {
        match self.by {
            None => By::Sender,
            Some(ByArg::Caller) => By::Caller,
            Some(ByArg::Process) => By::Process,
            Some(ByArg::Cpu) => By::Cpu,
            Some(ByArg::Syscall) => By::Syscall,
            Some(ByArg::Cause) => By::Cause,
        }
    }
}

fn print(recording: &Recording, args: &CrosscallsArgs) -> anyhow::Result<()> {
    let mut table = table(recording, args.by(), args.stack);
    let text = args.select.format() == Format::Text;
    // Where nobody tells the senders, there are the CPUs that received.
    if text && table.num_rows() == 0 && !senders_known(recording) {
        table = ncpu_report::crosscalls::table(recording, By::Cpu, 0);
        table = args.select.select().apply(table.clone()).unwrap_or(table);
    } else {
        table = args.select.select().apply(table)?;
    }
    if text && table.num_rows() == 0 {
        put("no cross-call was sent\n")?;
    } else if text && table.index("stack").is_ok() {
        put(&with_stacks(&table, usize::MAX)?)?;
    } else {
        args.select.print_all(&table)?;
    }
    if text {
        put(&footer(recording, text_width()))?;
    } else {
        for note in &recording.manifest.notes {
            say!("ncpu: {note}");
        }
    }
    Ok(())
}

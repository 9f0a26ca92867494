//! `ncpu threads`: microstates of every thread, exact.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use ncpu_engine::engine::Config;
use ncpu_engine::observation::{Observation, Until};
use ncpu_engine::unprivileged::Unprivileged;
use ncpu_observe_core::bpf_support::Error;
use ncpu_observe_core::program::Target;
use ncpu_report::threads::table;
use ncpu_schema::Length;
use ncpu_table::{Format, Table};

use crate::observer::Observer;
use crate::probes::ProbesArgs;
use crate::run::HZ;
use crate::stop;
use crate::subject::interval;
use crate::table_args::TableArgs;
use crate::target::{TargetArgs, pidfd};

/// Show the microstates of each thread, as prstat -mL does: exact within the budget of --probes
#[derive(Args, Debug)]
pub struct ThreadsArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Unit of a row [default: thread]
    #[arg(long, value_enum)]
    by: Option<ByArg>,

    /// Threads that slept all the time too (always with -p)
    #[arg(long)]
    idle: bool,

    #[command(flatten)]
    probes: ProbesArgs,

    #[command(flatten)]
    select: TableArgs,

    /// Seconds between reports
    #[arg(default_value_t = 1.0, value_parser = crate::duration::seconds)]
    interval: f64,

    /// Number of reports [default: until Ctrl-C]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    Thread,
    Process,
}

/// Runs the command.
pub fn run(args: ThreadsArgs) -> anyhow::Result<ExitCode> {
    let interval = interval(args.interval)?;
    if args.count == Some(0) {
        usage!("0 reports: give 1 or more");
    }
    let stop = stop::on_signals()?;
    let by_process = args.by == Some(ByArg::Process);
    // A column that the table lacks is an error before anything is observed.
    let shown = table(&ncpu_schema::threads::Rows::new().finish(), by_process, false);
    args.select.select().check(shown.columns(), shown.name())?;
    let target = args.target.target()?;
    let watched = pidfd(&target);
    let every = args.idle || matches!(target, Target::Tree(_));
    let config = Config {
        sample_hz: None,
        explain: false,
        registers: false,
        irqs: false,
        tlb: false,
        stacks: false,
        micro: true,
        probes: args.probes.get(),
        ..Config::onion(target, HZ)
    };
    let select = args.select.select();
    let mut printer = args.select.printer()?;
    let mut limit = None;
    let mut observer = match Observation::begin(&config) {
        Err(Error::NotPermitted | Error::PidNamespace) => {
            let thin = Unprivileged::begin(&config, false, HZ, None).ok_or(Error::NotPermitted)?;
            say!(
                "ncpu: without root, from /proc: LAT is exact, USR and SYS are divided by the kernel's ticks, and OFF is all sleep; \
                 threads that come and go between two reports are left out"
            );
            Observer::Thin(Box::new(thin))
        }
        Err(Error::OldKernel(old)) => {
            say!(
                "ncpu: {old}: from /proc: LAT is exact, USR and SYS are divided by the kernel's ticks, and OFF is all sleep"
            );
            let thin = Unprivileged::on_old_kernel(&config, false, HZ, None, old.to_string());
            limit = Some(old.to_string());
            Observer::Thin(Box::new(thin.ok_or(Error::OldKernel(old))?))
        }
        whole => Observer::Whole(Box::new(whole?)),
    };
    let notes = observer.notes();
    for note in &notes {
        say!("ncpu: {note}");
    }
    // Other formats hold one table.
    let text = args.select.format() == Format::Text;
    let mut drops = Vec::new();
    let mut take = |raw: &Table| -> anyhow::Result<()> {
        match raw.name() {
            "threads" => printer.table(&select.apply(table(raw, by_process, every))?)?,
            "lengths" if text => {
                const KINDS: [Length; 4] = [Length::RunQueue, Length::WakeUp, Length::Slice, Length::Late];
                if let Some(percentiles) = ncpu_report::lengths::table(raw, &KINDS)? {
                    printer.table(&percentiles)?;
                }
            }
            "drops" => {
                drops = (0..raw.num_rows())
                    .filter_map(|r| Some((raw.text(r, "what")?.to_string(), raw.int(r, "count")?)))
                    .collect()
            }
            _ => {}
        }
        Ok(())
    };
    use std::os::fd::AsFd;
    // The last interval ends with the observation.
    let deadline = args.count.map(|n| Instant::now() + interval.mul_f64(n as f64));
    let until =
        observer.watch(watched.as_ref().map(|fd| fd.as_fd()), deadline, interval, &stop, &mut take)?;
    let last = observer.finish(None, &mut take)?;
    // The line before the first report has said why.
    let said = |note: &String| limit.as_ref().is_some_and(|limit| note.starts_with(limit.as_str()));
    for note in last.iter().filter(|note| !notes.contains(note) && !said(note)) {
        say!("ncpu: {note}");
    }
    if until == Until::Ended && args.select.format() == Format::Text {
        say!("ncpu: the process has ended");
    }
    for (what, n) in drops {
        say!("ncpu: dropped: {n} {what}");
    }
    printer.finish()?;
    Ok(ExitCode::SUCCESS)
}

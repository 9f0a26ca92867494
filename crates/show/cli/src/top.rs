//! `ncpu top`: the onion, threads, locks and CPUs, live on one screen.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_daemon::pace::Pace;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::{Observation, Until};
use ncpu_observe_core::program::Target;
use ncpu_record::{Gather, Manifest};
use ncpu_report::findings::Findings;
use ncpu_report::onion::Onion;
use ncpu_report::tenants::{Naming, Tenancy};
use ncpu_report::{export, top};
use ncpu_schema::{Purpose, StackKind, drops, stacks};
use ncpu_table::Table;
use ncpu_tui::top::{Asleep, Interval, Stack, Top};

use crate::cpus::places;
use crate::observer::go_ahead;
use crate::probes::ProbesArgs;
use crate::stop;
use crate::subject::interval;
use crate::target::{TargetArgs, pidfd};

/// Intervals that may wait for the screen; it takes them at once unless the terminal is stuck.
const WAITING: usize = 2;

/// Watch live, on one screen: the onion, threads with their stacks, locks with their waiters, CPUs
#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Timer samples a second on each CPU (fewer on machines of more than 200 CPUs)
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = crate::run::HZ, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: u32,

    #[command(flatten)]
    probes: ProbesArgs,

    #[command(flatten)]
    causes: crate::causes::CausesArgs,

    /// Length of an interval in seconds
    #[arg(default_value_t = 2.0, value_parser = crate::duration::seconds)]
    interval: f64,
}

/// Shows it until the user leaves.
///
/// # Errors
/// There is no terminal, or nothing can be observed.
pub fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let out = std::io::stdout();
    anyhow::ensure!(
        out.is_terminal() && std::io::stdin().is_terminal(),
        "`ncpu top` needs a terminal; `ncpu watch` writes the same to a pipe or file"
    );
    args.causes.install()?;
    let interval = interval(args.interval)?;
    let stop = stop::on_signals()?;
    // It is asked for where a machine is full, and is to answer there. Threads that begin later inherit it.
    go_ahead();
    let _pace = Pace::keep(&stop, Vec::new());
    let places = places(Path::new("/"))?;
    let target = args.target.target()?;
    let words = args.target.words();
    let screen = Top::new(&words.join(" "), places, crate::paint::wanted(true));
    let config = Config { probes: args.probes.get(), ..Config::onion(target.clone(), args.hz) };
    let (send, feed) = sync_channel(WAITING);
    let (ready, begun) = sync_channel(1);
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    let observer = std::thread::Builder::new().name("ncpu-top".into()).spawn(move || {
        let observer = Observation::begin(&config).map_err(anyhow::Error::from);
        match observer {
            Ok(observation) => {
                let _ = ready.send(Ok(()));
                let watch = Watch { observation, words, target, interval, ended: seen };
                if let Err(e) = watch.watch(&send) {
                    // The reader may be gone.
                    let _ = send.send(Err(e));
                }
            }
            Err(e) => drop(ready.send(Err(e))),
        }
    })?;
    // Errors of observing are printed after the terminal is restored.
    begun.recv().context("the observing thread ended")??;
    let shown = ncpu_tui::top::run(screen, &stop, &feed);
    ended.store(true, Ordering::Relaxed);
    drop(feed);
    anyhow::ensure!(observer.join().is_ok(), "the observing thread panicked");
    shown.map(|()| ExitCode::SUCCESS)
}

/// The observer, in a thread of its own, so that keys are answered meanwhile.
struct Watch {
    observation: Observation,
    words: Vec<String>,
    target: Target,
    interval: Duration,
    ended: Arc<AtomicBool>,
}

impl Watch {
    fn watch(mut self, to: &SyncSender<anyhow::Result<Interval>>) -> anyhow::Result<()> {
        let watched = pidfd(&self.target);
        self.observation.keep_thread_stacks();
        let mut next = Instant::now() + self.interval;
        let mut since = 0.0;
        loop {
            let mut tables: Vec<Table> = Vec::new();
            let mut take = |table: &Table| -> anyhow::Result<()> {
                tables.push(table.less("t", since)?);
                Ok(())
            };
            let ended = || self.ended.load(Ordering::Relaxed);
            let end = watched.as_ref().map(|fd| fd.as_fd());
            // All of an interval comes with its turn: nothing is due before.
            let why = self.observation.watch(end, Some(next), 2 * self.interval, &ended, &mut take)?;
            if why == Until::Stopped {
                return Ok(());
            }
            since = self.observation.turn(&mut take)?;
            match to.try_send(self.made(&tables)) {
                Ok(()) | Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
            if why == Until::Ended {
                return Ok(());
            }
            while next <= Instant::now() {
                next += self.interval;
            }
        }
    }

    /// The screen's part of an interval's tables.
    fn made(&mut self, tables: &[Table]) -> anyhow::Result<Interval> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let manifest = Manifest::new(Purpose::Watch, cpus, self.words.clone(), self.interval.as_secs_f64());
        let mut gather = Gather::new(manifest);
        tables.iter().try_for_each(|table| gather.append(table))?;
        let recording = gather.finish()?;
        let onion = Onion::peel(&recording)?;
        let mut asleep = Vec::new();
        if let Some(all) = stacks::Reader::open(&recording)? {
            let off = all.rows().filter(|&row| all.kind.get(row) == Some(StackKind::OffCpu));
            asleep.extend(off.filter_map(|row| {
                let parts = export::Parts::of(&all, row)?;
                Some(Asleep {
                    process: parts.process.into(),
                    thread: parts.thread.into(),
                    wait: parts.wait.unwrap_or("").into(),
                    stack: parts.frames.into(),
                    seconds: all.seconds.get(row)?,
                })
            }));
        }
        let mut notes = self.observation.notes();
        // The largest cause comes first.
        notes.splice(0..0, Findings::of(&recording)?.list.into_iter().take(1).map(|found| found.sentence));
        if let Some(all) = drops::Reader::open(&recording)? {
            let told = |row| Some(format!("dropped: {} {}", all.count.get(row)?, all.what.get(row)?));
            notes.extend(all.rows().filter_map(told));
        }
        let tenancy = Tenancy::of(&recording, &Naming::default())?.unwrap_or_default();
        let executing = self.observation.take_thread_stacks().into_iter();
        Ok(Interval {
            elapsed: onion.elapsed,
            cpus: onion.cpus,
            layers: onion.table(),
            threads: top::threads(&recording, false)?,
            processes: top::threads(&recording, true)?,
            locks: top::locks(&recording)?,
            waiters: top::waiters(&recording)?,
            tenants: top::tenants(&tenancy),
            tenant_layers: tenancy.table(),
            ledger: tenancy.ledger(),
            cpus_table: top::cpus(&recording)?,
            stacks: executing
                .map(|s| Stack { pid: s.pid, tid: s.tid, stack: s.stack, layer: s.layer, seconds: s.seconds })
                .collect(),
            asleep,
            notes,
        })
    }
}

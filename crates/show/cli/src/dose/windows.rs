//! Windows of the experiment: how much the program gets done, with a place made slower, or unchanged.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use ncpu_collectors::cpus::parse;
use ncpu_collectors::doses::{Doses, Function, Place};
use ncpu_collectors::lock_names::LockNamer;
use ncpu_dose::search::{Bench, Order, Seen, Went};
use ncpu_machine::CpuSet;
use ncpu_machine::process::{self, Stat};
use ncpu_remedy::sys;

use super::subject::{Confined, State, Subject};
use super::url::Counter;
use crate::command::{Held, Ran};
use crate::metric::Measure;
use crate::out::progress;

/// Unit of speed.
pub enum Speed {
    /// A system call's number.
    Call(u32),
    /// Calls of a function.
    Function(Function),
    /// A counter that the program publishes.
    Counter(Counter),
    /// Whole runs of the command.
    Runs(Measure),
}

/// A place as candidates have it; locks are found by name, since each run has them at other addresses.
#[derive(Clone, Debug, PartialEq)]
pub enum Spot {
    /// Kernel locks of a name.
    Locks(String),
    /// Any other place.
    Fixed(Place),
}

/// The bench.
pub struct Windows<'a> {
    pub doses: Doses,
    pub subject: Subject<'a>,
    pub speed: Speed,
    pub spots: Vec<Spot>,
    pub length: Duration,
    /// Needed for places that are locks.
    pub namer: Option<LockNamer>,
    /// The CPU that the program is confined to for the anchor.
    pub cpu: u32,
    pub argv: Vec<std::ffi::OsString>,
    pub stop: &'a AtomicBool,
    pub began: Instant,
    /// The place that is attached, and the run in which its locks were found.
    attached: Option<(usize, u64)>,
    /// Locks of the current run, by name.
    locks: (u64, Vec<(u64, String)>),
    /// Why a counter could not be read, the last time.
    pub unread: Option<String>,
    /// The process that probes in functions are in; nothing once the program has had several.
    only: Option<u32>,
    pub several: bool,
}

/// Time for a place that was just attached, or for threads that were just moved, to have its effect.
const SETTLE: Duration = Duration::from_millis(10);

/// The length of a survey in which a new run's locks are found.
const LOOK: Duration = Duration::from_millis(60);

impl<'a> Windows<'a> {
    /// Nothing is attached yet.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        doses: Doses,
        subject: Subject<'a>,
        speed: Speed,
        length: Duration,
        namer: Option<LockNamer>,
        cpu: u32,
        argv: &[std::ffi::OsString],
        stop: &'a AtomicBool,
    ) -> Windows<'a> {
        Windows {
            doses,
            subject,
            speed,
            spots: Vec::new(),
            length,
            namer,
            cpu,
            argv: argv.to_vec(),
            stop,
            began: Instant::now(),
            attached: None,
            locks: (0, Vec::new()),
            unread: None,
            only: None,
            several: false,
        }
    }

    /// Puts later probes in functions into the program's process alone, while it has one: others pay for none.
    fn choose_process(&mut self) -> anyhow::Result<()> {
        let whole = matches!(self.speed, Speed::Runs(_));
        let pid = self.subject.pid().filter(|_| !whole);
        self.several = self.several || pid.is_some_and(|pid| sys::tree_of(pid).len() > 1);
        let only = pid.filter(|_| !self.several);
        if only != self.only {
            self.only = only;
            self.doses.only(only);
            self.detach();
            self.count()?;
        }
        Ok(())
    }

    /// Attaches what speed is counted by.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&mut self) -> anyhow::Result<()> {
        self.doses.count_calls(matches!(self.speed, Speed::Call(_)))?;
        let function = match &self.speed {
            Speed::Function(function) => Some(function),
            Speed::Call(_) | Speed::Counter(_) | Speed::Runs(_) => None,
        };
        Ok(self.doses.count_function(function)?)
    }

    /// Work done so far, and when; `None` where a counter cannot be read now.
    fn work(&mut self) -> Option<(f64, Instant)> {
        let before = Instant::now();
        let work = match &self.speed {
            Speed::Call(number) => self.doses.calls(*number) as f64,
            Speed::Function(_) => self.doses.progress() as f64,
            Speed::Runs(_) => 0.0,
            Speed::Counter(counter) => match counter.read() {
                Ok(value) => value,
                Err(e) => {
                    self.unread = Some(format!("{e:#}"));
                    return None;
                }
            },
        };
        Some((work, before + before.elapsed() / 2))
    }

    /// Seconds for which the CPU of the anchor has idled so far; `None` where that cannot be read.
    fn idled(&self) -> Option<f64> {
        let text = std::fs::read("/proc/stat").ok()?;
        let mut idle = None;
        // user nice system idle iowait
        parse::stat(&text, |cpu, t| idle = if cpu == self.cpu { Some(t[3] + t[4]) } else { idle }).ok()?;
        Some(idle? as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// CPU-seconds that other programs used so far, on all CPUs, and those that the program did, with its processes that it has
    /// waited for; `None` where that cannot be read.
    fn used(&self) -> Option<(f64, f64)> {
        let hz = rustix::param::clock_ticks_per_second() as f64;
        let text = std::fs::read("/proc/stat").ok()?;
        let mut busy = 0;
        // user nice system idle iowait irq softirq steal
        parse::stat(&text, |_, t| busy += t[0] + t[1] + t[2] + t[5] + t[6] + t[7]).ok()?;
        let own: u64 = sys::tree_of(self.subject.pid()?)
            .into_iter()
            .filter_map(|pid| process::read(format!("/proc/{pid}/stat").as_ref()).ok())
            .filter_map(|text| Stat::parse(&text)?.times().map(|t| t.iter().sum::<u64>()))
            .sum();
        Some(((busy as f64 - own as f64) / hz, own as f64 / hz))
    }

    /// The locks of a run by name, looked up once a run.
    fn locks_named(&mut self, name: &str) -> anyhow::Result<Vec<u64>> {
        let is_known = self.locks.0 == self.subject.runs && self.locks.1.iter().any(|(_, n)| n == name);
        if !is_known {
            let (survey, ()) = self.doses.survey(|| std::thread::sleep(LOOK))?;
            self.attached = None;
            let addresses: Vec<u64> = survey.locks.iter().map(|lock| lock.address).collect();
            let named = self.namer.as_mut().map(|namer| {
                namer.resolve(&addresses);
                addresses.into_iter().map(|a| (a, lock_name(namer, a))).collect()
            });
            self.locks = (self.subject.runs, named.unwrap_or_default());
        }
        Ok(self.locks.1.iter().filter(|(_, n)| n == name).map(|(a, _)| *a).collect())
    }

    /// Attaches a place; the error is why the kernel does not, or none where no thread waited for the lock just now.
    fn attach(&mut self, at: usize) -> anyhow::Result<Result<(), Option<String>>> {
        if self.attached == Some((at, self.subject.runs)) {
            return Ok(Ok(()));
        }
        let place = match self.spots[at].clone() {
            Spot::Fixed(place) => place,
            Spot::Locks(name) => {
                let found = self.locks_named(&name)?;
                if found.is_empty() {
                    return Ok(Err(None));
                }
                Place::Locks(found)
            }
        };
        if let Err(e) = self.doses.attach(&place) {
            return Ok(Err(Some(e.to_string())));
        }
        self.attached = Some((at, self.subject.runs));
        Ok(Ok(()))
    }

    /// How often a second the program comes to a place, and the part of its speed that it keeps with a probe there; `None` where a
    /// window of the two was lost.
    ///
    /// # Errors
    /// The program cannot be started again.
    pub fn probed(&mut self, place: usize) -> anyhow::Result<Option<(f64, f64)>> {
        let free = self.window(Order::Free)?;
        let probed = self.window(Order::Dose { place, ns: 0 })?;
        self.detach();
        let (Went::Well(free), Went::Well(probed)) = (free, probed) else { return Ok(None) };
        Ok(Some((probed.hits as f64 / probed.seconds, probed.speed / free.speed.max(1e-9))))
    }

    fn detach(&mut self) {
        self.doses.detach();
        self.attached = None;
    }

    fn live(&mut self, order: Order) -> anyhow::Result<Went> {
        if let Some(cut) = cut_short(self.subject.ensure()?) {
            return Ok(cut);
        }
        if let Err(e) = self.choose_process() {
            // A process that ends meanwhile takes no probe.
            return cut_short(self.subject.wait(Duration::ZERO)?).ok_or(e);
        }
        let run = self.subject.runs;
        let mut confined = None;
        let was_attached = self.attached;
        match order {
            Order::Free => self.detach(),
            Order::OneCpu => {
                self.detach();
                let Some(pid) = self.subject.pid() else { return Ok(Went::Lost) };
                let Ok(threads) = Confined::to(pid, self.cpu) else { return Ok(Went::Lost) };
                confined = Some(threads);
            }
            Order::Dose { place, .. } => {
                if let Err(why) = self.attach(place)? {
                    // A process that ends meanwhile takes no probe.
                    let cut = cut_short(self.subject.wait(Duration::ZERO)?);
                    return Ok(cut.unwrap_or_else(|| why.map_or(Went::Lost, Went::Refused)));
                }
            }
        }
        if let Order::Dose { ns, .. } = order {
            self.doses.arm(Duration::from_nanos(ns.into()), 4 * (self.length + SETTLE));
        }
        // Free or confined, freshly attached or armed: what was begun before ends first.
        let settle = if confined.is_some() || was_attached != self.attached { SETTLE } else { SETTLE / 5 };
        let state = self.subject.wait(settle)?;
        let (used, idle) = (self.used(), self.idled());
        let (before, counts) = (self.work(), self.doses.counts());
        let state = if state == State::Running { self.subject.wait(self.length)? } else { state };
        let (after, counts_after) = (self.work(), self.doses.counts());
        let (used_after, idle_after) = (self.used(), self.idled());
        self.doses.disarm();
        drop(confined);
        if let Some(cut) = cut_short(state) {
            return Ok(cut);
        }
        let (Some((before, from)), Some((after, to))) = (before, after) else { return Ok(Went::Lost) };
        // A counter that went back began anew.
        if after < before {
            return Ok(Went::Lost);
        }
        self.subject.was_measured();
        let seconds = (to - from).as_secs_f64();
        let (others, own) = match (used, used_after) {
            (Some(before), Some(after)) => (after.0 - before.0, after.1 - before.1),
            _ => (0.0, 0.0),
        };
        Ok(Went::Well(Seen {
            seconds,
            speed: (after - before) / seconds,
            hits: counts_after.hits - counts.hits,
            spun: counts_after.spun - counts.spun,
            refused: counts_after.refused - counts.refused,
            others: (others / seconds).max(0.0),
            own: (own / seconds).max(0.0),
            idled: idle_part(idle, idle_after, seconds),
            run,
        }))
    }

    /// A window that is a whole run of the command.
    fn whole(&mut self, order: Order) -> anyhow::Result<Went> {
        let one: CpuSet = [self.cpu].into_iter().collect();
        self.detach();
        self.subject.runs += 1;
        let held = Held::new(&self.argv, matches!(order, Order::OneCpu).then_some(&one))?;
        let (before, idle) = (self.doses.counts(), self.idled());
        let mut refused: anyhow::Result<Result<(), Option<String>>> = Ok(Ok(()));
        let place = match order {
            Order::Dose { place, ns } => Some((place, ns)),
            Order::Free | Order::OneCpu => None,
        };
        // Places that need no look at the running program are there from its start.
        if let Some((place, ns)) = place
            && matches!(self.spots[place], Spot::Fixed(_))
        {
            refused = self.attach(place);
            self.doses.arm(Duration::from_nanos(ns.into()), ARMED);
        }
        let stop = self.stop;
        let ran = held.run_for(stop, Duration::MAX, &mut |_| {
            let Some((place, ns)) = place else { return };
            if self.attached.is_none() && matches!(refused, Ok(Ok(()))) {
                refused = self.attach(place);
            }
            self.doses.arm(Duration::from_nanos(ns.into()), ARMED);
        })?;
        let (counts, idle_after) = (self.doses.counts(), self.idled());
        self.doses.disarm();
        if let Err(why) = refused? {
            return Ok(why.map_or(Went::Lost, Went::Refused));
        }
        let Ran::Done(done) = ran else { return Ok(Went::Over) };
        let Speed::Runs(measure) = &self.speed else { return Ok(Went::Lost) };
        let speed = measure
            .of(&done)
            .map_err(|why| anyhow::anyhow!("the command fails as it is: {why}"))
            .context("a run of the command")?;
        Ok(Went::Well(Seen {
            seconds: done.elapsed,
            speed,
            hits: counts.hits - before.hits,
            spun: counts.spun - before.spun,
            refused: counts.refused - before.refused,
            own: 0.0,
            idled: idle_part(idle, idle_after, done.elapsed),
            others: done.others.unwrap_or(0.0) * sys::affinity(0).map_or(0.0, |cpus| cpus.len() as f64),
            run: 0,
        }))
    }
}

/// How a window went that the program, or the user, ended before its time; `None` while the program runs.
fn cut_short(state: State) -> Option<Went> {
    match state {
        State::Running => None,
        State::Ended => Some(Went::Lost),
        State::Over => Some(Went::Over),
    }
}

/// The part of some seconds for which a CPU idled, by its seconds before and after.
fn idle_part(before: Option<f64>, after: Option<f64>, seconds: f64) -> f64 {
    before.zip(after).map_or(0.0, |(before, after)| ((after - before) / seconds).clamp(0.0, 1.0))
}

/// Doses of whole runs are prolonged ten times a second.
const ARMED: Duration = Duration::from_secs(1);

/// The name of a kernel lock, without the number of its CPU: locks of all CPUs are one place.
pub fn lock_name(namer: &LockNamer, address: u64) -> String {
    let name = namer.name(address).unwrap_or("[unknown]");
    name.split("(CPU ").next().unwrap_or(name).to_owned()
}

impl Bench for Windows<'_> {
    type Error = anyhow::Error;

    fn window(&mut self, order: Order) -> anyhow::Result<Went> {
        match self.speed {
            Speed::Runs(_) => self.whole(order),
            Speed::Call(_) | Speed::Function(_) | Speed::Counter(_) => self.live(order),
        }
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn progress(&mut self, words: &str) {
        progress(words);
    }
}

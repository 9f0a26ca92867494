//! What a program would gain without a cause.
//!
//! The least that it gains is known from the capacity of the machine: what the cause has, and the CPUs that idle beside it. The most is
//! the largest of three figures: the same with what the cause makes dearer elsewhere; what the threads that it is in would do where most
//! of their own time is its; and what threads that wait would do in the time that they do not wait. Threads of a runtime's own, the start
//! of a program, ncpu and other programs are in the capacity, and would not be in a program's loop. A program that does one thing at a
//! time gains by a wait that is spared, however many CPUs idle beside it.

use std::collections::HashMap;

use ncpu_schema::{Layer, SampleClass};

use super::asleep::active;
use super::claim::{Claim, Kind, Source};
use super::libraries::{gives_memory_back, is_allocator};
use super::serial;
use super::view::{Sampled, View};
use crate::onion::evidence::collectors::{allocates, allocates_in_java, collector, is_java_machines};

/// The part that is left of a program at least: a gain is no larger than its reciprocal.
const LEFT: f64 = 0.02;

/// The part of a thread's time on CPU that a cause has in it to be what that thread does.
const MOSTLY: f64 = 0.5;

/// The part of a thread's time on CPU below which what is left of it without a cause is not known.
const UNKNOWN: f64 = 0.05;

/// The part of an observation that the busiest thread of a process runs, or stands on a run queue to, where more work would need less of
/// its time.
const BUSY: f64 = 0.7;

/// The part of an observation that a wait and all running of a program's threads take together, where these take turns.
const TURNS: f64 = 1.1;

/// The least speed that a second hardware thread adds to its core, of that of one alone.
const SIBLING: f64 = 0.2;

/// The part of a wait that its remedy spares at least.
const SPARED: f64 = 0.8;

/// Samples that take memory from which it is known where a process takes most.
const TAKES: u64 = 20;

/// What a sample has to do with memory of the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heap {
    Takes,
    GivesBack,
    Neither,
}

impl Heap {
    fn of(sample: &Sampled<'_>) -> Heap {
        let user = &sample.user;
        let gives = user.iter().any(|frame| gives_memory_back(frame));
        let takes = || {
            user.iter().any(|frame| is_allocator(frame))
                || allocates(user).is_some()
                || allocates_in_java(user).is_some()
        };
        // Go's runtime also gives pages of its heap back to the kernel.
        let scavenges = user.iter().any(|frame| frame.starts_with("runtime.(*scavengerState)"));
        match gives || scavenges || collector(sample.thread, user).is_some() {
            true => Heap::GivesBack,
            false if takes() => Heap::Takes,
            false => Heap::Neither,
        }
    }
}

/// Whether a cause may have most of what a program's threads do: others are of threads and processes that do nothing else.
fn is_of_workers(kind: Kind) -> bool {
    matches!(kind, Kind::Runtime | Kind::Memory | Kind::SharedLine | Kind::Calls)
}

/// CPU-seconds that a cause asks for and other programs have.
fn of_others(claim: &Claim) -> f64 {
    let outside = [Layer::Others, Layer::Steal].map(Source::Layer);
    claim.asks.iter().filter(|ask| outside.contains(&ask.from)).map(|ask| ask.seconds).sum()
}

/// Whether a cause is that a program stands still, for others or by itself.
fn is_of_waits(kind: Kind) -> bool {
    matches!(kind, Kind::Pool | Kind::Polling | Kind::Peer | Kind::Device)
}

/// What all causes of an observation share.
pub(super) struct Gains<'v, 'a> {
    view: &'v View<'a>,
    /// CPU-seconds that are the program's, or could be.
    own: f64,
    /// By sample: what it has to do with the heap, and whether it is of a thread of the program's own.
    heap: Vec<Heap>,
    works: Vec<bool>,
    /// CPU-seconds of such samples by process and thread.
    threads: HashMap<(&'a str, &'a str), f64>,
}

impl<'v, 'a> Gains<'v, 'a> {
    pub fn new(view: &'v View<'a>) -> Gains<'v, 'a> {
        // CPUs that others have do no more of the program's work without a cause.
        let others: f64 =
            [Layer::Others, Layer::Ncpu, Layer::Steal].map(|layer| view.seconds(layer)).iter().sum();
        let capacity = view.capacity().max(f64::MIN_POSITIVE);
        let works = |s: &Sampled<'_>| {
            !s.user.is_empty() && !is_java_machines(s.thread) && collector(s.thread, &s.user).is_none()
        };
        let works: Vec<bool> = view.samples.iter().map(works).collect();
        let mut threads: HashMap<(&str, &str), f64> = HashMap::new();
        for (s, _) in view.samples.iter().zip(&works).filter(|(_, works)| **works) {
            *threads.entry((s.process, s.thread)).or_default() += s.seconds;
        }
        let heap = view.samples.iter().map(Heap::of).collect();
        Gains { view, own: (capacity - others).max(LEFT * capacity), heap, works, threads }
    }

    /// The recording that it is of.
    pub fn view(&self) -> &'v View<'a> {
        self.view
    }

    /// Throughput without a cause over throughput with it, at least and at most. It was given these seconds, with this half-width of
    /// their 95 % interval.
    pub fn of(&self, claim: &Claim, seconds: f64, error: f64) -> (f64, f64) {
        let asked = claim.asked().max(f64::MIN_POSITIVE);
        let given = (seconds / asked).min(1.0);
        let beside = serial::idles_beside(self.view, claim) * given;
        let certain = (1.0 - error / seconds.max(f64::MIN_POSITIVE)).max(0.0);
        // CPUs that others give up are more than the program had.
        let outside = of_others(claim) * given;
        let seconds = (seconds - outside).max(0.0);
        let more = |outside: f64| without(outside, self.own + outside);
        let low = more(outside * certain) * without((seconds + beside) * certain, self.own);
        let dear = claim.dear + self.caused(claim) * given;
        let high = more(outside) * without((seconds + error + dear + beside).min(self.own), self.own);
        let others = [self.of_threads(claim, given, error + dear), self.of_waits(claim)];
        let high = others.into_iter().flatten().fold(high, f64::max);
        (self.of_the_whole(claim).map_or(low, |least| low.max(least)).min(high), high)
    }

    /// The gain of a program that does one thing at a time and stands still during the wait, whatever else runs on the CPUs.
    fn of_the_whole(&self, claim: &Claim) -> Option<f64> {
        let elapsed = self.view.elapsed();
        let waited = claim.waited.filter(|_| claim.lives > 0.0 && claim.lives <= elapsed)?;
        let active = active(self.view)?;
        let alone = is_of_waits(claim.kind) && waited + active <= TURNS * elapsed;
        alone.then(|| without(SPARED * waited, elapsed))
    }

    /// The gain where other threads do what one does: the CPUs have no more to give than they have beside the program's work. `None`
    /// where nothing of that was sampled.
    pub fn of_moved(&self) -> Option<(f64, f64)> {
        let work: f64 = self.view.samples.iter().map(|s| s.seconds).sum();
        let most = ((self.own + self.view.seconds(Layer::Ncpu)) / work.max(LEFT * self.own)).max(1.0);
        (work > 0.0).then_some((1.0 + SIBLING * (most - 1.0), most))
    }

    /// CPU-seconds of collecting and giving back what a cause's own code takes of the heap, which it was not asked for. Each process
    /// gives back what it takes.
    fn caused(&self, claim: &Claim) -> f64 {
        let mut asked = vec![0.0; self.view.samples.len()];
        for ask in &claim.asks {
            if let Source::Sample(at) = ask.from {
                asked[at] += ask.seconds;
            }
        }
        #[derive(Default)]
        struct Sums {
            samples: u64,
            takes: f64,
            of_cause: f64,
            gives: f64,
        }
        let mut of: HashMap<&str, Sums> = HashMap::new();
        for ((sample, heap), asked) in self.view.samples.iter().zip(&self.heap).zip(&asked) {
            let sums = of.entry(sample.process).or_default();
            match heap {
                Heap::Takes => {
                    sums.samples += sample.samples;
                    sums.takes += sample.seconds;
                    sums.of_cause += asked;
                }
                Heap::GivesBack => sums.gives += (sample.seconds - asked).max(0.0),
                Heap::Neither => {}
            }
        }
        let known = of.values().filter(|sums| sums.samples >= TAKES);
        known.map(|sums| sums.gives * (sums.of_cause / sums.takes.max(f64::MIN_POSITIVE)).min(1.0)).sum()
    }

    /// What the threads would do that a cause has most of, where it lies in such threads and their process has no time to spare.
    fn of_threads(&self, claim: &Claim, given: f64, more: f64) -> Option<f64> {
        if !is_of_workers(claim.kind) {
            return None;
        }
        let mut asked: HashMap<(&str, &str), f64> = HashMap::new();
        for ask in &claim.asks {
            let Source::Sample(at) = ask.from else { continue };
            if self.works[at] {
                let s = &self.view.samples[at];
                *asked.entry((s.process, s.thread)).or_default() += ask.seconds;
            }
        }
        let whole = |thread: &(&str, &str)| self.threads.get(thread).copied().unwrap_or(0.0);
        asked.retain(|thread, seconds| *seconds >= MOSTLY * whole(thread));
        let mut busy: HashMap<&str, bool> = HashMap::new();
        asked.retain(|(process, _), _| {
            *busy.entry(process).or_insert_with(|| self.view.busiest_thread(process) >= BUSY)
        });
        let (all, of_cause): (f64, f64) = (asked.keys().map(whole).sum(), asked.values().sum());
        let mostly = of_cause >= MOSTLY * claim.asked() && of_cause > 0.0;
        let spared = (of_cause * given + more).min(all);
        // Such a thread has less left than measuring adds: the upper end is not known.
        let open = all - spared < UNKNOWN * all;
        mostly.then(|| if open { 1.0 / LEFT } else { without(spared, all) })
    }

    /// What threads would do that wait for it, in the time of their lives that they do not wait, as far as the CPUs can.
    fn of_waits(&self, claim: &Claim) -> Option<f64> {
        let waited = claim.waited.filter(|_| claim.lives > 0.0)?;
        let by_time = without(waited, claim.lives);
        let mut work: f64 = self.view.samples.iter().map(|s| s.seconds).sum();
        for ask in &claim.asks {
            // Switches for it end with it.
            work -= match ask.from {
                Source::Sample(at) if self.view.samples[at].class != SampleClass::User => ask.seconds,
                _ => 0.0,
            };
        }
        // Where the program waits, ncpu runs on CPUs that would idle.
        let by_cpus = (self.own + self.view.seconds(Layer::Ncpu)) / work.max(LEFT * self.own);
        Some(by_time.min(by_cpus))
    }
}

/// How much more is done in the same time where `seconds` of `all` are not needed.
fn without(seconds: f64, all: f64) -> f64 {
    1.0 / (1.0 - seconds / all.max(f64::MIN_POSITIVE)).max(LEFT)
}

#[cfg(test)]
mod tests {
    use ncpu_record::Recording;
    use ncpu_table::Table;

    use crate::findings::Findings;
    use crate::findings::tests::{recording, stacks};
    use crate::fixtures::table;

    /// The gain of the first cause.
    fn gain(recording: &Recording) -> (f64, f64) {
        let found = Findings::of(recording).expect("findings").list;
        found.first().expect("a cause").gain
    }

    /// Stacks of threads, and how long the first of these runs in ten seconds.
    fn threads(of: &[(&'static str, &'static str, f64)], runs: f64) -> Vec<Table> {
        let text = |&(thread, stack, _): &(&'static str, &'static str, f64)| {
            ["on-cpu", "target", "user", "stamps", thread, stack]
        };
        let texts: Vec<[&str; 6]> = of.iter().map(text).collect();
        let counts: Vec<[f64; 1]> = of.iter().map(|(.., n)| [*n]).collect();
        let rows: Vec<(&[&str], &[f64])> = texts.iter().zip(&counts).map(|(t, n)| (&t[..], &n[..])).collect();
        let all: f64 = of.iter().map(|(.., n)| n).sum();
        vec![
            table("stacks", &["kind", "at", "class", "process", "thread", "stack"], &["samples"], &rows),
            table(
                "samples",
                &["at", "class", "detail", "process"],
                &["samples"],
                &[(&["target", "user", "x", "stamps"], &[all])],
            ),
            table(
                "threads",
                &["process", "thread"],
                &["tid", "CPU"],
                &[(&["stamps", of[0].0], &[7.0, runs])],
            ),
        ]
    }

    #[test]
    fn a_busy_thread_gains_what_it_spends_on_a_cause() {
        let of = |runs| {
            let tables = threads(
                &[
                    ("worker", "worker;main;measure;__strlen_avx2", 900.0),
                    ("worker", "worker;main;measure", 50.0),
                    ("C2 CompilerThre", "C2 CompilerThre;start_thread;compile", 650.0),
                ],
                runs,
            );
            gain(&recording(0.0, tables))
        };
        let (low, high) = of(9.5);
        // 9 of 20 CPU-seconds, and 9 of the 9.5 that the thread runs.
        assert!((1.6..1.9).contains(&low) && high > 12.0, "{low} {high}");
        assert!(of(4.0).1 < 2.0, "a thread that has time to spare does no more");
    }

    #[test]
    fn work_that_moves_to_other_threads_gains_the_cpus_that_idle() {
        let of = |stack: &'static str| {
            let tables = stacks(&[("user", stack, 950.0), ("user", "stamps;main;answer", 50.0)]);
            let found = Findings::of(&recording(0.0, tables)).expect("findings").list;
            found.first().map(|f| (f.gain, f.gain_at_most())).expect("a cause")
        };
        // 16 of 20 CPU-seconds are the program's.
        let (gain, most) =
            of("stamps;main;login (a.js:3);node::crypto::CryptoJob<node::crypto::PBKDF2Traits>::Run(int)");
        assert!((1.04..1.06).contains(&gain.0) && (1.2..1.3).contains(&gain.1), "{gain:?}");
        assert!(most.is_some());
    }

    #[test]
    fn another_way_that_takes_time_spares_less() {
        let of = |function: &str| {
            let stack: &'static str = format!("stamps;main;hash (a.js:3);{function}").leak();
            let tables = stacks(&[("user", stack, 1200.0), ("user", "stamps;main;work", 400.0)]);
            gain(&recording(0.0, tables)).0
        };
        let (whole, part) = (of("list_contains"), of("Builtins_BigIntMultiply"));
        // 12 of 20 CPU-seconds.
        assert!((2.2..2.6).contains(&whole) && (1.6..1.85).contains(&part), "{whole} {part}");
    }

    #[test]
    fn a_program_gets_no_more_cpus_than_others_give_up() {
        let mut tables = stacks(&[("user", "stamps;main;work", 400.0)]);
        tables.push(table(
            "queued",
            &["at", "process", "cause", "remedy"],
            &["seconds"],
            &[(&["other", "rustc", "nice -8", "renice"], &[9.0])],
        ));
        let cpus = |cpu: f64| [10.0, cpu, 2.0, 8.0];
        let cpus =
            table("cpu_time", &[], &["t", "CPU", "target", "other"], &[(&[], &cpus(0.0)), (&[], &cpus(1.0))]);
        let (low, high) =
            gain(&tables.into_iter().chain([cpus]).fold(recording(0.0, Vec::new()), Recording::with));
        // The program has 4 of 20 CPU-seconds, and would have 13.
        assert!((3.0..=3.4).contains(&low) && (3.0..=3.4).contains(&high), "{low} {high}");
    }

    #[test]
    fn what_a_cause_takes_it_gives_back_elsewhere() {
        let of = |takes: f64, others: f64| {
            let all = [
                ("user", "stamps;main;ExecScan;detoast_attr;__libc_malloc", takes),
                ("user", "stamps;main;ExecScan;detoast_attr", 600.0 - takes),
                ("user", "stamps;main;MemoryContextReset;cfree@GLIBC_2.2.5", 300.0),
                ("user", "stamps;main;work;__libc_malloc", others),
                ("user", "stamps;main;work", 700.0 - others),
            ];
            gain(&recording(0.0, stacks(&all))).1
        };
        let alone = of(0.0, 200.0);
        // 6 of 20 CPU-seconds; with all of 3, and with half of them.
        assert!((1.4..1.6).contains(&alone), "{alone}");
        assert!(of(200.0, 0.0) > 1.8, "{}", of(200.0, 0.0));
        assert!((1.55..1.8).contains(&of(200.0, 200.0)), "{}", of(200.0, 200.0));
    }

    #[test]
    fn threads_that_wait_could_work_in_that_time_as_far_as_there_are_cpus() {
        let of = |threads: f64, work: f64| {
            let mut tables = stacks(&[("user", "stamps;start_thread;handle;insert;update", work)]);
            tables.push(table(
                "user_locks",
                &["lock", "type", "process", "caller", "stack"],
                &["pid", "count", "block", "threads"],
                &[(
                    &["table_lock", "lock", "stamps", "insert", "__lll_lock_wait;pthread_mutex_lock;insert"],
                    &[7.0, 20_000.0, 30.0, threads],
                )],
            ));
            let idle = table("idle_time", &[], &["t", "ulock"], &[(&[], &[10.0, 14.0])]);
            let cpus = |cpu: f64| [10.0, cpu, work / 200.0, 10.0 - work / 200.0];
            let cpus = table(
                "cpu_time",
                &[],
                &["t", "CPU", "target", "idle"],
                &[(&[], &cpus(0.0)), (&[], &cpus(1.0))],
            );
            gain(&tables.into_iter().chain([idle, cpus]).fold(recording(0.0, Vec::new()), Recording::with)).1
        };
        // 30 of 60 thread-seconds; the program runs for 6 of 20 CPU-seconds.
        assert!(of(6.0, 600.0) > 1.9, "{}", of(6.0, 600.0));
    }
}

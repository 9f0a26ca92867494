//! Keeping pace on a machine that is full: thousands of threads that spin leave an observer a thousandth of a CPU, so that it neither
//! reports in time nor ends on request.
//!
//! A thread of its own, which runs before others and for a thousandth of a second, looks twice a second at how long the others
//! wait for a CPU. Where one waits most of the time, all of them run before ordinary threads (`SCHED_RR`) until the machine is no longer
//! crowded. They may take a fifth of one CPU this way, and a second of it in a burst: beyond that they are ordinary threads
//! again. A process that is asked to end has three seconds more.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// CPU time that may be taken ahead of others: for each second, and at once.
const SHARE: f64 = 0.2;
const BURST: f64 = 1.0;
/// Seconds of CPU time for the end, when names are found and the report is made.
const END: f64 = 3.0;
/// A thread that waits for more than this part of the time is starved.
const STARVED: f64 = 0.5;
/// Threads that want to run, for each CPU, on a machine that is crowded. A thread at nice -10 has half a CPU beside nine others.
const CROWD: usize = 8;
/// Times of the thread that reads them.
const OWN: &str = "/proc/thread-self/schedstat";
/// Priority among real-time threads: the least.
const PRIORITY: libc::c_int = 1;
/// Nice value where the kernel refuses real-time scheduling, as in control groups without a share of it.
const NICEST: libc::c_int = -20;

/// CPU time of a thread and its time in run queues, from `/proc/TID/schedstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    ran: Duration,
    waited: Duration,
}

impl Times {
    fn parse(text: &str) -> Option<Times> {
        let mut words = text.split_ascii_whitespace().map(|word| word.parse().map(Duration::from_nanos));
        Some(Times { ran: words.next()?.ok()?, waited: words.next()?.ok()? })
    }

    fn of(path: &str) -> Option<Times> {
        Times::parse(&fs::read_to_string(path).ok()?)
    }

    fn since(self, before: Times) -> Times {
        Times { ran: self.ran.saturating_sub(before.ran), waited: self.waited.saturating_sub(before.waited) }
    }
}

/// The part of the time between two looks in which the thread that looks neither ran, nor wanted to run, nor waited for its next look:
/// something kept the whole process from running. Less than a second of it may be a slow look.
fn stood_still(elapsed: Duration, own: Times) -> Duration {
    let still = elapsed.saturating_sub(LOOK + own.ran + own.waited);
    if still > Duration::from_secs(1) { still } else { Duration::ZERO }
}

/// Decides when threads are to run ahead of others.
#[derive(Debug)]
struct Policy {
    /// Seconds of CPU time that may still be taken ahead of others; less than 0 where too much was taken.
    left: f64,
    ahead: bool,
    ends: bool,
}

/// One look at the threads.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Time since the last look.
    elapsed: Duration,
    /// CPU time of all threads.
    used: Duration,
    /// The longest that one of them waited.
    waited: Duration,
    /// Whether far more threads want to run than there are CPUs.
    crowded: bool,
    /// Whether this process was asked to end.
    ends: bool,
}

impl Policy {
    fn new() -> Policy {
        Policy { left: BURST, ahead: false, ends: false }
    }

    /// Whether the threads are to run ahead of others from now on.
    fn decide(&mut self, look: Look) -> bool {
        if self.ahead {
            self.left -= look.used.as_secs_f64();
        }
        if look.ends && !self.ends {
            (self.left, self.ends) = (self.left.max(0.0) + END, true);
        }
        let least = if self.ahead { 0.0 } else { BURST * SHARE };
        let has_budget = self.left > least;
        let most = if self.ends { BURST + END } else { BURST };
        self.left = (self.left + look.elapsed.as_secs_f64() * SHARE).min(most);
        let starved = look.waited > look.elapsed.mul_f64(STARVED);
        self.ahead = has_budget && look.crowded && (self.ahead || starved);
        self.ahead
    }
}

/// While it is held, the threads of this process, and other processes that work for it, keep pace.
#[derive(Debug)]
pub struct Pace {
    end: Option<Sender<()>>,
    looks: Option<JoinHandle<()>>,
    began: Instant,
    /// ms in which this process stood still.
    stood: Arc<AtomicU64>,
    /// The thread that observes, and what it had waited when this began.
    thread: String,
    before: Times,
}

impl Pace {
    /// Begins to keep pace; the calling thread is the one that observes. Where the kernel counts no time in run queues, or the user may
    /// not go ahead of others, nothing happens. `stop` is set when this process is to end.
    pub fn keep(stop: &Arc<AtomicBool>, processes: Vec<u32>) -> Pace {
        let stop = Arc::clone(stop);
        let thread = format!("/proc/self/task/{}/schedstat", rustix::thread::gettid().as_raw_nonzero());
        let before = Times::of(&thread);
        let (end, ended) = channel();
        let stood = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&stood);
        let looks = before.and_then(|_| {
            let keep = move || {
                let mut policy = Policy::new();
                let mut threads = Threads::new(processes);
                let mut own = Times::of(OWN).unwrap_or_default();
                // A look takes a thousandth of a second, which is more than a fair share of a full machine.
                go(threads.own as libc::pid_t, true);
                threads.look();
                while matches!(ended.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                    let was = policy.ahead;
                    // Without the look that follows, which takes long on a full machine.
                    let (since, now) = (threads.looked.elapsed(), Times::of(OWN).unwrap_or(own));
                    counted
                        .fetch_add(stood_still(since, now.since(own)).as_millis() as u64, Ordering::Relaxed);
                    own = now;
                    let look = Look { ends: stop.load(Ordering::Relaxed), ..threads.look() };
                    let is = policy.decide(look);
                    if was || is {
                        threads.go(is);
                    }
                }
                if policy.ahead {
                    threads.go(false);
                }
            };
            std::thread::Builder::new().name("ncpu-pace".into()).stack_size(256 << 10).spawn(keep).ok()
        });
        Pace {
            end: Some(end),
            looks,
            began: Instant::now(),
            stood,
            thread,
            before: before.unwrap_or_default(),
        }
    }

    /// That this process was late because it was stopped, or because others held the CPUs, if it was.
    pub fn note(&self) -> Option<String> {
        let elapsed = self.began.elapsed();
        let stood = Duration::from_millis(self.stood.load(Ordering::Relaxed));
        let waited = || Times::of(&self.thread).map(|times| times.since(self.before).waited);
        note_of_stops(stood, elapsed).or_else(|| note(waited()?, elapsed))
    }
}

fn note_of_stops(stood: Duration, elapsed: Duration) -> Option<String> {
    (!stood.is_zero()).then(|| {
        format!(
            "ncpu itself was stopped for {:.1} of {:.1} s (SIGSTOP, Ctrl-Z, a frozen control group): its intervals are late, samples may be lost, and a command that ended meanwhile counts until ncpu went on",
            stood.as_secs_f64(),
            elapsed.as_secs_f64()
        )
    })
}

fn note(waited: Duration, elapsed: Duration) -> Option<String> {
    (waited > Duration::from_secs(1) && waited > elapsed.mul_f64(STARVED)).then(|| {
        format!(
            "ncpu itself waited for a CPU for {:.1} of {:.1} s, since other threads held all of them: its intervals and this report are late",
            waited.as_secs_f64(),
            elapsed.as_secs_f64()
        )
    })
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.end.take();
        if let Some(looks) = self.looks.take() {
            // It ends at once; what it may have panicked with does not matter to what was observed.
            let _ = looks.join();
        }
    }
}

/// Lets this process, and those that it starts from now on, go ahead of others after it has given up root.
pub fn allow() {
    let limit = libc::rlimit { rlim_cur: PRIORITY as libc::rlim_t, rlim_max: PRIORITY as libc::rlim_t };
    // SAFETY: a live local. Refused, this process runs as others do.
    unsafe { libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const limit) };
}

/// The threads of this process and of those that work for it.
struct Threads {
    processes: Vec<u32>,
    /// The thread that looks.
    own: u32,
    known: HashMap<u32, Times>,
    looked: Instant,
}

impl Threads {
    fn new(mut processes: Vec<u32>) -> Threads {
        processes.push(std::process::id());
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        Threads { processes, own, known: HashMap::new(), looked: Instant::now() }
    }

    fn look(&mut self) -> Look {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let threads = |pid: &u32| {
            fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().filter_map(number)
        };
        let ids = self.processes.iter().flat_map(threads).filter(|&thread| thread != self.own);
        let known = ids.filter_map(|id| Some((id, Times::of(&format!("/proc/{id}/schedstat"))?)));
        let known: HashMap<u32, Times> = known.collect();
        let (mut used, mut waited) = (Duration::ZERO, Duration::ZERO);
        for (id, times) in &known {
            // A thread that is new has run and waited since the last look.
            let before = self.known.get(id).copied().unwrap_or_default();
            used += times.ran.saturating_sub(before.ran);
            waited = waited.max(times.waited.saturating_sub(before.waited));
        }
        self.known = known;
        let elapsed = self.looked.elapsed();
        self.looked = Instant::now();
        Look { elapsed, used, waited, crowded: is_crowded(), ends: false }
    }

    fn go(&self, ahead: bool) {
        for &id in self.known.keys() {
            go(id as libc::pid_t, ahead);
        }
    }
}

/// Whether far more threads want to run than there are CPUs.
fn is_crowded() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    running(&text).is_some_and(|running| running > CROWD * cpus)
}

/// How many threads want to run, from `/proc/loadavg`.
fn running(loadavg: &str) -> Option<usize> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

/// Has a thread run ahead of others, or as others do. Its children do not inherit that.
fn go(thread: libc::pid_t, ahead: bool) {
    let set = |policy: libc::c_int, priority: libc::c_int| {
        let priority = libc::sched_param { sched_priority: priority };
        // SAFETY: a live local, which is copied.
        unsafe { libc::sched_setscheduler(thread, policy, &raw const priority) == 0 }
    };
    if ahead {
        if !set(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, PRIORITY) {
            // SAFETY: no pointer is given. Refused, it runs as others do.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.unsigned_abs(), NICEST) };
        }
    } else if !set(libc::SCHED_OTHER, 0) {
        // A process that has given up root may not take the other mark back.
        set(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn look(waited: u64, used: u64, crowded: bool) -> Look {
        Look { elapsed: MS(500), used: MS(used), waited: MS(waited), crowded, ends: false }
    }

    #[test]
    fn who_is_starved_on_a_crowded_machine_goes_ahead_until_it_is_not_crowded() {
        let mut policy = Policy::new();
        assert!(!policy.decide(look(200, 100, true)), "it waits for less than half of the time");
        assert!(!policy.decide(look(499, 1, false)), "there are few others");
        assert!(policy.decide(look(499, 1, true)));
        for _ in 0..100 {
            assert!(policy.decide(look(0, 20, true)), "it waits no longer, and takes little");
        }
        assert!(!policy.decide(look(0, 20, false)));
    }

    #[test]
    fn no_more_than_a_fifth_of_a_cpu_is_taken_ahead_of_others() {
        let mut policy = Policy::new();
        let (mut ahead, rounds) = (0, 1000);
        for _ in 0..rounds {
            // It takes all that it can get.
            let used = if policy.ahead { 500 } else { 1 };
            ahead += usize::from(policy.decide(look(499, used, true)));
        }
        let share = ahead as f64 / f64::from(rounds);
        assert!((0.1..=SHARE + 0.01).contains(&share), "{share}");
    }

    #[test]
    fn the_end_has_time_of_its_own_once() {
        let mut policy = Policy::new();
        while policy.left > 0.0 {
            policy.decide(look(499, 499, true));
        }
        policy.decide(look(499, 499, true));
        assert!(!policy.ahead);
        let mut rounds = 0;
        while policy.decide(Look { ends: true, ..look(499, if policy.ahead { 500 } else { 1 }, true) }) {
            rounds += 1;
        }
        assert!((6..=10).contains(&rounds), "three seconds and what comes meanwhile: {rounds}");
    }

    #[test]
    fn lateness_is_worth_a_note() {
        assert_eq!(note(MS(900), MS(1000)), None);
        assert_eq!(note(MS(25_000), MS(60_000)), None);
        let text = note(MS(4200), MS(8000)).unwrap();
        assert!(text.starts_with("ncpu itself waited for a CPU for 4.2 of 8.0 s"), "{text}");
    }

    #[test]
    fn a_stopped_observer_says_so() {
        let own = |ran, waited| Times { ran: MS(ran), waited: MS(waited) };
        assert_eq!(stood_still(MS(5500), own(1, 0)), MS(4999));
        assert_eq!(stood_still(MS(5500), own(10, 4900)), Duration::ZERO, "it waited for a CPU");
        assert_eq!(stood_still(MS(900), own(1, 0)), Duration::ZERO, "a slow look");
        assert_eq!(note_of_stops(Duration::ZERO, MS(9000)), None);
        let text = note_of_stops(MS(4999), MS(9000)).unwrap();
        assert!(text.starts_with("ncpu itself was stopped for 5.0 of 9.0 s"), "{text}");
    }

    #[test]
    fn files_of_proc_are_read() {
        assert_eq!(
            Times::parse("1500 70 3\n"),
            Some(Times { ran: Duration::from_nanos(1500), waited: Duration::from_nanos(70) })
        );
        assert_eq!(Times::parse(""), None);
        assert_eq!(running("20.00 18.28 12.36 15013/15400 12\n"), Some(15013));
        assert_eq!(running("x"), None);
        let mut threads = Threads::new(Vec::new());
        let first = threads.look();
        assert!(first.used > Duration::ZERO && threads.known.contains_key(&std::process::id()));
        assert!(!threads.known.contains_key(&threads.own));
    }

    #[test]
    fn a_thread_goes_ahead_and_back_and_what_it_starts_does_not() {
        let policy = || {
            // SAFETY: no pointer is given.
            unsafe { libc::sched_getscheduler(0) }
        };
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            go(own, true);
            if policy() != libc::SCHED_RR | libc::SCHED_RESET_ON_FORK {
                eprintln!("skipped: the kernel or the control group refuses real-time scheduling");
                return;
            }
            let child = std::thread::spawn(policy).join().unwrap();
            assert_eq!(child, libc::SCHED_OTHER);
            go(own, false);
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }
}

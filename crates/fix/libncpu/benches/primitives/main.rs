//! Each primitive beside its peers, in one run: `cargo bench -p libncpu -- --help`, or `make bench-primitives`.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

mod copies;
mod counters;
mod env;
mod mutexes;
mod options;
mod rwlocks;
mod timers;
mod vmem;

use options::Options;

/// A primitive that several threads use at once, over and over.
pub trait Subject: Sync {
    /// Its name; ours are those of `ncpu`.
    fn name(&self) -> &'static str;
    /// Repeats the operation until `stop`; returns the number of operations. One virtual call per run.
    fn hammer(&self, stop: &AtomicBool, shape: Shape) -> u64;
    /// Receives the number of operations of all threads since the last call; panics if it does not match.
    fn check(&self, _operations: u64) {}
}

/// Loops of [`work`] within and between critical sections.
#[derive(Clone, Copy)]
pub struct Shape {
    /// In nanoseconds, within a critical section.
    pub inside: u64,
    /// In nanoseconds, between critical sections.
    pub outside: u64,
}

/// A table: primitives of one kind. The first is ours, and is compared with the best of the others.
pub struct Group {
    /// For `--group`.
    pub name: &'static str,
    /// The operation.
    pub about: &'static str,
    /// Whether lengths of critical sections matter.
    pub sections: bool,
    /// The compared primitives.
    pub subjects: Vec<Box<dyn Subject>>,
}

fn ours(subject: &dyn Subject) -> bool {
    subject.name().starts_with("ncpu")
}

/// Busy, without memory accesses.
#[inline]
pub fn work(loops: u64) {
    for i in 0..loops {
        black_box(i);
    }
}

/// Loops of [`work`] in a nanosecond.
fn loops_per_ns() -> f64 {
    let once = |_| {
        let start = Instant::now();
        work(20_000);
        2e4 / start.elapsed().as_nanos() as f64
    };
    // The best of many short runs: those without interruptions.
    (0..200).map(once).fold(0.0, f64::max)
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    // SAFETY: a zeroed structure is a valid one, and is writable.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Operations a second, or CPU second, and the thread with the fewest over the mean: 1 is fair.
fn run(subject: &dyn Subject, threads: usize, shape: Shape, options: &Options) -> (f64, f64) {
    let (stop, go, ready) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
    let counts: Vec<OnceLock<(Instant, u64)>> = (0..threads).map(|_| OnceLock::new()).collect();
    let (mut end, mut cpu) = (Instant::now(), 0.0);
    std::thread::scope(|scope| {
        for count in &counts {
            let (stop, go, ready) = (&stop, &go, &ready);
            scope.spawn(move || {
                ready.fetch_add(1, Relaxed);
                // Spins instead of sleeping at a barrier, whose mutex would release the threads one by one,
                // each when it gets a CPU: many threads would not have begun by the end.
                while !go.load(Relaxed) {
                    std::thread::yield_now();
                }
                let begin = Instant::now();
                count.get_or_init(|| (begin, subject.hammer(stop, shape)));
            });
        }
        while ready.load(Relaxed) < threads {
            std::thread::yield_now();
        }
        cpu = cpu_seconds();
        go.store(true, Relaxed);
        std::thread::sleep(options.time_of(threads));
        stop.store(true, Relaxed);
        end = Instant::now();
    });
    let counts: Vec<(Instant, u64)> = counts.into_iter().filter_map(OnceLock::into_inner).collect();
    let total: u64 = counts.iter().map(|c| c.1).sum();
    subject.check(total);
    let least = counts.iter().map(|c| c.1).min().unwrap_or(0) as f64;
    // With more threads than CPUs some have worked for a long time before this one runs again.
    let begin = counts.iter().map(|c| c.0).min().unwrap_or(end);
    let elapsed = end.duration_since(begin).as_secs_f64();
    let seconds = if options.per_cpu { cpu_seconds() - cpu } else { elapsed };
    (total as f64 / seconds, least * threads as f64 / total.max(1) as f64)
}

fn table(group: &Group, options: &Options, per_ns: f64) {
    let subjects: Vec<_> = group.subjects.iter().filter(|subject| options.wants(subject.name())).collect();
    if subjects.is_empty() {
        return; // Not selected by --only.
    }
    println!("{}: {}", group.name, group.about);
    print!("{:>7} {:>6} {:>7}", "threads", "inside", "outside");
    for subject in &subjects {
        print!(" {:>11}", subject.name());
    }
    println!(" {:>6} {:>6}", "ratio", "scaled");
    let sections = if group.sections { &options.sections[..] } else { &[(0, 0)] };
    // By section, subject, threads and round; the thread with the fewest likewise.
    let samples = || vec![vec![vec![Vec::new(); options.threads.len()]; subjects.len()]; sections.len()];
    let (mut rates, mut least) = (samples(), samples());
    // Rounds outermost, so that a disturbance affects all alike, and compared subjects next to each other.
    for _ in 0..options.rounds {
        for (section, &(inside, outside)) in sections.iter().enumerate() {
            let loops = |ns: u64| (ns as f64 * per_ns) as u64;
            let shape = Shape { inside: loops(inside), outside: loops(outside) };
            for (i, subject) in subjects.iter().enumerate() {
                for (at, &threads) in options.threads.iter().enumerate() {
                    let sample = run(subject.as_ref(), threads, shape, options);
                    rates[section][i][at].push(sample.0);
                    least[section][i][at].push(sample.1);
                }
            }
        }
    }
    for (at, threads) in options.threads.iter().enumerate() {
        for (section, (inside, outside)) in sections.iter().enumerate() {
            let picked: Vec<f64> = rates[section].iter().map(|by| options.pick(&by[at])).collect();
            print!("{threads:>7} {inside:>6} {outside:>7}");
            for rate in &picked {
                print!(" {:>11.3}", rate / 1e6);
            }
            let peers = subjects.iter().zip(&picked).filter(|(subject, _)| !ours(subject.as_ref()));
            let best = peers.map(|(_, rate)| *rate).fold(0.0, f64::max);
            let first = &rates[section][0];
            let scaled: Vec<f64> =
                first[at].iter().zip(&first[0]).map(|(now, fewest)| now / fewest).collect();
            println!(" {:>6.2} {:>6.2}", picked[0] / best, options::median(&scaled));
        }
    }
    if options.threads.iter().any(|&threads| threads > 1) {
        println!("the least thread over the mean");
    }
    for (at, threads) in options.threads.iter().enumerate().filter(|(_, threads)| **threads > 1) {
        for (section, (inside, outside)) in sections.iter().enumerate() {
            print!("{threads:>7} {inside:>6} {outside:>7}");
            for by in &least[section] {
                print!(" {:>11.3}", options::median(&by[at]));
            }
            println!();
        }
    }
    println!();
}

fn main() {
    let options = Options::from_args();
    let per_ns = loops_per_ns();
    println!(
        "million operations a {}second, {} of {} samples of {} ms, or 20 for each thread of a CPU;\n\
         ratio: the first over the best peer; scaled: the first over itself with the fewest threads, in the same round;\n\
         the second part of a table has each lock's thread with the fewest operations, over the mean of its threads\n",
        if options.per_cpu { "CPU-" } else { "" },
        if options.best { "best" } else { "median" },
        options.rounds,
        options.time.as_millis(),
    );
    let groups = [
        mutexes::group(),
        mutexes::robust(),
        rwlocks::group(99),
        rwlocks::group(50),
        counters::bounded_far(),
        counters::bounded_near(),
        counters::plain(),
        vmem::ids(),
        vmem::io(),
    ];
    for group in groups.into_iter().chain(env::groups()) {
        if options.wants_group(group.name) {
            table(&group, &options, per_ns);
        }
    }
    copies::tables(&options);
    // Created only if requested, because its timers are armed from the start.
    if options.wants_group("timers") {
        table(&timers::group(), &options, per_ns);
    }
}

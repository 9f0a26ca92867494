//! Each primitive beside its peers, in one run: `cargo bench -p libncpu -- [--help]`, or `make bench-primitives`.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Barrier;
use std::time::{Duration, Instant};

mod options;
mod peers;

use options::Options;
use peers::{Data, Lock};

/// What a run of threads over a lock came to.
struct Sample {
    ops_per_s: f64,
    /// The thread with the fewest operations over the mean: 1 is fair.
    least: f64,
}

/// Busy for about `ns`, without memory.
#[inline]
fn work(loops: u64) {
    for i in 0..loops {
        black_box(i);
    }
}

/// Loops of [`work`] in a nanosecond.
fn loops_per_ns() -> f64 {
    (0..5)
        .map(|_| {
            let start = Instant::now();
            work(1_000_000);
            1e6 / start.elapsed().as_nanos() as f64
        })
        .fold(0.0, f64::max)
}

fn run(lock: &dyn Lock, threads: usize, inside: u64, outside: u64, time: Duration) -> Sample {
    let data = Data(UnsafeCell::new([0; 2]));
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let mut elapsed = Duration::ZERO;
    std::thread::scope(|scope| {
        for count in &counts {
            let (data, stop, start) = (&data, &stop, &start);
            scope.spawn(move || {
                start.wait();
                let n = lock.hammer(stop, data, inside, outside);
                count.store(n, Relaxed);
            });
        }
        start.wait();
        let begin = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        elapsed = begin.elapsed();
    });
    let total: u64 = counts.iter().map(|n| n.load(Relaxed)).sum();
    let [a, b] = data.0.into_inner();
    assert!(a == total && b == total, "{} lost updates: {a} and {b} of {total}", lock.name());
    let least = counts.iter().map(|n| n.load(Relaxed)).min().unwrap_or(0);
    Sample { ops_per_s: total as f64 / elapsed.as_secs_f64(), least: least as f64 * threads as f64 / total.max(1) as f64 }
}

fn main() {
    let options = Options::from_args();
    let per_ns = loops_per_ns();
    let locks: Vec<Box<dyn Lock>> = peers::all().into_iter().filter(|lock| options.wants(lock.name())).collect();
    let (ours, others): (Vec<_>, Vec<_>) = locks.iter().partition(|lock| lock.ours());
    println!("million operations a second, {} of {} rounds of {} ms; ratio: ncpu over the best peer",
        if options.best { "best" } else { "median" },
        options.rounds, options.time.as_millis());
    print!("{:>7} {:>6} {:>7}", "threads", "inside", "outside");
    for lock in ours.iter().chain(&others) {
        print!(" {:>12}", lock.name());
    }
    println!(" {:>6} {:>6}", "ratio", "least");
    for &threads in &options.threads {
        for &(inside, outside) in &options.sections {
            let loops = |ns: u64| (ns as f64 * per_ns) as u64;
            let mut samples: Vec<Vec<f64>> = vec![Vec::new(); locks.len()];
            let mut least = Vec::new();
            // Rounds outermost, so that a disturbance hits all alike.
            for _ in 0..options.rounds {
                for (samples, lock) in samples.iter_mut().zip(ours.iter().chain(&others)) {
                    let sample = run(lock.as_ref(), threads, loops(inside), loops(outside), options.time);
                    samples.push(sample.ops_per_s);
                    if lock.name() == "ncpu" {
                        least.push(sample.least);
                    }
                }
            }
            let rates: Vec<f64> = samples.into_iter().map(|samples| options.pick(samples)).collect();
            print!("{threads:>7} {inside:>6} {outside:>7}");
            for rate in &rates {
                print!(" {:>12.3}", rate / 1e6);
            }
            let best = rates[ours.len()..].iter().copied().fold(0.0, f64::max);
            let ratio = rates.first().map_or(0.0, |first| first / best);
            println!(" {ratio:>6.2} {:>6.2}", if least.is_empty() { f64::NAN } else { options::median(least) });
        }
    }
}

//! The time that a thread waits for a contended lock: `cargo bench -p libncpu --bench waits -- [THREADS]
//! [SECONDS] [NS]`.
//!
//! Throughput hides a thread that is never served. Here each thread notes the longest time between two of its critical
//! sections (of NS nanoseconds each), and how many it had. Locks take turns, and each has a line with the median of
//! three samples.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Calls something with a lock held.
type With = Box<dyn Fn(&mut dyn FnMut()) + Sync>;

fn locks() -> Vec<(&'static str, With)> {
    let (plain, fair) = (libncpu::Mutex::new(()), libncpu::Mutex::new_fair(()));
    let mcs = libncpu::McsMutex::new(());
    let (std, parking_lot, usync) =
        (std::sync::Mutex::new(()), parking_lot::Mutex::new(()), usync::Mutex::new(()));
    vec![
        (
            "ncpu",
            Box::new(move |section| {
                let _guard = plain.lock();
                section()
            }),
        ),
        (
            "ncpu-fair",
            Box::new(move |section| {
                let _guard = fair.lock();
                section()
            }),
        ),
        ("ncpu-mcs", Box::new(move |section| mcs.with(|()| section()))),
        (
            "std",
            Box::new(move |section| {
                let _guard = std.lock().expect("no panics");
                section()
            }),
        ),
        (
            "parking_lot",
            Box::new(move |section| {
                let _guard = parking_lot.lock();
                section()
            }),
        ),
        (
            "usync",
            Box::new(move |section| {
                let _guard = usync.lock();
                section()
            }),
        ),
    ]
}

/// The results of a sample.
#[derive(Clone, Copy)]
struct Sample {
    /// Million critical sections a second.
    rate: f64,
    /// The thread with the fewest over the mean.
    least: f64,
    /// The longest time that any thread spent without the lock, ms.
    longest: f64,
    /// The median over threads of their longest time, ms.
    usual: f64,
}

fn sample(with: &With, threads: usize, time: Duration, inside: Duration) -> Sample {
    let (stop, go) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let work = || {
        let begin = Instant::now();
        while begin.elapsed() < inside {
            std::hint::spin_loop();
        }
    };
    let hammer = || {
        go.wait();
        let (mut n, mut longest, mut last) = (0u64, Duration::ZERO, Instant::now());
        while !stop.load(Relaxed) {
            with(&mut || {
                if !inside.is_zero() {
                    work();
                }
                black_box(&mut n);
            });
            n += 1;
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        (n, longest)
    };
    let mut counts = Vec::new();
    let mut elapsed = Duration::ZERO;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(hammer)).collect();
        go.wait();
        let begin = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        elapsed = begin.elapsed();
        counts = workers.into_iter().map(|w| w.join().expect("no panics")).collect();
    });
    let total: u64 = counts.iter().map(|c| c.0).sum();
    let least = counts.iter().map(|c| c.0).min().unwrap_or(0) as f64;
    let mut waits: Vec<f64> = counts.iter().map(|c| c.1.as_secs_f64() * 1e3).collect();
    waits.sort_by(f64::total_cmp);
    Sample {
        rate: total as f64 / elapsed.as_secs_f64() / 1e6,
        least: least * threads as f64 / total.max(1) as f64,
        longest: waits[waits.len() - 1],
        usual: waits[waits.len() / 2],
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (threads, seconds, inside) = (number(0, 64.0) as usize, number(1, 1.0), number(2, 0.0));
    let (time, inside) = (Duration::from_secs_f64(seconds), Duration::from_nanos(inside as u64));
    let locks = locks();
    let mut samples = vec![Vec::new(); locks.len()];
    for _ in 0..3 {
        for (i, (_, with)) in locks.iter().enumerate() {
            samples[i].push(sample(with, threads, time, inside));
        }
    }
    println!("{threads} threads, {} ns inside, {seconds} s a sample, medians of 3", inside.as_nanos());
    println!("{:<12} {:>8} {:>7} {:>12} {:>12}", "lock", "M/s", "least", "longest ms", "usual ms");
    for ((name, _), samples) in locks.iter().zip(&samples) {
        let of = |field: fn(&Sample) -> f64| median(samples.iter().map(field));
        println!(
            "{name:<12} {:>8.2} {:>7.2} {:>12.1} {:>12.1}",
            of(|s| s.rate),
            of(|s| s.least),
            of(|s| s.longest),
            of(|s| s.usual)
        );
    }
}

//! The time from a timer's expiry to the call of its code.

use super::Options;
use libncpu::innards::{Alarm, clock};
use libncpu::{Timers, When};
use std::sync::mpsc;
use std::time::Duration;

/// Lateness in ns of N expiries, one after the other.
type Sampler = fn(Duration, usize) -> Vec<u64>;

const SUBJECTS: [(&str, Sampler); 4] =
    [("ncpu", ours), ("tokio", tokio), ("timerfd", timerfd), ("nanosleep", nanosleep)];

fn at(ns: u64) -> When {
    When::at(libncpu::Instant::from_timespec(0, 0).expect("a time").plus(ns))
}

/// A timer that arms itself.
fn ours(after: Duration, samples: usize) -> Vec<u64> {
    let after = after.as_nanos() as u64;
    let timers = Timers::new().expect("memory");
    let (tell, told) = mpsc::channel();
    // The first starts a thread, and is not counted.
    let (mut late, mut due) = (Vec::with_capacity(samples), 0);
    let timer = timers
        .timer(move |expiry| {
            let now = clock();
            if due != 0 {
                late.push(now.saturating_sub(due));
            }
            if late.len() < samples {
                due = clock() + after;
                expiry.arm(at(due)).expect("a helper");
            } else {
                tell.send(std::mem::take(&mut late)).expect("a receiver");
            }
        })
        .expect("memory");
    timer.arm(Duration::from_millis(1)).expect("a helper");
    told.recv().expect("samples")
}

/// A task that sleeps, alone in its runtime.
fn tokio(after: Duration, samples: usize) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut late = Vec::with_capacity(samples);
        for _ in 0..samples {
            let due = clock() + after.as_nanos() as u64;
            tokio::time::sleep(after).await;
            late.push(clock().saturating_sub(due));
        }
        late
    })
}

/// A thread that reads a descriptor of its own.
fn timerfd(after: Duration, samples: usize) -> Vec<u64> {
    let alarm = Alarm::new().expect("a descriptor");
    (0..samples)
        .map(|_| {
            let due = clock() + after.as_nanos() as u64;
            alarm.set(due).expect("set");
            alarm.wait().expect("read");
            clock().saturating_sub(due)
        })
        .collect()
}

/// A thread that sleeps, with the timer slack that threads have unless they ask for less: 50 µs.
fn nanosleep(after: Duration, samples: usize) -> Vec<u64> {
    (0..samples)
        .map(|_| {
            let due = clock() + after.as_nanos() as u64;
            std::thread::sleep(after);
            clock().saturating_sub(due)
        })
        .collect()
}

pub(super) fn table(options: &Options) {
    println!("lateness: from the requested time to the running code, in microseconds");
    println!(
        "{:>9} {:<9} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "after", "", "expiries", "p50", "p99", "p99.9", "most"
    );
    for &after in &options.after {
        let fit = (options.time.as_nanos() / (after.as_nanos() + 50_000)).max(1) as usize;
        let part = options.samples.min(fit).div_ceil(options.rounds);
        let mut all = SUBJECTS.map(|_| Vec::new());
        for _ in 0..options.rounds {
            for (late, (_, sample)) in all.iter_mut().zip(SUBJECTS) {
                late.extend(sample(after, part));
            }
        }
        for (late, (name, _)) in all.iter_mut().zip(SUBJECTS) {
            late.sort_unstable();
            let share = |share: f64| late[((late.len() - 1) as f64 * share).round() as usize] as f64 / 1e3;
            println!(
                "{:>9} {name:<9} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
                after.as_micros(),
                late.len(),
                share(0.5),
                share(0.99),
                share(0.999),
                share(1.0)
            );
        }
    }
    println!();
}

//! Four tasks of tokio on four workers that each count in turn below one lock.
//!
//! usage: counters std|async|parts [SECONDS]
//! `std` is a `std::sync::Mutex`, which holds up the worker's thread; `async` is tokio's, which holds up the task alone, so
//! that the worker sleeps; `parts` is a lock for each task. Writes how often they counted, and how long they waited in all.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Some hundred microseconds of work.
fn count(sum: &mut u64) {
    for i in 0..100_000u64 {
        *sum = black_box(sum.wrapping_mul(31).wrapping_add(i));
    }
}

#[inline(never)]
fn count_below(lock: &Mutex<u64>) -> Duration {
    let begin = Instant::now();
    let mut sum = lock.lock().expect("nobody panics");
    let waited = begin.elapsed();
    count(&mut sum);
    waited
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "std".into());
    let seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let one = Arc::new(Mutex::new(0));
    let of_tokio = Arc::new(tokio::sync::Mutex::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = if kind == "parts" { Arc::new(Mutex::new(0)) } else { one.clone() };
            let of_tokio = (kind == "async").then(|| of_tokio.clone());
            runtime.spawn(async move {
                let (mut n, mut waited) = (0u64, Duration::ZERO);
                while Instant::now() < end {
                    match &of_tokio {
                        None => waited += count_below(&lock),
                        Some(lock) => {
                            let begin = Instant::now();
                            let mut sum = lock.lock().await;
                            waited += begin.elapsed();
                            count(&mut sum);
                        }
                    }
                    n += 1;
                    tokio::task::yield_now().await;
                }
                (n, waited)
            })
        })
        .collect();
    let (mut n, mut waited) = (0, Duration::ZERO);
    for task in tasks {
        let (of_it, its) = runtime.block_on(task).expect("nobody panics");
        n += of_it;
        waited += its;
    }
    println!("{:.0} counts/s, tasks waited {:.1} s", n as f64 / seconds, waited.as_secs_f64());
}

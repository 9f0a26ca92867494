//! Many more threads than CPUs on the real machine, because the model checker's memory is sequentially
//! consistent.
//!
//! No timing is asserted. `LIBNCPU_STRESS=N` multiplies the work by N; `make test-deep` sets it.

use libncpu::{Mutex, RawMutex};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn effort() -> u64 {
    std::env::var("LIBNCPU_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Two halves that differ only inside a critical section.
fn hammer(threads: usize, each: u64, take: impl Fn(&Mutex<(u64, u64)>, u64) -> bool + Sync) {
    let (mutex, got) = (Mutex::new((0, 0)), AtomicUsize::new(0));
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for i in 0..each {
                    if take(&mutex, i) {
                        got.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    let got = got.into_inner() as u64;
    assert_eq!(mutex.into_inner(), (got, got));
}

fn add(counts: &mut (u64, u64), yield_inside: bool) -> bool {
    assert_eq!(counts.0, counts.1);
    counts.0 += 1;
    if yield_inside {
        // Makes the next thread run where the owner did, and find it off its CPU.
        std::thread::yield_now();
    }
    counts.1 += 1;
    true
}

#[test]
fn short_sections() {
    for threads in [2, 3, 8, 64] {
        hammer(threads, 200_000 / threads as u64 * effort(), |mutex, _| add(&mut mutex.lock(), false));
    }
}

#[test]
fn owners_that_leave_their_cpu() {
    for threads in [2, 8, 64] {
        hammer(threads, 20_000 / threads as u64 * effort(), |mutex, i| add(&mut mutex.lock(), i % 7 == 0));
    }
}

#[test]
fn waiters_that_give_up() {
    hammer(32, 1_000 * effort(), |mutex, i| match i % 3 {
        0 => mutex.try_lock().is_some_and(|mut counts| add(&mut counts, i % 2 == 0)),
        1 => mutex
            .try_lock_for(Duration::from_micros(i % 200))
            .is_some_and(|mut counts| add(&mut counts, i % 2 == 0)),
        _ => add(&mut mutex.lock(), i % 5 == 0),
    });
}

#[test]
fn owners_that_sleep() {
    hammer(16, 40 * effort(), |mutex, _| {
        let mut counts = mutex.lock();
        std::thread::sleep(Duration::from_micros(300));
        add(&mut counts, false)
    });
}

/// Short bursts with quiet between: unlocks go from plain stores to barriers and back.
#[test]
fn bursts() {
    for _ in 0..200 * effort() {
        hammer(4, 50, |mutex, i| add(&mut mutex.lock(), i % 16 == 0));
    }
}

#[test]
fn ten_thousand_threads() {
    let mutex = Mutex::new(0);
    std::thread::scope(|s| {
        let mut started = 0;
        let held = mutex.lock();
        for _ in 0..10_000 {
            // A container may allow fewer.
            let thread =
                std::thread::Builder::new().stack_size(32 << 10).spawn_scoped(s, || *mutex.lock() += 1);
            started += usize::from(thread.is_ok());
        }
        drop(held);
        assert!(started > 100, "only {started} threads could be started");
        while *mutex.lock() < started {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_panic_unlocks() {
    let mutex = std::sync::Arc::new(Mutex::new(1));
    let other = mutex.clone();
    let died = std::thread::spawn(move || {
        let _guard = other.lock();
        panic!("on purpose");
    });
    assert!(died.join().is_err());
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn deadlines_pass() {
    let mutex = RawMutex::new();
    mutex.lock();
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(!mutex.try_lock());
            assert!(!mutex.try_lock_until(libncpu::Instant::after(Duration::from_millis(5))));
            assert!(!mutex.try_lock_until(libncpu::Instant::after(Duration::ZERO)));
        });
    });
    // SAFETY: held since above.
    unsafe { mutex.unlock() };
    assert!(mutex.try_lock_until(libncpu::Instant::after(Duration::MAX)));
}

#[test]
fn queue_locks() {
    let (mcs, numa) = (libncpu::McsMutex::new((0, 0)), libncpu::NumaMutex::new((0, 0)).expect("memory"));
    let (threads, each) = (24, 300 * effort());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for i in 0..each {
                    mcs.with(|counts| add(counts, i % 17 == 0));
                    numa.with(|counts| add(counts, i % 19 == 0));
                }
            });
        }
    });
    assert_eq!(mcs.into_inner(), (threads * each, threads * each));
    assert_eq!(numa.into_inner(), (threads * each, threads * each));
}

#[test]
fn readers_and_writers() {
    let lock = libncpu::RwLock::new((0, 0)).expect("memory");
    let each = 3_000 * effort();
    std::thread::scope(|s| {
        for thread in 0..16 {
            let lock = &lock;
            s.spawn(move || {
                for i in 0..each {
                    if thread < 2 || (thread < 4 && i % 8 == 0) {
                        add(&mut lock.write(), i % 64 == 0);
                    } else {
                        let counts = lock.read();
                        assert_eq!(counts.0, counts.1);
                        if i % 128 == 0 {
                            std::thread::yield_now();
                        }
                        assert_eq!(counts.0, counts.1);
                    }
                }
            });
        }
    });
    let writes = 2 * each + 2 * each.div_ceil(8);
    assert_eq!(lock.into_inner(), (writes, writes));
}

#[test]
fn rwlock_tries() {
    let lock = libncpu::RwLock::new(0).expect("memory");
    let reading = lock.read();
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_none());
    drop(reading);
    let writing = lock.try_write().expect("free");
    assert!(lock.try_read().is_none());
    drop(writing);
    assert!(lock.try_read().is_some());
}

//! Mutual exclusion, no lost wake-up (shuttle reports a deadlock), no state left behind.

use crate::locks::condvar::Condvar;
use crate::locks::raw_mutex::{RawMutex, starved};
use crate::sys::{DEMANDS_UNWOKEN, Instant, SECTIONS, sections_while_demanding};
use crate::{check, threads};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread;
use std::cell::UnsafeCell;

struct Counter {
    mutex: RawMutex,
    count: UnsafeCell<(u32, u32)>,
}
unsafe impl Sync for Counter {}
unsafe impl Send for Counter {}

impl Counter {
    fn add(&self) {
        // Two accesses with a switch between: another thread inside would be seen.
        let before = unsafe { *self.count.get() };
        assert_eq!(before.0, before.1);
        unsafe { (*self.count.get()).0 += 1 };
        thread::yield_now();
        unsafe { (*self.count.get()).1 += 1 };
    }
}

fn run(mutex: RawMutex, n: u64, each: u32, timed: u64, fair: bool) {
    let counter = Arc::new(Counter { mutex, count: UnsafeCell::new((0, 0)) });
    let own = counter.clone();
    let got = threads(n, move |i| {
        let mut got = 0;
        for _ in 0..each {
            if i < timed {
                if !own.mutex.try_lock_until(Instant::soon()) {
                    continue;
                }
            } else {
                own.mutex.lock();
            }
            own.add();
            unsafe {
                match fair && thread_rng().gen_range(0..2) == 0 {
                    true => own.mutex.unlock_fair(),
                    false => own.mutex.unlock(),
                }
            }
            got += 1;
        }
        got
    });
    let got: u32 = got.into_iter().sum();
    assert_eq!(unsafe { *counter.count.get() }, (got, got));
    assert!(timed > 0 || u64::from(got) == n * u64::from(each));
    assert!(counter.mutex.try_lock(), "free at the end");
}

#[test]
fn excludes_and_wakes() {
    check(|| run(RawMutex::new(), 3, 2, 0, false));
}

#[test]
fn excludes_and_wakes_many() {
    check(|| run(RawMutex::new(), 5, 2, 0, false));
}

#[test]
fn deadlines_lose_nobody() {
    check(|| run(RawMutex::new(), 4, 2, 2, false));
}

#[test]
fn shared_excludes_and_wakes() {
    check(|| run(RawMutex::new_shared(), 4, 2, 1, false));
}

#[test]
fn handing_over_loses_nobody() {
    check(|| run(RawMutex::new(), 4, 2, 0, true));
    check(|| run(RawMutex::new(), 4, 2, 2, true));
}

#[test]
fn fair_excludes_and_wakes() {
    check(|| run(RawMutex::new_fair(), 4, 2, 0, false));
    check(|| run(RawMutex::new_fair(), 4, 2, 2, true));
}

/// Sleepers that wake up by themselves, except the one that demands.
#[test]
fn demanding_unwoken_loses_nobody() {
    check(|| {
        DEMANDS_UNWOKEN.set(true);
        run(RawMutex::new(), 4, 2, 0, true);
    });
    check(|| {
        DEMANDS_UNWOKEN.set(true);
        run(RawMutex::new(), 4, 2, 2, false);
    });
}

/// A thread that sleeps as the demander gets the lock after the running critical section and, if that
/// section's unlock did not see the demand, one more.
/// the demand, one more.
#[test]
fn a_demander_is_overtaken_twice_at_most() {
    check(|| {
        DEMANDS_UNWOKEN.set(true);
        let counter = Arc::new(Counter { mutex: RawMutex::new(), count: UnsafeCell::new((0, 0)) });
        threads(5, move |_| {
            for _ in 0..3 {
                counter.mutex.lock();
                if let Some(overtaken) = sections_while_demanding() {
                    assert!(overtaken <= 2, "a demander was overtaken {overtaken} times");
                }
                SECTIONS.set(SECTIONS.get() + 1);
                counter.add();
                unsafe { counter.mutex.unlock() };
            }
        });
    });
}

/// The models have two CPUs.
#[test]
fn a_sleeper_demands_after_a_millisecond_for_each_sleeper_of_a_cpu() {
    assert_eq!([0, 1, 2, 3, 16].map(starved), [1_000_000, 1_000_000, 1_000_000, 1_500_000, 8_000_000]);
}

/// Two waiters, one of them with a deadline, and two notifiers: no thread waits for an event that has
/// happened.
#[test]
fn conditions_are_not_missed() {
    struct Queue(RawMutex, Condvar, UnsafeCell<u32>);
    unsafe impl Sync for Queue {}
    unsafe impl Send for Queue {}
    check(|| {
        let queue = Queue(RawMutex::new(), Condvar::new(), UnsafeCell::new(0));
        threads(4, move |i| {
            let Queue(mutex, changed, items) = &queue;
            for turn in 0..2 {
                mutex.lock();
                unsafe {
                    if i < 2 {
                        while *items.get() == 0 {
                            changed.wait_raw(mutex, (i == 1).then(Instant::soon));
                        }
                        *items.get() -= 1;
                        mutex.unlock();
                    } else {
                        *items.get() += 1;
                        // With and without the mutex held.
                        if turn == 0 {
                            changed.notify_one();
                        }
                        mutex.unlock();
                        if turn != 0 {
                            changed.notify_all();
                        }
                    }
                }
            }
        });
    });
}

//! Mutual exclusion, no lost wake-up (shuttle reports a deadlock), nothing left behind.

use crate::raw_mutex::RawMutex;
use crate::sys::Instant;
use crate::{check, threads};
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

fn run(mutex: RawMutex, n: u64, each: u32, timed: u64) {
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
            unsafe { own.mutex.unlock() };
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
    check(|| run(RawMutex::new(), 3, 2, 0));
}

#[test]
fn excludes_and_wakes_many() {
    check(|| run(RawMutex::new(), 5, 2, 0));
}

#[test]
fn deadlines_lose_nobody() {
    check(|| run(RawMutex::new(), 4, 2, 2));
}

#[test]
fn shared_excludes_and_wakes() {
    check(|| run(RawMutex::new_shared(), 4, 2, 1));
}

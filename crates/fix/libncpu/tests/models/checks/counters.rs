//! The bounded counter's two invariants under every schedule the checker finds.

use crate::counters::bounded::BoundedCounter;
use crate::sys::topology;
use crate::{check, threads};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn spread(limit: u64) -> BoundedCounter {
    let counter = BoundedCounter::on(limit, topology()).unwrap();
    // Not all credit is in the root.
    for cpu in 0..2 {
        let n = thread_rng().gen_range(0..=limit / 2);
        assert!(counter.take_at(cpu, n));
        assert!(counter.give_at(1 - cpu, n));
    }
    counter
}

/// Threads that together never want more than the limit: every refusal is wrong. They take and give on random
/// CPUs, so credit must be found.
#[test]
fn never_refuses_while_credit_is_free() {
    check(|| {
        let wants: Vec<u64> = (0..3).map(|_| thread_rng().gen_range(1..4)).collect();
        let counter = Arc::new(spread(wants.iter().sum()));
        let own = counter.clone();
        threads(3, move |i| {
            let n = wants[i as usize];
            for _ in 0..3 {
                let mut taken = 0;
                while taken < n {
                    let some = thread_rng().gen_range(1..=n - taken);
                    assert!(own.take(some), "refused {some} with {taken} of {n}");
                    taken += some;
                }
                assert!(own.give(n));
            }
        });
        assert_eq!(counter.read(), 0);
        assert_eq!(counter.read_exact(), 0);
    });
}

/// As before, with enough credit that stocks open again whenever they were closed.
#[test]
fn opens_and_closes() {
    check(|| {
        let counter = Arc::new(BoundedCounter::on(30, topology()).unwrap());
        let takers: Vec<_> = [1, 3, 12]
            .into_iter()
            .map(|n| {
                let counter = counter.clone();
                thread::spawn(move || {
                    for _ in 0..4 {
                        assert!(counter.take(n), "refused {n}");
                        assert!(counter.give(n));
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            assert!(counter.read_exact() <= 16);
        }
        for handle in takers {
            handle.join().unwrap();
        }
        assert_eq!(counter.read(), 0);
    });
}

/// Threads that want more than the limit: some are refused, and the taken credit never passes the limit.
#[test]
fn never_passes_the_limit() {
    check(|| {
        let limit = thread_rng().gen_range(1..6);
        let counter = Arc::new(spread(limit));
        let (own, taken) = (counter.clone(), AtomicU64::new(0));
        threads(3, move |_| {
            for _ in 0..3 {
                let n = thread_rng().gen_range(1..4);
                if own.take(n) {
                    assert!(taken.fetch_add(n, SeqCst) + n <= limit);
                    thread::yield_now();
                    taken.fetch_sub(n, SeqCst);
                    assert!(own.give(n));
                }
                if thread_rng().gen_range(0..4) == 0 {
                    assert!(own.read_exact() <= limit);
                }
            }
        });
        assert_eq!(counter.read(), 0);
        // All credit can be taken at once, and no more.
        assert!(counter.take(limit));
        assert!(!counter.take(1));
    });
}

/// A limit that falls and rises meanwhile.
#[test]
fn limits_that_change() {
    check(|| {
        let counter = Arc::new(spread(6));
        let own = counter.clone();
        threads(3, move |i| {
            if i == 2 {
                for limit in [4, 5, 8, 4] {
                    assert_eq!(own.set_limit(limit), Ok(0));
                }
                return;
            }
            for _ in 0..3 {
                // Never more than 2 + 2 at once, within each limit above.
                assert!(own.take(2));
                thread::yield_now();
                assert!(own.give(2));
            }
        });
        assert_eq!(counter.read(), 0);
        assert!(counter.take(4));
        assert_eq!(counter.set_limit(1), Ok(3));
        assert!(!counter.take(1));
        assert!(counter.give(3));
        assert!(!counter.take(1));
        assert!(counter.give(1));
        assert!(counter.take(1));
    });
}

//! Queue locks and the reader-writer lock.

use crate::locks::mcs::{McsNode, RawMcs};
use crate::locks::numa_lock::RawNumaLock;
use crate::locks::raw_rwlock::RawRwLock;
use crate::sys::Instant;
use crate::{check, threads};
use shuttle::sync::Arc;
use shuttle::thread;
use std::cell::UnsafeCell;

/// Two halves that differ only during a write.
#[derive(Default)]
struct Data(UnsafeCell<(u32, u32)>);
unsafe impl Sync for Data {}
unsafe impl Send for Data {}

impl Data {
    fn add(&self) {
        self.look();
        unsafe { (*self.0.get()).0 += 1 };
        thread::yield_now();
        unsafe { (*self.0.get()).1 += 1 };
    }
    fn look(&self) {
        let (a, b) = unsafe { *self.0.get() };
        assert_eq!(a, b);
    }
}

#[test]
fn mcs() {
    check(|| {
        let lock = Arc::new((RawMcs::new(), Data::default()));
        let own = lock.clone();
        threads(3, move |i| {
            for turn in 0..2 {
                // On the heap, where memory that is freed too early can be reused.
                let node = Box::new(McsNode::new());
                unsafe {
                    if i == 0 && turn == 0 {
                        if !own.0.try_lock() {
                            continue;
                        }
                    } else {
                        own.0.lock(&node);
                    }
                    own.1.add();
                    own.0.unlock();
                }
            }
        });
        assert!(lock.0.try_lock(), "free at the end");
    });
}

#[test]
fn numa() {
    check(|| {
        let own = (RawNumaLock::with_passes(2).unwrap(), Data::default());
        threads(4, move |_| {
            for _ in 0..2 {
                let node = Box::new(McsNode::new());
                unsafe {
                    own.0.lock(&node);
                    drop(node);
                    own.1.add();
                    own.0.unlock();
                }
            }
        });
    });
}

#[test]
fn rwlock() {
    check(|| {
        let own = (RawRwLock::new().unwrap(), Data::default());
        threads(4, move |i| {
            for turn in 0..2 {
                unsafe {
                    match (i, turn) {
                        (0 | 1, _) => {
                            own.0.write();
                            own.1.add();
                            own.0.unlock_write();
                        }
                        (2, _) => {
                            let slot = own.0.read();
                            own.1.look();
                            thread::yield_now();
                            own.1.look();
                            own.0.unlock_read((turn == 0).then_some(slot));
                        }
                        (_, 0) => {
                            if let Some(slot) = own.0.try_read() {
                                own.1.look();
                                own.0.unlock_read(Some(slot));
                            }
                        }
                        _ => {
                            if own.0.try_write() {
                                own.1.add();
                                own.0.unlock_write();
                            }
                        }
                    }
                }
            }
        });
    });
}

#[test]
fn rwlock_upgrades_and_deadlines() {
    check(|| {
        let own = (RawRwLock::new().unwrap(), Data::default());
        threads(4, move |i| {
            for _ in 0..2 {
                unsafe {
                    match i {
                        0 | 1 => {
                            own.0.upgradable();
                            own.1.look();
                            own.0.upgrade();
                            own.1.add();
                            own.0.downgrade();
                            own.1.look();
                            own.0.unlock_upgradable();
                        }
                        2 => {
                            if own.0.write_until(Instant::soon()) {
                                own.1.add();
                                own.0.unlock_write();
                            }
                        }
                        _ => {
                            if let Some(slot) = own.0.read_until(Instant::soon()) {
                                own.1.look();
                                thread::yield_now();
                                own.1.look();
                                own.0.unlock_read(Some(slot));
                            }
                        }
                    }
                }
            }
        });
    });
}

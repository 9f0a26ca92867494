//! Counters compared with the plainest implementation, and under load.

use libncpu::innards::Topology;
use libncpu::{BoundedCounter, Counter, Statistics};
use proptest::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

#[derive(Clone, Debug)]
enum Step {
    Take(usize, u64),
    Give(usize, u64),
    Limit(u64),
    Read,
    ReadExact,
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4u64, 2 => 0..100u64, 1 => 0..2_000u64]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..64usize, amount()).prop_map(|(cpu, n)| Step::Take(cpu, n)),
        5 => (0..64usize, amount()).prop_map(|(cpu, n)| Step::Give(cpu, n)),
        1 => (0..2_000u64).prop_map(Step::Limit),
        1 => Just(Step::Read),
        1 => Just(Step::ReadExact),
    ]
}

proptest! {
    /// One thread that moves between the CPUs of machines of many shapes: exactly the results of a plain
    /// count.
    #[test]
    fn bounded_is_a_count_with_a_limit(
        nodes in 1..5usize,
        cpus in 1..17usize,
        limit in 0..1_500u64,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let topology = Box::leak(Box::new(Topology::row(nodes, cpus)));
        let counter = BoundedCounter::on(limit, topology).unwrap();
        let (mut taken, mut limit) = (0, limit);
        for step in steps {
            match step {
                Step::Take(cpu, n) => {
                    let expected = n == 0 || taken + n <= limit;
                    // Taking nothing beyond the limit has no specified result.
                    if n > 0 || taken <= limit {
                        prop_assert_eq!(counter.take_at(cpu % (nodes * cpus), n), expected);
                        taken += if expected { n } else { 0 };
                    }
                }
                Step::Give(cpu, n) => {
                    let n = n.min(taken);
                    prop_assert!(counter.give_at(cpu % (nodes * cpus), n));
                    taken -= n;
                }
                Step::Limit(new) => {
                    limit = new;
                    prop_assert_eq!(counter.set_limit(limit).unwrap(), taken.saturating_sub(limit));
                    prop_assert_eq!(counter.limit(), limit);
                }
                Step::Read => prop_assert_eq!(counter.read(), taken),
                Step::ReadExact => prop_assert_eq!(counter.read_exact(), taken),
            }
        }
    }
}

#[test]
fn bounded_bad_amounts() {
    use libncpu::counters::bounded::{Error, MOST};
    assert_eq!(BoundedCounter::new(u64::MAX).err(), Some(Error::TooLarge(u64::MAX)));
    let counter = BoundedCounter::new(MOST).unwrap();
    assert_eq!(counter.limit(), MOST);
    assert_eq!(counter.set_limit(MOST + 1), Err(Error::TooLarge(MOST + 1)));
    assert!(!counter.give(1), "nothing is taken");
    assert!(!counter.take(u64::MAX));
    assert!(!counter.give(u64::MAX), "more than was ever taken");
    assert!(counter.take(MOST));
    assert!(!counter.take(1));
    assert!(counter.give(MOST));
    assert_eq!(counter.read(), 0);
    let none = BoundedCounter::new(0).unwrap();
    assert!(none.take(0));
    assert!(!none.take(1));
}

/// A thread that gives more than it took is refused while the counter is closed; a surplus that passes is
/// dropped when it closes.
#[test]
fn bounded_surplus() {
    let counter = BoundedCounter::new(20).unwrap();
    assert!(!counter.give(1) && !counter.give(21));
    assert!(counter.take(20) && counter.give(20));
    for n in [1, 7, 20] {
        // Some of these may pass, depending on the CPU of this thread.
        let _ = counter.give(n);
        assert!(!counter.take(21), "never more at once than the limit");
        assert_eq!(counter.read_exact(), 0);
        assert!(!counter.give(1));
        assert!(counter.take(20) && !counter.take(1) && counter.give(20));
    }
}

/// Random misuse compared with a count, from many threads' CPUs: no checked operation passes.
#[test]
fn bounded_checked() {
    let (counter, mut taken, mut seed) = (BoundedCounter::checked(50).unwrap(), 0, 1u64);
    for _ in 0..100_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let n = (seed >> 33) % 30;
        if seed >> 63 == 0 {
            assert_eq!(counter.take(n), taken + n <= 50);
            taken += if taken + n <= 50 { n } else { 0 };
        } else {
            assert_eq!(counter.give(n), n <= taken);
            taken -= if n <= taken { n } else { 0 };
        }
        assert_eq!(counter.read(), taken);
    }
}

/// Many threads, far from the limit, near it and at it.
#[test]
fn bounded_under_load() {
    let threads = 16;
    for limit in [1, 15, 16, 40, 1_000_000] {
        let counter = BoundedCounter::new(limit).unwrap();
        let taken = AtomicI64::new(0);
        std::thread::scope(|s| {
            for t in 0..threads {
                let (counter, taken) = (&counter, &taken);
                s.spawn(move || {
                    for i in 0..3_000 {
                        if counter.take(1) {
                            let now = taken.fetch_add(1, SeqCst) + 1;
                            assert!(now as u64 <= limit, "{now} of {limit}");
                            if (i + t) % 50 == 0 {
                                std::thread::yield_now();
                            }
                            taken.fetch_sub(1, SeqCst);
                            assert!(counter.give(1));
                        } else {
                            assert!(limit < threads, "refused with at most {threads} of {limit} taken");
                        }
                    }
                });
            }
        });
        assert_eq!((counter.read(), counter.read_exact()), (0, 0));
        assert!(counter.take(limit));
        assert!(!counter.take(1));
    }
}

/// Some threads only take, others only give: credit has to travel.
#[test]
fn bounded_one_way() {
    let counter = BoundedCounter::new(100).unwrap();
    let (send, receive) = std::sync::mpsc::sync_channel(50);
    std::thread::scope(|s| {
        let counter = &counter;
        s.spawn(move || {
            for _ in 0..20_000 {
                // At most 50 in the channel, 1 on either side of it.
                assert!(counter.take(1));
                send.send(()).unwrap();
            }
        });
        s.spawn(move || receive.iter().for_each(|()| assert!(counter.give(1))));
    });
    assert_eq!(counter.read(), 0);
}

#[test]
fn counts() {
    let (counter, statistics) = (Counter::new().unwrap(), Statistics::<3>::new().unwrap());
    std::thread::scope(|s| {
        for t in 0..16 {
            let (counter, statistics) = (&counter, &statistics);
            s.spawn(move || {
                for i in 0..50_000 {
                    counter.add(1);
                    statistics.add(i % 3, t);
                    if i % 1_000 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(counter.sum(), 800_000);
    assert_eq!([0, 1, 2].map(|which| statistics.sum(which)), [120 * 16_667, 120 * 16_667, 120 * 16_666]);
    counter.add(-800_001);
    assert_eq!(counter.sum(), -1);
}

/// Threads that are forced from CPU to CPU while they add.
#[test]
fn counts_survive_migration() {
    let counter = Counter::new().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    // SAFETY: a zeroed set is an empty one; all calls get valid pointers.
    let allowed: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    };
    std::thread::scope(|s| {
        let (counter, done, allowed) = (&counter, &done, &allowed);
        let (tell, hear) = std::sync::mpsc::channel();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let tell = tell.clone();
                s.spawn(move || {
                    // SAFETY: no arguments.
                    tell.send(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
                    (0..2_000_000).for_each(|_| counter.add(1));
                })
            })
            .collect();
        let ids: Vec<_> = hear.iter().take(4).collect();
        s.spawn(move || {
            for turn in 0.. {
                if done.load(SeqCst) {
                    return;
                }
                for (i, &id) in ids.iter().enumerate() {
                    // SAFETY: as above. A thread that has ended is ignored.
                    unsafe {
                        let mut set: libc::cpu_set_t = std::mem::zeroed();
                        libc::CPU_SET(allowed[(turn + i) % allowed.len()], &mut set);
                        libc::sched_setaffinity(id as libc::pid_t, size_of_val(&set), &set);
                    }
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, SeqCst);
    });
    assert_eq!(counter.sum(), 8_000_000);
}

//! Every primitive with a few threads and little work: what Miri has the time for.

use ncpu::{BoundedCounter, Counter, McsMutex, Mutex, NumaMutex, RwLock};

fn threads(body: impl Fn() + Sync) {
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| (0..4).for_each(|_| body()));
        }
    });
}

#[test]
fn locks() {
    let (mutex, mcs) = (Mutex::new(0), McsMutex::new(0));
    let (numa, rwlock) = (NumaMutex::new(0).unwrap(), RwLock::new(0).unwrap());
    threads(|| {
        *mutex.lock() += 1;
        mcs.with(|n| *n += 1);
        numa.with(|n| *n += 1);
        let before = *rwlock.read();
        *rwlock.write() += 1;
        assert!(*rwlock.read() > before);
    });
    assert_eq!([mutex.into_inner(), mcs.into_inner(), numa.into_inner(), rwlock.into_inner()], [12; 4]);
}

#[test]
fn counters() {
    let (bounded, counter) = (BoundedCounter::new(6).unwrap(), Counter::new().unwrap());
    threads(|| {
        assert!(bounded.take(2));
        counter.add(5);
        assert!(bounded.give(2));
    });
    assert_eq!((bounded.read(), counter.sum()), (0, 60));
}

#[test]
fn robust() {
    let robust = ncpu::RobustMutex::new();
    std::thread::scope(|s| {
        s.spawn(|| assert_eq!(robust.lock(None), Some(ncpu::Taken::Clean)));
    });
    // Its thread may not have ended in the kernel's eyes when it was joined in Rust's.
    assert_eq!(robust.lock(None), Some(ncpu::Taken::OwnerDied));
    assert!(robust.unlock());
    assert!(!robust.unlock());
    assert_eq!(robust.try_lock(), Some(ncpu::Taken::Clean));
}

#[test]
fn arenas() {
    let ids = ncpu::Vmem::on(ncpu::vmem::Options { cache_to: 2, ..Default::default() }, 2).unwrap();
    ids.add(0, 12).unwrap();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for i in 0..20 {
                    let size = 1 + i % 3;
                    // 3 + 3 + 2 in the wrong places leave no 3.
                    if let Ok(start) = ids.alloc(size) {
                        std::thread::yield_now();
                        ids.free(start, size).unwrap();
                        let again = ids.free(start, 7);
                        assert!(again.is_err(), "{again:?}");
                    }
                }
            });
        }
    });
    ids.reap().unwrap();
    assert_eq!(ids.statistics().totals.largest, 12);
}

//! Every primitive with few threads and little work, so that Miri can run it.

use libncpu::{BoundedCounter, Counter, McsMutex, Mutex, NumaMutex, RwLock};

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
    let robust = libncpu::RobustMutex::new();
    std::thread::scope(|s| {
        s.spawn(|| assert_eq!(robust.lock(None), Ok(libncpu::Taken::Clean)));
    });
    // Its thread may not have ended in the kernel when it was joined in Rust.
    assert_eq!(robust.lock(None), Ok(libncpu::Taken::OwnerDied));
    assert_eq!(robust.lock(None), Err(libncpu::NotTaken::Deadlock));
    assert_eq!(robust.try_lock(), Err(libncpu::NotTaken::Busy));
    assert!(robust.unlock());
    assert!(!robust.unlock());
    assert_eq!(robust.try_lock(), Ok(libncpu::Taken::Clean));
}

#[test]
fn copies() {
    let from: Vec<u8> = (0..=255).cycle().take(5000).collect();
    for n in [0, 1, 2, 3, 5, 9, 17, 40, 100, 128, 129, 700, 5000] {
        let mut to = vec![1; n + 2];
        libncpu::copy::copy_slice(&mut to[1..=n], &from[..n]);
        assert_eq!((to[0], &to[1..=n], to[n + 1]), (1, &from[..n], 1));
        libncpu::copy::zero_slice(&mut to[1..=n]);
        assert_eq!((to[0], to[n + 1]), (1, 1));
        assert!(to[1..=n].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn env() {
    use libncpu::environment::env_list::{Environ, List, find};
    let (list, environ) = (List::new(), Environ::new(std::ptr::null_mut()));
    let entry = |s: &'static std::ffi::CStr| s.as_ptr().cast_mut();
    // SAFETY: C strings that stay; the list is this one's alone.
    unsafe {
        list.put(&environ, entry(c"STAY=1"), true).unwrap();
        threads(|| {
            list.put(&environ, entry(c"A=1"), true).unwrap();
            list.put(&environ, entry(c"B=1"), true).unwrap();
            assert_eq!(*find(&environ, c"STAY".as_ptr()), b'1' as _);
            list.remove(&environ, c"A".as_ptr());
        });
        assert!(find(&environ, c"A".as_ptr()).is_null());
        assert_eq!(*find(&environ, c"B".as_ptr()), b'1' as _);
    }
}

#[test]
fn arenas() {
    let ids = libncpu::Vmem::on(libncpu::vmem::Options { cache_to: 2, ..Default::default() }, 2).unwrap();
    ids.add(0, 12).unwrap();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                for i in 0..20 {
                    let size = 1 + i % 3;
                    // 3 + 3 + 2 in unlucky places leave no 3.
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

//! A sandbox that forbids membarrier: slower, but correct. A test program of its own, since the filter cannot
//! be removed.

mod seccomp;

use libncpu::Mutex;

#[test]
fn mutex_without_membarrier() {
    std::thread::spawn(|| {
        if !seccomp::forbid(libc::SYS_membarrier) {
            println!("skipped: no seccomp here");
            return;
        }
        assert!(!libncpu::innards::heavy_barrier());
        let mutex = Mutex::new((0, 0));
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for i in 0..2_000 {
                        let mut counts = mutex.lock();
                        counts.0 += 1;
                        if i % 50 == 0 {
                            std::thread::yield_now();
                        }
                        counts.1 += 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner(), (16_000, 16_000));
    })
    .join()
    .unwrap();
}

/// Without fences and restartable sequences, the magazines' locks are atomic.
#[test]
fn arenas_without_membarrier() {
    std::thread::spawn(|| {
        if !seccomp::forbid(libc::SYS_membarrier) {
            println!("skipped: no seccomp here");
            return;
        }
        assert!(!libncpu::innards::locks_by_rseq());
        let ids = libncpu::Vmem::new(libncpu::vmem::Options { cache_to: 2, ..Default::default() }).unwrap();
        ids.add(0, 32).unwrap();
        let held: Vec<_> = (0..32).map(|_| std::sync::atomic::AtomicBool::new(false)).collect();
        std::thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    for i in 0..4_000 {
                        let mut own = [0; 2];
                        for id in &mut own {
                            *id = ids.alloc(1).expect("two for each");
                            assert!(!held[*id as usize].swap(true, std::sync::atomic::Ordering::SeqCst));
                        }
                        if i % 50 == 0 {
                            std::thread::yield_now();
                        }
                        for id in own {
                            held[id as usize].store(false, std::sync::atomic::Ordering::SeqCst);
                            ids.free(id, 1).unwrap();
                        }
                    }
                });
            }
        });
    })
    .join()
    .unwrap();
}

/// Forbidden after the arena was made: integers cached by other CPUs are unreachable, but nothing breaks.
#[test]
fn arenas_that_lose_membarrier() {
    std::thread::spawn(|| {
        let ids = libncpu::Vmem::new(libncpu::vmem::Options { cache_to: 1, ..Default::default() }).unwrap();
        ids.add(0, 1_000).unwrap();
        if !seccomp::forbid(libc::SYS_membarrier) {
            println!("skipped: no seccomp here");
            return;
        }
        for _ in 0..3 {
            let mut all = Vec::new();
            while let Ok(id) = ids.alloc(1) {
                all.push(id);
            }
            assert!(!all.is_empty());
            for &id in &all {
                ids.free(id, 1).unwrap();
                assert!(ids.free(id, 1).is_err());
            }
            let told = ids.statistics();
            assert_eq!(told.totals.free + told.cached, 1_000);
            assert!(told.refusals >= 1);
        }
        ids.reap().unwrap();
    })
    .join()
    .unwrap();
}

//! A sandbox that forbids membarrier: slower, not wrong. On its own, since the filter stays for good.

use ncpu::Mutex;

/// Makes membarrier fail with EPERM in this thread and those it starts; false if the kernel does not let us.
fn forbid() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = [
        // The number of the system call: the first word of struct seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: libc::SYS_membarrier as u32,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid for the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

#[test]
fn mutex_without_membarrier() {
    std::thread::spawn(|| {
        if !forbid() {
            println!("skipped: no seccomp here");
            return;
        }
        assert!(!ncpu::sys::heavy_barrier());
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

/// No fence, no restartable sequences for the magazines' locks: atomic ones.
#[test]
fn arenas_without_membarrier() {
    std::thread::spawn(|| {
        if !forbid() {
            println!("skipped: no seccomp here");
            return;
        }
        assert!(!ncpu::sys::locks_by_rseq());
        let ids = ncpu::Vmem::new(ncpu::vmem::Options { cache_to: 2, ..Default::default() }).unwrap();
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

/// Forbidden after the arena was made: what other CPUs have cached cannot be had, but nothing breaks.
#[test]
fn arenas_that_lose_membarrier() {
    std::thread::spawn(|| {
        let ids = ncpu::Vmem::new(ncpu::vmem::Options { cache_to: 1, ..Default::default() }).unwrap();
        ids.add(0, 1_000).unwrap();
        if !forbid() {
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

//! A sandbox that forbids membarrier: slower, not wrong. On its own, since the filter stays for good.

mod seccomp;

use ncpu::Mutex;

#[test]
fn mutex_without_membarrier() {
    std::thread::spawn(|| {
        if !seccomp::forbid(libc::SYS_membarrier) {
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

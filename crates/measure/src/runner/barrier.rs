//! A barrier for workers of several processes.

use std::sync::atomic::{AtomicU32, Ordering};

/// Lies in shared memory. The last worker to arrive lets all go.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Barrier {
    arrived: AtomicU32,
    generation: AtomicU32,
    broken: AtomicU32,
}

/// A worker has failed: nobody waits any more.
#[derive(Debug)]
pub struct Broken;

impl Barrier {
    /// Waits for all `workers`. With `spin`, which needs a CPU for each worker, they leave within
    /// nanoseconds of each other; otherwise as the scheduler wakes them.
    pub fn wait(&self, workers: u32, spin: bool) -> Result<(), Broken> {
        let generation = self.generation.load(Ordering::Acquire);
        // AcqRel: what each worker did before is seen by all after.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == workers {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
            wake(&self.generation);
        } else {
            let mut tries = if spin { 20_000 } else { 0 };
            while self.generation.load(Ordering::Acquire) == generation {
                if self.broken.load(Ordering::Relaxed) != 0 {
                    return Err(Broken);
                }
                if tries > 0 {
                    tries -= 1;
                    std::hint::spin_loop();
                } else {
                    sleep(&self.generation, generation);
                }
            }
        }
        if self.broken.load(Ordering::Relaxed) != 0 { Err(Broken) } else { Ok(()) }
    }

    /// Lets everybody go, for good.
    pub fn break_up(&self) {
        self.broken.store(1, Ordering::Relaxed);
        // A sleeper compares the word, so it has to change.
        self.generation.fetch_add(1, Ordering::Release);
        wake(&self.generation);
    }
}

fn sleep(word: &AtomicU32, value: u32) {
    // SAFETY: a live word; not FUTEX_PRIVATE, since other processes wake it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

fn wake(word: &AtomicU32) {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_passes_before_all_have_arrived() {
        for spin in [true, false] {
            let (barrier, sum) = (Barrier::default(), AtomicU64::new(0));
            std::thread::scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| {
                        for round in 1..=200 {
                            sum.fetch_add(1, Ordering::Relaxed);
                            barrier.wait(5, spin).unwrap();
                            assert_eq!(sum.load(Ordering::Relaxed), 5 * round);
                            barrier.wait(5, spin).unwrap();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_broken_one_holds_nobody() {
        let barrier = Barrier::default();
        std::thread::scope(|s| {
            let waiting: Vec<_> = (0..3)
                .map(|i| {
                    s.spawn({
                        let b = &barrier;
                        move || b.wait(4, i == 0)
                    })
                })
                .collect();
            barrier.break_up();
            assert!(waiting.into_iter().all(|w| w.join().unwrap().is_err()));
        });
        assert!(barrier.wait(4, true).is_err());
    }
}

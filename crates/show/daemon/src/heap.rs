//! How a process that is on for ever keeps its heap small.

use std::time::{Duration, Instant};

/// Threads beyond this number share an arena.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Blocks of this size are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

/// To be called before threads are started. glibc keeps an arena for each thread, and raises the size from which blocks are
/// mapped on their own to that of the largest that was freed, 32 MiB at last: then tables of an interval, which come and go,
/// lie between what stays, and what is free between them is never given back.
pub fn keep_small() {
    // SAFETY: sets parameters of the allocator, which copies them; unknown ones are refused.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * LARGE);
    }
}

/// How often free memory is given back.
const TRIMMED: Duration = Duration::from_secs(10);

/// Gives memory back that is free within the heap. The allocator itself does that at the heap's end only: an answer of some
/// megabytes that was made below an interval which stays would be kept for ever.
pub struct Trimmer(Instant);

impl Trimmer {
    /// Nothing is to be given back yet.
    pub fn begin() -> Trimmer {
        Trimmer(Instant::now())
    }

    /// To be called again and again; most calls do nothing.
    pub fn look(&mut self) {
        if self.0.elapsed() < TRIMMED {
            return;
        }
        self.0 = Instant::now();
        // SAFETY: takes no pointers, and may be called whatever other threads do.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

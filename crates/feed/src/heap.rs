//! How a process that is on for ever keeps its heap small.

/// Threads beyond so many share an arena.
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

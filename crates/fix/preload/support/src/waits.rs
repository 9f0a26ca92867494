//! What `libncpu_locks.so` notes of a process's waits and `ncpu` reads: the layout of a file.
//!
//! A process makes its file, in the directory that [`VARIABLE`] names, when one of its threads first has to wait: a
//! header, a [`Thread`] for each thread, and behind them each thread's [`Entry`]s. A thread writes its own alone, and no
//! two of them share a cache line. What a thread that has ended left stays, and a later thread adds to it.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The environment variable with the directory of the files.
pub const VARIABLE: &str = "NCPU_LOCKS";
/// The first word of a file; the last digit is the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ncpuwai2");
/// Where the process's `/proc/self/maps` is, as far as there is room: it names the locks of one that has ended.
pub const AT_MAPS: usize = 4096;
/// Where the threads are in the file.
pub const AT_THREADS: usize = 32768;
/// Threads that a process may have noted at a time; waits of more are not.
pub const THREADS: usize = 1024;
/// Where the entries of the first thread are.
pub const AT_ENTRIES: usize = AT_THREADS + THREADS * size_of::<Thread>();
/// Locks and callers of a thread; a power of two. Of more, only the sums of [`Thread`] tell.
pub const ENTRIES: usize = 64;
/// Bytes of a thread's entries: whole pages.
pub const TABLE: usize = ENTRIES * size_of::<Entry>();
/// Bytes of a file. It is sparse: what no thread has used takes no room.
pub const SIZE: usize = AT_ENTRIES + THREADS * TABLE;
/// Callers that an entry has at most, the first included.
pub const FRAMES: usize = 12;

const _: () = assert!(size_of::<Thread>() == 128 && size_of::<Entry>() == 192 && TABLE.is_multiple_of(4096));

/// The file's header.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The process.
    pub pid: AtomicU32,
    /// Threads that were in use at one time: the first so many have something to tell.
    pub used: AtomicU32,
    /// Threads that found no place.
    pub turned_away: AtomicU32,
    /// Bytes at [`AT_MAPS`].
    pub maps: AtomicU32,
    /// What [`Thread::began`] and [`Thread::ended`] count: 1 the processor's ticks (TSC), 0 ns of `CLOCK_MONOTONIC`.
    pub ticks: AtomicU32,
    /// The program's name, cut off after 15 bytes.
    pub name: [AtomicU8; 16],
}

/// A thread's sums, and its last wait.
///
/// A wait for a lock ends with the lock held, when all others pay for what is done. So its end is only noted, and added to
/// the sums when the thread waits the next time.
#[repr(C, align(128))]
pub struct Thread {
    /// Its number; 0 where it has ended.
    pub tid: AtomicU32,
    /// A wait that is not in the sums: 0 for none, 1 for a lock, 2 for anything else.
    pub waits: AtomicU32,
    /// Its entry for that, counted from 1.
    pub entry: AtomicU32,
    /// Whom it is blamed on; 0 for nobody.
    pub blame: AtomicU32,
    /// Since when, ns of `CLOCK_MONOTONIC`.
    pub since: AtomicU64,
    /// The same in ticks.
    pub began: AtomicU64,
    /// When it ended, in ticks; 0 while it goes on.
    pub ended: AtomicU64,
    /// ns waited for locks so far.
    pub for_locks: AtomicU64,
    /// ns waited for anything else.
    pub for_others: AtomicU64,
    /// Waits that found no entry.
    pub dropped: AtomicU64,
    /// Their ns.
    pub dropped_ns: AtomicU64,
}

/// The processor's counter of ticks; 0 where there is none.
#[inline]
pub fn processor_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has it, and the kernel lets user space read its clock by it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// How long a wait took that was noted in ticks: `since` and `began` are the same moment, as `now` and `ticks` are.
/// Ticks of a wait are as long as they were from its beginning until now.
pub fn nanoseconds((since, began): (u64, u64), ended: u64, (now, ticks): (u64, u64)) -> u64 {
    let (passed, all) = (now.saturating_sub(since), ticks.saturating_sub(began));
    let part = ended.saturating_sub(began).min(all);
    (u128::from(passed) * u128::from(part)).checked_div(u128::from(all)).unwrap_or(0) as u64
}

/// What a thread waited for at a place of its code.
#[repr(C, align(64))]
pub struct Entry {
    /// The address of the lock.
    pub lock: AtomicU64,
    /// Where the wait returns to; 0 for posts.
    pub caller: AtomicU64,
    /// A [`Kind`]; 0 where the entry is free.
    pub kind: AtomicU32,
    /// How many of `frames` there are.
    pub depth: AtomicU32,
    /// Waits that have ended, or posts.
    pub count: AtomicU64,
    /// Their ns.
    pub ns: AtomicU64,
    /// ns of the longest.
    pub longest: AtomicU64,
    /// The thread that most of it is blamed on, by a majority vote of ns; 0 for nobody.
    pub holder: AtomicU32,
    /// What it is ahead by.
    pub ahead: AtomicU64,
    /// The callers of the caller when the entry was made, as far as there are frame pointers.
    pub frames: [AtomicU64; FRAMES],
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A mutex.
    Mutex = 1,
    /// A rwlock, to read.
    Read = 2,
    /// A rwlock, to write.
    Write = 3,
    /// A condition.
    Condition = 4,
    /// A semaphore.
    Semaphore = 5,
    /// A barrier.
    Barrier = 6,
    /// No wait: a semaphore was posted while others waited for it.
    Post = 7,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] =
        [Kind::Mutex, Kind::Read, Kind::Write, Kind::Condition, Kind::Semaphore, Kind::Barrier, Kind::Post];

    /// The kind of an entry; `None` where it is free or damaged.
    pub fn of(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn ticks_are_as_long_as_the_clock_says() {
        assert_eq!(nanoseconds((1000, 50), 80, (3000, 90)), 1500);
        assert_eq!(nanoseconds((1000, 50), 90, (3000, 90)), 2000);
        // Counters that go back, or stand still.
        assert_eq!(nanoseconds((1000, 50), 40, (3000, 90)), 0);
        assert_eq!(nanoseconds((1000, 50), 99, (3000, 90)), 2000);
        assert_eq!(nanoseconds((1000, 50), 80, (900, 90)), 0);
        assert_eq!(nanoseconds((1000, 50), 50, (1000, 50)), 0);
        assert_eq!(nanoseconds((0, 0), u64::MAX, (u64::MAX, u64::MAX)), u64::MAX);
    }
}

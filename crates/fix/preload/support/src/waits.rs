//! The layout of the file in which `libncpu_locks.so` records a process's waits, and which `ncpu` reads.
//!
//! A process makes its file, in the directory of [`VARIABLE`], when one of its threads first has to wait: a
//! header, a [`Thread`] for each thread, and behind them each thread's [`Entry`]s. A thread is the only
//! writer of its own part, and no two parts share a cache line. The sums of a thread that has ended stay, and
//! a later thread adds to them.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The environment variable with the directory of the files.
pub const VARIABLE: &str = "NCPU_LOCKS";
/// The first word of a file; the last digit is the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ncpuwai2");
/// The offset of a copy of `/proc/self/maps`, cut off if it is too long: it names the locks of a process that
/// has ended.
pub const AT_MAPS: usize = 4096;
/// The offset of the threads.
pub const AT_THREADS: usize = 32768;
/// Threads of a process that can be recorded at a time; waits of more threads are not recorded.
pub const THREADS: usize = 1024;
/// The offset of the entries of the first thread.
pub const AT_ENTRIES: usize = AT_THREADS + THREADS * size_of::<Thread>();
/// Locks and callers of a thread; a power of two. Further ones are only in the sums of [`Thread`].
pub const ENTRIES: usize = 64;
/// Bytes of a thread's entries: whole pages.
pub const TABLE: usize = ENTRIES * size_of::<Entry>();
/// Size of a file in bytes. It is sparse: unused parts take no space.
pub const SIZE: usize = AT_ENTRIES + THREADS * TABLE;
/// The most callers of an entry, the first included.
pub const FRAMES: usize = 12;

const _: () = assert!(size_of::<Thread>() == 128 && size_of::<Entry>() == 192 && TABLE.is_multiple_of(4096));

/// The file's header.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The process's ID.
    pub pid: AtomicU32,
    /// The number of threads in use at one time: that many, from the first, hold data.
    pub used: AtomicU32,
    /// Threads that found no place.
    pub turned_away: AtomicU32,
    /// Bytes at [`AT_MAPS`].
    pub maps: AtomicU32,
    /// The unit of [`Thread::began`] and [`Thread::ended`]: 1 the processor's ticks (TSC), 0 ns of
    /// `CLOCK_MONOTONIC`.
    pub ticks: AtomicU32,
    /// The program's name, cut off after 15 bytes.
    pub name: [AtomicU8; 16],
}

/// A thread's sums, and its last wait.
///
/// A wait for a lock ends with the lock held, when all other threads pay for extra work. So its end is only
/// recorded, and added to the sums when the thread waits the next time.
#[repr(C, align(128))]
pub struct Thread {
    /// Its number; 0 if it has ended.
    pub tid: AtomicU32,
    /// The wait that is not in the sums: 0 for none, 1 for a lock, 2 for any other.
    pub waits: AtomicU32,
    /// The entry of that wait, counted from 1.
    pub entry: AtomicU32,
    /// The thread that it is blamed on; 0 for none.
    pub blame: AtomicU32,
    /// Its beginning, ns of `CLOCK_MONOTONIC`.
    pub since: AtomicU64,
    /// The same in ticks.
    pub began: AtomicU64,
    /// Its end, in ticks; 0 while it goes on.
    pub ended: AtomicU64,
    /// ns waited for locks so far.
    pub for_locks: AtomicU64,
    /// ns waited for other objects.
    pub for_others: AtomicU64,
    /// Waits that found no entry.
    pub dropped: AtomicU64,
    /// Their duration in ns.
    pub dropped_ns: AtomicU64,
}

/// The processor's counter of ticks; 0 if it has none.
#[inline]
pub fn processor_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has it, and the kernel permits user space to read its clock with
    // it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The duration of a wait that was recorded in ticks: `since` and `began` are the same moment, and so are
/// `now` and `ticks`. The length of a tick is its average from the beginning of the wait until now.
pub fn nanoseconds((since, began): (u64, u64), ended: u64, (now, ticks): (u64, u64)) -> u64 {
    let (passed, all) = (now.saturating_sub(since), ticks.saturating_sub(began));
    let part = ended.saturating_sub(began).min(all);
    (u128::from(passed) * u128::from(part)).checked_div(u128::from(all)).unwrap_or(0) as u64
}

/// The object that a thread waited for at a place of its code.
#[repr(C, align(64))]
pub struct Entry {
    /// The address of the lock.
    pub lock: AtomicU64,
    /// The return address of the wait; 0 for posts.
    pub caller: AtomicU64,
    /// A [`Kind`]; 0 if the entry is free.
    pub kind: AtomicU32,
    /// The number of valid `frames`.
    pub depth: AtomicU32,
    /// Waits that have ended, or posts.
    pub count: AtomicU64,
    /// Their duration in ns.
    pub ns: AtomicU64,
    /// Duration of the longest, in ns.
    pub longest: AtomicU64,
    /// The thread that most of it is blamed on, by a majority vote of ns; 0 for none.
    pub holder: AtomicU32,
    /// Its lead in that vote, in ns.
    pub ahead: AtomicU64,
    /// The callers of the caller when the entry was made, as far as frame pointers lead.
    pub frames: [AtomicU64; FRAMES],
}

/// The kind of the awaited object.
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
    /// Not a wait: a semaphore was posted while other threads waited for it.
    Post = 7,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] =
        [Kind::Mutex, Kind::Read, Kind::Write, Kind::Condition, Kind::Semaphore, Kind::Barrier, Kind::Post];

    /// The kind of an entry; `None` if it is free or damaged.
    pub fn from_number(number: u32) -> Option<Kind> {
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
        // Counters that go back, or do not advance.
        assert_eq!(nanoseconds((1000, 50), 40, (3000, 90)), 0);
        assert_eq!(nanoseconds((1000, 50), 99, (3000, 90)), 2000);
        assert_eq!(nanoseconds((1000, 50), 80, (900, 90)), 0);
        assert_eq!(nanoseconds((1000, 50), 50, (1000, 50)), 0);
        assert_eq!(nanoseconds((0, 0), u64::MAX, (u64::MAX, u64::MAX)), u64::MAX);
    }
}

//! The reader-writer lock whose readers share nothing, without the data it protects.
//!
//! # Where it comes from
//!
//! The "big-reader" lock of Linux 2.4 and its many descendants (lglock, percpu-rwsem): "shared locking for the common
//! case". A reader counts itself in on its CPU's cache line; a writer visits all of them.
//!
//! # Invariant
//!
//! A thread writes only while it holds `writer`, has `closed` set and has found all readers gone: the sum
//! over the slots is 0. A reader reads only if it was counted in and then found `closed` unset, or was
//! counted in with `writer` held, when there can be no writer. A reader may be counted out on another slot
//! than it was counted in on. A writer's sum misses at most the readers that entered after `closed` was set
//! and leave again without having read.
//!
//! The *upgradable* reader is the thread that holds `writer` and has not set `closed`. Other threads read
//! beside it, no thread writes, and no reader waits for it, so it can close the lock at any time and wait for
//! the readers to leave.
//!
//! # Memory ordering
//!
//! Reader: count in, then look at `closed`. Writer: set `closed`, then look at the counts (Dekker): all of these are
//! sequentially consistent, and the reader's count is a read-modify-write, its one expensive instruction. Leaving is
//! a release that the writer's look at the counts acquires. The writer's unlock releases `closed`.
//!
//! # Fairness
//!
//! Readers that find the lock closed queue up at `writer`, which bounds the waiting time: neither side
//! starves the other.

use crate::locks::backoff::Backoff;
use crate::locks::probe;
use crate::locks::raw_mutex::RawMutex;
use crate::percpu::{OutOfMemory, PerCpu};
use crate::sys::{ALL, AtomicBool, AtomicU64, Futex, Instant, Ordering};
use Ordering::{Relaxed, Release, SeqCst};

/// A reader-writer lock with a count of readers for each CPU. Reading scales; writing costs a cache miss per CPU.
pub struct RawRwLock {
    readers: PerCpu<AtomicU64>,
    closed: AtomicBool,
    writer: RawMutex,
    /// Changes when a reader leaves a closed lock.
    left: Futex,
}

impl RawRwLock {
    /// A free lock: 128 bytes per possible CPU.
    pub fn new() -> Result<RawRwLock, OutOfMemory> {
        Ok(RawRwLock {
            readers: PerCpu::new(|_| AtomicU64::new(0))?,
            closed: AtomicBool::new(false),
            writer: RawMutex::new(),
            left: Futex::new(0),
        })
    }

    /// Takes the lock for reading. Returns the slot, which the caller may pass to `unlock_read`.
    #[inline]
    pub fn read(&self) -> usize {
        let slot = self.readers.here();
        self.readers[slot].fetch_add(1, SeqCst);
        if self.closed.load(SeqCst) {
            self.read_slow(slot);
        }
        slot
    }

    /// Takes the lock for reading unless a writer has it or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<usize> {
        let slot = self.readers.here();
        self.readers[slot].fetch_add(1, SeqCst);
        if self.closed.load(SeqCst) {
            // SAFETY: counted in just above.
            unsafe { self.unlock_read(Some(slot)) };
            return None;
        }
        Some(slot)
    }

    /// Takes the lock for reading unless the deadline passes first.
    pub fn read_until(&self, deadline: Instant) -> Option<usize> {
        if let Some(slot) = self.try_read() {
            return Some(slot);
        }
        probe::read_slow(self.address());
        if !self.writer.try_lock_until(deadline) {
            return None;
        }
        let slot = self.readers.here();
        self.readers[slot].fetch_add(1, SeqCst);
        // SAFETY: taken above.
        unsafe { self.writer.unlock() };
        probe::read_acquired(self.address());
        Some(slot)
    }

    #[cold]
    fn read_slow(&self, slot: usize) {
        // SAFETY: counted in by the caller.
        unsafe { self.unlock_read(Some(slot)) };
        probe::read_slow(self.address());
        self.writer.lock();
        self.readers[slot].fetch_add(1, SeqCst);
        // SAFETY: taken above.
        unsafe { self.writer.unlock() };
        probe::read_acquired(self.address());
    }

    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Ends reading, best on the slot that `read` returned.
    ///
    /// # Safety
    /// The lock is held for reading, by this thread or one that passed it on.
    #[inline]
    pub unsafe fn unlock_read(&self, slot: Option<usize>) {
        let slot = slot.unwrap_or_else(|| self.readers.here());
        // Only the sum counts; a single slot may wrap below zero.
        self.readers[slot].fetch_sub(1, SeqCst);
        if self.closed.load(SeqCst) {
            self.tell_writer();
        }
    }

    #[cold]
    fn tell_writer(&self) {
        self.left.fetch_add(1, SeqCst);
        self.left.wake(1, ALL, false);
    }

    fn empty(&self) -> bool {
        self.readers.iter().fold(0u64, |sum, n| sum.wrapping_add(n.load(SeqCst))) == 0
    }

    /// Takes the lock for writing.
    pub fn write(&self) {
        let mut waited = false;
        if !self.writer.try_lock() {
            waited = true;
            probe::write_slow(self.address());
            self.writer.lock();
        }
        self.close(waited, None);
    }

    /// Takes the lock for writing unless the deadline passes first.
    pub fn write_until(&self, deadline: Instant) -> bool {
        let mut waited = false;
        if !self.writer.try_lock() {
            waited = true;
            probe::write_slow(self.address());
            if !self.writer.try_lock_until(deadline) {
                return false;
            }
        }
        if self.close(waited, Some(deadline)) {
            return true;
        }
        // SAFETY: the part of the write lock that was taken above.
        unsafe { self.unlock_write() };
        false
    }

    /// Takes the lock for reading beside other readers, with the right to become the writer. Only one thread
    /// can hold it so, and that thread must not call `read` at the same time.
    pub fn upgradable(&self) {
        if !self.writer.try_lock() {
            probe::read_slow(self.address());
            self.writer.lock();
            probe::read_acquired(self.address());
        }
    }

    /// Makes the upgradable reader the writer once the other readers have left; no thread writes in between.
    ///
    /// # Safety
    /// This thread holds the lock upgradable, and then for writing.
    pub unsafe fn upgrade(&self) {
        self.close(false, None);
    }

    /// Makes the writer the upgradable reader: other threads may read again.
    ///
    /// # Safety
    /// This thread holds the lock for writing, and then upgradable.
    pub unsafe fn downgrade(&self) {
        self.closed.store(false, Release);
    }

    /// Ends upgradable reading.
    ///
    /// # Safety
    /// This thread holds the lock upgradable.
    pub unsafe fn unlock_upgradable(&self) {
        // SAFETY: held since `upgradable`.
        unsafe { self.writer.unlock() };
    }

    /// With `writer` held: closes the lock and waits for readers to leave. Returns false, with the lock still
    /// closed, if the deadline passes first.
    fn close(&self, mut waited: bool, deadline: Option<Instant>) -> bool {
        self.closed.store(true, SeqCst);
        let mut backoff = Backoff::new(0);
        loop {
            let left = self.left.load(SeqCst);
            if self.empty() {
                break;
            }
            if !std::mem::replace(&mut waited, true) {
                probe::write_slow(self.address());
            }
            if !backoff.wait() {
                if deadline.is_some_and(Instant::passed) {
                    return false;
                }
                self.left.wait(left, ALL, deadline, false);
            }
        }
        if waited {
            probe::write_acquired(self.address());
        }
        true
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> bool {
        if !self.writer.try_lock() {
            return false;
        }
        self.closed.store(true, SeqCst);
        if self.empty() {
            return true;
        }
        // SAFETY: the part of the write lock that was taken above.
        unsafe { self.unlock_write() };
        false
    }

    /// Ends writing.
    ///
    /// # Safety
    /// This thread holds the lock for writing.
    pub unsafe fn unlock_write(&self) {
        self.closed.store(false, Release);
        // SAFETY: held since `write`.
        unsafe { self.writer.unlock() };
    }

    /// Makes the lock free in a child process after `fork`, whatever thread of the parent held it.
    ///
    /// Threads that read or wrote in the parent do not exist in the child, and never leave. So write-lock it
    /// in `pthread_atfork`'s `prepare` handler, unlock it in `parent`, and call this in `child`.
    ///
    /// # Safety
    /// No other thread of this process uses the lock, and its data are consistent.
    pub unsafe fn reset_after_fork(&self) {
        self.readers.iter().for_each(|count| count.store(0, Relaxed));
        self.closed.store(false, Release);
        // SAFETY: the caller's promise.
        unsafe { self.writer.reset_after_fork() };
    }

    /// Whether a writer has the lock or waits for readers to leave.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

//! A condition variable for the adaptive mutex.
//!
//! # Invariant
//!
//! A waiter counts itself in and reads `turn` before it frees the mutex, and sleeps only while `turn` has the
//! value that it read. A notifier changes `turn` and then looks at the count. Both are sequentially
//! consistent. So if the notifier sees no waiter, each waiter's look at `turn` comes after the change: it
//! began to wait after the notification. Otherwise the waiter is asleep and woken, or is about to sleep and
//! finds another `turn`. It would miss a notification only if 2^32 of them came between its two looks.
//!
//! A waiter that is killed in memory shared by processes stays counted, which costs notifiers a system call.

use crate::locks::mutex::MutexGuard;
use crate::locks::raw_mutex::RawMutex;
use crate::sys::{ALL, AtomicU32, Futex, Instant, Ordering, Wait};
use Ordering::{Relaxed, SeqCst};

/// A bit of `waiters`: some waiters lie in memory that processes share.
const SHARED: u32 = 1 << 31;

/// Lets threads wait until another thread notifies them of a change. 8 bytes, valid when zeroed.
///
/// ```
/// use libncpu::{Condvar, Mutex};
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         *ready.lock() = true;
///         changed.notify_one();
///     });
///     let mut ready = ready.lock();
///     while !*ready {
///         ready = changed.wait(ready);
///     }
/// });
/// ```
#[repr(C)]
pub struct Condvar {
    turn: Futex,
    waiters: AtomicU32,
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar { turn: Futex::new(0), waiters: AtomicU32::new(0) }
    }

    /// Frees the mutex, waits for a notification and takes the mutex again. May return without a
    /// notification, so check the condition again.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        // SAFETY: the guard exists, so this thread holds the mutex, and does so when this returns.
        unsafe { self.wait_raw(guard.raw(), None) };
        guard
    }

    /// As [`Condvar::wait`], until a deadline at the latest; false if that has passed.
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, bool) {
        // SAFETY: as in `wait`.
        let notified = unsafe { self.wait_raw(guard.raw(), Some(deadline)) };
        (guard, notified)
    }

    /// As [`Condvar::wait`] and [`Condvar::wait_until`] with a raw mutex.
    ///
    /// # Safety
    /// The calling thread holds the mutex.
    pub unsafe fn wait_raw(&self, mutex: &RawMutex, deadline: Option<Instant>) -> bool {
        let shared = mutex.is_shared();
        if shared {
            self.waiters.fetch_or(SHARED, SeqCst);
        }
        self.waiters.fetch_add(1, SeqCst);
        let turn = self.turn.load(SeqCst);
        // SAFETY: the caller's promise.
        unsafe { mutex.unlock() };
        let woken = self.turn.wait(turn, ALL, deadline, shared);
        self.waiters.fetch_sub(1, SeqCst);
        mutex.lock();
        woken != Wait::TimedOut
    }

    /// Wakes one thread that waits, if there is one.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.notify(ALL);
    }

    fn notify(&self, count: u32) {
        self.turn.fetch_add(1, SeqCst);
        let waiters = self.waiters.load(SeqCst);
        if waiters & !SHARED != 0 {
            self.turn.wake(count, ALL, waiters & SHARED != 0);
        }
    }

    /// For a child of `fork`: forgets the waiters of the parent.
    ///
    /// # Safety
    /// No other thread of this process uses it, and it does not lie in memory shared with the parent.
    pub unsafe fn reset_after_fork(&self) {
        self.waiters.store(0, Relaxed);
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

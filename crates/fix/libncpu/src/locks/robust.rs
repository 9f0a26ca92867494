//! A mutex that survives its owner's death.

use crate::locks::backoff::Backoff;
use crate::sys::{self, ALL, Futex, Instant, Ordering};
use Ordering::{Acquire, Relaxed, Release};
use std::cell::Cell;

/// Threads sleep, or may sleep.
const WAITERS: u32 = 1 << 31;
/// How often a sleeper checks whether the owner is alive.
const LOOK_NS: u64 = 50_000_000;

/// Result of taking a [`RobustMutex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The previous owner unlocked the mutex.
    Clean,
    /// The previous owner ended while it held the mutex, so the data may be half changed. The caller holds
    /// the mutex, repairs the data and unlocks.
    OwnerDied,
}

/// Why a [`RobustMutex`] was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The calling thread holds it already, and would wait for itself.
    Deadlock,
    /// The deadline passed.
    TimedOut,
    /// Another thread holds it.
    Busy,
}

impl std::fmt::Display for NotTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotTaken::Deadlock => "the thread holds this mutex already",
            NotTaken::TimedOut => "the mutex was not freed in time",
            NotTaken::Busy => "the mutex is held",
        })
    }
}

impl std::error::Error for NotTaken {}

thread_local! {
    /// The process by its generation, and the number of robust mutexes that this thread holds in it. A thread
    /// that holds none is not the owner that an old word names by the same ID. A forked child's thread holds
    /// none, whatever its parent held.
    static HELD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// How many robust mutexes this thread holds.
#[inline]
fn held() -> u32 {
    let (generation, held) = HELD.get();
    if generation == sys::forks() { held } else { 0 }
}

/// A mutex, in memory of one process or shared by several, that is taken over when its owner ends without unlocking:
/// a thread that returned, a process that was killed. 4 bytes, valid when zeroed.
///
/// The word holds the owner's thread ID. A thread that is about to sleep, and one that slept for 50 ms,
/// checks in `/proc/<tid>/stat` whether the owner still lives. Nothing is registered with the kernel, whose
/// list of robust futexes belongs to the C library. So:
///
/// - processes that share the mutex must be in one PID namespace, with `/proc` mounted and visible to them;
/// - if the dead owner's thread ID is given to a new thread, the mutex stays locked until that thread ends or
///   tries to take the mutex itself. It then takes the mutex over if it holds no other robust mutex, and gets
///   a deadlock error otherwise;
/// - a process that holds it and calls `execve` still holds it, until the process ends;
/// - in memory that a forked child has a copy of, the copy names an owner in the parent, and the child waits
///   for the end of that owner: see [`RobustMutex::reset_after_fork`].
///
/// A thread's ID is read from the kernel once. A child reads it anew, however it was made (`fork`, `_Fork`,
/// `clone`), except a `vfork` child, which uses its parent's memory and must not touch a lock.
///
/// An owner that locks again gets [`NotTaken::Deadlock`]. An unlock by any other thread fails and changes nothing.
///
/// # Where owners may die
///
/// With the word taken: the next look finds the owner dead. As a waiter, asleep or spinning: `WAITERS` may
/// stay set, which costs an unlock one needless wake-up. Between freeing the word and the wake-up: sleepers
/// look again after 50 ms, and find the word free. As the heir of a dead owner: the next thread gets
/// `OwnerDied` again.
///
/// # Invariant and ordering
///
/// The word is 0 or an owner's ID, with `WAITERS` if threads may sleep. One compare-and-swap takes it from 0
/// or from a dead owner, so there is one heir. Taking is an acquire, freeing a release. A sleeper sets
/// `WAITERS` before it sleeps, on the value that it sleeps on, and an owner that slept keeps `WAITERS` set,
/// since other threads may still sleep.
#[repr(transparent)]
pub struct RobustMutex {
    word: Futex,
}

impl RobustMutex {
    /// A free mutex.
    pub const fn new() -> RobustMutex {
        RobustMutex { word: Futex::new(0) }
    }

    /// Frees the copy of the mutex that a child of `fork` has in private memory, whatever thread of the
    /// parent held it. For `pthread_atfork`'s child handler, if the prepare handler took the mutex.
    ///
    /// # Safety
    /// The memory is not shared with the parent, no other thread of this process uses the mutex, and its data are
    /// consistent.
    pub unsafe fn reset_after_fork(&self) {
        self.word.store(0, Release);
    }

    /// Takes the mutex, until the deadline if there is one.
    #[inline]
    pub fn lock(&self, deadline: Option<Instant>) -> Result<Taken, NotTaken> {
        let me = sys::thread_id();
        let taken = match self.word.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => Ok(Taken::Clean),
            Err(seen) => self.lock_slow(me, seen, deadline),
        };
        count(taken)
    }

    /// Takes the mutex if it is free or its owner is dead.
    pub fn try_lock(&self) -> Result<Taken, NotTaken> {
        let me = sys::thread_id();
        let taken = match self.word.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => Ok(Taken::Clean),
            Err(seen) => self.take_over(me, seen).ok_or(NotTaken::Busy),
        };
        count(taken)
    }

    /// Frees the mutex. False, and nothing changes, if the calling thread does not hold it.
    #[inline]
    pub fn unlock(&self) -> bool {
        if self.word.load(Relaxed) & !WAITERS != sys::thread_id() {
            return false;
        }
        HELD.set((sys::forks(), held().saturating_sub(1)));
        if self.word.swap(0, Release) & WAITERS != 0 {
            self.word.wake(1, ALL, true);
        }
        true
    }

    /// Takes the mutex over from the dead owner with the ID in `seen`.
    fn take_over(&self, me: u32, seen: u32) -> Option<Taken> {
        let owner = seen & !WAITERS;
        let dead = if owner == me { held() == 0 } else { owner != 0 && !sys::thread_lives(owner) };
        if !dead {
            return None;
        }
        self.word
            .compare_exchange(seen, me | (seen & WAITERS), Acquire, Relaxed)
            .ok()
            .map(|_| Taken::OwnerDied)
    }

    #[cold]
    fn lock_slow(&self, me: u32, mut seen: u32, deadline: Option<Instant>) -> Result<Taken, NotTaken> {
        let mut backoff = Backoff::new(0);
        let mut waiters = 0;
        loop {
            if seen & !WAITERS == 0 {
                match self.word.compare_exchange(seen, me | waiters, Acquire, Relaxed) {
                    Ok(_) => return Ok(Taken::Clean),
                    Err(now) => seen = now,
                }
                continue;
            }
            if seen & !WAITERS == me {
                return self.take_over(me, seen).ok_or(NotTaken::Deadlock);
            }
            if seen & WAITERS == 0 && backoff.wait() {
                seen = self.word.load(Relaxed);
                continue;
            }
            if let Some(taken) = self.take_over(me, seen) {
                return Ok(taken);
            }
            if seen & WAITERS == 0 {
                if let Err(now) = self.word.compare_exchange(seen, seen | WAITERS, Relaxed, Relaxed) {
                    seen = now;
                    continue;
                }
                seen |= WAITERS;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                // The wake-up that this thread consumed may have been meant for another, and WAITERS may be
                // cleared with it.
                if waiters != 0 {
                    self.word.wake(1, ALL, true);
                }
                return Err(NotTaken::TimedOut);
            }
            let look = now.plus(LOOK_NS);
            self.word.wait(seen, ALL, Some(deadline.map_or(look, |deadline| deadline.min(look))), true);
            waiters = WAITERS;
            seen = self.word.load(Relaxed);
        }
    }
}

/// Counts a mutex that was taken.
#[inline]
fn count(taken: Result<Taken, NotTaken>) -> Result<Taken, NotTaken> {
    if taken.is_ok() {
        HELD.set((sys::forks(), held() + 1));
    }
    taken
}

impl Default for RobustMutex {
    fn default() -> RobustMutex {
        RobustMutex::new()
    }
}

//! The adaptive mutex without the data it protects.
//!
//! # Where it comes from
//!
//! From Solaris' kernel mutex, as Steve Sistare described it ("The Kernel Adaptive Mutex", 2008): spin while
//! the owner is on a CPU, by a check of constant cost; space attempts out by exponential back-off whose cap
//! grows with the number of CPUs; wait with instructions that leave the pipeline to other threads. And from
//! Mateusz Guzik's remarks on NetBSD's mutex: use the value that compare-and-swap returned instead of reading
//! the word again.
//!
//! In user space no word says whether a thread is on a CPU. So the owner writes its CPU's number, one load
//! from its `struct rseq`, into the lock word with the same compare-and-swap that takes the lock. A waiter
//! that finds its *own* CPU there knows that the owner is not running, because the waiter is. It marks the
//! word, and all other spinning threads see the mark with their next attempt and sleep. Without that evidence
//! spinning is bounded.
//!
//! # Invariant
//!
//! `word` is 0 (free), `RESERVED` (free, but only the demander may take it) or has `LOCKED`; only the thread that
//! changed it to `LOCKED` changes it back. A thread that sleeps is counted in `queue` before it looks at
//! `word` for the last time. The thread that frees the lock looks at `queue` afterwards and, if threads sleep
//! and none is `AWAKE`, wakes one. The woken thread (or a spinning one that claimed the part) is the *heir*.
//! `AWAKE` says that an heir exists, so that a busy lock makes one wake-up at a time and not one per unlock.
//! The heir clears `AWAKE` when it has the lock, so that its own unlock wakes the next thread. It also clears
//! `AWAKE` when it sleeps or gives up, and then looks at `word` again. So whenever threads sleep, either the
//! lock is held and its unlock will look at `queue`, or a thread is awake that will.
//!
//! # States
//!
//! `word`; the bits from [`CPU_SHIFT`] on hold the CPU on which the owner took the lock, plus one; 0: unknown:
//!
//! | `LOCKED` | `RESERVED` | `OFF_CPU` | means |
//! | - | - | - | --- |
//! | 0 | 0 | 0 | free for any thread |
//! | 0 | 1 | 0 | free for the demander alone; others sleep |
//! | 1 | 0 | 0 | held; its owner may be on a CPU, so waiters spin |
//! | 1 | 0 | 1 | held; a waiter on the owner's CPU has shown that it does not run, so waiters sleep |
//!
//! `queue`; n ([`SLEEPERS`]) counts threads that sleep, are about to, or have just woken up:
//!
//! | n | `AWAKE` | `DEMAND` | `GRANT` | means |
//! | - | - | - | - | --- |
//! | 0 | 0 | 0 | 0 | no sleepers: an unlock wakes nobody |
//! | > 0 | 0 | 0 | 0 | the next unlock wakes one sleeper, which becomes the heir; or a spinning thread becomes the heir |
//! | any | any | 1 | 0 | a thread is the demander, awake or asleep: an unlock leaves `RESERVED` and wakes it
//! |
//! | any | any | 1 | 0 | a thread is the demander, awake or asleep: an unlock leaves `RESERVED` and wakes it |
//! | any | 1 | 1 | 1 | the owner has demanded in the heir's name; the heir takes `GRANT` and becomes the
//! demander |
//!
//! In addition, `HOT` says that unlocks use a barrier of their own; `SHARED` and `FAIR` are set when the
//! mutex is made.
//!
//! # Memory ordering
//!
//! Taking the lock is an acquire of `word`, freeing it a release: critical sections are ordered. Sleeping
//! needs more: the sleeper writes `queue` then reads `word`, the unlocker writes `word` then reads `queue`,
//! and the two must not both read the old value (Dekker). Usually the unlocker pays for this with a full
//! barrier, which costs the same as taking the lock on x86. Here freeing is a plain store, and the sleeper pays:
//! `membarrier(2)` makes every running thread pass a barrier, so each of the unlocker's two accesses is on one
//! side of it. If the store came before it, the sleeper sees
//! the lock free; if not, the unlocker's look at `queue` comes after it and sees the sleeper. A membarrier
//! costs microseconds and interrupts other CPUs. So its first use makes the lock `HOT`: unlocks use a barrier
//! of their own, and sleepers need none, until `CALM` unlocks passed. Clearing `HOT` is a read-modify-write
//! of `queue` by the owner. A sleeper that still found `HOT` in it came earlier in that word's modification
//! order, so the owner and every later owner see that sleeper.
//!
//! # Fairness
//!
//! Arriving threads may overtake sleepers, since handing a lock to a thread that must first be scheduled
//! would leave it unused meanwhile. For an eighth of the time spinning threads may not become the heir, so
//! that sleepers are woken, oldest first. An heir that finds the lock taken again and again naps for
//! `NAP_NS`, about the time of a wake-up, and remains the heir. A thread that has slept and has waited
//! for `STARVED_NS` sets `DEMAND`: the next unlock then leaves the lock `RESERVED`, and only the demander
//! takes it. There is one demander at a time. A sleeper wakes up by itself to demand. Where more threads
//! sleep than there are CPUs, that time grows by `STARVED_NS` for each sleeper per CPU, because a demander
//! that must first be scheduled costs a context switch. A thread that finds another demander sleeps for a
//! fraction of the time. After a few such sleeps the length of a sleep doubles, so that a lock with a long
//! critical section wakes its sleepers ever more rarely.
//!
//! An owner can hand the lock over itself ([`RawMutex::unlock_fair`]): it sets `DEMAND` in the name of the
//! heir, and `GRANT`, and leaves the lock `RESERVED`. The heir, which the owner wakes if there was none,
//! takes `GRANT` and is the demander from then on. An heir that sleeps or gives up clears `GRANT` in the same
//! compare-and-swap, so no grant is left without an heir. A *fair* mutex hands the lock over at each
//! `TURN`-th unlock. So a thread that sleeps behind n other threads waits for at most (n + 1) × `TURN`
//! unlocks, plus the time that waking an heir takes.

use crate::locks::backoff::Backoff;
use crate::locks::probe;
use crate::sys::{self, AtomicU16, AtomicU32, Futex, Instant, Ordering, Wait};
use Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::cell::Cell;

const LOCKED: u32 = 1;
/// Free for the demander only.
const RESERVED: u32 = 2;
/// A waiter has shown that the owner is not on a CPU.
const OFF_CPU: u32 = 4;
/// From here on: the CPU on which the owner took the lock, plus one; 0 is unknown.
const CPU_SHIFT: u32 = 8;

/// An heir exists: unlocks need not wake a thread. The sign bit, so that "threads sleep and no heir" is `>
/// 0`.
const AWAKE: u32 = 1 << 31;
/// A starved thread wants the next turn.
const DEMAND: u32 = 1 << 30;
/// In memory shared by processes: no membarrier works across processes, and no demand, which a killed process
/// would leave behind.
const SHARED: u32 = 1 << 29;
/// Unlocks use a barrier.
const HOT: u32 = 1 << 28;
/// The owner has demanded the next turn for the heir.
const GRANT: u32 = 1 << 27;
/// Hands over at each `TURN`-th unlock; unlocks always use a barrier.
const FAIR: u32 = 1 << 26;
/// Threads that sleep or are about to.
const SLEEPERS: u32 = FAIR - 1;

/// Bits of `wait` and `wake`.
const ANY: u32 = 1;
const DEMANDER: u32 = 2;
const NOBODY: u32 = 4;

/// A thread that waited this long demands the next turn.
const STARVED_NS: u64 = 1_000_000;
/// A thread that found another demander sleeps for this fraction of the time before it looks again.
const LOOKS: u64 = 4;
/// Timed-out sleeps after which the length of a sleep doubles, and the largest number of doublings.
const DOUBLES_AFTER: u32 = 4;
const DOUBLINGS: u32 = 9;
/// An heir that lost to threads that come back at once naps for about the time of a wake-up.
const NAP_NS: u64 = 50_000;
/// Unlocks with a barrier of their own after a membarrier: about what that cost, at a few ns each.
const CALM: u16 = 1024;
/// A fair mutex is handed over at every Nth unlock.
const TURN: u16 = 128;

/// An adaptive mutex without data. 16 bytes, valid when zeroed; never poisoned; not recursive.
///
/// Misuse: unlocking a mutex that is not locked by the caller breaks mutual exclusion (the C interface detects a
/// double unlock); locking it again in the owner's thread waits forever.
#[repr(C)]
pub struct RawMutex {
    word: AtomicU32,
    queue: AtomicU32,
    /// Changes with every wake-up; the word that sleepers sleep on.
    turn: Futex,
    /// Unlocks since the last membarrier; written by the owner, reset by sleepers. A hint.
    calm: AtomicU16,
    /// Recent average of pauses that successful spinning took, in eighths. A hint.
    spin: AtomicU16,
}

/// State of a thread on the slow path.
#[derive(Default)]
struct Waiter {
    heir: bool,
    demands: bool,
    slept: bool,
    attempts: u32,
    /// Sleeps that timed out.
    timeouts: u32,
}

impl Waiter {
    /// The moment at which it wakes by itself to demand the lock; `None` if it may not demand, or has
    /// demanded.
    fn patience(&self, queue: u32) -> Option<Instant> {
        if self.demands || queue & SHARED != 0 || !sys::demands_unwoken() {
            return None;
        }
        let sleep = match self.timeouts {
            0 => starved(queue),
            n => (starved(queue) / LOOKS) << (n / DOUBLES_AFTER).min(DOUBLINGS),
        };
        Some(Instant::now().plus(sleep))
    }
}

#[inline(always)]
fn taken() -> u32 {
    LOCKED | sys::cpu().map_or(0, |cpu| cpu.wrapping_add(1) << CPU_SHIFT)
}

impl RawMutex {
    /// A free mutex for the threads of one process.
    pub const fn new() -> RawMutex {
        RawMutex::with_queue(0)
    }

    /// A free mutex for memory that several processes map.
    ///
    /// A process that is killed while it holds the mutex leaves it locked: see [`RobustMutex`](crate::RobustMutex).
    /// A process that is killed while it waits does no harm; for this reason starved threads are not handed
    /// the lock here.
    pub const fn new_shared() -> RawMutex {
        RawMutex::with_queue(SHARED)
    }

    /// A free mutex for the threads of one process that bounds how often a sleeper is overtaken. Its cost:
    /// docs/mutex.md.
    pub const fn new_fair() -> RawMutex {
        RawMutex::with_queue(FAIR)
    }

    const fn with_queue(queue: u32) -> RawMutex {
        RawMutex {
            word: AtomicU32::new(0),
            queue: AtomicU32::new(queue),
            turn: Futex::new(0),
            calm: AtomicU16::new(0),
            spin: AtomicU16::new(0),
        }
    }

    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// Takes the mutex, waiting without limit.
    #[inline]
    pub fn lock(&self) {
        let taken = taken();
        if let Err(seen) = self.word.compare_exchange(0, taken, Acquire, Relaxed) {
            self.lock_slow(seen, None);
        }
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.word.compare_exchange(0, taken(), Acquire, Relaxed).is_ok()
    }

    /// Takes the mutex unless the deadline passes first.
    #[inline]
    pub fn try_lock_until(&self, deadline: Instant) -> bool {
        match self.word.compare_exchange(0, taken(), Acquire, Relaxed) {
            Ok(_) => true,
            Err(seen) => self.lock_slow(seen, Some(deadline)),
        }
    }

    /// Whether some thread holds the mutex. Exact in the owner; in other threads the answer may be out of
    /// date.
    pub fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }

    /// Whether it is for memory that several processes map.
    pub fn is_shared(&self) -> bool {
        self.queue.load(Relaxed) & SHARED != 0
    }

    /// Frees the mutex.
    ///
    /// # Safety
    /// The calling thread holds it.
    #[inline]
    pub unsafe fn unlock(&self) {
        if self.queue.load(Relaxed) & (HOT | DEMAND | SHARED | FAIR) == 0 {
            self.word.store(0, Release);
            // Pairs with the sleeper's `heavy_barrier`.
            sys::light_barrier();
            if self.queue.load(Relaxed).cast_signed() > 0 {
                self.attend();
            }
        } else {
            self.unlock_hot();
        }
    }

    /// Makes the mutex free in a child process after `fork`, whatever thread of the parent held it.
    ///
    /// Only the thread that called `fork` lives on in the child; others that held the mutex or waited for it do not.
    /// So take the mutex in `pthread_atfork`'s `prepare` handler, unlock it in `parent`, and call this in `child`.
    ///
    /// # Safety
    /// No other thread of this process uses the mutex, and its data are consistent.
    pub unsafe fn reset_after_fork(&self) {
        self.queue.store(self.queue.load(Relaxed) & (SHARED | FAIR), Relaxed);
        self.calm.store(0, Relaxed);
        self.word.store(0, Release);
    }

    /// Frees the mutex. If threads sleep, it is reserved for the one that is being woken or has slept
    /// longest. In memory shared by processes this is a plain unlock.
    ///
    /// # Safety
    /// The calling thread holds it.
    pub unsafe fn unlock_fair(&self) {
        let mut queue = self.queue.load(Relaxed);
        loop {
            if queue & SLEEPERS == 0 || queue & (DEMAND | SHARED) != 0 {
                // No thread sleeps, or some thread has the next turn already.
                self.unlock_plainly();
                return;
            }
            match self.queue.compare_exchange(queue, queue | AWAKE | DEMAND | GRANT, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(now) => queue = now,
            }
        }
        self.word.swap(RESERVED, SeqCst);
        if queue & AWAKE == 0 && self.wake(ANY, queue) == 0 {
            // No thread slept yet, so there may be no heir to take the grant.
            self.announce(without_heir);
        }
        let queue = self.queue.load(SeqCst);
        if queue & DEMAND != 0 {
            // An heir has the grant, or will have it. It may have gone to sleep with the grant before the
            // lock was left to it.
            if queue & GRANT == 0 {
                self.wake(DEMANDER, queue);
            }
            return;
        }
        // As it is in `unlock_hot` and `attend`.
        let _ = self.word.compare_exchange(RESERVED, 0, SeqCst, SeqCst);
        let queue = self.queue.load(SeqCst);
        if needs_wake(queue) && self.word.load(SeqCst) == 0 {
            self.wake(ANY, queue);
        }
    }

    /// Unlock with a barrier, which also serves a demander.
    #[cold]
    #[inline(never)]
    fn unlock_hot(&self) {
        let queue = self.queue.load(Relaxed);
        if queue & FAIR != 0 {
            let turns = self.calm.load(Relaxed) + 1;
            self.calm.store(turns % TURN, Relaxed);
            if turns >= TURN {
                // SAFETY: the caller's.
                unsafe { self.unlock_fair() };
                return;
            }
        }
        self.unlock_plainly();
    }

    /// Unlock with a barrier.
    fn unlock_plainly(&self) {
        let queue = self.queue.load(Relaxed);
        if queue & (HOT | FAIR) == HOT {
            let calm = self.calm.load(Relaxed) + 1;
            if calm >= CALM {
                self.queue.fetch_and(!HOT, Relaxed);
            }
            self.calm.store(calm % CALM, Relaxed);
        }
        let free = if queue & DEMAND != 0 { RESERVED } else { 0 };
        // A barrier: both accesses are sequentially consistent, and so are the sleeper's two.
        self.word.swap(free, SeqCst);
        let mut queue = self.queue.load(SeqCst);
        if free == RESERVED && queue & DEMAND == 0 {
            // The demander gave up between the two looks, and may still have seen the lock taken.
            let _ = self.word.compare_exchange(RESERVED, 0, SeqCst, SeqCst);
            // The lock becomes free only here: threads that saw it reserved meanwhile sleep.
            queue = self.queue.load(SeqCst);
        }
        if needs_wake(queue) || queue & DEMAND != 0 {
            self.attend();
        }
    }

    /// After the lock was freed: wakes a sleeper if no thread is awake to take it.
    #[cold]
    #[inline(never)]
    fn attend(&self) {
        let mut queue = self.queue.load(SeqCst);
        loop {
            if queue & DEMAND != 0 {
                self.wake(DEMANDER, queue);
                return;
            }
            if !needs_wake(queue) {
                return;
            }
            if queue & SHARED != 0 {
                self.wake(ANY, queue);
                return;
            }
            // A thread that took the lock meanwhile will look at the queue in its turn.
            if self.word.load(SeqCst) != 0 {
                return;
            }
            match self.queue.compare_exchange(queue, queue | AWAKE, SeqCst, SeqCst) {
                Ok(_) => {}
                Err(now) => {
                    queue = now;
                    continue;
                }
            }
            if self.wake(ANY, queue) != 0 {
                return;
            }
            // No thread slept yet: a thread that was about to sleep sees the new turn and stays awake. But
            // unlocks since then have relied on an heir, so they may have left sleepers. Make one more
            // wake-up, without claiming an heir that might not exist.
            queue = self.announce(without_heir);
            // The demand of an owner that took `AWAKE` for an heir.
            if queue & DEMAND == 0 {
                let _ = self.word.compare_exchange(RESERVED, 0, SeqCst, SeqCst);
            }
            if needs_wake(queue) && self.word.load(SeqCst) == 0 {
                self.wake(ANY, queue);
            }
            return;
        }
    }

    fn wake(&self, bits: u32, queue: u32) -> usize {
        self.turn.fetch_add(1, SeqCst);
        self.turn.wake(1, bits, queue & SHARED != 0)
    }

    /// Changes the queue in a way that unlocks must see from then on. Returns the new value.
    fn announce(&self, change: impl Fn(u32) -> u32) -> u32 {
        let mut queue = self.queue.load(Relaxed);
        loop {
            // Membarrier does not work across processes: unlocks of shared memory always use a barrier, and
            // so do fair ones.
            let new = change(queue) | if queue & (SHARED | FAIR) == 0 { HOT } else { 0 };
            match self.queue.compare_exchange(queue, new, SeqCst, Relaxed) {
                Ok(_) => {
                    if queue & (HOT | SHARED | FAIR) == 0 {
                        self.calm.store(0, Relaxed);
                        if !sys::heavy_barrier() {
                            // This kernel has no membarrier. An unlock that did not see HOT is complete once
                            // its store buffer has drained, which takes far less time than this.
                            sys::without_barrier();
                        }
                    }
                    return new;
                }
                Err(now) => queue = now,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, seen: u32, deadline: Option<Instant>) -> bool {
        probe::mutex_slow(self.address());
        let mut waiter = Waiter::default();
        let mut start = None;
        let mut seen = seen;
        loop {
            if self.spin(seen, &mut waiter) {
                self.settle(&waiter);
                probe::mutex_acquired(self.address(), waiter.attempts);
                return true;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                self.give_up(&mut waiter);
                probe::mutex_abandoned(self.address(), waiter.attempts);
                return false;
            }
            let start = *start.get_or_insert(now);
            if waiter.heir && waiter.slept && !waiter.demands {
                seen = self.word.load(Relaxed);
                if seen & OFF_CPU == 0 && now.since(start) < self.starved() {
                    // No other thread is woken meanwhile, and the owner need not wake one.
                    let nap = now.plus(NAP_NS);
                    let turn = self.turn.load(Relaxed);
                    self.turn.wait(turn, NOBODY, Some(deadline.map_or(nap, |d| d.min(nap))), false);
                    continue;
                }
            }
            if waiter.slept && !waiter.demands && now.since(start) >= self.starved() {
                waiter.demands = self.demand();
                if waiter.demands {
                    // The next unlock serves this thread, which should be awake then.
                    seen = self.word.load(Relaxed);
                    continue;
                }
            }
            self.sleep(&mut waiter, deadline);
            seen = self.word.load(Relaxed);
        }
    }

    /// Attempts to take the lock while its owner may be running.
    fn spin(&self, mut seen: u32, waiter: &mut Waiter) -> bool {
        let learned = self.spin.load(Relaxed);
        let mut backoff = Backoff::new(u32::from(learned) / 4);
        let won = loop {
            waiter.attempts = waiter.attempts.saturating_add(1);
            if seen == RESERVED && waiter.heir && !waiter.demands {
                waiter.demands = self.take_grant();
            }
            if seen == 0 || (seen == RESERVED && waiter.demands) {
                match self.word.compare_exchange(seen, taken(), Acquire, Relaxed) {
                    Ok(_) => break true,
                    Err(now) => seen = now,
                }
            }
            if seen & LOCKED != 0 {
                if seen & OFF_CPU != 0 {
                    break false;
                }
                let owner = seen >> CPU_SHIFT;
                if owner != 0 && sys::cpu().is_some_and(|cpu| cpu.wrapping_add(1) == owner) {
                    let _ = self.word.compare_exchange(seen, seen | OFF_CPU, Relaxed, Relaxed);
                    break false;
                }
            }
            if !waiter.heir {
                self.claim(waiter);
            }
            if !backoff.wait() {
                break false;
            }
            seen = self.word.load(Relaxed);
        };
        probe::mutex_spin(self.address(), waiter.attempts);
        let pauses = if won { backoff.spent.min(u32::from(u16::MAX / 8)) as u16 } else { 0 };
        // Eight times the moving average over about eight values.
        self.spin.store(learned - learned / 8 + pauses, Relaxed);
        won
    }

    /// Becomes the heir if threads sleep and there is none: this thread is awake already.
    fn claim(&self, waiter: &mut Waiter) {
        let queue = self.queue.load(Relaxed);
        if needs_wake(queue)
            && queue & SHARED == 0
            && !sys::in_window()
            && self.queue.compare_exchange(queue, queue | AWAKE, SeqCst, Relaxed).is_ok()
        {
            waiter.heir = true;
        }
    }

    /// With the lock held: clears the waiter's marks. The own unlock will see it.
    fn settle(&self, waiter: &Waiter) {
        let gone = if waiter.heir { AWAKE } else { 0 } | if waiter.demands { DEMAND } else { 0 };
        if gone != 0 {
            // A grant that an heir did not need: the lock became free again before it was left to the heir.
            let needless = |queue| if waiter.heir && queue & GRANT != 0 { GRANT | DEMAND } else { 0 };
            let mut queue = self.queue.load(Relaxed);
            while let Err(now) =
                self.queue.compare_exchange(queue, queue & !(gone | needless(queue)), SeqCst, Relaxed)
            {
                queue = now;
            }
        }
    }

    /// As the heir: takes the demand that the owner made in its name.
    fn take_grant(&self) -> bool {
        self.queue.load(Relaxed) & GRANT != 0 && self.queue.fetch_and(!GRANT, SeqCst) & GRANT != 0
    }

    /// Demands the next turn; there is one demander at a time.
    fn demand(&self) -> bool {
        let queue = self.queue.load(Relaxed);
        queue & SHARED == 0 && self.queue.fetch_or(DEMAND, SeqCst) & DEMAND == 0
    }

    /// How long a thread waits before it demands the next turn, in nanoseconds.
    fn starved(&self) -> u64 {
        starved(self.queue.load(Relaxed))
    }

    fn sleep(&self, waiter: &mut Waiter, deadline: Option<Instant>) {
        let turn = self.turn.load(SeqCst);
        let heir = if waiter.heir { AWAKE | GRANT } else { 0 };
        let granted = Cell::new(false);
        let queue = self.announce(|queue| {
            granted.set(queue & heir & GRANT != 0);
            (queue & !heir) + 1
        });
        waiter.heir = false;
        // `DEMAND` stays set, and belongs to this thread.
        waiter.demands |= granted.get();
        // Only from here on is it certain that an unlock after this look wakes a thread.
        let seen = self.word.load(SeqCst);
        if !(seen == 0 || (seen == RESERVED && waiter.demands)) {
            probe::mutex_block(self.address());
            let bits = if waiter.demands { DEMANDER } else { ANY };
            let until = match (waiter.patience(queue), deadline) {
                (Some(own), Some(deadline)) => Some(own.min(deadline)),
                (own, deadline) => own.or(deadline),
            };
            let woken = self.turn.wait(turn, bits, until, queue & SHARED != 0);
            waiter.timeouts += u32::from(woken == Wait::TimedOut);
            probe::mutex_wakeup(self.address());
            // A wake-up of ANY made this thread the heir; a demander has the next turn anyway.
            waiter.heir = woken == Wait::Woken && !waiter.demands && queue & SHARED == 0;
            waiter.slept = true;
        }
        self.queue.fetch_sub(1, SeqCst);
    }

    /// Leaves without the lock, and passes on the duties that other threads rely on.
    fn give_up(&self, waiter: &mut Waiter) {
        let gone = if waiter.heir { AWAKE } else { 0 } | if waiter.demands { DEMAND } else { 0 };
        if gone == 0 {
            return;
        }
        let granted = Cell::new(false);
        self.announce(|queue| {
            granted.set(waiter.heir && queue & GRANT != 0);
            queue & !(gone | if granted.get() { GRANT | DEMAND } else { 0 })
        });
        if waiter.demands || granted.get() {
            let _ = self.word.compare_exchange(RESERVED, 0, SeqCst, Relaxed);
        }
        if self.word.load(SeqCst) == 0 {
            self.attend();
        }
    }
}

/// How long a thread waits before it demands the next turn, in nanoseconds: longer if more threads sleep than
/// there are CPUs.
pub(crate) fn starved(queue: u32) -> u64 {
    let sleepers = u64::from(queue & SLEEPERS);
    STARVED_NS.max(sleepers * STARVED_NS / u64::from(sys::cpus().max(1)))
}

/// The queue without an heir, and without the grant to that heir.
fn without_heir(queue: u32) -> u32 {
    if queue & GRANT != 0 { queue & !(AWAKE | DEMAND | GRANT) } else { queue & !AWAKE }
}

fn needs_wake(queue: u32) -> bool {
    queue & SLEEPERS != 0 && queue & AWAKE == 0
}

impl Default for RawMutex {
    fn default() -> RawMutex {
        RawMutex::new()
    }
}

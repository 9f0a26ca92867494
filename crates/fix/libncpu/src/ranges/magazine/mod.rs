//! Per-CPU magazines of objects of one size, and the depot they are exchanged at.
//!
//! # Where it comes from
//!
//! Jeff Bonwick and Jonathan Adams, "Magazines and Vmem" (USENIX 2001). Each CPU has a loaded magazine and
//! the previous one, so it uses the depot at most once per magazine's worth of operations. The depot makes
//! magazines larger when it is contended. Magazines that it did not need within an interval are the surplus
//! of its working set, and are returned. Written from the paper.
//!
//! # The lock of a CPU
//!
//! A thread may lose its CPU anywhere, so a CPU's pair of magazines has a lock, of two words. `own` is taken
//! by threads on that CPU, by a restartable sequence without an atomic operation (`sys::lock_here`). No
//! thread waits for it. A thread that finds it taken, by a thread that lost its CPU, tries the CPU's second
//! pair, by a swap of its `own`, and then goes to the arena. CPUs beyond those possible at start
//! share the second pairs; without restartable sequences there are only second pairs. `barred` keeps threads
//! out, from any CPU: it is set, then `sys::fence_rseq` ensures that the store of every thread that took
//! `own` before is visible and that all other threads see the bar; then the setter waits for `own`. At second
//! pairs both sides write their word and then read the other's, all sequentially consistent, so one sees the
//! other.
//!
//! # Invariants
//!
//! 1. A pair is touched only by the holder of `own`, or with the bar up and `own` seen 0 since. The store of
//!    0 to `own` releases the pair, and the next taker or waiter acquires it.
//! 2. An object that is not handed out is in a pair or the depot, or in the hands of a holder of `own` or of the arena's
//!    lock. So with the arena's lock held, all bars up and each `own` 0, it is in a pair or the depot.
//! 3. Locks are taken in the order arena, CPU, depot.

mod depot;
mod rounds;

use crate::locks::mutex::{Mutex, MutexGuard};
use crate::percpu::{OutOfMemory, Padded, boxed};
use crate::ranges::objects::{Object, State};
use crate::sys::{self, AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use Ordering::{Relaxed, Release, SeqCst};
use depot::Stock;
use rounds::Magazine;
use std::cell::UnsafeCell;

/// The magazines of one CPU.
struct Pair {
    loaded: *mut Magazine,
    previous: *mut Magazine,
}

#[repr(C)]
struct Slot {
    /// `own` and `barred`.
    lock: [AtomicU16; 2],
    pair: UnsafeCell<Pair>,
    /// Written by the holder of the lock.
    allocs: AtomicU64,
    frees: AtomicU64,
}

/// Caches of objects of one size.
pub(crate) struct Magazines {
    slots: Box<[Padded<Slot>]>,
    /// The number of slots, at the front, that restartable sequences take. The rest is equally long, or is all
    /// slots.
    by_rseq: usize,
    depot: Padded<Mutex<Stock>>,
    /// The number of full magazines in the depot; a hint.
    full: AtomicUsize,
    /// Whether the depot has a surplus. A hint.
    due: AtomicBool,
}

// SAFETY: pairs are touched by one thread at a time, by the first invariant.
unsafe impl Sync for Magazines {}
// SAFETY: as above.
unsafe impl Send for Magazines {}

/// Result of giving an object to a magazine.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Given {
    Done,
    /// The object's state differs from the one that was seen.
    Changed,
    /// Another thread holds this CPU's magazines, or they are full.
    NoRoom,
}

/// Holds `own` of a slot until dropped.
struct Held<'a>(&'a Slot);

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.lock[0].store(0, Release);
    }
}

impl Held<'_> {
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The guard is the exclusive right.
    fn pair(&self) -> &mut Pair {
        // SAFETY: the first invariant; each holder calls this once.
        unsafe { &mut *self.0.pair.get() }
    }
}

impl Magazines {
    /// Empty magazines for `cpus` CPUs. `by_rseq` is the result of `sys::locks_by_rseq`.
    pub(crate) fn new(cpus: usize, by_rseq: bool) -> Result<Magazines, OutOfMemory> {
        let null = std::ptr::null_mut();
        let cpus = cpus.max(1);
        let by_rseq = if by_rseq { cpus } else { 0 };
        let slots = boxed(by_rseq + cpus, |_| {
            Padded(Slot {
                lock: [AtomicU16::new(0), AtomicU16::new(0)],
                pair: UnsafeCell::new(Pair { loaded: null, previous: null }),
                allocs: AtomicU64::new(0),
                frees: AtomicU64::new(0),
            })
        })?;
        Ok(Magazines {
            slots,
            by_rseq,
            depot: Padded(Mutex::new(Stock::NONE)),
            full: AtomicUsize::new(0),
            due: AtomicBool::new(false),
        })
    }

    /// The lock of the CPU that the thread is on, if it is free.
    #[inline(always)]
    fn lock(&self) -> Option<Held<'_>> {
        if self.by_rseq > 0 {
            let first: *const Padded<Slot> = self.slots.as_ptr();
            // SAFETY: the lock is the first of a slot; `locks_by_rseq` was true; only this makes `own` 1 there.
            let cpu = unsafe { sys::lock_here(first.cast(), size_of::<Padded<Slot>>(), self.by_rseq) };
            if let Some(cpu) = cpu {
                return Some(Held(&self.slots[cpu].0));
            }
        }
        self.lock_shared()
    }

    /// The lock of this CPU's second slot, which several threads may try to take at once.
    #[inline(never)]
    fn lock_shared(&self) -> Option<Held<'_>> {
        let shared = &self.slots[self.by_rseq..];
        let slot = &shared[sys::cpu_or_thread() as usize % shared.len()].0;
        if slot.lock[0].load(Relaxed) != 0 || slot.lock[0].swap(1, SeqCst) != 0 {
            return None;
        }
        let held = Held(slot);
        (slot.lock[1].load(SeqCst) == 0).then_some(held)
    }

    /// Takes an object from this CPU's magazines and hands it out.
    #[inline]
    pub(crate) fn alloc(&self) -> Option<u64> {
        let held = self.lock()?;
        let pair = held.pair();
        // SAFETY: null or magazines, and ours.
        unsafe {
            if !Magazine::has_rounds(pair.loaded) {
                if !Magazine::has_rounds(pair.previous) {
                    return None;
                }
                std::mem::swap(&mut pair.loaded, &mut pair.previous);
            }
            Some(hand_out(held.0, pair))
        }
    }

    /// Takes an object that was seen handed out back into this CPU's magazines.
    #[inline]
    pub(crate) fn free(&self, object: &Object, seen: State) -> Given {
        let Some(held) = self.lock() else { return Given::NoRoom };
        let pair = held.pair();
        // SAFETY: null or magazines, and ours.
        unsafe {
            if !Magazine::has_room(pair.loaded) {
                if !Magazine::has_room(pair.previous) {
                    return Given::NoRoom;
                }
                std::mem::swap(&mut pair.loaded, &mut pair.previous);
            }
            take_back(held.0, pair, object, seen)
        }
    }

    /// As `alloc`, with the depot: exchanges an empty magazine for a full one.
    #[cold]
    pub(crate) fn alloc_from_depot(&self) -> Option<u64> {
        // The hint saves the lock. The arena finds objects that it misses.
        if self.full.load(Relaxed) == 0 {
            return None;
        }
        let held = self.lock()?;
        let pair = held.pair();
        // SAFETY: null or magazines, and ours. The thread may be on another CPU than when `alloc` failed.
        unsafe {
            if !Magazine::has_rounds(pair.loaded) {
                let mut stock = self.depot();
                let full = stock.full.pop();
                if full.is_null() {
                    return None;
                }
                self.full.store(stock.full.length, Relaxed);
                let other = std::mem::replace(&mut pair.previous, std::mem::replace(&mut pair.loaded, full));
                self.shelve(stock, other);
            }
            Some(hand_out(held.0, pair))
        }
    }

    /// As `free`, with the depot: exchanges a full magazine for an empty one.
    #[cold]
    pub(crate) fn free_to_depot(&self, object: &Object, seen: State) -> Given {
        let Some(held) = self.lock() else { return Given::NoRoom };
        let pair = held.pair();
        // SAFETY: null or magazines, and ours.
        unsafe {
            if !Magazine::has_room(pair.loaded) {
                let mut stock = self.depot();
                let size = stock.rounds();
                let mut empty = stock.empty.pop();
                if empty.is_null() {
                    drop(stock);
                    empty = Magazine::new(size);
                    if empty.is_null() {
                        return Given::NoRoom;
                    }
                    stock = self.depot();
                }
                let other = std::mem::replace(&mut pair.previous, std::mem::replace(&mut pair.loaded, empty));
                self.shelve(stock, other);
            }
            take_back(held.0, pair, object, seen)
        }
    }

    /// Puts a magazine that a CPU does not need into the depot. Null is ignored.
    unsafe fn shelve(&self, mut stock: MutexGuard<'_, Stock>, magazine: *mut Magazine) {
        // SAFETY: the caller's own magazine.
        unsafe {
            if magazine.is_null() {
            } else if (*magazine).rounds > 0 {
                stock.full.push(magazine);
                self.full.store(stock.full.length, Relaxed);
            } else if (*magazine).capacity == stock.rounds() {
                stock.empty.push(magazine);
            } else {
                // Its size was too small.
                drop(stock);
                Magazine::discard(magazine);
            }
        }
    }

    /// The depot, locked, with contention and surplus updated.
    fn depot(&self) -> MutexGuard<'_, Stock> {
        let (mut stock, contended) = match self.depot.0.try_lock() {
            Some(stock) => (stock, false),
            None => (self.depot.0.lock(), true),
        };
        if stock.used(contended) {
            self.due.store(stock.has_surplus(), Relaxed);
        }
        stock
    }

    /// Sets the size of new magazines, as an index, for tests.
    #[cfg(test)]
    #[allow(dead_code)] // Used by tests/models.
    pub(crate) fn set_size(&self, size: usize) {
        self.depot.0.lock().size = size;
    }

    /// Ends the depot's interval now, for tests.
    #[cfg(test)]
    #[allow(dead_code)] // Used by tests/models.
    pub(crate) fn end_interval(&self) {
        let mut stock = self.depot.0.lock();
        stock.end_interval();
        self.due.store(stock.has_surplus(), Relaxed);
    }

    /// Whether [`Magazines::reap`] has work. A hint.
    #[inline]
    pub(crate) fn due(&self) -> bool {
        self.due.load(Relaxed)
    }

    /// With the arena's lock held: calls `visit` for each object that the last interval did not need, and frees the
    /// magazines.
    pub(crate) fn reap(&self, mut visit: impl FnMut(&'static Object)) {
        let list = {
            let mut stock = self.depot.0.lock();
            self.due.store(false, Relaxed);
            let list = stock.take_surplus();
            self.full.store(stock.full.length, Relaxed);
            list
        };
        // SAFETY: ours alone.
        unsafe { Magazine::unload(list, &mut visit) };
    }

    /// With the arena's lock held: puts up to `n` objects that `make` makes into this CPU's magazine, if its
    /// lock is free.
    pub(crate) fn fill(&self, n: u64, mut make: impl FnMut() -> Option<&'static Object>) {
        let Some(held) = self.lock() else { return };
        let pair = held.pair();
        // SAFETY: null or magazines, and ours.
        unsafe {
            if pair.loaded.is_null() {
                let size = self.depot.0.lock().rounds();
                pair.loaded = Magazine::new(size);
            }
            for _ in 0..n {
                if !Magazine::has_room(pair.loaded) {
                    return;
                }
                let Some(object) = make() else { return };
                Magazine::push(pair.loaded, object);
            }
        }
    }

    /// Keeps threads out of all CPUs' magazines. [`bar_all`] waits until none is inside.
    fn bar(&self, up: bool) {
        for slot in &self.slots {
            slot.0.lock[1].store(u16::from(up), SeqCst);
        }
    }

    fn wait_until_left(&self) {
        for slot in &self.slots {
            let mut tries = 0u32;
            while slot.0.lock[0].load(SeqCst) != 0 {
                // A thread inside may have lost its CPU.
                if tries < 100 {
                    sys::pause(1);
                } else {
                    sys::yield_now();
                }
                tries = tries.saturating_add(1);
            }
        }
    }

    /// While barred and with the arena's lock held: calls `visit` for each object in a magazine, and frees those.
    pub(crate) fn drain(&self, mut visit: impl FnMut(&'static Object)) {
        for slot in &self.slots {
            // SAFETY: the bar is up and no thread is inside.
            let pair = unsafe { &mut *slot.0.pair.get() };
            for magazine in [&mut pair.loaded, &mut pair.previous] {
                let magazine = std::mem::replace(magazine, std::ptr::null_mut());
                if !magazine.is_null() {
                    // SAFETY: a magazine that this thread owns, on no list.
                    unsafe {
                        (*magazine).next = std::ptr::null_mut();
                        Magazine::unload(magazine, &mut visit);
                    }
                }
            }
        }
        let [full, empty] = {
            let mut stock = self.depot.0.lock();
            self.full.store(0, Relaxed);
            stock.take_all()
        };
        // SAFETY: ours alone.
        unsafe {
            Magazine::unload(full, &mut visit);
            Magazine::unload(empty, &mut visit);
        }
    }

    /// The number of pairs of magazines.
    pub(crate) fn pairs(&self) -> usize {
        self.slots.len()
    }

    /// The number of requests that magazines served, and of objects that they took back.
    pub(crate) fn hits(&self) -> (u64, u64) {
        let sum = |part: fn(&Slot) -> &AtomicU64| {
            self.slots.iter().fold(0u64, |sum, slot| sum.wrapping_add(part(&slot.0).load(Relaxed)))
        };
        (sum(|slot| &slot.allocs), sum(|slot| &slot.frees))
    }

    /// Rounds in a new magazine.
    pub(crate) fn size(&self) -> u32 {
        self.depot.0.lock().rounds()
    }
}

impl Drop for Magazines {
    fn drop(&mut self) {
        self.drain(|_| {});
    }
}

/// With the slot's lock held and an object loaded.
#[inline(always)]
unsafe fn hand_out(slot: &Slot, pair: &Pair) -> u64 {
    // SAFETY: the caller's pair; something is loaded.
    let object = unsafe { Magazine::pop(pair.loaded) };
    object.hand_out();
    slot.allocs.store(slot.allocs.load(Relaxed).wrapping_add(1), Relaxed);
    object.address()
}

/// With the slot's lock held and room in the loaded magazine.
#[inline(always)]
unsafe fn take_back(slot: &Slot, pair: &Pair, object: &Object, seen: State) -> Given {
    if !object.take_back(seen) {
        return Given::Changed;
    }
    // SAFETY: the caller's pair; there is room.
    unsafe { Magazine::push(pair.loaded, object) };
    slot.frees.store(slot.frees.load(Relaxed).wrapping_add(1), Relaxed);
    Given::Done
}

/// With the arena's lock held: keeps threads out of all magazines, and waits until none is inside. Returns
/// false, with nothing barred, if the kernel does not support the fence.
pub(crate) fn bar_all(all: &[Magazines]) -> bool {
    all.iter().for_each(|magazines| magazines.bar(true));
    sys::fence(SeqCst);
    if all.first().is_some_and(|magazines| magazines.by_rseq > 0) && !sys::fence_rseq() {
        open_all(all);
        return false;
    }
    all.iter().for_each(Magazines::wait_until_left);
    true
}

/// Lets threads in again.
pub(crate) fn open_all(all: &[Magazines]) {
    all.iter().for_each(|magazines| magazines.bar(false));
}

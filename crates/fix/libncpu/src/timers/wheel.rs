//! A hierarchical timing wheel: the next due time, and the timers that are due.
//!
//! # Where it comes from
//!
//! George Varghese and Tony Lauck, "Hashed and Hierarchical Timing Wheels" (1987): slots of time instead of a
//! sorted list, so that inserting and removing have a cost independent of the number of timers. The level is
//! chosen by the highest digit in which a timer's time differs from the wheel's, as in a radix heap (Ahuja,
//! Mehlhorn, Orlin, Tarjan, 1990), so that levels are ordered in time and no index wraps around. Aligning
//! times within their slack is the method of Linux's `apply_slack` (2010).
//!
//! # Structure
//!
//! Time is a `u64` of nanoseconds, cut into a tick of 2^10 ns and nine digits of 6 bits. That covers all 584
//! years, so more distant timers need no list. Each level has 64 slots, each slot a ring of timers
//! and the earliest time in it.
//!
//! # Invariants
//!
//! 1. A timer on level L shares with `current` all digits above L, and its digit L is greater: that is the
//!    slot. So each timer on a level is due before any on a higher one, slots are in the order of time, and
//!    two bit scans find the next. A timer due in the current tick or before is in `soon`.
//! 2. `current` is never beyond the start of a slot that holds timers: such slots are emptied before it
//!    moves.
//! 3. A slot's `earliest` is not later than any time in it. It may be earlier, after a removal; then the slot
//!    is visited once too often.
//!
//! Each timer that is neither removed nor due moves down a level at most eight times.

use crate::percpu::{OutOfMemory, one};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// log2 of the tick in ns.
const TICK: u32 = 10;
/// log2 of the slots of a level.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
const LEVELS: usize = ((u64::BITS - TICK) / DIGIT) as usize;

/// A node of a ring; also the ring's head.
#[repr(C)]
struct Link {
    next: Cell<*const Link>,
    prev: Cell<*const Link>,
}

impl Link {
    const fn new() -> Link {
        Link { next: Cell::new(ptr::null()), prev: Cell::new(ptr::null()) }
    }

    /// Makes this the head of an empty ring.
    fn reset(&self) {
        self.next.set(self);
        self.prev.set(self);
    }

    fn is_empty(&self) -> bool {
        ptr::eq(self.next.get(), self)
    }

    /// Appends a link to this head's ring.
    ///
    /// # Safety
    /// `new` is in no ring, and all in this ring are alive.
    unsafe fn append(&self, new: *const Link) {
        let last = self.prev.get();
        // SAFETY: alive, as the caller promised.
        unsafe {
            (*new).next.set(self);
            (*new).prev.set(last);
            (*last).next.set(new);
        }
        self.prev.set(new);
    }

    /// Appends all of `other`'s ring to this one.
    ///
    /// # Safety
    /// All in both rings are alive.
    unsafe fn take(&self, other: &Link) {
        if other.is_empty() {
            return;
        }
        let (first, last, end) = (other.next.get(), other.prev.get(), self.prev.get());
        // SAFETY: alive, as the caller promised.
        unsafe {
            (*end).next.set(first);
            (*first).prev.set(end);
            (*last).next.set(self);
        }
        self.prev.set(last);
        other.reset();
    }
}

/// The wheel's part of a timer, inside the timer. It must not move while it is in the wheel.
#[repr(C)]
pub struct Entry {
    link: Link,
    /// The due time in ns; it never expires before.
    pub(crate) at: Cell<u64>,
    /// The permitted delay, in ns.
    pub(crate) slack: Cell<u64>,
}

impl Entry {
    pub(crate) const fn new() -> Entry {
        Entry { link: Link::new(), at: Cell::new(0), slack: Cell::new(0) }
    }

    /// The time within the slack that ends in the most zero bits. Timers with slack coincide at such times:
    /// they expire together, and move down fewer levels.
    pub(crate) fn due(&self) -> u64 {
        aligned(self.at.get(), self.slack.get())
    }
}

/// The multiple of the largest power of two in `at..=at + slack`.
fn aligned(at: u64, slack: u64) -> u64 {
    if slack == 0 || at == 0 {
        return at;
    }
    let latest = at.saturating_add(slack);
    // The highest bit that differs: 0 before `at`, 1 in `latest`.
    let differs = (at - 1) ^ latest;
    let bit = u64::BITS - 1 - differs.leading_zeros();
    latest >> bit << bit
}

#[repr(C)]
struct Slot {
    ring: Link,
    /// The earliest time in the ring; undefined while the ring is empty.
    earliest: Cell<u64>,
}

impl Slot {
    const fn new() -> Slot {
        Slot { ring: Link::new(), earliest: Cell::new(0) }
    }
}

/// Result of [`Rings::pop`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Popped {
    /// This timer is due, and was removed from the wheel.
    Due(*const Entry),
    /// Nothing is due.
    Nothing,
    /// The moves are used up before a due timer was found.
    Busy,
}

/// The wheel. 14 KB on the heap.
///
/// Not for several threads at once. Not a `Box`, which would claim exclusive access to memory that its rings
/// point to.
pub(crate) struct Wheel(NonNull<Rings>);

/// The part that does not move.
pub(crate) struct Rings {
    slots: [Slot; LEVELS * SLOTS],
    /// By level: a bit for each slot that holds timers.
    occupied: [Cell<u64>; LEVELS],
    /// A bit for each level that holds timers.
    levels: Cell<u16>,
    current: Cell<u64>,
    /// Due in the current tick, or overdue when inserted.
    soon: Slot,
    /// Timers of slots that have become due, not examined yet.
    ripe: Link,
    /// As `ripe`, but examined first.
    urgent: Link,
    hurrying: Cell<bool>,
    len: Cell<usize>,
}

impl Wheel {
    /// An empty wheel at time `now`.
    pub(crate) fn new(now: u64) -> Result<Wheel, OutOfMemory> {
        let rings = one(Rings {
            slots: [const { Slot::new() }; LEVELS * SLOTS],
            occupied: [const { Cell::new(0) }; LEVELS],
            levels: Cell::new(0),
            current: Cell::new(now),
            soon: Slot::new(),
            ripe: Link::new(),
            urgent: Link::new(),
            hurrying: Cell::new(false),
            len: Cell::new(0),
        })?;
        let wheel = Wheel(NonNull::from(Box::leak(rings)));
        // The final address, which the rings store, is known only here.
        let others = [&wheel.soon.ring, &wheel.ripe, &wheel.urgent];
        wheel.slots.iter().map(|slot| &slot.ring).chain(others).for_each(Link::reset);
        Ok(wheel)
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        // SAFETY: from `new`. Timers that are still in it are not accessed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Deref for Wheel {
    type Target = Rings;
    fn deref(&self) -> &Rings {
        // SAFETY: alive until `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl Rings {
    /// The number of timers.
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// Sets the time of an empty wheel. Timers are placed by their distance from it.
    pub(crate) fn refresh(&self, now: u64) {
        if self.len.get() == 0 && now > self.current.get() {
            self.current.set(now);
        }
    }

    /// Inserts a timer. O(1).
    ///
    /// # Safety
    /// It is in no wheel, and neither moves nor is freed until it is popped or removed.
    pub(crate) unsafe fn insert(&self, entry: *const Entry) {
        self.len.set(self.len.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { self.place(entry) }
    }

    /// Removes a timer. O(1).
    ///
    /// # Safety
    /// It is in this wheel.
    pub(crate) unsafe fn remove(&self, entry: *const Entry) {
        self.len.set(self.len.get() - 1);
        // SAFETY: as the caller promised.
        unsafe { self.unlink(entry) }
    }

    /// # Safety
    /// The entry is alive and in no ring.
    unsafe fn place(&self, entry: *const Entry) {
        // SAFETY: alive.
        let due = unsafe { (*entry).due() };
        let current = self.current.get();
        let slot = if due >> TICK <= current >> TICK {
            &self.soon
        } else {
            let highest = u64::BITS - 1 - (due ^ current).leading_zeros();
            let level = (highest - TICK) / DIGIT;
            let digit = (due >> (TICK + DIGIT * level)) as usize % SLOTS;
            let level = level as usize;
            self.occupied[level].set(self.occupied[level].get() | 1 << digit);
            self.levels.set(self.levels.get() | 1 << level);
            &self.slots[level * SLOTS + digit]
        };
        if slot.ring.is_empty() || due < slot.earliest.get() {
            slot.earliest.set(due);
        }
        // SAFETY: the entry begins with its link and is in no ring.
        unsafe { slot.ring.append(entry.cast()) }
    }

    /// # Safety
    /// The entry is in a ring of this wheel.
    unsafe fn unlink(&self, entry: *const Entry) {
        // SAFETY: its neighbours in the ring are alive.
        let head = unsafe {
            let link = &(*entry).link;
            let (next, prev) = (link.next.get(), link.prev.get());
            (*prev).next.set(next);
            (*next).prev.set(prev);
            if !ptr::eq(next, prev) {
                return;
            }
            prev
        };
        // There was one other link in the ring, which is its head, perhaps a slot's.
        let at = (head as usize).wrapping_sub(self.slots.as_ptr() as usize) / size_of::<Slot>();
        if at < LEVELS * SLOTS {
            self.emptied(at / SLOTS, at % SLOTS);
        }
    }

    fn emptied(&self, level: usize, digit: usize) {
        let left = self.occupied[level].get() & !(1 << digit);
        self.occupied[level].set(left);
        if left == 0 {
            self.levels.set(self.levels.get() & !(1 << level));
        }
    }

    /// The first slot that holds timers: level and digit.
    fn first(&self) -> Option<(usize, usize)> {
        let levels = self.levels.get();
        if levels == 0 {
            return None;
        }
        let level = levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].get().trailing_zeros() as usize))
    }

    /// The time of the next work: not after the first due time, and before it only if a timer was removed.
    /// `None` if the wheel is empty.
    pub(crate) fn next(&self) -> Option<u64> {
        if !self.urgent.is_empty() || !self.ripe.is_empty() {
            Some(0)
        } else if !self.soon.ring.is_empty() {
            Some(self.soon.earliest.get())
        } else {
            self.first().map(|(level, digit)| self.slots[level * SLOTS + digit].earliest.get())
        }
    }

    /// Moves the timers of the first slot to the end of a ring, if its time has come by `now`. False if no
    /// slot is due.
    fn ripen(&self, now: u64, to: &Link) -> bool {
        if !self.soon.ring.is_empty() && self.soon.earliest.get() <= now {
            // SAFETY: all links in the wheel are alive.
            unsafe { to.take(&self.soon.ring) };
            return true;
        }
        if let Some((level, digit)) = self.first() {
            let shift = TICK + DIGIT * level as u32;
            let above = !(u64::MAX >> (u64::BITS - shift - DIGIT));
            let start = self.current.get() & above | (digit as u64) << shift;
            if start <= now {
                // SAFETY: as above.
                unsafe { to.take(&self.slots[level * SLOTS + digit].ring) };
                self.emptied(level, digit);
                self.current.set(start);
                return true;
            }
        }
        if now > self.current.get() {
            self.current.set(now);
        }
        false
    }

    /// For use while many timers move down: timers that have become due meanwhile are popped first.
    pub(crate) fn hurry(&self) {
        self.hurrying.set(true);
    }

    /// Removes a timer that is due at `now`: in the order of ticks, and within a tick of insertion, except
    /// after [`hurry`].
    ///
    /// Timers of slots that have become due are moved to a lower level on the way, at most `moves` of them.
    /// `moves` is counted down.
    ///
    /// [`hurry`]: Rings::hurry
    pub(crate) fn pop(&self, now: u64, moves: &mut u32) -> Popped {
        loop {
            let ring = if !self.urgent.is_empty() || (self.hurrying.get() && self.ripen(now, &self.urgent)) {
                &self.urgent
            } else {
                self.hurrying.set(false);
                if self.ripe.is_empty() && !self.ripen(now, &self.ripe) {
                    return Popped::Nothing;
                }
                &self.ripe
            };
            let entry: *const Entry = ring.next.get().cast();
            // SAFETY: in the wheel, so alive, and not the ring's head.
            unsafe {
                let due = (*entry).due();
                // Other timers of the same slot may be due before it, even if it is due.
                if due <= now && due >> TICK <= self.current.get() >> TICK {
                    self.remove(entry);
                    return Popped::Due(entry);
                }
                if *moves == 0 {
                    return Popped::Busy;
                }
                *moves -= 1;
                self.unlink(entry);
                self.place(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn alignment() {
        assert_eq!(aligned(1000, 0), 1000);
        assert_eq!(aligned(1000, 7), 1000);
        assert_eq!(aligned(1000, 23), 1008);
        assert_eq!(aligned(1000, 24), 1024);
        assert_eq!(aligned(1025, 3000), 2048);
        assert_eq!(aligned(0, 5), 0);
        assert_eq!(aligned(u64::MAX - 1, 9), u64::MAX - 1);
        assert_eq!(aligned(5, u64::MAX), 1 << 63);
    }

    proptest! {
        #[test]
        fn alignment_stays_within(at: u64, slack: u64) {
            let due = aligned(at, slack);
            prop_assert!(due >= at && due <= at.saturating_add(slack));
            let zeros = |n: u64| if n == 0 { u64::BITS } else { n.trailing_zeros() };
            for other in at..=at.saturating_add(slack.min(300)) {
                prop_assert!(slack == 0 || at == 0 || zeros(other) <= zeros(due));
            }
        }
    }

    /// In the order of time, and timers of one time in the order of insertion, at any distance.
    #[test]
    fn order() {
        let wheel = Wheel::new(77).expect("memory");
        let times = [1 << 40, 5 << 20, 1 << 40, 90_000, 3 << 30, 5 << 20, 1 << 40, 2_000];
        let nodes = times.map(|at| {
            let node = Box::new(Entry::new());
            node.at.set(at);
            node
        });
        // SAFETY: the nodes outlive the wheel's use.
        nodes.iter().for_each(|node| unsafe { wheel.insert(&**node) });
        let mut order = Vec::new();
        while let Some(now) = wheel.next() {
            while let Popped::Due(entry) = wheel.pop(now, &mut 99) {
                order.push(nodes.iter().position(|node| ptr::eq(&**node, entry)).expect("ours"));
            }
        }
        assert_eq!(order, [7, 3, 1, 5, 4, 0, 2, 6]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// This far from now, with slack.
        Insert(u64, u64),
        /// Its index among the armed timers.
        Remove(usize),
        /// Time passes, and due timers are popped, with this many moves at once.
        Pass(u64, u32),
    }

    /// All magnitudes with equal probability.
    fn span() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (span(), prop_oneof![Just(0), span()]).prop_map(|(at, slack)| Step::Insert(at, slack)),
            2 => any::<usize>().prop_map(Step::Remove),
            // Rarely far enough to reach the end of time.
            2 => (0u32..50, any::<u64>(), 1u32..20).prop_map(|(bits, n, moves)| Step::Pass(n & ((1 << bits) - 1), moves)),
        ]
    }

    proptest! {
        /// Compared with a sorted set: due timers are popped, no others are, and `next` is right.
        #[test]
        fn as_a_sorted_set(start in span(), steps in proptest::collection::vec(step(), 1..200)) {
            let (mut now, mut removed) = (start, false);
            let wheel = Wheel::new(now).expect("memory");
            // Nodes do not move.
            let nodes: Vec<Box<Entry>> = steps.iter().map(|_| Box::new(Entry::new())).collect();
            let mut model = BTreeSet::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(after, slack) => {
                        let node = &nodes[i];
                        node.at.set(now.saturating_add(after));
                        node.slack.set(slack);
                        // SAFETY: new, and lives as long as the wheel.
                        unsafe { wheel.insert(&**node) };
                        model.insert((node.due(), i));
                    }
                    Step::Remove(which) => {
                        if !model.is_empty() {
                            let key = *model.iter().nth(which % model.len()).expect("in range");
                            model.remove(&key);
                            // SAFETY: the model says that it is there.
                            unsafe { wheel.remove(&*nodes[key.1]) };
                            removed = true;
                        }
                    }
                    Step::Pass(time, moves) => {
                        now = now.saturating_add(time);
                        let (mut last, mut hurried) = (0, false);
                        loop {
                            match wheel.pop(now, &mut moves.clone()) {
                                Popped::Due(entry) => {
                                    let i = nodes.iter().position(|n| ptr::eq(&**n, entry)).expect("ours");
                                    let due = nodes[i].due();
                                    prop_assert!(due <= now);
                                    prop_assert!(model.remove(&(due, i)));
                                    prop_assert!(hurried || due >> TICK >= last, "out of order");
                                    last = due >> TICK;
                                }
                                Popped::Nothing => break,
                                Popped::Busy => {
                                    now = now.saturating_add(u64::from(moves) << 9);
                                    wheel.hurry();
                                    hurried = true;
                                }
                            }
                        }
                        prop_assert!(model.first().is_none_or(|&(due, _)| due > now));
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                match (wheel.next(), model.first()) {
                    (None, None) => {}
                    (Some(next), Some(&(due, _))) => prop_assert!(next == due || removed && next < due),
                    (next, first) => prop_assert!(false, "{:?} {:?}", next, first),
                }
            }
        }
    }
}

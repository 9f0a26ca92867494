//! The queue lock of Mellor-Crummey and Scott.
//!
//! # Where it comes from
//!
//! John Mellor-Crummey, Michael Scott: "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors",
//! ACM TOCS 9(1), 1991. Two additions: a waiter whose turn does not come soon sleeps, and the queue's head
//! waits at a [`gate`](crate::locks::gate) that other threads may pass while it is asleep.
//!
//! # Invariant
//!
//! The queue runs from the head's node by `next` to `tail`; `tail` is null if no thread waits. A thread
//! enters by a swap of `tail`, so the queue's order is that of the swaps: first come, first served. Other
//! threads write two words of a node, each once: the successor its `next`, the predecessor its `turn`. The
//! head leaves the queue when it has taken the gate. A node may be freed when `lock` has returned: the
//! predecessor's last access to it is the grant, the successor's the link.
//!
//! A thread that finds no queue takes the gate if the gate is free, and otherwise enters the queue. So of two
//! threads that arrive one after the other, the second overtakes the first only if both came while no thread
//! waited, or the head slept.
//!
//! # Memory ordering
//!
//! The swap is acquire and release: the successor sees the predecessor's node initialised. Link and grant are
//! release stores that acquire loads read. The gate orders the data that the lock protects.

use crate::locks::gate::Gate;
use crate::locks::probe;
use crate::locks::turn::Turn;
use crate::sys::{self, AtomicPtr, Ordering};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A waiter's place in the queue. As long as a cache line, so that two nodes never share a whole line.
#[repr(C)]
pub struct McsNode {
    next: AtomicPtr<McsNode>,
    turn: Turn,
    _rest: [u32; 13],
}

impl McsNode {
    /// A node that is in no queue.
    pub const fn new() -> McsNode {
        McsNode { next: AtomicPtr::new(std::ptr::null_mut()), turn: Turn::new(), _rest: [0; 13] }
    }
}

impl Default for McsNode {
    fn default() -> McsNode {
        McsNode::new()
    }
}

/// The lock without data: 16 bytes, valid when zeroed.
#[repr(C)]
pub struct RawMcs {
    tail: AtomicPtr<McsNode>,
    gate: Gate,
}

const GRANTED: u32 = 1;

impl RawMcs {
    /// A free lock.
    pub const fn new() -> RawMcs {
        RawMcs { tail: AtomicPtr::new(std::ptr::null_mut()), gate: Gate::new() }
    }

    /// Takes the lock after all that came before.
    ///
    /// # Safety
    /// The node is in no queue.
    #[inline]
    pub unsafe fn lock(&self, node: &McsNode) {
        if !self.try_lock() {
            self.lock_slow(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, node: &McsNode) {
        let lock = std::ptr::from_ref(self).cast();
        probe::queue_slow(lock);
        if let Err(turn) = join(&self.tail, node) {
            turn.wait(lock);
        }
        self.gate.enter(lock);
        // SAFETY: this thread is the head by this node.
        if unsafe { leave(&self.tail, node, GRANTED) } {
            self.gate.open();
        }
        probe::queue_acquired(lock);
    }

    /// Takes the lock if it is free and no thread waits for it, except sleepers that may be passed.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.gate.pass(!self.tail.load(Relaxed).is_null())
    }

    /// Whether some thread holds the lock. Exact in the owner; in other threads the answer may be out of
    /// date.
    pub fn is_locked(&self) -> bool {
        self.gate.is_locked()
    }

    /// Makes the lock free in a child process after `fork`, whatever thread of the parent held it or waited
    /// for it.
    ///
    /// # Safety
    /// No other thread of this process uses the lock, and its data are consistent.
    pub unsafe fn reset_after_fork(&self) {
        self.tail.store(std::ptr::null_mut(), Release);
        self.gate.reset();
    }

    /// Passes the lock on.
    ///
    /// # Safety
    /// The calling thread holds it.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.gate.leave();
    }
}

impl Default for RawMcs {
    fn default() -> RawMcs {
        RawMcs::new()
    }
}

fn pointer(node: &McsNode) -> *mut McsNode {
    std::ptr::from_ref(node).cast_mut()
}

/// Enters a queue. Returns the turn to wait for if other threads are before this one.
#[inline]
pub(crate) fn join<'a>(tail: &AtomicPtr<McsNode>, node: &'a McsNode) -> Result<(), &'a Turn> {
    node.next.store(std::ptr::null_mut(), Relaxed);
    node.turn.reset();
    let before = tail.swap(pointer(node), AcqRel);
    if before.is_null() {
        return Ok(());
    }
    // SAFETY: the node of a tail is not freed until its successor has linked itself and was granted its turn.
    unsafe { (*before).next.store(pointer(node), Release) };
    Err(&node.turn)
}

/// Leaves a queue, granting `what` to the successor if there is one. Returns whether the successor was
/// asleep.
///
/// # Safety
/// The node heads the queue of `tail`.
#[inline]
pub(crate) unsafe fn leave(tail: &AtomicPtr<McsNode>, node: &McsNode, what: u32) -> bool {
    let mut next = node.next.load(Acquire);
    if next.is_null() {
        if tail.compare_exchange(pointer(node), std::ptr::null_mut(), Release, Relaxed).is_ok() {
            return false;
        }
        next = linked(node);
    }
    // SAFETY: the successor waits for this grant.
    unsafe { (*next).turn.grant(what) }
}

/// Grants `what` to the successor if it has linked itself already. Returns whether the successor was asleep.
///
/// # Safety
/// The node heads its queue.
pub(crate) unsafe fn pass(node: &McsNode, what: u32) -> Option<bool> {
    let next = node.next.load(Acquire);
    if next.is_null() {
        return None;
    }
    // SAFETY: the successor waits for this grant.
    Some(unsafe { (*next).turn.grant(what) })
}

/// The successor, which has swapped the tail and is about to link itself.
#[cold]
fn linked(node: &McsNode) -> *mut McsNode {
    let mut tries = 0u32;
    loop {
        let next = node.next.load(Acquire);
        if !next.is_null() {
            return next;
        }
        tries += 1;
        // The successor may have lost its CPU between the two steps.
        if tries.is_multiple_of(64) { sys::yield_now() } else { sys::pause(1) }
    }
}

//! The queue lock of Mellor-Crummey and Scott.
//!
//! # Where it comes from
//!
//! John Mellor-Crummey, Michael Scott: "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors",
//! ACM TOCS 9(1), 1991. What is added: a waiter whose turn does not come soon sleeps.
//!
//! # Invariant
//!
//! The queue runs from the owner's node by `next` to `tail`; `tail` is null if nobody has the lock. A thread enters
//! by a swap of `tail`, so the queue's order is that of the swaps: first come, first served. Only the predecessor
//! writes a node's `next` link to it and its `turn`, each once. A node may be freed when its owner's `lock` and
//! `unlock` are through: the predecessor's last access to it is the grant, the successor's the link.
//!
//! # Memory ordering
//!
//! The swap is acquire and release: the successor sees the predecessor's node initialised, and one that finds `tail`
//! null sees the last critical section, which the compare-and-swap of `tail` to null released. Link and grant are
//! release stores that acquire loads read.

use crate::probe;
use crate::sys::{self, AtomicPtr, Ordering};
use crate::turn::Turn;
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A waiter's place in the queue. As long as a cache line, so that two of them never share one wholly.
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

/// The lock without data: 8 bytes, valid when zeroed.
#[repr(transparent)]
pub struct RawMcs {
    tail: AtomicPtr<McsNode>,
}

const GRANTED: u32 = 1;

impl RawMcs {
    /// A free lock.
    pub const fn new() -> RawMcs {
        RawMcs { tail: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Takes the lock after all that came before.
    ///
    /// # Safety
    /// The node is in no queue, and stays where it is until `unlock` with it has returned.
    #[inline]
    pub unsafe fn lock(&self, node: &McsNode) {
        if let Err(turn) = self.join(node) {
            self.wait(turn);
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, turn: &Turn) {
        let lock = std::ptr::from_ref(self).cast();
        probe::queue_slow(lock);
        turn.wait(lock);
        probe::queue_acquired(lock);
    }

    /// Enters the queue; the turn to wait for if others are before.
    #[inline]
    pub(crate) fn join<'a>(&self, node: &'a McsNode) -> Result<(), &'a Turn> {
        join(&self.tail, node)
    }

    /// Takes the lock if it is free.
    ///
    /// # Safety
    /// As for `lock`; if the result is false, the node is in no queue.
    #[inline]
    pub unsafe fn try_lock(&self, node: &McsNode) -> bool {
        node.next.store(std::ptr::null_mut(), Relaxed);
        node.turn.reset();
        self.tail.compare_exchange(std::ptr::null_mut(), pointer(node), AcqRel, Relaxed).is_ok()
    }

    /// Whether some thread holds the lock: true in the owner, else old news.
    pub fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }

    /// Passes the lock on.
    ///
    /// # Safety
    /// The calling thread took the lock with this node.
    #[inline]
    pub unsafe fn unlock(&self, node: &McsNode) {
        // SAFETY: the caller's promise.
        unsafe { leave(&self.tail, node, GRANTED) }
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

/// Enters a queue; the turn to wait for if others are before.
#[inline]
pub(crate) fn join<'a>(tail: &AtomicPtr<McsNode>, node: &'a McsNode) -> Result<(), &'a Turn> {
    node.next.store(std::ptr::null_mut(), Relaxed);
    node.turn.reset();
    let before = tail.swap(pointer(node), AcqRel);
    if before.is_null() {
        return Ok(());
    }
    // SAFETY: a node that was the tail stays until its successor has linked itself and was granted its turn.
    unsafe { (*before).next.store(pointer(node), Release) };
    Err(&node.turn)
}

/// Leaves a queue, granting `what` to the successor if there is one.
///
/// # Safety
/// The node heads the queue of `tail`.
#[inline]
pub(crate) unsafe fn leave(tail: &AtomicPtr<McsNode>, node: &McsNode, what: u32) {
    let mut next = node.next.load(Acquire);
    if next.is_null() {
        if tail.compare_exchange(pointer(node), std::ptr::null_mut(), Release, Relaxed).is_ok() {
            return;
        }
        next = linked(node);
    }
    // SAFETY: the successor waits for this grant.
    unsafe { (*next).turn.grant(what) };
}

/// Grants `what` to the successor if there is one already.
///
/// # Safety
/// The node heads its queue.
pub(crate) unsafe fn pass(node: &McsNode, what: u32) -> bool {
    let next = node.next.load(Acquire);
    if next.is_null() {
        return false;
    }
    // SAFETY: the successor waits for this grant.
    unsafe { (*next).turn.grant(what) };
    true
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
        // It may have lost its CPU between the two.
        if tries.is_multiple_of(64) { sys::yield_now() } else { sys::pause(1) }
    }
}

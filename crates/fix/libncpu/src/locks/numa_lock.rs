//! A queue lock that prefers to pass from thread to thread of one NUMA node.
//!
//! # Where it comes from
//!
//! The two-level case of HMCS: Milind Chabbi, Michael Fagan, John Mellor-Crummey: "High Performance Locks for
//! Multi-level NUMA Systems", PPoPP 2015: an MCS queue a node, whose head stands in an MCS queue of the nodes. The
//! lock and the data it protects then cross between nodes once per `passes` critical sections instead of each time.
//! (CNA, which needs one word, and lock cohorting come from a company that patents such work. Which claims
//! cover them was not examined.)
//!
//! # Invariant
//!
//! The two queues pass on the place at the [`gate`](crate::locks::gate), which is the lock. The *head* heads
//! its node's queue, that node's `place` heads the root queue, and the head leaves both when it has taken the
//! gate. A grant within a node carries the number of such grants in a row and leaves the root queue alone.
//! After `passes` of them, or if no thread of the node waits, the root is passed on first, and the grant
//! `PARENT` makes the next head of the node's queue enter the root queue again. So a node waits for at most
//! `passes` heads of each other node: no thread starves.
//!
//! # Memory ordering
//!
//! That of [`mcs`] at each level, and of the gate for the data that the lock protects. Only the head of the
//! node's queue uses `place`, and heads follow each other by those grants.

use crate::locks::gate::Gate;
use crate::locks::mcs::{self, McsNode};
use crate::locks::probe;
use crate::percpu::{OutOfMemory, Padded, boxed};
use crate::sys::{self, AtomicPtr, Ordering};

/// Critical sections in a row for threads of one node, while threads of that node wait.
pub const PASSES: u32 = 64;
const FIRST: u32 = 1;
/// The grant to the head of the root queue.
const ROOT: u32 = 1;
/// The root is free: enter its queue.
const PARENT: u32 = u32::MAX - 1;

struct Home {
    tail: AtomicPtr<McsNode>,
    place: McsNode,
}

/// The lock without data.
pub struct RawNumaLock {
    /// The queue of the nodes' places.
    root: AtomicPtr<McsNode>,
    gate: Gate,
    homes: Box<[Padded<Home>]>,
    passes: u32,
}

impl RawNumaLock {
    /// A free lock with a queue for each NUMA node of this machine.
    pub fn new() -> Result<RawNumaLock, OutOfMemory> {
        RawNumaLock::with_passes(PASSES)
    }

    /// As `new`, with at most `passes` critical sections in a row within a node; at least 1.
    pub fn with_passes(passes: u32) -> Result<RawNumaLock, OutOfMemory> {
        let home = |_| Padded(Home { tail: AtomicPtr::new(std::ptr::null_mut()), place: McsNode::new() });
        Ok(RawNumaLock {
            root: AtomicPtr::new(std::ptr::null_mut()),
            gate: Gate::new(),
            homes: boxed(sys::topology().nodes(), home)?,
            passes: passes.clamp(FIRST, PARENT - 1),
        })
    }

    /// Takes the lock.
    ///
    /// # Safety
    /// The node is in no queue.
    #[inline]
    pub unsafe fn lock(&self, node: &McsNode) {
        if !self.try_lock() {
            self.lock_slow(node);
        }
    }

    /// Takes the lock if it is free and no thread waits for it, except sleepers that may be passed.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.gate.pass(!self.root.load(Ordering::Relaxed).is_null())
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, node: &McsNode) {
        let Home { tail, place } = &self.homes[sys::node() % self.homes.len()].0;
        let lock = std::ptr::from_ref(self).cast();
        // Tracers see one wait, though there are two queues and a gate.
        probe::queue_slow(lock);
        let granted = mcs::join(tail, node).map_or_else(|turn| turn.wait(lock), |()| PARENT);
        let passes = if granted == PARENT {
            // This thread is the head of the node's queue, so it alone uses `place`.
            if let Err(turn) = mcs::join(&self.root, place) {
                turn.wait(lock);
            }
            FIRST
        } else {
            granted
        };
        self.gate.enter(lock);
        // SAFETY: this thread heads its node's queue and has `place` in the root's.
        let asleep = unsafe {
            let next = if passes < self.passes { mcs::pass(node, passes + 1) } else { None };
            next.unwrap_or_else(|| {
                // Both: the next thread of the node is not a head before it has entered the root's queue
                // again.
                let other = mcs::leave(&self.root, place, ROOT);
                mcs::leave(tail, node, PARENT) | other
            })
        };
        if asleep {
            self.gate.open();
        }
        probe::queue_acquired(lock);
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
        let tails = self.homes.iter().map(|home| &home.tail).chain([&self.root]);
        tails.for_each(|tail| tail.store(std::ptr::null_mut(), Ordering::Release));
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

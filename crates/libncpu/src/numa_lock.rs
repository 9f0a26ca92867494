//! A queue lock that prefers to pass from thread to thread of one NUMA node.
//!
//! # Where it comes from
//!
//! The two-level case of HMCS: Milind Chabbi, Michael Fagan, John Mellor-Crummey: "High Performance Locks for
//! Multi-level NUMA Systems", PPoPP 2015: an MCS queue a node, whose head stands in an MCS queue of the nodes. The
//! lock and the data it protects then cross between nodes once per `passes` critical sections instead of each time.
//! (CNA, which needs one word, and lock cohorting come from a company that patents such work; which claims cover
//! them was not looked into.)
//!
//! # Invariant
//!
//! The owner heads its node's queue, and that node's `place` heads the root queue. A grant within a node carries how
//! many there have been in a row and leaves the root queue alone; after `passes` of them, or if nobody of the node
//! waits, the root is passed on first, and the next head of the node's queue is told (`PARENT`) to enter the root
//! queue again. So a node waits for at most `passes` critical sections of each other node: nobody starves.
//!
//! # Memory ordering
//!
//! That of [`mcs`] at each level: a critical section is released by a grant in the node, or by passing
//! the root and then granting `PARENT`; the next owner acquires the same. `place` is used by the head of the node's
//! queue only, and heads follow each other by those grants.

use crate::mcs::{self, McsNode, RawMcs};
use crate::percpu::{OutOfMemory, Padded, boxed};
use crate::probe;
use crate::sys::{self, AtomicPtr};
use crate::turn::Turn;

/// As many critical sections in a row for threads of one node, if they wait.
pub const PASSES: u32 = 64;
const FIRST: u32 = 1;
/// The root is free: enter its queue.
const PARENT: u32 = u32::MAX - 1;

struct Home {
    tail: AtomicPtr<McsNode>,
    place: McsNode,
}

/// The lock without data.
pub struct RawNumaLock {
    root: RawMcs,
    homes: Box<[Padded<Home>]>,
    passes: u32,
}

/// What `lock` tells `unlock`.
#[derive(Clone, Copy)]
pub struct Held {
    home: usize,
    passes: u32,
}

impl RawNumaLock {
    /// A free lock with a queue for each NUMA node of this machine.
    pub fn new() -> Result<RawNumaLock, OutOfMemory> {
        RawNumaLock::with_passes(PASSES)
    }

    /// As `new`; between nodes after at most `passes` critical sections, at least 1.
    pub fn with_passes(passes: u32) -> Result<RawNumaLock, OutOfMemory> {
        let home = |_| Padded(Home { tail: AtomicPtr::new(std::ptr::null_mut()), place: McsNode::new() });
        Ok(RawNumaLock {
            root: RawMcs::new(),
            homes: boxed(sys::topology().nodes(), home)?,
            passes: passes.clamp(FIRST, PARENT - 1),
        })
    }

    /// Takes the lock.
    ///
    /// # Safety
    /// The node is in no queue, and stays where it is until `unlock` with it has returned.
    pub unsafe fn lock(&self, node: &McsNode) -> Held {
        let home = sys::node() % self.homes.len();
        let Home { tail, place } = &self.homes[home].0;
        let lock = std::ptr::from_ref(self).cast();
        // One wait to tracers, though there are two queues.
        let mut waited = false;
        let mut wait = |turn: &Turn| {
            if !std::mem::replace(&mut waited, true) {
                probe::queue_slow(lock);
            }
            turn.wait(lock)
        };
        let granted = mcs::join(tail, node).map_or_else(&mut wait, |()| PARENT);
        if granted == PARENT {
            // The head of the node's queue, which this thread is, has `place` to itself.
            if let Err(turn) = self.root.join(place) {
                wait(turn);
            }
        }
        if waited {
            probe::queue_acquired(lock);
        }
        if granted != PARENT {
            return Held { home, passes: granted };
        }
        Held { home, passes: FIRST }
    }

    /// Whether some thread holds the lock: true in the owner, else old news.
    pub fn is_locked(&self) -> bool {
        self.root.is_locked()
    }

    /// Passes the lock on.
    ///
    /// # Safety
    /// The calling thread took the lock with this node, and got `held`.
    pub unsafe fn unlock(&self, node: &McsNode, held: Held) {
        let Home { tail, place } = &self.homes[held.home].0;
        // SAFETY: the owner heads its node's queue and has `place` in the root's.
        unsafe {
            if held.passes < self.passes && mcs::pass(node, held.passes + 1) {
                return;
            }
            self.root.unlock(place);
            mcs::leave(tail, node, PARENT);
        }
    }
}

//! The locks that a thread holds, which the C interface's debug builds record. There, unlocking a lock that
//! the thread does not hold, and taking a lock that it already holds, are errors instead of broken exclusion
//! and endless waits.
//!
//! Other builds record nothing and assume correct use.
//!
//! A thread's list is its own, so it is neither shared nor ordered. The list neither allocates nor has a
//! destructor: locks may be used in allocators and at a thread's end.

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// By this thread alone.
    Alone,
    /// With other readers.
    Shared,
}

/// How a lock was taken: address of the lock, kind, and the waiter's node or the thread if they matter.
#[derive(Clone, Copy)]
#[cfg_attr(not(debug_assertions), allow(dead_code))] // Written in all builds; the compiler drops it.
pub(crate) struct Hold {
    lock: usize,
    how: How,
    /// Address of the node in a queue; 0 without a node.
    node: usize,
    /// The kernel's number of the thread if the lock may lie in memory that forked processes share: the child
    /// has its parent's list, but does not hold its locks. 0: private memory, where the child has copies of
    /// the locks as well.
    thread: u32,
}

impl Hold {
    /// For a lock in memory of this process.
    pub(crate) fn new<T>(lock: *const T, how: How) -> Hold {
        Hold { lock: lock as usize, how, node: 0, thread: 0 }
    }

    /// For a lock taken with a queue node.
    pub(crate) fn by_node<T, N>(lock: *const T, node: *const N) -> Hold {
        Hold { node: node as usize, ..Hold::new(lock, How::Alone) }
    }

    /// For a lock that processes share.
    pub(crate) fn shared_by_processes<T>(lock: *const T) -> Hold {
        Hold { thread: libncpu::thread::id(), ..Hold::new(lock, How::Alone) }
    }
}

#[cfg(debug_assertions)]
mod list {
    use super::{Hold, How};
    use std::cell::Cell;

    /// The most locks that are recorded for a thread at once.
    const MOST: usize = 64;

    #[derive(Clone, Copy)]
    struct List {
        holds: [Hold; MOST],
        used: usize,
        /// The list overflowed: a lock that is not in it may still be held.
        full: bool,
    }

    const NONE: Hold = Hold { lock: 0, how: How::Alone, node: 0, thread: 0 };
    thread_local!(static HELD: Cell<List> = const { Cell::new(List { holds: [NONE; MOST], used: 0, full: false }) });

    fn change<R>(change: impl FnOnce(&mut List) -> R) -> R {
        HELD.with(|held| {
            let mut list = held.get();
            let result = change(&mut list);
            held.set(list);
            result
        })
    }

    /// Whether a thread can wait for this lock, given its recorded locks: it holds neither the lock, unless
    /// both only read, nor another lock by this node.
    pub(crate) fn may_wait(want: Hold) -> bool {
        change(|list| {
            !list.holds[..list.used].iter().any(|hold| {
                let same = hold.lock == want.lock && hold.thread == want.thread;
                same && (hold.how == How::Alone || want.how == How::Alone)
            })
        })
    }

    /// Whether no lock is held by this node.
    pub(crate) fn is_free(node: usize) -> bool {
        change(|list| node == 0 || list.holds[..list.used].iter().all(|hold| hold.node != node))
    }

    /// Records a lock.
    pub(crate) fn took(hold: Hold) {
        change(|list| match list.holds.get_mut(list.used) {
            Some(place) => {
                *place = hold;
                list.used += 1;
            }
            None => list.full = true,
        });
    }

    /// Removes a lock from the list, before it is freed. False if it was not held.
    pub(crate) fn gives(gone: Hold) -> bool {
        change(|list| {
            let found = list.holds[..list.used].iter().rposition(|hold| {
                (hold.lock, hold.node, hold.thread) == (gone.lock, gone.node, gone.thread)
                    && hold.how == gone.how
            });
            match found {
                Some(at) => {
                    list.used -= 1;
                    list.holds[at] = list.holds[list.used];
                    true
                }
                None => list.full,
            }
        })
    }

    /// Removes all entries of a lock that ends or gives its memory to another lock.
    pub(crate) fn forget<T>(lock: *const T) {
        change(|list| {
            let mut at = 0;
            while at < list.used {
                if list.holds[at].lock == lock as usize {
                    list.used -= 1;
                    list.holds[at] = list.holds[list.used];
                } else {
                    at += 1;
                }
            }
        });
    }
}

#[cfg(not(debug_assertions))]
mod list {
    use crate::Hold;

    #[inline(always)]
    pub(crate) fn may_wait(_: Hold) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn is_free(_: usize) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn took(_: Hold) {}

    #[inline(always)]
    pub(crate) fn gives(_: Hold) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn forget<T>(_: *const T) {}
}

pub(crate) use list::{forget, gives, is_free, may_wait, took};

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_known_to_its_thread_only() {
        let (lock, other) = (0u32, 0u32);
        let alone = Hold::new(&lock, How::Alone);
        assert!(may_wait(alone) && !gives(alone));
        took(alone);
        assert!(!may_wait(alone) && !may_wait(Hold::new(&lock, How::Shared)));
        assert!(may_wait(Hold::new(&other, How::Alone)));
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(may_wait(Hold::new(&lock, How::Alone)) && !gives(Hold::new(&lock, How::Alone)))
            });
        });
        assert!(gives(alone) && !gives(alone) && may_wait(alone));
    }

    #[test]
    fn readers_may_read_again() {
        let lock = 0u32;
        let (read, write) = (Hold::new(&lock, How::Shared), Hold::new(&lock, How::Alone));
        took(read);
        assert!(may_wait(read) && !may_wait(write) && !gives(write));
        took(read);
        assert!(gives(read) && gives(read) && !gives(read));
    }

    #[test]
    fn nodes_are_for_one_lock() {
        let (lock, node, other) = (0u32, 0u64, 0u64);
        let hold = Hold::by_node(&lock, &node);
        took(hold);
        assert!(!is_free(&raw const node as usize) && is_free(&raw const other as usize));
        assert!(!gives(Hold::by_node(&lock, &other)));
        assert!(gives(hold) && is_free(&raw const node as usize));
    }

    #[test]
    fn more_than_fit_are_believed() {
        let locks = [0u8; 100];
        for lock in &locks {
            took(Hold::new(lock, How::Alone));
        }
        for lock in &locks {
            assert!(gives(Hold::new(lock, How::Alone)));
        }
        took(Hold::new(&locks[0], How::Alone));
        forget(&locks[0]);
        assert!(may_wait(Hold::new(&locks[0], How::Alone)));
    }
}

//! Queue locks for C.

use crate::held::{self, Hold, How};
use crate::{create, destroy, remember};
use libc::{EBUSY, EDEADLK, EINVAL, EPERM, c_int};
use libncpu::locks::mcs::{McsNode, RawMcs};
use libncpu::locks::numa_lock::RawNumaLock;

/// A queue lock: first come, first served. Zeroed is initialised.
#[repr(C)]
pub struct ncpu_mcs_t {
    opaque: [u64; 2],
}

/// A waiter's place in a queue, usually on its stack. Each lock that a thread holds or waits for needs one.
#[repr(C)]
pub struct ncpu_mcs_node_t {
    opaque: [u64; 8],
}

/// A queue lock that prefers threads of the owner's NUMA node.
pub struct ncpu_numa_t(RawNumaLock);

/// Like `ncpu_mcs_node_t`, for `ncpu_numa_t`.
#[repr(C)]
pub struct ncpu_numa_node_t {
    node: ncpu_mcs_node_t,
}

const _: () = assert!(size_of::<ncpu_mcs_t>() == size_of::<RawMcs>());
const _: () = assert!(size_of::<ncpu_mcs_node_t>() == size_of::<McsNode>());

/// Takes the lock, in the order of arrival. `node` must not move until the unlock. A thread that already
/// holds the lock waits for itself forever. In debug builds that is EDEADLK, and a node that is in use for
/// another lock is EINVAL.
///
/// # Safety
/// `lock` is null or initialised; `node` is null or writable memory that no lock uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_lock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    not_by_itself!(Hold::new(lock, How::Alone));
    let node = match unsafe { place(node) } {
        Some(node) => node,
        None => return EINVAL,
    };
    unsafe { lock.lock(node) };
    held::took(Hold::by_node(lock, node));
    0
}

/// Takes the lock, or returns EBUSY if it is locked.
///
/// # Safety
/// As for `ncpu_mcs_lock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_trylock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    let node = match unsafe { place(node) } {
        Some(node) => node,
        None => return EINVAL,
    };
    remember(lock.try_lock(), Hold::by_node(lock, node), EBUSY)
}

/// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
/// calling thread does not hold it by this node.
///
/// # Safety
/// If the lock is locked, then by the calling thread and this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_unlock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    let node = object!(node, McsNode);
    if !lock.is_locked() {
        return EPERM;
    }
    holder!(Hold::by_node(lock, node));
    unsafe { lock.unlock() };
    0
}

/// Frees the lock in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
/// child handler, if the prepare handler took the lock.
///
/// # Safety
/// `lock` is null or initialised; the process has one thread; the data that the lock protects are consistent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_after_fork(lock: *mut ncpu_mcs_t) -> c_int {
    let lock = object!(lock, RawMcs);
    held::forget(lock);
    unsafe { lock.reset_after_fork() };
    0
}

/// Makes a new node in C's memory.
unsafe fn place<'a>(node: *mut ncpu_mcs_node_t) -> Option<&'a McsNode> {
    let node = node.cast::<McsNode>();
    if node.is_null() || !held::is_free(node as usize) {
        return None;
    }
    unsafe {
        node.write(McsNode::new());
        node.as_ref()
    }
}

/// A new lock with a queue for each NUMA node, or null with errno set.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_numa_create() -> *mut ncpu_numa_t {
    create(RawNumaLock::new().map(ncpu_numa_t))
}

/// Frees a lock that no thread holds or waits for. Null is ignored.
///
/// # Safety
/// `lock` is null or from `ncpu_numa_create`, and unused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_destroy(lock: *mut ncpu_numa_t) {
    held::forget(lock);
    unsafe { destroy(lock) }
}

/// Takes the lock. `node` must not move until the unlock. In debug builds the errors are those of
/// ncpu_mcs_lock.
///
/// # Safety
/// `lock` is null or a lock; `node` is null or writable memory that no lock uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_lock(lock: *mut ncpu_numa_t, node: *mut ncpu_numa_node_t) -> c_int {
    let hold = Hold::by_node(lock, node);
    let raw = object!(lock);
    not_by_itself!(Hold::new(lock, How::Alone));
    if node.is_null() {
        return EINVAL;
    }
    unsafe {
        let Some(place) = place(&raw mut (*node).node) else { return EINVAL };
        raw.lock(place);
    }
    held::took(hold);
    0
}

/// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
/// calling thread does not hold it by this node.
///
/// # Safety
/// If the lock is locked, then by the calling thread and this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_unlock(lock: *mut ncpu_numa_t, node: *mut ncpu_numa_node_t) -> c_int {
    let raw = object!(lock);
    if node.is_null() {
        return EINVAL;
    }
    if !raw.is_locked() {
        return EPERM;
    }
    holder!(Hold::by_node(lock, node));
    unsafe { raw.unlock() };
    0
}

/// As ncpu_mcs_after_fork.
///
/// # Safety
/// `lock` is null or a lock; the process has one thread; the data that the lock protects are consistent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_after_fork(lock: *mut ncpu_numa_t) -> c_int {
    let raw = object!(lock);
    held::forget(lock);
    unsafe { raw.reset_after_fork() };
    0
}

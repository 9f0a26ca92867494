//! Counters for C, with a limit and without.

use crate::{create, destroy, fail};
use libc::{EINVAL, c_int};
use libncpu::counters::bounded::{BoundedCounter, Error, MOST};
use libncpu::counters::counter::Counter;

/// A counter with a hard limit.
pub struct ncpu_bounded_t(BoundedCounter);

/// A counter without a limit, on a cache line for each CPU.
pub struct ncpu_counter_t(Counter);

/// The largest limit of a bounded counter.
pub const NCPU_BOUNDED_MOST: u64 = 0x4000_0000_0000_0000;

const _: () = assert!(NCPU_BOUNDED_MOST == MOST);

fn created(made: Result<BoundedCounter, Error>) -> *mut ncpu_bounded_t {
    match made {
        Ok(made) => create(Ok(ncpu_bounded_t(made))),
        Err(Error::TooLarge(_)) => fail(EINVAL),
        Err(Error::OutOfMemory(_)) => fail(libc::ENOMEM),
    }
}

/// A new counter of which at most `limit` can be taken, or null with errno set: EINVAL for more than
/// NCPU_BOUNDED_MOST, ENOMEM. A fork waits until no thread is inside of a call with it; a child's copy is whole.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_bounded_create(limit: u64) -> *mut ncpu_bounded_t {
    created(BoundedCounter::new(limit))
}

/// As ncpu_bounded_create, a counter that finds every give of more than is taken, and does not scale: to find out who
/// gives too much.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_bounded_create_checked(limit: u64) -> *mut ncpu_bounded_t {
    created(BoundedCounter::checked(limit))
}

/// Ends a counter. Null is nothing.
///
/// # Safety
/// `counter` is null or from `ncpu_bounded_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_destroy(counter: *mut ncpu_bounded_t) {
    unsafe { destroy(counter) }
}

/// Takes `n`, or returns EDQUOT if less than that is free.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_take(counter: *mut ncpu_bounded_t, n: u64) -> c_int {
    if object!(counter).take(n) { 0 } else { libc::EDQUOT }
}

/// Gives back `n` of what was taken. ERANGE, and nothing changes, if that is more than all together have taken. That is
/// certain for counters of ncpu_bounded_create_checked, and for others at first and from each EDQUOT,
/// ncpu_bounded_read_exact and ncpu_bounded_set_limit until much is free again. Otherwise it is found only if more than
/// the largest limit so far would be free on this CPU; what passes can be taken above the limit until the next of
/// those calls, which drops the surplus. Who took what is not known: giving what another took is never found.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_give(counter: *mut ncpu_bounded_t, n: u64) -> c_int {
    if object!(counter).give(n) { 0 } else { libc::ERANGE }
}

/// What is taken: exact if nobody takes or gives meanwhile. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read())
}

/// What is taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read_exact(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read_exact())
}

/// Changes the limit. Returns by how much what is taken exceeds it now; nobody can take until that was given back.
/// UINT64_MAX with errno EINVAL, and nothing changes, for a limit above NCPU_BOUNDED_MOST.
///
/// # Safety
/// `counter` is null (0 is returned) or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_set_limit(counter: *mut ncpu_bounded_t, limit: u64) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| match counter.0.set_limit(limit) {
        Ok(excess) => excess,
        Err(_) => {
            fail::<()>(EINVAL);
            u64::MAX
        }
    })
}

/// A new counter of 0, or null with errno set.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_counter_create() -> *mut ncpu_counter_t {
    create(Counter::new().map(ncpu_counter_t))
}

/// Ends a counter. Null is nothing.
///
/// # Safety
/// `counter` is null or from `ncpu_counter_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_destroy(counter: *mut ncpu_counter_t) {
    unsafe { destroy(counter) }
}

/// Adds `n`, which may be negative.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_add(counter: *mut ncpu_counter_t, n: i64) -> c_int {
    object!(counter).add(n);
    0
}

/// The sum over all CPUs. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_sum(counter: *const ncpu_counter_t) -> i64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.sum())
}

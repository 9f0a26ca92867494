//! Counters for C, with and without a limit.

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

/// A new counter with the limit `limit`, or null with errno set: EINVAL for more than NCPU_BOUNDED_MOST,
/// ENOMEM. A fork waits until no thread is inside a call with it; a child's copy is consistent.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_bounded_create(limit: u64) -> *mut ncpu_bounded_t {
    created(BoundedCounter::new(limit))
}

/// As ncpu_bounded_create, a counter that refuses every give of more than is taken, and does not scale. Use
/// it to find the caller that gives too much.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_bounded_create_checked(limit: u64) -> *mut ncpu_bounded_t {
    created(BoundedCounter::checked(limit))
}

/// Frees a counter. Null is ignored.
///
/// # Safety
/// `counter` is null or from `ncpu_bounded_create`, and unused.
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

/// Gives back `n` of the taken credit. ERANGE, and nothing changes, if all threads together have taken less.
/// That is certain for counters of ncpu_bounded_create_checked, and for others at first and from each EDQUOT,
/// ncpu_bounded_read_exact and ncpu_bounded_set_limit until much is free again. Otherwise it is detected only
/// if more than the largest limit so far would be free on this CPU. A surplus that passes can be taken above
/// the limit until the next of these three calls drops it. The counter does not record which thread took how
/// much: giving credit that another thread took is never detected.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_give(counter: *mut ncpu_bounded_t, n: u64) -> c_int {
    if object!(counter).give(n) { 0 } else { libc::ERANGE }
}

/// Credit taken: exact if no thread takes or gives meanwhile. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read())
}

/// Credit taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read_exact(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read_exact())
}

/// Changes the limit. Returns by how much the taken credit exceeds the new limit; no thread can take until
/// that was given back. UINT64_MAX with errno EINVAL, and nothing changes, for a limit above
/// NCPU_BOUNDED_MOST.
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

/// Frees a counter. Null is ignored.
///
/// # Safety
/// `counter` is null or from `ncpu_counter_create`, and unused.
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

//! [`libncpu`] for C: `include/ncpu.h` is generated from these modules (`cbindgen.toml`).
//!
//! Functions return 0 or an error of `<errno.h>`. A null pointer is `EINVAL`. Debug builds record the locks
//! of each thread ([`crate::held`]): there an unlock by a thread that does not hold the lock is `EPERM`, and
//! taking a lock that the thread already holds `EDEADLK`; nothing changes in either case.

#![allow(non_camel_case_types)] // C's names.
#![allow(clippy::undocumented_unsafe_blocks)] // Each function's safety section covers its blocks.

use crate::held::Hold;
use libc::c_int;
use libncpu::percpu::{OutOfMemory, one};

/// Turns a C pointer into a Rust reference, or returns `EINVAL`.
macro_rules! object {
    ($pointer:expr) => {
        match unsafe { $pointer.as_ref() } {
            Some(object) => &object.0,
            None => return EINVAL,
        }
    };
    ($pointer:expr, $type:ty) => {
        match unsafe { $pointer.cast::<$type>().as_ref() } {
            Some(object) => object,
            None => return EINVAL,
        }
    };
}

/// Reads an absolute CLOCK_MONOTONIC time, or returns `EINVAL`.
macro_rules! deadline {
    ($time:expr) => {
        match unsafe { $time.as_ref() }.and_then(|t| Instant::from_timespec(t.tv_sec, t.tv_nsec)) {
            Some(deadline) => deadline,
            None => return EINVAL,
        }
    };
}

/// Returns `EDEADLK` if the thread would wait for itself, in debug builds.
macro_rules! not_by_itself {
    ($hold:expr) => {
        if !held::may_wait($hold) {
            return EDEADLK;
        }
    };
}

/// Returns `EPERM` if the thread does not hold the lock, in debug builds.
macro_rules! holder {
    ($hold:expr) => {
        if !held::gives($hold) {
            return EPERM;
        }
    };
}

mod held;

// The header has the modules in this order.
pub mod mutexes;
pub mod queue_locks;
pub mod rwlocks;

pub mod counters;

pub mod copy;
pub mod env;
pub mod segments;
pub mod stack_bias;
pub mod timer;
pub mod vmem;

/// Records whether a try or a timed wait took the lock. Returns 0 or `otherwise`.
#[inline]
fn remember(taken: bool, hold: Hold, otherwise: c_int) -> c_int {
    if !taken {
        return otherwise;
    }
    held::took(hold);
    0
}

/// Puts an object on the heap, or sets errno to ENOMEM and returns null.
fn create<T>(made: Result<T, OutOfMemory>) -> *mut T {
    match made.and_then(one) {
        Ok(made) => Box::into_raw(made),
        Err(_) => fail(libc::ENOMEM),
    }
}

/// Null, with errno set.
fn fail<T>(error: c_int) -> *mut T {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error };
    std::ptr::null_mut()
}

/// Frees an object of `create`; null is ignored.
unsafe fn destroy<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: from `create`, by the caller's promise.
        drop(unsafe { Box::from_raw(object) });
    }
}

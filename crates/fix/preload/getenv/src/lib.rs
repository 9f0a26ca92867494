//! `LD_PRELOAD=libncpu_getenv.so`: replaces glibc's `getenv` and the functions that change the environment by
//! [`libncpu::env`].
//!
//! These functions need no initialisation, so they work in constructors that run before this library's. None
//! of them calls `getenv`, or `malloc` with a lock held, so allocators and sanitizers that read their options
//! at their first call get an answer.

use libc::{c_char, c_int};
use libncpu::env::{self, Error};

/// 0, or -1 with `errno` set.
fn done(done: Result<(), Error>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = error.errno() };
            -1
        }
    }
}

/// The program's `getenv`.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { env::getenv(name) }
}

/// The program's `secure_getenv`.
///
/// # Safety
/// As in glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn secure_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { env::secure_getenv(name) }
}

/// The program's `setenv`.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { env::setenv(name, value, overwrite != 0) })
}

/// The program's `putenv`.
///
/// # Safety
/// As in POSIX; and every reader of the variable is done before the string is freed or changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn putenv(entry: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { env::putenv(entry) })
}

/// The program's `unsetenv`.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unsetenv(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { env::unsetenv(name) })
}

/// The program's `clearenv`.
#[unsafe(no_mangle)]
pub extern "C" fn clearenv() -> c_int {
    env::clear();
    0
}

/// Before the program's own constructors, so that its handlers for `fork`, which may call `setenv`, run while
/// the locks are free: `prepare` handlers run in reverse order of registration.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = env_init;

extern "C" fn env_init() {
    env::keep_over_fork();
}

//! `LD_PRELOAD=libncpu_getenv.so`: [`libncpu::env`] in the place of glibc's `getenv` and those that change the environment.
//!
//! Nothing has to be initialised before these functions can be called, so they work in constructors that run before
//! this library's, and none of them calls `malloc` with a lock held or `getenv` at all: allocators and sanitizers that
//! ask for their options when they are first called get an answer.

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
/// As POSIX has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { env::getenv(name) }
}

/// The program's `secure_getenv`.
///
/// # Safety
/// As glibc has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn secure_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { env::secure_getenv(name) }
}

/// The program's `setenv`.
///
/// # Safety
/// As POSIX has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { env::setenv(name, value, overwrite != 0) })
}

/// The program's `putenv`.
///
/// # Safety
/// As POSIX has it; and whoever reads the variable does so before the string is freed or changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn putenv(entry: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { env::putenv(entry) })
}

/// The program's `unsetenv`.
///
/// # Safety
/// As POSIX has it.
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

/// Before the program's own constructors, so that its handlers for `fork`, which may call `setenv`, run while the
/// locks are free: `prepare` handlers run last come, first served.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = env_init;

extern "C" fn env_init() {
    env::keep_over_fork();
}

//! The environment, `ncpu_getenv` and others.

use libc::{c_char, c_int};
use libncpu::environment::env::{self, Error};

fn done(done: Result<(), Error>) -> c_int {
    done.map_or_else(Error::errno, |()| 0)
}

/// The value of a variable, or null. Takes no lock, and may be called in a signal handler.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() { std::ptr::null_mut() } else { unsafe { env::getenv(name) } }
}

/// As `ncpu_getenv`, but null in a set-user-ID, set-group-ID or otherwise privileged program.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_secure_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() { std::ptr::null_mut() } else { unsafe { env::secure_getenv(name) } }
}

/// Sets a variable; an existing one keeps its value if `overwrite` is 0. EINVAL for an invalid name.
///
/// # Safety
/// `name` and `value` are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int {
    done(unsafe { env::setenv(name, value, overwrite != 0) })
}

/// Makes the string `entry`, "NAME=VALUE", itself part of the environment; without a '=' removes the variable
/// of that name.
///
/// # Safety
/// `entry` is null or a string that is neither freed nor changed while a thread may be reading it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_putenv(entry: *mut c_char) -> c_int {
    done(unsafe { env::putenv(entry) })
}

/// Removes a variable, which need not be set. EINVAL for an invalid name.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_unsetenv(name: *const c_char) -> c_int {
    done(unsafe { env::unsetenv(name) })
}

/// Removes all variables.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_clearenv() -> c_int {
    env::clear();
    0
}

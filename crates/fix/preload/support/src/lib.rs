//! Shared code of the LD_PRELOAD libraries. Each library is a crate `preload-*` of its own, a thin layer over
//! libncpu.

pub mod waits;

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function behind the preloaded one: the next of its name in the order of loading, usually libc's.
pub struct Next {
    name: &'static CStr,
    at: AtomicPtr<libc::c_void>,
}

impl Next {
    /// The next function called `name`; looked up at its first use.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if no loaded object has it. Allocates nothing, but the dynamic linker may.
    pub fn address(&self) -> *mut libc::c_void {
        let at = self.at.load(Ordering::Relaxed);
        if !at.is_null() {
            return at;
        }
        // SAFETY: the name is a C string. Threads that look it up at once find the same address.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

/// The next function of this name, as a function of this type. If there is none, the calling function returns
/// `$otherwise`.
#[macro_export]
macro_rules! next {
    ($name:literal as $type:ty, $otherwise:expr) => {{
        static NEXT: $crate::Next = $crate::Next::new($name);
        let at = NEXT.address();
        if at.is_null() {
            return $otherwise;
        }
        // SAFETY: a function of this name has this type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(at) }
    }};
}

/// For a libc that lacks the function, which none does: returns `result`, with errno ENOSYS.
pub fn missing<T>(result: T) -> T {
    set_errno(libc::ENOSYS);
    result
}

/// This thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(to: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_there_is() {
        let there = Next::new(c"getpid");
        // SAFETY: getpid takes nothing and returns an int.
        let getpid: unsafe extern "C" fn() -> libc::c_int = unsafe { std::mem::transmute(there.address()) };
        // SAFETY: always.
        assert_eq!(unsafe { getpid() } as u32, std::process::id());
        assert_eq!(there.address(), there.address());
        assert!(Next::new(c"no_function_has_this_name").address().is_null());
    }
}

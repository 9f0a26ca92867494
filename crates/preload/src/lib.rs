//! What the LD_PRELOAD libraries share: each is a crate `preload-*` of its own, a thin skin over libncpu.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that the preloaded one stands before: the next of its name in the order of loading, usually libc's.
pub struct Next {
    name: &'static CStr,
    at: AtomicPtr<libc::c_void>,
}

impl Next {
    /// The next function called `name`; looked up when it is first asked for.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is; null if nothing that is loaded has it. Allocates nothing, but the dynamic linker may.
    pub fn address(&self) -> *mut libc::c_void {
        let at = self.at.load(Ordering::Relaxed);
        if !at.is_null() {
            return at;
        }
        // SAFETY: the name is a C string. Threads that look it up at once find the same.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(at, Ordering::Relaxed);
        at
    }
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

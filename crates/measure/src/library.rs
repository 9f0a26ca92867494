//! Shared libraries that are used where they are there.

use std::ffi::{CStr, CString, c_void};

use crate::failure::Failure;

/// A loaded library; it stays loaded until the process ends.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
    name: String,
}

// SAFETY: a handle that only dlsym reads.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The loader's last message.
fn said() -> String {
    // SAFETY: dlerror gives a text that is ours to read until the next call, or null.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "no reason given".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

impl Library {
    /// Loads it, by name or path.
    ///
    /// # Errors
    /// It is not there or cannot be loaded, as none can by a program without shared libraries.
    pub fn open(name: &str) -> Result<Library, Failure> {
        let path = CString::new(name).map_err(|_| Failure::Failed(format!("{name}: a zero in the name")))?;
        // SAFETY: the initialisers of a library that the user named run.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Failure::Lacks(format!("loading {name}: {}", said())));
        }
        Ok(Library { handle, name: name.into() })
    }

    /// A function, of type `F`.
    ///
    /// # Safety
    /// `F` is the type of the function of this name, a pointer to a function.
    ///
    /// # Errors
    /// The library has none of this name.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, Failure> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let at = self.symbol(name)?;
        // SAFETY: of the same size, and of this type as the caller says.
        Ok(unsafe { std::mem::transmute_copy(&at) })
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void, Failure> {
        // SAFETY: a live handle.
        let at = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if at.is_null() {
            return Err(Failure::Lacks(format!("{} has no {}", self.name, name.to_string_lossy())));
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told() {
        let e = Library::open("libnosuch.so.9").unwrap_err().to_string();
        assert!(e.contains("libnosuch.so.9"), "{e}");
        let libc = Library::open("libc.so.6").unwrap();
        assert!(libc.symbol(c"malloc").is_ok());
        assert!(
            libc.symbol(c"no_such_function").unwrap_err().to_string().contains("has no no_such_function")
        );
    }
}

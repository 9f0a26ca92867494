//! The environment of the process, read without locks while other threads change it.
//!
//! `getenv` takes no lock in any C library of Linux. In glibc before 2.41 and in musl, a thread that calls it
//! while another calls `setenv` or `unsetenv` reads freed memory or misses variables. Here readers take no
//! lock either, updates take one, and memory that a reader may be looking at is never freed.
//! [`env_list`](crate::environment::env_list) explains the method and its proof.
//!
//! The functions behave as those of glibc and POSIX, on the same `environ`: glibc's `getenv`, `execve` or a
//! loop over `environ` sees the list that [`set`] and the other functions made. These readers are as safe.
//! Two things differ: new variables come first in `environ`, not last; and it is always safe to read.
//!
//! # What it does not do
//!
//! All updates must go through these functions: glibc's `setenv`, which `std::env::set_var` calls, has a lock of its own.
//! The preload library `getenv` replaces glibc's functions by these for a whole program. Strings given to
//! [`put`] belong to the program, which must not free or change them while other threads may read them.
//!
//! # Cost
//!
//! Reading: a load and a comparison of a byte or two for each entry up to the one sought. A list takes at
//! most three times the memory that the pointers to its largest number of entries need. A string that was
//! ever set is kept, once, even if it is set again. As in glibc, the memory of a program that keeps setting
//! new values grows.
//!
//! # Fork
//!
//! The first update registers handlers with `pthread_atfork` that take the locks before a fork, so that a child can
//! change its environment whatever other threads were doing.

use crate::environment::env_list::{self, Environ, List};
use crate::locks::raw_mutex::RawMutex;
use crate::percpu::{OutOfMemory, boxed, one};
use crate::sys::{AtomicBool, Ordering::Relaxed};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::ptr::null_mut;

unsafe extern "C" {
    /// C's `char **environ`.
    #[link_name = "environ"]
    static ENVIRON: Environ;
}

static LIST: List = List::new();
static KNOWN: Known = Known::new();

/// Error of a change to the environment. A failed change has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name is empty, null or contains `=`; or the value is null.
    Invalid,
    /// Out of memory.
    OutOfMemory(OutOfMemory),
}

impl Error {
    /// `EINVAL` or `ENOMEM`.
    pub fn errno(self) -> c_int {
        match self {
            Error::Invalid => libc::EINVAL,
            Error::OutOfMemory(_) => libc::ENOMEM,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid => {
                write!(f, "invalid name of an environment variable: empty, or contains `=`")
            }
            Error::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Error {
        Error::OutOfMemory(error)
    }
}

#[inline(always)]
fn environ() -> &'static Environ {
    // SAFETY: the C library's variable, which is never freed. The program may write it without an atomic
    // store, but a word is written as a whole.
    unsafe { &ENVIRON }
}

/// The value of a variable. Takes no lock; may be called in a signal handler.
///
/// ```
/// libncpu::env::set(c"COLOUR", c"blue", true)?;
/// assert_eq!(libncpu::env::get(c"COLOUR"), Some(c"blue"));
/// # Ok::<(), libncpu::env::Error>(())
/// ```
#[inline]
pub fn get(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a C string, and a list by the promise of the C library and the program. Values that were set
    // are never freed; the caller of `put` is responsible for the others.
    unsafe {
        let value = getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Sets a variable; one that is there keeps its value unless `overwrite`.
///
/// # Errors
/// The name is invalid, or memory ran out.
pub fn set(name: &CStr, value: &CStr, overwrite: bool) -> Result<(), Error> {
    // SAFETY: C strings.
    unsafe { setenv(name.as_ptr(), value.as_ptr(), overwrite) }
}

/// Makes the string `entry`, `NAME=VALUE`, itself part of the environment, in place of the variable's
/// previous entry. Without a `=` it removes the variable of that name.
///
/// # Errors
/// Out of memory.
///
/// # Safety
/// `entry` is a C string, which is neither freed nor changed while it is in the environment or a thread may
/// be reading it.
pub unsafe fn put(entry: *mut c_char) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { putenv(entry) }
}

/// Removes all variables.
pub fn clear() {
    keep_over_fork();
    LIST.clear(environ());
}

/// C's `getenv`: null if the variable is not set.
///
/// # Safety
/// `name` is a C string.
#[inline]
pub unsafe fn getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise; the list as in `get`.
    unsafe { env_list::find(environ(), name) }
}

/// C's `secure_getenv`: null in a program that runs with more rights than its caller.
///
/// # Safety
/// `name` is a C string.
pub unsafe fn secure_getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: looks into the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { getenv(name) }
}

/// C's `setenv`.
///
/// # Errors
/// As for [`set`].
///
/// # Safety
/// `name` and `value` are null, which is an error, or C strings.
pub unsafe fn setenv(name: *const c_char, value: *const c_char, overwrite: bool) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = valid(name)?;
        if value.is_null() {
            return Err(Error::Invalid);
        }
        if !overwrite && !getenv(name).is_null() {
            return Ok(());
        }
        keep_over_fork();
        let entry = KNOWN.entry(bytes, CStr::from_ptr(value).to_bytes())?;
        Ok(LIST.put(environ(), entry, overwrite)?)
    }
}

/// C's `putenv`: null is an error.
///
/// # Errors
/// As for [`put`].
///
/// # Safety
/// As for [`put`].
pub unsafe fn putenv(entry: *mut c_char) -> Result<(), Error> {
    if entry.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if CStr::from_ptr(entry).to_bytes().contains(&b'=') {
            keep_over_fork();
            return Ok(LIST.put(environ(), entry, true)?);
        }
        // As in glibc, where an empty string is not an error here.
        if *entry == 0 { Ok(()) } else { unsetenv(entry) }
    }
}

/// C's `unsetenv`.
///
/// # Errors
/// The name is invalid.
///
/// # Safety
/// `name` is null, which is an error, or a C string.
pub unsafe fn unsetenv(name: *const c_char) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe {
        valid(name)?;
        keep_over_fork();
        LIST.remove(environ(), name);
    }
    Ok(())
}

/// The bytes of a valid name.
unsafe fn valid<'a>(name: *const c_char) -> Result<&'a [u8], Error> {
    if name.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: a C string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.is_empty() || bytes.contains(&b'=') { Err(Error::Invalid) } else { Ok(bytes) }
}

/// Registers the handlers that make updates safe beside `fork`. The first update registers them too; a
/// program that forks from several threads at once should call this first.
pub fn keep_over_fork() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn prepare() {
        LIST.lock().lock();
        KNOWN.lock.lock();
    }
    extern "C" fn parent() {
        // SAFETY: taken by `prepare` in this thread.
        unsafe {
            KNOWN.lock.unlock();
            LIST.lock().unlock();
        }
    }
    extern "C" fn child() {
        // SAFETY: the only thread. `prepare` waited for updates in progress.
        unsafe {
            KNOWN.lock.reset_after_fork();
            LIST.lock().reset_after_fork();
        }
    }
    if REGISTERED.load(Relaxed) || REGISTERED.swap(true, Relaxed) {
        return;
    }
    // SAFETY: functions of this library, which stay loaded.
    if unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } != 0 {
        // Out of memory. The next update tries again; until then a child may find the lock taken.
        REGISTERED.store(false, Relaxed);
    }
}

/// Strings that were ever set: each once, and never freed, since readers may hold them.
struct Known {
    lock: RawMutex,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is touched with the lock held.
unsafe impl Sync for Known {}

struct Table {
    buckets: Vec<*mut Node>,
    count: usize,
}

struct Node {
    next: *mut Node,
    hash: u64,
    /// `NAME=VALUE` and a null byte: from a box of this length.
    string: *mut c_char,
    length: usize,
}

impl Drop for Node {
    /// A string that was not needed in the end.
    fn drop(&mut self) {
        if !self.string.is_null() {
            // SAFETY: from `Node::new`, and no other reference exists.
            drop(unsafe {
                Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.string.cast::<u8>(), self.length))
            });
        }
    }
}

impl Known {
    const fn new() -> Known {
        Known { lock: RawMutex::new(), table: UnsafeCell::new(Table { buckets: Vec::new(), count: 0 }) }
    }

    /// The string of a variable. Made if it is not known yet.
    fn entry(&self, name: &[u8], value: &[u8]) -> Result<*mut c_char, OutOfMemory> {
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        hasher.write(b"=");
        hasher.write(value);
        let hash = hasher.finish();
        let (mut node, mut buckets) = (None, Vec::new());
        loop {
            self.lock.lock();
            // SAFETY: the lock is held.
            let found = unsafe { (*self.table.get()).entry(hash, name, value, &mut node, &mut buckets) };
            // SAFETY: taken above. `entry` does not panic.
            unsafe { self.lock.unlock() };
            // Missing memory is allocated without the lock, because malloc may call any function.
            match found {
                Ok(string) => return Ok(string),
                Err(Missing::Node) => node = Some(Node::new(hash, name, value)?),
                Err(Missing::Buckets(count)) => {
                    buckets = Vec::new();
                    let bytes = count * size_of::<*mut Node>();
                    buckets.try_reserve_exact(count).map_err(|_| OutOfMemory(bytes))?;
                    buckets.resize(count, null_mut());
                }
            }
        }
    }
}

/// Memory to allocate before a string can be kept.
enum Missing {
    Node,
    Buckets(usize),
}

impl Node {
    fn new(hash: u64, name: &[u8], value: &[u8]) -> Result<Box<Node>, OutOfMemory> {
        let length = name.len() + value.len() + 2;
        let mut node = one(Node { next: null_mut(), hash, string: null_mut(), length })?;
        let mut bytes = name.iter().chain(b"=").chain(value).chain(b"\0");
        node.string = Box::into_raw(boxed(length, |_| bytes.next().copied().unwrap_or(0))?).cast();
        Ok(node)
    }
}

impl Table {
    /// The string, found or made of `node`.
    fn entry(
        &mut self,
        hash: u64,
        name: &[u8],
        value: &[u8],
        node: &mut Option<Box<Node>>,
        buckets: &mut Vec<*mut Node>,
    ) -> Result<*mut c_char, Missing> {
        let mut at = self.buckets.get(self.bucket(hash)).copied().unwrap_or(null_mut());
        // SAFETY: nodes of the table live for good.
        while let Some(known) = unsafe { at.as_ref() } {
            // SAFETY: a C string.
            let is = || unsafe { CStr::from_ptr(known.string) }.to_bytes();
            if known.hash == hash && is().strip_prefix(name).and_then(|s| s.strip_prefix(b"=")) == Some(value)
            {
                return Ok(known.string);
            }
            at = known.next;
        }
        if self.count >= self.buckets.len() {
            if buckets.len() <= self.buckets.len() {
                return Err(Missing::Buckets((2 * self.buckets.len()).max(64)));
            }
            // The old ones are freed by the caller, without the lock.
            std::mem::swap(&mut self.buckets, buckets);
            for &first in buckets.iter() {
                let mut at = first;
                while !at.is_null() {
                    // SAFETY: as above; each is in one bucket.
                    let next = unsafe { (*at).next };
                    self.insert(at);
                    at = next;
                }
            }
        }
        let node = Box::into_raw(node.take().ok_or(Missing::Node)?);
        self.insert(node);
        self.count += 1;
        // SAFETY: just made.
        Ok(unsafe { (*node).string })
    }

    fn bucket(&self, hash: u64) -> usize {
        // A power of two of them, or none.
        hash as usize & self.buckets.len().saturating_sub(1)
    }

    fn insert(&mut self, node: *mut Node) {
        // SAFETY: a node that is in no bucket.
        let hash = unsafe { (*node).hash };
        let bucket = self.bucket(hash);
        // SAFETY: as above.
        unsafe { (*node).next = self.buckets[bucket] };
        self.buckets[bucket] = node;
    }
}

//! Forks: identifies the process within its family, so that state inherited from an ancestor is recognised.
//!
//! A *generation* is a number that no other process between this one and its first ancestor had. It lies in a
//! page that the kernel clears in every child (`MADV_WIPEONFORK`), whichever call made it: `fork`, `_Fork` or
//! a bare `clone`. On kernels without such pages (before 4.14) a handler of `pthread_atfork` clears it, and
//! only `fork` is noticed.
//!
//! Objects with private locks are *kept consistent*: `fork` waits until no thread holds these locks.

use super::kernel;
use Ordering::{Acquire, Relaxed, Release};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The generation, 0 in a child that has not called [`forks`] yet. Null before the first call.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The last generation that was assigned in this process or an ancestor.
static LAST: AtomicU32 = AtomicU32::new(0);

/// This process's generation, never 0; 0 if forks cannot be noticed for lack of memory.
#[inline(always)]
pub fn forks() -> u32 {
    // SAFETY: null, or a word that is never freed.
    match unsafe { WORD.load(Acquire).as_ref() }.map_or(0, |word| word.load(Relaxed)) {
        0 => next(),
        generation => generation,
    }
}

/// Makes [`forks`] count from now on. False without memory.
pub fn watch_forks() -> bool {
    forks() != 0
}

#[cold]
fn next() -> u32 {
    let mut word = WORD.load(Acquire);
    if word.is_null() {
        let Some(made) = make() else { return 0 };
        match WORD.compare_exchange(std::ptr::null_mut(), made, Release, Acquire) {
            Ok(_) => word = made,
            // Two threads: the other's page stays, and this thread's page is lost, once.
            Err(first) => word = first,
        }
    }
    // SAFETY: never freed.
    let word = unsafe { &*word };
    // Several threads of a child may come here: the first one's number counts.
    let new = LAST.fetch_add(1, Relaxed) + 1;
    match word.compare_exchange(0, new, Relaxed, Relaxed) {
        Ok(_) => new,
        Err(there) => there,
    }
}

/// A word that is 0 in every child.
fn make() -> Option<*mut AtomicU32> {
    static PLAIN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn clear() {
        PLAIN.store(0, Relaxed);
    }
    if !cfg!(miri)
        && let Ok(page) = kernel::map(kernel::page())
    {
        if kernel::madvise(page, kernel::page(), libc::MADV_WIPEONFORK).is_ok() {
            return Some(std::ptr::with_exposed_provenance_mut(page));
        }
        // SAFETY: the page just mapped.
        let _ = unsafe { kernel::unmap(page, kernel::page()) };
    }
    // SAFETY: the handler is a function of this library.
    let done = cfg!(miri) || unsafe { libc::pthread_atfork(None, None, Some(clear)) } == 0;
    done.then(|| (&raw const PLAIN).cast_mut())
}

/// Runs `renew` while no other thread of this process does. A thread that a fork has left behind in the
/// parent does not count.
pub fn once_forked(renew: impl FnOnce()) {
    /// The generation of the process in which a thread renews, otherwise 0.
    static RENEWING: AtomicU32 = AtomicU32::new(0);
    let me = forks();
    loop {
        let seen = RENEWING.load(Relaxed);
        if seen != me && RENEWING.compare_exchange(seen, me, Acquire, Relaxed).is_ok() {
            break;
        }
        std::thread::yield_now();
    }
    renew();
    RENEWING.store(0, Release);
}

/// An object with private locks that a fork must find free.
pub trait Forked: Sync {
    /// Takes all its locks, in the order in which its users take them.
    fn before(&self);
    /// Releases them, in the parent or in the `child`, where this thread is the only one.
    ///
    /// # Safety
    /// `before` was called, and this function was not called since.
    unsafe fn after(&self, child: bool);
}

type All = Vec<Member>;

struct Member(*const dyn Forked);
// SAFETY: a member is `Sync`, and alive until it is left out.
unsafe impl Send for Member {}

static MEMBERS: Mutex<All> = Mutex::new(Vec::new());

fn members() -> MutexGuard<'static, All> {
    // No code panics with the list half changed.
    MEMBERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Registers an object: every `fork` of the C library calls its [`Forked`], until [`leave`]. False without
/// memory.
///
/// # Safety
/// The object does not move until then.
pub unsafe fn join<T: Forked + 'static>(object: *const T) -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn prepare() {
        let members = members();
        for member in members.iter() {
            // SAFETY: alive while it is in the list, which is locked.
            unsafe { (*member.0).before() };
        }
        // SAFETY: only the forking thread comes here before `after`: it holds the list's lock.
        unsafe { *KEPT.0.get() = Some(members) };
    }
    fn after(child: bool) {
        // SAFETY: as in `prepare`.
        let members = unsafe { (*KEPT.0.get()).take() };
        for member in members.iter().flat_map(|members| members.iter()) {
            // SAFETY: alive, and `before` was called in `prepare`.
            unsafe { (*member.0).after(child) };
        }
    }
    extern "C" fn parent() {
        after(false);
    }
    extern "C" fn child() {
        after(true);
    }
    struct Kept(UnsafeCell<Option<MutexGuard<'static, All>>>);
    // SAFETY: only the forking thread touches it.
    unsafe impl Sync for Kept {}
    static KEPT: Kept = Kept(UnsafeCell::new(None));

    let mut members = members();
    if members.try_reserve(1).is_err() {
        return false;
    }
    if !cfg!(miri) && !WATCHED.load(Relaxed) {
        // SAFETY: functions of this library.
        if unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } != 0 {
            return false;
        }
        WATCHED.store(true, Relaxed);
    }
    members.push(Member(object));
    true
}

/// Unregisters an object that [`join`] registered.
pub fn leave<T: Forked + 'static>(object: *const T) {
    let mut members = members();
    if let Some(at) = members.iter().position(|member| std::ptr::addr_eq(member.0, object)) {
        members.swap_remove(at);
    }
}

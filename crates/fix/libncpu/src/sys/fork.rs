//! Forks: in which process of a family this one is, so that what belongs to an ancestor is known for it.
//!
//! A *generation* is a number that no other process between this one and its first ancestor had. It lies in a page that
//! the kernel clears in every child (`MADV_WIPEONFORK`), whichever call made it: `fork`, `_Fork` or a bare `clone`. Where
//! the kernel has no such pages (before 4.14) a handler of `pthread_atfork` clears it, and only `fork` is noticed.
//!
//! Objects whose locks nobody but themselves knows are *kept whole*: `fork` waits until no thread holds them.

use super::kernel;
use Ordering::{Acquire, Relaxed, Release};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The generation, 0 in a child that has not asked yet. Null before anybody asked.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The last generation that was given out in this process or an ancestor.
static LAST: AtomicU32 = AtomicU32::new(0);

/// This process's generation, never 0; 0 where forks cannot be noticed, for want of memory.
#[inline(always)]
pub fn forks() -> u32 {
    // SAFETY: null, or a word that is never freed.
    match unsafe { WORD.load(Acquire).as_ref() }.map_or(0, |word| word.load(Relaxed)) {
        0 => next(),
        generation => generation,
    }
}

/// Lets [`forks`] count from now on. False without memory.
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
            // Two threads: the other's page stays, this one's is lost, once.
            Err(first) => word = first,
        }
    }
    // SAFETY: never freed.
    let word = unsafe { &*word };
    // Several threads of a child may come here: the first gives the number, the others' are left out.
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

/// Runs `renew` while no other thread of this process does. Another that a fork has left behind in the parent does
/// not count.
pub fn once_forked(renew: impl FnOnce()) {
    /// The generation of the process in which a thread renews, else 0.
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

/// An object with locks of its own that a fork must find free.
pub trait Forked: Sync {
    /// Takes all its locks, in the order in which its users do.
    fn before(&self);
    /// Gives them back, in the parent or in the `child`, where this thread is the only one.
    ///
    /// # Safety
    /// `before` was called, and this not since.
    unsafe fn after(&self, child: bool);
}

type All = Vec<Member>;

struct Member(*const dyn Forked);
// SAFETY: a member is `Sync`, and alive until it is left out.
unsafe impl Send for Member {}

static MEMBERS: Mutex<All> = Mutex::new(Vec::new());

fn members() -> MutexGuard<'static, All> {
    // Nothing panics with the list half changed.
    MEMBERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has every `fork` of the C library call an object's [`Forked`], until [`leave`]. False without memory.
///
/// # Safety
/// The object stays where it is until then.
pub unsafe fn join<T: Forked + 'static>(object: *const T) -> bool {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn prepare() {
        let members = members();
        for member in members.iter() {
            // SAFETY: alive while it is in the list, which is locked.
            unsafe { (*member.0).before() };
        }
        // SAFETY: only the thread that forks comes here before `after`: it holds the list's lock.
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
    // SAFETY: touched by the thread that forks only.
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

/// Ends what [`join`] began.
pub fn leave<T: Forked + 'static>(object: *const T) {
    let mut members = members();
    if let Some(at) = members.iter().position(|member| std::ptr::addr_eq(member.0, object)) {
        members.swap_remove(at);
    }
}

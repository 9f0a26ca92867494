//! `libncpu_accept.so`: with it in `LD_PRELOAD`, the processes and threads that race for the connections of one
//! listener get equal shares of them.
//!
//! # Where it comes from
//!
//! From "How not to load-balance connections with accept()" (Phil Harman, 2005): a preloaded `accept` that
//! sleeps at random for up to 21 ms before the true one, so that the thread at the head of the listener's
//! sleep queue is not always the first. That one always slept. This one sleeps only if it detects a
//! *thundering herd*, and ends the sleep when the connection is taken.
//!
//! # What is seen
//!
//! The results of `accept`: how even the shares of threads and processes are, and whether calls fail that
//! would not have failed without the others ([`herd`]). While a single thread of the family accepts, the
//! wrapper makes no system call of its own and writes no shared memory. Otherwise it looks at shares now and
//! then, and at growing intervals while they are even. And `epoll_ctl` and `epoll_wait`: the entry and the
//! epoll by which a thread waits for a listener.
//!
//! # What is done
//!
//! A thread that waits by epoll gets another place in the kernel's queue after each connection, so that the
//! kernel wakes the waiting threads in turn ([`watch`]). A thread that waits by `poll` or `select`, or in a
//! way that is not seen, is held back for a moment before its call, if other threads are to go first
//! ([`herd`]).
//!
//! # What is kept
//!
//! Every result is the true call's, and so is `errno`: the wrapper calls it once, with the caller's
//! arguments, at most later. The exception is an entry of an epoll that the program changes while it has a
//! flag of the wrapper's, which is then removed and added. The wrapper's own calls are not cancellation
//! points, and a thread that is cancelled or unwound in the true `accept` passes through frames that hold
//! nothing. Nothing is allocated, no lock is taken, no descriptor opened. So it may be called wherever
//! `accept` may, a signal handler or a forked child included.

mod herd;
mod settings;
mod watch;

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{epoll_event, sigset_t, sockaddr, socklen_t, timespec};
use ncpu_preload::{Next, errno, set_errno};

use herd::{Page, Taker};
use settings::{Order, Settings};

static ACCEPT: Next = Next::new(c"accept");
static ACCEPT4: Next = Next::new(c"accept4");
static EPOLL_CTL: Next = Next::new(c"epoll_ctl");
static EPOLL_WAIT: Next = Next::new(c"epoll_wait");
static EPOLL_PWAIT: Next = Next::new(c"epoll_pwait");
static EPOLL_PWAIT2: Next = Next::new(c"epoll_pwait2");

/// Shared with all processes forked from this one, or since its program began; null: off.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
/// Written before `main`, and before `PAGE`.
static mut SETTINGS: Settings = Settings::DEFAULT;

thread_local! {
    // No destructor, and a constant initial value: nothing to allocate or register, not even in a signal
    // handler.
    static TAKER: Taker = const { Taker::new() };
}

// Before main, and before other libraries' constructors have started threads.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    // Looked up here, since a signal handler must not enter the dynamic linker.
    for next in [&ACCEPT, &ACCEPT4, &EPOLL_CTL, &EPOLL_WAIT, &EPOLL_PWAIT, &EPOLL_PWAIT2] {
        next.address();
    }
    // SAFETY: the names are C strings, and before main no thread changes the environment.
    let (mode, delay) = unsafe { (variable(c"NCPU_ACCEPT"), variable(c"NCPU_ACCEPT_DELAY")) };
    let settings = match Settings::read(mode, delay) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(line) => {
            // SAFETY: the bytes are live and have this length.
            unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
            return;
        }
    };
    // SAFETY: fresh memory anywhere; a page of zeroes is a valid `Page`; the settings are not read before PAGE is
    // set, and this thread is the only one.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), size_of::<Page>(), protection, kind, -1, 0);
        // Without the page, or without a fork handler, accept stays the plain call.
        if at == libc::MAP_FAILED || libc::pthread_atfork(None, None, Some(forked)) != 0 {
            return;
        }
        SETTINGS = settings;
        PAGE.store(at.cast(), Relaxed);
    }
}

/// A child's only thread is a taker of its own, not a copy of its parent's.
unsafe extern "C" fn forked() {
    TAKER.with(Taker::reset);
    watch::forked();
}

/// # Safety
/// No thread changes the environment meanwhile, nor later while the result is in use.
unsafe fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a C string in, a C string or null out.
    unsafe {
        let at = libc::getenv(name.as_ptr());
        (!at.is_null()).then(|| CStr::from_ptr(at).to_bytes())
    }
}

/// Returns the result of `call`, the true accept of `fd`, which is called once, sooner or later.
#[inline(always)]
fn balanced(fd: c_int, call: impl Fn() -> c_int) -> c_int {
    let page = PAGE.load(Relaxed);
    if page.is_null() {
        return call();
    }
    // SAFETY: set once, never unmapped. Made of atomics alone.
    let page = unsafe { &*page };
    if page.alerted() {
        // SAFETY: not written any more once PAGE is set.
        let settings = unsafe { SETTINGS };
        let before = errno();
        let slot = TAKER.with(|taker| taker.prepare(page, fd, &settings));
        set_errno(before);
        let result = call();
        if let Some(slot) = slot {
            let after = errno();
            TAKER.with(|taker| taker.learn(page, slot, fd, result, after));
            set_errno(after);
        }
        return result;
    }
    let result = call();
    if result >= 0 {
        TAKER.with(|taker| taker.got(page));
    } else if errno() == libc::EAGAIN {
        // Reads at most the clock, which leaves errno alone.
        TAKER.with(|taker| taker.suspects(page, fd));
    }
    result
}

/// accept(2), delayed if a herd races for the connections of `fd`.
///
/// # Safety
/// As for accept(2): `address` and `length` are null, or point to a buffer and its length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    let next = ACCEPT.address();
    if next.is_null() {
        // SAFETY: the caller's promise; accept is accept4 without flags.
        return unsafe { bare(fd, address, length, 0) };
    }
    // SAFETY: libc's accept has this type. Cancelling a thread unwinds through here.
    let next = unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
        >(next)
    };
    // SAFETY: the caller's promise.
    balanced(fd, || unsafe { next(fd, address, length) })
}

/// accept4(2), delayed if a herd races for the connections of `fd`.
///
/// # Safety
/// As for accept4(2): `address` and `length` are null, or point to a buffer and its length.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let next = ACCEPT4.address();
    if next.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { bare(fd, address, length, flags) };
    }
    // SAFETY: libc's accept4 has this type. Cancelling a thread unwinds through here.
    let next = unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int,
        >(next)
    };
    // SAFETY: the caller's promise.
    balanced(fd, || unsafe { next(fd, address, length, flags) })
}

/// epoll_ctl(2); records entries for listeners.
///
/// # Safety
/// As for epoll_ctl(2): `event` points to an event, or is not needed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let next = EPOLL_CTL.address();
    let call = || {
        // SAFETY: the caller's promise; libc's epoll_ctl has this type.
        unsafe {
            if next.is_null() {
                return libc::syscall(libc::SYS_epoll_ctl, epoll, operation, fd, event) as c_int;
            }
            std::mem::transmute::<
                *mut c_void,
                unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int,
            >(next)(epoll, operation, fd, event)
        }
    };
    if PAGE.load(Relaxed).is_null() {
        return call();
    }
    watch::control(epoll, operation, fd, event, call)
}

/// Records that the thread is about to wait in an epoll. Not needed with random delays, which use no turns.
#[inline(always)]
fn waits(epoll: c_int) {
    let page = PAGE.load(Relaxed);
    if page.is_null() {
        return;
    }
    // SAFETY: set once, never unmapped, and made of atomics alone; settings are not written any more once PAGE is set.
    let (page, settings) = unsafe { (&*page, SETTINGS) };
    if settings.order == Order::RoundRobin {
        TAKER.with(|taker| taker.waits(page, epoll));
    }
}

/// The size of a signal set that the kernel expects, in bytes.
const SIGNAL_SET: usize = 8;

/// Defines one of the calls that wait in an epoll: the next function of its name or, if there is none, the
/// system call, with the mask that it takes beyond the arguments.
macro_rules! waiting {
    ($(#[$about:meta])* $name:ident, $next:ident, $call:ident($($mask:expr)?), $($argument:ident: $type:ty),*) => {
        $(#[$about])*
        ///
        /// # Safety
        /// As for the named call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(epoll: c_int, $($argument: $type),*) -> c_int {
            waits(epoll);
            let next = $next.address();
            // SAFETY: the caller's promise; libc's function has this type. Cancelling a thread unwinds through here.
            unsafe {
                if next.is_null() {
                    return libc::syscall(libc::$call, epoll, $($argument,)* $($mask,)? SIGNAL_SET) as c_int;
                }
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(c_int, $($type),*) -> c_int>(next)(
                    epoll, $($argument),*
                )
            }
        }
    };
}

waiting!(
    /// epoll_wait(2).
    epoll_wait, EPOLL_WAIT, SYS_epoll_pwait(std::ptr::null::<sigset_t>()),
    events: *mut epoll_event, most: c_int, timeout: c_int
);
waiting!(
    /// epoll_pwait(2).
    epoll_pwait, EPOLL_PWAIT, SYS_epoll_pwait(),
    events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t
);
waiting!(
    /// epoll_pwait2(2).
    epoll_pwait2, EPOLL_PWAIT2, SYS_epoll_pwait2(),
    events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t
);

/// # Safety
/// As for accept4(2).
#[cold]
unsafe fn bare(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_accept4, fd, address, length, flags) as c_int }
}

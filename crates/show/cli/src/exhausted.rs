//! The end of a program that gets no more memory: a line with the reason. Rust ends it by SIGABRT, which shells report as a crash.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write as _;

thread_local! {
    /// Bytes that this thread was refused last.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which remembers what it refuses.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn noted(got: *mut u8, bytes: usize) -> *mut u8 {
    if got.is_null() {
        // A thread that is at its end has forgotten it.
        let _ = REFUSED.try_with(|refused| refused.set(bytes));
    }
    got
}

// SAFETY: all is the system's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.realloc(at, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

/// From here on the program ends with a line and status 1 where it gets no more memory.
pub fn explain() {
    // SAFETY: the handler makes only async-signal-safe calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = aborted as *const () as usize;
        // A second time it is an abort like any other.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER;
        libc::sigaction(libc::SIGABRT, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn aborted(_: i32) {
    let bytes = REFUSED.try_with(Cell::get).unwrap_or(0);
    if bytes == 0 {
        // SAFETY: async-signal-safe; its handler is the default by now.
        unsafe { libc::raise(libc::SIGABRT) };
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live local.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    let mut line = [0; 200];
    let mut rest = &mut line[..];
    let _ = write!(rest, "ncpu: out of memory: {bytes} bytes were refused");
    let _ = match limit.rlim_cur {
        libc::RLIM_INFINITY => writeln!(rest),
        most => writeln!(rest, "; the address space is limited to {} MB (ulimit -v)", most / 1_000_000),
    };
    let length = 200 - rest.len();
    // SAFETY: the bytes written above; both calls are async-signal-safe.
    unsafe {
        libc::write(2, line.as_ptr().cast(), length);
        libc::_exit(1);
    }
}

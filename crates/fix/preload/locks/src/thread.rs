//! State of the calling thread and of its glibc, and the arguments of a call.

use std::arch::{global_asm, naked_asm};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// A thread's own words: in static thread-local memory, so that reading them calls no function.
#[repr(C)]
pub struct Mine {
    /// Its place in the file plus 1; 0 before it has one.
    pub place: Cell<u32>,
    /// The session of the process that the other words belong to.
    pub session: Cell<u64>,
    /// Whether it is about to take a place: a signal handler that interrupts it takes none.
    pub taking: Cell<bool>,
}

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".hidden ncpu_locks_mine",
    ".globl ncpu_locks_mine",
    ".type ncpu_locks_mine, @object",
    ".size ncpu_locks_mine, 32",
    "ncpu_locks_mine:",
    ".zero 32",
    ".popsection",
);
const _: () = assert!(size_of::<Mine>() <= 32);

/// This thread's words.
#[unsafe(naked)]
pub extern "C" fn mine() -> *const Mine {
    naked_asm!("mov rax, qword ptr fs:[0]", "add rax, qword ptr [rip + ncpu_locks_mine@GOTTPOFF]", "ret")
}

/// The place of a thread's number in glibc, from its thread pointer: `struct pthread::tid`, since 2.4.
pub const TID: usize = 720;

/// 0: free locks are left to libc; 1: the process has one thread; 2: it has several.
pub static STATE: AtomicU8 = AtomicU8::new(0);
/// Whether a thread was ever cancelled: threads that take a semaphore check whether they were.
pub static CANCELS: AtomicU8 = AtomicU8::new(0);

/// glibc's number of this thread, if [`STATE`] says that its place is known.
fn known_tid() -> Option<u32> {
    let tid: u32;
    // SAFETY: the thread's own memory.
    unsafe {
        std::arch::asm!("mov {:e}, dword ptr fs:[{}]", out(reg) tid, const TID, options(nostack, readonly))
    };
    (STATE.load(Ordering::Relaxed) != 0).then_some(tid)
}

/// This thread's number.
pub fn tid() -> u32 {
    // SAFETY: always.
    known_tid().unwrap_or_else(|| unsafe { libc::gettid() as u32 })
}

/// Whether locks have the expected layout: since 2.25.
pub fn glibc_is_known() -> bool {
    // SAFETY: a static C string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let minor = version.to_str().ok().and_then(|v| v.strip_prefix("2.")?.split('.').next()?.parse().ok());
    minor.is_some_and(|minor: u32| minor >= 25)
}

/// To be called when the process gets another thread.
pub fn has_threads() {
    if STATE.load(Ordering::Relaxed) == 1 {
        STATE.store(2, Ordering::SeqCst);
    }
}

/// To be called when a thread is cancelled.
pub fn has_cancelled() {
    CANCELS.store(1, Ordering::SeqCst);
}

/// The type of a waiting function, with its register arguments.
pub type Waits = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> c_int;

/// A call of the program.
#[derive(Clone, Copy)]
pub struct Call {
    pub arguments: [usize; 4],
    /// libc's function.
    pub libc: Waits,
    /// The return address.
    pub caller: usize,
    /// The caller's frame pointer, if it has one.
    pub frame: usize,
}

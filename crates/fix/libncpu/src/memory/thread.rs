//! Threads whose stacks begin at different offsets of a page.
//!
//! # Where it comes from
//!
//! The stack bias of Solaris on the UltraSPARC T2 (request 6493685): stacks begin at the start of a page, so
//! threads that run the same code keep the same variables at the same offset of a page. Where that offset
//! chooses a cache's set, the hot lines of all threads compete for the few ways of a few sets while the
//! others are unused. Shifting each stack by another number of cache lines spreads them; a gain of 19 % was
//! reported.
//!
//! # How
//!
//! A thread's first function moves the stack pointer down by the bias, touching each page on the way so that a stack
//! that is too small ends in its guard page, and calls the program's function, as if it had a local array of that
//! size. Unwinders and debuggers see an ordinary frame. Nothing else changes: no stack is allocated differently.
//!
//! The n-th bias is the fractional part of n times the golden ratio, in lines of the span. Any number of
//! threads is spread evenly, and threads started one after the other lie far apart.

use crate::sys::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};

/// Biases are multiples of this, in bytes.
pub const LINE: usize = 64;
/// The largest span, in bytes: no first-level cache has larger ways.
pub const SPAN_MOST: usize = 64 << 10;

/// One page: within it, the offset alone chooses the set, in every cache.
static SPAN: AtomicUsize = AtomicUsize::new(4096);

/// Biases are below this many bytes [default: one page].
pub fn bias_span() -> usize {
    SPAN.load(Relaxed)
}

/// Sets the span of threads started from now on, in bytes: a multiple of [`LINE`] up to [`SPAN_MOST`], or 0
/// for no bias. Returns false and changes nothing for other values.
///
/// More than a page pays if stacks lie in huge pages or caches are indexed by virtual addresses.
pub fn set_bias_span(bytes: usize) -> bool {
    let fits = bytes.is_multiple_of(LINE) && bytes <= SPAN_MOST;
    if fits {
        SPAN.store(bytes, Relaxed);
    }
    fits
}

/// The bias for another thread, in bytes.
pub fn next_bias() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // 2^32 over the golden ratio.
    let fraction = NEXT.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9);
    let lines = (bias_span() / LINE) as u64;
    ((u64::from(fraction) * lines) >> 32) as usize * LINE
}

/// The kernel's number of this thread: a system call.
pub fn id() -> u32 {
    crate::sys::thread_id()
}

/// The type of C's thread start functions.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.ncpu_stack_shift, \"ax\", @progbits",
    ".balign 16",
    ".globl ncpu_stack_shift",
    ".hidden ncpu_stack_shift",
    ".type ncpu_stack_shift, @function",
    "ncpu_stack_shift:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "2: cmp rdx, 4096",
    "jbe 3f",
    "sub rsp, 4096",
    "test qword ptr [rsp], rsp",
    "sub rdx, 4096",
    "jmp 2b",
    "3: sub rsp, rdx",
    "test qword ptr [rsp], rsp",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size ncpu_stack_shift, . - ncpu_stack_shift",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.ncpu_stack_shift, \"ax\", @progbits",
    ".balign 16",
    ".globl ncpu_stack_shift",
    ".hidden ncpu_stack_shift",
    ".type ncpu_stack_shift, @function",
    "ncpu_stack_shift:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov x9, x0",
    "mov x0, x1",
    "2: cmp x2, #4096",
    "b.ls 3f",
    "sub sp, sp, #4096",
    "ldr xzr, [sp]",
    "sub x2, x2, #4096",
    "b 2b",
    "3: sub sp, sp, x2",
    "ldr xzr, [sp]",
    "blr x9",
    "mov sp, x29",
    ".cfi_def_cfa_register sp",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size ncpu_stack_shift, . - ncpu_stack_shift",
    ".popsection",
);

#[cfg(not(miri))]
unsafe extern "C-unwind" {
    fn ncpu_stack_shift(start: Start, argument: *mut c_void, bias: usize) -> *mut c_void;
}

/// Calls `start` with the stack pointer `bias` bytes lower, and returns its result. `bias` is rounded down to
/// lines.
///
/// # Safety
/// `start` may be called with `argument`.
pub unsafe fn call_raw(start: Start, argument: *mut c_void, bias: usize) -> *mut c_void {
    #[cfg(not(miri))]
    // SAFETY: the caller's promise covers the callee; pages are touched in order, so a stack overflow hits
    // the guard page.
    unsafe {
        ncpu_stack_shift(start, argument, bias & !(LINE - 1))
    }
    #[cfg(miri)]
    // SAFETY: as the caller promised.
    unsafe {
        let _ = bias;
        start(argument)
    }
}

/// Calls `f` with the stack `bias` bytes lower, rounded down to lines. For threads that other code starts.
pub fn call<R>(bias: usize, f: impl FnOnce() -> R) -> R {
    struct Call<F, R> {
        f: Option<F>,
        returned: Option<std::thread::Result<R>>,
    }
    unsafe extern "C-unwind" fn start<F: FnOnce() -> R, R>(call: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer from below, with no other user meanwhile.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.returned = call.f.take().map(|f| catch_unwind(AssertUnwindSafe(f)));
        std::ptr::null_mut()
    }
    fn start_of<F: FnOnce() -> R, R>(_: &Call<F, R>) -> Start {
        start::<F, R>
    }
    let mut call = Call { f: Some(f), returned: None };
    let start = start_of(&call);
    // SAFETY: that function for that argument.
    unsafe { call_raw(start, (&raw mut call).cast(), bias) };
    match call.returned.expect("it was called") {
        Ok(returned) => returned,
        Err(panic) => resume_unwind(panic),
    }
}

/// Like [`std::thread::Builder`], for a thread with a stack bias.
///
/// ```
/// let thread = libncpu::thread::Builder::new().name("worker".into()).spawn(|| 6 * 7)?;
/// assert_eq!(thread.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    inner: std::thread::Builder,
    stack_size: Option<usize>,
    bias: Option<usize>,
}

impl Builder {
    /// A thread without a name, with the standard library's stack size and the next bias.
    pub fn new() -> Builder {
        Builder { inner: std::thread::Builder::new(), stack_size: None, bias: None }
    }

    /// Sets its name.
    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder { inner: self.inner.name(name), ..self }
    }

    /// Sets the size of its stack in bytes, bias included: so biased stacks are as far apart as other stacks,
    /// in the same sets of the TLB.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Builder {
        Builder { stack_size: Some(bytes), ..self }
    }

    /// Sets its bias in bytes, rounded down to lines [default: the next bias].
    #[must_use]
    pub fn bias(self, bytes: usize) -> Builder {
        Builder { bias: Some(bytes), ..self }
    }

    fn ready(self) -> io::Result<(std::thread::Builder, usize)> {
        let bias = self.bias.unwrap_or_else(next_bias);
        match self.stack_size {
            Some(bytes) if bias > bytes / 4 => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a stack of {bytes} bytes is too small for a bias of {bias}; expected at least four times the bias"
                ),
            )),
            Some(bytes) => Ok((self.inner.stack_size(bytes), bias)),
            None => Ok((self.inner, bias)),
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// As [`std::thread::Builder::spawn`]; if the bias is more than a quarter of the stack.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (builder, bias) = self.ready()?;
        builder.spawn(move || call(bias, f))
    }

    /// Starts it within a scope.
    ///
    /// # Errors
    /// As [`std::thread::Builder::spawn_scoped`]; if the bias is more than a quarter of the stack.
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (builder, bias) = self.ready()?;
        builder.spawn_scoped(scope, move || call(bias, f))
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

/// Starts a thread with a stack bias. Panics if that fails, as [`std::thread::spawn`] does.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("failed to spawn thread")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Where a function's variables are.
    #[inline(never)]
    fn place() -> usize {
        let word = 0u64;
        black_box(&word) as *const u64 as usize
    }

    #[test]
    fn moves_the_stack() {
        let moved = |bias| [0, bias].map(|bias| call(bias, place));
        for bias in [0, 64, 128, 4096, 4160, 64 << 10] {
            let [unbiased, biased] = moved(bias);
            assert_eq!(unbiased - biased, bias);
        }
        let [unbiased, biased] = moved(100);
        assert_eq!(unbiased - biased, 64, "whole lines");
    }

    #[test]
    fn moves_a_threads_stack() {
        let offset = |bias| Builder::new().bias(bias).spawn(place).unwrap().join().unwrap() % 4096;
        let first = offset(0);
        for bias in [64, 1024, 4032] {
            assert_eq!((first + 4096 - offset(bias)) % 4096, bias);
        }
    }

    #[test]
    fn biases_are_spread() {
        for span in [0, 64, 4096, SPAN_MOST] {
            let of =
                |n: u32| ((u64::from(n.wrapping_mul(0x9e37_79b9)) * (span / LINE) as u64) >> 32) as usize;
            let lines = span / LINE;
            let mut seen = vec![0; lines.max(1)];
            (0..lines as u32).for_each(|n| seen[of(n)] += 1);
            assert!(seen.into_iter().all(|times| times <= 3), "{span}");
        }
        let next = next_bias();
        assert!(next < 4096 && next.is_multiple_of(LINE));
        assert!(!set_bias_span(100) && !set_bias_span(SPAN_MOST + LINE) && set_bias_span(4096));
    }

    #[test]
    fn panics_come_through() {
        let thread = Builder::new().name("panics".into()).stack_size(64 << 10).bias(640).spawn(|| {
            assert_eq!(std::thread::current().name(), Some("panics"));
            panic!("on purpose");
        });
        let panic = thread.unwrap().join().unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }

    /// A debugger, a profiler or a panic message sees the callers above the shifted frame.
    #[test]
    fn backtraces_pass() {
        #[inline(never)]
        fn above_the_bias() -> String {
            let trace = call(4096, || format!("{}", std::backtrace::Backtrace::force_capture()));
            black_box(trace)
        }
        let trace = above_the_bias();
        assert!(trace.contains("above_the_bias"), "{trace}");
        assert!(trace.contains("call_raw"), "{trace}");
    }

    #[test]
    fn small_stacks_are_refused() {
        let error = Builder::new().stack_size(16 << 10).bias(8 << 10).spawn(|| ()).unwrap_err();
        assert!(error.to_string().contains("16384 bytes is too small for a bias of 8192"), "{error}");
    }

    #[test]
    fn scoped() {
        let mut n = 1;
        std::thread::scope(|scope| {
            Builder::new().spawn_scoped(scope, || n += 1).unwrap();
        });
        assert_eq!(n, 2);
    }
}

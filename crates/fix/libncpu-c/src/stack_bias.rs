//! Threads with a stack bias for C.

use libc::{EAGAIN, EINVAL, c_int, c_void, pthread_attr_t, pthread_t};
use libncpu::memory::thread::{self, LINE, Start};
use libncpu::percpu::one;

/// The start function of a thread.
pub type ncpu_thread_start_t = Option<unsafe extern "C" fn(argument: *mut c_void) -> *mut c_void>;

/// The arguments of a new thread from its creator.
struct StartArguments {
    start: Start,
    argument: *mut c_void,
    bias: usize,
}

// No destructor is due while the program's function runs: pthread_exit and cancellation pass through.
unsafe extern "C-unwind" fn begin(arguments: *mut c_void) -> *mut c_void {
    let StartArguments { start, argument, bias } =
        *unsafe { Box::from_raw(arguments.cast::<StartArguments>()) };
    unsafe { thread::call_raw(start, argument, bias) }
}

fn start_of(start: ncpu_thread_start_t) -> Option<Start> {
    // SAFETY: the ABIs differ in what may unwind.
    start.map(|start| unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut c_void) -> *mut c_void, Start>(start)
    })
}

/// Sets the span of threads' stack biases: multiples of 64 bytes below `bytes`, which is a multiple of 64 up
/// to 65536, or 0 for no bias [default: 4096]. EINVAL for other values.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_stack_bias_span(bytes: u64) -> c_int {
    if usize::try_from(bytes).is_ok_and(thread::set_bias_span) { 0 } else { EINVAL }
}

/// The bias for another thread, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_stack_bias_next() -> u64 {
    thread::next_bias() as u64
}

/// Calls `start` with the stack `bias` bytes lower (rounded down to 64) and returns its result. For the first
/// function of threads that other code starts. Null `start` returns null.
///
/// # Safety
/// `start` is null or may be called with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ncpu_stack_bias_call(
    start: ncpu_thread_start_t,
    argument: *mut c_void,
    bias: u64,
) -> *mut c_void {
    match start_of(start) {
        Some(start) => unsafe { thread::call_raw(start, argument, bias as usize) },
        None => std::ptr::null_mut(),
    }
}

/// As pthread_create, with the next stack bias. The bias is part of the stack: EINVAL if `attr` has a stack
/// of less than four times the span.
///
/// # Safety
/// As pthread_create; nulls of `thread` and `start` are EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_thread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: ncpu_thread_start_t,
    argument: *mut c_void,
) -> c_int {
    let Some(start) = start_of(start) else { return EINVAL };
    if thread.is_null() {
        return EINVAL;
    }
    if !attr.is_null() {
        let mut size = 0;
        let error = unsafe { libc::pthread_attr_getstacksize(attr, &mut size) };
        if error != 0 || size < 4 * thread::bias_span() {
            return EINVAL;
        }
    }
    let bias = thread::next_bias();
    debug_assert!(bias.is_multiple_of(LINE));
    let Ok(arguments) = one(StartArguments { start, argument, bias }) else { return EAGAIN };
    let arguments = Box::into_raw(arguments).cast::<c_void>();
    // SAFETY: the ABIs differ in what may unwind, which is what glibc's own unwinding needs here.
    let error = unsafe {
        let begin = std::mem::transmute::<Start, extern "C" fn(*mut c_void) -> *mut c_void>(begin);
        libc::pthread_create(thread, attr, begin, arguments)
    };
    if error != 0 {
        drop(unsafe { Box::from_raw(arguments.cast::<StartArguments>()) });
    }
    error
}

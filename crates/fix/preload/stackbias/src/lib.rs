//! `libncpu_stackbias.so`: begins the stack of each thread at another offset of its page, so that the same
//! variables of many threads do not compete for the same sets of a cache (libncpu's `thread::next_bias`).
//!
//! The library replaces `pthread_create`; all other properties of a thread are unchanged. A stack of less
//! than four times the bias gets no bias.
//!
//! | variable | |
//! | --- | --- |
//! | `NCPU_STACKBIAS_SPAN` | bytes that the offsets spread over, at most 65536 [default: one page]. 0 turns
//! it off |

use std::sync::Once;

use libc::{c_int, c_void};
use libncpu::thread::{self, Start};
use ncpu_preload::next;

/// The function and argument of a new thread.
struct Begin {
    start: Start,
    argument: *mut c_void,
    bias: usize,
}

/// Reads the variable once.
fn span() {
    static READ: Once = Once::new();
    READ.call_once(|| {
        // SAFETY: the value, if there is one, is a C string.
        let span = unsafe {
            let value = libc::getenv(c"NCPU_STACKBIAS_SPAN".as_ptr());
            if value.is_null() { None } else { std::ffi::CStr::from_ptr(value).to_str().ok() }
        };
        if let Some(span) = span.and_then(|s| s.trim().parse().ok()) {
            // A value that is too large leaves the default.
            let _ = thread::set_bias_span(span);
        }
    });
}

/// May be unwound through: cancellation and `pthread_exit` do so, and no destructor is pending by then.
unsafe extern "C-unwind" fn begin(argument: *mut c_void) -> *mut c_void {
    // SAFETY: made by pthread_create below, for this thread alone. The box is freed at the end of the statement.
    let Begin { start, argument, bias } = *unsafe { Box::from_raw(argument.cast::<Begin>()) };
    // SAFETY: the program's function with its argument.
    unsafe { thread::call_raw(start, argument, bias) }
}

/// Bytes of the stack of a thread with these attributes.
unsafe fn stack(attributes: *const libc::pthread_attr_t) -> usize {
    let mut size = 0;
    // SAFETY: the caller's attributes, or the C library's defaults.
    unsafe {
        if !attributes.is_null() {
            libc::pthread_attr_getstacksize(attributes, &raw mut size);
            return size;
        }
        let mut own = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
        if libc::pthread_attr_init(own.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(own.as_ptr(), &raw mut size);
            libc::pthread_attr_destroy(own.as_mut_ptr());
        }
    }
    size
}

/// `pthread_create(3)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Create =
        unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
    let next = next!(c"pthread_create" as Create, libc::ENOSYS);
    span();
    let bias = thread::next_bias();
    // SAFETY: the caller's attributes.
    if bias == 0 || unsafe { stack(attributes) } < 4 * bias {
        // SAFETY: the caller's arguments.
        return unsafe { next(thread, attributes, start, argument) };
    }
    let own = Box::into_raw(Box::new(Begin { start, argument, bias })).cast();
    // SAFETY: the caller's arguments, with another start function.
    let result = unsafe { next(thread, attributes, begin, own) };
    if result != 0 {
        // SAFETY: no thread began, so no other reference exists.
        drop(unsafe { Box::from_raw(own.cast::<Begin>()) });
    }
    result
}

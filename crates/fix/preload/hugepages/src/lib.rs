//! `libncpu_hugepages.so`: puts large mappings, shared memory and the stacks of threads on huge pages.
//!
//! The library replaces `mmap`, `shmat` and `pthread_create`. Anonymous memory of at least the size of a huge
//! page gets an address at which huge pages fit, and is marked with `MADV_HUGEPAGE`. Smaller pieces, which
//! Python and other languages map one after the other for their objects, are placed side by side in huge
//! pages. The library also marks shared memory that is attached or mapped, and the stack of each new thread.
//! Requests that the kernel refuses change nothing: results are those of the program's own calls. malloc's
//! own memory is not mapped through these functions; `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`, which `ncpu
//! hugepages` sets, makes glibc do the same for it.
//!
//! | variable | |
//! | --- | --- |
//! | `NCPU_HUGEPAGES_STACKS` | 0: stacks stay on small pages |

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use libc::{c_int, c_void, off_t, size_t};
use ncpu_preload::{errno, missing, next, set_errno};

/// The usual huge page of x86-64 and of aarch64 with small pages of 4 KiB. Marking is harmless if the size
/// differs.
const HUGE: usize = 2 << 20;

/// Requests huge pages for the whole, aligned part of a range. `errno` is unchanged.
fn ask(at: *mut c_void, length: size_t) {
    let first = (at as usize).next_multiple_of(HUGE);
    let last = (at as usize).saturating_add(length) / HUGE * HUGE;
    if last <= first {
        return;
    }
    let before = errno();
    // SAFETY: advice on memory of the caller, which never changes contents.
    unsafe { libc::madvise(first as *mut c_void, last - first, libc::MADV_HUGEPAGE) };
    set_errno(before);
}

/// The smallest piece that is placed; smaller ones are mapped as usual, because few programs use many of
/// those.
const SMALLEST: usize = 64 << 10;

/// The address of the next small piece, in the unused rest of a huge page; a multiple of a huge page if
/// nothing is left.
static REST: AtomicUsize = AtomicUsize::new(0);

/// Memory for less than a huge page, beside the previous piece. No memory is handed out twice: memory that
/// the program unmaps returns to the kernel, so every piece is zero. `None` if memory runs out; `errno` is
/// unchanged.
fn piece(next: Mmap, length: size_t) -> Option<*mut c_void> {
    let length = length.next_multiple_of(page());
    let mut at = REST.load(Ordering::Relaxed);
    while !at.is_multiple_of(HUGE) && at % HUGE + length <= HUGE {
        match REST.compare_exchange_weak(at, at + length, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(at as *mut c_void),
            Err(now) => at = now,
        }
    }
    let errno = errno();
    let (mode, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory; the parts beside the aligned huge page are unused, and unmapped.
    let first = unsafe {
        let got = next(std::ptr::null_mut(), 2 * HUGE, mode, kind, -1, 0);
        if got == libc::MAP_FAILED {
            set_errno(errno);
            return None;
        }
        let (begin, first) = (got as usize, (got as usize).next_multiple_of(HUGE));
        if first > begin {
            libc::munmap(begin as *mut c_void, first - begin);
        }
        libc::munmap((first + HUGE) as *mut c_void, begin + HUGE - first);
        first
    };
    set_errno(errno);
    ask(first as *mut c_void, HUGE);
    // A rest that another thread has stored meanwhile is lost: it was never touched.
    REST.store(first + length, Ordering::Relaxed);
    Some(first as *mut c_void)
}

type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

/// `mmap(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let next = next!(c"mmap" as Mmap, missing(libc::MAP_FAILED));
    // SAFETY: the caller's arguments.
    let plain = || unsafe { next(at, length, protection, flags, file, offset) };
    if at.is_null()
        && (SMALLEST..HUGE).contains(&length)
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && flags & !libc::MAP_NORESERVE == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
    {
        return piece(next, length).unwrap_or_else(plain);
    }
    let special = libc::MAP_FIXED
        | libc::MAP_FIXED_NOREPLACE
        | libc::MAP_HUGETLB
        | libc::MAP_GROWSDOWN
        | libc::MAP_STACK;
    if length < HUGE || flags & special != 0 || protection & libc::PROT_WRITE == 0 {
        return plain();
    }
    if flags & libc::MAP_ANONYMOUS == 0 {
        let got = plain();
        // Shared memory gets huge pages if the kernel is configured to give them on request; other files
        // ignore the advice.
        if got != libc::MAP_FAILED && flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
            ask(got, length);
        }
        return got;
    }
    let makes = flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0;
    // A hint is the caller's choice, and pages that the call itself makes would be made before the advice.
    if !at.is_null() || makes {
        let got = plain();
        if got != libc::MAP_FAILED {
            ask(got, length);
        }
        return got;
    }
    // Larger by a huge page; the parts beside the aligned part are unmapped.
    let Some(room) = length.checked_next_multiple_of(page()).and_then(|l| l.checked_add(HUGE)) else {
        return plain();
    };
    // SAFETY: the caller's arguments except the length; the two ends are unused until this returns.
    unsafe {
        let before = errno();
        let got = next(at, room, protection, flags, file, offset);
        if got == libc::MAP_FAILED {
            set_errno(before);
            return plain();
        }
        let (begin, end) = (got as usize, got as usize + room);
        let aligned = begin.next_multiple_of(HUGE);
        let last = aligned + length.next_multiple_of(page());
        if aligned > begin {
            libc::munmap(begin as *mut c_void, aligned - begin);
        }
        if end > last {
            libc::munmap(last as *mut c_void, end - last);
        }
        set_errno(before);
        ask(aligned as *mut c_void, length);
        aligned as *mut c_void
    }
}

/// `mmap64(3)`: on 64-bit Linux the same.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(at, length, protection, flags, file, offset) }
}

fn page() -> usize {
    // SAFETY: always.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// `shmat(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    type Shmat = unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void;
    let failed = usize::MAX as *mut c_void;
    let next = next!(c"shmat" as Shmat, missing(failed));
    // SAFETY: the caller's arguments.
    let got = unsafe { next(id, at, flags) };
    if got != failed {
        let before = errno();
        let mut segment = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
        // SAFETY: the kernel fills the structure.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, segment.as_mut_ptr()) } == 0 {
            // SAFETY: filled.
            ask(got, unsafe { segment.assume_init() }.shm_segsz);
        }
        set_errno(before);
    }
    got
}

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// The function and argument of a new thread.
struct Begin {
    start: Start,
    argument: *mut c_void,
}

/// Whether stacks are marked: 0 not known yet, 1 no, 2 yes.
static STACKS: AtomicU8 = AtomicU8::new(0);

fn stacks() -> bool {
    let known = STACKS.load(Ordering::Relaxed);
    if known != 0 {
        return known == 2;
    }
    // SAFETY: the value, if there is one, is a C string.
    let yes = unsafe {
        let value = libc::getenv(c"NCPU_HUGEPAGES_STACKS".as_ptr());
        value.is_null() || *value != b'0' as libc::c_char
    };
    STACKS.store(1 + u8::from(yes), Ordering::Relaxed);
    yes
}

/// May be unwound through: cancellation and `pthread_exit` do so, and no destructor is pending by then.
extern "C-unwind" fn begin(argument: *mut c_void) -> *mut c_void {
    // SAFETY: made by pthread_create below, for this thread alone. The box is freed at the end of the statement.
    let Begin { start, argument } = *unsafe { Box::from_raw(argument.cast::<Begin>()) };
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    // SAFETY: the first call fills the attributes, which are then destroyed.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 {
            let (mut low, mut size) = (std::ptr::null_mut(), 0);
            if libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size) == 0 {
                ask(low, size);
            }
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    start(argument)
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
    if !stacks() {
        // SAFETY: the caller's arguments.
        return unsafe { next(thread, attributes, start, argument) };
    }
    let own = Box::into_raw(Box::new(Begin { start, argument })).cast();
    // SAFETY: the caller's arguments, with another start function.
    let result = unsafe { next(thread, attributes, begin, own) };
    if result != 0 {
        // SAFETY: no thread began, so no other reference exists.
        drop(unsafe { Box::from_raw(own.cast::<Begin>()) });
    }
    result
}

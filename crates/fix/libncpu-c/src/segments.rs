//! Memory made, locked, destroyed, zeroed and scanned by several CPUs, for C.

use crate::create;
use libc::{EINVAL, c_char, c_int, c_void, size_t};
use libncpu::memory::blocks;
use libncpu::memory::populate::{
    self, Access, Backing, Error, Helpers, Nodes, Pages, Policy, Segment, SegmentOptions,
};
use libncpu::percpu::OutOfMemory;
use std::ffi::CStr;

/// A segment of memory.
pub struct ncpu_segment_t(Segment);

/// The failure of a call that makes, locks or destroys memory.
#[repr(C)]
pub struct ncpu_failure_t {
    /// The call that failed, as text.
    what: [c_char; 40],
    /// The byte offset of the first page that could not be made, or NCPU_NO_PAGE if no page caused the
    /// failure.
    offset: u64,
}

/// Options of a new segment. Zeroed except for `size`: private memory in pages that the kernel chooses.
#[repr(C)]
pub struct ncpu_segment_options_t {
    /// Size in bytes; rounded up to whole pages.
    size: u64,
    /// NCPU_PRIVATE, NCPU_MEMFD, NCPU_POSIX or NCPU_SYSV.
    backing: u32,
    /// For NCPU_SYSV: a new key; or IPC_PRIVATE, and the segment ends with the last process that has it
    /// attached.
    key: i32,
    /// For NCPU_POSIX: a new name, like "/name".
    name: *const c_char,
    /// NCPU_PAGES_DEFAULT, NCPU_PAGES_SMALL, NCPU_PAGES_TRANSPARENT, or the size in bytes of pages from the
    /// kernel's pool.
    pages: u64,
    /// NCPU_POLICY_DEFAULT, NCPU_POLICY_LOCAL, NCPU_POLICY_INTERLEAVE or NCPU_POLICY_BIND.
    policy: u32,
    /// Words of 64 bits in `nodes`.
    node_words: u32,
    /// For NCPU_POLICY_INTERLEAVE and NCPU_POLICY_BIND: a bit for each node. Null interleaves over all nodes.
    nodes: *const u64,
    /// The most threads that help the caller [default: 16]; NCPU_ALONE for none.
    helpers: u32,
    /// NCPU_LOCKED or 0.
    flags: u32,
}

/// Result of `ncpu_scan`.
#[repr(C)]
pub struct ncpu_scan_t {
    /// Words of 8 bytes that match.
    equal: u64,
    /// Words in all; the last may be shorter.
    words: u64,
    /// The byte offset of the first word that does not match, or NCPU_NO_PAGE.
    first: u64,
}

/// Memory of this process.
pub const NCPU_PRIVATE: u32 = 0;
/// Memory behind a descriptor.
pub const NCPU_MEMFD: u32 = 1;
/// Memory with a name.
pub const NCPU_POSIX: u32 = 2;
/// A segment of System V.
pub const NCPU_SYSV: u32 = 3;
/// Pages as the kernel is configured.
pub const NCPU_PAGES_DEFAULT: u64 = 0;
/// Small pages only.
pub const NCPU_PAGES_SMALL: u64 = 1;
/// Transparent huge pages, if the kernel supports them.
pub const NCPU_PAGES_TRANSPARENT: u64 = 2;
/// Nodes of the thread's policy.
pub const NCPU_POLICY_DEFAULT: u32 = 0;
/// The caller's node.
pub const NCPU_POLICY_LOCAL: u32 = 1;
/// Nodes in turn.
pub const NCPU_POLICY_INTERLEAVE: u32 = 2;
/// Only these nodes.
pub const NCPU_POLICY_BIND: u32 = 3;
/// No helpers.
pub const NCPU_ALONE: u32 = u32::MAX;
/// The segment is locked in memory.
pub const NCPU_LOCKED: u32 = 1;
/// No byte offset.
pub const NCPU_NO_PAGE: u64 = u64::MAX;

const _: () = assert!(size_of::<usize>() == 8);

fn helpers(most: u32) -> Helpers {
    match most {
        0 => Helpers::default(),
        NCPU_ALONE => Helpers::NONE,
        most => Helpers(most as usize),
    }
}

/// 0, or the error, with its details written to `why`.
unsafe fn report(done: Result<(), Error>, why: *mut ncpu_failure_t) -> c_int {
    let Err(error) = done else { return 0 };
    if let Some(why) = unsafe { why.as_mut() } {
        why.what = [0; 40];
        // The last byte stays 0.
        let room = why.what.len() - 1;
        why.what[..room].iter_mut().zip(error.what.bytes()).for_each(|(to, byte)| *to = byte as c_char);
        why.offset = error.offset.map_or(NCPU_NO_PAGE, |offset| offset as u64);
    }
    error.errno
}

/// The options as Rust types; an error if they are invalid.
unsafe fn options(given: &ncpu_segment_options_t) -> Result<(usize, SegmentOptions), Error> {
    let wrong = Error { what: "options", errno: EINVAL, offset: None };
    let nodes = || {
        if given.nodes.is_null() {
            return Ok(Nodes::none());
        }
        let words = unsafe { std::slice::from_raw_parts(given.nodes, given.node_words as usize) };
        Nodes::from_words(words).ok_or(wrong)
    };
    let options = SegmentOptions {
        backing: match given.backing {
            NCPU_PRIVATE => Backing::Private,
            NCPU_MEMFD => Backing::Memfd,
            NCPU_POSIX if !given.name.is_null() => Backing::posix(unsafe { CStr::from_ptr(given.name) })?,
            NCPU_SYSV => Backing::SysV(given.key),
            _ => return Err(wrong),
        },
        pages: match given.pages {
            NCPU_PAGES_DEFAULT => Pages::Default,
            NCPU_PAGES_SMALL => Pages::Base,
            NCPU_PAGES_TRANSPARENT => Pages::Transparent,
            bytes => Pages::Huge(bytes as usize),
        },
        policy: match given.policy {
            NCPU_POLICY_DEFAULT => Policy::Default,
            NCPU_POLICY_LOCAL => Policy::Local,
            NCPU_POLICY_INTERLEAVE => Policy::Interleave(nodes()?),
            NCPU_POLICY_BIND => Policy::Bind(nodes()?),
            _ => return Err(wrong),
        },
        helpers: helpers(given.helpers),
    };
    if given.flags & !NCPU_LOCKED == 0 { Ok((given.size as usize, options)) } else { Err(wrong) }
}

/// Makes a segment and all its pages, locked if `flags` has NCPU_LOCKED, and stores it in `segment`. After an
/// error nothing remains of it, and `why`, which may be null, describes the failure.
///
/// # Safety
/// `options` and its pointers are null or readable, `segment` null or writable, `why` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_segment_create(
    options: *const ncpu_segment_options_t,
    segment: *mut *mut ncpu_segment_t,
    why: *mut ncpu_failure_t,
) -> c_int {
    let wrong = Error { what: "options", errno: EINVAL, offset: None };
    let made = match (unsafe { options.as_ref() }, segment.is_null()) {
        (Some(given), false) => unsafe { self::options(given) }.and_then(|(size, options)| {
            let made = Segment::reserve(size, &options)?;
            if given.flags & NCPU_LOCKED != 0 {
                made.lock()?;
            }
            made.populate()?;
            Ok(made)
        }),
        _ => Err(wrong),
    };
    let made = made.and_then(|made| {
        let place = create::<ncpu_segment_t>(Ok::<_, OutOfMemory>(ncpu_segment_t(made)));
        if place.is_null() {
            return Err(Error { what: "malloc", errno: libc::ENOMEM, offset: None });
        }
        unsafe { segment.write(place) };
        Ok(())
    });
    unsafe { report(made, why) }
}

/// The segment's first byte; null for null.
///
/// # Safety
/// `segment` is null or a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_segment_address(segment: *const ncpu_segment_t) -> *mut c_void {
    unsafe { segment.as_ref() }.map_or(std::ptr::null_mut(), |segment| segment.0.as_ptr().cast())
}

/// The segment's bytes, whole pages; 0 for null.
///
/// # Safety
/// `segment` is null or a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_segment_size(segment: *const ncpu_segment_t) -> u64 {
    unsafe { segment.as_ref() }.map_or(0, |segment| segment.0.len() as u64)
}

/// The descriptor of a memfd or POSIX segment, the identifier of a SysV one; -1 for private memory and null.
///
/// # Safety
/// `segment` is null or a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_segment_handle(segment: *const ncpu_segment_t) -> c_int {
    unsafe { segment.as_ref() }.and_then(|segment| segment.0.descriptor().or(segment.0.id())).unwrap_or(-1)
}

/// Removes the segment from the address space and frees it, with helpers. The segment is destroyed even if an
/// error is returned, which is the first. Null is ignored.
///
/// # Safety
/// `segment` is null or from `ncpu_segment_create`, and neither it nor its memory is in use; `why` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_segment_destroy(
    segment: *mut ncpu_segment_t,
    why: *mut ncpu_failure_t,
) -> c_int {
    if segment.is_null() {
        return 0;
    }
    let segment = unsafe { Box::from_raw(segment) };
    unsafe { report(segment.0.destroy(), why) }
}

/// Makes the pages of any memory of the process, as by writing if `write` is not 0, otherwise as by reading;
/// keeps their contents.
///
/// # Safety
/// `why` is null or writable. Memory that does not belong to the process is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_populate(
    at: *mut c_void,
    size: size_t,
    write: c_int,
    most: u32,
    why: *mut ncpu_failure_t,
) -> c_int {
    let access = if write != 0 { Access::Write } else { Access::Read };
    unsafe { report(populate::populate(at.cast(), size, access, helpers(most)), why) }
}

/// mlock, with helpers that make the pages.
///
/// # Safety
/// As for `ncpu_populate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mlock(
    at: *const c_void,
    size: size_t,
    most: u32,
    why: *mut ncpu_failure_t,
) -> c_int {
    unsafe { report(populate::lock(at.cast(), size, helpers(most)), why) }
}

/// munmap, with helpers that free the pages.
///
/// # Safety
/// The memory is unused; `why` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_munmap(
    at: *mut c_void,
    size: size_t,
    most: u32,
    why: *mut ncpu_failure_t,
) -> c_int {
    unsafe { report(populate::unmap(at.cast(), size, helpers(most)), why) }
}

/// Writes `word` repeatedly, from the first byte on, cut off at the end: 0 zeroes. By helpers near the
/// memory.
///
/// # Safety
/// `at` is null with a size of 0, or `size` bytes are writable and not in use meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_fill(at: *mut c_void, size: size_t, word: u64, most: u32) -> c_int {
    if size == 0 {
        return 0;
    }
    if at.is_null() || size > isize::MAX as size_t {
        return EINVAL;
    }
    unsafe { blocks::fill_at(at.cast(), size, word, helpers(most)) };
    0
}

/// Compares every word of 8 bytes with `word`, by helpers near the memory.
///
/// # Safety
/// `at` is null with a size of 0, or `size` bytes are readable and not written meanwhile; `found` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_scan(
    at: *const c_void,
    size: size_t,
    word: u64,
    most: u32,
    found: *mut ncpu_scan_t,
) -> c_int {
    let Some(found) = (unsafe { found.as_mut() }) else { return EINVAL };
    if (at.is_null() && size > 0) || size > isize::MAX as size_t {
        return EINVAL;
    }
    let memory = if size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) } };
    let scan = blocks::scan(memory, word, helpers(most));
    *found = ncpu_scan_t {
        equal: scan.equal,
        words: scan.words,
        first: scan.first.map_or(NCPU_NO_PAGE, |first| first as u64),
    };
    0
}

//! Arenas of integers in C.

use crate::{destroy, fail};
use libc::{EEXIST, EINVAL, ENOENT, ENOMEM, ENOSPC, ERANGE, c_int, c_void};
use libncpu::ranges::request::{Constraints, Error, Policy};
use libncpu::ranges::vmem::{Options, Use, Vmem};

/// An arena of integers: addresses, identifiers, ports.
pub struct ncpu_vmem_t(Vmem<'static>);

/// `policy`: the first of a list whose ranges are all large enough, in constant time.
pub const NCPU_VMEM_INSTANT: u32 = 0;
/// `policy`: the smallest range that fits.
pub const NCPU_VMEM_BEST: u32 = 1;
/// `policy`: the first range after the one handed out last. Not with `cache_to`.
pub const NCPU_VMEM_NEXT: u32 = 2;

/// A part that is free.
pub const NCPU_VMEM_FREE: u32 = 0;
/// A part that is handed out.
pub const NCPU_VMEM_ALLOCATED: u32 = 1;
/// A part that is in a magazine.
pub const NCPU_VMEM_CACHED: u32 = 2;

/// Options of an arena. Zeroed except for `quantum`: without magazines, constant time.
#[repr(C)]
pub struct ncpu_vmem_options_t {
    /// All ranges are multiples of this power of two.
    pub quantum: u64,
    /// The largest size that per-CPU magazines serve, at most 64 quanta; 0 disables magazines.
    pub cache_to: u64,
    /// The least size that is imported from a parent at a time.
    pub import: u64,
    /// NCPU_VMEM_INSTANT, _BEST or _NEXT.
    pub policy: u32,
}

/// Where a range may lie. Zeroed except for `max` is anywhere.
#[repr(C)]
pub struct ncpu_vmem_constraints_t {
    /// It begins at a multiple of this power of two, plus `phase`. 0 stands for the quantum.
    pub align: u64,
    /// Below `align`, a multiple of the quantum.
    pub phase: u64,
    /// It does not lie on both sides of a multiple of this power of two. 0 disables the limit.
    pub nocross: u64,
    /// Lower bound of its integers.
    pub min: u64,
    /// Upper bound of its integers.
    pub max: u64,
}

/// Contents and counts of an arena.
#[repr(C)]
pub struct ncpu_vmem_statistics_t {
    /// Integers in all spans.
    pub total: u64,
    /// Integers that are neither handed out nor in a magazine.
    pub free: u64,
    /// Integers in magazines.
    pub cached: u64,
    /// The longest free range.
    pub largest: u64,
    /// Requests that magazines served.
    pub hits: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// How often all magazines were emptied.
    pub drains: u64,
}

fn code(error: Error) -> c_int {
    match error {
        Error::Exhausted { .. } => ENOSPC,
        Error::NotAllocated { .. } => ENOENT,
        Error::WrongSize { .. } => ERANGE,
        Error::Overlap { .. } => EEXIST,
        Error::Invalid(_) => EINVAL,
        Error::OutOfMemory(_) => ENOMEM,
    }
}

fn policy(number: u32) -> Option<Policy> {
    match number {
        NCPU_VMEM_INSTANT => Some(Policy::Instant),
        NCPU_VMEM_BEST => Some(Policy::Best),
        NCPU_VMEM_NEXT => Some(Policy::Next),
        _ => None,
    }
}

fn done(result: Result<(), Error>) -> c_int {
    result.map_or_else(code, |()| 0)
}

/// A new arena without integers, or null with errno set: EINVAL, ENOMEM. With a `parent` it imports the
/// integers it lacks, gives each span back when it is completely free, and must be destroyed before the
/// parent.
///
/// # Safety
/// `options` is null or readable, `parent` null or an arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_create(
    options: *const ncpu_vmem_options_t,
    parent: *const ncpu_vmem_t,
) -> *mut ncpu_vmem_t {
    let Some(given) = (unsafe { options.as_ref() }) else { return fail(EINVAL) };
    let Some(policy) = policy(given.policy) else { return fail(EINVAL) };
    let options = Options { quantum: given.quantum, cache_to: given.cache_to, policy, import: given.import };
    // Valid while the caller keeps the promise that parents outlive children.
    let parent: Option<&'static ncpu_vmem_t> = unsafe { parent.as_ref() };
    let made = match parent {
        Some(parent) => Vmem::with_parent(options, &parent.0),
        None => Vmem::new(options),
    };
    match made {
        Ok(made) => crate::create(Ok(ncpu_vmem_t(made))),
        Err(error) => fail(code(error)),
    }
}

/// Frees an arena. Imported spans go back, except spans with ranges that are still handed out. Null is
/// ignored.
///
/// # Safety
/// `arena` is null or from `ncpu_vmem_create`, unused, and not the parent of another arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_destroy(arena: *mut ncpu_vmem_t) {
    unsafe { destroy(arena) }
}

/// Adds `size` integers from `start` on. EEXIST if the arena has some of them, EINVAL if they are not
/// multiples of the quantum or exceed 2^64-1, ENOMEM.
///
/// # Safety
/// `arena` is null or an arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_add(arena: *mut ncpu_vmem_t, start: u64, size: u64) -> c_int {
    done(object!(arena).add(start, size))
}

/// Hands out `size` integers, rounded up to the quantum, and stores the first in `*start`. ENOSPC if no free
/// range is that long: then there was a moment without such a range, magazines included.
///
/// # Safety
/// `arena` is null or an arena, `start` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_alloc(arena: *mut ncpu_vmem_t, size: u64, start: *mut u64) -> c_int {
    let arena = object!(arena);
    if start.is_null() {
        return EINVAL;
    }
    match arena.alloc(size) {
        Ok(found) => {
            unsafe { start.write(found) };
            0
        }
        Err(error) => code(error),
    }
}

/// As `ncpu_vmem_alloc`, by a policy and within constraints; null is anywhere. Never served by magazines.
///
/// # Safety
/// As for `ncpu_vmem_alloc`; `constraints` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_alloc_with(
    arena: *mut ncpu_vmem_t,
    size: u64,
    policy_number: u32,
    constraints: *const ncpu_vmem_constraints_t,
    start: *mut u64,
) -> c_int {
    let arena = object!(arena);
    let constraints = match unsafe { constraints.as_ref() } {
        Some(&ncpu_vmem_constraints_t { align, phase, nocross, min, max }) => {
            Constraints { align, phase, nocross, min, max }
        }
        None => Constraints::default(),
    };
    let Some(policy) = policy(policy_number) else { return EINVAL };
    if start.is_null() {
        return EINVAL;
    }
    match arena.alloc_with(size, policy, &constraints) {
        Ok(found) => {
            unsafe { start.write(found) };
            0
        }
        Err(error) => code(error),
    }
}

/// Takes back a range. ENOENT, and nothing changes, if it was not handed out or was already freed; ERANGE if
/// its size was another.
///
/// # Safety
/// `arena` is null or an arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_free(arena: *mut ncpu_vmem_t, start: u64, size: u64) -> c_int {
    done(object!(arena).free(start, size))
}

/// Empties all magazines, and gives unneeded spans to the parent.
///
/// # Safety
/// `arena` is null or an arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_reap(arena: *mut ncpu_vmem_t) -> c_int {
    done(object!(arena).reap())
}

/// Calls `visit` with each part, by address: its use (NCPU_VMEM_FREE, _ALLOCATED, _CACHED), its first
/// integer, its size, and `argument`. The arena is locked meanwhile: `visit` must not use it.
///
/// # Safety
/// `arena` is null or an arena; `visit` can be called with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_walk(
    arena: *const ncpu_vmem_t,
    visit: Option<unsafe extern "C" fn(used: u32, start: u64, size: u64, argument: *mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    let arena = object!(arena);
    let Some(visit) = visit else { return EINVAL };
    arena.walk(|part| {
        let used = match part.used {
            Use::Free => NCPU_VMEM_FREE,
            Use::Allocated => NCPU_VMEM_ALLOCATED,
            Use::Cached => NCPU_VMEM_CACHED,
        };
        unsafe { visit(used, part.start, part.size, argument) };
    });
    0
}

/// Fills in the contents and counts of an arena. O(ranges + CPUs).
///
/// # Safety
/// `arena` is null or an arena, `statistics` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_statistics(
    arena: *const ncpu_vmem_t,
    statistics: *mut ncpu_vmem_statistics_t,
) -> c_int {
    let arena = object!(arena);
    if statistics.is_null() {
        return EINVAL;
    }
    let now = arena.statistics();
    let filled = ncpu_vmem_statistics_t {
        total: now.totals.total,
        free: now.totals.free,
        cached: now.cached,
        largest: now.totals.largest,
        hits: now.hits,
        refusals: now.refusals,
        drains: now.drains,
    };
    unsafe { statistics.write(filled) };
    0
}

/// Takes every lock of the arena: for pthread_atfork's prepare handler, for a child before its parent.
///
/// # Safety
/// `arena` is null or an arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_before_fork(arena: *mut ncpu_vmem_t) -> c_int {
    object!(arena).before_fork();
    0
}

/// Releases the locks: for pthread_atfork's parent handler, and with `child` not 0 its child handler.
///
/// # Safety
/// `arena` is null, or the calling thread has called `ncpu_vmem_before_fork`, here or in the parent process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_vmem_after_fork(arena: *mut ncpu_vmem_t, child: c_int) -> c_int {
    let arena = object!(arena);
    unsafe { arena.after_fork(child != 0) };
    0
}

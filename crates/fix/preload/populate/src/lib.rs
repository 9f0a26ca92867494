//! `libncpu_populate.so`: for programs that map, lock and free large memory by one call, which is the work of
//! one thread.
//!
//! The library replaces `mmap`, `mlock`, `mlock2`, `mlockall`, `munmap`, `shmat` and `shmdt`. For memory of
//! at least `NCPU_POPULATE_MIN` bytes, helpers make or drop its pages, and the program's own call is made
//! too. For locking and unmapping it comes last, so that its result, `errno` and the locked pages are the
//! kernel's. For mapping it comes first, without `MAP_POPULATE`, which cannot fail in making pages. Helpers
//! are libncpu's (`libncpu::populate`): threads that end before the call returns, allocate nothing and are
//! unknown to libc. So an allocator may map memory with its locks held, in a signal handler, or after `fork`.
//!
//! | variable | |
//! | --- | --- |
//! | `NCPU_POPULATE_MIN` | least number of bytes for which helpers are used [default: 64m] |
//! | `NCPU_POPULATE_HELPERS` | most helpers [default: 16]; 0 turns the library off |
//! | `NCPU_POPULATE_SHMAT` | 1: `shmat` makes all pages of a segment that it attaches for writing |
//!
//! After the program enters seccomp's modes through `prctl` or `syscall`, no helper is made: filters may kill
//! a process for calls that the program itself does not make.

mod settings;

use libc::{c_int, c_long, c_uint, c_ulong, c_void, off_t, size_t};
use libncpu::populate::{self, Access, Helpers};
use ncpu_preload::{missing, next};
use settings::SETTINGS;

/// The arguments of an `mmap` call.
#[derive(Clone, Copy)]
struct Map {
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
}

impl Map {
    /// libc's own call.
    unsafe fn make(self) -> *mut c_void {
        type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
        let next = next!(c"mmap" as Mmap, missing(libc::MAP_FAILED));
        // SAFETY: the caller's arguments.
        unsafe { next(self.at, self.length, self.protection, self.flags, self.file, self.offset) }
    }

    /// As libc's own call, with helpers if they can help.
    unsafe fn make_with(self, helpers: Helpers) -> *mut c_void {
        let Map { length, protection, flags, .. } = self;
        // SAFETY: the caller's arguments.
        let plain = || unsafe { self.make() };
        let locked = flags & libc::MAP_LOCKED != 0;
        let private = match flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => true,
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => false,
            _ => return plain(),
        };
        let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
        if flags & (libc::MAP_NONBLOCK | libc::MAP_GROWSDOWN) != 0
            || protection & libc::PROT_READ == 0
            // If locking failed, the old mapping would be lost; and any lock makes pages of a pool.
            || (locked && (fixed || flags & libc::MAP_HUGETLB != 0))
        {
            return plain();
        }
        let without = flags & !(libc::MAP_POPULATE | libc::MAP_LOCKED);
        // SAFETY: the caller's arguments, without making pages.
        let got = unsafe { Map { flags: without, ..self }.make() };
        if got == libc::MAP_FAILED {
            // MAP_LOCKED has errors of its own, which take precedence.
            return if locked { plain() } else { got };
        }
        if locked {
            // SAFETY: the mapping just made, which is not in use yet.
            unsafe {
                if populate::lock_as_made(got.cast(), length).is_err() {
                    populate::unmap(got.cast(), length, Helpers::NONE).ok();
                    return plain();
                }
            }
        }
        let access = if private && protection & libc::PROT_WRITE != 0 { Access::Write } else { Access::Read };
        // As in the kernel with MAP_POPULATE, pages that cannot be made are left for later.
        let _ = populate::populate(got.cast(), length, access, helpers);
        if locked {
            let _ = populate::lock_plainly(got.cast(), length);
        }
        got
    }
}

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
    let map = Map { at, length, protection, flags, file, offset };
    let makes = flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) != 0;
    if makes && let Some(helpers) = SETTINGS.helpers(length) {
        // SAFETY: the caller's arguments.
        unsafe { map.make_with(helpers) }
    } else {
        // SAFETY: the caller's arguments.
        unsafe { map.make() }
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

/// `mlock(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(at: *const c_void, length: size_t) -> c_int {
    if let Some(helpers) = SETTINGS.helpers(length) {
        populate::before_mlock(at.cast(), length, helpers);
    }
    let next = next!(c"mlock" as unsafe extern "C" fn(*const c_void, size_t) -> c_int, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(at, length) }
}

/// `mlock2(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(at: *const c_void, length: size_t, flags: c_uint) -> c_int {
    if flags == 0
        && let Some(helpers) = SETTINGS.helpers(length)
    {
        populate::before_mlock(at.cast(), length, helpers);
    }
    let next = next!(c"mlock2" as unsafe extern "C" fn(*const c_void, size_t, c_uint) -> c_int, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(at, length, flags) }
}

/// `mlockall(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE;
    if flags & libc::MCL_CURRENT != 0
        && flags & !known == 0
        && let Some(helpers) = SETTINGS.helpers(usize::MAX)
    {
        populate::before_mlockall(SETTINGS.least(), helpers);
    }
    let next = next!(c"mlockall" as unsafe extern "C" fn(c_int) -> c_int, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(flags) }
}

/// `munmap(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    if let Some(helpers) = SETTINGS.helpers(length) {
        // SAFETY: the caller does not use memory that it unmaps, and it is unmapped right here.
        unsafe { populate::before_munmap(at.cast(), length, helpers) };
    }
    let next = next!(c"munmap" as unsafe extern "C" fn(*mut c_void, size_t) -> c_int, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(at, length) }
}

/// `shmat(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
    let next = next!(
        c"shmat" as unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void,
        missing(libc::MAP_FAILED)
    );
    // SAFETY: the caller's arguments.
    let got = unsafe { next(id, at, flags) };
    if got != libc::MAP_FAILED
        && flags & libc::SHM_RDONLY == 0
        && SETTINGS.makes_segments()
        && let Some(length) = populate::attached(got.cast())
        && let Some(helpers) = SETTINGS.helpers(length)
    {
        // Pages that cannot be made here are made by the program's own access, as without the library.
        let _ = populate::populate(got.cast(), length, Access::Write, helpers);
    }
    got
}

/// `shmdt(2)`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(at: *const c_void) -> c_int {
    if let Some(helpers) = SETTINGS.helpers(usize::MAX) {
        populate::before_shmdt(at.cast(), SETTINGS.least(), helpers);
    }
    let next = next!(c"shmdt" as unsafe extern "C" fn(*const c_void) -> c_int, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(at) }
}

/// `prctl(2)`: replaced only to notice that the program confines itself.
///
/// # Safety
/// As for libc's. It is variadic there; the registers carry the caller's arguments either way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        SETTINGS.end();
    }
    type Prctl = unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    let next = next!(c"prctl" as Prctl, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(option, a, b, c, d) }
}

/// `syscall(2)`: replaced only to notice that the program confines itself.
///
/// # Safety
/// As for [`prctl`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_seccomp || (number == libc::SYS_prctl && a == c_long::from(libc::PR_SET_SECCOMP)) {
        SETTINGS.end();
    }
    type Syscall = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    let next = next!(c"syscall" as Syscall, missing(-1));
    // SAFETY: the caller's arguments.
    unsafe { next(number, a, b, c, d, e, f) }
}

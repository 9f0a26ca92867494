//! Memory made, locked, unlocked and given back by several CPUs.
//!
//! # Where it comes from
//!
//! Steve Sistare's blog describes `vmtasks`. A system call that makes, locks or destroys the pages of a large
//! segment is the work of one thread, while all other CPUs of the machine are idle. So Solaris 11 lets up to
//! 16 kernel threads help the caller. The segment is divided at page boundaries into more chunks than there
//! are threads, and each thread takes the next chunk when it is done, since pages differ in cost. Create +
//! lock + destroy became 6 to 14 times as fast. On Linux the same is done from user space, by calls of which
//! several can work on one address space at once:
//!
//! | job | one thread | helpers |
//! | --- | --- | --- |
//! | make pages | page faults, `MAP_POPULATE` | `MADV_POPULATE_WRITE` on chunks: the address space's lock is only read |
//! | lock | `mlock` makes pages and locks them | `mlock2(MLOCK_ONFAULT)` before the pages exist, then as
//! above: each page is locked when it is made |
//! | destroy | `munmap` frees pages with the lock held | `MADV_DONTNEED` on chunks, which frees them; then `munmap` of nothing |
//!
//! Helpers do not speed up `mlock` of existing pages and `munlock` (they hold the lock for writing), nor
//! freeing the pages of a shared segment by its last user, which the kernel does under the file's lock.
//! docs/populate.md has the measurements.
//!
//! # Invariants
//!
//! 1. *Results are those of the plain calls.* Helpers only make pages that the call would make, or drop pages that
//!    the call drops. [`lock`] and [`unmap`] end with the plain call, which decides.
//! 2. *Nothing is left behind*: helpers are gone when a function returns ([`crate::memory::crew`]), and a segment that could
//!    not be made whole is undone.
//! 3. *Memory lies where it would without helpers*: they run on the CPUs of the nodes that the policy takes memory
//!    from; without a policy that is the caller's node.
//!
//! # Bad conditions
//!
//! | condition | what happens |
//! | --- | --- |
//! | memory, the cgroup's limit or a pool of huge pages used up | `ENOMEM` or `EFAULT` with the offset of the first page that could not be made. Linux overcommits: the OOM killer may come before the error |
//! | `RLIMIT_MEMLOCK` | `ENOMEM`, or `EPERM` where it is 0, before a page is made |
//! | a file shorter than its mapping | `EFAULT` at the first page beyond; never `SIGBUS` |
//! | Linux before 5.14, or a sandbox without `MADV_POPULATE_WRITE` | pages are touched one by one through system calls that cannot raise a signal; slower |
//! | no threads (`RLIMIT_NPROC`, `pids.max`) | fewer helpers or none |
//! | other programs use the CPUs | before `mlock`, helpers that give no gain stop: `mlock` goes through all
//! pages again, and makes the rest |
//! | signals | handlers run between chunks of at most 64 MiB |
//! | fork, in another thread | the child has no helpers, and a copy of their unused stacks |

mod pieces;
mod segment;

use crate::memory::areas::{self, Area};
use crate::sys::cpus;
use crate::sys::kernel::{self, call};
use pieces::Pieces;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

pub use crate::sys::cpus::Nodes;
pub use segment::{Backing, Pages, Policy, Segment, SegmentOptions};

/// The most threads that help the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helpers(pub usize);

impl Helpers {
    /// The caller works alone.
    pub const NONE: Helpers = Helpers(0);
}

impl Default for Helpers {
    /// 16, as vmtasks used: more take the whole machine for little gain.
    fn default() -> Helpers {
        Helpers(16)
    }
}

/// How pages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As by reading: file pages as mapped, and the zero page for anonymous memory.
    Read,
    /// As by writing: pages of the process's own. Contents are unchanged.
    Write,
}

/// A failed call on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The call that failed.
    pub what: &'static str,
    /// The reason: a number of `<errno.h>`.
    pub errno: i32,
    /// Bytes from the start of the memory to the page at which it failed; `None` if no page caused the
    /// failure.
    pub offset: Option<usize>,
}

impl Error {
    fn new(what: &'static str) -> impl Fn(i32) -> Error {
        move |errno| Error { what, errno, offset: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, std::io::Error::from_raw_os_error(self.errno))?;
        match self.offset {
            Some(offset) => write!(f, ", at byte {offset}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::from_raw_os_error(error.errno)
    }
}

/// The range of whole pages that `at..at + length` touches; `None` if it exceeds the address space.
fn whole_pages(at: usize, length: usize) -> Option<(usize, usize)> {
    let mask = kernel::page() - 1;
    let end = at.checked_add(length)?.checked_add(mask)? & !mask;
    Some((at & !mask, end - (at & !mask)))
}

/// Makes the pages of any memory of this process, which may be in use, and keeps their contents.
///
/// `at` need not be aligned. Pages that exist already cost about 50 ns each.
///
/// # Errors
/// The first page that could not be made; pages before and after may have been.
pub fn populate(at: *mut u8, length: usize, access: Access, helpers: Helpers) -> Result<(), Error> {
    let (begin, length) = whole_pages(at as usize, length).ok_or(Error {
        what: "populate",
        errno: libc::EINVAL,
        offset: None,
    })?;
    let pieces = Pieces::new(begin, length, kernel::page(), helpers);
    populate_pages(begin, kernel::page(), access, pieces).map_err(|error| Error {
        offset: error.offset.map(|o| (o + begin).saturating_sub(at as usize)),
        ..error
    })
}

/// As [`populate`], of whole pages of `unit` bytes at `at`.
fn populate_pages(at: usize, unit: usize, access: Access, pieces: Pieces) -> Result<(), Error> {
    let near = cpus::near(at);
    let done = if has_populate() {
        let advice = match access {
            Access::Read => libc::MADV_POPULATE_READ,
            Access::Write => libc::MADV_POPULATE_WRITE,
        };
        pieces.each(near.as_ref(), &|at, length| advise(at, length, unit, advice))
    } else {
        pieces.each(near.as_ref(), &|at, length| touch(at, length, access))
    };
    let what = match (access, has_populate()) {
        (Access::Read, true) => "madvise(MADV_POPULATE_READ)",
        (Access::Write, true) => "madvise(MADV_POPULATE_WRITE)",
        (_, false) => "touching pages",
    };
    done.map_err(|(errno, failed)| Error { what, errno, offset: Some(failed - at) })
}

/// Whether this kernel and its sandbox have `MADV_POPULATE_READ` and `_WRITE`.
fn has_populate() -> bool {
    static HAS: AtomicU8 = AtomicU8::new(0);
    match HAS.load(Ordering::Relaxed) {
        0 => {
            // An empty range: only checks whether the kernel knows the advice.
            let has = kernel::madvise(0, 0, libc::MADV_POPULATE_WRITE).is_ok();
            HAS.store(1 + u8::from(has), Ordering::Relaxed);
            has
        }
        known => known == 2,
    }
}

/// Populates a piece by advice; the error is that of the first page of `unit` bytes which fails.
fn advise(mut at: usize, length: usize, unit: usize, advice: i32) -> Result<(), (i32, usize)> {
    let end = at + length;
    while at < end && kernel::madvise(at, end - at, advice).is_err() {
        // The kernel does not report the address, so the range that contains the first such page is halved
        // until it is one page.
        let mut high = end;
        while high - at > unit {
            let middle = at + ((high - at) / 2 / unit).max(1) * unit;
            match kernel::madvise(at, middle - at, advice) {
                Ok(()) => at = middle,
                Err(_) => high = middle,
            }
        }
        // If the page exists meanwhile, continue with the rest.
        kernel::madvise(at, high - at, advice).map_err(|error| (error, at))?;
        at = high;
    }
    Ok(())
}

/// Populates a piece page by page, through calls in which the kernel reads or writes. If no page can be made
/// they return `EFAULT`, while the program's own access would raise `SIGBUS`.
fn touch(at: usize, length: usize, access: Access) -> Result<(), (i32, usize)> {
    // No thread waits on it.
    let own = 0u32;
    let own = (&raw const own) as usize;
    let private = libc::FUTEX_PRIVATE_FLAG;
    for page in (at..at + length).step_by(kernel::page()) {
        let arguments = match access {
            // Compares a word with a value, and wakes no thread in either case.
            Access::Read => [page, (libc::FUTEX_CMP_REQUEUE | private) as usize, 0, 0, own, 0],
            // Atomically "or"s 0 into a word. It would wake a waiter only if the word were below -2048.
            Access::Write => {
                const OR_NOTHING_IF_BELOW: usize = 2 << 28 | 2 << 24 | 0x800;
                [own, (libc::FUTEX_WAKE_OP | private) as usize, 0, 0, page, OR_NOTHING_IF_BELOW]
            }
        };
        loop {
            // SAFETY: neither changes the memory at the address.
            match unsafe { call(libc::SYS_futex, arguments) } {
                Err(libc::EINTR) => {}
                // The word has another value.
                Ok(_) | Err(libc::EAGAIN) => break,
                Err(error) => return Err((error, page)),
            }
        }
    }
    Ok(())
}

/// How the kernel would make the pages of an area that is locked; `None` if it makes none.
///
/// As `populate_vma_page_range`: private pages are written, so that the process owns them afterwards.
fn as_locked(area: &Area) -> Option<Access> {
    match (area.protection & libc::PROT_WRITE != 0, area.shared) {
        (true, false) => Some(Access::Write),
        _ if area.protection & libc::PROT_READ != 0 => Some(Access::Read),
        _ => None,
    }
}

/// Whether an area has huge pages from the kernel's pool.
fn of_pool(area: &Area) -> bool {
    area.page > kernel::page()
}

/// Pages are made by several threads only if fewer than this many of 64 sampled pages exist.
const MOST_THERE: usize = 56;
/// Pages are dropped by several threads only if at least this many of 64 sampled pages exist.
const FEW_THERE: usize = 4;
/// The most areas of a range that are examined; a range with more is processed by one thread.
const AREAS: usize = 16;

/// Areas, found without allocating.
struct Found {
    areas: [Area; AREAS],
    count: usize,
}

impl Found {
    /// The chosen areas that overlap `at..at + length`; `None` if the kernel does not report them, or there
    /// are too many.
    fn new(at: usize, length: usize, chosen: impl Fn(&Area) -> bool) -> Option<Found> {
        let mut found = Found { areas: [Area::default(); AREAS], count: 0 };
        let (end, mut over) = (at.checked_add(length)?, false);
        areas::each(at, end, &mut |area| {
            if !chosen(area) {
                return true;
            }
            let Some(place) = found.areas.get_mut(found.count) else {
                over = true;
                return false;
            };
            *place = *area;
            found.count += 1;
            true
        })
        .ok()?;
        (!over).then_some(found)
    }

    fn iter(&self) -> std::slice::Iter<'_, Area> {
        self.areas[..self.count].iter()
    }
}

/// Makes the pages of an area, within `at..end`, as locking does. Stops if helpers give no gain, since the
/// call that follows makes the rest. An error is the first page that could not be made.
fn populate_area(area: &Area, at: usize, end: usize, helpers: Helpers) -> Result<(), usize> {
    let (start, end) = (area.start.max(at), area.end.min(end));
    let unit = area.page.max(kernel::page());
    let access = as_locked(area).ok_or(start)?;
    let pieces = Pieces::new(start, end - start, unit, helpers).leave_if_slow();
    populate_pages(start, unit, access, pieces).map_err(|error| start + error.offset.unwrap_or_default())
}

/// Marks memory to be locked as it is made, and makes it. Returns the first page that could not be made, at
/// which the kernel stops too. Does nothing if the limit or another condition forbids it.
fn prepare_lock(at: usize, length: usize, helpers: Helpers) -> Option<usize> {
    if areas::resident(at, length) > MOST_THERE {
        return None;
    }
    let found = Found::new(at, length, |_| true)?;
    // Any mlock makes pages of a pool, on fault or not, so the plain call is as good.
    if found.iter().any(of_pool) {
        return None;
    }
    kernel::mlock(at, length, MLOCK_ONFAULT).ok()?;
    found.iter().try_for_each(|area| populate_area(area, at, at + length, helpers)).err()
}

/// Does most of the work of the following `mlock(at, length)` with helpers. The result of the operation is
/// that of `mlock`.
///
/// Async-signal-safe: no memory is allocated and no lock taken.
pub fn before_mlock(at: *const u8, length: usize, helpers: Helpers) {
    if helpers != Helpers::NONE
        && let Some((at, length)) = whole_pages(at as usize, length)
    {
        prepare_lock(at, length, helpers);
    }
}

/// As [`before_mlock`], before `mlockall(MCL_CURRENT)`: for areas of at least `least` bytes.
pub fn before_mlockall(least: usize, helpers: Helpers) {
    let large = |area: &Area| area.end - area.start >= least && as_locked(area).is_some();
    let Some(found) = Found::new(0, usize::MAX, large) else { return };
    let missing = |area: &Area| areas::resident(area.start, area.end - area.start) <= MOST_THERE;
    if helpers == Helpers::NONE || !found.iter().any(missing) {
        return;
    }
    // MCL_FUTURE is left to the call that follows.
    let flags = (libc::MCL_CURRENT | libc::MCL_ONFAULT) as usize;
    // SAFETY: locking changes no contents.
    if unsafe { call(libc::SYS_mlockall, [flags, 0, 0, 0, 0, 0]) }.is_ok() {
        for area in found.iter().filter(|area| missing(area)) {
            // As in mlockall, pages that cannot be made are skipped.
            let _ = populate_area(area, area.start, area.end, helpers);
        }
    }
}

/// Does most of the work of the following `munmap(at, length)` with helpers: drops the pages.
///
/// Nothing is dropped if `munmap` would refuse: if the address is not aligned, an area is sealed, or the
/// range lies in the middle of an area and the limit of mappings forbids the split. (It could still fail
/// for lack of a few hundred bytes of kernel memory, but Linux does not fail such small allocations.)
///
/// Async-signal-safe, as [`before_mlock`].
///
/// # Safety
/// The memory is unused, and `munmap(at, length)` follows.
pub unsafe fn before_munmap(at: *mut u8, length: usize, helpers: Helpers) {
    let at = at as usize;
    let Some((begin, length)) = whole_pages(at, length) else { return };
    if begin != at || helpers == Helpers::NONE || areas::resident(at, length) < FEW_THERE {
        return;
    }
    let Some(found) = Found::new(at, length, |_| true) else { return };
    let end = at + length;
    let kept = |area: &Area| {
        // Sets the protection that it has: changes nothing, and is refused if the area is sealed.
        let (start, stop) = (area.start.max(at), area.end.min(end));
        // SAFETY: as said.
        let same =
            unsafe { call(libc::SYS_mprotect, [start, stop - start, area.protection as usize, 0, 0, 0]) };
        same.is_err() || (area.start < at && area.end > end)
    };
    // Shared contents are not lost: only this process's view of them ends.
    if found.iter().any(|area| !area.shared && kept(area)) {
        return;
    }
    // Pages of a pool are returned to it quickly.
    for area in found.iter().filter(|area| !of_pool(area)) {
        let (start, stop) = (area.start.max(at), area.end.min(end));
        drop_pages(start, stop - start, area.page, helpers);
    }
}

/// The area of a segment attached at an address; empty if no segment is.
fn attached_area(at: usize) -> Area {
    let mut whole = Area::default();
    // If the kernel does not report areas, no segment is found.
    let _ = areas::each(at, usize::MAX, &mut |area| {
        if whole.end == 0 && area.start == at && area.shared && area.inode != 0 {
            whole = *area;
            true
        } else if whole.end == area.start && area.shared && area.inode == whole.inode {
            whole.end = area.end;
            true
        } else {
            false
        }
    });
    whole
}

/// Bytes of the segment that is attached at an address.
pub fn attached(at: *const u8) -> Option<usize> {
    let area = attached_area(at as usize);
    (area.end > 0).then_some(area.end - area.start)
}

/// Does most of the work of the following `shmdt(at)` with helpers: drops the process's view of the pages,
/// which stay in the segment. Does nothing if no segment of at least `least` bytes is attached there.
pub fn before_shmdt(at: *const u8, least: usize, helpers: Helpers) {
    let area = attached_area(at as usize);
    let length = area.end - area.start;
    if length >= least.max(1) && !of_pool(&area) && areas::resident(area.start, length) >= FEW_THERE {
        drop_pages(area.start, length, area.page, helpers);
    }
}

/// Frees the pages of unused memory, or this process's view of shared pages, as far as possible.
fn drop_pages(at: usize, length: usize, page: usize, helpers: Helpers) {
    let unit = page.max(kernel::page());
    let near = cpus::near(at);
    // Pages that cannot be dropped are left to the call that follows.
    let _ = Pieces::new(at, length, unit, helpers).each(near.as_ref(), &|at, length| {
        // Since Linux 5.18; plain `MADV_DONTNEED` refuses locked pages.
        kernel::madvise(at, length, libc::MADV_DONTNEED_LOCKED)
            .or_else(|_| kernel::madvise(at, length, libc::MADV_DONTNEED))
            .map_err(|error| (error, at))
    });
}

/// `MLOCK_ONFAULT`.
const MLOCK_ONFAULT: usize = 1;

/// Marks memory to be locked as its pages are made: `mlock2(MLOCK_ONFAULT)`, which leaves `errno` unchanged.
///
/// # Errors
/// Those of `mlock2`, `ENOSYS` before Linux 4.4.
pub fn lock_as_made(at: *const u8, length: usize) -> Result<(), Error> {
    kernel::mlock(at as usize, length, MLOCK_ONFAULT).map_err(Error::new("mlock2"))
}

/// `mlock(2)`, which leaves `errno` unchanged.
///
/// # Errors
/// Those of `mlock`.
pub fn lock_plainly(at: *const u8, length: usize) -> Result<(), Error> {
    kernel::mlock(at as usize, length, 0).map_err(Error::new("mlock"))
}

/// Locks memory of this process as `mlock(2)` does, and makes missing pages with helpers.
///
/// # Errors
/// Those of `mlock`, with the first page that could not be made if that is the reason, except for pages of a
/// pool.
pub fn lock(at: *const u8, length: usize, helpers: Helpers) -> Result<(), Error> {
    let failed = whole_pages(at as usize, length).and_then(|(at, length)| prepare_lock(at, length, helpers));
    let offset = failed.map(|page| page.saturating_sub(at as usize));
    kernel::mlock(at as usize, length, 0).map_err(|errno| Error { what: "mlock", errno, offset })
}

/// Takes memory out of the address space as `munmap(2)` does, and frees its pages with helpers.
///
/// # Safety
/// The memory is unused.
///
/// # Errors
/// Those of `munmap`.
pub unsafe fn unmap(at: *mut u8, length: usize, helpers: Helpers) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe {
        before_munmap(at, length, helpers);
        kernel::unmap(at as usize, length).map_err(Error::new("munmap"))
    }
}

/// Reads the machine's topology ahead of time. Otherwise the first call with helpers does that, which reads
/// `/sys` and allocates.
pub fn prepare() {
    crate::sys::topology();
}

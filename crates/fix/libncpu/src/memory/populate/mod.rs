//! Memory made, locked, unlocked and given back by several CPUs.
//!
//! # Where it comes from
//!
//! Steve Sistare's blog tells of `vmtasks`: a system call that makes, locks or destroys the pages of a large segment
//! is one thread's work, while all other CPUs of the machine look on; so Solaris 11 lets up to 16 kernel threads help
//! the caller. The segment is divided at page boundaries into more chunks than there are threads, and threads take
//! chunks as they finish, since pages differ in what they cost. Create + lock + destroy became 6 to 14 times as fast.
//! On Linux the same is done from user space, by those calls of which several can work on one address space at once:
//!
//! | job | one thread | helpers |
//! | --- | --- | --- |
//! | make pages | page faults, `MAP_POPULATE` | `MADV_POPULATE_WRITE` on chunks: the address space's lock is only read |
//! | lock | `mlock` makes pages and locks them | `mlock2(MLOCK_ONFAULT)` while there are no pages, then as above: each is born locked |
//! | destroy | `munmap` frees pages with the lock held | `MADV_DONTNEED` on chunks, which frees them; then `munmap` of nothing |
//!
//! What does not get faster by helpers: `mlock` of pages that are there already and `munlock` (they hold the lock for
//! writing), and freeing the pages of a shared segment by its last user, which the kernel does under the file's lock.
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
//! | other programs have the CPUs | before `mlock`, helpers that turn out to be of no use stop: it goes through all pages again, and makes the rest |
//! | signals | handlers run between chunks of at most 64 MiB |
//! | fork, in another thread | the child has neither helpers nor their stacks' use |

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
    /// 16, as many as vmtasks took: more monopolise a machine for little.
    fn default() -> Helpers {
        Helpers(16)
    }
}

/// How pages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As by reading: what is mapped of files; of anonymous memory the page of zeros.
    Read,
    /// As by writing: pages of the process's own. Contents stay as they are.
    Write,
}

/// What could not be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The call that failed.
    pub what: &'static str,
    /// Why: a number of `<errno.h>`.
    pub errno: i32,
    /// Bytes from the begin of the memory to the page it failed at; `None` where it is no page's fault.
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

/// The range of whole pages that `at..at + length` touches; `None` if that is beyond the address space.
fn whole_pages(at: usize, length: usize) -> Option<(usize, usize)> {
    let mask = kernel::page() - 1;
    let end = at.checked_add(length)?.checked_add(mask)? & !mask;
    Some((at & !mask, end - (at & !mask)))
}

/// Makes the pages of any memory of this process, which may be in use, and leaves their contents as they are.
///
/// `at` need not be aligned. Pages that are there already cost some 50 ns each.
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
            // Of nothing: only whether the advice is known.
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
        // The kernel doesn't tell where: what holds the first such page is halved until it is one.
        let mut high = end;
        while high - at > unit {
            let middle = at + ((high - at) / 2 / unit).max(1) * unit;
            match kernel::madvise(at, middle - at, advice) {
                Ok(()) => at = middle,
                Err(_) => high = middle,
            }
        }
        // If it has gone away meanwhile, on with the rest.
        kernel::madvise(at, high - at, advice).map_err(|error| (error, at))?;
        at = high;
    }
    Ok(())
}

/// Populates a piece page by page, through calls of which the kernel does the reading or writing: where there is no
/// page to be had they return `EFAULT`, while the program's own touch would end in `SIGBUS`.
fn touch(at: usize, length: usize, access: Access) -> Result<(), (i32, usize)> {
    // Nobody waits for it.
    let own = 0u32;
    let own = (&raw const own) as usize;
    let private = libc::FUTEX_PRIVATE_FLAG;
    for page in (at..at + length).step_by(kernel::page()) {
        let arguments = match access {
            // Compares a word with a value, and wakes nobody either way.
            Access::Read => [page, (libc::FUTEX_CMP_REQUEUE | private) as usize, 0, 0, own, 0],
            // Atomically "or"s 0 into a word; would wake one who waits for it if it were below -2048.
            Access::Write => {
                const OR_NOTHING_IF_BELOW: usize = 2 << 28 | 2 << 24 | 0x800;
                [own, (libc::FUTEX_WAKE_OP | private) as usize, 0, 0, page, OR_NOTHING_IF_BELOW]
            }
        };
        loop {
            // SAFETY: neither changes what is at the address.
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
/// That of `populate_vma_page_range`: what only this process sees is written, so that it is its own afterwards.
fn as_locked(area: &Area) -> Option<Access> {
    match (area.protection & libc::PROT_WRITE != 0, area.shared) {
        (true, false) => Some(Access::Write),
        _ if area.protection & libc::PROT_READ != 0 => Some(Access::Read),
        _ => None,
    }
}

/// Whether an area has pages of a pool of huge ones.
fn of_pool(area: &Area) -> bool {
    area.page > kernel::page()
}

/// At least so many of 64 pages must be missing before making them is shared out.
const MOST_THERE: usize = 56;
/// And so many be there before dropping them is.
const FEW_THERE: usize = 4;
/// As many areas of a range as are looked at; ranges of more are one thread's work.
const AREAS: usize = 16;

/// Areas, found without allocating.
struct Found {
    areas: [Area; AREAS],
    count: usize,
}

impl Found {
    /// Those that overlap `at..at + length` and are chosen; `None` if the kernel doesn't tell, or there are too many.
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

/// Makes the pages of an area, within `at..end`, as locking does, unless helpers are of no use, since a call follows that
/// does; an error is the first that could not be made.
fn populate_area(area: &Area, at: usize, end: usize, helpers: Helpers) -> Result<(), usize> {
    let (start, end) = (area.start.max(at), area.end.min(end));
    let unit = area.page.max(kernel::page());
    let access = as_locked(area).ok_or(start)?;
    let pieces = Pieces::new(start, end - start, unit, helpers).leave_if_slow();
    populate_pages(start, unit, access, pieces).map_err(|error| start + error.offset.unwrap_or_default())
}

/// Marks memory to be locked as it is made, and makes it; returns the first page that could not be made, at which the
/// kernel stops too. If the limit or anything else speaks against it, nothing is done.
fn prepare_lock(at: usize, length: usize, helpers: Helpers) -> Option<usize> {
    if areas::resident(at, length) > MOST_THERE {
        return None;
    }
    let found = Found::new(at, length, |_| true)?;
    // Pages of a pool are made by any mlock, on fault or not: the plain call does as well.
    if found.iter().any(of_pool) {
        return None;
    }
    kernel::mlock(at, length, MLOCK_ONFAULT).ok()?;
    found.iter().try_for_each(|area| populate_area(area, at, at + length, helpers)).err()
}

/// Does with helpers what makes up most of the `mlock(at, length)` that is to follow, which decides what comes of it.
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
    // Of what is to come the call that follows decides.
    let flags = (libc::MCL_CURRENT | libc::MCL_ONFAULT) as usize;
    // SAFETY: locking changes no contents.
    if unsafe { call(libc::SYS_mlockall, [flags, 0, 0, 0, 0, 0]) }.is_ok() {
        for area in found.iter().filter(|area| missing(area)) {
            // As mlockall does, what cannot be made is left.
            let _ = populate_area(area, area.start, area.end, helpers);
        }
    }
}

/// Does with helpers what makes up most of the `munmap(at, length)` that is to follow: drops the pages.
///
/// Nothing is dropped if `munmap` would refuse: where the address is not aligned, an area is sealed, or the middle is
/// cut out of one, which the limit of mappings may forbid. (It could still fail for want of a few hundred bytes of
/// the kernel's memory, which Linux does not let happen to so small an allocation.)
///
/// Async-signal-safe, as [`before_mlock`].
///
/// # Safety
/// The memory is not used any more, and `munmap(at, length)` follows.
pub unsafe fn before_munmap(at: *mut u8, length: usize, helpers: Helpers) {
    let at = at as usize;
    let Some((begin, length)) = whole_pages(at, length) else { return };
    if begin != at || helpers == Helpers::NONE || areas::resident(at, length) < FEW_THERE {
        return;
    }
    let Some(found) = Found::new(at, length, |_| true) else { return };
    let end = at + length;
    let kept = |area: &Area| {
        // The protection it has: changes nothing, and is refused if the area is sealed.
        let (start, stop) = (area.start.max(at), area.end.min(end));
        // SAFETY: as said.
        let same =
            unsafe { call(libc::SYS_mprotect, [start, stop - start, area.protection as usize, 0, 0, 0]) };
        same.is_err() || (area.start < at && area.end > end)
    };
    // What is shared is not lost: only this process's view of it goes.
    if found.iter().any(|area| !area.shared && kept(area)) {
        return;
    }
    // Pages of a pool go back to it in no time.
    for area in found.iter().filter(|area| !of_pool(area)) {
        let (start, stop) = (area.start.max(at), area.end.min(end));
        drop_pages(start, stop - start, area.page, helpers);
    }
}

/// The area of a segment attached at an address, empty if there is none.
fn attached_area(at: usize) -> Area {
    let mut whole = Area::default();
    // If the kernel doesn't tell, there is none.
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

/// Does with helpers what makes up most of the `shmdt(at)` that is to follow: drops the process's view of the pages,
/// which stay in the segment. If it is no segment of at least `least` bytes, nothing is done.
pub fn before_shmdt(at: *const u8, least: usize, helpers: Helpers) {
    let area = attached_area(at as usize);
    let length = area.end - area.start;
    if length >= least.max(1) && !of_pool(&area) && areas::resident(area.start, length) >= FEW_THERE {
        drop_pages(area.start, length, area.page, helpers);
    }
}

/// Frees the pages of memory that nobody uses any more, or this process's view of shared ones, as far as that can be.
fn drop_pages(at: usize, length: usize, page: usize, helpers: Helpers) {
    let unit = page.max(kernel::page());
    let near = cpus::near(at);
    // Only what can't be done is left, for the call that follows.
    let _ = Pieces::new(at, length, unit, helpers).each(near.as_ref(), &|at, length| {
        // Since Linux 5.18; the other refuses what is locked.
        kernel::madvise(at, length, libc::MADV_DONTNEED_LOCKED)
            .or_else(|_| kernel::madvise(at, length, libc::MADV_DONTNEED))
            .map_err(|error| (error, at))
    });
}

/// `MLOCK_ONFAULT`.
const MLOCK_ONFAULT: usize = 1;

/// Marks memory to be locked as its pages are made: `mlock2(MLOCK_ONFAULT)`, which leaves `errno` alone.
///
/// # Errors
/// Those of `mlock2`, `ENOSYS` before Linux 4.4.
pub fn lock_as_made(at: *const u8, length: usize) -> Result<(), Error> {
    kernel::mlock(at as usize, length, MLOCK_ONFAULT).map_err(Error::new("mlock2"))
}

/// `mlock(2)`, which leaves `errno` alone.
///
/// # Errors
/// Those of `mlock`.
pub fn lock_plainly(at: *const u8, length: usize) -> Result<(), Error> {
    kernel::mlock(at as usize, length, 0).map_err(Error::new("mlock"))
}

/// Locks memory of this process as `mlock(2)` does, and makes pages that are not there with helpers.
///
/// # Errors
/// Those of `mlock`, with the first page that could not be made if that is why, but for pages of a pool.
pub fn lock(at: *const u8, length: usize, helpers: Helpers) -> Result<(), Error> {
    let failed = whole_pages(at as usize, length).and_then(|(at, length)| prepare_lock(at, length, helpers));
    let offset = failed.map(|page| page.saturating_sub(at as usize));
    kernel::mlock(at as usize, length, 0).map_err(|errno| Error { what: "mlock", errno, offset })
}

/// Takes memory out of the address space as `munmap(2)` does, and frees its pages with helpers.
///
/// # Safety
/// The memory is not used any more.
///
/// # Errors
/// Those of `munmap`.
pub unsafe fn unmap(at: *mut u8, length: usize, helpers: Helpers) -> Result<(), Error> {
    // SAFETY: the caller's.
    unsafe {
        before_munmap(at, length, helpers);
        kernel::unmap(at as usize, length).map_err(Error::new("munmap"))
    }
}

/// Looks at the machine now, which the first helpers do otherwise: that reads `/sys` and allocates.
pub fn prepare() {
    crate::sys::topology();
}

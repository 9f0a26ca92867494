//! A segment: memory of one kind, page size and placement, from its creation to its end.

use super::pieces::Pieces;
use super::{Access, Error, Helpers, MLOCK_ONFAULT, drop_pages, populate_pages};
use crate::sys::cpus::Nodes;
use crate::sys::kernel::{self, call};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

/// The backing of a segment, which decides which processes can map it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Backing {
    /// Memory of this process.
    #[default]
    Private,
    /// `memfd_create`: for processes that get the descriptor.
    Memfd,
    /// `shm_open`: for processes that know the name, like `/name`, while the segment exists. The name must be
    /// new.
    Posix(CString),
    /// `shmget`: for processes that know the key, while the segment exists. The key must be new. With
    /// `IPC_PRIVATE`, which is 0, they need the identifier instead, and the segment ends with the last
    /// process that has it attached, however that process ends.
    SysV(i32),
}

impl Backing {
    /// [`Backing::Posix`] with a copy of a name.
    ///
    /// # Errors
    /// Out of memory.
    pub fn posix(name: &CStr) -> Result<Backing, Error> {
        copy(name).map(Backing::Posix)
    }
}

/// The pages of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pages {
    /// As the kernel is configured: small pages, or transparent huge pages.
    #[default]
    Default,
    /// Small ones only.
    Base,
    /// Transparent huge pages, if the kernel supports them.
    Transparent,
    /// Pages of this many bytes, from the kernel's pool of huge pages.
    Huge(usize),
}

/// The NUMA nodes that a segment's pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The nodes of the thread's policy.
    #[default]
    Default,
    /// The caller's node.
    Local,
    /// These nodes in turn; an empty set is all permitted nodes.
    Interleave(Nodes),
    /// Only these nodes.
    Bind(Nodes),
}

/// Options for a new segment.
#[derive(Clone, Debug, Default)]
pub struct SegmentOptions {
    /// The backing.
    pub backing: Backing,
    /// The kind of its pages.
    pub pages: Pages,
    /// The nodes of its pages.
    pub policy: Policy,
    /// Helper threads.
    pub helpers: Helpers,
}

/// The handle to close with the mapping.
#[derive(Debug)]
enum Handle {
    None,
    Descriptor(i32),
    SysV { id: i32, keyed: bool },
}

/// Memory that is made, locked and destroyed by several threads. Dropped, it is destroyed.
///
/// ```
/// use libncpu::populate::{Segment, SegmentOptions};
/// let segment = Segment::create(8 << 20, &SegmentOptions::default())?;
/// // SAFETY: within the segment.
/// assert_eq!(unsafe { segment.as_ptr().add(4096).read() }, 0);
/// segment.destroy()?;
/// # Ok::<(), libncpu::populate::Error>(())
/// ```
#[derive(Debug)]
pub struct Segment {
    at: usize,
    length: usize,
    /// Page size in bytes.
    unit: usize,
    handle: Handle,
    name: Option<CString>,
    helpers: Helpers,
    gone: bool,
}

/// Size and alignment of transparent huge pages.
const HUGE: usize = 2 << 20;

fn os(what: &'static str) -> Error {
    Error { what, errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0), offset: None }
}

fn invalid(what: &'static str) -> Error {
    Error { what, errno: libc::EINVAL, offset: None }
}

impl Segment {
    /// A segment of `length` bytes, rounded up to whole pages, with all of them made: [`Segment::reserve`] and
    /// [`Segment::populate`]. To have it locked too, call [`Segment::lock`] between the two.
    ///
    /// # Errors
    /// The failed call, and the byte at which it failed. Nothing remains of the segment.
    pub fn create(length: usize, options: &SegmentOptions) -> Result<Segment, Error> {
        let segment = Segment::reserve(length, options)?;
        segment.populate()?;
        Ok(segment)
    }

    /// A segment whose pages are not made yet.
    ///
    /// # Errors
    /// The failed call. Nothing remains of the segment. `EINVAL` from `shm_open` for pages of a pool, which
    /// POSIX segments cannot have.
    pub fn reserve(length: usize, options: &SegmentOptions) -> Result<Segment, Error> {
        let unit = match options.pages {
            Pages::Huge(bytes) if bytes.is_power_of_two() && bytes > kernel::page() => bytes,
            Pages::Huge(_) => return Err(invalid("page size")),
            _ => kernel::page(),
        };
        let length = match length.checked_next_multiple_of(unit) {
            Some(length) if length > 0 && length <= isize::MAX as usize => length,
            _ => return Err(invalid("length")),
        };
        let mut segment = Segment {
            at: 0,
            length,
            unit,
            handle: Handle::None,
            name: None,
            helpers: options.helpers,
            gone: false,
        };
        // The parts made so far are undone when `segment` is dropped.
        segment.map(options)?;
        segment.advise(options.pages)?;
        segment.place(&options.policy)?;
        Ok(segment)
    }

    fn map(&mut self, options: &SegmentOptions) -> Result<(), Error> {
        let huge = match options.pages {
            Pages::Huge(bytes) => Some(bytes.trailing_zeros() as i32),
            _ => None,
        };
        // The same bit position in the flags of mmap, memfd_create and shmget.
        let size = huge.map_or(0, |bits| bits << libc::MAP_HUGE_SHIFT);
        let descriptor = match &options.backing {
            Backing::Private => {
                let flags =
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge.map_or(0, |_| libc::MAP_HUGETLB | size);
                let slack = if options.pages == Pages::Transparent { HUGE } else { 0 };
                let whole = self.length.checked_add(slack).ok_or(invalid("length"))?;
                let base = mmap(whole, flags, -1)?;
                self.at = base.next_multiple_of(slack.max(1));
                let (head, tail) = (self.at - base, slack - (self.at - base));
                // SAFETY: the surplus at either end of the mapping. If it cannot be cut off it stays, unused.
                unsafe {
                    let _ = (head > 0).then(|| kernel::unmap(base, head));
                    let _ = (tail > 0).then(|| kernel::unmap(self.at + self.length, tail));
                }
                return Ok(());
            }
            Backing::SysV(key) => return self.attach(*key, huge.map_or(0, |_| libc::SHM_HUGETLB | size)),
            Backing::Memfd => {
                let flags = libc::MFD_CLOEXEC | huge.map_or(0, |_| libc::MFD_HUGETLB | size.cast_unsigned());
                // SAFETY: a C string.
                match unsafe { libc::memfd_create(c"ncpu-segment".as_ptr(), flags) } {
                    -1 => return Err(os("memfd_create")),
                    descriptor => descriptor,
                }
            }
            Backing::Posix(_) if huge.is_some() => return Err(invalid("shm_open")),
            Backing::Posix(name) => self.open(name)?,
        };
        self.handle = Handle::Descriptor(descriptor);
        let length = libc::off_t::try_from(self.length).map_err(|_| invalid("length"))?;
        // SAFETY: our own descriptor.
        if unsafe { libc::ftruncate(descriptor, length) } != 0 {
            return Err(os("ftruncate"));
        }
        self.at = mmap(self.length, libc::MAP_SHARED, descriptor)?;
        Ok(())
    }

    fn open(&mut self, name: &CStr) -> Result<i32, Error> {
        // SAFETY: a C string.
        let descriptor = unsafe {
            libc::shm_open(
                name.as_ptr(),
                libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC,
                0o600,
            )
        };
        if descriptor == -1 {
            return Err(os("shm_open"));
        }
        // So that it is closed and unlinked in all cases.
        self.handle = Handle::Descriptor(descriptor);
        match copy(name) {
            Ok(name) => self.name = Some(name),
            Err(error) => {
                // SAFETY: a C string.
                unsafe { libc::shm_unlink(name.as_ptr()) };
                return Err(error);
            }
        }
        Ok(descriptor)
    }

    fn attach(&mut self, key: i32, flags: i32) -> Result<(), Error> {
        let keyed = key != libc::IPC_PRIVATE;
        // SAFETY: makes a new segment and attaches it anywhere.
        unsafe {
            let id = libc::shmget(key, self.length, libc::IPC_CREAT | libc::IPC_EXCL | 0o600 | flags);
            if id == -1 {
                return Err(os("shmget"));
            }
            self.handle = Handle::SysV { id, keyed };
            let at = libc::shmat(id, null(), 0);
            if at as isize == -1 {
                let error = os("shmat");
                libc::shmctl(id, libc::IPC_RMID, null_mut());
                self.handle = Handle::None;
                return Err(error);
            }
            self.at = at as usize;
            // It ends with the last process that has it attached; until then Linux lets others attach it by
            // its identifier.
            if !keyed && libc::shmctl(id, libc::IPC_RMID, null_mut()) != 0 {
                return Err(os("shmctl"));
            }
        }
        Ok(())
    }

    fn advise(&self, pages: Pages) -> Result<(), Error> {
        let (advice, what) = match pages {
            Pages::Base => (libc::MADV_NOHUGEPAGE, "madvise(MADV_NOHUGEPAGE)"),
            Pages::Transparent => (libc::MADV_HUGEPAGE, "madvise(MADV_HUGEPAGE)"),
            Pages::Default | Pages::Huge(_) => return Ok(()),
        };
        match kernel::madvise(self.at, self.length, advice) {
            // A kernel without huge pages: it gives small pages.
            Err(libc::EINVAL) => Ok(()),
            done => done.map_err(Error::new(what)),
        }
    }

    fn place(&self, policy: &Policy) -> Result<(), Error> {
        const LOCAL: i32 = 4;
        let (mode, nodes) = match policy {
            Policy::Default => return Ok(()),
            Policy::Local => (LOCAL, Nodes::none()),
            Policy::Interleave(nodes) if nodes.is_empty() => (libc::MPOL_INTERLEAVE, Nodes::allowed()),
            Policy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, *nodes),
            Policy::Bind(nodes) => (libc::MPOL_BIND, *nodes),
        };
        // The kernel subtracts one from the number of bits, and expects none for the local node.
        let (set, bits) = if mode == LOCAL { (0, 0) } else { (nodes.as_ptr() as usize, Nodes::BITS + 1) };
        // SAFETY: reads a set of this many bits.
        let done = unsafe { call(libc::SYS_mbind, [self.at, self.length, mode as usize, set, bits, 0]) };
        match done {
            // A kernel without NUMA has one node.
            Err(libc::ENOSYS) if mode == LOCAL || Nodes::one(0) == Some(nodes) => Ok(()),
            done => done.map(drop).map_err(Error::new("mbind")),
        }
    }

    /// Makes all missing pages.
    ///
    /// # Errors
    /// The first page that could not be made. Other pages were made; the segment is as usable as before.
    pub fn populate(&self) -> Result<(), Error> {
        populate_pages(
            self.at,
            self.unit,
            Access::Write,
            Pieces::new(self.at, self.length, self.unit, self.helpers),
        )
    }

    /// Locks the segment in memory. Before [`Segment::populate`] that costs next to nothing, and helpers lock
    /// the pages as they make them; after it one thread goes through all pages. Pages of a pool always stay
    /// in memory: for them this does nothing.
    ///
    /// # Errors
    /// `ENOMEM` or `EPERM`: over `RLIMIT_MEMLOCK`. The segment is not locked then.
    pub fn lock(&self) -> Result<(), Error> {
        if self.unit > kernel::page() {
            return Ok(());
        }
        let onfault = kernel::mlock(self.at, self.length, MLOCK_ONFAULT);
        match onfault {
            // Before Linux 4.4: this makes the pages too.
            Err(libc::ENOSYS) => kernel::mlock(self.at, self.length, 0).map_err(Error::new("mlock")),
            done => done.map_err(Error::new("mlock2")),
        }
        .inspect_err(|_| {
            // Undoes the part that was locked before the failure.
            let _ = self.unlock();
        })
    }

    /// Unlocks it. One thread goes through all pages.
    ///
    /// # Errors
    /// None known.
    pub fn unlock(&self) -> Result<(), Error> {
        // SAFETY: unlocking changes no contents.
        unsafe { call(libc::SYS_munlock, [self.at, self.length, 0, 0, 0, 0]) }
            .map(drop)
            .map_err(Error::new("munlock"))
    }

    /// Removes the segment from the address space, with helpers that drop its pages, and frees it. Pages that
    /// other processes share stay until the last of them ends its use.
    ///
    /// # Errors
    /// The first call that failed; the other calls were still made.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.end()
    }

    /// As [`Segment::destroy`], once; later calls do nothing.
    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        let mut first = Ok(());
        let mut note = |failed: bool, what: &'static str| {
            if failed && first.is_ok() {
                first = Err(os(what));
            }
        };
        // Pages of a pool are returned to it quickly.
        if self.at != 0 && self.helpers != Helpers::NONE && self.unit == kernel::page() {
            drop_pages(self.at, self.length, self.unit, self.helpers);
        }
        // SAFETY: our own handles and memory, to which only raw pointers exist elsewhere.
        unsafe {
            let mapped = self.at != 0;
            match self.handle {
                Handle::SysV { id, keyed } => {
                    note(mapped && libc::shmdt(self.at as *const libc::c_void) != 0, "shmdt");
                    note(keyed && libc::shmctl(id, libc::IPC_RMID, null_mut()) != 0, "shmctl");
                }
                Handle::None => {
                    note(mapped && libc::munmap(self.at as *mut libc::c_void, self.length) != 0, "munmap")
                }
                Handle::Descriptor(descriptor) => {
                    if let Some(name) = &self.name {
                        // Another process may have unlinked it before, which is not an error.
                        let failed = libc::shm_unlink(name.as_ptr()) != 0;
                        note(failed && *libc::__errno_location() != libc::ENOENT, "shm_unlink");
                    }
                    note(mapped && libc::munmap(self.at as *mut libc::c_void, self.length) != 0, "munmap");
                    note(libc::close(descriptor) != 0, "close");
                }
            }
        }
        first
    }

    /// Its first byte. Other processes may write the memory at any time, unless the segment is private.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at as *mut u8
    }

    /// Its length in bytes, whole pages.
    #[allow(clippy::len_without_is_empty)] // Never empty.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The descriptor of a memfd or a POSIX segment.
    pub fn descriptor(&self) -> Option<i32> {
        match self.handle {
            Handle::Descriptor(descriptor) => Some(descriptor),
            _ => None,
        }
    }

    /// The identifier of a SysV segment.
    pub fn id(&self) -> Option<i32> {
        match self.handle {
            Handle::SysV { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The NUMA nodes of up to 256 of its pages, spread over it: `(node, pages)`, by node. Missing pages are
    /// left out; empty if the kernel does not report nodes.
    pub fn nodes(&self) -> Vec<(usize, usize)> {
        let units = self.length / self.unit;
        let count = units.min(256);
        // Spread by the golden ratio: equal steps would hit the same node over and over if pages are
        // interleaved.
        let place =
            |i: usize| (u128::from((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) * units as u128) >> 64;
        let pages: Vec<usize> = (0..count)
            .map(|i| self.at + if count == units { i } else { place(i) as usize } * self.unit)
            .collect();
        let mut nodes = vec![-1i32; count];
        let (from, to) = (pages.as_ptr() as usize, nodes.as_mut_ptr() as usize);
        // SAFETY: both have this length; without target nodes the call only reports.
        if unsafe { call(libc::SYS_move_pages, [0, count, from, 0, to, 0]) }.is_err() {
            return Vec::new();
        }
        let mut by: std::collections::BTreeMap<usize, usize> = std::collections::BTreeMap::new();
        nodes
            .into_iter()
            .filter_map(|n| usize::try_from(n).ok())
            .for_each(|n| *by.entry(n).or_default() += 1);
        by.into_iter().collect()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Callers that need the error call `destroy`.
        let _ = self.end();
    }
}

/// A copy of the name, if there is memory for it.
fn copy(name: &CStr) -> Result<CString, Error> {
    let bytes = name.to_bytes_with_nul();
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Error {
        what: "malloc",
        errno: libc::ENOMEM,
        offset: None,
    })?;
    copy.extend_from_slice(bytes);
    CString::from_vec_with_nul(copy).map_err(|_| invalid("name"))
}

fn mmap(length: usize, flags: i32, descriptor: i32) -> Result<usize, Error> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: maps new memory at any address.
    match unsafe { libc::mmap(null_mut(), length, protection, flags, descriptor, 0) } {
        libc::MAP_FAILED => Err(os("mmap")),
        at => Ok(at as usize),
    }
}

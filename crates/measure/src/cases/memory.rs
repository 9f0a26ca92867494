//! Mappings of memory.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::common::{alone, flag, open};
use crate::case::{Batch, Bench, Case, Failure, tried};
use crate::options::{Flag, Options};

const FILE: Flag = flag('f', "FILE", "/dev/zero", "the file mapped; MAP_ANON for none");
const LENGTH: Flag = flag('l', "LENGTH", "8k", "bytes");
const READ: Flag = flag('r', "", "", "read a byte of each page");
const WRITE: Flag = flag('w', "", "", "write a byte to each page");
const SHARED: Flag = flag('s', "", "", "map it shared");

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "mmap",
        about: "map a file or memory",
        flags: &[FILE, LENGTH, READ, WRITE, SHARED],
        setup: |o| {
            let what = Arc::new(Mapping::new(o)?);
            alone(move |_| Ok(Box::new(Map { what: what.clone(), at: Vec::new() }) as Box<dyn Batch>))
        },
    },
    Case {
        name: "munmap",
        about: "unmap a file or memory",
        flags: &[FILE, LENGTH, READ, WRITE, SHARED],
        setup: |o| {
            let what = Arc::new(Mapping::new(o)?);
            alone(move |_| Ok(Box::new(Unmap { what: what.clone(), at: Vec::new() }) as Box<dyn Batch>))
        },
    },
    Case {
        name: "mprotect",
        about: "forbid and allow access to memory, a part after the other and in turn from batch to batch",
        flags: &[
            FILE,
            LENGTH,
            READ,
            WRITE,
            SHARED,
            flag('t', "", "", "touch each page before access is forbidden"),
        ],
        setup: |o| {
            let (what, touch) = (Arc::new(Mapping::new(o)?), o.has('t'));
            alone(move |me| {
                let what = what.clone();
                Ok(Box::new(Protect { what, touch, at: None, turn: me.index }) as Box<dyn Batch>)
            })
        },
    },
    Case {
        name: "msync",
        about: "write a mapping back to its file, which is cut or stretched to its length",
        flags: &[
            FILE,
            LENGTH,
            READ,
            WRITE,
            SHARED,
            flag('a', "", "", "MS_ASYNC in place of MS_SYNC"),
            flag('i', "", "", "MS_INVALIDATE"),
        ],
        setup: msync,
    },
];

const PAGE: usize = 4096;

/// The mapped memory, and its accesses right after.
struct Mapping {
    fd: Option<OwnedFd>,
    len: usize,
    shared: bool,
    read: bool,
    write: bool,
}

impl Mapping {
    fn new(o: &Options) -> Result<Mapping, Failure> {
        let path = o.path('f')?;
        let fd = if path.as_c_str() == c"MAP_ANON" { None } else { Some(open(&path, libc::O_RDWR)?) };
        let len = o.size('l')?;
        if len == 0 || len > isize::MAX as usize {
            return Err(Failure::Usage(format!("-l {len}: give a length above 0 that memory has room for")));
        }
        Ok(Mapping { fd, len, shared: o.has('s'), read: o.has('r'), write: o.has('w') })
    }

    /// Maps `len` bytes; MAP_FAILED where that fails.
    #[inline]
    fn map(&self, len: usize) -> *mut libc::c_void {
        let kind = if self.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let (kind, fd): (i32, RawFd) =
            self.fd.as_ref().map_or((kind | libc::MAP_ANONYMOUS, -1), |fd| (kind, fd.as_raw_fd()));
        // SAFETY: wherever there is room.
        unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, kind, fd, 0) }
    }

    /// Reads or writes each page, as asked for.
    #[inline]
    fn touch(&self, at: *mut libc::c_void, len: usize) {
        let at: *mut u8 = at.cast();
        if self.read {
            read_pages(at, len);
        }
        if self.write {
            for page in (0..len).step_by(PAGE) {
                // SAFETY: within the mapping.
                unsafe { at.add(page).write_volatile(1) };
            }
        }
    }
}

fn read_pages(at: *const u8, len: usize) {
    for page in (0..len).step_by(PAGE) {
        // SAFETY: within the mapping.
        unsafe { at.add(page).read_volatile() };
    }
}

struct Map {
    what: Arc<Mapping>,
    at: Vec<*mut libc::c_void>,
}

impl Batch for Map {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        self.at.resize(n as usize, libc::MAP_FAILED);
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut errors = 0;
        for at in &mut self.at {
            *at = self.what.map(self.what.len);
            if *at == libc::MAP_FAILED {
                errors += 1;
            } else {
                self.what.touch(*at, self.what.len);
            }
        }
        errors
    }

    fn after(&mut self, _: u64) {
        for at in self.at.drain(..).filter(|&at| at != libc::MAP_FAILED) {
            // SAFETY: mapped by this batch.
            unsafe { libc::munmap(at, self.what.len) };
        }
    }
}

struct Unmap {
    what: Arc<Mapping>,
    at: Vec<*mut libc::c_void>,
}

impl Batch for Unmap {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        for _ in 0..n {
            let at = self.what.map(self.what.len);
            if at == libc::MAP_FAILED {
                return Err(Failure::os("mmap"));
            }
            self.what.touch(at, self.what.len);
            self.at.push(at);
        }
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut errors = 0;
        for &at in &self.at {
            // SAFETY: mapped by `before`.
            errors += u64::from(unsafe { libc::munmap(at, self.what.len) } != 0);
        }
        errors
    }

    fn after(&mut self, _: u64) {
        self.at.clear();
    }
}

/// A mapping of `n` parts. libMicro's threads share one; here each has its own, since they would else take
/// away from each other what they touch.
struct Protect {
    what: Arc<Mapping>,
    touch: bool,
    at: Option<(*mut libc::c_void, usize)>,
    turn: usize,
}

impl Protect {
    fn unmap(&mut self) {
        if let Some((at, n)) = self.at.take() {
            // SAFETY: mapped by `before`.
            unsafe { libc::munmap(at, n * self.what.len) };
        }
    }
}

impl Batch for Protect {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        let n = n as usize;
        if self.at.is_some_and(|(_, parts)| parts == n) {
            return Ok(());
        }
        self.unmap();
        let len =
            n.checked_mul(self.what.len).ok_or_else(|| Failure::Usage("-B times -l: too large".into()))?;
        let at = self.what.map(len);
        if at == libc::MAP_FAILED {
            return Err(Failure::os("mmap"));
        }
        self.what.touch(at, len);
        self.at = Some((at, n));
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let Some((at, n)) = self.at else { return 0 };
        let mut errors = 0;
        for i in 0..n {
            // SAFETY: within the mapping.
            let part = unsafe { at.cast::<u8>().add(i * self.what.len) };
            let prot = if (self.turn + i).is_multiple_of(2) {
                if self.touch {
                    read_pages(part, self.what.len);
                }
                libc::PROT_NONE
            } else {
                libc::PROT_READ | libc::PROT_WRITE
            };
            // SAFETY: a part of the mapping, which only this worker uses.
            errors += u64::from(unsafe { libc::mprotect(part.cast(), self.what.len, prot) } != 0);
        }
        self.turn += 1;
        errors
    }
}

impl Drop for Protect {
    fn drop(&mut self) {
        self.unmap();
    }
}

fn msync(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let what = Arc::new(Mapping::new(o)?);
    if let Some(fd) = &what.fd {
        // SAFETY: an open descriptor. A device has no length to set, and needs none.
        unsafe { libc::ftruncate(fd.as_raw_fd(), what.len as libc::off_t) };
    }
    let how = if o.has('a') { libc::MS_ASYNC } else { libc::MS_SYNC }
        | if o.has('i') { libc::MS_INVALIDATE } else { 0 };
    alone(move |_| {
        let (what, at) = (what.clone(), what.map(what.len));
        if at == libc::MAP_FAILED {
            return Err(Failure::os("mmap"));
        }
        Ok(tried(move || {
            // SAFETY: a mapping that lives until the process ends.
            let ok = unsafe { libc::msync(at, what.len, how) } == 0;
            what.touch(at, what.len);
            ok
        }))
    })
}

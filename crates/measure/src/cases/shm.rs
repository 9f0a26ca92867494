//! A shared memory segment: create, lock, destroy, as databases do with their caches.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ncpu_table::size;

use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::memory::{PageSize, pool, room};
use crate::options::{Flag, Options};
use crate::place::Memory;
use crate::runner::now;
use crate::shared::Shared;

const FLAGS: &[Flag] = &[Flag { letter: 's', value: "SIZE", default: "64m", about: "of a segment" }];

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "shm_sysv",
        about: "create, lock in memory and destroy a SysV segment (shmget, shmat, mlock, shmdt)",
        flags: FLAGS,
        setup: |o| segments(o, Kind::SysV),
    },
    Case {
        name: "shm_posix",
        about: "create, lock in memory and destroy a POSIX segment (shm_open, mmap, mlock, munmap)",
        flags: FLAGS,
        setup: |o| segments(o, Kind::Posix),
    },
    Case {
        name: "shm_memfd",
        about: "create, lock in memory and destroy a memfd (memfd_create, mmap, mlock, munmap)",
        flags: FLAGS,
        setup: |o| segments(o, Kind::Memfd),
    },
    Case {
        name: "shm_hugetlb",
        about: "create, lock in memory and destroy a memfd of 2 MiB pages from the pool",
        flags: FLAGS,
        setup: |o| segments(o, Kind::Huge),
    },
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    SysV,
    Posix,
    Memfd,
    Huge,
}

struct Segments {
    kind: Kind,
    bytes: usize,
    /// Segments, and nanoseconds of creating, locking, destroying.
    sums: Shared<[AtomicU64; 4]>,
}

fn segments(o: &Options, kind: Kind) -> Result<Box<dyn Bench>, Failure> {
    let bytes = o.number('s')?.max(4096);
    if kind == Kind::Huge {
        let free = pool(PageSize::Huge2M, Path::new("/"))?;
        if bytes > free << 21 {
            let free = size::words(free << 21);
            return Err(Failure::Lacks(format!("-s {}: {free} of huge pages are free", size::words(bytes))));
        }
    } else {
        room(bytes, Memory::Default, &ncpu_machine::Topology::default(), Path::new("/"))?;
    }
    let sums = Shared::new(std::array::from_fn(|_| AtomicU64::new(0)))?;
    Ok(Box::new(Segments { kind, bytes: bytes as usize, sums }))
}

/// A mapped segment and what it goes by.
struct Segment {
    at: *mut libc::c_void,
    handle: i32,
}

impl Segments {
    fn create(&self, name: &CString) -> Result<Segment, Failure> {
        // SAFETY: system calls that make fresh objects; each handle is checked before it is used.
        unsafe {
            if self.kind == Kind::SysV {
                let id = libc::shmget(libc::IPC_PRIVATE, self.bytes, libc::IPC_CREAT | 0o600);
                if id == -1 {
                    return Err(Failure::os("shmget"));
                }
                let at = libc::shmat(id, std::ptr::null(), 0);
                let failed = (at as isize == -1).then(|| Failure::os("shmat"));
                // Marked at once: it goes with the last that has it mapped, come what may.
                libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
                return failed.map_or(Ok(Segment { at, handle: id }), Err);
            }
            let fd = if self.kind == Kind::Posix {
                let fd = libc::shm_open(name.as_ptr(), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600);
                libc::shm_unlink(name.as_ptr());
                fd
            } else {
                libc::memfd_create(
                    c"ncpu".as_ptr(),
                    if self.kind == Kind::Huge { libc::MFD_HUGETLB } else { 0 },
                )
            };
            if fd == -1 {
                return Err(Failure::os(if self.kind == Kind::Posix { "shm_open" } else { "memfd_create" }));
            }
            let (access, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let at = if libc::ftruncate(fd, self.bytes as libc::off_t) == 0 {
                libc::mmap(std::ptr::null_mut(), self.bytes, access, share, fd, 0)
            } else {
                libc::MAP_FAILED
            };
            if at == libc::MAP_FAILED {
                let failure = Failure::os("mapping the segment");
                libc::close(fd);
                return Err(failure);
            }
            Ok(Segment { at, handle: fd })
        }
    }

    fn destroy(&self, segment: &Segment) {
        // SAFETY: mapped by `create` with this length, and not used after.
        unsafe {
            if self.kind == Kind::SysV {
                libc::shmdt(segment.at);
            } else {
                libc::munmap(segment.at, self.bytes);
                libc::close(segment.handle);
            }
        }
    }

    /// Creates, locks and destroys one, and adds up how long each took.
    fn once(&self, name: &CString) -> Result<(), Failure> {
        let begin = now();
        let segment = self.create(name)?;
        let created = now();
        // SAFETY: the segment's own memory. Locking makes all its pages.
        let locked = unsafe { libc::mlock(segment.at, self.bytes) };
        let failure = (locked != 0).then(|| Failure::os("mlock"));
        let lock_done = now();
        self.destroy(&segment);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let times = [1, created - begin, lock_done - created, now() - lock_done];
        for (sum, time) in self.sums.iter().zip(times) {
            sum.fetch_add(time, Relaxed);
        }
        Ok(())
    }
}

impl Bench for Segments {
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let name = CString::new(format!("/ncpu-bench.{}.{}", std::process::id(), me.index))
            .map_err(|e| Failure::Failed(e.to_string()))?;
        // Once to see that it can be done at all, with the reason where it cannot.
        self.once(&name).map_err(|e| {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a live rlimit.
            unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
            match e {
                Failure::Failed(why) if why.starts_with("mlock") && limit.rlim_cur < self.bytes as u64 => {
                    Failure::Lacks(format!(
                        "{why}: at most {} may be locked; raise `ulimit -l`, or run as root",
                        size::words(limit.rlim_cur)
                    ))
                }
                e => e,
            }
        })?;
        Ok(crate::case::tried(move || self.once(&name).is_ok()))
    }
    fn batch(&self) -> Option<u64> {
        Some(1)
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let load = |i: usize| self.sums[i].load(Relaxed) as f64;
        let gigabytes = load(0) * self.bytes as f64 / (1u64 << 30) as f64;
        let per_gb = |i: usize| load(i) / 1e6 / gigabytes.max(f64::MIN_POSITIVE);
        vec![
            ("ms/GB", per_gb(1) + per_gb(2) + per_gb(3)),
            ("create", per_gb(1)),
            ("lock", per_gb(2)),
            ("destroy", per_gb(3)),
        ]
    }
}

//! Files: opening, reading, writing, seeking, asking after them.

use std::os::fd::{AsRawFd, RawFd};

use super::common::{Opens, alone, close_all, descriptors, file, flag, nameless, on, open};
use crate::case::{Batch, Batches, Bench, Case, Failure, tried};
use crate::options::{Flag, Options, WORDS};
use crate::shared::Area;

const SIZE: Flag = flag('s', "SIZE", "1k", "bytes");
const TOUCH: Flag = flag('w', "", "", "write a byte to each page after it was read");
const CACHED: Flag = flag('c', "", "", "have the bytes in cache");

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "open", about: "open a file", flags: &[file("/dev/null")], setup: opening },
    Case {
        name: "close",
        about: "close a file",
        flags: &[file("/dev/null"), flag('b', "", "", "try to close a descriptor that is not open")],
        setup: closing,
    },
    Case {
        name: "dup",
        about: "duplicate a file descriptor",
        flags: &[file("/dev/null")],
        setup: |o| {
            let (path, threads) = (o.path('f')?, o.threads());
            Ok(Box::new(Batches(256, move |_| {
                let fd = open(&path, libc::O_RDONLY)?;
                // SAFETY: an open descriptor.
                Ok(Opens::boxed(threads, move || unsafe { libc::dup(fd.as_raw_fd()) }))
            })))
        },
    },
    Case {
        name: "stat",
        about: "ask after a file by its name",
        flags: &[file("/dev/null")],
        setup: |o| {
            let path = o.path('f')?;
            alone(move |_| {
                let path = path.clone();
                Ok(tried(move || {
                    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
                    // SAFETY: a name that ends in a zero and room for a stat.
                    unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) == 0 }
                }))
            })
        },
    },
    Case {
        name: "realpath",
        about: "resolve the name of a directory",
        flags: &[flag('f', "DIRECTORY", "/", "the directory")],
        setup: |o| {
            let path = o.path('f')?;
            alone(move |_| {
                let (path, mut name) = (path.clone(), [0; libc::PATH_MAX as usize]);
                // SAFETY: a name that ends in a zero, and room for the longest one.
                Ok(tried(move || !unsafe { libc::realpath(path.as_ptr(), name.as_mut_ptr()) }.is_null()))
            })
        },
    },
    Case {
        name: "chdir",
        about: "change directory, to each of several in turn",
        flags: &[
            flag('g', "", "", "ask for its name, too"),
            flag(WORDS, "DIRECTORY...", "/", "the directories"),
        ],
        setup: chdir,
    },
    Case {
        name: "fcntl",
        about: "ask for the flags of an open file",
        flags: &[file("/dev/null")],
        setup: |o| {
            let path = o.path('f')?;
            alone(move |_| {
                Ok(on(open(&path, libc::O_RDONLY)?, |fd| {
                    // SAFETY: an open descriptor.
                    unsafe { libc::fcntl(fd, libc::F_GETFL) != -1 }
                }))
            })
        },
    },
    Case {
        name: "lseek",
        about: "go to the begin of a file and to a place in it, in turn",
        flags: &[file("/dev/zero"), flag('s', "OFFSET", "1k", "the place")],
        setup: |o| {
            let (path, there) = (o.path('f')?, o.number('s')? as libc::off_t);
            alone(move |_| {
                let mut at = there;
                Ok(on(open(&path, libc::O_RDONLY)?, move |fd| {
                    at = there - at;
                    // SAFETY: an open descriptor. Devices may stay where they are.
                    unsafe { libc::lseek(fd, at, libc::SEEK_SET) != -1 }
                }))
            })
        },
    },
    Case {
        name: "file_lock",
        about: "lock and unlock a byte of a file that nobody else locks",
        flags: &[],
        setup: |_| {
            let fd = nameless(c"/tmp")?;
            alone(move |_| {
                let fd = fd.as_raw_fd();
                Ok(tried(move || lock_byte(fd, 0, libc::F_WRLCK) & lock_byte(fd, 0, libc::F_UNLCK)))
            })
        },
    },
    Case {
        name: "read",
        about: "read from a file, one piece after the other",
        flags: &[file("/dev/zero"), SIZE, TOUCH],
        setup: |o| io(o, Io::Read),
    },
    Case {
        name: "pread",
        about: "read from the begin of a file",
        flags: &[file("/dev/zero"), SIZE, TOUCH],
        setup: |o| io(o, Io::Pread),
    },
    Case {
        name: "write",
        about: "write to a file, one piece after the other",
        flags: &[file("/dev/null"), SIZE, CACHED],
        setup: |o| io(o, Io::Write),
    },
    Case {
        name: "pwrite",
        about: "write to the begin of a file",
        flags: &[file("/dev/null"), SIZE, CACHED],
        setup: |o| io(o, Io::Pwrite),
    },
    Case {
        name: "writev",
        about: "write several pieces to a file at once",
        flags: &[file("/dev/null"), SIZE, flag('v', "N", "10", "pieces")],
        setup: |o| io(o, Io::Writev(o.size('v')?)),
    },
];

fn opening(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (path, threads) = (o.path('f')?, o.threads());
    open(&path, libc::O_RDONLY)?;
    Ok(Box::new(Batches(256, move |_| {
        let path = path.clone();
        // SAFETY: a name that ends in a zero.
        Ok(Opens::boxed(threads, move || unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) }))
    })))
}

struct Close {
    path: std::ffi::CString,
    bad: bool,
    threads: u64,
    fds: Vec<RawFd>,
}

impl Batch for Close {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        if self.bad {
            self.fds = (0..n as RawFd).map(|i| i + 1024).collect();
            return Ok(());
        }
        descriptors(n * self.threads)?;
        close_all(&mut self.fds);
        for _ in 0..n {
            // SAFETY: a name that ends in a zero.
            match unsafe { libc::open(self.path.as_ptr(), libc::O_RDONLY) } {
                -1 => return Err(Failure::os(&self.path.to_string_lossy())),
                fd => self.fds.push(fd),
            }
        }
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut failed = 0;
        for &fd in &self.fds {
            // SAFETY: opened by `before`, or open for nobody.
            failed += u64::from(unsafe { libc::close(fd) } != 0);
        }
        if self.bad { self.fds.len() as u64 - failed } else { failed }
    }

    fn after(&mut self, _: u64) {
        self.fds.clear();
    }
}

fn closing(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (path, bad, threads) = (o.path('f')?, o.has('b'), o.threads() as u64);
    if bad && threads > 900 {
        return Err(Failure::Failed(
            "-b: descriptors from 1024 on are in use with this number of threads".into(),
        ));
    }
    Ok(Box::new(Batches(256, move |_| {
        Ok(Box::new(Close { path: path.clone(), bad, threads, fds: Vec::new() }) as Box<dyn Batch>)
    })))
}

fn chdir(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let dirs: Result<Vec<_>, _> = o.all(WORDS).iter().map(|d| std::ffi::CString::new(d.as_str())).collect();
    let dirs = dirs.map_err(|e| Failure::Failed(e.to_string()))?;
    let ask = o.has('g');
    for dir in &dirs {
        open(dir, libc::O_DIRECTORY)?;
    }
    alone(move |_| {
        let (dirs, mut next, mut name) = (dirs.clone(), 0, [0; 1024]);
        Ok(tried(move || {
            let dir = &dirs[next];
            next = if next + 1 == dirs.len() { 0 } else { next + 1 };
            // SAFETY: names that end in a zero; the buffer has the given length.
            unsafe {
                let there = libc::chdir(dir.as_ptr()) == 0;
                there & (!ask || !libc::getcwd(name.as_mut_ptr(), name.len()).is_null())
            }
        }))
    })
}

/// Locks or unlocks a byte, waiting for it; whether it went well.
pub fn lock_byte(fd: RawFd, byte: i64, kind: i32) -> bool {
    let lock =
        libc::flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: byte, l_len: 1, l_pid: 0 };
    let call = if kind == libc::F_UNLCK { libc::F_SETLK } else { libc::F_SETLKW };
    // SAFETY: an open descriptor and a live flock.
    unsafe { libc::fcntl(fd, call, &raw const lock) != -1 }
}

#[derive(Clone, Copy, PartialEq)]
enum Io {
    Read,
    Pread,
    Write,
    Pwrite,
    Writev(usize),
}

struct Transfer {
    io: Io,
    fd: std::os::fd::OwnedFd,
    buffer: Area,
    size: usize,
    touch: bool,
    pieces: Vec<libc::iovec>,
}

/// As malloc's memory lies: not at a page's begin.
pub const OFF: usize = 16;
const PAGE: usize = 4096;
/// For sizes from this on, memory is likely to come from the system.
const FRESH: usize = 64 << 10;

impl Transfer {
    #[inline(always)]
    fn repeat(&mut self, n: u64, whole: usize, call: impl Fn(RawFd, *mut libc::c_void) -> isize) -> u64 {
        // SAFETY: the area is longer by OFF.
        let at = unsafe { self.buffer.at().add(OFF) };
        let mut errors = 0;
        for _ in 0..n {
            errors += u64::from(call(self.fd.as_raw_fd(), at.cast()) != whole as isize);
            if self.touch {
                touch(at, self.size, 0);
            }
        }
        errors
    }
}

/// Writes a byte to each page.
fn touch(at: *mut u8, size: usize, byte: u8) {
    for page in (0..size).step_by(PAGE) {
        // SAFETY: within the buffer.
        unsafe { at.add(page).write_volatile(byte) };
    }
}

impl Batch for Transfer {
    fn before(&mut self, _: u64) -> Result<(), Failure> {
        // SAFETY: an open descriptor. A pipe or terminal does not seek, and does not need to.
        unsafe { libc::lseek(self.fd.as_raw_fd(), 0, libc::SEEK_SET) };
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let (size, pieces) = (self.size, self.pieces.as_ptr());
        // SAFETY: the buffer holds `size` bytes, and so does each piece.
        unsafe {
            match self.io {
                Io::Read => self.repeat(n, size, |fd, at| libc::read(fd, at, size)),
                Io::Pread => self.repeat(n, size, |fd, at| libc::pread(fd, at, size, 0)),
                Io::Write => self.repeat(n, size, |fd, at| libc::write(fd, at, size)),
                Io::Pwrite => self.repeat(n, size, |fd, at| libc::pwrite(fd, at, size, 0)),
                Io::Writev(v) => self.repeat(n, v * size, |fd, _| libc::writev(fd, pieces, v as i32)),
            }
        }
    }
}

/// A file's batches end where the file does.
struct Files<F> {
    make: F,
    most: Option<u64>,
}

impl<F: Fn() -> Result<Box<dyn Batch>, Failure> + Sync> Bench for Files<F> {
    fn worker(&self, _: crate::case::Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        (self.make)()
    }

    fn most(&self) -> Option<u64> {
        self.most
    }
}

fn io(o: &Options, io: Io) -> Result<Box<dyn Bench>, Failure> {
    let (path, size) = (o.path('f')?, o.size('s')?);
    let (touch_after, cached) = (o.has('w'), o.has('c'));
    let reads = matches!(io, Io::Read | Io::Pread);
    let count = if let Io::Writev(v) = io { v } else { 1 };
    if size == 0 || count == 0 || count > libc::UIO_MAXIOV as usize {
        return Err(Failure::Failed("give a size above 0, and 1 to 1024 pieces".into()));
    }
    let flags = if reads { libc::O_RDONLY } else { libc::O_WRONLY };
    let file = std::fs::File::from(open(&path, flags)?);
    let end = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
    let most = end.filter(|_| !matches!(io, Io::Pread | Io::Pwrite)).map(|end| end / (size * count) as u64);
    let make = move || -> Result<Box<dyn Batch>, Failure> {
        // libMicro's pieces are a buffer each; the cache should see the same amount here.
        let buffer = Area::new((size + PAGE) * count)?;
        // As malloc's: small blocks were used before, large ones are fresh, which the kernel reads as the one page of
        // zeroes.
        if cached || (!reads && size < FRESH) {
            touch(buffer.at(), (size + PAGE) * count, 1);
        }
        let piece = |i: usize| libc::iovec {
            // SAFETY: within the area.
            iov_base: unsafe { buffer.at().add(i * size + OFF) }.cast(),
            iov_len: size,
        };
        let pieces = (0..count).map(piece).collect();
        Ok(Box::new(Transfer { io, fd: open(&path, flags)?, buffer, size, touch: touch_after, pieces }))
    };
    Ok(Box::new(Files { make, most }))
}

//! Messages there and back: through a pipe, a fifo, a local socket, TCP; to oneself, a thread, a process.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread::JoinHandle;

use super::common::{alone, descriptors, flag, one_of, open, owned};
use super::files::OFF;
use super::sockets::connected;
use crate::case::{Batch, Case, Failure};
use crate::shared::Area;

/// The cases of this file.
pub const CASES: &[Case] = &[Case {
    name: "pipe",
    about: "write a message and read one back",
    flags: &[
        flag('s', "SIZE", "1k", "bytes of a message"),
        flag('m', "MODE", "st", "who answers: st oneself, mt another thread, mp another process"),
        flag('x', "TRANSPORT", "pipe", "pipe, fifo, sock (local sockets) or tcp"),
    ],
    setup: |o| {
        let (size, threads) = (o.size('s')?, o.threads() as u64);
        let mode = one_of(o, 'm', &[("st", Mode::Single), ("mt", Mode::Thread), ("mp", Mode::Process)])?;
        let make = one_of::<Make>(
            o,
            'x',
            &[
                ("pipe", pipes as Make),
                ("fifo", fifos as Make),
                ("sock", sockets as Make),
                ("tcp", tcp as Make),
            ],
        )?;
        if size == 0 || (mode == Mode::Single && size > 64 << 10) {
            return Err(Failure::Failed(format!(
                "-s {size}: give at least 1, and with -m st at most 64k, since a pipe holds no more"
            )));
        }
        descriptors(4 * threads)?;
        drop(make(mode)?);
        alone(move |_| {
            let buffers = [Area::new(size + OFF)?, Area::new(size + OFF)?];
            Ok(Box::new(Loop { mode, make, size, buffers, ends: None, other: Other::None }) as Box<dyn Batch>)
        })
    },
}];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Single,
    Thread,
    Process,
}

/// The ends that this side reads and writes, and those of its partner; a single thread has no partner.
struct Ends {
    ours: [OwnedFd; 2],
    theirs: Option<[OwnedFd; 2]>,
}

type Make = fn(Mode) -> Result<Ends, Failure>;

fn pipe() -> Result<[OwnedFd; 2], Failure> {
    let mut fds = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(fds.as_mut_ptr()) } != 0 {
        return Err(Failure::os("pipe"));
    }
    Ok([owned(fds[0])?, owned(fds[1])?])
}

/// One way, or two ways between us and the other.
fn ways(mode: Mode, way: impl Fn() -> Result<[OwnedFd; 2], Failure>) -> Result<Ends, Failure> {
    let [from, to] = way()?;
    if mode == Mode::Single {
        return Ok(Ends { ours: [from, to], theirs: None });
    }
    let [their_from, their_to] = way()?;
    Ok(Ends { ours: [from, their_to], theirs: Some([their_from, to]) })
}

fn pipes(mode: Mode) -> Result<Ends, Failure> {
    ways(mode, pipe)
}

fn fifos(mode: Mode) -> Result<Ends, Failure> {
    ways(mode, || {
        let dir = tempfile::tempdir()?;
        let path = std::ffi::CString::new(dir.path().join("fifo").into_os_string().into_encoded_bytes())
            .map_err(|e| Failure::Failed(e.to_string()))?;
        // SAFETY: a name that ends in a zero.
        if unsafe { libc::mkfifo(path.as_ptr(), 0o600) } != 0 {
            return Err(Failure::os("mkfifo"));
        }
        // Opened for both, it does not wait for the other side.
        let both = open(&path, libc::O_RDWR)?;
        let ends = [open(&path, libc::O_RDONLY)?, open(&path, libc::O_WRONLY)?];
        drop(both);
        Ok(ends)
    })
}

/// A connection; alone, what one writes to one end one reads from the other.
fn two_way(mode: Mode, a: OwnedFd, b: OwnedFd) -> Result<Ends, Failure> {
    Ok(match mode {
        Mode::Single => Ends { ours: [b, a], theirs: None },
        _ => Ends { ours: [a.try_clone()?, a], theirs: Some([b.try_clone()?, b]) },
    })
}

fn sockets(mode: Mode) -> Result<Ends, Failure> {
    let (a, b) = std::os::unix::net::UnixStream::pair()?;
    two_way(mode, a.into(), b.into())
}

fn tcp(mode: Mode) -> Result<Ends, Failure> {
    let (a, b) = connected()?;
    a.set_nodelay(true)?;
    b.set_nodelay(true)?;
    two_way(mode, a.into(), b.into())
}

/// The thread or process that answers.
enum Other {
    None,
    Thread(JoinHandle<()>),
    Process(i32),
}

struct Loop {
    mode: Mode,
    make: Make,
    size: usize,
    buffers: [Area; 2],
    ends: Option<Ends>,
    other: Other,
}

/// Writes a message.
fn send(fd: RawFd, at: *const u8, size: usize) -> bool {
    // SAFETY: the buffer has `size` bytes.
    unsafe { libc::write(fd, at.cast(), size) == size as isize }
}

/// Reads a message, in any number of pieces.
fn receive(fd: RawFd, at: *mut u8, size: usize) -> bool {
    let mut got = 0;
    while got < size {
        // SAFETY: the buffer has `size` bytes.
        let n = unsafe { libc::read(fd, at.add(got).cast(), size - got) };
        if n < 1 {
            return false;
        }
        got += n as usize;
    }
    true
}

/// Answers `n` messages. Allocates nothing, since it runs after fork beside threads.
fn answer(from: RawFd, to: RawFd, buffers: [usize; 2], size: usize, n: u64) {
    for _ in 0..n {
        if !receive(from, buffers[0] as *mut u8, size) || !send(to, buffers[1] as *const u8, size) {
            return;
        }
    }
}

impl Loop {
    fn buffer(&self, i: usize) -> *mut u8 {
        // SAFETY: the area is longer by OFF.
        unsafe { self.buffers[i].at().add(OFF) }
    }
}

impl Batch for Loop {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        let mut ends = (self.make)(self.mode)?;
        // Addresses, so that they may go to another thread, which is joined before the buffers go.
        let (size, buffers) = (self.size, [self.buffer(0) as usize, self.buffer(1) as usize]);
        // One to begin with and one to end with.
        let n = n + 2;
        match self.mode {
            Mode::Single => {}
            Mode::Thread => {
                if let Some(theirs) = ends.theirs.take() {
                    let work = move || answer(theirs[0].as_raw_fd(), theirs[1].as_raw_fd(), buffers, size, n);
                    let thread = std::thread::Builder::new().spawn(work)?;
                    self.other = Other::Thread(thread);
                }
            }
            // SAFETY: the child does system calls only.
            Mode::Process => match unsafe { libc::fork() } {
                -1 => return Err(Failure::os("fork")),
                0 => {
                    if let Some([from, to]) = &ends.theirs {
                        answer(from.as_raw_fd(), to.as_raw_fd(), buffers, size, n);
                    }
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(0) }
                }
                pid => {
                    ends.theirs = None;
                    self.other = Other::Process(pid);
                }
            },
        }
        self.ends = Some(ends);
        if self.run(1) != 0 {
            return Err(Failure::os("the first message"));
        }
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let Some(Ends { ours: [from, to], .. }) = &self.ends else { return n };
        let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
        let (there, back) = (self.buffer(1), self.buffer(0));
        let mut errors = 0;
        for _ in 0..n {
            errors += u64::from(!send(to, there, self.size) || !receive(from, back, self.size));
        }
        errors
    }

    fn after(&mut self, _: u64) {
        self.run(1);
        self.ends = None;
        match std::mem::replace(&mut self.other, Other::None) {
            Other::None => {}
            // A panic there has been reported already.
            Other::Thread(thread) => drop(thread.join()),
            Other::Process(pid) => {
                // SAFETY: our child; its status does not matter.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
        }
    }
}

//! Calls that wait for files, sockets and asynchronous I/O.

use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::ptr::{null, null_mut};
use std::time::Duration;

use super::{MS, Wait, made, owned, timespec, timeval, waited};

pub fn poll() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let ms = i32::try_from(ns.div_ceil(MS)).map_err(io::Error::other)?;
        // SAFETY: no descriptors.
        waited(unsafe { libc::poll(null_mut(), 0, ms) })
    }))
}

pub fn ppoll() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let t = timespec(ns);
        // SAFETY: no descriptors, no mask, a live local.
        waited(unsafe { libc::ppoll(null_mut(), 0, &raw const t, null()) })
    }))
}

pub fn select() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let mut t = timeval(ns);
        // SAFETY: no sets, a live local.
        waited(unsafe { libc::select(0, null_mut(), null_mut(), null_mut(), &raw mut t) })
    }))
}

pub fn pselect() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let t = timespec(ns);
        // SAFETY: no sets, no mask, a live local.
        waited(unsafe { libc::pselect(0, null_mut(), null_mut(), null_mut(), &raw const t, null()) })
    }))
}

pub fn epoll_wait() -> io::Result<Wait> {
    // SAFETY: takes flags.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    Ok(Box::new(move |ns| {
        let ms = i32::try_from(ns.div_ceil(MS)).map_err(io::Error::other)?;
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for the one event asked for.
        waited(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, ms) })
    }))
}

pub fn epoll_pwait2() -> io::Result<Wait> {
    // SAFETY: takes flags.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    Ok(Box::new(move |ns| {
        let (mut event, t) = (libc::epoll_event { events: 0, u64: 0 }, timespec(ns));
        let none = null::<libc::sigset_t>();
        // SAFETY: room for the one event asked for, a live local, no mask. By number, since the
        // C library has it only from glibc 2.35 on.
        waited(unsafe {
            libc::syscall(libc::SYS_epoll_pwait2, epoll.as_raw_fd(), &raw mut event, 1, &raw const t, none, 0)
        })
    }))
}

/// A context of Linux's own asynchronous I/O.
struct Aio(libc::c_ulong);

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: made by io_setup, destroyed once.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

pub fn io_getevents() -> io::Result<Wait> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: a live local.
    made(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) })?;
    let context = Aio(context);
    Ok(Box::new(move |ns| {
        let Aio(context) = &context;
        let (mut event, t) = ([0u64; 4], timespec(ns)); // struct io_event
        // SAFETY: room for the one event asked for, a live local.
        waited(unsafe { libc::syscall(libc::SYS_io_getevents, *context, 1, 1, &raw mut event, &raw const t) })
    }))
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct GetEvents {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timeout: u64,
}

pub fn io_uring_enter() -> io::Result<Wait> {
    const GETEVENTS: u32 = 1;
    const EXT_ARG: u32 = 1 << 3;
    let mut params = [0u32; 30]; // struct io_uring_params
    // SAFETY: a live local of the size of the parameters.
    let ring = owned(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut params) })?;
    Ok(Box::new(move |ns| {
        let t = timespec(ns);
        let arg = GetEvents { sigmask: 0, sigmask_size: 0, min_wait_us: 0, timeout: (&raw const t) as u64 };
        let (flags, size) = (GETEVENTS | EXT_ARG, size_of::<GetEvents>());
        // SAFETY: the argument and the time it points to are live locals.
        waited(unsafe {
            libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), 0, 1, flags, &raw const arg, size)
        })
    }))
}

/// A read of an empty pipe, under way.
struct Reading {
    control: Box<libc::aiocb>,
    _byte: Box<u8>,
    _reader: OwnedFd,
    writer: Option<OwnedFd>,
}

// SAFETY: the C library reads into the boxes whichever thread holds them.
unsafe impl Send for Reading {}

impl Reading {
    fn suspend(&self, time: *const libc::timespec) -> i32 {
        let list = [&raw const *self.control];
        // SAFETY: one control block, which lives until `self` is dropped.
        unsafe { libc::aio_suspend(list.as_ptr(), 1, time) }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.writer = None; // the read ends
        // SAFETY: the block is alive until the read has ended.
        while unsafe { libc::aio_error(&raw const *self.control) } == libc::EINPROGRESS {
            self.suspend(null());
        }
    }
}

pub fn aio_suspend() -> io::Result<Wait> {
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors, which are ours when it succeeds.
    let (reader, writer) = unsafe {
        made(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC))?;
        (OwnedFd::from_raw_fd(pipe[0]), OwnedFd::from_raw_fd(pipe[1]))
    };
    let mut byte = Box::new(0u8);
    // SAFETY: all zero is a control block that notifies nobody.
    let mut control: Box<libc::aiocb> = Box::new(unsafe { std::mem::zeroed() });
    (control.aio_fildes, control.aio_buf, control.aio_nbytes) =
        (reader.as_raw_fd(), (&raw mut *byte).cast(), 1);
    control.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    // SAFETY: block and buffer are boxed and outlive the read, as `Reading` waits for its end.
    made(unsafe { libc::aio_read(&raw mut *control) })?;
    let reading = Reading { control, _byte: byte, _reader: reader, writer: Some(writer) };
    Ok(Box::new(move |ns| {
        let t = timespec(ns);
        waited(reading.suspend(&raw const t))
    }))
}

fn would_block<T>(result: io::Result<T>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
        _ => Ok(()),
    }
}

pub fn recv() -> io::Result<Wait> {
    let (socket, peer) = UnixDatagram::pair()?;
    Ok(Box::new(move |ns| {
        let _ = &peer;
        socket.set_read_timeout(Some(Duration::from_nanos(ns.next_multiple_of(super::US))))?;
        would_block(socket.recv(&mut [0]))
    }))
}

pub fn send() -> io::Result<Wait> {
    let (mut socket, peer) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    while socket.write(&[0; 4096]).is_ok() {}
    socket.set_nonblocking(false)?;
    Ok(Box::new(move |ns| {
        let _ = &peer;
        socket.set_write_timeout(Some(Duration::from_nanos(ns.next_multiple_of(super::US))))?;
        would_block(socket.write(&[0; 4096]))
    }))
}

pub fn accept() -> io::Result<Wait> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(Box::new(move |ns| {
        let t = timeval(ns);
        let size = size_of::<libc::timeval>() as u32;
        // SAFETY: a live local and its size.
        made(unsafe {
            let t = (&raw const t).cast();
            libc::setsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, t, size)
        })?;
        would_block(listener.accept())
    }))
}

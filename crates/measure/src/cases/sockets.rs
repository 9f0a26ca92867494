//! Sockets and connections.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use super::common::{Opens, alone, close_all, descriptors, flag, on, one_of, owned};
use crate::case::{Batch, Batches, Bench, Case, Failure};
use crate::options::Options;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "socket",
        about: "make a socket",
        flags: &[flag('f', "FAMILY", "PF_UNIX", "PF_UNIX, PF_INET or PF_INET6")],
        setup: |o| {
            let known =
                [("PF_UNIX", libc::PF_UNIX), ("PF_INET", libc::PF_INET), ("PF_INET6", libc::PF_INET6)];
            let (family, threads) = (one_of(o, 'f', &known)?, o.threads());
            socket(family)?;
            Ok(Box::new(Batches(256, move |_| {
                // SAFETY: plain numbers.
                Ok(Opens::boxed(threads, move || unsafe { libc::socket(family, libc::SOCK_STREAM, 0) }))
            })))
        },
    },
    Case {
        name: "socketpair",
        about: "make two local sockets that are connected",
        flags: &[],
        setup: |o| {
            let threads = o.threads() as u64;
            Ok(Box::new(Batches(128, move |_| {
                Ok(Box::new(Pairs { threads, fds: Vec::new() }) as Box<dyn Batch>)
            })))
        },
    },
    Case {
        name: "setsockopt",
        about: "set TCP_NODELAY and clear it, in turn",
        flags: &[],
        setup: |_| {
            socket(libc::AF_INET)?;
            alone(|_| {
                let mut value = 0i32;
                Ok(on(socket(libc::AF_INET)?, move |fd| {
                    value ^= 1;
                    // SAFETY: an int, as the option wants.
                    unsafe {
                        libc::setsockopt(
                            fd,
                            libc::IPPROTO_TCP,
                            libc::TCP_NODELAY,
                            (&raw const value).cast(),
                            4,
                        ) == 0
                    }
                }))
            })
        },
    },
    Case {
        name: "fcntl_ndelay",
        about: "ask for the flags of a socket and change O_NDELAY, in turn",
        flags: &[],
        setup: |_| {
            socket(libc::AF_INET)?;
            alone(|_| {
                let (mut flags, mut set) = (0, true);
                Ok(on(socket(libc::AF_INET)?, move |fd| {
                    set = !set;
                    if set {
                        flags ^= libc::O_NONBLOCK;
                        // SAFETY: an open descriptor.
                        return unsafe { libc::fcntl(fd, libc::F_SETFL, flags) != -1 };
                    }
                    // SAFETY: as above.
                    flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
                    flags != -1
                }))
            })
        },
    },
    Case {
        name: "getsockname",
        about: "ask for a socket's address",
        flags: &[],
        setup: |_| {
            let fd = OwnedFd::from(listener()?);
            name(fd, libc::getsockname)
        },
    },
    Case {
        name: "getpeername",
        about: "ask for the address of a socket's peer",
        flags: &[],
        setup: |_| {
            let (_, accepted) = connected()?;
            name(accepted.into(), libc::getpeername)
        },
    },
    Case {
        name: "bind",
        about: "give a socket an address",
        flags: &[flag('z', "", "", "any free port, in place of those from 12345 on")],
        setup: bind,
    },
    Case {
        name: "listen",
        about: "make a socket listen, with a backlog of 4 and of 5, in turn",
        flags: &[],
        setup: |_| {
            let fd = listener()?;
            alone(move |_| {
                let (fd, mut backlog) = (fd.try_clone()?.into(), 5);
                Ok(on(fd, move |fd| {
                    backlog = 9 - backlog;
                    // SAFETY: an open descriptor.
                    unsafe { libc::listen(fd, backlog) == 0 }
                }))
            })
        },
    },
    Case {
        name: "connection",
        about: "connect to a local socket and accept it",
        flags: &[flag('a', "", "", "accept only"), flag('c', "", "", "connect only, without waiting")],
        setup: |o| {
            let how = match (o.has('a'), o.has('c')) {
                (true, _) => How::Accept,
                (_, true) => How::Connect,
                _ => How::Both,
            };
            connections(o, how)
        },
    },
    Case {
        name: "close_tcp",
        about: "close a connection at the side that accepted it",
        flags: &[],
        setup: |o| connections(o, How::Close),
    },
];

/// A machine, or a network namespace, may be without IPv4 or its loopback.
fn lacks(e: std::io::Error) -> Failure {
    Failure::Lacks(format!("needs TCP over the loopback address 127.0.0.1: {e}"))
}

/// A TCP or local socket.
pub fn socket(family: i32) -> Result<OwnedFd, Failure> {
    // SAFETY: plain numbers.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
        .map_err(|e| Failure::Lacks(format!("no sockets of this family: {e}")))
}

/// Listens at a free port of the loopback address.
pub fn listener() -> Result<TcpListener, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(lacks)
}

/// Two ends of a connection: the one that connected, the one that accepted.
pub fn connected() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = listener()?;
    let from = TcpStream::connect(listener.local_addr()?).map_err(lacks)?;
    Ok((from, listener.accept().map_err(lacks)?.0))
}

type Name = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name(fd: OwnedFd, call: Name) -> Result<Box<dyn Bench>, Failure> {
    alone(move |_| {
        Ok(on(fd.try_clone()?, move |fd| {
            let mut at = sockaddr(0);
            let mut len = LEN;
            // SAFETY: room for an address of the length told.
            unsafe { call(fd, (&raw mut at).cast(), &raw mut len) == 0 }
        }))
    })
}

const LEN: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

/// A port of the loopback address, as the kernel takes it.
fn sockaddr(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

struct Pairs {
    threads: u64,
    fds: Vec<RawFd>,
}

impl Batch for Pairs {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        descriptors(2 * n * self.threads)?;
        self.fds.resize(2 * n as usize, -1);
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut errors = 0;
        for pair in self.fds.chunks_exact_mut(2) {
            // SAFETY: room for two descriptors.
            errors += u64::from(unsafe {
                libc::socketpair(libc::PF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) != 0
            });
        }
        errors
    }

    fn after(&mut self, _: u64) {
        close_all(&mut self.fds);
    }
}

const FIRST_PORT: u16 = 12345;

struct Bind {
    any: bool,
    threads: u64,
    fds: Vec<RawFd>,
}

impl Batch for Bind {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        descriptors(n * self.threads)?;
        for _ in 0..n {
            let fd = socket(libc::AF_INET)?;
            let on = 1i32;
            // SAFETY: an int, as the option wants.
            let set = unsafe {
                libc::setsockopt(
                    fd.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_REUSEADDR,
                    (&raw const on).cast(),
                    4,
                )
            };
            if set != 0 {
                return Err(Failure::os("SO_REUSEADDR"));
            }
            self.fds.push(fd.into_raw_fd());
        }
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut errors = 0;
        for (i, &fd) in self.fds.iter().enumerate() {
            let at = sockaddr(if self.any { 0 } else { FIRST_PORT + i as u16 });
            // SAFETY: a live address.
            let failed = unsafe { libc::bind(fd, (&raw const at).cast(), LEN) } != 0;
            // As in libMicro, a port that is in use is not an error.
            errors +=
                u64::from(failed && std::io::Error::last_os_error().raw_os_error() != Some(libc::EADDRINUSE));
        }
        errors
    }

    fn after(&mut self, _: u64) {
        close_all(&mut self.fds);
    }
}

struct Binds(Bind);

impl Bench for Binds {
    fn worker(&self, _: crate::case::Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Bind { any: self.0.any, threads: self.0.threads, fds: Vec::new() }))
    }

    fn batch(&self) -> Option<u64> {
        Some(256)
    }
}

fn bind(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    listener()?;
    Ok(Box::new(Binds(Bind { any: o.has('z'), threads: o.threads() as u64, fds: Vec::new() })))
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Both,
    Connect,
    Accept,
    Close,
}

/// A listener, a connecting and an accepted socket for each operation of a batch.
struct Connections {
    how: How,
    threads: u64,
    listeners: Vec<(TcpListener, libc::sockaddr_in)>,
    from: Vec<RawFd>,
    accepted: Vec<RawFd>,
}

fn connections(o: &Options, how: How) -> Result<Box<dyn Bench>, Failure> {
    connected()?;
    let threads = o.threads() as u64;
    Ok(Box::new(Batches(256, move |_| {
        let (listeners, from, accepted) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Box::new(Connections { how, threads, listeners, from, accepted }) as Box<dyn Batch>)
    })))
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Connects a socket that does not block; with `wait`, until it is connected.
fn connect(fd: RawFd, to: &libc::sockaddr_in, wait: bool) -> bool {
    loop {
        // SAFETY: a live address.
        if unsafe { libc::connect(fd, std::ptr::from_ref(to).cast(), LEN) } == 0 {
            return true;
        }
        match errno() {
            libc::EISCONN => return true,
            libc::EINPROGRESS if !wait => return true,
            libc::EINPROGRESS => {}
            _ => return false,
        }
        if !ready(fd, libc::POLLOUT) {
            return false;
        }
    }
}

/// Waits for something to happen at a socket.
fn ready(fd: RawFd, events: i16) -> bool {
    let mut what = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut what, 1, -1) == 1 }
}

/// Accepts at a listener that does not block; -1 where that fails.
fn accept(fd: RawFd) -> RawFd {
    loop {
        let (mut from, mut len) = (sockaddr(0), LEN);
        // SAFETY: room for an address of the length told.
        let accepted = unsafe { libc::accept(fd, (&raw mut from).cast(), &raw mut len) };
        if accepted >= 0 || errno() != libc::EAGAIN || !ready(fd, libc::POLLIN) {
            return accepted;
        }
    }
}

impl Batch for Connections {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        descriptors(3 * n * self.threads)?;
        while self.listeners.len() < n as usize {
            let listener = listener()?;
            listener.set_nonblocking(true)?;
            // SAFETY: an open descriptor; libMicro's backlog.
            unsafe { libc::listen(listener.as_raw_fd(), 5) };
            let port = listener.local_addr()?.port();
            self.listeners.push((listener, sockaddr(port)));
        }
        for (listener, at) in &self.listeners[..n as usize] {
            // SAFETY: plain numbers.
            let fd =
                owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0) })?;
            let fd = fd.into_raw_fd();
            self.from.push(fd);
            if matches!(self.how, How::Accept | How::Close) && !connect(fd, at, false) {
                return Err(Failure::os("connect"));
            }
            self.accepted.push(if self.how == How::Close { accept(listener.as_raw_fd()) } else { -1 });
        }
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let mut errors = 0;
        for i in 0..n as usize {
            let (listener, at) = &self.listeners[i];
            if self.how == How::Close {
                // SAFETY: accepted by `before`, and forgotten here.
                errors +=
                    u64::from(unsafe { libc::close(std::mem::replace(&mut self.accepted[i], -1)) } != 0);
                continue;
            }
            if self.how != How::Accept && !connect(self.from[i], at, self.how == How::Both) {
                errors += 1;
                continue;
            }
            if self.how != How::Connect {
                self.accepted[i] = accept(listener.as_raw_fd());
                errors += u64::from(self.accepted[i] < 0);
            }
        }
        errors
    }

    fn after(&mut self, n: u64) {
        if self.how == How::Connect {
            // Else the queues of the listeners would be full after six batches, and connecting fail.
            for (listener, _) in &self.listeners[..n as usize] {
                while let Ok((stream, _)) = listener.accept() {
                    drop(stream);
                }
            }
        }
        close_all(&mut self.accepted);
        close_all(&mut self.from);
    }
}

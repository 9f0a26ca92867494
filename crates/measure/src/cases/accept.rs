//! Distribution of connections: several processes wait for them on one address, in several ways.
//!
//! The workers connect; processes of the case's own, started by its set-up, accept. Each connection is answered
//! with a byte and closed, by a reset, so that none stays behind.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ncpu_machine::process::{self, Fields};

use super::spin::Spin;
use crate::case::{Batch, Bench, Case, Failure, Worker, tried};
use crate::options::{Flag, Options};
use crate::shared::Shared;

const FLAGS: &[Flag] = &[
    Flag { letter: 'w', value: "N", default: "4", about: "processes that accept" },
    Flag { letter: 'u', value: "NS", default: "0", about: "nanoseconds of work for each connection" },
];

const fn case(
    name: &'static str,
    about: &'static str,
    setup: fn(&Options) -> Result<Box<dyn Bench>, Failure>,
) -> Case {
    Case { name, about, flags: FLAGS, setup }
}

/// The cases of this file.
pub const CASES: &[Case] = &[
    case("accept", "connect to processes that block in accept", |o| acceptors(o, How::Accept)),
    case("accept_poll", "connect to processes that poll one listener, then accept", |o| {
        acceptors(o, How::Poll)
    }),
    case("accept_epoll", "connect to processes that epoll one listener", |o| acceptors(o, How::Epoll)),
    case("accept_exclusive", "connect to processes that epoll one listener with EPOLLEXCLUSIVE", |o| {
        acceptors(o, How::Exclusive)
    }),
    case("accept_reuseport", "connect to processes with a listener each (SO_REUSEPORT)", |o| {
        acceptors(o, How::ReusePort)
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum How {
    Accept,
    Poll,
    Epoll,
    Exclusive,
    ReusePort,
}

/// Counts of a process that accepts, on a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    connections: AtomicU64,
    /// Returns of the call it waits in.
    returns: AtomicU64,
}

struct Acceptors {
    address: SocketAddr,
    tallies: Shared<[Tally]>,
    processes: Vec<i32>,
    _listeners: Vec<TcpListener>,
}

fn acceptors(o: &Options, how: How) -> Result<Box<dyn Bench>, Failure> {
    let n = o.number('w')?.clamp(1, 4096) as usize;
    let work = Spin::of(o.number('u')?);
    let mut listeners = vec![listen(0, how)?];
    let address = listeners[0].local_addr()?;
    if how == How::ReusePort {
        for _ in 1..n {
            listeners.push(listen(address.port(), how)?);
        }
    }
    let tallies = Shared::slice(n, |_| Tally::default())?;
    let mut bench = Acceptors { address, tallies, processes: Vec::new(), _listeners: Vec::new() };
    for i in 0..n {
        // SAFETY: the process has one thread yet; the child runs our own code and ends there.
        match unsafe { libc::fork() } {
            -1 => return Err(Failure::os("fork")),
            0 => {
                // SAFETY: a plain system call. With their parent gone, nobody connects.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let listener = &listeners[i % listeners.len()];
                let _ = serve(listener.as_raw_fd(), how, work, &bench.tallies[i]);
                // SAFETY: the buffers of standard output are the parent's to write.
                unsafe { libc::_exit(0) }
            }
            pid => bench.processes.push(pid),
        }
    }
    bench._listeners = listeners;
    Ok(Box::new(bench))
}

fn listen(port: u16, how: How) -> Result<TcpListener, Failure> {
    let nonblocking = if how == How::Accept { 0 } else { libc::SOCK_NONBLOCK };
    // SAFETY: a fresh socket, owned at once; the options and the address have the lengths told.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | nonblocking, 0);
        if fd == -1 {
            return Err(Failure::os("socket"));
        }
        let listener = TcpListener::from_raw_fd(fd);
        let (yes, size) = (1i32, size_of::<i32>() as libc::socklen_t);
        if how == How::ReusePort
            && libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, (&raw const yes).cast(), size) != 0
        {
            return Err(Failure::os("SO_REUSEPORT"));
        }
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
        if libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) != 0 {
            return Err(Failure::os("bind to 127.0.0.1"));
        }
        if libc::listen(fd, 4096) != 0 {
            return Err(Failure::os("listen"));
        }
        Ok(listener)
    }
}

/// Accepts for ever.
fn serve(listener: RawFd, how: How, work: Spin, tally: &Tally) -> Result<(), Failure> {
    let epoll = match how {
        How::Epoll | How::Exclusive | How::ReusePort => {
            let flags = if how == How::Exclusive { libc::EPOLLEXCLUSIVE } else { 0 };
            let mut event = libc::epoll_event { events: (libc::EPOLLIN | flags) as u32, u64: 0 };
            // SAFETY: a fresh descriptor, and a live event.
            unsafe {
                let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                if libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, listener, &raw mut event) != 0 {
                    return Err(Failure::os("epoll"));
                }
                epoll
            }
        }
        How::Accept | How::Poll => -1,
    };
    loop {
        // SAFETY: live structures of the lengths told, and descriptors of our own.
        unsafe {
            match how {
                How::Accept => {}
                How::Poll => {
                    let mut fd = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
                    libc::poll(&raw mut fd, 1, -1);
                    tally.returns.fetch_add(1, Relaxed);
                }
                _ => {
                    let mut event = libc::epoll_event { events: 0, u64: 0 };
                    libc::epoll_wait(epoll, &raw mut event, 1, -1);
                    tally.returns.fetch_add(1, Relaxed);
                }
            }
            let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let connection = libc::accept4(listener, no_address, no_length, libc::SOCK_CLOEXEC);
            if how == How::Accept {
                tally.returns.fetch_add(1, Relaxed);
            }
            if connection == -1 {
                continue; // another was quicker
            }
            work.run();
            // Counted before the answer is sent, so a client with an answer finds it counted.
            tally.connections.fetch_add(1, Relaxed);
            libc::send(connection, c"!".as_ptr().cast(), 1, libc::MSG_NOSIGNAL);
            libc::close(connection);
        }
    }
}

/// A connection that is answered; whether it was.
fn connect(address: &SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a live socket and option. Closing resets: no port is kept for a minute.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        );
    }
    let mut answer = [0];
    stream.read_exact(&mut answer).is_ok()
}

/// Jain's index of how even shares are: 1 if all are equal, 1/n if one has all.
pub fn evenness(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Times that a process slept and was woken.
fn wakeups(pid: i32) -> u64 {
    let status = process::read(format!("/proc/{pid}/status").as_ref()).unwrap_or_default();
    Fields(&status).number("voluntary_ctxt_switches").unwrap_or(0)
}

impl Bench for Acceptors {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(tried(|| connect(&self.address)))
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let load = |f: fn(&Tally) -> &AtomicU64| -> Vec<f64> {
            self.tallies.iter().map(|t| f(t).load(Relaxed) as f64).collect()
        };
        let connections = load(|t| &t.connections);
        let all = connections.iter().sum::<f64>().max(1.0);
        let returns: f64 = load(|t| &t.returns).iter().sum();
        let wakeups: f64 = self.processes.iter().map(|&pid| wakeups(pid) as f64).sum();
        let most = connections.iter().copied().fold(0.0, f64::max);
        vec![
            ("evenness", evenness(&connections)),
            ("most to one", most / all),
            ("wakeups/conn", wakeups / all),
            ("returns/conn", returns / all),
        ]
    }
}

impl Drop for Acceptors {
    fn drop(&mut self) {
        for &pid in &self.processes {
            // SAFETY: our own children, which nobody else waits for.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenness_is_jains_index() {
        assert_eq!(evenness(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(evenness(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(evenness(&[3.0, 1.0]), 0.8);
        assert_eq!(evenness(&[0.0, 0.0]), 1.0);
    }
}

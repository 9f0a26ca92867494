//! poll and select over local sockets.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::common::{alone, descriptors, flag};
use crate::case::{Bench, Case, Failure, tried};
use crate::options::{Flag, Options};

const FLAGS: &[Flag] = &[
    flag('n', "N", "256", "descriptors; an even number"),
    flag('r', "N", "0", "how many of them are readable"),
    flag('w', "N", "0", "how many of them are asked whether they are writable, which they are"),
    flag('x', "", "", "readable are the last ones, not the first"),
];

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "poll", about: "look for what is ready among descriptors", flags: FLAGS, setup: poll },
    Case {
        name: "select",
        about: "look for what is ready among descriptors, with select",
        flags: FLAGS,
        setup: select,
    },
];

/// Pairs of sockets, those readable that were asked for.
struct Sockets {
    pairs: Vec<(UnixStream, UnixStream)>,
    readable: usize,
    writable: usize,
    last: bool,
}

impl Sockets {
    fn new(o: &Options) -> Result<Sockets, Failure> {
        use std::io::Write;
        let (n, readable, writable) = (o.size('n')?, o.size('r')?, o.size('w')?);
        if n % 2 != 0 || n == 0 {
            return Err(Failure::Usage(format!("-n {n}: give an even number, since sockets come in pairs")));
        }
        if readable > n || writable > n {
            return Err(Failure::Usage(format!("-r and -w: give no more than the {n} of -n")));
        }
        descriptors(n as u64)?;
        let pairs: std::io::Result<Vec<_>> = (0..n / 2).map(|_| UnixStream::pair()).collect();
        let sockets = Sockets { pairs: pairs?, readable, writable, last: o.has('x') };
        for i in 0..readable {
            // Bytes written to one become readable at its partner.
            let i = if sockets.last { n - 1 - i } else { i };
            sockets.at(i ^ 1).write_all(b".")?;
        }
        Ok(sockets)
    }

    fn at(&self, i: usize) -> &UnixStream {
        let (a, b) = &self.pairs[i / 2];
        if i.is_multiple_of(2) { a } else { b }
    }

    fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.pairs.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()])
    }

    /// How many descriptors are ready in some way.
    fn ready(&self) -> usize {
        let n = 2 * self.pairs.len();
        if self.last { n.min(self.readable + self.writable) } else { self.readable.max(self.writable) }
    }
}

fn poll(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let sockets = Arc::new(Sockets::new(o)?);
    alone(move |_| {
        let sockets = sockets.clone();
        let events =
            |i: usize| if i < sockets.writable { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        let mut what: Vec<libc::pollfd> = sockets
            .fds()
            .enumerate()
            .map(|(i, fd)| libc::pollfd { fd, events: events(i), revents: 0 })
            .collect();
        let ready = sockets.ready() as i32;
        Ok(tried(move || {
            let _open = &sockets;
            // SAFETY: the given number of pollfds.
            unsafe { libc::poll(what.as_mut_ptr(), what.len() as libc::nfds_t, 0) == ready }
        }))
    })
}

fn select(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let sockets = Arc::new(Sockets::new(o)?);
    let last = sockets.fds().max().unwrap_or(0);
    if last as usize >= libc::FD_SETSIZE {
        return Err(Failure::Failed(format!(
            "select takes descriptors below {} only; give a smaller -n",
            libc::FD_SETSIZE
        )));
    }
    alone(move |_| {
        let sockets = sockets.clone();
        // SAFETY: zeroes are an empty set; all descriptors are below FD_SETSIZE.
        let set = |fds: Vec<RawFd>| unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            fds.iter().for_each(|&fd| libc::FD_SET(fd, &raw mut set));
            set
        };
        let (input, output) =
            (set(sockets.fds().collect()), set(sockets.fds().take(sockets.writable).collect()));
        let (ready, writes) = ((sockets.readable + sockets.writable) as i32, sockets.writable > 0);
        Ok(tried(move || {
            let _open = &sockets;
            let (mut i, mut o) = (input, output);
            let o = if writes { &raw mut o } else { std::ptr::null_mut() };
            let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
            // SAFETY: live sets and a live timeval.
            unsafe { libc::select(last + 1, &raw mut i, o, std::ptr::null_mut(), &raw mut now) == ready }
        }))
    })
}

//! Listeners that the program watches by epoll, and their places in the kernel's queue.
//!
//! # The order of waking
//!
//! A listener wakes the entries of its wait queue from the head on. First come all entries without
//! `EPOLLEXCLUSIVE`, the last added first, then one of those with it: the first in whose epoll a thread
//! waits. An entry with `EPOLLEXCLUSIVE` enters at the tail. So a process that has taken a connection, and
//! then removes its entry and adds it again ([`turn`]), goes to the end of the queue. The next connection
//! wakes the idle process that has gone longest without one. No process is held back for that, and none is
//! woken needlessly.
//!
//! An entry that the program added without the flag gets the flag meanwhile, and loses it with [`restore`]. A
//! program may change such an entry by `EPOLL_CTL_MOD`, which the kernel refuses for an entry with the flag;
//! [`control`] then removes and adds it instead.
//!
//! # State
//!
//! The first entries that a thread adds are examined, and listeners among them are kept here with the events
//! that the program wants. A watch changes hands by its `state`: only the thread that sets `CHANGING` changes
//! it and the kernel's entry. Waiting for another thread's change is bounded, because it may be this thread's
//! own change that a signal interrupted.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::epoll_event;
use ncpu_preload::{errno, set_errno};

/// Entries that are kept per process.
const WATCHES: usize = 256;
/// Descriptors added by a thread that are checked for being a listener: event loops add theirs first.
const LOOKS: u32 = 64;
/// Attempts to get a watch that another thread is changing, with a yield between: a change takes
/// microseconds.
const TRIES: u32 = 1000;

const FREE: u32 = 0;
const CHANGING: u32 = 1;
const LIVE: u32 = 2;
/// The entry belongs to an epoll that a forked child shares with its parent: only the parent changes its
/// place.
const INHERITED: u32 = 3;

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// The flags that the kernel allows beside `EPOLLEXCLUSIVE`.
const ALLOWED: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLET | libc::EPOLLWAKEUP)
        as u32;
/// Events that a socket never reports while it listens, and that the kernel does not allow beside
/// `EPOLLEXCLUSIVE`.
const NEVER: u32 = (libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;

/// An entry of an epoll for a listener.
struct Watch {
    state: AtomicU32,
    epoll: AtomicI32,
    fd: AtomicI32,
    /// The events that the program requested.
    events: AtomicU32,
    data: AtomicU64,
    /// The listener's cookie.
    cookie: AtomicU64,
    /// Whether the kernel's entry has `EPOLLEXCLUSIVE` without the program's request.
    lent: AtomicU32,
}

static ALL: [Watch; WATCHES] = [const {
    Watch {
        state: AtomicU32::new(FREE),
        epoll: AtomicI32::new(-1),
        fd: AtomicI32::new(-1),
        events: AtomicU32::new(0),
        data: AtomicU64::new(0),
        cookie: AtomicU64::new(0),
        lent: AtomicU32::new(0),
    }
}; WATCHES];

/// The number of watches that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

fn watches() -> &'static [Watch] {
    &ALL[..USED.load(Acquire).min(WATCHES)]
}

thread_local! {
    static LOOKED: Cell<u32> = const { Cell::new(0) };
}

/// How a thread waits for a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In an unknown way.
    Unknown,
    /// By an entry with a changeable place in the queue.
    Entry,
    /// By an entry to which the program gave `EPOLLEXCLUSIVE`: it expects other threads to wait.
    Exclusive,
}

impl Watch {
    fn is(&self, epoll: c_int, fd: c_int) -> bool {
        self.epoll.load(Relaxed) == epoll && self.fd.load(Relaxed) == fd
    }

    fn claim(&self, from: u32) -> bool {
        self.state.compare_exchange(from, CHANGING, Acquire, Relaxed).is_ok()
    }

    fn keep(&self, epoll: c_int, fd: c_int, event: epoll_event, cookie: u64) {
        self.epoll.store(epoll, Relaxed);
        self.fd.store(fd, Relaxed);
        self.events.store(event.events, Relaxed);
        self.data.store(event.u64, Relaxed);
        self.cookie.store(cookie, Relaxed);
        self.lent.store(0, Relaxed);
    }

    fn event(&self) -> epoll_event {
        epoll_event { events: self.events.load(Relaxed), u64: self.data.load(Relaxed) }
    }

    /// Whether an entry with these events may be made exclusive without a change in the reported events.
    fn can_turn(&self) -> bool {
        let events = self.events.load(Relaxed);
        events & libc::EPOLLIN as u32 != 0 && events & !(ALLOWED | NEVER | EXCLUSIVE) == 0
    }

    /// Removes the kernel's entry and adds it as `event`, or at least as the program requested it. Returns
    /// the next state of the claimed watch.
    fn replace(&self, event: epoll_event) -> u32 {
        let (epoll, fd) = (self.epoll.load(Relaxed), self.fd.load(Relaxed));
        if raw(epoll, libc::EPOLL_CTL_DEL, fd, event) != 0 {
            return FREE; // The descriptors belong to other files by now.
        }
        self.lent.store(event.events & !self.events.load(Relaxed) & EXCLUSIVE, Relaxed);
        if raw(epoll, libc::EPOLL_CTL_ADD, fd, event) == 0 {
            return LIVE;
        }
        self.lent.store(0, Relaxed);
        if raw(epoll, libc::EPOLL_CTL_ADD, fd, self.event()) == 0 { LIVE } else { FREE }
    }
}

/// A bare epoll_ctl(2), which is not a cancellation point; nor is the C library's.
fn raw(epoll: c_int, operation: c_int, fd: c_int, mut event: epoll_event) -> c_int {
    // SAFETY: a live event.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, fd, &raw mut event) as c_int }
}

/// The cookie of a listening socket.
fn listens(fd: c_int) -> Option<u64> {
    let mut yes = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: a live buffer of this length.
    let failed = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut yes).cast(), &raw mut length)
            != 0
    };
    if failed || yes == 0 { None } else { cookie(fd) }
}

/// A socket's cookie, which is unique in this boot.
pub fn cookie(fd: c_int) -> Option<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: a live buffer of this length.
    let failed = unsafe {
        let at = (&raw mut cookie).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, at, &raw mut length) != 0
    };
    if failed || cookie == 0 { None } else { Some(cookie) }
}

/// The watch of an entry, claimed, and its previous state.
fn claimed(epoll: c_int, fd: c_int) -> Option<(&'static Watch, u32)> {
    for watch in watches().iter().filter(|w| w.is(epoll, fd)) {
        for _ in 0..TRIES {
            match watch.state.load(Relaxed) {
                FREE => break,
                // SAFETY: a plain system call.
                CHANGING => unsafe {
                    libc::syscall(libc::SYS_sched_yield);
                },
                state => {
                    if watch.claim(state) {
                        if watch.is(epoll, fd) {
                            return Some((watch, state));
                        }
                        watch.state.store(state, Release); // It was reused for another entry.
                        break;
                    }
                }
            }
        }
    }
    None
}

/// The result of `call`, the program's own epoll_ctl(2) with these arguments.
pub fn control(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *const epoll_event,
    call: impl Fn() -> c_int,
) -> c_int {
    let known = claimed(epoll, fd);
    let result = call();
    // A change that failed otherwise may have had a bad pointer.
    let readable = result == 0 || errno() == libc::EINVAL;
    // SAFETY: the kernel has read it there. The type is packed on x86-64 only.
    let event = (readable && operation != libc::EPOLL_CTL_DEL).then(|| unsafe { event.read_unaligned() });
    if let Some((watch, state)) = known {
        let (result, state) = changed(watch, state, operation, event, result);
        watch.state.store(state, Release);
        return result;
    }
    if let (libc::EPOLL_CTL_ADD, 0, Some(event)) = (operation, result, event) {
        added(epoll, fd, event);
    }
    result
}

/// After the program's own change of a known and claimed entry: the result, and the watch's next state.
fn changed(
    watch: &Watch,
    state: u32,
    operation: c_int,
    event: Option<epoll_event>,
    result: c_int,
) -> (c_int, u32) {
    let (epoll, fd) = (watch.epoll.load(Relaxed), watch.fd.load(Relaxed));
    match (operation, event) {
        (libc::EPOLL_CTL_DEL, _) if result == 0 => (result, FREE),
        (libc::EPOLL_CTL_ADD, Some(event)) if result == 0 => {
            // The descriptor belonged to another socket before.
            match listens(fd) {
                Some(cookie) => {
                    watch.keep(epoll, fd, event, cookie);
                    (result, LIVE)
                }
                None => (result, FREE),
            }
        }
        (libc::EPOLL_CTL_MOD, Some(event)) if result == 0 => {
            watch.keep(epoll, fd, event, watch.cookie.load(Relaxed));
            (result, state)
        }
        (libc::EPOLL_CTL_MOD, Some(event))
            if (event.events | watch.events.load(Relaxed)) & EXCLUSIVE == 0
                && errno() == libc::EINVAL
                && raw(epoll, libc::EPOLL_CTL_DEL, fd, event) == 0 =>
        {
            let result = raw(epoll, libc::EPOLL_CTL_ADD, fd, event);
            watch.keep(epoll, fd, event, watch.cookie.load(Relaxed));
            (result, if result == 0 { state } else { FREE })
        }
        _ => (result, state),
    }
}

/// Keeps the entry that the program added, if it is for a listener.
fn added(epoll: c_int, fd: c_int, event: epoll_event) {
    let looked = LOOKED.get();
    if looked >= LOOKS {
        return;
    }
    LOOKED.set(looked + 1);
    let before = errno();
    if let Some(cookie) = listens(fd) {
        LOOKED.set(looked);
        let free = ALL.iter().enumerate().find(|(_, w)| w.state.load(Relaxed) == FREE && w.claim(FREE));
        if let Some((index, watch)) = free {
            watch.keep(epoll, fd, event, cookie);
            USED.fetch_max(index + 1, Release);
            watch.state.store(LIVE, Release);
        }
    }
    set_errno(before);
}

/// How a thread waits for the listener `fd` of this cookie in `epoll`.
pub fn wait(epoll: c_int, fd: c_int, cookie: u64) -> Wait {
    let watch = watches().iter().find(|w| {
        w.state.load(Acquire) == LIVE && w.is(epoll, fd) && w.cookie.load(Relaxed) == cookie && w.can_turn()
    });
    match watch {
        None => Wait::Unknown,
        Some(watch) if watch.events.load(Relaxed) & EXCLUSIVE != 0 => Wait::Exclusive,
        Some(_) => Wait::Entry,
    }
}

/// Puts the entry at the end of the listener's queue.
pub fn turn(epoll: c_int, fd: c_int) {
    change(epoll, fd, |watch| {
        let event = watch.event();
        Some(epoll_event { events: event.events & !NEVER | EXCLUSIVE, u64: event.u64 })
    });
}

/// Gives the entry the events that the program requested, if it has others.
pub fn restore(epoll: c_int, fd: c_int) {
    change(epoll, fd, |watch| (watch.lent.load(Relaxed) != 0).then(|| watch.event()));
}

fn change(epoll: c_int, fd: c_int, to: impl Fn(&Watch) -> Option<epoll_event>) {
    // Does not wait for another thread that changes it, or for a change that this thread interrupted.
    let Some(watch) = watches().iter().find(|w| w.is(epoll, fd) && w.claim(LIVE)) else { return };
    let state = match to(watch) {
        Some(event) if watch.is(epoll, fd) => watch.replace(event),
        _ => LIVE,
    };
    watch.state.store(state, Release);
}

/// In a forked child, which has a single thread.
pub fn forked() {
    LOOKED.set(0);
    for watch in watches() {
        if watch.state.load(Relaxed) != FREE {
            watch.state.store(INHERITED, Relaxed);
        }
    }
}

//! Calls that the kernel answers late: for its own bookkeeping, for TCP's timers, for data that it holds back, and for datagrams that it dropped.

use std::collections::HashMap;

use ncpu_schema::Counter;

use super::asleep::{idle, place};
use super::claim::{Claim, Kind};
use super::connections::both_ends;
use super::delayed_acks::DELAYED_ACK;
use super::numbers::{grouped, rate_words};
use super::places::Most;
use super::system_calls::call_in;
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of an observation that something is waited for from which it is a cause.
const LEAST: f64 = 0.2;

/// Waits that are a pattern and not a few, of calls that may take a second each.
const SOME: f64 = 3.0;

/// A wait for TCP from which its timers may be what ends it: the least time after which it sends again is 200 ms.
const LONG: f64 = 0.15;

/// Time after which TCP sends data that it holds back for `TCP_CORK` or `MSG_MORE`: 200 ms, for the first of a connection longer.
const CORKED: std::ops::Range<f64> = 0.19..0.5;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = kernel_waits(view);
    claims.extend(slow_calls(view));
    claims.extend(tcp(view));
    claims.extend(datagrams(view));
    claims
}

/// Waits of one kind.
#[derive(Default)]
pub(super) struct Sum<'a> {
    places: Most,
    calls: Most,
    functions: Most,
    process: &'a str,
    seconds: f64,
    count: f64,
}

impl<'a> Sum<'a> {
    pub fn add(&mut self, s: &Slept<'a>, call: &str, function: &str) {
        self.process = s.process;
        self.seconds += s.seconds;
        self.count += s.count;
        self.calls.add(call, s.seconds);
        self.functions.add(function, s.seconds);
        self.places.add(&place(s, call).words(), s.seconds);
    }

    fn each(&self) -> f64 {
        self.seconds / self.count.max(1.0)
    }

    pub fn is_large(&self, view: &View<'_>) -> bool {
        self.seconds >= LEAST * view.elapsed() && self.count >= SOME
    }

    pub fn is_often(&self, view: &View<'_>, least: f64) -> bool {
        self.count >= least * view.elapsed()
    }

    pub fn claim(self, view: &View<'_>, when: When, kind: Kind) -> Claim {
        let (seconds, count, each) = (self.seconds, self.count, self.each());
        let function = self.functions.top().map_or_else(String::new, |(f, _)| f);
        let call = self.calls.top().map_or_else(String::new, |(c, _)| c);
        let (words, place) = self.places.place(self.process);
        let subject = if function.is_empty() { call.clone() } else { function.clone() };
        let mut claim = Claim::new(kind, [when], subject)
            .with("call", call.clone())
            .with("process", self.process)
            .with("place", place)
            .with("each", length(each))
            .with("rate", rate_words(count / view.elapsed()))
            .with("function", function.clone());
        claim.key = format!("{} {} {call} {function}", when.word(), self.process);
        claim.stands_still(seconds, view.elapsed());
        idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle for it");
        claim.line("waits in", words);
        claim.line("waits", format!("{} of {} each", grouped(count), length(each)));
        claim
    }
}

/// Sleeps in functions of the kernel that entries name.
fn kernel_waits(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, &str), Sum<'_>> = HashMap::new();
    for s in view.slept.iter().filter(|s| s.wait != "run queue") {
        let known = s.kernel.iter().find_map(|f| Some((*f, view.entry(When::KernelWaits, f)?)));
        let Some((function, entry)) = known else { continue };
        let sum = of.entry((s.process, entry)).or_default();
        sum.add(s, call_in(&s.kernel).unwrap_or("a page fault"), function);
    }
    let large = of.into_values().filter(|sum| sum.is_large(view));
    large.map(|sum| sum.claim(view, When::KernelWaits, Kind::Peer)).collect()
}

/// Calls that are there to wait, or that wait for a lock, a device or another process; each has its own detectors.
fn may_wait(call: &str) -> bool {
    const CALLS: [&str; 62] = [
        "read",
        "readv",
        "pread64",
        "preadv",
        "preadv2",
        "write",
        "writev",
        "pwrite64",
        "pwritev",
        "pwritev2",
        "recvfrom",
        "recvmsg",
        "recvmmsg",
        "sendto",
        "sendmsg",
        "sendmmsg",
        "sendfile",
        "sendfile64",
        "splice",
        "tee",
        "accept",
        "accept4",
        "connect",
        "poll",
        "ppoll",
        "select",
        "pselect6",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "futex",
        "futex_wait",
        "futex_waitv",
        "nanosleep",
        "clock_nanosleep",
        "wait4",
        "waitid",
        "pause",
        "rt_sigsuspend",
        "rt_sigtimedwait",
        "sigsuspend",
        "io_getevents",
        "io_pgetevents",
        "io_uring_enter",
        "msgrcv",
        "msgsnd",
        "semop",
        "semtimedop",
        "mq_timedreceive",
        "mq_timedsend",
        "flock",
        "fcntl",
        "fsync",
        "fdatasync",
        "msync",
        "sync_file_range",
        "syncfs",
        "sync",
        "open",
        "openat",
        "restart_syscall",
        "ptrace",
    ];
    // Parents wait in these for a child that starts a program.
    const STARTS: [&str; 6] = ["vfork", "clone", "clone3", "exit", "exit_group", "execve"];
    CALLS.contains(&call) || STARTS.contains(&call)
}

/// Whether a thread sleeps for a lock of the kernel.
fn for_a_lock(s: &Slept<'_>) -> bool {
    const LOCKS: [&str; 8] = [
        "rwsem_down_read_slowpath",
        "rwsem_down_write_slowpath",
        "__mutex_lock",
        "__mutex_lock_slowpath",
        "__mutex_lock.constprop.0",
        "percpu_rwsem_wait",
        "__down",
        "lock_sock_nested",
    ];
    LOCKS.iter().any(|f| s.in_kernel(f))
}

/// Other calls in which threads sleep.
fn slow_calls(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, &str), Sum<'_>> = HashMap::new();
    for s in view.slept.iter().filter(|s| s.wait != "run queue" && s.wait != "I/O" && !for_a_lock(s)) {
        let known = |f: &str| view.entry(When::KernelWaits, f).is_some();
        let Some(call) = call_in(&s.kernel).filter(|call| !may_wait(call)) else { continue };
        if !s.kernel.iter().any(|f| known(f)) {
            of.entry((s.process, call)).or_default().add(s, call, "");
        }
    }
    let large = of.into_values().filter(|sum| sum.is_large(view));
    large.map(|sum| sum.claim(view, When::SlowCall, Kind::Peer)).collect()
}

/// A wait for a datagram from which it is for one that was lost.
const LOST: f64 = 0.005;

/// Waits for datagrams while the kernel drops some because the buffer of a socket is full.
fn datagrams(view: &View<'_>) -> Option<Claim> {
    let dropped = view.counted(Counter::DatagramsDropped);
    let mut waits = Sum::default();
    for s in view.slept.iter().filter(|s| s.wait != "run queue" && s.each() >= LOST) {
        if s.in_kernel("udp_recvmsg") || s.in_kernel("udpv6_recvmsg") {
            waits.add(s, call_in(&s.kernel).unwrap_or("recvfrom"), "");
        }
    }
    // Other programs' are counted too.
    if !waits.is_large(view) || dropped < SOME.max(0.1 * waits.count) {
        return None;
    }
    let mut claim = waits.claim(view, When::DatagramsDropped, Kind::Peer);
    claim.line(
        "dropped",
        format!("{} datagrams by the kernel, for want of room in a socket's buffer", grouped(dropped)),
    );
    Some(claim)
}

/// Long waits for TCP that its timers end: a connection is asked for again, data is sent again, or was held back.
fn tcp(view: &View<'_>) -> Option<Claim> {
    const CONNECTS: [&str; 2] = ["inet_stream_connect", "__inet_stream_connect"];
    const MOVES: [&str; 4] = ["tcp_recvmsg", "tcp_recvmsg_locked", "tcp_sendmsg", "tcp_sendmsg_locked"];
    let (mut connects, mut moves) = (Sum::default(), Sum::default());
    for s in view.slept.iter().filter(|s| s.wait != "run queue" && s.each() >= LONG) {
        if CONNECTS.iter().any(|f| s.in_kernel(f)) {
            connects.add(s, "connect", "");
        } else if MOVES.iter().any(|f| s.in_kernel(f)) {
            moves.add(s, call_in(&s.kernel).unwrap_or("recvfrom"), "");
        }
    }
    let dropped = view.counted(Counter::ListenOverflows);
    let again = view.counted(Counter::TcpTimeouts);
    if connects.is_large(view) && dropped >= SOME.max(0.1 * connects.count) {
        // The last step of a connection was dropped, but the client has sent its first bytes and waits for the answer.
        connects.seconds += moves.seconds;
        connects.count += moves.count;
        let mut claim = connects.claim(view, When::AcceptQueue, Kind::Peer);
        claim.line("dropped", format!("{} requests for connections by the kernel", grouped(dropped)));
        return Some(claim);
    }
    let waits = if connects.is_large(view) { connects } else { moves };
    if !waits.is_large(view) {
        return None;
    }
    // Not every such wait is for one of these: other programs are counted too.
    if again >= SOME.max(0.3 * waits.count) {
        let mut claim = waits.claim(view, When::SentAgain, Kind::Peer);
        claim.line("sent again", format!("{} times after a timeout", grouped(again)));
        return Some(claim);
    }
    let held = CORKED.contains(&waits.each()) && both_ends(view);
    const { assert!(DELAYED_ACK.end <= CORKED.start, "a wait is for one of the two") };
    held.then(|| waits.claim(view, When::HeldBack, Kind::Peer))
}

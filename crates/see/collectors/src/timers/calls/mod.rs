//! Every call of Linux that returns after a time: each a function that sets up an event to wait for and
//! returns the wait itself. The closure owns the event.
//!
//! Nothing waited for ever comes, so each wait ends by its timeout.

mod events;
mod ipc;
mod locks;
mod sleep;
mod timers;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// One wait of this many ns, rounded up to the call's own unit.
pub(super) type Wait = Box<dyn FnMut(u64) -> io::Result<()> + Send>;

/// Which clock a call's time runs by, and which threads its end wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The calling thread waits.
    Thread,
    /// A signal to the process ends the wait: measured in a process of its own.
    Process,
    /// CPU time is waited for, and so used: measured in a process of its own, by its CPU time.
    CpuTime,
}

/// A call that takes a time.
#[derive(Debug)]
pub struct Call {
    /// Its name, with what tells its variants apart in parentheses.
    pub name: &'static str,
    /// The unit of its argument, ns.
    pub unit: u64,
    /// The clock of its time, and the threads that it wakes.
    pub scope: Scope,
    pub(super) open: fn() -> io::Result<Wait>,
}

const NS: u64 = 1;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const fn call(name: &'static str, unit: u64, open: fn() -> io::Result<Wait>) -> Call {
    Call { name, unit, scope: Scope::Thread, open }
}

const fn of(scope: Scope, call: Call) -> Call {
    Call { scope, ..call }
}

/// The calls, related ones together.
pub static CALLS: [Call; 43] = [
    call("nanosleep", NS, sleep::nanosleep),
    call("clock_nanosleep", NS, sleep::clock_nanosleep),
    call("clock_nanosleep(ABSTIME)", NS, sleep::clock_nanosleep_abs),
    call("clock_nanosleep(REALTIME)", NS, sleep::clock_nanosleep_realtime),
    call("usleep", US, sleep::usleep),
    call("sleep", S, sleep::sleep),
    call("poll", MS, events::poll),
    call("ppoll", NS, events::ppoll),
    call("select", US, events::select),
    call("pselect", NS, events::pselect),
    call("epoll_wait", MS, events::epoll_wait),
    call("epoll_pwait2", NS, events::epoll_pwait2),
    call("io_getevents", NS, events::io_getevents),
    call("io_uring_enter", NS, events::io_uring_enter),
    call("aio_suspend", NS, events::aio_suspend),
    call("recv(SO_RCVTIMEO)", US, events::recv),
    call("send(SO_SNDTIMEO)", US, events::send),
    call("accept(SO_RCVTIMEO)", US, events::accept),
    call("futex(WAIT)", NS, locks::futex_wait),
    call("futex(WAIT_BITSET)", NS, locks::futex_wait_bitset),
    call("futex_waitv", NS, locks::futex_waitv),
    call("sem_timedwait", NS, locks::sem_timedwait),
    call("pthread_cond_timedwait", NS, locks::cond_timedwait),
    call("pthread_mutex_timedlock", NS, locks::mutex_timedlock),
    call("pthread_mutex_timedlock(PI)", NS, locks::mutex_timedlock_pi),
    call("pthread_rwlock_timedrdlock", NS, locks::rwlock_timedrdlock),
    call("pthread_rwlock_timedwrlock", NS, locks::rwlock_timedwrlock),
    call("pthread_timedjoin_np", NS, locks::timedjoin),
    call("mq_timedreceive", NS, ipc::mq_timedreceive),
    call("mq_timedsend", NS, ipc::mq_timedsend),
    call("semtimedop", NS, ipc::semtimedop),
    call("sigtimedwait", NS, ipc::sigtimedwait),
    call("timerfd_settime", NS, timers::timerfd),
    call("timerfd_settime(ABSTIME)", NS, timers::timerfd_abs),
    call("timerfd_settime(BOOTTIME)", NS, timers::timerfd_boottime),
    call("timer_settime", NS, timers::timer_settime),
    call("timer_settime(REALTIME)", NS, timers::timer_settime_realtime),
    of(Scope::Process, call("setitimer(REAL)", US, timers::setitimer_real)),
    of(Scope::Process, call("ualarm", US, timers::ualarm)),
    of(Scope::Process, call("alarm", S, timers::alarm)),
    of(Scope::CpuTime, call("setitimer(VIRTUAL)", US, timers::setitimer_virtual)),
    of(Scope::CpuTime, call("setitimer(PROF)", US, timers::setitimer_prof)),
    of(Scope::CpuTime, call("timer_settime(THREAD_CPUTIME)", NS, timers::timer_settime_cpu)),
];

impl Call {
    /// The argument for a wait of `ns`: rounded up to its unit, so as not to be early.
    pub fn argument(&self, ns: u64) -> u64 {
        ns.max(1).div_ceil(self.unit).saturating_mul(self.unit)
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / S) as libc::time_t, tv_nsec: (ns % S) as _ }
}

fn timeval(ns: u64) -> libc::timeval {
    let us = ns.div_ceil(US);
    libc::timeval { tv_sec: (us / 1_000_000) as _, tv_usec: (us % 1_000_000) as _ }
}

/// A clock's time, ns.
pub(super) fn clock(id: libc::clockid_t) -> u64 {
    let mut t = timespec(0);
    // SAFETY: a live local; the clocks asked for are in every kernel.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    t.tv_sec as u64 * S + t.tv_nsec as u64
}

/// So many ns from now, by a clock.
fn deadline(id: libc::clockid_t, ns: u64) -> libc::timespec {
    timespec(clock(id) + ns)
}

/// A call that returns -1 and sets `errno` when it fails: a timeout is what was waited for.
fn waited(returned: impl Into<i64>) -> io::Result<()> {
    if returned.into() >= 0 {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    match e.raw_os_error() {
        Some(libc::ETIMEDOUT | libc::EAGAIN | libc::ETIME) => Ok(()),
        _ => Err(e),
    }
}

/// The same for calls that return the error.
fn waited_by_value(error: i32) -> io::Result<()> {
    match error {
        0 | libc::ETIMEDOUT => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// A call that must not fail.
fn made(returned: impl Into<i64>) -> io::Result<i64> {
    match returned.into() {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n),
    }
}

/// Takes ownership of the descriptor a call returned.
fn owned(returned: impl Into<i64>) -> io::Result<OwnedFd> {
    let fd = made(returned)? as i32;
    // SAFETY: just made by a call that gives it to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_units_round_up() {
        let mut names: Vec<_> = CALLS.iter().map(|c| c.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CALLS.len());
        let poll = CALLS.iter().find(|c| c.name == "poll").unwrap();
        assert_eq!((poll.argument(1), poll.argument(MS), poll.argument(MS + 1)), (MS, MS, 2 * MS));
        assert_eq!(poll.argument(0), MS, "a wait of 0 would return at once");
    }

    #[test]
    fn no_wait_of_a_thread_is_early() {
        for call in CALLS.iter().filter(|c| c.scope == Scope::Thread) {
            let mut wait = match (call.open)() {
                Ok(wait) => wait,
                Err(e) => {
                    eprintln!("skipped: {}: {e}", call.name);
                    continue;
                }
            };
            for ns in [1, 1_500_000] {
                // Calls that count ticks are early where a virtual machine stood still and its ticks are made up for
                // at once: never twenty times in a row.
                let mut early = Vec::new();
                while early.len() < 20 {
                    let start = clock(libc::CLOCK_MONOTONIC);
                    match wait(ns) {
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => break,
                        result => result.unwrap_or_else(|e| panic!("{}: {e}", call.name)),
                    }
                    let took = clock(libc::CLOCK_MONOTONIC) - start;
                    if took >= call.argument(ns) {
                        break;
                    }
                    early.push(took);
                }
                assert!(early.len() < 20, "{} returned after {early:?} of {ns} ns", call.name);
            }
        }
    }
}

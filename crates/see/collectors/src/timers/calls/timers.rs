//! Timers: what is measured is from arming one to having its expiry.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ipc::block;
use super::{S, US, Wait, deadline, made, owned, timespec, timeval, waited};

fn timerfd_of(clock: libc::clockid_t, absolute: bool) -> io::Result<Wait> {
    // SAFETY: takes numbers.
    let fd = owned(unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC) })?;
    Ok(Box::new(move |ns| {
        let (value, flags) =
            if absolute { (deadline(clock, ns), libc::TFD_TIMER_ABSTIME) } else { (timespec(ns), 0) };
        let time = libc::itimerspec { it_interval: timespec(0), it_value: value };
        let mut expiries = 0u64;
        // SAFETY: live locals; a read gives one word.
        unsafe {
            made(libc::timerfd_settime(fd.as_raw_fd(), flags, &raw const time, null_mut()))?;
            waited(libc::read(fd.as_raw_fd(), (&raw mut expiries).cast(), 8) as i64)
        }
    }))
}

pub fn timerfd() -> io::Result<Wait> {
    timerfd_of(libc::CLOCK_MONOTONIC, false)
}

pub fn timerfd_abs() -> io::Result<Wait> {
    timerfd_of(libc::CLOCK_MONOTONIC, true)
}

pub fn timerfd_boottime() -> io::Result<Wait> {
    timerfd_of(libc::CLOCK_BOOTTIME, false)
}

/// A POSIX timer, deleted with this.
struct Timer(libc::timer_t);

// SAFETY: a handle that any thread may use.
unsafe impl Send for Timer {}

impl Timer {
    /// Signals this thread alone.
    fn new(clock: libc::clockid_t, signal: i32) -> io::Result<Timer> {
        // SAFETY: all zero is a valid event; the timer is written before it is read.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::mem::zeroed();
            made(libc::timer_create(clock, &raw mut event, &raw mut timer))?;
            Ok(Timer(timer))
        }
    }

    fn arm(&self, ns: u64) -> io::Result<()> {
        let time = libc::itimerspec { it_interval: timespec(0), it_value: timespec(ns) };
        // SAFETY: a timer of ours, a live local.
        made(unsafe { libc::timer_settime(self.0, 0, &raw const time, null_mut()) }).map(drop)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: ours, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Waits for a blocked signal.
fn receive(set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: a live set; nothing asked for of the signal.
    waited(unsafe { libc::sigwaitinfo(set, null_mut()) })
}

fn timer_of(clock: libc::clockid_t) -> io::Result<Wait> {
    let signal = libc::SIGRTMAX() - 2;
    let set = block(signal)?;
    let mut timer = None;
    Ok(Box::new(move |ns| {
        // Made by the thread that waits, because the timer signals the thread that made it.
        let timer = match &timer {
            Some(timer) => timer,
            None => timer.insert(Timer::new(clock, signal)?),
        };
        timer.arm(ns)?;
        receive(&set)
    }))
}

pub fn timer_settime() -> io::Result<Wait> {
    timer_of(libc::CLOCK_MONOTONIC)
}

pub fn timer_settime_realtime() -> io::Result<Wait> {
    timer_of(libc::CLOCK_REALTIME)
}

fn itimer(which: i32, ns: u64) -> io::Result<()> {
    let time = libc::itimerval { it_interval: timeval(0), it_value: timeval(ns) };
    // SAFETY: a live local.
    made(unsafe { libc::setitimer(which, &raw const time, null_mut()) }).map(drop)
}

pub fn setitimer_real() -> io::Result<Wait> {
    let set = block(libc::SIGALRM)?;
    Ok(Box::new(move |ns| {
        itimer(libc::ITIMER_REAL, ns)?;
        receive(&set)
    }))
}

/// `ualarm` is `setitimer` by its definition; the C library's crate does not bind it.
pub fn ualarm() -> io::Result<Wait> {
    unsafe extern "C" {
        fn ualarm(us: u32, interval: u32) -> u32;
    }
    let set = block(libc::SIGALRM)?;
    Ok(Box::new(move |ns| {
        let us = u32::try_from(ns.div_ceil(US)).map_err(io::Error::other)?;
        // SAFETY: takes numbers.
        unsafe { ualarm(us, 0) };
        receive(&set)
    }))
}

pub fn alarm() -> io::Result<Wait> {
    let set = block(libc::SIGALRM)?;
    Ok(Box::new(move |ns| {
        let s = u32::try_from(ns.div_ceil(S)).map_err(io::Error::other)?;
        // SAFETY: takes a number.
        unsafe { libc::alarm(s) };
        receive(&set)
    }))
}

static EXPIRED: AtomicBool = AtomicBool::new(false);

extern "C" fn expired(_: i32) {
    EXPIRED.store(true, Ordering::Relaxed);
}

/// Uses CPU time until the signal comes that `arm` asks for. Only for a process of its own, whose
/// handlers are nobody else's.
fn burn(signal: i32, arm: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    EXPIRED.store(false, Ordering::Relaxed);
    // SAFETY: a handler that stores to an atomic.
    unsafe { libc::signal(signal, expired as *const () as libc::sighandler_t) };
    arm()?;
    while !EXPIRED.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
}

pub fn setitimer_virtual() -> io::Result<Wait> {
    Ok(Box::new(|ns| burn(libc::SIGVTALRM, || itimer(libc::ITIMER_VIRTUAL, ns))))
}

pub fn setitimer_prof() -> io::Result<Wait> {
    Ok(Box::new(|ns| burn(libc::SIGPROF, || itimer(libc::ITIMER_PROF, ns))))
}

pub fn timer_settime_cpu() -> io::Result<Wait> {
    let mut timer = None;
    Ok(Box::new(move |ns| {
        let timer = match &timer {
            Some(timer) => timer,
            None => timer.insert(Timer::new(libc::CLOCK_THREAD_CPUTIME_ID, libc::SIGUSR2)?),
        };
        burn(libc::SIGUSR2, || timer.arm(ns))
    }))
}

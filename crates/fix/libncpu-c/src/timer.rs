//! Timers for C.

use crate::{create, destroy};
use libc::{EDEADLK, EINVAL, ENOENT, c_int, c_void, timespec};
use libncpu::Instant;
use libncpu::timers::raw_timer::{Activity, Callback, Cancelled, RawTimer, Timers, When};
use std::time::Duration;

/// A timing wheel for each CPU.
pub struct ncpu_timers_t(Timers);

/// A timer, in the caller's memory. It must not move while it is armed. Initialise it with `ncpu_timer_init`.
#[repr(C)]
pub struct ncpu_timer_t {
    opaque: [u64; 8],
}

/// Counts so far, over all CPUs.
#[repr(C)]
pub struct ncpu_timers_activity_t {
    /// Timers armed now.
    armed: u64,
    /// Callbacks called.
    fired: u64,
    /// Timers removed before they expired: cancelled, or armed for another time.
    removed: u64,
    /// Wake-ups of helper threads.
    wakeups: u64,
    /// Helper threads that exist.
    helpers: u64,
}

/// The callback of an expiry. `expirations` is the number of periods since the last call: 1, or more if a
/// periodic timer was late.
///
/// It runs on a thread that all timers of the CPU share, so it should be short. It may arm and cancel timers,
/// including its own, and may free its own timer if that is not periodic or was cancelled. It must not end
/// the thread, throw or longjmp out, and if it forks, the child must exec or _exit in it.
pub type ncpu_timer_callback_t =
    Option<unsafe extern "C" fn(timer: *mut ncpu_timer_t, data: *mut c_void, expirations: u64)>;

const _: () = assert!(size_of::<ncpu_timer_t>() == size_of::<RawTimer>() && align_of::<RawTimer>() == 8);

/// New timers, or null with errno set. No thread is started before a timer is armed.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_timers_create() -> *mut ncpu_timers_t {
    create(Timers::new().map(ncpu_timers_t))
}

/// Waits for running callbacks and ends the helper threads. Timers that are still armed never expire, and
/// must be initialised before they are used again. Null is ignored; EDEADLK, and nothing changes, in a
/// callback.
///
/// # Safety
/// `timers` is null or from `ncpu_timers_create`, and unused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timers_destroy(timers: *mut ncpu_timers_t) -> c_int {
    if unsafe { timers.as_ref() }.is_some_and(|timers| timers.0.in_callback()) {
        return EDEADLK;
    }
    unsafe { destroy(timers) };
    0
}

/// Initialises a timer, which must not be armed.
///
/// # Safety
/// `timer` is null or points to writable memory of its size that does not hold an armed timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_init(
    timer: *mut ncpu_timer_t,
    callback: ncpu_timer_callback_t,
    data: *mut c_void,
) -> c_int {
    let Some(callback) = callback else { return EINVAL };
    if timer.is_null() {
        return EINVAL;
    }
    // SAFETY: the same function, with the library's type of the pointer; the ABIs differ in what may unwind.
    let callback = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut ncpu_timer_t, *mut c_void, u64), Callback>(callback)
    };
    unsafe { timer.cast::<RawTimer>().write(RawTimer::new(callback, data)) };
    0
}

unsafe fn arm(timers: *mut ncpu_timers_t, timer: *mut ncpu_timer_t, when: When) -> c_int {
    let timers = object!(timers);
    let timer = timer.cast::<RawTimer>().cast_const();
    if timer.is_null() || !unsafe { RawTimer::is_initialised(timer) } {
        return EINVAL;
    }
    match unsafe { timers.arm(timer, when) } {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Arms a timer to expire on this CPU in `after_ns` ns, or up to `slack_ns` later if that saves a wake-up. An
/// armed timer is moved. EINVAL if it was not initialised. The first timer of a CPU may fail with ENOMEM,
/// EMFILE, ENFILE or EAGAIN (no more threads); the timer is not armed then.
///
/// # Safety
/// `timers` is null or timers, `timer` null, zero or initialised and used with these timers only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_arm(
    timers: *mut ncpu_timers_t,
    timer: *mut ncpu_timer_t,
    after_ns: u64,
    slack_ns: u64,
) -> c_int {
    unsafe {
        arm(timers, timer, When::after(Duration::from_nanos(after_ns)).slack(Duration::from_nanos(slack_ns)))
    }
}

/// As `ncpu_timer_arm`, at a time of CLOCK_MONOTONIC; immediately if it has passed.
///
/// # Safety
/// As `ncpu_timer_arm`; `at` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_arm_at(
    timers: *mut ncpu_timers_t,
    timer: *mut ncpu_timer_t,
    at: *const timespec,
    slack_ns: u64,
) -> c_int {
    let when = When::at(deadline!(at)).slack(Duration::from_nanos(slack_ns));
    unsafe { arm(timers, timer, when) }
}

/// As `ncpu_timer_arm`, and again each `period_ns` (at least 1000; 0 is once) until it is cancelled.
///
/// # Safety
/// As `ncpu_timer_arm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_arm_every(
    timers: *mut ncpu_timers_t,
    timer: *mut ncpu_timer_t,
    after_ns: u64,
    period_ns: u64,
    slack_ns: u64,
) -> c_int {
    let when = When::after(Duration::from_nanos(after_ns))
        .slack(Duration::from_nanos(slack_ns))
        .every(Duration::from_nanos(period_ns));
    unsafe { arm(timers, timer, when) }
}

/// Cancels a timer, from any CPU: its callback will not be called. ENOENT if it was not armed: its callback
/// was called, and may still be running.
///
/// # Safety
/// `timers` is null or timers, `timer` null, zero or initialised and used with these timers only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_cancel(timers: *mut ncpu_timers_t, timer: *mut ncpu_timer_t) -> c_int {
    let timers = object!(timers);
    if timer.is_null() {
        return EINVAL;
    }
    if unsafe { timers.cancel(timer.cast::<RawTimer>()) } { 0 } else { ENOENT }
}

/// Cancels a timer and waits until its callback is not running, so that it can be freed. 0, or ENOENT if it
/// was not armed. EDEADLK in its own callback, which cannot wait for itself: the timer is disarmed then.
///
/// # Safety
/// As `ncpu_timer_cancel`; its callback does not free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_cancel_wait(
    timers: *mut ncpu_timers_t,
    timer: *mut ncpu_timer_t,
) -> c_int {
    let timers = object!(timers);
    if timer.is_null() {
        return EINVAL;
    }
    match unsafe { timers.cancel_wait(timer.cast::<RawTimer>()) } {
        Cancelled::Armed => 0,
        Cancelled::NotArmed => ENOENT,
        Cancelled::Running => EDEADLK,
    }
}

/// 1 if a timer is armed, otherwise 0. The answer may be out of date unless no thread can arm it and it
/// cannot expire.
///
/// # Safety
/// As `ncpu_timer_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timer_is_armed(timers: *mut ncpu_timers_t, timer: *mut ncpu_timer_t) -> c_int {
    let timers = unsafe { timers.as_ref() };
    timers.map_or(0, |timers| {
        c_int::from(!timer.is_null() && unsafe { timers.0.is_armed(timer.cast::<RawTimer>()) })
    })
}

/// Counts so far. O(CPUs).
///
/// # Safety
/// `timers` is null or timers, `activity` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_timers_activity(
    timers: *mut ncpu_timers_t,
    activity: *mut ncpu_timers_activity_t,
) -> c_int {
    if activity.is_null() {
        return EINVAL;
    }
    let Activity { armed, fired, removed, wakeups, helpers } = object!(timers).activity();
    unsafe { activity.write(ncpu_timers_activity_t { armed, fired, removed, wakeups, helpers }) };
    0
}

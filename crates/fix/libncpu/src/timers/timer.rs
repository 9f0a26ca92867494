//! Timers that expire on the CPU that armed them.
//!
//! How they work and why that is correct: [`raw_timer`](crate::timers::raw_timer) and [`wheel`](crate::timers::wheel). When to use
//! them: docs/timer-wheels.md.

use crate::percpu::{OutOfMemory, one};
use crate::sys::Instant;
pub use crate::timers::raw_timer::{Activity, Callback, Cancelled, RawTimer, Timers, When};
use crate::timers::raw_timer::{Inner, period};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl When {
    /// This long from now, to the nanosecond; never earlier.
    pub fn after(after: Duration) -> When {
        When::after_ns(ns(after))
    }

    /// At this time; immediately if it has passed.
    pub fn at(at: Instant) -> When {
        When { at: at.ns(), slack: 0, period: 0, now: 0 }
    }

    /// Permits an expiry up to this much later [default: 0]. Timers with slack expire together if possible,
    /// which saves wake-ups.
    #[must_use]
    pub fn slack(self, slack: Duration) -> When {
        When { slack: ns(slack), ..self }
    }

    /// Repeats each `period` after that, at least 1 µs, until cancelled. Times are counted from the first, so
    /// they do not drift. Missed periods are not made up for: the callback gets the number of periods that
    /// have passed.
    #[must_use]
    pub fn every(self, period: Duration) -> When {
        When { period: self::period(ns(period)), ..self }
    }
}

/// This long from now.
impl From<Duration> for When {
    fn from(after: Duration) -> When {
        When::after(after)
    }
}

impl Timers {
    /// Idle helpers end after `linger` instead of a second; with [`Duration::MAX`] never.
    pub fn with_linger(linger: Duration) -> Result<Timers, OutOfMemory> {
        Timers::with_linger_ns(ns(linger))
    }

    /// A timer, not armed yet, that calls back at its expiry, on the helper thread of the CPU where it was
    /// armed.
    ///
    /// A callback should be short: all timers of its CPU wait for it. It may arm and cancel any timer, and
    /// may drop its own. Calls of one timer never overlap. If it panics, the process aborts, because no
    /// caller could receive the panic.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let timers = libncpu::Timers::new()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let timer = timers.timer(move |expiry| sender.send(expiry.expirations()).unwrap())?;
    /// timer.arm(Duration::from_micros(50))?;
    /// assert_eq!(receiver.recv()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timer<F>(&self, callback: F) -> Result<Timer<'_>, OutOfMemory>
    where
        F: FnMut(&Expiry<'_>) + Send + 'static,
    {
        let node = one(Node {
            header: Header {
                raw: RawTimer::new(expire::<F>, std::ptr::null_mut()),
                inner: self.inner(),
                dropped: Cell::new(false),
                free: free::<F>,
            },
            callback: UnsafeCell::new(callback),
        })?;
        Ok(Timer { timers: self, node: NonNull::from(Box::leak(node)).cast() })
    }
}

#[repr(C)]
struct Header {
    raw: RawTimer,
    inner: *const Inner,
    /// Dropped by its own callback, which frees it at its end.
    dropped: Cell<bool>,
    free: unsafe fn(*mut Header),
}

#[repr(C)]
struct Node<F> {
    header: Header,
    callback: UnsafeCell<F>,
}

/// # Safety
/// It is a `Node<F>` without other users.
unsafe fn free<F>(node: *mut Header) {
    // SAFETY: leaked by `Timers::timer`.
    drop(unsafe { Box::from_raw(node.cast::<Node<F>>()) });
}

/// The callback of all owned timers.
unsafe extern "C-unwind" fn expire<F: FnMut(&Expiry<'_>)>(
    timer: *const RawTimer,
    _: *mut c_void,
    expirations: u64,
) {
    let node = timer.cast::<Node<F>>();
    // SAFETY: the timer is the first part of a node, which lives until the callback has returned: a `Timer` that is
    // dropped waits for that, or leaves the node to this function. No other call of it runs at the same time.
    unsafe {
        (*(*node).callback.get())(&Expiry { header: &(*node).header, expirations });
        if (*node).header.dropped.get() {
            // The callback may have armed it after the drop.
            (*(*node).header.inner).cancel(timer, true);
            free::<F>(node.cast_mut().cast());
        }
    }
}

/// A timer that owns its callback. Dropping it cancels it and waits until the callback is not running, except within
/// the callback itself.
pub struct Timer<'a> {
    timers: &'a Timers,
    node: NonNull<Header>,
}

// SAFETY: its callback is `Send`, and all other state is under locks.
unsafe impl Send for Timer<'_> {}
// SAFETY: as above; `&Timer` gives no access to the callback.
unsafe impl Sync for Timer<'_> {}

impl Timer<'_> {
    fn raw(&self) -> *const RawTimer {
        self.node.as_ptr().cast()
    }

    /// Arms it, or moves it if it is armed; returns whether it was.
    ///
    /// # Errors
    /// See [`Timers::arm`].
    pub fn arm(&self, when: impl Into<When>) -> io::Result<bool> {
        // SAFETY: it lives until it was cancelled in `drop`; the callback may run on any thread, and outlives
        // all calls.
        unsafe { self.timers.arm(self.raw(), when.into()) }
    }

    /// Cancels it; see [`Timers::cancel`].
    pub fn cancel(&self) -> bool {
        // SAFETY: alive.
        unsafe { self.timers.cancel(self.raw()) }
    }

    /// Cancels it and waits until its callback is not running; see [`Timers::cancel_wait`].
    pub fn cancel_wait(&self) -> Cancelled {
        // SAFETY: alive; its callback frees it only after `drop`.
        unsafe { self.timers.cancel_wait(self.raw()) }
    }

    /// Whether it is armed; see [`Timers::is_armed`].
    pub fn is_armed(&self) -> bool {
        // SAFETY: alive.
        unsafe { self.timers.is_armed(self.raw()) }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if self.cancel_wait() == Cancelled::Running {
            // SAFETY: alive, and this is the callback's thread, which alone reads it.
            unsafe { self.node.as_ref() }.dropped.set(true);
        } else {
            // SAFETY: not armed and not running, and no thread can arm it any more.
            unsafe {
                let free = self.node.as_ref().free;
                free(self.node.as_ptr());
            }
        }
    }
}

/// The argument of a callback: the number of expirations, and a handle on its own timer.
pub struct Expiry<'a> {
    header: &'a Header,
    expirations: u64,
}

impl Expiry<'_> {
    /// Periods since the last call: more than 1 if a periodic timer was late.
    pub fn expirations(&self) -> u64 {
        self.expirations
    }

    /// Arms the timer again, on this CPU; returns whether it was armed.
    ///
    /// # Errors
    /// A program that closed the descriptor. Helpers live during a callback, so no other errors occur.
    pub fn arm(&self, when: impl Into<When>) -> io::Result<bool> {
        // SAFETY: alive during the callback, and cancelled before it is freed; `Timers` waits for callbacks.
        unsafe { (*self.header.inner).arm(&self.header.raw, when.into()) }
    }

    /// Cancels the timer if it is armed: a periodic one, or one that was armed again. Returns whether it was
    /// armed.
    pub fn cancel(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.header.inner).cancel(&self.header.raw, false) == Cancelled::Armed }
    }
}

//! Timers on wheels of the CPUs, without owners.
//!
//! # Where it comes from
//!
//! From the callouts of Solaris, as Steve Sistare tells it ("High Resolution Timeouts", 2012): timeouts that every
//! CPU could post, but that one clock thread expired, gave way to a timer interrupt of each CPU, so that resolution
//! and the number of CPUs cost nothing any more. Here each CPU has a [`wheel`](crate::timers::wheel) and, while timers are
//! armed on it, a helper thread bound to it. That a running timer stays where it runs, and that the wheel and not the
//! timer says which one is running, is how Linux's `timer.c` lets callbacks free their timer.
//!
//! # Structure
//!
//! Arming inserts the timer into the wheel of the CPU that the thread is on. The helper sleeps in `read` of a
//! timerfd that is set to the next time that anything is due, and to nothing in between (tickless). Who arms a timer
//! that is due before that sets the timerfd to it, one system call, without waking the helper; who arms a later one
//! does not; cancelling never does, so at times the helper wakes for nothing.
//!
//! # Invariants
//!
//! 1. `state` of a timer names its *home*, the CPU in whose wheel it is or last was. It is changed only with the lock
//!    of the home held, and from none to some CPU only with that one's held. `PENDING` is set if and only if the
//!    timer is in the home's wheel. Time, slack and period are written and read with the home's lock held.
//! 2. A callback runs on the home's helper, without a lock; `running` names its timer meanwhile. Arming leaves a timer
//!    that is running at home, so callbacks of a timer never overlap.
//! 3. While a wheel holds timers, its helper is alive, and either awake or asleep with the timerfd set to
//!    `alarm_at`, not after the first is due. Both are changed under the lock, the timerfd is set under the lock, and
//!    the helper, awake, looks at the wheel before it sleeps. So no time is missed.
//! 4. Once the helper released the lock to call back it does not touch the timer: the callback may free it.
//!
//! # Memory ordering
//!
//! All is ordered by locks: what was done before arming happens before the callback, since one thread had the home's
//! lock after the other; and a callback happens before the next of the same timer, wherever it is armed, and before
//! the return of `cancel_wait`, which has seen with the home's lock held that it was over. Only where `state` says
//! that there is nothing to do is no lock taken: its stores are releases under the lock and its first load is an
//! acquire, so what the lock would order is ordered by it.
//!
//! # Fork
//!
//! A child process has no helpers. A handler of `pthread_atfork` counts forks; the first use in a child finds that
//! the count differs from that in `epoch` and makes all wheels empty, whatever state they were copied in. The epoch
//! is part of `state`, so that all timers count as not armed there.

mod cpu;

use crate::percpu::{OutOfMemory, PerCpu, one};
use crate::sys::{self, ALL, AtomicU32, Ordering};
use crate::timers::wheel::Entry;
use Ordering::{Acquire, Relaxed, Release};
use cpu::CpuTimers;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

/// In the home's wheel.
const PENDING: u32 = 1;
const HOME_SHIFT: u32 = 1;
const HOME_MASK: u32 = (1 << 17) - 1;
const EPOCH_SHIFT: u32 = 18;

/// Shorter periods are this long, in ns: a helper that never came to an end would serve nobody else.
const PERIOD_LEAST: u64 = 1_000;
/// How long a helper that has nothing to do remains, in ns.
const LINGER: u64 = 1_000_000_000;

/// What an expiry does: called with the timer, what [`RawTimer::new`] was given and how many periods have passed
/// since the last call (1 unless a periodic timer is late).
pub type Callback = unsafe extern "C-unwind" fn(timer: *const RawTimer, data: *mut c_void, expirations: u64);

/// A timer in memory of the caller's: 64 bytes. It stays where it is while it is armed.
#[repr(C)]
pub struct RawTimer {
    entry: Entry,
    /// In ns, 0 is once.
    period: Cell<u64>,
    callback: Callback,
    data: *mut c_void,
    state: AtomicU32,
}

// SAFETY: the cells are accessed with the home's lock held; what `data` points to is the callback's business.
unsafe impl Send for RawTimer {}
// SAFETY: as above.
unsafe impl Sync for RawTimer {}

impl RawTimer {
    /// A timer that is not armed.
    pub const fn new(callback: Callback, data: *mut c_void) -> RawTimer {
        RawTimer { entry: Entry::new(), period: Cell::new(0), callback, data, state: AtomicU32::new(0) }
    }

    /// Whether memory that was zero has become a timer.
    ///
    /// # Safety
    /// The memory is zero or was initialised.
    pub unsafe fn is_initialised(this: *const RawTimer) -> bool {
        // SAFETY: a word, whatever it holds.
        unsafe { this.byte_add(std::mem::offset_of!(RawTimer, callback)).cast::<usize>().read() != 0 }
    }

    fn entry(this: *const RawTimer) -> *const Entry {
        // It is the first field.
        this.cast()
    }
}

/// When a timer expires.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// In ns.
    pub(crate) at: u64,
    pub(crate) slack: u64,
    pub(crate) period: u64,
    /// The time when this was made, or 0.
    pub(crate) now: u64,
}

impl When {
    /// `ns` from now; far times are the end of time, in 584 years.
    pub(crate) fn after_ns(ns: u64) -> When {
        let now = sys::clock();
        When { at: now.saturating_add(ns), slack: 0, period: 0, now }
    }
}

/// What [`Timers::cancel_wait`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was armed.
    Armed,
    /// It was not.
    NotArmed,
    /// The caller is the timer's own callback, which cannot be waited for. The timer is not armed now.
    Running,
}

/// What happened so far, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Timers armed now.
    pub armed: u64,
    /// Callbacks called.
    pub fired: u64,
    /// Timers taken out before their time: cancelled, or moved to another.
    pub removed: u64,
    /// How often helpers woke up.
    pub wakeups: u64,
    /// Helpers there are.
    pub helpers: u64,
}

/// A timing wheel for each CPU, and the threads that serve them.
///
/// 128 bytes to 256 for each possible CPU; for each that ever armed a timer 14 KB, a descriptor and, while timers are
/// armed and for a second after, a thread. Dropping it waits for callbacks that are running; timers that are armed
/// then never expire.
pub struct Timers {
    inner: NonNull<Inner>,
}

// SAFETY: all of it is locks and atomics.
unsafe impl Send for Timers {}
// SAFETY: as above.
unsafe impl Sync for Timers {}

/// What stays where it is when [`Timers`] is moved.
pub(crate) struct Inner {
    cpus: PerCpu<CpuTimers>,
    /// The number of forks before; see the module.
    epoch: AtomicU32,
}

impl Timers {
    /// No timers, no threads.
    pub fn new() -> Result<Timers, OutOfMemory> {
        Timers::with_linger_ns(LINGER)
    }

    pub(crate) fn with_linger_ns(linger: u64) -> Result<Timers, OutOfMemory> {
        if !sys::watch_forks() {
            return Err(OutOfMemory(size_of::<Inner>()));
        }
        let inner = one(Inner {
            cpus: PerCpu::new(|cpu| CpuTimers::new(cpu, linger))?,
            epoch: AtomicU32::new(sys::forks()),
        })?;
        Ok(Timers { inner: NonNull::from(Box::leak(inner)) })
    }

    pub(crate) fn inner(&self) -> &Inner {
        // SAFETY: freed by `drop` only.
        unsafe { self.inner.as_ref() }
    }

    /// Arms a timer; one that is armed already is moved. Returns whether it was.
    ///
    /// It expires on this CPU from now on, or, if its callback is running, where that runs.
    ///
    /// # Errors
    /// The first timer of a CPU needs memory, a descriptor and a thread. With an error the timer is not armed.
    ///
    /// # Safety
    /// The timer is used with this `Timers` only, is alive until it has expired for the last time or been cancelled,
    /// and is not moved while it is armed. What its callback does is sound on another thread.
    pub unsafe fn arm(&self, timer: *const RawTimer, when: When) -> io::Result<bool> {
        // SAFETY: as the caller promised.
        unsafe { self.inner().arm(timer, when) }
    }

    /// Cancels a timer; returns whether it was armed. If so, the callback will not be called; else it has been,
    /// perhaps is running still, or was not going to.
    ///
    /// # Safety
    /// The timer is alive and used with this `Timers` only.
    pub unsafe fn cancel(&self, timer: *const RawTimer) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.inner().cancel(timer, false) == Cancelled::Armed }
    }

    /// Cancels a timer and waits until its callback is not running; should that have armed it again, it is cancelled
    /// again. Then its memory may be used for something else.
    ///
    /// In the callback itself it does not wait. Two callbacks on different CPUs that wait for each other wait forever,
    /// and so does one that waits for a lock that the caller holds.
    ///
    /// # Safety
    /// The timer is alive, its callback does not free it, and it is used with this `Timers` only.
    pub unsafe fn cancel_wait(&self, timer: *const RawTimer) -> Cancelled {
        // SAFETY: as the caller promised.
        unsafe { self.inner().cancel(timer, true) }
    }

    /// Whether a timer is armed: old news unless others are kept from arming and it cannot expire.
    ///
    /// # Safety
    /// The timer is alive and used with this `Timers` only.
    pub unsafe fn is_armed(&self, timer: *const RawTimer) -> bool {
        let inner = self.inner();
        // SAFETY: as the caller promised.
        let state = unsafe { (*timer).state.load(Acquire) };
        state & PENDING != 0 && !inner.forked() && inner.home(state).is_some()
    }

    /// What happened so far.
    pub fn activity(&self) -> Activity {
        let inner = self.inner();
        inner.renew_if_forked();
        inner.cpus.iter().fold(Activity::default(), |sum, cpu| {
            let local = cpu.local.lock();
            Activity {
                armed: sum.armed + local.wheel.as_ref().map_or(0, |wheel| wheel.len() as u64),
                fired: sum.fired + local.fired,
                removed: sum.removed + local.removed,
                wakeups: sum.wakeups + local.wakeups,
                helpers: sum.helpers + u64::from(local.alive),
            }
        })
    }

    /// Whether the caller is a callback of one of these timers.
    pub fn in_callback(&self) -> bool {
        let me = sys::thread_id();
        self.inner().cpus.iter().any(|cpu| cpu.local.lock().helper_id == me)
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        let inner = self.inner();
        inner.renew_if_forked();
        let (me, mut own) = (sys::thread_id(), false);
        for cpu in inner.cpus.iter() {
            let mut local = cpu.local.lock();
            local.stopping = true;
            own |= local.alive && local.helper_id == me;
            if local.alive {
                local.set_alarm(0).expect("timerfd");
            }
        }
        for cpu in inner.cpus.iter() {
            let mut local = cpu.local.lock();
            if local.helper_id == me {
                continue;
            }
            let helper = local.helper.take();
            drop(local);
            if let Some(helper) = helper {
                helper.join();
            }
        }
        if own {
            // Dropped by one of its callbacks: that thread comes back to its wheel, so the memory stays.
            return;
        }
        // SAFETY: from `new`; all helpers have ended.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

impl Inner {
    fn forked(&self) -> bool {
        self.epoch.load(Acquire) != sys::forks()
    }

    fn renew_if_forked(&self) {
        if self.forked() {
            self.renew();
        }
    }

    /// In a child process: forgets the parent's timers and threads.
    #[cold]
    fn renew(&self) {
        sys::once_forked(|| {
            if !self.forked() {
                return;
            }
            for cpu in self.cpus.iter() {
                // SAFETY: others wait in `once_forked` until the epoch is set, and the helpers are not in this process.
                unsafe { cpu.forget() };
            }
            self.epoch.store(sys::forks(), Release);
        });
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed) << EPOCH_SHIFT
    }

    /// The home that a timer's state tells.
    fn home(&self, state: u32) -> Option<usize> {
        let home = state >> HOME_SHIFT & HOME_MASK;
        (home != 0 && state >> EPOCH_SHIFT << EPOCH_SHIFT == self.epoch()).then(|| home as usize - 1)
    }

    fn state(&self, home: usize) -> u32 {
        self.epoch() | (home as u32 + 1) << HOME_SHIFT
    }

    /// See [`Timers::arm`].
    pub(crate) unsafe fn arm(&self, timer: *const RawTimer, when: When) -> io::Result<bool> {
        self.renew_if_forked();
        // SAFETY: alive, as the caller promised.
        let state = unsafe { &(*timer).state };
        let mut was = false;
        loop {
            let seen = state.load(Acquire);
            let here = self.cpus.slot(sys::here());
            let Some(home) = self.home(seen) else {
                let cpu = &self.cpus[here];
                let mut local = cpu.local.lock();
                local.ready(cpu)?;
                let new = self.state(here);
                if state.compare_exchange(seen, new, Acquire, Relaxed).is_err() {
                    // Another thread arms it too.
                    continue;
                }
                // SAFETY: it had no home, so it is in no wheel; now it is this one's.
                unsafe { local.insert(timer, &when)? };
                state.store(new | PENDING, Release);
                return Ok(was);
            };
            let cpu = &self.cpus[home];
            let mut local = cpu.local.lock();
            let seen = state.load(Relaxed);
            if self.home(seen) != Some(home) {
                continue;
            }
            if seen & PENDING != 0 {
                // SAFETY: pending at home.
                unsafe { local.remove(timer) };
                was = true;
            }
            if home != here && !ptr::eq(local.running, timer) {
                state.store(self.epoch(), Release);
                continue;
            }
            state.store(seen & !PENDING, Release);
            local.ready(cpu)?;
            // SAFETY: removed, or not pending before.
            unsafe { local.insert(timer, &when)? };
            state.store(seen | PENDING, Release);
            return Ok(was);
        }
    }

    /// See [`Timers::cancel`] and [`Timers::cancel_wait`].
    pub(crate) unsafe fn cancel(&self, timer: *const RawTimer, wait: bool) -> Cancelled {
        if self.forked() {
            return Cancelled::NotArmed;
        }
        // SAFETY: alive, as the caller promised.
        let state = unsafe { &(*timer).state };
        let mut found = Cancelled::NotArmed;
        loop {
            let seen = state.load(Acquire);
            let Some(home) = self.home(seen) else { return found };
            if seen & PENDING == 0 && !wait {
                return found;
            }
            let cpu = &self.cpus[home];
            let mut local = cpu.local.lock();
            let seen = state.load(Relaxed);
            if self.home(seen) != Some(home) {
                continue;
            }
            if seen & PENDING != 0 {
                // SAFETY: pending at home.
                unsafe { local.remove(timer) };
                state.store(seen & !PENDING, Release);
                found = Cancelled::Armed;
            }
            if !wait || !ptr::eq(local.running, timer) {
                return found;
            }
            if local.helper_id == sys::thread_id() {
                return Cancelled::Running;
            }
            local.waiters += 1;
            let turn = cpu.ended.load(Relaxed);
            drop(local);
            cpu.ended.wait(turn, ALL, None, false);
            cpu.local.lock().waiters -= 1;
        }
    }
}

/// Shortens a period to what is served.
pub(crate) fn period(ns: u64) -> u64 {
    if ns == 0 { 0 } else { ns.max(PERIOD_LEAST) }
}

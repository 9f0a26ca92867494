//! Timers on wheels of the CPUs, without owners.
//!
//! # Where it comes from
//!
//! From the callouts of Solaris, as Steve Sistare describes them ("High Resolution Timeouts", 2012): timeouts
//! that every CPU could post but one clock thread expired were replaced by a timer interrupt of each CPU, so
//! that neither resolution nor the number of CPUs has a cost. Here each CPU has a
//! [`wheel`](crate::timers::wheel) and, while timers are armed on it, a helper thread bound to it. Two ideas
//! come from Linux's `timer.c`: a running timer stays on its CPU, and the wheel, not the timer, records which
//! one is running. So callbacks may free their timer.
//!
//! # Structure
//!
//! Arming inserts the timer into the wheel of the CPU that the thread is on. The helper sleeps in `read` of a
//! timerfd that is set to the next due time, and does not wake in between (tickless). A thread that arms an
//! earlier timer sets the timerfd to it, one system call, without waking the helper. A thread that arms a
//! later timer does not, and cancelling never does, so sometimes the helper wakes with nothing to do.
//!
//! # Invariants
//!
//! 1. `state` of a timer names its *home*, the CPU of its current or last wheel. It is changed only with
//!    the home's lock held, and from no home to a CPU only with that CPU's lock held. `PENDING` is set if and
//!    only if the timer is in the home's wheel. Time, slack and period are written and read with the home's
//!    lock held.
//! 2. A callback runs on the home's helper, without a lock; `running` names its timer meanwhile. Arming a
//!    running timer keeps it at its home, so callbacks of a timer never overlap.
//! 3. While a wheel holds timers, its helper is alive, and either awake or asleep with the timerfd set to
//!    `alarm_at`, which is not after the first due time. Both are changed under the lock, the timerfd is set
//!    under the lock, and the helper, once awake, looks at the wheel before it sleeps. So no time is missed.
//! 4. Once the helper has released the lock to call back it does not touch the timer: the callback may free
//!    it.
//!
//! # Memory ordering
//!
//! Locks order all accesses. Actions before arming happen before the callback, since one thread had the
//! home's lock after the other. A callback happens before the next of the same timer, wherever it is armed,
//! and before the return of `cancel_wait`, which has seen with the home's lock held that it was over. No lock
//! is taken only if `state` leaves nothing to do. Its stores are releases under the lock and its
//! first load is an acquire, so it provides the same order as the lock.
//!
//! # Fork
//!
//! A child process has no helpers. A handler of `pthread_atfork` counts forks. The first use in a child finds
//! that the count differs from that in `epoch` and makes all wheels empty, whatever state they were copied
//! in. The epoch is part of `state`, so all timers count as not armed there.

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

/// The shortest period, in ns; shorter ones are extended to it. Otherwise a helper could be busy with one
/// timer forever.
const PERIOD_LEAST: u64 = 1_000;
/// How long an idle helper remains, in ns.
const LINGER: u64 = 1_000_000_000;

/// The function that an expiry calls: with the timer, the `data` of [`RawTimer::new`], and the number of
/// periods since the last call (1 unless a periodic timer is late).
pub type Callback = unsafe extern "C-unwind" fn(timer: *const RawTimer, data: *mut c_void, expirations: u64);

/// A timer in the caller's memory: 64 bytes. It must not move while it is armed.
#[repr(C)]
pub struct RawTimer {
    entry: Entry,
    /// In ns, 0 is once.
    period: Cell<u64>,
    callback: Callback,
    data: *mut c_void,
    state: AtomicU32,
}

// SAFETY: the cells are accessed with the home's lock held; only the callback dereferences `data`.
unsafe impl Send for RawTimer {}
// SAFETY: as above.
unsafe impl Sync for RawTimer {}

impl RawTimer {
    /// A timer that is not armed.
    pub const fn new(callback: Callback, data: *mut c_void) -> RawTimer {
        RawTimer { entry: Entry::new(), period: Cell::new(0), callback, data, state: AtomicU32::new(0) }
    }

    /// Whether zeroed memory was initialised as a timer.
    ///
    /// # Safety
    /// The memory is zero or was initialised.
    pub unsafe fn is_initialised(this: *const RawTimer) -> bool {
        // SAFETY: a word with any value.
        unsafe { this.byte_add(std::mem::offset_of!(RawTimer, callback)).cast::<usize>().read() != 0 }
    }

    fn entry(this: *const RawTimer) -> *const Entry {
        // The entry is the first field.
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
    /// The current time when this was made, or 0.
    pub(crate) now: u64,
}

impl When {
    /// `ns` from now; too distant times become the end of time, in 584 years.
    pub(crate) fn after_ns(ns: u64) -> When {
        let now = sys::clock();
        When { at: now.saturating_add(ns), slack: 0, period: 0, now }
    }
}

/// Result of [`Timers::cancel_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The timer was armed.
    Armed,
    /// The timer was not armed.
    NotArmed,
    /// The caller is the timer's own callback, which cannot wait for itself. The timer is disarmed.
    Running,
}

/// Counts so far, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Timers armed now.
    pub armed: u64,
    /// Callbacks called.
    pub fired: u64,
    /// Timers removed before they expired: cancelled, or armed for another time.
    pub removed: u64,
    /// Wake-ups of helpers.
    pub wakeups: u64,
    /// Helpers that exist.
    pub helpers: u64,
}

/// A timing wheel for each CPU, and the threads that serve them.
///
/// 128 to 256 bytes for each possible CPU; for each CPU that ever armed a timer 14 KB, a descriptor and,
/// while timers are armed and for a second after, a thread. Dropping it waits for running callbacks; timers
/// that are still armed never expire.
pub struct Timers {
    inner: NonNull<Inner>,
}

// SAFETY: all of it is locks and atomics.
unsafe impl Send for Timers {}
// SAFETY: as above.
unsafe impl Sync for Timers {}

/// The state that does not move when [`Timers`] is moved.
pub(crate) struct Inner {
    cpus: PerCpu<CpuTimers>,
    /// The number of forks at the last use; see the module.
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

    /// Arms a timer, or moves it if it is armed already. Returns whether it was armed.
    ///
    /// It expires on this CPU or, if its callback is running, on the callback's CPU.
    ///
    /// # Errors
    /// The first timer of a CPU needs memory, a descriptor and a thread. After an error the timer is not
    /// armed.
    ///
    /// # Safety
    /// The timer is used with this `Timers` only, is alive until it has expired for the last time or been
    /// cancelled, and is not moved while it is armed. Its callback is sound on another thread.
    pub unsafe fn arm(&self, timer: *const RawTimer, when: When) -> io::Result<bool> {
        // SAFETY: as the caller promised.
        unsafe { self.inner().arm(timer, when) }
    }

    /// Cancels a timer; returns whether it was armed. If it was, the callback will not be called. Otherwise
    /// it was called, may still be running, or was never armed.
    ///
    /// # Safety
    /// The timer is alive and used with this `Timers` only.
    pub unsafe fn cancel(&self, timer: *const RawTimer) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.inner().cancel(timer, false) == Cancelled::Armed }
    }

    /// Cancels a timer and waits until its callback is not running. If the callback armed it again, it is
    /// cancelled again. After this its memory may be reused.
    ///
    /// In the callback itself it does not wait. Two callbacks on different CPUs that wait for each other wait
    /// forever, and so does a caller that holds a lock for which the callback waits.
    ///
    /// # Safety
    /// The timer is alive, its callback does not free it, and it is used with this `Timers` only.
    pub unsafe fn cancel_wait(&self, timer: *const RawTimer) -> Cancelled {
        // SAFETY: as the caller promised.
        unsafe { self.inner().cancel(timer, true) }
    }

    /// Whether a timer is armed. The answer may be out of date unless no thread can arm it and it cannot
    /// expire.
    ///
    /// # Safety
    /// The timer is alive and used with this `Timers` only.
    pub unsafe fn is_armed(&self, timer: *const RawTimer) -> bool {
        let inner = self.inner();
        // SAFETY: as the caller promised.
        let state = unsafe { (*timer).state.load(Acquire) };
        state & PENDING != 0 && !inner.forked() && inner.home(state).is_some()
    }

    /// Counts so far.
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
            // Dropped by one of its callbacks: that thread returns to its wheel, so the memory stays.
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
                // SAFETY: other threads wait in `once_forked` until the epoch is set, and the helpers are not
                // in this process.
                unsafe { cpu.forget() };
            }
            self.epoch.store(sys::forks(), Release);
        });
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed) << EPOCH_SHIFT
    }

    /// The home named by a timer's state.
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

/// Raises a period to the shortest supported one.
pub(crate) fn period(ns: u64) -> u64 {
    if ns == 0 { 0 } else { ns.max(PERIOD_LEAST) }
}

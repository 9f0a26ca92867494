//! The timers of a CPU: its wheel, the alarm, and the helper that sleeps until the alarm and calls back.

use super::{PENDING, RawTimer, When};
use crate::locks::mutex::{Mutex, MutexGuard};
use crate::sys::{self, ALL, Alarm, Futex, Helper, Ordering, Serve};
use crate::timers::wheel::{Popped, Wheel};
use Ordering::{Relaxed, Release};
use std::io;
use std::ptr;

/// The number of timers that move down a level before the lock is released once.
const BATCH: u32 = 256;
/// A helper does not sleep for less than this, in ns: about the cost of the alarm and two context switches.
/// Timers that are armed meanwhile are late by at most this much.
const SHORT: u64 = 2_000;

/// The timers of a CPU.
pub(super) struct CpuTimers {
    pub(super) local: Mutex<Local>,
    /// Counts callbacks that ended while a thread waited for one.
    pub(super) ended: Futex,
    cpu: usize,
    /// How long an idle helper remains, in ns.
    linger: u64,
}

/// Under a CPU's lock.
pub(super) struct Local {
    /// Made at first use, like the alarm.
    pub(super) wheel: Option<Wheel>,
    alarm: Option<Alarm>,
    /// The time that the alarm is set to while the helper sleeps.
    alarm_at: u64,
    asleep: bool,
    /// The wheel has been empty since the helper fell asleep.
    idle: bool,
    /// The helper thread, which may be about to end.
    pub(super) helper: Option<Helper>,
    pub(super) alive: bool,
    pub(super) helper_id: u32,
    pub(super) stopping: bool,
    /// The timer of the running callback. Must not be dereferenced.
    pub(super) running: *const RawTimer,
    /// Threads that wait for the end of a callback.
    pub(super) waiters: u32,
    pub(super) fired: u64,
    pub(super) removed: u64,
    pub(super) wakeups: u64,
}

// SAFETY: pointers in it are followed only with the lock held.
unsafe impl Send for Local {}

impl Local {
    const fn new() -> Local {
        Local {
            wheel: None,
            alarm: None,
            alarm_at: 0,
            asleep: false,
            idle: false,
            helper: None,
            alive: false,
            helper_id: 0,
            stopping: false,
            running: ptr::null(),
            waiters: 0,
            fired: 0,
            removed: 0,
            wakeups: 0,
        }
    }

    /// Creates wheel, alarm and helper if they do not exist.
    pub(super) fn ready(&mut self, cpu: &CpuTimers) -> io::Result<()> {
        if self.alive {
            return Ok(());
        }
        self.start(cpu)
    }

    #[cold]
    fn start(&mut self, cpu: &CpuTimers) -> io::Result<()> {
        if self.wheel.is_none() {
            let none = |_| io::Error::from_raw_os_error(libc::ENOMEM);
            self.wheel = Some(Wheel::new(sys::clock()).map_err(none)?);
        }
        if self.alarm.is_none() {
            self.alarm = Some(Alarm::new()?);
        }
        if let Some(ended) = self.helper.take() {
            // It released the lock after its last access to this data.
            ended.join();
        }
        (self.asleep, self.idle, self.helper_id) = (false, false, 0);
        // SAFETY: `Timers::drop` joins it before this CPU's part is freed.
        self.helper = Some(unsafe { Helper::start(cpu)? });
        self.alive = true;
        Ok(())
    }

    fn wheel(&self) -> &Wheel {
        self.wheel.as_ref().expect("a wheel where timers are")
    }

    /// Sets the alarm. An error means that the program closed the library's descriptor.
    pub(super) fn set_alarm(&mut self, at: u64) -> io::Result<()> {
        self.alarm.as_ref().expect("an alarm where timers are").set(at)?;
        self.alarm_at = at;
        Ok(())
    }

    /// # Safety
    /// The timer is in this wheel.
    pub(super) unsafe fn remove(&mut self, timer: *const RawTimer) {
        // SAFETY: as the caller promised.
        unsafe { self.wheel().remove(RawTimer::entry(timer)) };
        self.removed += 1;
    }

    /// # Safety
    /// The timer is in no wheel, and its home is this CPU.
    pub(super) unsafe fn insert(&mut self, timer: *const RawTimer, when: &When) -> io::Result<()> {
        // SAFETY: alive, as the caller of `arm` promised; its home's lock is held.
        let entry = unsafe {
            (*timer).period.set(when.period);
            &(*timer).entry
        };
        entry.at.set(when.at);
        entry.slack.set(when.slack);
        let due = entry.due();
        if self.asleep && due < self.alarm_at {
            self.set_alarm(due)?;
        }
        self.idle = false;
        let wheel = self.wheel();
        wheel.refresh(when.now);
        // SAFETY: in no wheel.
        unsafe { wheel.insert(RawTimer::entry(timer)) };
        Ok(())
    }
}

impl CpuTimers {
    /// Without a wheel and a helper. An idle helper remains for `linger` ns.
    pub(super) fn new(cpu: usize, linger: u64) -> CpuTimers {
        CpuTimers { local: Mutex::new(Local::new()), ended: Futex::new(0), cpu, linger }
    }

    /// Forgets the parent's timers and helper.
    ///
    /// # Safety
    /// In a child process after fork, while no other thread uses it.
    pub(super) unsafe fn forget(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.local.raw().reset_after_fork() };
        let mut local = self.local.lock();
        let old = std::mem::replace(&mut *local, Local::new());
        // The descriptor may belong to another file by now, if the child closed all descriptors.
        let _left_open = std::mem::ManuallyDrop::new(old.alarm);
    }

    /// Calls back.
    fn fire<'a>(
        &'a self,
        mut local: MutexGuard<'a, Local>,
        timer: *const RawTimer,
        now: u64,
    ) -> MutexGuard<'a, Local> {
        // SAFETY: it was in the wheel until now, and the lock is held, so no thread frees it.
        let RawTimer { entry, period, callback, data, state } = unsafe { &*timer };
        let (callback, data) = (*callback, *data);
        let mut expirations = 1;
        match period.get() {
            0 => state.store(state.load(Relaxed) & !PENDING, Release),
            period => {
                let at = entry.at.get();
                expirations = now.saturating_sub(at) / period + 1;
                entry.at.set(at.saturating_add(expirations.saturating_mul(period)));
                // SAFETY: just popped.
                unsafe { local.wheel().insert(RawTimer::entry(timer)) };
            }
        }
        local.running = timer;
        local.fired += 1;
        drop(local);
        // SAFETY: the promise of the thread that armed it.
        unsafe { callback(timer, data, expirations) };
        let mut local = self.local.lock();
        local.running = ptr::null();
        if local.waiters > 0 {
            self.ended.fetch_add(1, Relaxed);
            self.ended.wake(ALL, ALL, false);
        }
        local
    }
}

impl Serve for CpuTimers {
    fn serve(&self) {
        sys::settle(self.cpu);
        let mut local = self.local.lock();
        local.helper_id = sys::thread_id();
        let mut now = sys::clock();
        while !local.stopping {
            match local.wheel().pop(now, &mut { BATCH }) {
                Popped::Due(entry) => local = self.fire(local, entry.cast(), now),
                Popped::Busy => {
                    // Other threads may want to arm timers, and timers that became due meanwhile come first.
                    drop(local);
                    local = self.local.lock();
                    now = sys::clock();
                    local.wheel().hurry();
                }
                Popped::Nothing => {
                    now = sys::clock();
                    let until = match local.wheel().next() {
                        Some(due) if due <= now => continue,
                        Some(due) if due - now < SHORT => {
                            drop(local);
                            while now < due {
                                sys::pause(1);
                                now = sys::clock();
                            }
                            local = self.local.lock();
                            continue;
                        }
                        Some(due) => due,
                        None if local.idle && now >= local.alarm_at => break,
                        None => {
                            local.idle = true;
                            now.saturating_add(self.linger)
                        }
                    };
                    local.set_alarm(until).expect("timerfd");
                    local.asleep = true;
                    // No other thread sets or closes it while this thread lives.
                    let alarm: *const Alarm = local.alarm.as_ref().expect("an alarm");
                    drop(local);
                    // SAFETY: stays in `Local` until this thread was joined.
                    unsafe { &*alarm }.wait().expect("timerfd");
                    local = self.local.lock();
                    local.asleep = false;
                    local.wakeups += 1;
                    now = sys::clock();
                }
            }
        }
        local.alive = false;
        local.helper_id = 0;
    }
}

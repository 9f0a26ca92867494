//! Detects thundering herds at a listener and orders the acceptors.
//!
//! # Shared state
//!
//! One page, mapped before `main` and inherited over `fork`. The *family* that shares it is a program with
//! all its forks, until they exec. The page holds a slot per listener, found by the socket's cookie, and
//! consists of atomics that are only hints: whatever a crashed or hostile member leaves there, no thread is
//! held back longer than the cap, and no result changes. Members do not register, so none can be missed:
//! members that end are simply not counted any more.
//!
//! # Is there a herd?
//!
//! A call *loses* if it fails with `EAGAIN` on a non-blocking listener although another member has taken a
//! connection since this thread's last call. `EAGAIN` alone proves nothing: a thread that accepts until the
//! queue is empty, or polls at every tick, gets it without a race. But a herd need not lose: `poll` and
//! `epoll_wait` look again when they are woken, and a thread that finds the connection taken sleeps on
//! without having returned. Only the shares always show a herd. So connections are counted in *epochs* of 32
//! for each taker, and the sum of squares, to which each taker's next connection adds 2n-1, gives Jain's
//! index of evenness at the end of one. If it is below 0.9, delays are tried: while a connection is held back
//! it is visible, so a herd comes and loses. If no call lost for 16 connections in a row the herd is gone, as
//! at full load, and the delays end: they would cost throughput and not change the shares. Delays that had no
//! effect are tried again at growing intervals. Delays that had an effect stay on for some epochs, for more
//! after each success, until one epoch without delays shows whether they are still needed.
//!
//! # Turns
//!
//! If the taker waits by epoll, no thread need be held back: [`watch`] gives it the last place in the
//! listener's queue each time that it has taken a connection, and once when it has lost one. Until all takers
//! have such a place, those that have one are held back as well. Turns are on in the same epochs as delays.
//! But no call loses then, so their last epoch decides whether turns have an effect: whether shares are even,
//! or more even than before. Of a listener with `EPOLLEXCLUSIVE` only some of the waiting threads may ever
//! accept. There, shares are divided by all threads of the family that have waited in an epoll. That number
//! is sometimes too large, and then turns are tried now and then.
//!
//! # The order of delays
//!
//! A taker's *age* is the number of connections taken since its own last one. With n takers in turn, the next
//! one has age n-1, the one behind it n-2, and so on. So each waits one step for each connection that it
//! lacks in age, and the first does not wait. That needs neither numbers nor a list of members: a busy member
//! is passed by those behind it, and goes first when it comes back. A waiting thread sleeps on the slot's
//! count of connections, and the one that gets the connection wakes all: no thread sleeps for a connection
//! that was taken. And no thread waits without a connection to accept.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::settings::{Order, Settings};
use crate::watch::{self, Wait};

const SLOTS: usize = 30;
/// How long to look on after a race, or in an incomplete epoch, ms.
const RACE_MS: u32 = 60_000;
/// How long to look after two failures in a row, which may have other causes, ms.
const DOUBT_MS: u32 = 1_000;
/// A slot that was unused for this long may be given to another listener, ms.
const STALE_MS: u32 = 120_000;
/// Connections in an epoch for each taker: enough for an index of fair chance to be above 0.95.
const EPOCH: u32 = 32;
/// Connections in a row without a loss after which the herd is gone.
const QUIET: u32 = 16;
/// Shares less even than this are uneven, in thousandths.
const EVEN: u64 = 900;
/// Epochs with delays before one without, at first and at most.
const HOLD: u32 = 8;
const MAX_HOLD: u32 = 256;
/// The factor by which epochs with turns last longer: they cost a microsecond per connection and no waiting.
const TURNS: u32 = 8;
/// Connections in a row after which a thread gives newcomers a turn.
const NEWCOMERS: u32 = 16;
/// Epochs without a trial after one in vain, at first and at most.
const REST: u32 = 8;
const MAX_REST: u32 = 4096;
/// The least number of steps that the cap is divided into.
const STEPS: u32 = 8;
/// Failures in a row before a thread that found no race looks again, at most.
const MAX_PATIENCE: u32 = 1 << 16;
/// Connections of a thread before it looks whether shares are even, at first and at most.
const LOOK: u32 = 64;
const MAX_LOOK: u32 = 1 << 16;

/// The data that a family shares. Zeroes are valid.
#[repr(C, align(4096))]
pub struct Page {
    /// The end of the alert, during which calls are examined, ms of the coarse clock; 0 without one.
    alert: AtomicU32,
    /// Threads that have ever called accept.
    takers: AtomicU32,
    /// Threads that have ever waited in an epoll.
    waiters: AtomicU32,
    slots: [Slot; SLOTS],
}

/// State of a listener.
#[repr(C, align(128))]
pub struct Slot {
    cookie: AtomicU64,
    /// Connections counted so far. Threads that are held back sleep on it.
    accepted: AtomicU32,
    /// Threads that sleep, or that slept when they were killed.
    waiting: AtomicU32,
    /// When it was last used, ms of the coarse clock.
    used: AtomicU32,
    /// The number of the epoch.
    epoch: AtomicU32,
    /// `accepted` at the start of this epoch.
    began: AtomicU32,
    /// In this epoch: threads that called, and the sum of squares of their connections.
    callers: AtomicU32,
    squares: AtomicU64,
    /// Threads that called in the last epoch.
    crowd: AtomicU32,
    /// Epochs for which delays and turns stay on; 0: off.
    hold: AtomicU32,
    /// The epoch in which delays and turns began.
    since: AtomicU32,
    /// Threads whose entries were given a place since then.
    turning: AtomicU32,
    /// Evenness of the shares in the previous epoch, in thousandths.
    before: AtomicU32,
    /// The number of epochs for the next time that they are on.
    next_hold: AtomicU32,
    /// Epochs until the next trial, and after that trial if it has no effect.
    rest: AtomicU32,
    next_rest: AtomicU32,
    /// `accepted` at the last loss, or when delays began.
    last_loss: AtomicU32,
    /// Whether a call lost since then.
    raced: AtomicU32,
}

const _: () = assert!(size_of::<Page>() == 4096);

/// Milliseconds of the coarse clock: takes a few ns, exact to a tick.
fn now_ms() -> u32 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Page {
    /// Whether calls are to be examined. Two loads, of a line that is rarely written.
    #[inline(always)]
    pub fn alerted(&self) -> bool {
        let until = self.alert.load(Relaxed);
        until != 0 && self.still(until)
    }

    #[cold]
    fn still(&self, until: u32) -> bool {
        let yes = is_before(now_ms(), until);
        if !yes {
            // Back to the state in which no clock is read. If another alert came meanwhile, it stays.
            let _ = self.alert.compare_exchange(until, 0, Relaxed, Relaxed);
        }
        yes
    }

    fn alert_for(&self, ms: u32) {
        let until = now_ms().wrapping_add(ms) | 1;
        let have = self.alert.load(Relaxed);
        // Written rarely, so that the line stays in the caches of its readers.
        if have == 0 || is_before(have.wrapping_add(ms / 8), until) {
            self.alert.store(until, Relaxed);
        }
    }

    /// Ends the alert: the epoch is complete.
    fn calm(&self) {
        self.alert.store(now_ms() | 1, Relaxed);
    }

    /// The listener's slot; `None` if all are in use.
    fn slot(&self, cookie: u64) -> Option<&Slot> {
        let first = cookie as usize;
        let nth = |i: usize| &self.slots[first.wrapping_add(i) % SLOTS];
        for slot in (0..SLOTS).map(nth) {
            match slot.cookie.load(Acquire) {
                0 => match slot.cookie.compare_exchange(0, cookie, AcqRel, Acquire) {
                    Ok(_) => return Some(slot),
                    Err(now) if now == cookie => return Some(slot),
                    Err(_) => {}
                },
                have if have == cookie => return Some(slot),
                _ => {}
            }
        }
        let now = now_ms();
        let stale = |s: &&Slot| is_before(s.used.load(Relaxed).wrapping_add(STALE_MS), now);
        let slot = (0..SLOTS).map(nth).find(stale)?;
        slot.used.store(now, Relaxed);
        let old = slot.cookie.load(Relaxed);
        slot.cookie.compare_exchange(old, cookie, AcqRel, Relaxed).ok()?;
        slot.hold.store(0, Relaxed);
        slot.next_hold.store(0, Relaxed);
        slot.rest.store(0, Relaxed);
        slot.next_rest.store(0, Relaxed);
        slot.crowd.store(0, Relaxed);
        slot.begin(slot.accepted.load(Relaxed));
        Some(slot)
    }
}

impl Slot {
    fn begin(&self, at: u32) {
        self.began.store(at, Relaxed);
        self.callers.store(0, Relaxed);
        self.squares.store(0, Relaxed);
        self.epoch.fetch_add(1, Relaxed);
    }

    fn crowd(&self) -> u32 {
        self.crowd.load(Relaxed).max(self.callers.load(Relaxed)).max(1)
    }

    fn length(&self) -> u32 {
        // A count that a faulty member corrupted must not make epochs endless.
        EPOCH * self.crowd().clamp(2, 4096)
    }

    /// Ends the epoch if connection `at` completes it; called by the thread that took the connection. Returns
    /// whether the alert can end. `wait` is how that thread waits, and `waiters` the number of threads that
    /// have waited in epolls.
    fn roll(&self, at: u32, wait: Wait, waiters: u32) -> bool {
        let began = self.began.load(Relaxed);
        let length = at.wrapping_sub(began);
        if length < self.length() || self.began.compare_exchange(began, at, AcqRel, Relaxed).is_err() {
            return false;
        }
        let (callers, squares) = (self.callers.load(Relaxed), self.squares.load(Relaxed));
        self.crowd.store(callers, Relaxed);
        self.begin(at);
        let takers = if wait == Wait::Exclusive { callers.max(waiters) } else { callers };
        let even = evenness(length, takers, squares);
        if let Some(left) = self.hold.load(Relaxed).checked_sub(1) {
            self.hold.store(left, Relaxed);
            let before = u64::from(self.before.load(Relaxed));
            if left == 0 && wait != Wait::Unknown && even < EVEN && even < before + before / 8 {
                self.in_vain();
            }
        } else if let Some(left) = self.rest.load(Relaxed).checked_sub(1) {
            self.rest.store(left, Relaxed);
        } else if takers > 1 && even < EVEN {
            self.before.store(even as u32, Relaxed);
            self.since.store(self.epoch.load(Relaxed), Relaxed);
            self.turning.store(0, Relaxed);
            let hold = self.next_hold.load(Relaxed).clamp(HOLD, MAX_HOLD);
            self.next_hold.store((hold * 2).min(MAX_HOLD), Relaxed);
            self.last_loss.store(at, Relaxed);
            self.raced.store(0, Relaxed);
            self.hold.store(if wait == Wait::Unknown { hold } else { hold * TURNS }, Relaxed);
        } else {
            self.next_hold.store(HOLD, Relaxed);
            self.raced.store(0, Relaxed);
        }
        // A herd that paused may come back soon.
        self.hold.load(Relaxed) == 0 && self.raced.load(Relaxed) == 0
    }

    /// Ends delays if no call has lost for a while; called by the thread that took connection `at`.
    fn doubt(&self, at: u32) {
        if self.hold.load(Relaxed) == 0 || at.wrapping_sub(self.last_loss.load(Relaxed)) < QUIET {
            return;
        }
        self.hold.store(0, Relaxed);
        if self.raced.load(Relaxed) != 0 {
            // The herd may only be busy.
            self.next_hold.store(HOLD, Relaxed);
            self.rest.store(1, Relaxed);
            self.next_rest.store(REST, Relaxed);
        } else {
            self.in_vain();
        }
    }

    /// Turns delays and turns off for some epochs.
    fn in_vain(&self) {
        self.next_hold.store(HOLD, Relaxed);
        let rest = self.next_rest.load(Relaxed).clamp(REST, MAX_REST);
        self.rest.store(rest, Relaxed);
        self.next_rest.store((rest * 2).min(MAX_REST), Relaxed);
    }

    /// Records that a call lost.
    fn lose(&self) {
        self.last_loss.store(self.accepted.load(Relaxed), Relaxed);
        if self.raced.load(Relaxed) == 0 {
            self.raced.store(1, Relaxed);
        }
    }

    /// Sleeps until more than `seen` connections are taken, for at most `ns`, or until a signal comes.
    fn hold_back(&self, seen: u32, ns: u32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: ns.into() };
        // Sequentially consistent, as in `announce`: either the sleeper sees the new count, or the thread
        // that changed it sees the sleeper.
        self.waiting.fetch_add(1, SeqCst);
        // SAFETY: a live word and time. Shared, not private: the sleepers are other processes. No cancellation point.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const self.accepted,
                libc::FUTEX_WAIT,
                seen,
                &raw const time,
                std::ptr::null::<u32>(),
                0,
            )
        };
        // It was set to 0 meanwhile if sleepers were killed.
        let _ = self.waiting.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }

    /// Counts a connection; returns its number.
    fn announce(&self) -> u32 {
        let at = self.accepted.fetch_add(1, SeqCst).wrapping_add(1);
        if self.waiting.load(SeqCst) != 0 {
            // SAFETY: a live word.
            let woken = unsafe {
                libc::syscall(libc::SYS_futex, &raw const self.accepted, libc::FUTEX_WAKE, c_int::MAX)
            };
            if woken == 0 {
                // The others were killed in their sleep, or are about to sleep and will see the new count.
                self.waiting.store(0, Relaxed);
            }
        }
        at
    }
}

/// Jain's index in thousandths: the square of the sum over n times the sum of squares.
fn evenness(connections: u32, takers: u32, squares: u64) -> u64 {
    let n = u64::from(connections);
    let of = u64::from(takers.max(1)).saturating_mul(squares.max(1));
    (n * n).saturating_mul(1000) / of
}

/// The delay of a taker of this age in a crowd of this size, ns.
fn delay(settings: &Settings, crowd: u32, age: u32, chance: impl FnOnce() -> u32) -> u32 {
    match settings.order {
        Order::RoundRobin => {
            let last = crowd.saturating_sub(1);
            last.saturating_sub(age).saturating_mul(settings.cap / last.max(STEPS)).min(settings.cap)
        }
        Order::Random if crowd < 2 => 0,
        Order::Random => ((u64::from(chance()) * u64::from(settings.cap)) >> 32) as u32,
    }
}

/// A thread's view of a listener that it accepts from.
#[derive(Clone, Copy)]
struct View {
    cookie: u64,
    /// The slot's count after this thread's last call, and at its last connection.
    seen: u32,
    won: u32,
    /// The epoch of its last call, and its connections in that epoch.
    epoch: u32,
    wins: u32,
    /// Failures in a row without a race.
    idle: u32,
    /// Whether the thread's last connection gave its entry the last place, and the hold in which it did, by
    /// the hold's first epoch.
    turned: bool,
    since: u32,
    /// The number of threads that had been given a place by then.
    places: u32,
}

const NOTHING: View =
    View { cookie: 0, seen: 0, won: 0, epoch: 0, wins: 0, idle: 0, turned: false, since: 0, places: 0 };
/// Listeners that a thread remembers.
const VIEWS: usize = 4;

/// A thread that accepts.
pub struct Taker {
    views: [Cell<View>; VIEWS],
    counted: Cell<bool>,
    /// Failures in a row, and their descriptor.
    failures: Cell<(c_int, u32)>,
    /// The number of failures that raise an alert; 0 initially.
    patience: Cell<u32>,
    /// Connections since the last look at shares, and their number at the next look; 0 initially.
    look: Cell<(u32, u32)>,
    /// A blocking listener that was found during this alert.
    blocking: Cell<c_int>,
    /// The epoll of its last wait; -1 before the first.
    epoll: Cell<c_int>,
    random: Cell<u64>,
}

impl Taker {
    pub const fn new() -> Taker {
        Taker {
            views: [const { Cell::new(NOTHING) }; VIEWS],
            counted: Cell::new(false),
            failures: Cell::new((-1, 0)),
            patience: Cell::new(0),
            look: Cell::new((0, 0)),
            blocking: Cell::new(-1),
            epoll: Cell::new(-1),
            random: Cell::new(0),
        }
    }

    pub fn reset(&self) {
        self.views.iter().for_each(|v| v.set(NOTHING));
        self.counted.set(false);
        self.failures.set((-1, 0));
        self.patience.set(0);
        self.look.set((0, 0));
        self.blocking.set(-1);
        self.epoll.set(-1);
        self.random.set(0);
    }

    /// To be called before a wait in an epoll.
    #[inline(always)]
    pub fn waits(&self, page: &Page, epoll: c_int) {
        if self.epoll.replace(epoll) == -1 {
            page.waiters.fetch_add(1, Relaxed);
        }
    }

    fn count(&self, page: &Page) {
        if !self.counted.replace(true) {
            page.takers.fetch_add(1, Relaxed);
        }
    }

    /// To be called after a connection without an alert.
    #[inline(always)]
    pub fn got(&self, page: &Page) {
        self.failures.set((-1, 0));
        let (n, until) = self.look.get();
        self.look.set((n + 1, until));
        if n >= until {
            self.look_now(page, until);
        }
    }

    #[cold]
    fn look_now(&self, page: &Page, until: u32) {
        self.count(page);
        // The first connection was only counted.
        self.look.set((0, if until == 0 { LOOK } else { (until * 2).min(MAX_LOOK) }));
        self.blocking.set(-1);
        if until != 0 && (page.takers.load(Relaxed) > 1 || self.waiters(page) > 1) {
            page.alert_for(DOUBT_MS);
        }
    }

    /// Threads that have waited in epolls, if this thread does.
    fn waiters(&self, page: &Page) -> u32 {
        if self.epoll.get() == -1 { 0 } else { page.waiters.load(Relaxed) }
    }

    /// To be called after `EAGAIN` without an alert.
    pub fn suspects(&self, page: &Page, fd: c_int) {
        self.count(page);
        if page.takers.load(Relaxed) < 2 {
            return; // No other thread to race with.
        }
        let (of, n) = self.failures.get();
        let n = if of == fd { n + 1 } else { 1 };
        if n < self.patience.get().max(2) {
            self.failures.set((fd, n));
            return;
        }
        self.failures.set((fd, 0));
        self.blocking.set(-1);
        page.alert_for(DOUBT_MS);
    }

    /// To be called before the true call, during an alert: holds the thread back if other threads are to go
    /// first. Returns the listener's slot, unless the listener needs none.
    pub fn prepare<'a>(&self, page: &'a Page, fd: c_int, settings: &Settings) -> Option<&'a Slot> {
        self.count(page);
        if self.blocking.get() == fd {
            return None;
        }
        let Some(cookie) = listener(fd) else {
            self.blocking.set(fd);
            return None;
        };
        let slot = page.slot(cookie)?;
        let mut view = self.view(cookie, slot);
        let epoch = slot.epoch.load(Relaxed);
        if view.epoch != epoch {
            (view.epoch, view.wins) = (epoch, 0);
            slot.callers.fetch_add(1, Relaxed);
            slot.used.store(now_ms(), Relaxed);
        }
        self.keep(view);
        if slot.hold.load(Relaxed) != 0 && self.gives_way(slot, fd, cookie) {
            let seen = slot.accepted.load(SeqCst);
            let ns = delay(settings, slot.crowd(), seen.wrapping_sub(view.won), || self.chance());
            // Without a connection there is nothing to give way for.
            if ns != 0 && readable(fd) {
                slot.hold_back(seen, ns);
            }
        }
        Some(slot)
    }

    /// After the true call of [`Taker::prepare`].
    pub fn learn(&self, page: &Page, slot: &Slot, fd: c_int, result: c_int, errno: c_int) {
        let cookie = slot.cookie.load(Relaxed);
        let Some(mut view) = self.views.iter().map(Cell::get).find(|v| v.cookie == cookie) else { return };
        if result >= 0 {
            let at = slot.announce();
            let wait = watch::wait(self.epoll.get(), fd, cookie);
            if wait != Wait::Unknown {
                self.take_place(slot, fd, &mut view, at);
            }
            view.wins = view.wins.saturating_add(1);
            slot.squares.fetch_add(2 * u64::from(view.wins) - 1, Relaxed);
            (view.won, view.seen, view.idle) = (at, at, 0);
            if slot.roll(at, wait, self.waiters(page)) {
                page.calm();
            } else {
                // Rare connections make long epochs.
                page.alert_for(RACE_MS);
            }
            if wait == Wait::Unknown {
                slot.doubt(at);
            }
        } else if errno == libc::EAGAIN {
            // Takers that never win must be in the queue too.
            if watch::wait(self.epoll.get(), fd, cookie) == Wait::Entry
                && view.since != slot.since.load(Relaxed)
            {
                self.take_place(slot, fd, &mut view, slot.accepted.load(Relaxed));
            }
            let now = slot.accepted.load(Relaxed);
            if now == view.seen {
                view.idle += 1;
                if view.idle == 64 {
                    // No race: the program works in another way. Look again later, at growing intervals.
                    view.idle = 0;
                    self.patience.set((self.patience.get().max(2) * 2).min(MAX_PATIENCE));
                }
            } else {
                slot.lose();
                (view.seen, view.idle) = (now, 0);
                self.patience.set(0);
                self.look.set((0, 0));
                page.alert_for(RACE_MS);
            }
        }
        self.keep(view);
    }

    /// Whether the thread is to be held back. A thread that waits by an entry is held back only until the
    /// others have taken their places: their entries come before its own and are all woken, but it may be
    /// quicker each time.
    fn gives_way(&self, slot: &Slot, fd: c_int, cookie: u64) -> bool {
        match watch::wait(self.epoll.get(), fd, cookie) {
            Wait::Unknown => true,
            Wait::Entry => slot.turning.load(Relaxed) < slot.crowd(),
            Wait::Exclusive => false,
        }
    }

    /// With connection `at` taken or lost: takes the place in the queue that the epoch requires.
    fn take_place(&self, slot: &Slot, fd: c_int, view: &mut View, at: u32) {
        if slot.hold.load(Relaxed) == 0 {
            view.turned = false;
            watch::restore(self.epoll.get(), fd);
            return;
        }
        let since = slot.since.load(Relaxed);
        if view.since != since {
            view.since = since;
            view.turned = false;
            slot.turning.fetch_add(1, Relaxed);
        }
        // A thread that also had the last connection has no other behind it, except threads that have been
        // given a place since then, and newcomers, which need not lose to be there.
        let places = slot.turning.load(Relaxed);
        let last = view.turned && at.wrapping_sub(view.won) == 1 && view.places == places;
        if !last || at.is_multiple_of(NEWCOMERS) {
            (view.turned, view.places) = (true, places);
            watch::turn(self.epoll.get(), fd);
        }
    }

    fn view(&self, cookie: u64, slot: &Slot) -> View {
        let known = self.views.iter().map(Cell::get).find(|v| v.cookie == cookie);
        known.unwrap_or_else(|| {
            // As if it had just had its turn: a newcomer queues up at the end.
            let now = slot.accepted.load(Relaxed);
            View { cookie, seen: now, won: now, epoch: slot.epoch.load(Relaxed).wrapping_sub(1), ..NOTHING }
        })
    }

    fn keep(&self, view: View) {
        let place = |v: &&Cell<View>| v.get().cookie == view.cookie;
        let free = |v: &&Cell<View>| v.get().cookie == 0;
        let at = self.views.iter().find(place).or_else(|| self.views.iter().find(free));
        at.unwrap_or(&self.views[view.cookie as usize % VIEWS]).set(view);
    }

    /// Xorshift64*: random enough.
    fn chance(&self) -> u32 {
        let mut x = self.random.get();
        if x == 0 {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: a live timespec, and a call without arguments.
            let tid = unsafe {
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
                libc::syscall(libc::SYS_gettid)
            };
            x = (tid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.tv_nsec as u64 | 1;
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// The cookie of a non-blocking socket: its `EAGAIN` can mean a race. On a blocking one it is a timeout
/// (`SO_RCVTIMEO`), and the kernel lets blocked threads take turns.
fn listener(fd: c_int) -> Option<u64> {
    // SAFETY: a plain call, and no cancellation point.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK == 0 { None } else { watch::cookie(fd) }
}

/// Whether a connection can be accepted. A bare system call is not a cancellation point, unlike poll(3).
fn readable(fd: c_int) -> bool {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: live structures; the signal mask is left alone.
    let n = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut fd,
            1,
            &raw const at_once,
            std::ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    n > 0
}

#[cfg(test)]
mod tests;

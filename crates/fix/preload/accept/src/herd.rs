//! Who races for the connections of a listener, and who is let go first.
//!
//! # Shared state
//!
//! One page, mapped before `main` and inherited over `fork`: the *family* that shares it is a program with all it
//! forks, until they exec. It holds a slot per listener, found by the socket's cookie, and is made of atomics that are
//! hints alone: whatever a crashed or hostile member leaves there, nobody is held back longer than the cap, and no
//! result changes. Nobody registers, so nobody has to be missed: members that end just stop being counted.
//!
//! # Is there a herd?
//!
//! A call *loses* if it fails with `EAGAIN` on a non-blocking listener although some other member has taken a
//! connection since this thread's last call. `EAGAIN` alone proves nothing: who accepts until there is no more, or
//! looks at every tick, gets it without a race. But a herd need not lose: `poll` and `epoll_wait` look again when
//! they are woken, and whoever finds the connection gone sleeps on without ever having returned. What always shows
//! is the share. So connections are counted in *epochs* of 32 for each taker, and the sum of squares, to which each
//! taker's next connection adds 2n-1, gives Jain's index of evenness at the end of one. If it is below 0.9, delays are
//! tried: a held-back connection is there to be seen, so that a herd comes and loses. If nobody lost to 16 connections
//! in a row, there is none, as at full load, and the delays end: they would cost throughput and not change the shares.
//! Those tried in vain are tried again ever more seldom; those that were of use stay on for some epochs, the longer the
//! more often they were, until one is left alone to see whether they still are.
//!
//! # Turns
//!
//! Where the taker waits by epoll, nobody need be held back: [`watch`] gives it the last place in the listener's
//! queue each time that it has taken a connection, and once where it has lost one; until all have such a place, those
//! that have one are held back as well. That is on in the same epochs as delays; but as nobody loses then, it
//! is their last epoch that tells whether turns are of use: whether shares are even, or more even than before. Of a
//! listener with `EPOLLEXCLUSIVE` only some of those that wait may ever be seen to accept. There shares are those of all
//! threads of the family that have waited in an epoll: too many at times, and then turns are tried now and then.
//!
//! # The order of delays
//!
//! A taker's *age* is how many connections were taken since its own last one. With n takers in turn, the one whose
//! turn it is has age n-1, the one behind it n-2, and so on; so each waits as many steps as it lacks in age, and the
//! first not at all. That needs neither numbers nor a list of members: one that is busy is passed over by those behind
//! it, and goes first when it comes back. Who waits sleeps on the slot's count of connections, and the one that gets
//! the connection wakes all: nobody sleeps for a connection that is gone. And nobody waits if there is none.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::settings::{Order, Settings};
use crate::watch::{self, Wait};

const SLOTS: usize = 30;
/// Somebody races, or an epoch is not complete: look on for so long, ms.
const RACE_MS: u32 = 60_000;
/// Two failures in a row may mean anything: look for so long, ms.
const DOUBT_MS: u32 = 1_000;
/// A slot that nobody used for so long may become another listener's, ms.
const STALE_MS: u32 = 120_000;
/// Connections in an epoch for each taker: enough for an index of fair chance to be above 0.95.
const EPOCH: u32 = 32;
/// Connections in a row that nobody lost: there is no herd.
const QUIET: u32 = 16;
/// Shares less even than this are uneven, in thousandths.
const EVEN: u64 = 900;
/// Epochs with delays before one without, at first and at most.
const HOLD: u32 = 8;
const MAX_HOLD: u32 = 256;
/// So many times as long with turns, which cost a microsecond a connection and no waiting.
const TURNS: u32 = 8;
/// Connections in a row after which a thread makes way for newcomers.
const NEWCOMERS: u32 = 16;
/// Epochs without a trial after one in vain, at first and at most.
const REST: u32 = 8;
const MAX_REST: u32 = 4096;
/// Steps the cap is divided into at least.
const STEPS: u32 = 8;
/// Failures in a row before a thread that found no race looks again, at most.
const MAX_PATIENCE: u32 = 1 << 16;
/// Connections of a thread before it looks whether shares are even, at first and at most.
const LOOK: u32 = 64;
const MAX_LOOK: u32 = 1 << 16;

/// What a family shares. Zeroes are valid.
#[repr(C, align(4096))]
pub struct Page {
    /// Until when calls are looked at, ms of the coarse clock; 0 if not.
    alert: AtomicU32,
    /// Threads that called accept, now or before.
    takers: AtomicU32,
    /// Threads that waited in an epoll, now or before.
    waiters: AtomicU32,
    slots: [Slot; SLOTS],
}

/// What is known of a listener.
#[repr(C, align(128))]
pub struct Slot {
    cookie: AtomicU64,
    /// Connections that were counted. Who is held back sleeps on it.
    accepted: AtomicU32,
    /// Threads that sleep, or did when they were killed.
    waiting: AtomicU32,
    /// When it was last used, ms of the coarse clock.
    used: AtomicU32,
    /// Epochs.
    epoch: AtomicU32,
    /// `accepted` when this one began.
    began: AtomicU32,
    /// In this epoch: threads that called, and the sum of squares of their connections.
    callers: AtomicU32,
    squares: AtomicU64,
    /// Threads that called in the last epoch.
    crowd: AtomicU32,
    /// Epochs for which delays and turns stay on; 0: off.
    hold: AtomicU32,
    /// The epoch in which they began.
    since: AtomicU32,
    /// Threads whose entries have been given a place since then.
    turning: AtomicU32,
    /// How even shares were in the epoch before, in thousandths.
    before: AtomicU32,
    /// For how many they shall be on next.
    next_hold: AtomicU32,
    /// Epochs until they are tried again, and after the next trial in vain.
    rest: AtomicU32,
    next_rest: AtomicU32,
    /// `accepted` when somebody lost last, or delays began.
    last_loss: AtomicU32,
    /// Whether anybody lost since then.
    raced: AtomicU32,
}

const _: () = assert!(size_of::<Page>() == 4096);

/// Milliseconds, for a few ns; not more exact than a tick.
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
    /// Whether calls are to be looked at. Two loads, of a line that is seldom written.
    #[inline(always)]
    pub fn alerted(&self) -> bool {
        let until = self.alert.load(Relaxed);
        until != 0 && self.still(until)
    }

    #[cold]
    fn still(&self, until: u32) -> bool {
        let yes = is_before(now_ms(), until);
        if !yes {
            // Back to where no clock is read. If another alert came meanwhile, it stands.
            let _ = self.alert.compare_exchange(until, 0, Relaxed, Relaxed);
        }
        yes
    }

    fn alert_for(&self, ms: u32) {
        let until = now_ms().wrapping_add(ms) | 1;
        let have = self.alert.load(Relaxed);
        // Written seldom: who only reads it shall keep it in its cache.
        if have == 0 || is_before(have.wrapping_add(ms / 8), until) {
            self.alert.store(until, Relaxed);
        }
    }

    /// What was to be seen was seen.
    fn calm(&self) {
        self.alert.store(now_ms() | 1, Relaxed);
    }

    /// The listener's slot; none if all are in use.
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
        // A count that some member spoilt must not make epochs without end.
        EPOCH * self.crowd().clamp(2, 4096)
    }

    /// Ends the epoch if it is complete with connection `at`; by whoever took that. Whether there is nothing to be
    /// looked at further. `wait` is how that thread waits, and `waiters` how many threads have waited in epolls.
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
        // A herd that paused may be back soon.
        self.hold.load(Relaxed) == 0 && self.raced.load(Relaxed) == 0
    }

    /// Ends delays if nobody has lost for a while, by whoever took connection `at`.
    fn doubt(&self, at: u32) {
        if self.hold.load(Relaxed) == 0 || at.wrapping_sub(self.last_loss.load(Relaxed)) < QUIET {
            return;
        }
        self.hold.store(0, Relaxed);
        if self.raced.load(Relaxed) != 0 {
            // A herd that is busy now.
            self.next_hold.store(HOLD, Relaxed);
            self.rest.store(1, Relaxed);
            self.next_rest.store(REST, Relaxed);
        } else {
            self.in_vain();
        }
    }

    /// Neither delays nor turns for some epochs.
    fn in_vain(&self) {
        self.next_hold.store(HOLD, Relaxed);
        let rest = self.next_rest.load(Relaxed).clamp(REST, MAX_REST);
        self.rest.store(rest, Relaxed);
        self.next_rest.store((rest * 2).min(MAX_REST), Relaxed);
    }

    /// A call lost.
    fn lose(&self) {
        self.last_loss.store(self.accepted.load(Relaxed), Relaxed);
        if self.raced.load(Relaxed) == 0 {
            self.raced.store(1, Relaxed);
        }
    }

    /// Sleeps until a connection is taken after `seen` were, for `ns` at most, or until a signal comes.
    fn hold_back(&self, seen: u32, ns: u32) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: ns.into() };
        // Sequentially consistent, as in `announce`: either the sleep sees the new count, or its maker sees the
        // sleeper.
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
        // It was set to 0 meanwhile if sleepers had been killed.
        let _ = self.waiting.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }

    /// Counts a connection; its number.
    fn announce(&self) -> u32 {
        let at = self.accepted.fetch_add(1, SeqCst).wrapping_add(1);
        if self.waiting.load(SeqCst) != 0 {
            // SAFETY: a live word.
            let woken = unsafe {
                libc::syscall(libc::SYS_futex, &raw const self.accepted, libc::FUTEX_WAKE, c_int::MAX)
            };
            if woken == 0 {
                // Killed in their sleep, or about to sleep and then seeing the new count.
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

/// How long a taker of this age among so many is held back, ns.
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

/// What a thread knows of a listener it accepts from.
#[derive(Clone, Copy)]
struct View {
    cookie: u64,
    /// The slot's count after this thread's last call, and at its last connection.
    seen: u32,
    won: u32,
    /// The epoch it last called in, and its connections in that.
    epoch: u32,
    wins: u32,
    /// Failures in a row without a race.
    idle: u32,
    /// Whether the thread's last connection gave its entry the last place, and in which hold, by its first epoch.
    turned: bool,
    since: u32,
    /// How many threads had been given a place by then.
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
    /// Failures in a row, and on which descriptor.
    failures: Cell<(c_int, u32)>,
    /// How many of them raise an alert; 0 as at first.
    patience: Cell<u32>,
    /// Connections since it looked last, and how many it shall be until it looks again; 0 as at first.
    look: Cell<(u32, u32)>,
    /// A listener that was found to block while this alert was on.
    blocking: Cell<c_int>,
    /// The epoll it last waited in; -1 if it never did.
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

    /// Is about to wait in an epoll.
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

    /// Got a connection while nobody looks.
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
        // The first time it was only counted.
        self.look.set((0, if until == 0 { LOOK } else { (until * 2).min(MAX_LOOK) }));
        self.blocking.set(-1);
        if until != 0 && (page.takers.load(Relaxed) > 1 || self.waiters(page) > 1) {
            page.alert_for(DOUBT_MS);
        }
    }

    /// Threads that have waited in epolls, if this one does.
    fn waiters(&self, page: &Page) -> u32 {
        if self.epoll.get() == -1 { 0 } else { page.waiters.load(Relaxed) }
    }

    /// Got `EAGAIN` while nobody looks.
    pub fn suspects(&self, page: &Page, fd: c_int) {
        self.count(page);
        if page.takers.load(Relaxed) < 2 {
            return; // nobody else to race with
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

    /// Before the true call, while an alert is on: holds the thread back if others are to go first. The listener's
    /// slot, unless it is of no interest.
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
            // Nothing to be had is nothing to give way for.
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
                // Seldom connections make long epochs.
                page.alert_for(RACE_MS);
            }
            if wait == Wait::Unknown {
                slot.doubt(at);
            }
        } else if errno == libc::EAGAIN {
            // Those that never win are to be in the queue too.
            if watch::wait(self.epoll.get(), fd, cookie) == Wait::Entry
                && view.since != slot.since.load(Relaxed)
            {
                self.take_place(slot, fd, &mut view, slot.accepted.load(Relaxed));
            }
            let now = slot.accepted.load(Relaxed);
            if now == view.seen {
                view.idle += 1;
                if view.idle == 64 {
                    // No race: some other way of working. Look again later, and later still.
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

    /// Whether the thread is to be held back. Where it waits by an entry, only as long as others have not taken their
    /// places: theirs come before it and are all woken, but it may be quicker each time.
    fn gives_way(&self, slot: &Slot, fd: c_int, cookie: u64) -> bool {
        match watch::wait(self.epoll.get(), fd, cookie) {
            Wait::Unknown => true,
            Wait::Entry => slot.turning.load(Relaxed) < slot.crowd(),
            Wait::Exclusive => false,
        }
    }

    /// With connection `at` taken or lost: the place in the queue that the epoch asks for.
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
        // Nobody stands behind a thread that had the last connection as well, but for those that have been given a place since
        // then; and newcomers, who need not lose to be there.
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

    /// Xorshift64*: chance enough.
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

/// The cookie of a socket whose `EAGAIN` can mean a race: a non-blocking one. On a blocking one it is a timeout
/// (`SO_RCVTIMEO`), and the kernel lets those that block take turns.
fn listener(fd: c_int) -> Option<u64> {
    // SAFETY: a plain call, and no cancellation point.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK == 0 { None } else { watch::cookie(fd) }
}

/// Whether there is a connection to be had. As a bare call it is no cancellation point, as poll(3) is.
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

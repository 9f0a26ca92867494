//! Timers on the real machine: never early, none lost, where they were armed. No lateness is asserted.

mod seccomp;

use libncpu::innards::clock;
use libncpu::timer::{Activity, Cancelled};
use libncpu::{RawTimer, Timer, Timers, When};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn effort() -> u64 {
    std::env::var("LIBNCPU_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Waits for an event that must happen; the test runner's time limit bounds it.
fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(MS);
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// CPUs that this thread may run on.
fn allowed() -> Vec<usize> {
    // SAFETY: a zeroed set is valid and writable.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Runs on a thread bound to a CPU.
fn on<R: Send>(cpu: usize, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|s| {
        s.spawn(move || {
            assert!(libncpu::innards::bind(cpu));
            f()
        })
        .join()
        .unwrap()
    })
}

#[test]
fn expires_not_before_its_time() {
    let timers = Timers::new().unwrap();
    let (tell, told) = mpsc::channel();
    let timer = timers.timer(move |expiry| tell.send((clock(), expiry.expirations())).unwrap()).unwrap();
    for after in [Duration::ZERO, US, 10 * US, 100 * US, MS, 10 * MS, 70 * MS] {
        for slack in [Duration::ZERO, after / 3] {
            let before = clock();
            assert!(!timer.arm(When::after(after).slack(slack)).unwrap());
            let (at, expirations) = told.recv().unwrap();
            assert!(at - before >= after.as_nanos() as u64);
            assert_eq!(expirations, 1);
            assert!(!timer.is_armed());
        }
    }
    let past = libncpu::Instant::now();
    timer.arm(When::at(past)).unwrap();
    told.recv().unwrap();
    assert_eq!(timer.cancel_wait(), Cancelled::NotArmed);
}

#[test]
fn far_times_are_armed() {
    let timers = Timers::new().unwrap();
    let never: Vec<Timer<'_>> = [3_600, 86_400, 365 * 86_400, 300 * 365 * 86_400, u64::MAX]
        .map(|s| {
            let timer = timers.timer(|_| panic!("too early")).unwrap();
            timer.arm(Duration::from_secs(s)).unwrap();
            timer
        })
        .into();
    let (tell, told) = mpsc::channel();
    let soon = timers.timer(move |_| tell.send(()).unwrap()).unwrap();
    soon.arm(MS).unwrap();
    told.recv().unwrap();
    assert_eq!(timers.activity().armed, 5);
    assert!(never.iter().all(|timer| timer.is_armed() && timer.cancel() && !timer.cancel()));
}

#[test]
fn in_order() {
    let timers = Timers::new().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    on(allowed()[0], || {
        let base = clock() + 500_000_000;
        // 37 is prime to 50; pairs have the same time.
        let all: Vec<_> = (0..50u64)
            .map(|i| {
                let (order, n) = (order.clone(), i * 37 % 50);
                let timer = timers.timer(move |_| order.lock().unwrap().push((n, i))).unwrap();
                let at = base + n / 2 * 100_000;
                timer.arm(When::at(libncpu::Instant::from_timespec(0, 0).unwrap().plus(at))).unwrap();
                timer
            })
            .collect();
        until(|| order.lock().unwrap().len() == 50);
        drop(all);
    });
    let order = order.lock().unwrap();
    for pair in order.windows(2) {
        let ((a, armed_a), (b, armed_b)) = (pair[0], pair[1]);
        assert!(a / 2 < b / 2 || (a / 2 == b / 2 && armed_a < armed_b), "{order:?}");
    }
}

#[test]
fn stays_on_its_cpu() {
    let timers = Timers::new().unwrap();
    for cpu in allowed().into_iter().take(8) {
        let (tell, told) = mpsc::channel();
        let timer = timers
            .timer(move |expiry| {
                // SAFETY: no arguments.
                let here = unsafe { libc::sched_getcpu() };
                // A timer that arms itself stays on its CPU.
                if here as usize == cpu && expiry.arm(50 * US).is_err() {
                    return;
                }
                let _ = tell.send(here as usize);
            })
            .unwrap();
        on(cpu, || timer.arm(MS).unwrap());
        for _ in 0..5 {
            assert_eq!(told.recv().unwrap(), cpu);
        }
    }
}

/// A timer that is armed is moved to the CPU that arms it again.
#[test]
fn moves_to_who_arms_it() {
    let timers = Timers::new().unwrap();
    let cpus = allowed();
    let (tell, told) = mpsc::channel();
    // SAFETY: no arguments.
    let timer = timers.timer(move |_| tell.send(unsafe { libc::sched_getcpu() } as usize).unwrap()).unwrap();
    for &cpu in cpus.iter().take(8) {
        on(cpus[0], || timer.arm(3600 * 1000 * MS).unwrap());
        assert!(on(cpu, || timer.arm(MS).unwrap()));
        assert_eq!(told.recv().unwrap(), cpu);
    }
}

#[test]
fn cancels_from_any_cpu() {
    let timers = Timers::new().unwrap();
    let cpus = allowed();
    let timer = timers.timer(|_| panic!("cancelled")).unwrap();
    for &from in cpus.iter().take(4) {
        for &by in cpus.iter().take(4) {
            assert!(!on(from, || timer.arm(3600 * 1000 * MS).unwrap()));
            assert!(on(by, || timer.cancel()));
            assert_eq!(on(by, || timer.cancel_wait()), Cancelled::NotArmed);
        }
    }
    assert_eq!(timers.activity().armed, 0);
}

#[test]
fn waits_for_the_callback() {
    let timers = Timers::new().unwrap();
    let (begun, is_begun) = mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let sets = done.clone();
    let timer = timers
        .timer(move |_| {
            begun.send(()).unwrap();
            std::thread::sleep(20 * MS);
            sets.store(true, SeqCst);
        })
        .unwrap();
    timer.arm(US).unwrap();
    is_begun.recv().unwrap();
    assert!(!timer.cancel(), "it is running, not armed");
    assert_eq!(timer.cancel_wait(), Cancelled::NotArmed);
    assert!(done.load(SeqCst));
}

#[test]
fn periods_are_counted_and_end() {
    let timers = Timers::new().unwrap();
    let (tell, told) = mpsc::channel();
    let mut sum = 0;
    let timer = timers
        .timer(move |expiry| {
            sum += expiry.expirations();
            if sum == 3 {
                // Late on purpose: four periods and more.
                std::thread::sleep(9 * MS);
            }
            if sum > 40 {
                assert!(expiry.cancel());
                assert!(!expiry.cancel());
                tell.send((sum, clock())).unwrap();
            }
        })
        .unwrap();
    let start = clock();
    timer.arm(When::after(2 * MS).every(2 * MS)).unwrap();
    let (sum, at) = told.recv().unwrap();
    // Each period that passed is counted once, none before its end.
    assert!(at - start >= sum * 2_000_000, "{sum}");
    assert_eq!(timer.cancel_wait(), Cancelled::NotArmed);
    assert!(told.try_recv().is_err());
}

/// A callback that drops its own timer, which frees what it captured, after it returned.
#[test]
fn dropped_by_its_callback() {
    struct Drops(Arc<AtomicUsize>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let all = Box::into_raw(Box::new(Timers::new().unwrap()));
    // SAFETY: freed below, when no timer is left.
    let timers: &'static Timers = unsafe { &*all };
    for rearm in [false, true] {
        let drops = Arc::new(AtomicUsize::new(0));
        let own: Arc<Mutex<Option<Timer<'static>>>> = Arc::default();
        let (held, slot, count) = (Drops(drops.clone()), own.clone(), drops.clone());
        let timer = timers
            .timer(move |expiry| {
                drop(slot.lock().unwrap().take());
                if rearm {
                    // Without effect: the timer is dropped.
                    expiry.arm(MS).unwrap();
                }
                assert_eq!(count.load(SeqCst), 0);
                let _ = &held;
            })
            .unwrap();
        let mut place = own.lock().unwrap();
        timer.arm(MS).unwrap();
        *place = Some(timer);
        drop(place);
        until(|| drops.load(SeqCst) == 1);
    }
    assert_eq!(timers.activity().armed, 0);
    // SAFETY: from above; waits for the callback that dropped the last timer.
    drop(unsafe { Box::from_raw(all) });
}

#[test]
fn helpers_end_and_come_back() {
    let timers = Timers::with_linger(MS).unwrap();
    assert_eq!(timers.activity(), Activity::default());
    let (tell, told) = mpsc::channel();
    let timer = timers.timer(move |_| tell.send(()).unwrap()).unwrap();
    for _ in 0..20 {
        timer.arm(200 * US).unwrap();
        told.recv().unwrap();
        until(|| timers.activity().helpers == 0);
    }
    assert_eq!(timers.activity().fired, 20);
}

/// One wake-up for one expiry, though the timer comes from a high level of the wheel.
#[test]
fn tickless() {
    let timers = Timers::with_linger(Duration::MAX).unwrap();
    let (tell, told) = mpsc::channel();
    let timer = timers.timer(move |_| tell.send(()).unwrap()).unwrap();
    timer.arm(300 * MS).unwrap();
    told.recv().unwrap();
    assert_eq!(timers.activity().wakeups, 1);
}

/// A thousand timers within 100 ms that may be 400 ms late: they meet at multiples of 2^28 ns.
#[test]
fn slack_saves_wakeups() {
    let timers = Timers::with_linger(Duration::MAX).unwrap();
    let fired = Arc::new(AtomicUsize::new(0));
    on(allowed()[0], || {
        let all: Vec<_> = (0..1000u32)
            .map(|i| {
                let fired = fired.clone();
                let timer = timers.timer(move |_| _ = fired.fetch_add(1, SeqCst)).unwrap();
                timer.arm(When::after(1500 * MS + i * 100 * US).slack(400 * MS)).unwrap();
                timer
            })
            .collect();
        until(|| fired.load(SeqCst) == 1000);
        drop(all);
    });
    let wakeups = timers.activity().wakeups;
    assert!(wakeups <= 3, "{wakeups}");
}

#[test]
fn dropped_while_armed_and_running() {
    for _ in 0..20 {
        let timers = Timers::new().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        for i in 0..50u32 {
            let calls = calls.clone();
            let timer = timers.timer(move |_| _ = calls.fetch_add(1, SeqCst)).unwrap();
            timer.arm(When::after(i * 20 * US).every(30 * US)).unwrap();
            // Its callback is never freed.
            std::mem::forget(timer);
        }
        std::thread::sleep(MS);
        drop(timers);
        let then = calls.load(SeqCst);
        std::thread::sleep(MS);
        assert_eq!(calls.load(SeqCst), then);
    }
}

struct Shared {
    timers: Timers,
    calls: AtomicU64,
    early: AtomicU64,
}

unsafe extern "C-unwind" fn count(_: *const RawTimer, data: *mut c_void, _: u64) {
    // SAFETY: the data that the timer was made with, alive.
    let shared = unsafe { &*data.cast::<Shared>() };
    shared.calls.fetch_add(1, SeqCst);
}

/// Threads that arm, move and cancel each other's timers: each arming ends exactly once.
#[test]
fn stress() {
    let shared =
        Shared { timers: Timers::new().unwrap(), calls: AtomicU64::new(0), early: AtomicU64::new(0) };
    let data: *mut c_void = (&raw const shared).cast_mut().cast();
    let all: Vec<_> = (0..64).map(|_| RawTimer::new(count, data)).collect();
    let armed = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..16u64 {
            let (all, shared, armed) = (&all, &shared, &armed);
            s.spawn(move || {
                let mut seed = thread * 7919 + 1;
                for _ in 0..3_000 * effort() {
                    let timer = &all[random(&mut seed) as usize % all.len()];
                    // SAFETY: all outlive the scope, and are cancelled after it.
                    unsafe {
                        match random(&mut seed) % 8 {
                            0 | 1 => _ = shared.timers.cancel(timer),
                            2 => _ = shared.timers.cancel_wait(timer),
                            _ => {
                                armed.fetch_add(1, SeqCst);
                                let after = Duration::from_nanos(random(&mut seed) % 3_000_000);
                                let slack = Duration::from_nanos(random(&mut seed) % 2 * 100_000);
                                shared.timers.arm(timer, When::after(after).slack(slack)).unwrap();
                            }
                        }
                    }
                    if random(&mut seed).is_multiple_of(64) {
                        std::thread::sleep(100 * US);
                    }
                }
            });
        }
    });
    for timer in &all {
        // SAFETY: alive.
        unsafe { shared.timers.cancel_wait(timer) };
    }
    let activity = shared.timers.activity();
    assert_eq!((activity.armed, activity.fired + activity.removed), (0, armed.into_inner()));
    assert_eq!(shared.calls.load(SeqCst), activity.fired);
}

unsafe extern "C-unwind" fn count_early(timer: *const RawTimer, data: *mut c_void, _: u64) {
    // SAFETY: the first part of a `Timed`, and the data that it was made with.
    let (at, shared) = unsafe { ((*timer.cast::<Timed>()).at.load(SeqCst), &*data.cast::<Shared>()) };
    shared.calls.fetch_add(1, SeqCst);
    shared.early.fetch_add(u64::from(clock() < at), SeqCst);
}

#[repr(C)]
struct Timed {
    timer: RawTimer,
    at: AtomicU64,
}

/// A million timers armed at once, half of them cancelled.
#[test]
fn a_million() {
    const ALL: usize = 1_000_000;
    let shared =
        Shared { timers: Timers::new().unwrap(), calls: AtomicU64::new(0), early: AtomicU64::new(0) };
    let data: *mut c_void = (&raw const shared).cast_mut().cast();
    let all: Vec<_> =
        (0..ALL).map(|_| Timed { timer: RawTimer::new(count_early, data), at: AtomicU64::new(0) }).collect();
    let mut seed = 42;
    // Far enough that all are armed before the first expires, at any speed.
    let base = clock() + 3600 * 1_000_000_000;
    for timer in &all {
        let at =
            libncpu::Instant::from_timespec(0, 0).unwrap().plus(base + random(&mut seed) % 1_000_000_000);
        // SAFETY: all outlive the timers.
        unsafe { assert!(!shared.timers.arm(&raw const *timer as *const RawTimer, When::at(at)).unwrap()) };
    }
    assert_eq!(shared.timers.activity().armed, ALL as u64);
    // Half are cancelled, the others moved to the next half second.
    let base = clock();
    for (i, timer) in all.iter().enumerate() {
        let raw = &raw const *timer as *const RawTimer;
        // SAFETY: as above.
        unsafe {
            if i % 2 == 0 {
                assert!(shared.timers.cancel(raw));
            } else {
                let at = base + random(&mut seed) % 500_000_000;
                timer.at.store(at, SeqCst);
                let at = libncpu::Instant::from_timespec(0, 0).unwrap().plus(at);
                assert!(shared.timers.arm(raw, When::at(at)).unwrap());
            }
        }
    }
    until(|| shared.timers.activity().armed == 0);
    drop(shared.timers);
    assert_eq!((shared.calls.into_inner(), shared.early.into_inner()), (ALL as u64 / 2, 0));
}

/// A helper that may not run on its CPU runs on another one.
#[test]
fn cpus_that_are_not_ours() {
    assert!(!libncpu::innards::bind(8191) || allowed().contains(&8191));
    assert!(!libncpu::innards::bind(1 << 20));
    std::thread::spawn(|| {
        if !seccomp::forbid(libc::SYS_sched_setaffinity) {
            println!("skipped: no seccomp here");
            return;
        }
        assert!(!libncpu::innards::bind(allowed()[0]));
        let timers = Timers::new().unwrap();
        let (tell, told) = mpsc::channel();
        let timer = timers.timer(move |_| tell.send(()).unwrap()).unwrap();
        timer.arm(MS).unwrap();
        told.recv().unwrap();
    })
    .join()
    .unwrap();
}

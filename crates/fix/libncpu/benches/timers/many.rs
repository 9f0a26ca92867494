//! A million timers armed at once: the cost of their memory, of arming and of expiry.

use super::Options;
use libncpu::{Instant, innards::clock};
use libncpu::{RawTimer, Timers, When};
use std::ffi::c_void;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// The time from arming the first timer to the first expiry; arming all must be over by then.
const LEAD: Duration = Duration::from_secs(2);

/// A row of the table.
struct Row {
    bytes: f64,
    /// Per timer, wall time.
    arm_ns: f64,
    /// Per timer, CPU time from arming to the last expiry.
    expire_ns: f64,
    /// In ns, sorted; empty if the peer does not report it.
    late: Vec<u64>,
    wakeups: Option<u64>,
}

/// CPU time of this process so far, in ns.
fn cpu_ns() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// Memory of this process in RAM, in bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: f64 = status.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096.0
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[repr(C)]
struct Ours {
    timer: RawTimer,
    due: AtomicU64,
}

static EXPIRED: AtomicU64 = AtomicU64::new(0);

/// Writes its lateness over its due time.
unsafe extern "C-unwind" fn expire(timer: *const RawTimer, _: *mut c_void, _: u64) {
    // SAFETY: the first part of one of these.
    let due = unsafe { &(*timer.cast::<Ours>()).due };
    due.store(clock().saturating_sub(due.load(Relaxed)), Relaxed);
    EXPIRED.fetch_add(1, Relaxed);
}

fn ours(options: &Options, slack: Duration) -> Row {
    let n = options.timers as f64;
    let timers = Timers::new().expect("memory");
    let before = resident();
    let all: Vec<_> = (0..options.timers)
        .map(|_| Ours { timer: RawTimer::new(expire, std::ptr::null_mut()), due: AtomicU64::new(0) })
        .collect();
    EXPIRED.store(0, Relaxed);
    let (mut seed, base) = (42, clock() + LEAD.as_nanos() as u64);
    let start = clock();
    for timer in &all {
        let due = base + random(&mut seed) % options.over.as_nanos() as u64;
        timer.due.store(due, Relaxed);
        let when = When::at(Instant::from_timespec(0, 0).expect("a time").plus(due)).slack(slack);
        // SAFETY: all outlive the timers' use.
        unsafe { timers.arm((&raw const *timer).cast(), when).expect("a helper") };
    }
    let armed = clock();
    assert!(armed < base, "arming took longer than until the first expiry");
    // The time is the owner's, for the measurement.
    let bytes = (resident() - before) / n - size_of::<AtomicU64>() as f64;
    let cpu = cpu_ns();
    while EXPIRED.load(Relaxed) < options.timers as u64 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut late: Vec<_> = all.iter().map(|timer| timer.due.load(Relaxed)).collect();
    late.sort_unstable();
    Row {
        bytes,
        arm_ns: (armed - start) as f64 / n,
        expire_ns: (cpu_ns() - cpu) / n,
        late,
        wakeups: Some(timers.activity().wakeups),
    }
}

struct Count;

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        EXPIRED.fetch_add(1, Relaxed);
    }
}

fn tokio(options: &Options) -> Row {
    let n = options.timers as f64;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let entered = runtime.enter();
    let waker = Waker::from(Arc::new(Count));
    let before = resident();
    EXPIRED.store(0, Relaxed);
    let (mut seed, base) = (42, tokio::time::Instant::now() + LEAD);
    let start = clock();
    let all: Vec<Pin<Box<tokio::time::Sleep>>> = (0..options.timers)
        .map(|_| {
            let after = Duration::from_nanos(random(&mut seed) % options.over.as_nanos() as u64);
            let mut sleep = Box::pin(tokio::time::sleep_until(base + after));
            let _pending = sleep.as_mut().poll(&mut Context::from_waker(&waker));
            sleep
        })
        .collect();
    let armed = clock();
    drop(entered);
    let bytes = (resident() - before) / n;
    let cpu = cpu_ns();
    runtime.block_on(async {
        while EXPIRED.load(Relaxed) < options.timers as u64 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let expire_ns = (cpu_ns() - cpu) / n;
    drop(all);
    Row { bytes, arm_ns: (armed - start) as f64 / n, expire_ns, late: Vec::new(), wakeups: None }
}

pub(super) fn table(options: &Options) {
    println!(
        "many: {} timers armed by one thread, expiring at random over {} s",
        options.timers,
        options.over.as_secs()
    );
    println!(
        "{:<18} {:>7} {:>8} {:>10} {:>14} {:>8} {:>8} {:>9} {:>9}",
        "", "B each", "arm ns", "expire ns", "expiries/CPU-s", "p50 µs", "p99 µs", "most µs", "wake-ups"
    );
    let slack = Duration::from_millis(10);
    for (name, row) in [
        ("ncpu", ours(options, Duration::ZERO)),
        ("ncpu, slack 10 ms", ours(options, slack)),
        ("tokio", tokio(options)),
    ] {
        let late = |share: f64| {
            let at = (row.late.len().max(1) - 1) as f64 * share;
            row.late.get(at.round() as usize).map_or("-".into(), |&ns| format!("{:.0}", ns as f64 / 1e3))
        };
        println!(
            "{name:<18} {:>7.0} {:>8.0} {:>10.0} {:>14.0} {:>8} {:>8} {:>9} {:>9}",
            row.bytes,
            row.arm_ns,
            row.expire_ns,
            1e9 / row.expire_ns,
            late(0.5),
            late(0.99),
            late(1.0),
            row.wakeups.map_or("-".into(), |n| n.to_string())
        );
    }
    println!();
}

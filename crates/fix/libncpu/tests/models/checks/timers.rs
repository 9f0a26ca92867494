//! Arming, cancelling and expiring at once: every arming ends in one call, one cancellation or one other arming,
//! callbacks of a timer never overlap, and after waiting for its end a timer can be freed.

use crate::timers::raw_timer::{Cancelled, RawTimer, Timers, When};
use crate::{check, threads};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use shuttle::thread;
use std::ffi::c_void;

/// The counts and actions of a timer's callback.
#[derive(Default)]
struct Record {
    calls: AtomicU32,
    expirations: AtomicU32,
    inside: AtomicBool,
    freed: AtomicBool,
    ended: AtomicBool,
    /// Times that the callback arms its timer again.
    again: AtomicU32,
    timers: Option<Arc<Timers>>,
}

fn record_of(data: *mut c_void) -> &'static Record {
    unsafe { &*data.cast::<Record>() }
}

unsafe extern "C-unwind" fn call_back(timer: *const RawTimer, data: *mut c_void, expirations: u64) {
    let record = record_of(data);
    assert!(!record.inside.swap(true, SeqCst), "two calls of one timer at once");
    assert!(!record.freed.load(SeqCst), "called after its end");
    thread::yield_now();
    if record.again.load(SeqCst) > 0 {
        record.again.fetch_sub(1, SeqCst);
        unsafe { record.timers.as_ref().unwrap().arm(timer, soon()).unwrap() };
    }
    assert!(!record.freed.load(SeqCst), "freed while called");
    record.expirations.fetch_add(expirations as u32, SeqCst);
    record.calls.fetch_add(1, SeqCst);
    assert!(record.inside.swap(false, SeqCst));
}

/// Levels 0 and 1, and the current tick.
fn soon() -> When {
    let slack = if thread_rng().gen_range(0..2) == 0 { 0 } else { thread_rng().gen_range(0..9_000) };
    When { slack, ..When::after_ns(thread_rng().gen_range(0..70_000)) }
}

fn timer(record: &Record) -> Box<RawTimer> {
    Box::new(RawTimer::new(call_back, std::ptr::from_ref(record).cast_mut().cast()))
}

fn timers() -> Arc<Timers> {
    // Helpers that end soon are started again.
    Arc::new(Timers::with_linger_ns(thread_rng().gen_range(0..2_000)).unwrap())
}

/// Waits for an event that must happen.
fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// Every timer that is left alone expires once.
#[test]
fn expires() {
    check(|| {
        let timers = timers();
        let own = timers.clone();
        threads(2, move |_| {
            let record = Record::default();
            let timer = timer(&record);
            for n in 1..3 {
                unsafe { assert!(!own.arm(&*timer, soon()).unwrap()) };
                until(|| record.calls.load(SeqCst) == n);
            }
            unsafe { assert_eq!(own.cancel_wait(&*timer), Cancelled::NotArmed) };
            assert_eq!(record.calls.load(SeqCst), 2);
        });
        assert_eq!((timers.activity().armed, timers.activity().fired), (0, 4));
    });
}

/// Three threads that arm and cancel one timer, on any CPU.
#[test]
fn nothing_is_lost_or_doubled() {
    check(|| {
        let shared = Arc::new((timers(), Record::default()));
        let timer = Arc::new(timer(&shared.1));
        let own = (shared.clone(), timer.clone());
        let armed = threads(3, move |_| {
            let (timers, timer) = (&own.0.0, &**own.1 as *const RawTimer);
            let mut armed = 0;
            for _ in 0..4 {
                match thread_rng().gen_range(0..4) {
                    0 => _ = unsafe { timers.cancel(timer) },
                    1 => _ = unsafe { timers.cancel_wait(timer) },
                    _ => {
                        armed += 1;
                        unsafe { timers.arm(timer, soon()).unwrap() };
                    }
                }
            }
            armed
        });
        let armed: u64 = armed.into_iter().sum();
        let (timers, record) = &*shared;
        if thread_rng().gen_range(0..2) == 0 {
            until(|| unsafe { !timers.is_armed(&**timer) });
        }
        let _ = unsafe { timers.cancel_wait(&**timer) };
        let activity = timers.activity();
        assert_eq!((activity.armed, activity.fired + activity.removed), (0, armed));
        assert_eq!(u64::from(record.calls.load(SeqCst)), activity.fired);
    });
}

/// After `cancel_wait` a timer is not running and will not run, also one that arms itself.
#[test]
fn waiting_for_the_end() {
    check(|| {
        let timers = timers();
        let others = Arc::new(Record::default());
        let other = Arc::new(timer(&others));
        let own = (timers.clone(), other.clone());
        threads(2, move |_| {
            let (timers, other) = &own;
            let record = Record {
                again: AtomicU32::new(thread_rng().gen_range(0..3)),
                timers: Some(timers.clone()),
                ..Record::default()
            };
            let timer = timer(&record);
            unsafe {
                timers.arm(&*timer, soon()).unwrap();
                // A timer that may run at the same time, on the same helper or another.
                timers.arm(&***other, soon()).unwrap();
                for _ in 0..thread_rng().gen_range(0..6) {
                    thread::yield_now();
                }
                assert!(timers.cancel_wait(&*timer) != Cancelled::Running);
            }
            assert!(!record.inside.load(SeqCst));
            record.freed.store(true, SeqCst);
            thread::yield_now();
        });
        unsafe { timers.cancel_wait(&**other) };
    });
}

unsafe extern "C-unwind" fn free_itself(timer: *const RawTimer, data: *mut c_void, _: u64) {
    drop(unsafe { Box::from_raw(timer.cast_mut()) });
    thread::yield_now();
    record_of(data).calls.fetch_add(1, SeqCst);
}

/// A callback may free its timer, and other code may get the memory at once.
#[test]
fn callbacks_that_free() {
    check(|| {
        let shared = Arc::new((timers(), Record::default()));
        let own = shared.clone();
        threads(2, move |_| {
            for _ in 0..3 {
                let data = std::ptr::from_ref(&own.1).cast_mut().cast();
                let timer = Box::into_raw(Box::new(RawTimer::new(free_itself, data)));
                unsafe { own.0.arm(timer, soon()).unwrap() };
            }
        });
        until(|| shared.1.calls.load(SeqCst) == 6);
    });
}

unsafe extern "C-unwind" fn stop_itself(timer: *const RawTimer, data: *mut c_void, expirations: u64) {
    unsafe { call_back(timer, data, expirations) };
    let record = record_of(data);
    if record.calls.load(SeqCst) == 3 {
        let timers = record.timers.as_ref().unwrap();
        assert_eq!(unsafe { timers.cancel_wait(timer) }, Cancelled::Running);
        assert!(unsafe { !timers.is_armed(timer) });
        record.ended.store(true, SeqCst);
    }
}

/// A periodic timer, until its callback cancels it.
#[test]
fn periods() {
    check(|| {
        let timers = timers();
        let record = Record { timers: Some(timers.clone()), ..Record::default() };
        let timer = RawTimer::new(stop_itself, std::ptr::from_ref(&record).cast_mut().cast());
        unsafe { timers.arm(&timer, When { period: 1_000, ..soon() }).unwrap() };
        until(|| record.ended.load(SeqCst));
        unsafe { assert_eq!(timers.cancel_wait(&timer), Cancelled::NotArmed) };
        assert_eq!(record.calls.load(SeqCst), 3);
        assert!(record.expirations.load(SeqCst) >= 3);
    });
}

/// The timers end while some are armed and callbacks run.
#[test]
fn the_end() {
    check(|| {
        let record = Record::default();
        let all: Vec<_> =
            (0..3).map(|_| RawTimer::new(count, (&raw const record).cast_mut().cast())).collect();
        let timers = timers();
        for timer in &all {
            unsafe { timers.arm(timer, soon()).unwrap() };
        }
        drop(timers);
        let calls = record.calls.load(SeqCst);
        thread::yield_now();
        assert_eq!(record.calls.load(SeqCst), calls);
    });
}

unsafe extern "C-unwind" fn count(_: *const RawTimer, data: *mut c_void, _: u64) {
    thread::yield_now();
    record_of(data).calls.fetch_add(1, SeqCst);
}

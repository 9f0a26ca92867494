//! Timers that do not expire, as most do: an operation arms one and cancels it.

use super::{Group, Shape, Subject};
use libncpu::{RawTimer, Timers, When};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Timers that stay armed, an hour from now and later.
const OTHERS: u64 = 100_000;
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

macro_rules! subject {
    ($type:ty, $name:literal, |$own:ident| $ready:expr, |$thread:ident| $once:expr) => {
        impl Subject for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn hammer(&self, stop: &AtomicBool, _: Shape) -> u64 {
                let $own = self;
                #[allow(unused_mut)]
                let (mut $thread, mut n) = ($ready, 0);
                while !stop.load(Relaxed) {
                    for _ in 0..16 {
                        $once;
                    }
                    n += 16;
                }
                n
            }
        }
    };
}

struct Ours {
    timers: Timers,
    _others: Vec<RawTimer>,
}

unsafe extern "C-unwind" fn nothing(_: *const RawTimer, _: *mut c_void, _: u64) {}

fn raw() -> RawTimer {
    RawTimer::new(nothing, std::ptr::null_mut())
}

impl Ours {
    fn new() -> Ours {
        let timers = Timers::new().expect("memory");
        let others: Vec<_> = (0..OTHERS).map(|_| raw()).collect();
        for (i, timer) in (0..).zip(&others) {
            // SAFETY: dropped after the timers, and never moved.
            unsafe { timers.arm(timer, When::after(HOUR + Duration::from_micros(i))).expect("a helper") };
        }
        Ours { timers, _others: others }
    }
}

subject!(Ours, "ncpu", |own| (own, raw()), |thread| {
    // SAFETY: cancelled at once, by this thread.
    unsafe {
        thread.0.timers.arm(&raw const thread.1, When::after(SECOND)).expect("a helper");
        thread.0.timers.cancel(&raw const thread.1);
    }
});

struct Tokio {
    runtime: tokio::runtime::Runtime,
    /// Dropped before the runtime.
    others: Mutex<Vec<Pin<Box<tokio::time::Sleep>>>>,
}

impl Drop for Tokio {
    fn drop(&mut self) {
        self.others.lock().expect("not poisoned").clear();
    }
}

impl Tokio {
    fn new() -> Tokio {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let entered = runtime.enter();
        let others = (0..OTHERS)
            .map(|i| {
                let mut sleep = Box::pin(tokio::time::sleep(HOUR + Duration::from_micros(i)));
                // Only a poll arms it.
                let _pending = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                sleep
            })
            .collect();
        drop(entered);
        Tokio { runtime, others: Mutex::new(others) }
    }
}

subject!(Tokio, "tokio", |own| own.runtime.enter(), |thread| {
    let _entered = &thread;
    let sleep = pin!(tokio::time::sleep(SECOND));
    let _pending = sleep.poll(&mut Context::from_waker(Waker::noop()));
});

/// A tree under a lock: what programs write themselves.
struct Tree {
    all: Mutex<BTreeMap<(Instant, u64), ()>>,
    next: AtomicU64,
}

impl Tree {
    fn new() -> Tree {
        let at = Instant::now() + HOUR;
        let all = (0..OTHERS).map(|i| ((at + Duration::from_micros(i), i), ())).collect();
        Tree { all: Mutex::new(all), next: AtomicU64::new(OTHERS) }
    }
}

subject!(Tree, "tree", |own| (own, own.next.fetch_add(1, Relaxed)), |thread| {
    let key = (Instant::now() + SECOND, thread.1);
    thread.0.all.lock().expect("not poisoned").insert(key, ());
    thread.0.all.lock().expect("not poisoned").remove(&key);
});

/// A descriptor for each timer.
struct Timerfd;

subject!(Timerfd, "timerfd", |_own| libncpu::innards::Alarm::new().expect("a descriptor"), |thread| {
    thread.set(libncpu::innards::clock() + 1_000_000_000).expect("set");
    // This interface cannot disarm a timer: setting it to another far time costs the same.
    thread.set(u64::MAX >> 1).expect("set");
});

/// All with the other timers armed, except timerfd, whose timers the kernel keeps in a tree of each CPU.
pub fn group() -> Group {
    Group {
        name: "timers",
        about: "an operation arms a timer, 1 s, and cancels it; 100000 others are armed",
        sections: false,
        subjects: vec![
            Box::new(Ours::new()),
            Box::new(Tokio::new()),
            Box::new(Tree::new()),
            Box::new(Timerfd),
        ],
    }
}

//! Mutual exclusion: an operation is a critical section.

use super::{Group, Shape, Subject, work};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The protected data: two counts that are equal unless the lock fails.
#[derive(Default)]
struct Data(UnsafeCell<[u64; 2]>);
// SAFETY: written only with the lock held; `check` verifies it.
unsafe impl Sync for Data {}

impl Data {
    /// A critical section.
    #[inline]
    fn section(&self, loops: u64) {
        // SAFETY: the caller holds the lock.
        let counts = unsafe { &mut *self.0.get() };
        counts[0] += 1;
        work(loops);
        counts[1] += 1;
    }
}

/// A lock and its data, on different lines.
#[repr(align(128))]
struct Locked<L> {
    lock: L,
    data: Box<Data>,
}

impl<L> Locked<L> {
    fn new(lock: L) -> Box<Locked<L>> {
        Box::new(Locked { lock, data: Box::default() })
    }
}

macro_rules! subject {
    ($type:ty, $name:literal, |$lock:ident, $section:ident| $once:expr) => {
        impl Subject for Locked<$type> {
            fn name(&self) -> &'static str {
                $name
            }
            fn hammer(&self, stop: &AtomicBool, shape: Shape) -> u64 {
                let ($lock, mut n) = (&self.lock, 0);
                while !stop.load(Relaxed) {
                    let $section = || self.data.section(shape.inside);
                    $once;
                    work(shape.outside);
                    n += 1;
                }
                n
            }
            fn check(&self, operations: u64) {
                // SAFETY: no thread runs.
                let counts = std::mem::take(unsafe { &mut *self.data.0.get() });
                assert_eq!(counts, [operations; 2], "{} lost updates", $name);
            }
        }
    };
}

macro_rules! guarded {
    ($type:ty, $name:literal, |$lock:ident| $take:expr) => {
        subject!($type, $name, |$lock, section| {
            let _guard = $take;
            section();
        });
    };
}

guarded!(libncpu::Mutex<()>, "ncpu", |lock| lock.lock());

/// The mutex that bounds how often a sleeper is overtaken.
struct Fair(libncpu::Mutex<()>);
guarded!(Fair, "ncpu-fair", |lock| lock.0.lock());
subject!(libncpu::McsMutex<()>, "ncpu-mcs", |lock, section| lock.with(|()| section()));
subject!(libncpu::NumaMutex<()>, "ncpu-numa", |lock, section| lock.with(|()| section()));
guarded!(std::sync::Mutex<()>, "std", |lock| lock.lock().unwrap());
guarded!(parking_lot::Mutex<()>, "parking_lot", |lock| lock.lock());
guarded!(usync::Mutex<()>, "usync", |lock| lock.lock());

/// glibc's mutex of some type.
struct Pthread<const ADAPTIVE: bool>(Box<UnsafeCell<libc::pthread_mutex_t>>);
// SAFETY: a pthread mutex is made for this.
unsafe impl<const ADAPTIVE: bool> Sync for Pthread<ADAPTIVE> {}

impl<const ADAPTIVE: bool> Pthread<ADAPTIVE> {
    fn new() -> Self {
        /// glibc's PTHREAD_MUTEX_ADAPTIVE_NP, which the crate libc lacks.
        const ADAPTIVE_NP: i32 = 3;
        let kind = if ADAPTIVE { ADAPTIVE_NP } else { libc::PTHREAD_MUTEX_NORMAL };
        let lock = Pthread(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: initialised once, at its final address.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_settype(&mut attributes, kind);
            assert_eq!(libc::pthread_mutex_init(lock.0.get(), &attributes), 0);
        }
        lock
    }
    #[inline]
    fn with(&self, section: impl FnOnce()) {
        // SAFETY: initialised; held in between.
        unsafe {
            libc::pthread_mutex_lock(self.0.get());
            section();
            libc::pthread_mutex_unlock(self.0.get());
        }
    }
}
subject!(Pthread<false>, "pthread", |lock, section| lock.with(section));
subject!(Pthread<true>, "adaptive", |lock, section| lock.with(section));

/// glibc's mutex that survives its owner.
struct PthreadRobust(Box<UnsafeCell<libc::pthread_mutex_t>>);
// SAFETY: a pthread mutex is made for this.
unsafe impl Sync for PthreadRobust {}

impl PthreadRobust {
    fn new() -> PthreadRobust {
        let lock = PthreadRobust(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: initialised once, at its final address.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            assert_eq!(libc::pthread_mutex_init(lock.0.get(), &attributes), 0);
        }
        lock
    }
}
subject!(PthreadRobust, "pthread", |lock, section| {
    // SAFETY: initialised; held in between.
    unsafe {
        libc::pthread_mutex_lock(lock.0.get());
        section();
        libc::pthread_mutex_unlock(lock.0.get());
    }
});
subject!(libncpu::RobustMutex, "ncpu", |lock, section| {
    lock.lock(None).expect("free in time");
    section();
    lock.unlock();
});

/// Mutexes that survive their owner.
pub fn robust() -> Group {
    Group {
        name: "robust",
        about: "as mutex, of mutexes that are taken over from an owner that ended",
        sections: true,
        subjects: vec![Locked::new(libncpu::RobustMutex::new()), Locked::new(PthreadRobust::new())],
    }
}

/// All mutexes.
pub fn group() -> Group {
    Group {
        name: "mutex",
        about: "an operation is a critical section; inside and outside it in ns",
        sections: true,
        subjects: vec![
            Locked::new(libncpu::Mutex::new(())),
            Locked::new(Fair(libncpu::Mutex::new_fair(()))),
            Locked::new(libncpu::McsMutex::new(())),
            Locked::new(libncpu::NumaMutex::new(()).expect("memory")),
            Locked::new(std::sync::Mutex::new(())),
            Locked::new(parking_lot::Mutex::new(())),
            Locked::new(usync::Mutex::new(())),
            Locked::new(Pthread::<false>::new()),
            Locked::new(Pthread::<true>::new()),
        ],
    }
}

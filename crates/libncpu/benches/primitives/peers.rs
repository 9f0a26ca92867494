//! The locks that are compared.

use super::work;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the lock protects: two counts that are equal unless it fails.
pub struct Data(pub UnsafeCell<[u64; 2]>);
// SAFETY: written only with the lock held, which is what is measured.
unsafe impl Sync for Data {}

/// A lock under test. One virtual call per run, not per operation.
pub trait Lock: Sync {
    fn name(&self) -> &'static str;
    fn ours(&self) -> bool {
        false
    }
    /// Takes the lock, changes the data around `inside` loops of work, frees it, works `outside` loops, until `stop`;
    /// returns how often.
    fn hammer(&self, stop: &AtomicBool, data: &Data, inside: u64, outside: u64) -> u64;
}

macro_rules! peer {
    ($type:ty, $name:literal, $ours:literal, |$lock:ident| $take:expr, $free:expr) => {
        impl Lock for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn ours(&self) -> bool {
                $ours
            }
            fn hammer(&self, stop: &AtomicBool, data: &Data, inside: u64, outside: u64) -> u64 {
                let $lock = self;
                let mut n = 0;
                while !stop.load(Relaxed) {
                    let guard = $take;
                    // SAFETY: the lock is held.
                    let counts = unsafe { &mut *data.0.get() };
                    counts[0] += 1;
                    work(inside);
                    counts[1] += 1;
                    $free(guard);
                    work(outside);
                    n += 1;
                }
                n
            }
        }
    };
}

peer!(ncpu::Mutex<()>, "ncpu", true, |lock| lock.lock(), drop);
peer!(std::sync::Mutex<()>, "std", false, |lock| lock.lock().unwrap(), drop);
peer!(parking_lot::Mutex<()>, "parking_lot", false, |lock| lock.lock(), drop);
peer!(usync::Mutex<()>, "usync", false, |lock| lock.lock(), drop);

/// glibc's mutex of some type.
struct Pthread<const ADAPTIVE: bool>(UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: a pthread mutex is made for this.
unsafe impl<const ADAPTIVE: bool> Sync for Pthread<ADAPTIVE> {}

impl<const ADAPTIVE: bool> Pthread<ADAPTIVE> {
    fn new() -> Box<Self> {
        /// glibc's PTHREAD_MUTEX_ADAPTIVE_NP, which libc does not have.
        const ADAPTIVE_NP: i32 = 3;
        let lock = Box::new(Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: initialised once, at its final address.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_settype(&mut attributes, if ADAPTIVE { ADAPTIVE_NP } else { libc::PTHREAD_MUTEX_NORMAL });
            assert_eq!(libc::pthread_mutex_init(lock.0.get(), &attributes), 0);
        }
        lock
    }
    fn lock(&self) {
        // SAFETY: initialised.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }
    fn unlock(&self) {
        // SAFETY: held.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}
peer!(Pthread<false>, "pthread", false, |lock| lock.lock(), |()| lock.unlock());
peer!(Pthread<true>, "adaptive", false, |lock| lock.lock(), |()| lock.unlock());

/// Ours first.
pub fn all() -> Vec<Box<dyn Lock>> {
    vec![
        Box::new(ncpu::Mutex::new(())),
        Box::new(std::sync::Mutex::new(())),
        Box::new(parking_lot::Mutex::new(())),
        Box::new(usync::Mutex::new(())),
        Pthread::<false>::new(),
        Pthread::<true>::new(),
    ]
}

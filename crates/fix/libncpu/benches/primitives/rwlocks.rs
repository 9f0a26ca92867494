//! Reader-writer locks: `reads` of a hundred operations read.

use super::{Group, Shape, Subject, work};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

struct Mix<L> {
    lock: L,
    reads: u64,
}

macro_rules! subject {
    ($type:ty, $name:literal, |$lock:ident| $read:expr, $write:expr) => {
        impl Subject for Mix<$type> {
            fn name(&self) -> &'static str {
                $name
            }
            fn hammer(&self, stop: &AtomicBool, shape: Shape) -> u64 {
                let ($lock, mut n) = (&self.lock, 0u64);
                while !stop.load(Relaxed) {
                    // Writes are spread: 37 is prime to 100.
                    if n * 37 % 100 < self.reads {
                        let value = $read;
                        black_box(*value);
                        work(shape.inside);
                    } else {
                        let mut value = $write;
                        *value += 1;
                        work(shape.inside);
                    }
                    work(shape.outside);
                    n += 1;
                }
                n
            }
        }
    };
}

subject!(libncpu::RwLock<u64>, "ncpu", |lock| lock.read(), lock.write());
subject!(std::sync::RwLock<u64>, "std", |lock| lock.read().unwrap(), lock.write().unwrap());
subject!(parking_lot::RwLock<u64>, "parking_lot", |lock| lock.read(), lock.write());
subject!(usync::RwLock<u64>, "usync", |lock| lock.read(), lock.write());
subject!(
    Pthread,
    "pthread",
    |lock| lock.hold(libc::pthread_rwlock_rdlock),
    lock.hold(libc::pthread_rwlock_wrlock)
);

struct Pthread(Box<UnsafeCell<libc::pthread_rwlock_t>>, UnsafeCell<u64>);
// SAFETY: a pthread lock is made for this, and protects the value.
unsafe impl Sync for Pthread {}

struct Held<'a>(&'a Pthread);

impl Pthread {
    fn hold(&self, take: unsafe extern "C" fn(*mut libc::pthread_rwlock_t) -> i32) -> Held<'_> {
        // SAFETY: initialised.
        unsafe { take(self.0.get()) };
        Held(self)
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = u64;
    fn deref(&self) -> &u64 {
        // SAFETY: held for reading at least.
        unsafe { &*self.0.1.get() }
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        // SAFETY: only used while held for writing.
        unsafe { &mut *self.0.1.get() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: held.
        unsafe { libc::pthread_rwlock_unlock(self.0.0.get()) };
    }
}

/// All of them, with `reads` of a hundred operations reading.
pub fn group(reads: u64) -> Group {
    let pthread = Pthread(Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER)), UnsafeCell::new(0));
    Group {
        name: if reads == 99 { "rwlock-99" } else { "rwlock-50" },
        about: if reads == 99 { "99 of 100 operations read" } else { "half of the operations read" },
        sections: true,
        subjects: vec![
            Box::new(Mix { lock: libncpu::RwLock::new(0).expect("memory"), reads }),
            Box::new(Mix { lock: std::sync::RwLock::new(0), reads }),
            Box::new(Mix { lock: parking_lot::RwLock::new(0), reads }),
            Box::new(Mix { lock: usync::RwLock::new(0), reads }),
            Box::new(Mix { lock: pthread, reads }),
        ],
    }
}

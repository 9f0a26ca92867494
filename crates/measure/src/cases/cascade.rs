//! Cascades: a ring of workers with two locks each. One worker runs at a time. An operation hands over to
//! the next worker and waits for one's own turn.

use std::os::fd::{AsRawFd, OwnedFd};

use super::common::{descriptors, flag, linked, nameless};
use super::files::lock_byte;
use super::locks::make_mutex;
use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::options::{Flag, Options};
use crate::shared::Shared;

const SHARED: Flag = flag('s', "", "", "made to be shared between processes in one process, too");
const DIRECTORY: Flag = flag('d', "DIRECTORY", "/tmp", "where the files are that are locked");

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "cascade_mutex",
        about: "hand over to the next of a ring and wait for one's turn, by pthread mutexes",
        flags: &[SHARED],
        setup: |o| ring(o, mutexes(o, 2 * o.workers())?),
    },
    Case {
        name: "cascade_cond",
        about: "the same, by conditions of pthreads",
        flags: &[flag('o', "", "", "signal outside of the mutex"), SHARED],
        setup: |o| {
            let n = 2 * o.workers();
            let conds = Shared::slice(n, |_| libc::PTHREAD_COND_INITIALIZER)?;
            (0..n).try_for_each(|i| make_cond(&conds, i, shared(o)))?;
            let taken = Shared::slice(n, |_| false)?;
            ring(o, Conditions { mutexes: mutexes(o, n)?, conds, taken, outside: o.has('o') })
        },
    },
    Case {
        name: "cascade_sem",
        about: "the same, by POSIX semaphores",
        flags: &[SHARED],
        setup: |o| {
            // SAFETY: zeroes are room for a semaphore.
            let sems = Shared::slice(2 * o.workers(), |_| unsafe { std::mem::zeroed::<libc::sem_t>() })?;
            for i in 0..sems.len() {
                // SAFETY: within the slice, and nobody uses it yet.
                if unsafe { libc::sem_init(nth(&sems, i), shared(o).into(), 1) } != 0 {
                    return Err(Failure::os("sem_init"));
                }
            }
            ring(o, Semaphores(sems))
        },
    },
    Case {
        name: "cascade_fcntl",
        about: "the same, by locks on bytes of a file; waits between processes only",
        flags: &[DIRECTORY],
        setup: |o| ring(o, Bytes(nameless(&o.path('d')?)?)),
    },
    Case {
        name: "cascade_lockf",
        about: "the same, by lockf on a file each; waits between processes only",
        flags: &[DIRECTORY],
        setup: |o| {
            ring(
                o,
                Files {
                    files: files(o)?,
                    call: |fd, lock| {
                        // SAFETY: an open descriptor.
                        unsafe { libc::lockf(fd, if lock { libc::F_LOCK } else { libc::F_ULOCK }, 0) == 0 }
                    },
                },
            )
        },
    },
    Case {
        name: "cascade_flock",
        about: "the same, by flock on a file each, opened by all workers at once: on Linux nobody waits",
        flags: &[DIRECTORY],
        setup: |o| {
            let call = |fd, lock| {
                // SAFETY: an open descriptor.
                unsafe { libc::flock(fd, if lock { libc::LOCK_EX } else { libc::LOCK_UN }) == 0 }
            };
            // Each goes its own way, so that a batch can be calibrated.
            Ok(Box::new(Ring { locks: Files { files: files(o)?, call }, workers: o.workers(), batch: None }))
        },
    },
];

/// Locks, by their index; whether a call went well.
trait Locks: Sync {
    fn block(&self, i: usize) -> bool;
    fn unblock(&self, i: usize) -> bool;
}

struct Ring<L> {
    locks: L,
    workers: usize,
    batch: Option<u64>,
}

fn ring<L: Locks + 'static>(o: &Options, locks: L) -> Result<Box<dyn Bench>, Failure> {
    // Calibration would have to wake all workers again and again. An even batch ends as it began.
    let batch = (o.workers() > 1).then_some(20);
    Ok(Box::new(Ring { locks, workers: o.workers(), batch }))
}

impl<L: Locks> Bench for Ring<L> {
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let next = (me.index + 1) % self.workers;
        let last = me.index + 1 == self.workers;
        // The last one's link to the first is crossed over, so that a round ends with the roles swapped.
        let next = [2 * next + usize::from(last), 2 * next + usize::from(!last)];
        Ok(Box::new(Turns { locks: &self.locks, own: [2 * me.index, 2 * me.index + 1], next }))
    }

    fn batch(&self) -> Option<u64> {
        self.batch
    }
}

struct Turns<'a, L> {
    locks: &'a L,
    own: [usize; 2],
    next: [usize; 2],
}

impl<L: Locks> Batch for Turns<'_, L> {
    fn before(&mut self, _: u64) -> Result<(), Failure> {
        // Nobody moves before all have blocked their successor.
        if self.locks.block(self.next[0]) { Ok(()) } else { Err(Failure::os("the first lock")) }
    }

    fn run(&mut self, n: u64) -> u64 {
        let (locks, [mut a, mut b], [mut c, mut d]) = (self.locks, self.own, self.next);
        // Only the first worker does not wait here.
        let mut failed = u64::from(!locks.block(a));
        for _ in 0..n {
            // Our predecessor may block us again; block the successor's move after the next; let go of its
            // next; wait for ours.
            let ok = [locks.unblock(a), locks.block(d), locks.unblock(c), locks.block(b)];
            failed += ok.iter().filter(|&&ok| !ok).count() as u64;
            (a, b, c, d) = (b, a, d, c);
        }
        // A batch ends with nothing held.
        failed + u64::from(!locks.unblock(c)) + u64::from(!locks.unblock(a))
    }
}

/// Whether locks must work between processes.
fn shared(o: &Options) -> bool {
    o.processes() > 1 || o.has('s')
}

/// The address of an element.
fn nth<T>(slice: &Shared<[T]>, i: usize) -> *mut T {
    assert!(i < slice.len());
    // SAFETY: within the slice.
    unsafe { slice.as_ptr().cast::<T>().add(i) }
}

struct Mutexes(Shared<[libc::pthread_mutex_t]>);

// SAFETY: pthread mutexes are there to be shared.
unsafe impl Sync for Mutexes {}

fn mutexes(o: &Options, n: usize) -> Result<Mutexes, Failure> {
    let mutexes = Mutexes(Shared::slice(n, |_| libc::PTHREAD_MUTEX_INITIALIZER)?);
    // SAFETY: within the slice, and nobody uses it yet.
    (0..n).try_for_each(|i| unsafe { make_mutex(nth(&mutexes.0, i), shared(o)) })?;
    Ok(mutexes)
}

impl Locks for Mutexes {
    // A lock is let go of by another than its holder; pthread's normal mutexes take that, as libMicro knows.
    fn block(&self, i: usize) -> bool {
        // SAFETY: a live mutex.
        unsafe {
            linked!(libc::pthread_mutex_lock: fn(at: *mut libc::pthread_mutex_t) -> i32)(nth(&self.0, i)) == 0
        }
    }

    fn unblock(&self, i: usize) -> bool {
        // SAFETY: a live mutex.
        unsafe {
            linked!(libc::pthread_mutex_unlock: fn(at: *mut libc::pthread_mutex_t) -> i32)(nth(&self.0, i))
                == 0
        }
    }
}

struct Conditions {
    mutexes: Mutexes,
    conds: Shared<[libc::pthread_cond_t]>,
    taken: Shared<[bool]>,
    outside: bool,
}

// SAFETY: pthread conditions are there to be shared, and `taken` is looked at under its mutex only.
unsafe impl Sync for Conditions {}

fn make_cond(conds: &Shared<[libc::pthread_cond_t]>, i: usize, shared: bool) -> Result<(), Failure> {
    let mut kind = std::mem::MaybeUninit::<libc::pthread_condattr_t>::uninit();
    let how = if shared { libc::PTHREAD_PROCESS_SHARED } else { libc::PTHREAD_PROCESS_PRIVATE };
    // SAFETY: room for the attributes, which are made before they are used; nobody uses the condition yet.
    let error = unsafe {
        libc::pthread_condattr_init(kind.as_mut_ptr());
        libc::pthread_condattr_setpshared(kind.as_mut_ptr(), how);
        libc::pthread_cond_init(nth(conds, i), kind.as_ptr())
    };
    if error == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(error).into()) }
}

impl Locks for Conditions {
    fn block(&self, i: usize) -> bool {
        let mut ok = self.mutexes.block(i);
        // SAFETY: the mutex is held; others change the word under it.
        unsafe {
            while nth(&self.taken, i).read_volatile() {
                ok &= libc::pthread_cond_wait(nth(&self.conds, i), nth(&self.mutexes.0, i)) == 0;
            }
            nth(&self.taken, i).write_volatile(true);
        }
        ok & self.mutexes.unblock(i)
    }

    fn unblock(&self, i: usize) -> bool {
        let ok = self.mutexes.block(i);
        // SAFETY: the mutex is held.
        unsafe { nth(&self.taken, i).write_volatile(false) };
        // SAFETY: a live condition.
        let signal = || unsafe { libc::pthread_cond_signal(nth(&self.conds, i)) == 0 };
        if self.outside {
            ok & self.mutexes.unblock(i) & signal()
        } else {
            ok & signal() & self.mutexes.unblock(i)
        }
    }
}

struct Semaphores(Shared<[libc::sem_t]>);

// SAFETY: semaphores are there to be shared.
unsafe impl Sync for Semaphores {}

impl Locks for Semaphores {
    fn block(&self, i: usize) -> bool {
        // SAFETY: a live semaphore.
        unsafe { libc::sem_wait(nth(&self.0, i)) == 0 }
    }

    fn unblock(&self, i: usize) -> bool {
        // SAFETY: a live semaphore.
        unsafe { libc::sem_post(nth(&self.0, i)) == 0 }
    }
}

/// Locks on single bytes of a file, every other one.
struct Bytes(OwnedFd);

impl Locks for Bytes {
    fn block(&self, i: usize) -> bool {
        lock_byte(self.0.as_raw_fd(), 2 * i as i64, libc::F_WRLCK)
    }

    fn unblock(&self, i: usize) -> bool {
        lock_byte(self.0.as_raw_fd(), 2 * i as i64, libc::F_UNLCK)
    }
}

/// Locks on a file each.
struct Files {
    files: Vec<OwnedFd>,
    call: fn(i32, bool) -> bool,
}

fn files(o: &Options) -> Result<Vec<OwnedFd>, Failure> {
    let (n, dir) = (2 * o.workers(), o.path('d')?);
    descriptors(n as u64)?;
    (0..n).map(|_| nameless(&dir)).collect()
}

impl Locks for Files {
    fn block(&self, i: usize) -> bool {
        (self.call)(self.files[i].as_raw_fd(), true)
    }

    fn unblock(&self, i: usize) -> bool {
        (self.call)(self.files[i].as_raw_fd(), false)
    }
}

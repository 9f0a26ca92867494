//! Locks of the C library and the kernel, and a shared counter.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::common::{alone, flag, linked};
use crate::case::{Batch, Bench, Case, Failure, Worker, each};
use crate::options::Options;
use crate::runner::now;
use crate::shared::{Area, Shared};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "mutex",
        about: "lock and unlock a pthread mutex that all threads share",
        flags: &[
            flag('t', "", "", "beside a thread that sleeps, so that the process has several"),
            flag('p', "", "", "one mutex for all processes"),
            flag('h', "MICROSECONDS", "0", "how long it is held"),
            flag('o', "N", "0", "mutexes that lie behind the begin of a page"),
        ],
        setup: mutex,
    },
    Case {
        name: "semop",
        about: "add one to a semaphore of System V and take it off again",
        flags: &[],
        setup: |_| alone(|_| Ok(Box::new(Semaphore { id: -1 }) as Box<dyn Batch>)),
    },
    Case {
        name: "atomic",
        about: "add one to a counter that all workers share",
        flags: &[],
        setup: |_| {
            let counter = Arc::new(Shared::new(AtomicU32::new(0))?);
            alone(move |_| {
                let counter = counter.clone();
                Ok(each(move || {
                    counter.fetch_add(1, Ordering::SeqCst);
                }))
            })
        },
    },
];

/// Makes a pthread mutex.
///
/// # Safety
/// There is room for it, which nobody uses yet and which stays where it is.
pub unsafe fn make_mutex(at: *mut libc::pthread_mutex_t, shared: bool) -> Result<(), Failure> {
    let mut kind = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let how = if shared { libc::PTHREAD_PROCESS_SHARED } else { libc::PTHREAD_PROCESS_PRIVATE };
    // SAFETY: room for the attributes, which are made before they are used.
    let error = unsafe {
        libc::pthread_mutexattr_init(kind.as_mut_ptr());
        libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), how);
        libc::pthread_mutex_init(at, kind.as_ptr())
    };
    if error == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(error).into()) }
}

enum Room {
    Own(Area),
    Common(Shared<[u8]>),
}

struct Mutex {
    room: Room,
    skip: usize,
    hold: u64,
    sleeper: bool,
}

fn mutex(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let skip = o.size('o')?.min(1 << 20) * size_of::<libc::pthread_mutex_t>();
    let bytes = skip + size_of::<libc::pthread_mutex_t>();
    let (shared, hold) = (o.has('p'), o.number('h')?.saturating_mul(1000));
    let room = if shared { Room::Common(Shared::slice(bytes, |_| 0)?) } else { Room::Own(Area::new(bytes)?) };
    let mutex = Mutex { room, skip, hold, sleeper: o.has('t') };
    // SAFETY: the room is large enough, and lives until the case is dropped.
    unsafe { make_mutex(mutex.at(), shared)? };
    Ok(Box::new(mutex))
}

impl Mutex {
    fn at(&self) -> *mut libc::pthread_mutex_t {
        let begin = match &self.room {
            Room::Own(area) => area.at(),
            Room::Common(shared) => shared.as_ptr().cast(),
        };
        // SAFETY: within the room.
        unsafe { begin.add(self.skip).cast() }
    }
}

impl Bench for Mutex {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        if self.sleeper {
            std::thread::Builder::new().spawn(|| {
                loop {
                    std::thread::park();
                }
            })?;
        }
        let (at, hold) = (self.at(), self.hold);
        let lock = linked!(libc::pthread_mutex_lock: fn(at: *mut libc::pthread_mutex_t) -> i32);
        let unlock = linked!(libc::pthread_mutex_unlock: fn(at: *mut libc::pthread_mutex_t) -> i32);
        Ok(each(move || {
            // SAFETY: a mutex that lives until the case is dropped.
            unsafe { lock(at) };
            if black_box(hold) > 0 {
                let begin = now();
                while now() - begin < hold {}
            }
            // SAFETY: we hold it.
            unsafe { unlock(at) };
        }))
    }
}

struct Semaphore {
    id: i32,
}

impl Batch for Semaphore {
    fn before(&mut self, _: u64) -> Result<(), Failure> {
        // SAFETY: plain numbers.
        self.id = unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) };
        if self.id == -1 {
            return Err(Failure::Lacks(format!("semget: {}", std::io::Error::last_os_error())));
        }
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let mut errors = 0;
        for _ in 0..n {
            for by in [1, -1] {
                let mut step = libc::sembuf { sem_num: 0, sem_op: by, sem_flg: 0 };
                // SAFETY: one live sembuf.
                errors += u64::from(unsafe { libc::semop(self.id, &raw mut step, 1) } != 0);
            }
        }
        errors
    }

    fn after(&mut self, _: u64) {
        if self.id != -1 {
            // SAFETY: ours.
            unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
            self.id = -1;
        }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        self.after(0);
    }
}

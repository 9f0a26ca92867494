//! Recording around libc's waiting functions.

use std::ffi::c_int;

use ncpu_preload::waits::Kind;
use ncpu_preload::{errno, set_errno};

use crate::notes::{self, Blame};
use crate::thread::{Call, has_cancelled, has_threads, tid};

impl Call {
    /// The address of the lock.
    fn lock(&self) -> usize {
        self.arguments[0]
    }

    /// A word of the lock, which other threads may write.
    unsafe fn word(&self, at: usize) -> u32 {
        // SAFETY: the program's lock has that word, as libc reads it.
        unsafe {
            (*((self.lock() + at) as *const std::sync::atomic::AtomicU32))
                .load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    /// Calls libc. A thread that is cancelled there unwinds through here, so no value here may need to be
    /// dropped.
    unsafe fn call(self) -> c_int {
        let [a, b, c, d] = self.arguments;
        // SAFETY: the caller's arguments.
        unsafe { (self.libc)(a, b, c, d) }
    }

    unsafe fn timed(self, kind: Kind, blame: Blame) -> c_int {
        let wait = notes::begin_wait(&self, kind, blame);
        // SAFETY: the caller's arguments.
        let result = unsafe { self.call() };
        if let Some(wait) = wait {
            wait.end();
        }
        result
    }
}

// The places of fields in glibc's locks.
const MUTEX_OWNER: usize = 8;
const RWLOCK_WRITER: usize = 24;
const RWLOCK_PREFERS: usize = 48;
const SEMAPHORE_WAITERS: usize = 4;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`: readers wait behind waiting writers.
const PREFERS_WRITERS: u32 = 2;

/// # Safety
/// As for `pthread_mutex_lock`.
pub unsafe fn mutex(call: Call) -> c_int {
    // SAFETY: a mutex.
    unsafe {
        // Free, but not for us to take; or not known to be free.
        if call.word(0) == 0 {
            return call.call();
        }
        let owner = call.word(MUTEX_OWNER);
        // The caller's own: locked recursively, refused, or a deadlock.
        if owner != 0 && owner == tid() {
            return call.call();
        }
        call.timed(Kind::Mutex, Blame(owner))
    }
}

/// # Safety
/// As for `pthread_rwlock_rdlock`.
pub unsafe fn read(call: Call) -> c_int {
    // SAFETY: a rwlock.
    unsafe {
        // As above; or only readers hold it.
        let (state, writer) = (call.word(0), call.word(RWLOCK_WRITER));
        let in_readers_phase =
            state & 2 == 0 || state & 1 == 0 && call.word(RWLOCK_PREFERS) != PREFERS_WRITERS;
        if in_readers_phase || (writer != 0 && writer == tid()) {
            return call.call();
        }
        call.timed(Kind::Read, Blame(writer))
    }
}

/// # Safety
/// As for `pthread_rwlock_wrlock`.
pub unsafe fn write(call: Call) -> c_int {
    // SAFETY: a rwlock.
    unsafe {
        if call.word(0) & !1 == 0 {
            return call.call();
        }
        let writer = call.word(RWLOCK_WRITER);
        if writer != 0 && writer == tid() {
            return call.call();
        }
        call.timed(Kind::Write, Blame(writer))
    }
}

/// # Safety
/// As for `pthread_cond_wait`.
pub unsafe fn condition(call: Call) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { call.timed(Kind::Condition, Blame(0)) }
}

/// # Safety
/// As for `pthread_barrier_wait`.
pub unsafe fn barrier(call: Call) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { call.timed(Kind::Barrier, Blame(0)) }
}

/// # Safety
/// As for `sem_wait`.
pub unsafe fn semaphore(call: Call) -> c_int {
    // SAFETY: a semaphore, and the caller's arguments.
    unsafe { if call.word(0) > 0 { call.call() } else { call.timed(Kind::Semaphore, Blame(0)) } }
}

/// # Safety
/// As for `sem_post`.
pub unsafe fn post(call: Call) -> c_int {
    // SAFETY: a semaphore, and the caller's arguments.
    unsafe {
        if call.word(SEMAPHORE_WAITERS) > 0 {
            notes::posted(call.lock());
        }
        call.call()
    }
}

/// # Safety
/// As for `pthread_create`.
pub unsafe fn create(call: Call) -> c_int {
    has_threads();
    // SAFETY: the caller's arguments.
    unsafe { call.call() }
}

/// # Safety
/// As for `pthread_cancel`.
pub unsafe fn cancel(call: Call) -> c_int {
    has_cancelled();
    // SAFETY: the caller's arguments.
    unsafe { call.call() }
}

/// To be called for a call of `prctl` or `syscall` that may enter seccomp. After that, our own system calls
/// might end the program.
pub fn confine(a: usize, b: usize) {
    let seccomp = libc::PR_SET_SECCOMP as usize;
    if a == seccomp || a == libc::SYS_seccomp as usize || (a == libc::SYS_prctl as usize && b == seccomp) {
        let was = errno();
        notes::seal();
        set_errno(was);
    }
}

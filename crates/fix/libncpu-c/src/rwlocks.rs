//! The reader-writer lock for C.

use crate::held::{self, Hold, How};
use crate::{create, destroy, remember};
use libc::{EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, c_int, timespec};
use libncpu::Instant;
use libncpu::locks::raw_rwlock::RawRwLock;

/// A reader-writer lock whose readers share nothing.
pub struct ncpu_rwlock_t(RawRwLock);

/// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_rwlock_create() -> *mut ncpu_rwlock_t {
    create(RawRwLock::new().map(ncpu_rwlock_t))
}

/// Frees a lock that no thread holds or waits for. Null is ignored.
///
/// # Safety
/// `lock` is null or from `ncpu_rwlock_create`, and unused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_destroy(lock: *mut ncpu_rwlock_t) {
    held::forget(lock);
    unsafe { destroy(lock) }
}

/// Takes the lock for reading. A thread that reads and takes it again may wait for a writer that waits for
/// this thread. A thread that writes waits for itself forever; in debug builds that is EDEADLK.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_rdlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let (raw, hold) = (object!(lock), Hold::new(lock, How::Shared));
    not_by_itself!(hold);
    raw.read();
    held::took(hold);
    0
}

/// Takes the lock for reading, or returns EBUSY if a writer has it or waits for it.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_tryrdlock(lock: *mut ncpu_rwlock_t) -> c_int {
    remember(object!(lock).try_read().is_some(), Hold::new(lock, How::Shared), EBUSY)
}

/// Ends reading. In debug builds EPERM, and nothing changes, if the calling thread does not read. Other
/// builds cannot detect it, and the lock is then open to readers and writers at once.
///
/// # Safety
/// `lock` is null or held for reading by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_rdunlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    holder!(Hold::new(lock, How::Shared));
    unsafe { raw.unlock_read(None) };
    0
}

/// Takes the lock for writing. A thread that already holds it, for reading or writing, waits for itself
/// forever; in debug builds that is EDEADLK.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_wrlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let (raw, hold) = (object!(lock), Hold::new(lock, How::Alone));
    not_by_itself!(hold);
    raw.write();
    held::took(hold);
    0
}

/// Takes the lock for writing, or returns EBUSY if it is held.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_trywrlock(lock: *mut ncpu_rwlock_t) -> c_int {
    remember(object!(lock).try_write(), Hold::new(lock, How::Alone), EBUSY)
}

/// Ends writing. EPERM, and nothing changes, if the lock is not held for writing; in debug builds also if another
/// thread holds it.
///
/// # Safety
/// `lock` is null or a lock; if it is held for writing, then by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_wrunlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    if !raw.is_closed() {
        return EPERM;
    }
    holder!(Hold::new(lock, How::Alone));
    unsafe { raw.unlock_write() };
    0
}

/// Frees the lock in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
/// child handler, if the prepare handler took the lock for writing.
///
/// # Safety
/// `lock` is null or a lock; the process has one thread; the data that the lock protects are consistent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_after_fork(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    held::forget(lock);
    unsafe { raw.reset_after_fork() };
    0
}

/// Takes the lock for reading, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
///
/// # Safety
/// `lock` is null or a lock, `deadline` null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_timedrdlock(
    lock: *mut ncpu_rwlock_t,
    deadline: *const timespec,
) -> c_int {
    let (raw, hold, deadline) = (object!(lock), Hold::new(lock, How::Shared), deadline!(deadline));
    not_by_itself!(hold);
    remember(raw.read_until(deadline).is_some(), hold, ETIMEDOUT)
}

/// Takes the lock for writing, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
///
/// # Safety
/// As for `ncpu_rwlock_timedrdlock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_timedwrlock(
    lock: *mut ncpu_rwlock_t,
    deadline: *const timespec,
) -> c_int {
    let (raw, hold, deadline) = (object!(lock), Hold::new(lock, How::Alone), deadline!(deadline));
    not_by_itself!(hold);
    remember(raw.write_until(deadline), hold, ETIMEDOUT)
}

/// Takes the lock for reading beside other readers, as the one thread that may become the writer. Writers
/// wait for it. It must not call ncpu_rwlock_rdlock at the same time.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_uplock(lock: *mut ncpu_rwlock_t) -> c_int {
    let (raw, hold) = (object!(lock), Hold::new(lock, How::Alone));
    not_by_itself!(hold);
    raw.upgradable();
    held::took(hold);
    0
}

/// Waits for the other readers to leave and becomes the writer, after ncpu_rwlock_uplock; ends with
/// ncpu_rwlock_wrunlock. No thread writes in between.
///
/// # Safety
/// `lock` is null or held by this thread by `ncpu_rwlock_uplock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_upgrade(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    unsafe { raw.upgrade() };
    0
}

/// Lets other threads read again after writing; the lock is then held as after ncpu_rwlock_uplock. EPERM if
/// the lock is not held for writing.
///
/// # Safety
/// `lock` is null or held for writing by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_downgrade(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    if !raw.is_closed() {
        return EPERM;
    }
    unsafe { raw.downgrade() };
    0
}

/// Ends the hold of ncpu_rwlock_uplock, unless it was upgraded. In debug builds EPERM if the thread does not
/// hold it.
///
/// # Safety
/// `lock` is null or held by this thread by `ncpu_rwlock_uplock`, and not upgraded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_upunlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    holder!(Hold::new(lock, How::Alone));
    unsafe { raw.unlock_upgradable() };
    0
}

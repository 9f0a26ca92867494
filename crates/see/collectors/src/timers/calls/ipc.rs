//! Calls that wait for messages, System V semaphores and signals.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Wait, deadline, made, owned, timespec, waited};

unsafe extern "C" {
    #[link_name = "semtimedop"]
    fn semtimedop_c(id: i32, ops: *mut libc::sembuf, count: usize, time: *const libc::timespec) -> i32;
}

/// A message queue without a name that holds one message of one byte.
fn queue() -> io::Result<OwnedFd> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = CString::new(format!("/ncpu-timers-{}-{number}", std::process::id()))?;
    // SAFETY: all zero are valid attributes.
    let mut attributes: libc::mq_attr = unsafe { std::mem::zeroed() };
    (attributes.mq_maxmsg, attributes.mq_msgsize) = (1, 1);
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a name, and attributes that live; on Linux the queue is a descriptor.
    let queue = owned(unsafe { libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut attributes) })?;
    // SAFETY: a name.
    unsafe { libc::mq_unlink(name.as_ptr()) };
    Ok(queue)
}

pub fn mq_timedreceive() -> io::Result<Wait> {
    let queue = queue()?;
    Ok(Box::new(move |ns| {
        let t = deadline(libc::CLOCK_REALTIME, ns);
        let mut byte: libc::c_char = 0;
        // SAFETY: room for the longest message, one byte; a live local.
        waited(unsafe {
            libc::mq_timedreceive(queue.as_raw_fd(), &raw mut byte, 1, null_mut(), &raw const t) as i64
        })
    }))
}

pub fn mq_timedsend() -> io::Result<Wait> {
    let queue = queue()?;
    let send = move |t: libc::timespec| {
        // SAFETY: no bytes are read of a message of length 0; a live local.
        waited(unsafe { libc::mq_timedsend(queue.as_raw_fd(), c"".as_ptr(), 0, 0, &raw const t) })
    };
    send(timespec(0))?; // it is full now
    Ok(Box::new(move |ns| send(deadline(libc::CLOCK_REALTIME, ns))))
}

/// A System V semaphore, which outlives its process unless removed.
struct Semaphore(i32);

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: ours, removed once.
        unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
    }
}

pub fn semtimedop() -> io::Result<Wait> {
    // SAFETY: takes numbers.
    let sem = Semaphore(made(unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) })? as i32);
    Ok(Box::new(move |ns| {
        let Semaphore(id) = &sem;
        let t = timespec(ns);
        let mut down = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
        // SAFETY: one operation, and a time, both live.
        waited(unsafe { semtimedop_c(*id, &raw mut down, 1, &raw const t) })
    }))
}

/// Keeps a signal from being delivered to this thread, so that it can be waited for.
pub(super) fn block(signal: i32) -> io::Result<libc::sigset_t> {
    // SAFETY: a set made empty before use, and our own mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        made(libc::sigaddset(&raw mut set, signal))?;
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut()) {
            0 => Ok(set),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

pub fn sigtimedwait() -> io::Result<Wait> {
    let nobody_sends = libc::SIGRTMAX() - 1;
    let set = block(nobody_sends)?;
    Ok(Box::new(move |ns| {
        let t = timespec(ns);
        // SAFETY: live locals; nothing asked for of the signal.
        waited(unsafe { libc::sigtimedwait(&raw const set, null_mut(), &raw const t) })
    }))
}

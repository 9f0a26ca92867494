//! Obtains a userfaultfd of another process: the process itself makes it, and we duplicate it.
//!
//! Only the thread that makes the calls stands still meanwhile. If we end at any point, that thread completes
//! the current call, or has not begun it, and continues normally (see `inject`). No memory is protected yet;
//! at worst an unused descriptor stays open in the process.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::Error;
use crate::inject::{Injector, Refused, Session};
use crate::memory::Memory;
use crate::protect::Protection;
use crate::sys::{pidfd_getfd, pidfd_open};
use crate::target::{self, Status, mappings_only};
use crate::trace::Stop;
use crate::userfaultfd::FLAGS;

/// The number of threads tried for one that calls can be injected into.
const CANDIDATES: usize = 16;
/// `USERFAULTFD_IOC_NEW` of linux/userfaultfd.h.
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;

/// Makes the process create a userfaultfd.
///
/// # Errors
/// The process or the kernel does not allow it.
pub(crate) fn userfaultfd(pid: i32, status: &Status, memory: &Arc<Memory>) -> Result<Protection, Refused> {
    let error = |e: Error| Refused(e.to_string());
    let pidfd = pidfd_open(pid).map_err(|e| Refused(format!("pidfd_open: {e}")))?;
    let mappings = mappings_only(pid).map_err(error)?;
    let injector = Injector::find(status, memory, &mappings)?;
    let mut tids = target::threads(pid).map_err(error)?;
    // The main thread's stack is the one that is always known.
    tids.sort_by_key(|&tid| tid != pid);
    let mut last = Refused("it has no threads".into());
    for tid in tids.into_iter().take(CANDIDATES) {
        let entered = Stop::one(pid, tid).map_err(error).and_then(|stop| {
            let session = injector.enter(&stop, tid, &mappings, memory)?;
            Ok((stop, session))
        });
        // The session is dropped first: the thread gets its registers back before it is released.
        let (_stop, mut session) = match entered {
            Ok(entered) => entered,
            Err(refused) => {
                last = refused;
                continue;
            }
        };
        let mut calls = Calls { session: &mut session, memory, pidfd: &pidfd };
        let fd = match calls.raw("userfaultfd", libc::SYS_userfaultfd, [FLAGS, 0, 0, 0, 0, 0]) {
            Ok(number) => calls.take(number).map_err(Refused::from),
            // The process may not create one, or its seccomp filter forbids it: we provide one.
            Err(Failed(_, e)) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS) | None) => {
                calls.by_device()
            }
            Err(failed) => Err(failed.into()),
        };
        return Protection::new(fd?).map_err(error);
    }
    Err(last)
}

/// An injected call that failed.
struct Failed(&'static str, io::Error);

impl From<Failed> for Refused {
    fn from(failed: Failed) -> Self {
        Self(format!("{}: {}", failed.0, failed.1))
    }
}

/// Calls of the borrowed thread.
struct Calls<'a, 'b> {
    session: &'a mut Session<'b>,
    memory: &'a Memory,
    pidfd: &'a OwnedFd,
}

impl Calls<'_, '_> {
    fn raw(&mut self, what: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, Failed> {
        let result = self.session.call(number, arguments, self.memory);
        match result {
            Ok(result) if result >= 0 => Ok(result as u64),
            Ok(error) => Err(Failed(what, io::Error::from_raw_os_error(-error as i32))),
            Err(e) => Err(Failed(what, io::Error::other(e))),
        }
    }

    fn close(&mut self, fd: u64) -> Result<(), Failed> {
        self.raw("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]).map(drop)
    }

    /// Moves a descriptor from the process to us.
    fn take(&mut self, fd: u64) -> Result<OwnedFd, Failed> {
        let ours = pidfd_getfd(self.pidfd, fd as i32).map_err(|e| Failed("pidfd_getfd", e));
        self.close(fd)?;
        ours
    }

    /// A process without privileges may not make a userfaultfd that also handles faults of the kernel, but
    /// /dev/userfaultfd makes one for every process that has it open. So we open it, if we may, and send it
    /// through a pair of sockets that the process makes for the purpose.
    fn by_device(&mut self) -> Result<OwnedFd, Refused> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
        let device = device.map_err(|e| {
            Refused(format!(
                "it may not make a userfaultfd (vm.unprivileged_userfaultfd), and /dev/userfaultfd: {e}"
            ))
        })?;
        let scratch = self.session.scratch();
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        self.raw("socketpair", libc::SYS_socketpair, [libc::AF_UNIX as u64, kind, 0, scratch, 0, 0])?;
        let mut pair = [0; 8];
        self.memory.read_exact(scratch, &mut pair).map_err(|e| Refused(e.to_string()))?;
        let [a, b] =
            [0, 4].map(|at| u64::from(u32::from_ne_bytes(pair[at..at + 4].try_into().unwrap_or_default())));
        let sent = self.send(b, &device);
        let received = sent.and_then(|()| self.receive(a, scratch));
        self.close(a)?;
        self.close(b)?;
        let theirs = received?;
        let made =
            self.raw("USERFAULTFD_IOC_NEW", libc::SYS_ioctl, [theirs, USERFAULTFD_IOC_NEW, FLAGS, 0, 0, 0]);
        let fd = made.and_then(|made| self.take(made));
        self.close(theirs)?;
        Ok(fd?)
    }

    /// Sends a descriptor to our end of one of its sockets.
    fn send(&self, socket: u64, what: &impl AsRawFd) -> Result<(), Failed> {
        let ours = pidfd_getfd(self.pidfd, socket as i32).map_err(|e| Failed("pidfd_getfd", e))?;
        let mut byte = [0u8; 1];
        let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = control(what.as_raw_fd());
        // SAFETY: an all-zero msghdr is a valid one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control.len();
        // SAFETY: everything the message points to outlives the call.
        let sent = unsafe { libc::sendmsg(ours.as_raw_fd(), &raw const message, 0) };
        if sent == 1 { Ok(()) } else { Err(Failed("sendmsg", io::Error::last_os_error())) }
    }

    /// Makes the process receive a descriptor; returns its number there.
    fn receive(&mut self, socket: u64, scratch: u64) -> Result<u64, Failed> {
        // struct msghdr, then the vector, then room for the control message, then a byte.
        let (vector, room, byte) = (scratch + 56, scratch + 72, scratch + 96);
        let words = [0, 0, vector, 1, room, 24, 0, byte, 1, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        let write = crate::memory::write(self.memory.pid(), scratch, &bytes);
        write.map_err(|e| Failed("preparing recvmsg", e))?;
        let flags = libc::MSG_CMSG_CLOEXEC as u64;
        self.raw("recvmsg", libc::SYS_recvmsg, [socket, scratch, flags, 0, 0, 0])?;
        let mut got = [0; 24];
        let read = self.memory.read_exact(room, &mut got);
        read.map_err(|e| Failed("recvmsg", io::Error::other(e)))?;
        if got[..16] != control(0)[..16] {
            return Err(Failed("recvmsg", io::ErrorKind::InvalidData.into()));
        }
        Ok(u64::from(u32::from_ne_bytes(got[16..20].try_into().unwrap_or_default())))
    }
}

/// A control message with one descriptor: length, level, type, the descriptor.
fn control(fd: i32) -> [u8; 24] {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&20u64.to_ne_bytes());
    out[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    out[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    out[16..20].copy_from_slice(&fd.to_ne_bytes());
    out
}

//! System calls without a safe form in libc.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor of a process that never refers to a later process with the same number.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A duplicate of descriptor `fd` of the process behind `pidfd`.
pub(crate) fn pidfd_getfd(pidfd: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// An ioctl with a structure as its argument.
pub(crate) fn ioctl<T>(fd: RawFd, request: u64, argument: &mut T) -> io::Result<i32> {
    // SAFETY: every caller passes the structure that the request's number is computed from.
    let result = unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number of an ioctl that reads and writes a structure of `size` bytes.
pub(crate) const fn iowr(kind: u8, number: u8, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | (kind as u64) << 8 | number as u64
}

/// The number of an ioctl that the kernel's headers declare with `_IOR`.
pub(crate) const fn ior(kind: u8, number: u8, size: usize) -> u64 {
    2 << 30 | (size as u64) << 16 | (kind as u64) << 8 | number as u64
}

/// Sets the niceness of the calling thread. A refusal is ignored: only the speed depends on it.
pub(crate) fn set_nice(nice: i32) {
    // SAFETY: plain numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

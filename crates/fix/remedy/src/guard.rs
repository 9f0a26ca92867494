//! A process group that ends with the process that started it, however that ends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};

/// While it lives, a helper process watches this one. If this one is killed, the helper kills the group.
#[derive(Debug)]
pub struct Guard {
    helper: libc::pid_t,
    /// The helper reads from it: a byte ends the helper, and the end of the pipe is our end.
    to: OwnedFd,
}

impl Guard {
    /// Guards a process group. Call it before the group's program runs.
    ///
    /// # Errors
    /// No pipe, or no process.
    pub fn over(group: Pid) -> io::Result<Guard> {
        let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let group = group.as_raw_nonzero().get();
        // SAFETY: the child makes async-signal-safe calls only until it exits.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: as above; the numbers are of descriptors and processes of our own.
                unsafe {
                    // Signals of the terminal are for the group of the parent.
                    libc::setsid();
                    let from = libc::dup2(from.as_raw_fd(), 0);
                    // The write end, and locks that are not to outlive the parent.
                    let closed = libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
                    if from < 0 || closed < 0 {
                        libc::_exit(1);
                    }
                    let mut byte = 0u8;
                    loop {
                        match libc::read(0, (&raw mut byte).cast(), 1) {
                            1 => libc::_exit(0),
                            0 => break,
                            _ if *libc::__errno_location() == libc::EINTR => {}
                            _ => libc::_exit(1),
                        }
                    }
                    libc::kill(-group, libc::SIGKILL);
                    libc::_exit(0);
                }
            }
            helper => Ok(Guard { helper, to }),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A helper that was killed reads nothing more.
        if rustix::io::write(&self.to, b"e").is_err()
            && let Some(helper) = Pid::from_raw(self.helper)
        {
            let _ = rustix::process::kill_process(helper, Signal::KILL);
        }
        // SAFETY: a child of ours that nobody else waits for.
        while unsafe { libc::waitpid(self.helper, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

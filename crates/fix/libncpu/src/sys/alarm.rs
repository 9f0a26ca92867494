//! Alarms: timerfds.

use std::ffi::c_void;
use std::io;

/// A timerfd. Any thread may set it while its one waiter waits, which costs the waiter nothing.
pub struct Alarm(libc::c_int);

impl Alarm {
    /// An alarm that is not set. Fails without descriptors or memory.
    pub fn new() -> io::Result<Alarm> {
        // SAFETY: takes no pointers.
        match unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(Alarm(fd)),
        }
    }

    /// Makes [`Alarm::wait`] return at `at` ns, at once if that has passed, instead of at the time set
    /// before.
    pub fn set(&self, at: u64) -> io::Result<()> {
        // Zero would switch it off.
        let at = at.max(1);
        let value = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            tv_nsec: (at % 1_000_000_000) as libc::c_long,
        };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let times = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: reads `times`.
        let done =
            unsafe { libc::timerfd_settime(self.0, libc::TFD_TIMER_ABSTIME, &times, std::ptr::null_mut()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the time set last.
    pub fn wait(&self) -> io::Result<()> {
        let mut times = 0u64;
        loop {
            // SAFETY: eight writable bytes.
            let got = unsafe { libc::read(self.0, (&raw mut times).cast::<c_void>(), size_of::<u64>()) };
            if got == size_of::<u64>() as isize {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: its own descriptor.
        unsafe { libc::close(self.0) };
    }
}

//! Signals that a supervisor waits for instead of being interrupted by them.

use std::time::Duration;

/// Those it waits for: a child's end, and what users and service managers send.
const ALL: [libc::c_int; 7] =
    [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Blocks them for the calling thread, until dropped.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks them. Children made by [`super::Launch`] have none blocked.
    pub fn block() -> Signals {
        // SAFETY: sets of our own; the calls cannot fail with valid signals.
        unsafe {
            let mut set = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in ALL {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Signals { set, before }
        }
    }

    /// The next one, waiting at most `wait`.
    pub fn next(&self, wait: Duration) -> Option<i32> {
        let time = libc::timespec {
            tv_sec: wait.as_secs() as libc::time_t,
            tv_nsec: wait.subsec_nanos() as libc::c_long,
        };
        // SAFETY: the set is ours, and only the signal's number is asked for.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time) };
        (signal > 0).then_some(signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is what the call before has given.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

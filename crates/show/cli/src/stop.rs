//! Signals: they end an observation, which still reports, and are passed on to a command that is run.
//!
//! A first SIGINT, SIGTERM or SIGHUP goes to the command, and the observation lasts until it ends; what the terminal
//! sends (Ctrl-C) the command has had already. A second one ends the observation, whatever the command does, and a
//! third `ncpu` itself. Where there is no command, the first ends the observation and the second `ncpu`.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Instant;

use anyhow::Context;
use libc::{SIGHUP, SIGINT, SIGTERM};

/// The pidfd of a command that signals are passed on to; -1 without a command.
static COMMAND: AtomicI32 = AtomicI32::new(-1);

/// The last signal, 0 before the first, and how many there were.
static LAST: AtomicI32 = AtomicI32::new(0);
static SEEN: AtomicU32 = AtomicU32::new(0);

/// A flag that is set when an observation is to end: see the module.
///
/// # Errors
/// Signals cannot be caught.
pub fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let ignored = is_ignored(signal);
        // nohup: a shell that ends sends SIGHUP to its jobs as anybody may.
        if ignored && signal == SIGHUP {
            continue;
        }
        // Jobs in the background of a script ignore SIGINT. The terminal's is then ignored here and by the command;
        // `kill -INT` means this very process, and is obeyed.
        if ignored {
            ncpu_observe_core::program::ignore_in_programs(signal);
        }
        let stop = stop.clone();
        let act = move |info: &libc::siginfo_t| {
            if ignored && info.si_code == libc::SI_KERNEL {
                return;
            }
            LAST.store(signal, Ordering::Relaxed);
            let seen = SEEN.fetch_add(1, Ordering::Relaxed);
            let command = COMMAND.load(Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                // SAFETY: _exit is async-signal-safe.
                unsafe { libc::_exit(128 + signal) };
            }
            if command < 0 || seen > 0 {
                stop.store(true, Ordering::Relaxed);
            }
            // The terminal's signals go to all of its foreground process group.
            if command >= 0 && info.si_code != libc::SI_KERNEL {
                // SAFETY: a system call with a descriptor that is kept until COMMAND is unset; it is async-signal-safe.
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, command, signal, 0, 0) };
            }
        };
        // SAFETY: the action only uses atomics and async-signal-safe calls.
        unsafe { signal_hook_registry::register_sigaction(signal, act) }.context("catching signals")?;
    }
    Ok(stop)
}

/// While it is held, signals are passed on to a command.
pub struct PassedOn(());

impl PassedOn {
    /// Begins to. The descriptor must be kept until this is dropped.
    pub fn to(command: BorrowedFd<'_>) -> PassedOn {
        COMMAND.store(command.as_raw_fd(), Ordering::Relaxed);
        PassedOn(())
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        COMMAND.store(-1, Ordering::Relaxed);
    }
}

/// The exit status of who was ended by a signal, as a shell gives it: that of the last one seen.
pub fn status() -> u8 {
    match LAST.load(Ordering::Relaxed) {
        0 => 1,
        signal => 128 + signal as u8,
    }
}

/// Whether a signal was seen.
pub fn seen() -> bool {
    SEEN.load(Ordering::Relaxed) > 0
}

fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is only read, into memory that is large enough for it.
    let got = unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and a successful call has filled it.
    got == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Sleeps until then or until the flag is set.
pub fn wait(until: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let left =
            rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Unlike the standard library's sleep, this one ends at a signal.
        let _ = rustix::thread::nanosleep(&left);
    }
}

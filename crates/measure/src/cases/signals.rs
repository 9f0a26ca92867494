//! Signals.

use super::common::alone;
use crate::case::{Case, Failure, tried};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "signal",
        about: "send oneself a signal and handle it",
        flags: &[],
        setup: |_| {
            handle()?;
            alone(|_| {
                let pid = std::process::id() as i32;
                // SAFETY: a signal that is handled.
                Ok(tried(move || unsafe { libc::kill(pid, libc::SIGUSR1) == 0 }))
            })
        },
    },
    Case {
        name: "sigaction",
        about: "install the handler of a signal",
        flags: &[],
        setup: |_| {
            alone(|_| {
                let action = action();
                Ok(tried(move || {
                    let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
                    // SAFETY: a handler that does nothing, and room for the old one.
                    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, old.as_mut_ptr()) == 0 }
                }))
            })
        },
    },
    Case {
        name: "sigprocmask",
        about: "block a signal and let it through, in turn",
        flags: &[],
        setup: |_| {
            alone(|_| {
                let (mut now, mut old) = (set(&[libc::SIGTERM]), set(&[]));
                Ok(tried(move || {
                    // SAFETY: live sets.
                    let ok =
                        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const now, &raw mut old) == 0 };
                    std::mem::swap(&mut now, &mut old);
                    ok
                }))
            })
        },
    },
];

fn set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: room for a set, which is emptied before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        signals.iter().for_each(|&s| {
            libc::sigaddset(set.as_mut_ptr(), s);
        });
        set.assume_init()
    }
}

extern "C" fn nothing(_: i32) {}

fn action() -> libc::sigaction {
    libc::sigaction {
        sa_sigaction: nothing as extern "C" fn(i32) as libc::sighandler_t,
        sa_mask: set(&[]),
        sa_flags: 0,
        sa_restorer: None,
    }
}

fn handle() -> Result<(), Failure> {
    let action = action();
    // SAFETY: a handler that does nothing.
    match unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Failure::os("sigaction")),
    }
}

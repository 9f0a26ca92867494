//! A process's own affairs.

use std::hint::black_box;

use crate::case::{Alone, Case, each, tried};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "nop",
        about: "nothing: what the runner itself adds",
        flags: &[],
        setup: |_| {
            Ok(Box::new(Alone(|_| {
                Ok(each(|| {
                    black_box(());
                }))
            })))
        },
    },
    Case {
        name: "getpid",
        about: "ask the kernel for the process ID",
        flags: &[],
        // SAFETY: no arguments.
        setup: |_| Ok(Box::new(Alone(|_| Ok(tried(|| unsafe { libc::syscall(libc::SYS_getpid) } > 0))))),
    },
];

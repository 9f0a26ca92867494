//! Jumps and contexts, in C: functions that return twice are beyond what Rust allows, and a recursion must
//! be one after optimisation, too.

use super::common::{alone, flag};
use crate::case::{Batch, Bench, Case, Failure};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "longjmp", about: "jump back in a function", flags: &[], setup: |_| jumps(ncpu_longjmp) },
    Case {
        name: "siglongjmp",
        about: "jump back in a function and restore the signal mask",
        flags: &[],
        setup: |_| jumps(ncpu_siglongjmp),
    },
    Case { name: "getcontext", about: "save a context", flags: &[], setup: |_| jumps(ncpu_getcontext) },
    Case {
        name: "setcontext",
        about: "go back to a saved context",
        flags: &[],
        setup: |_| jumps(ncpu_setcontext),
    },
    Case {
        name: "recurse",
        about: "call two functions that call each other, so deep",
        flags: &[flag('d', "DEPTH", "100", "calls, one in the other")],
        setup: |o| {
            let depth = o.number('d')?;
            if depth > 100_000 {
                return Err(Failure::Failed(
                    "-d: at most 100000, for which a thread's stack has room".into(),
                ));
            }
            alone(move |_| Ok(Box::new(Recurse(depth as i32)) as Box<dyn Batch>))
        },
    },
];

unsafe extern "C" {
    fn ncpu_longjmp(n: u64);
    fn ncpu_siglongjmp(n: u64);
    fn ncpu_getcontext(n: u64);
    fn ncpu_setcontext(n: u64);
    fn ncpu_recurse(n: u64, depth: i32);
}

struct Jumps(unsafe extern "C" fn(u64));

impl Batch for Jumps {
    fn run(&mut self, n: u64) -> u64 {
        // SAFETY: takes any number, and stays within its own frame.
        unsafe { (self.0)(n) };
        0
    }
}

fn jumps(call: unsafe extern "C" fn(u64)) -> Result<Box<dyn Bench>, Failure> {
    alone(move |_| Ok(Box::new(Jumps(call)) as Box<dyn Batch>))
}

struct Recurse(i32);

impl Batch for Recurse {
    fn run(&mut self, n: u64) -> u64 {
        // SAFETY: the stack has room for such a depth.
        unsafe { ncpu_recurse(n, self.0) };
        0
    }
}

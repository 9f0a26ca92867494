//! Waking threads and switching between them.

use std::sync::atomic::AtomicU32;

use super::futex::{Futexes, Herd, Partner, Pipes, wake};
use crate::case::{Alone, Batch, Bench, Case, Failure, Worker, each, tried};
use crate::options::{Flag, Options};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "switch_pipe",
        about: "hand a byte to a thread on the same CPU and get one back: two switches",
        flags: SWITCH,
        setup: |o| switch::<Pipes>(o),
    },
    Case {
        name: "switch_futex",
        about: "hand a futex to a thread on the same CPU and get it back: two switches",
        flags: SWITCH,
        setup: |o| switch::<Futexes>(o),
    },
    Case {
        name: "futex_wake_none",
        about: "wake a futex that nobody waits for",
        flags: &[],
        setup: |_| {
            Ok(Box::new(Alone(|_: Worker| {
                let word = AtomicU32::new(0);
                Ok(tried(move || wake(&word, 1) == 0))
            })))
        },
    },
    Case {
        name: "futex_wake",
        about: "wake threads that wait for a futex, until all of them run and have said so",
        flags: &[Flag { letter: 'w', value: "N", default: "1", about: "threads that wait" }],
        setup: herd,
    },
];

const SWITCH: &[Flag] =
    &[Flag { letter: 'o', value: "", default: "", about: "the other thread may be on another CPU" }];

struct Switched<P> {
    other_cpu: bool,
    kind: std::marker::PhantomData<fn() -> P>,
}

fn switch<P: Partner>(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    Ok(Box::new(Switched::<P> { other_cpu: o.has('o'), kind: std::marker::PhantomData }))
}

impl<P: Partner> Bench for Switched<P> {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let pair = P::start(self.other_cpu)?;
        Ok(tried(move || pair.round()))
    }
}

struct Herds(usize);

fn herd(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    Ok(Box::new(Herds(o.number('w')?.clamp(1, 10_000) as usize)))
}

impl Bench for Herds {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        let herd = Herd::start(self.0)?;
        Ok(each(move || herd.wake_all()))
    }
}

//! The ring buffer: stacks seen for the first time, timer samples, threads that ended.

use ncpu_schema::{CpuState, IdleReason};
use ncpu_symbols::Copied;

use super::layout::{COPY_AT, ThreadOut, state};
use super::places;
use crate::bpf_support::comm;
use crate::bpf_support::ring::{
    EV_EXEC, EV_EXIT, EV_FUTEX, EV_LOCK_STACK, EV_OFF_CPU, EV_SAMPLE, EV_USER_STACK, EventHead, copied,
    walked,
};
use crate::bpf_support::{Stack, read};

/// What the kernel side has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// A timer sample.
    Sample {
        /// Where the CPU was.
        at: CpuState,
        /// The thread's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
        /// CPUs that idled meanwhile for it, if it is the program's.
        idling: Idling,
        /// Whether user code was at an instruction with which spinning code pauses.
        pauses: bool,
        /// The CPU.
        cpu: u32,
        /// When, in ns.
        time: u64,
    },
    /// A thread of the program ended; its counters are final.
    Exit(Box<ThreadOut>),
    /// The stack of a contended lock's waiter, by the identity used in [`super::KernelLock::stack`].
    LockStack(u64, Stack),
    /// The stack of a waiter for a user lock with static tracepoints, by its identity.
    UserLockStack(u64, Stack),
    /// A process has begun another program, and has its name.
    Exec(u32, String),
    /// The stack of a thread going off CPU, by its identity.
    OffCpu {
        /// That of its place.
        id: u64,
        /// Where the kernel side does not know the place yet: what it knows of it.
        chain: Option<u64>,
        /// The thread's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
    },
    /// A thread waits for a futex not seen lately, or for one that is judged again now and then.
    Futex {
        /// Address of the futex word.
        address: u64,
        /// The waiter's stack.
        stack: Stack,
        /// The top of it, where it could be read.
        copy: Option<Copied>,
        /// Whether it has been judged before.
        again: bool,
        /// The descriptor or number it is known by to its caller, where a system call takes the lock.
        number: Option<u32>,
    },
}

/// How many threads of the program ran at a sample, and how many CPUs idled meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idling {
    /// Samples that this one stands for: it was not looked at each of them who idled.
    pub samples: u32,
    /// Running threads; 0: none, or not known.
    pub running: u16,
    /// CPUs idle in serial phases, for kernel locks and for user locks.
    pub cpus: [u16; 3],
}

impl Idling {
    /// The reasons of [`Idling::cpus`].
    pub const REASONS: [IdleReason; 3] = [IdleReason::Serial, IdleReason::KernelLock, IdleReason::UserLock];

    /// As `packed` of critical_path.h has it; `mask` is that of the samples that were looked at.
    fn of(packed: u64, mask: u32) -> Idling {
        let part = |n: u32| (packed >> (16 * n)) as u16;
        Idling { samples: mask + 1, running: part(0), cpus: [part(1), part(2), part(3)] }
    }
}

/// `AT_PAUSE` of samples.h.
const AT_PAUSE: u32 = 0x8000;

pub(super) fn decode(bytes: &[u8]) -> Option<Event> {
    let head: EventHead = read(bytes)?;
    if head.kind == EV_EXIT {
        let thread: ThreadOut = read(&bytes[size_of::<EventHead>()..])?;
        return Some(Event::Exit(Box::new(thread)));
    }
    if head.kind == EV_EXEC {
        return Some(Event::Exec(head.tgid, comm(&head.comm)));
    }
    let (stack, walked) = walked(bytes)?;
    Some(match head.kind {
        EV_SAMPLE => {
            let (at, mask) = (stack.place & 0x7fff, stack.place >> 16);
            Event::Sample {
                at: state(at),
                stack: walked,
                copy: copied(bytes, COPY_AT),
                idling: Idling::of(stack.id, mask),
                pauses: stack.place & AT_PAUSE != 0,
                cpu: head.cpu,
                time: head.time,
            }
        }
        EV_LOCK_STACK => Event::LockStack(stack.id, walked),
        EV_OFF_CPU => Event::OffCpu {
            id: stack.id,
            chain: (stack.place != 0).then(|| places::chain(stack.id, head.time)),
            stack: walked,
            copy: copied(bytes, COPY_AT),
        },
        EV_USER_STACK => Event::UserLockStack(stack.id, walked),
        EV_FUTEX => {
            let copy = copied(bytes, COPY_AT).filter(|copy| !copy.words.is_empty());
            let number = stack.weight.checked_sub(2);
            Event::Futex { address: stack.id, stack: walked, copy, again: stack.weight == 1, number }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0u32..9) {
            let mut bytes = bytes;
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            }
            let _ = decode(&bytes);
        }
    }
}

//! The ring buffer: stacks seen for the first time, timer samples, threads that ended.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use super::raw::{
    self, EV_EXEC, EV_EXIT, EV_FUTEX, EV_LOCK_STACK, EV_OFF_CPU, EV_SAMPLE, EV_USER_STACK, EventHead,
    StackHead, ThreadOut, Where,
};

/// A walked stack: addresses, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// Kernel frames.
    pub kernel: Vec<u64>,
    /// User frames (frame pointers).
    pub user: Vec<u64>,
}

/// What the kernel side has to tell.
#[derive(Clone, Debug)]
pub enum Event {
    /// A timer found a CPU here.
    Sample(Where, Stack),
    /// A thread of the program ended; its counters are final.
    Exit(Box<ThreadOut>),
    /// The stack of a contended lock's waiter, by the identity used in [`super::LockRow::stack`].
    LockStack(u64, Stack),
    /// The stack of a waiter for a user lock with static tracepoints, by its identity.
    UserLockStack(u64, Stack),
    /// A process has begun another program.
    Exec(u32),
    /// The stack of a thread going off CPU, by its identity.
    OffCpu(u64, Stack),
    /// A thread waits for a futex not seen lately.
    Futex {
        /// Address of the futex word.
        address: u64,
        /// Operation | private << 8 | the kernel side's guess of the class << 16.
        word: u32,
        /// The value it expects there.
        value: u32,
        /// The waiter's stack.
        stack: Stack,
    },
}

/// Events received and not yet taken.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Rc<RefCell<Vec<Event>>>);

impl Inbox {
    pub fn take(&self) -> Vec<Event> {
        self.0.take()
    }
}

pub(crate) fn ring(map: &dyn MapCore) -> libbpf_rs::Result<(RingBuffer<'static>, Inbox)> {
    let inbox = Inbox::default();
    let into = inbox.clone();
    let mut builder = RingBufferBuilder::new();
    builder.add(map, move |bytes| {
        if let Some(event) = decode(bytes) {
            into.0.borrow_mut().push(event);
        }
        0
    })?;
    Ok((builder.build()?, inbox))
}

fn decode(bytes: &[u8]) -> Option<Event> {
    let head: EventHead = raw::read(bytes)?;
    if head.kind == EV_EXIT {
        let thread: ThreadOut = raw::read(&bytes[size_of::<EventHead>()..])?;
        return Some(Event::Exit(Box::new(thread)));
    }
    if head.kind == EV_EXEC {
        return Some(Event::Exec(head.tgid));
    }
    let (stack, walked) = walked(bytes)?;
    Some(match head.kind {
        EV_SAMPLE => Event::Sample(Where::from_raw(stack.place), walked),
        EV_LOCK_STACK => Event::LockStack(stack.id, walked),
        EV_OFF_CPU => Event::OffCpu(stack.id, walked),
        EV_USER_STACK => Event::UserLockStack(stack.id, walked),
        EV_FUTEX => Event::Futex { address: stack.id, word: stack.place, value: stack.weight, stack: walked },
        _ => return None,
    })
}

/// A record that is a stack: its head, and the frames behind it.
pub(crate) fn walked(bytes: &[u8]) -> Option<(StackHead, Stack)> {
    let stack: StackHead = raw::read(bytes)?;
    let frames = bytes.get(size_of::<StackHead>()..)?;
    let kernel_bytes = usize::try_from(stack.kernel_bytes).ok()?;
    let user_bytes = usize::try_from(stack.user_bytes).ok()?;
    let frame = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let all: Vec<u64> = frames.chunks_exact(8).map(frame).collect();
    let kernel = all.get(..kernel_bytes / 8)?.to_vec();
    let user = all.get(kernel_bytes / 8..kernel_bytes.checked_add(user_bytes)? / 8)?.to_vec();
    let comm = raw::comm(&stack.head.comm);
    Some((stack, Stack { tgid: stack.head.tgid, tid: stack.head.tid, comm, kernel, user }))
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

//! The ring buffer: records that the programs of a collector send, stacks above all.

use std::cell::RefCell;
use std::ffi::c_char;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use ncpu_symbols::Copied;

use super::{Plain, comm, read};

/// Kinds of records (`enum event` of stack.h).
pub(crate) const EV_SAMPLE: u32 = 1;
pub(crate) const EV_EXIT: u32 = 2;
pub(crate) const EV_LOCK_STACK: u32 = 3;
pub(crate) const EV_OFF_CPU: u32 = 4;
pub(crate) const EV_FUTEX: u32 = 5;
pub(crate) const EV_USER_STACK: u32 = 6;
pub(crate) const EV_EXEC: u32 = 7;

/// `struct event_head` of stack.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct EventHead {
    pub kind: u32,
    pub cpu: u32,
    pub tgid: u32,
    pub tid: u32,
    pub time: u64,
    pub comm: [c_char; 16],
}

/// `struct stack_event` of stack.h without its frames, which follow it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct StackHead {
    pub head: EventHead,
    /// What it tells by its kind: [`StackHead::id`], or a struct of [`TOLD`] bytes.
    pub told: [u64; TOLD / 8],
    pub kernel_bytes: i32,
    pub user_bytes: i32,
}

/// Bytes of what a stack's record tells by its kind.
pub(crate) const TOLD: usize = 16;

impl StackHead {
    /// What the stack is known by.
    pub fn id(&self) -> u64 {
        self.told[0]
    }
}

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for EventHead {}
// SAFETY: integers and a `Plain` struct only.
unsafe impl Plain for StackHead {}

/// Asserts that a skeleton's records are laid out as they are read here.
macro_rules! same_records {
    ($types:path) => {
        const _: () = {
            use $crate::bpf_support::ring::{EventHead, StackHead};
            use $types as types;
    $crate::bpf_support::same_layout!(EventHead, types::event_head:
                kind = kind, cpu = cpu, tgid = tgid, tid = tid, time = time, comm = comm);
    $crate::bpf_support::same_layout!(StackHead, types::stack_event:
                head = head, told = told, kernel_bytes = kernel_bytes, user_bytes = user_bytes);
            assert!(
                std::mem::offset_of!(StackHead, told) + $crate::bpf_support::ring::TOLD
                    == std::mem::offset_of!(types::stack_event, kernel_bytes)
            );
            assert!(size_of::<StackHead>() == std::mem::offset_of!(types::stack_event, frames));
        };
    };
}
pub(crate) use same_records;

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

/// Records received and not yet taken.
pub(crate) struct Inbox<T>(Rc<RefCell<Vec<T>>>);

impl<T> Inbox<T> {
    pub fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

/// Opens a ring buffer; what `decode` makes of its records comes to the inbox.
pub(crate) fn open<T: 'static>(
    map: &dyn MapCore,
    decode: fn(&[u8]) -> Option<T>,
) -> super::Result<(RingBuffer<'static>, Inbox<T>)> {
    let refused = |source| super::Error::Bpf { doing: "opening the ring buffer", source };
    let inbox = Rc::new(RefCell::new(Vec::new()));
    let into = inbox.clone();
    let mut builder = RingBufferBuilder::new();
    let added = builder.add(map, move |bytes| {
        into.borrow_mut().extend(decode(bytes));
        0
    });
    added.map_err(refused)?;
    Ok((builder.build().map_err(refused)?, Inbox(inbox)))
}

/// A record that is a stack: its head, and the frames behind it.
pub(crate) fn walked(bytes: &[u8]) -> Option<(StackHead, Stack)> {
    let stack: StackHead = read(bytes)?;
    let frames = bytes.get(size_of::<StackHead>()..)?;
    let kernel_bytes = usize::try_from(stack.kernel_bytes).ok()?;
    let user_bytes = usize::try_from(stack.user_bytes).ok()?;
    let frame = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let all: Vec<u64> = frames.chunks_exact(8).map(frame).collect();
    let kernel = all.get(..kernel_bytes / 8)?.to_vec();
    let user = all.get(kernel_bytes / 8..kernel_bytes.checked_add(user_bytes)? / 8)?.to_vec();
    let comm = comm(&stack.head.comm);
    Some((stack, Stack { tgid: stack.head.tgid, tid: stack.head.tid, comm, kernel, user }))
}

/// Frames of Python that a record has room for (`PYTHON_FRAMES` of stack_copies.h).
pub(crate) const PYTHON_FRAMES: usize = 128;

/// The copy of a stack that begins `at` so many bytes of a record: three registers, how many frames of Python there are and
/// room for [`PYTHON_FRAMES`], then the stack, or nothing where it was not copied.
pub(crate) fn copied(bytes: &[u8], at: usize) -> Option<Copied> {
    let word = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let mut words = bytes.get(at..)?.chunks_exact(8).map(word);
    let regs = [words.next()?, words.next()?, words.next()?];
    let count = usize::try_from(words.next()?).ok()?.min(PYTHON_FRAMES);
    let mut python: Vec<u64> = words.by_ref().take(PYTHON_FRAMES).collect();
    python.truncate(count);
    Some(Copied { regs, words: words.collect(), python })
}

/// A record that is a stack alone, with what it is known by.
pub(crate) fn stack(bytes: &[u8]) -> Option<(u64, Stack)> {
    walked(bytes).map(|(head, stack)| (head.id(), stack))
}

//! The ring buffer: records that the programs of a collector send, mostly stacks.

use std::cell::RefCell;
use std::ffi::c_char;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use ncpu_symbols::Copied;

use super::{Plain, comm, read};

// Kinds of records (`enum event` of stack.h).

/// A timer sample.
pub const EV_SAMPLE: u32 = 1;
/// A thread ended.
pub const EV_EXIT: u32 = 2;
/// The stack of a wait for a kernel lock.
pub const EV_LOCK_STACK: u32 = 3;
/// The stack of a thread that left its CPU.
pub const EV_OFF_CPU: u32 = 4;
/// The stack of a wait for a futex.
pub const EV_FUTEX: u32 = 5;
/// A user stack that was copied.
pub const EV_USER_STACK: u32 = 6;
/// A process executed another program.
pub const EV_EXEC: u32 = 7;
/// The first appearance of a tenant.
pub const EV_TENANT: u32 = 8;
/// One of the slowest requests of clients.
pub const EV_REQUEST: u32 = 9;

/// `struct event_head` of stack.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EventHead {
    /// Kind of the record.
    pub kind: u32,
    /// CPU on which it was written.
    pub cpu: u32,
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Time in ns, by the clock of BPF programs.
    pub time: u64,
    /// The thread's name.
    pub comm: [c_char; 16],
}

/// `struct stack_event` of stack.h without the frames that follow it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct StackHead {
    /// Head of the record.
    pub head: EventHead,
    /// Details, by the kind of the record: [`StackHead::id`], or a struct of [`DETAIL`] bytes.
    pub detail: [u64; DETAIL / 8],
    /// Bytes of kernel frames; a negative value is an error.
    pub kernel_bytes: i32,
    /// Bytes of user frames after them; a negative value is an error.
    pub user_bytes: i32,
}

/// Bytes of a stack record's details.
pub const DETAIL: usize = 24;

impl StackHead {
    /// Identity of the stack.
    pub fn id(&self) -> u64 {
        self.detail[0]
    }
}

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for EventHead {}
// SAFETY: integers and a `Plain` struct only.
unsafe impl Plain for StackHead {}

/// Asserts that a skeleton's records have the layout that this module reads.
#[macro_export]
macro_rules! same_records {
    ($types:path) => {
        const _: () = {
            use $crate::bpf_support::ring::{EventHead, StackHead};
            use $types as types;
    $crate::bpf_support::same_layout!(EventHead, types::event_head:
                kind = kind, cpu = cpu, tgid = tgid, tid = tid, time = time, comm = comm);
    $crate::bpf_support::same_layout!(StackHead, types::stack_event:
                head = head, detail = detail, kernel_bytes = kernel_bytes, user_bytes = user_bytes);
            assert!(
                std::mem::offset_of!(StackHead, detail) + $crate::bpf_support::ring::DETAIL
                    == std::mem::offset_of!(types::stack_event, kernel_bytes)
            );
            assert!(size_of::<StackHead>() == std::mem::offset_of!(types::stack_event, frames));
        };
    };
}
pub use crate::same_records;

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

/// Received records that have not been taken yet.
pub struct Inbox<T>(Rc<RefCell<Vec<T>>>);

impl<T> Inbox<T> {
    /// Takes all records.
    pub fn take(&self) -> Vec<T> {
        self.0.take()
    }
}

/// Opens a ring buffer. `decode` turns each record into a value for the inbox.
pub fn open<T: 'static>(
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

/// A record that is a stack: its head and the frames after it.
pub fn walked(bytes: &[u8]) -> Option<(StackHead, Stack)> {
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

/// Room for the frames of a script in a record (`SCRIPT_WORDS` of stack_copies.h).
pub const SCRIPT_WORDS: usize = 128;

/// The copy of a stack at byte `at` of a record: four registers, the number of words of a script's frames with room for
/// [`SCRIPT_WORDS`], then the stack, or nothing if it was not copied.
pub fn copied(bytes: &[u8], at: usize) -> Option<Copied> {
    let word = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let mut words = bytes.get(at..)?.chunks_exact(8).map(word);
    let regs = [words.next()?, words.next()?, words.next()?, words.next()?];
    let count = usize::try_from(words.next()?).ok()?.min(SCRIPT_WORDS);
    let mut codes: Vec<u64> = words.by_ref().take(SCRIPT_WORDS).collect();
    codes.truncate(count);
    Some(Copied { regs, words: words.collect(), codes })
}

/// A record with only a stack: its identity and the stack.
pub fn stack(bytes: &[u8]) -> Option<(u64, Stack)> {
    walked(bytes).map(|(head, stack)| (head.id(), stack))
}

//! What differs between processors: register sets, and how a system call is injected.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// Where an injected call is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gadgets {
    /// Instructions that execute a system call and return.
    pub(crate) call: u64,
    /// Instructions that execute `rt_sigreturn`.
    pub(crate) sigreturn: u64,
}

/// What a thread needs to restore itself, without us, after an injected call.
pub(crate) struct Frame {
    /// The stack pointer to execute the call with; the bytes start there.
    pub(crate) sp: u64,
    /// Where 128 bytes of it may be used by calls.
    pub(crate) scratch: u64,
    /// To be written to the stack.
    pub(crate) bytes: Vec<u8>,
}

/// Registers other than the general ones, by the type of their note.
pub(crate) type Sets = Vec<(u32, Vec<u8>)>;

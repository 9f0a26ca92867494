//! Processor-specific code: register sets, and the injection of a system call.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// The code addresses that execute an injected call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gadgets {
    /// Instructions that execute a system call and return.
    pub(crate) call: u64,
    /// Instructions that execute `rt_sigreturn`.
    pub(crate) sigreturn: u64,
}

/// The data from which a thread restores itself, without us, after an injected call.
pub(crate) struct Frame {
    /// The stack pointer to execute the call with; the bytes start there.
    pub(crate) sp: u64,
    /// The address of 128 bytes of it that calls may use.
    pub(crate) scratch: u64,
    /// The bytes to write to the stack.
    pub(crate) bytes: Vec<u8>,
}

/// Registers other than the general ones, by the type of their note.
pub(crate) type Sets = Vec<(u32, Vec<u8>)>;

/// The general registers of a thread, in the order of the kernel's structure.
#[derive(Clone, Debug)]
pub(crate) struct General([u64; GENERAL / 8]);

impl General {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (chunks, []) = bytes.as_chunks::<8>() else { return None };
        let words: [[u8; 8]; GENERAL / 8] = chunks.try_into().ok()?;
        Some(Self(words.map(u64::from_ne_bytes)))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// All zero except the registers that /proc shows of a thread that does not stop.
    pub(crate) fn known(pc: u64, sp: u64) -> Self {
        let mut words = [0; GENERAL / 8];
        (words[PC], words[SP]) = (pc, sp);
        Self(words)
    }

    pub(crate) fn pc(&self) -> u64 {
        self.0[PC]
    }

    pub(crate) fn sp(&self) -> u64 {
        self.0[SP]
    }
}

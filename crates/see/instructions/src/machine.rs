//! Processors with a decoder.

use crate::code::Decoded;
use crate::exits::Exits;
use crate::{aarch64, x86_64};

/// A processor with a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// AArch64.
    Aarch64,
}

impl Machine {
    /// The processor of this program; `None` if it has no decoder.
    pub const OWN: Option<Machine> = if cfg!(target_arch = "x86_64") {
        Some(Machine::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Machine::Aarch64)
    } else {
        None
    };

    /// The processor of an ELF file's code, by the number in its header (`e_machine`).
    pub fn of_elf(number: u16) -> Option<Machine> {
        // EM_X86_64 and EM_AARCH64 of elf.h.
        match number {
            62 => Some(Machine::X86_64),
            183 => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// The instructions of code; `whole`: it begins with one.
    pub(crate) fn decode(self, bytes: &[u8], whole: bool) -> Vec<Decoded> {
        match self {
            Machine::X86_64 if whole => x86_64::decode(bytes),
            Machine::X86_64 => x86_64::resynchronized(bytes),
            // All instructions have four bytes, and lie at multiples of four, as pages of code do.
            Machine::Aarch64 => aarch64::decode(bytes),
        }
    }

    /// An address of user code without the bits that the processor ignores.
    pub(crate) fn without_tag(self, address: u64) -> u64 {
        match self {
            Machine::X86_64 => address,
            // Tags of hwasan and of memory tagging lie in the highest byte, which Linux lets the processor ignore.
            Machine::Aarch64 => address & (u64::MAX >> 8),
        }
    }

    pub(crate) fn exits(self, code: &[u8], exits: &mut Exits, address: u64) -> Option<()> {
        match self {
            Machine::X86_64 => x86_64::exits(code, exits, address),
            Machine::Aarch64 => aarch64::exits(code, exits, address),
        }
    }

    pub(crate) fn entry(self, code: &[u8]) -> u32 {
        match self {
            Machine::X86_64 => x86_64::entry(code),
            // The kernel executes a landing pad (`bti`) as a step, like most instructions behind it.
            Machine::Aarch64 => 0,
        }
    }

    pub(crate) fn first_return(self, code: &[u8]) -> Option<u32> {
        match self {
            Machine::X86_64 => x86_64::first_return(code),
            Machine::Aarch64 => aarch64::first_return(code),
        }
    }
}

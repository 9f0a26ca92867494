//! Processors with a decoder.

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

    /// The processor that code is for: by the number in its file's header, or this one where the code was made at run time (`None`).
    pub fn of_code(number: Option<u16>) -> Option<Machine> {
        number.map_or(Machine::OWN, Machine::of_elf)
    }

    /// An address of user code without the bits that the processor ignores.
    pub(crate) fn without_tag(self, address: u64) -> u64 {
        match self {
            Machine::X86_64 => address,
            // Tags of hwasan and of memory tagging lie in the highest byte, which Linux lets the processor ignore.
            Machine::Aarch64 => address & (u64::MAX >> 8),
        }
    }
}

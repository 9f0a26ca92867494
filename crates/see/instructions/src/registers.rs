//! Registers of user code at a sample.

use crate::Machine;

/// Registers of user code at a sample, as BPF programs hand them over (`keep_registers` of samples.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Of x86-64.
    X86_64([u64; x86_64::COUNT]),
    /// Of AArch64.
    Aarch64([u64; aarch64::COUNT]),
}

/// The order of the registers of x86-64: that of `pt_regs`, without orig_ax, cs and flags.
pub mod x86_64 {
    #![allow(missing_docs)]
    pub const R15: usize = 0;
    pub const R14: usize = 1;
    pub const R13: usize = 2;
    pub const R12: usize = 3;
    pub const RBP: usize = 4;
    pub const RBX: usize = 5;
    pub const R11: usize = 6;
    pub const R10: usize = 7;
    pub const R9: usize = 8;
    pub const R8: usize = 9;
    pub const RAX: usize = 10;
    pub const RCX: usize = 11;
    pub const RDX: usize = 12;
    pub const RSI: usize = 13;
    pub const RDI: usize = 14;
    pub const RIP: usize = 15;
    pub const RSP: usize = 16;
    /// Words of a sample.
    pub const COUNT: usize = 17;
}

/// The order of the registers of AArch64: x0 to x30 by number, then these.
pub mod aarch64 {
    /// The stack pointer, as number 31 of a base register.
    pub const SP: usize = 31;
    /// The instruction pointer.
    pub const PC: usize = 32;
    /// The first argument of the last system call: its result is in x0 instead.
    pub const FIRST: usize = 33;
    /// Not 0: the instruction before is the one that calls the kernel (`svc`).
    pub const CALLED: usize = 34;
    /// Words of a sample.
    pub const COUNT: usize = 35;
}

/// A system call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its result: below 0 an error.
    pub result: i64,
    /// Its first argument.
    pub first: u64,
}

impl Registers {
    /// Those of a sample of this machine.
    pub fn of_sample(words: &[u64]) -> Option<Registers> {
        Some(match Machine::OWN? {
            Machine::X86_64 => Registers::X86_64(words.try_into().ok()?),
            Machine::Aarch64 => Registers::Aarch64(words.try_into().ok()?),
        })
    }

    /// The registers to ask perf for (`sample_regs_user`), by the numbers of this machine's `asm/perf_regs.h`.
    pub const PERF_MASK: u64 = if cfg!(target_arch = "aarch64") { (1 << 33) - 1 } else { 0xff_01ff };

    /// Those that perf gives for that mask, in the order of its bits.
    pub fn of_perf(words: &[u64]) -> Option<Registers> {
        Some(match Machine::OWN? {
            Machine::X86_64 => {
                use x86_64::*;
                const ORDER: [usize; COUNT] =
                    [RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, RIP, R8, R9, R10, R11, R12, R13, R14, R15];
                let given: [u64; COUNT] = words.try_into().ok()?;
                let mut own = [0; COUNT];
                ORDER.into_iter().zip(given).for_each(|(place, word)| own[place] = word);
                Registers::X86_64(own)
            }
            Machine::Aarch64 => {
                // From x0 to the instruction pointer they are the same; of calls nothing is known.
                let given: [u64; aarch64::PC + 1] = words.try_into().ok()?;
                let mut own = [0; aarch64::COUNT];
                own[..=aarch64::PC].copy_from_slice(&given);
                Registers::Aarch64(own)
            }
        })
    }

    /// The processor that has them.
    pub fn machine(&self) -> Machine {
        match self {
            Registers::X86_64(_) => Machine::X86_64,
            Registers::Aarch64(_) => Machine::Aarch64,
        }
    }

    /// The instruction pointer.
    pub fn ip(&self) -> u64 {
        match self {
            Registers::X86_64(all) => all[x86_64::RIP],
            Registers::Aarch64(all) => all[aarch64::PC],
        }
    }

    /// The system call that ended right before the sample. On x86-64, `syscall` leaves the address of the next instruction in rcx.
    pub fn called(&self) -> Option<Called> {
        let (called, result, first) = match self {
            Registers::X86_64(all) => {
                let ip = all[x86_64::RIP];
                (all[x86_64::RCX] == ip && ip != 0, all[x86_64::RAX], all[x86_64::RDI])
            }
            Registers::Aarch64(all) => (all[aarch64::CALLED] != 0, all[0], all[aarch64::FIRST]),
        };
        called.then_some(Called { result: result as i64, first })
    }

    /// A register by its place in the order of a machine; `None` if they are of another machine.
    pub(crate) fn value(&self, machine: Machine, place: u8) -> Option<u64> {
        let all: &[u64] = match self {
            Registers::X86_64(all) => all,
            Registers::Aarch64(all) => all,
        };
        all.get(usize::from(place)).copied().filter(|_| machine == self.machine())
    }
}

/// A set of registers that addresses are made of, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(u64);

impl Set {
    pub const NONE: Set = Set(0);

    pub fn of(places: impl IntoIterator<Item = u8>) -> Set {
        Set(places.into_iter().filter(|place| *place < 64).fold(0, |all, place| all | 1 << place))
    }

    pub fn has(self, place: u8) -> bool {
        self.meets(Set::of([place]))
    }

    pub fn meets(self, other: Set) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_in(self, other: Set) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn and(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }
}

//! Where an instruction's operand lies, by the registers behind the instruction.

use crate::Machine;
use crate::registers::{Registers, Set};

/// Whether the registers of an address hold what they held when the address was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// They do, or it is known how the instruction changed them.
    No,
    /// The instruction loaded its own base register: the address is that of the next such load, if it is one.
    Next,
    /// It loaded its own index register, which may be a place of a table or what lay there: as [`Stale::Next`] only in a
    /// loop that leaves the register alone.
    NextIndex,
    /// They do not.
    Lost,
}

/// How the value of an index register is extended before it is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extend {
    /// All its bits count.
    #[default]
    No,
    /// Its lower 32 bits, without and with their sign.
    Unsigned,
    Signed,
}

/// How an instruction changes the base register of its operand, beside its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteBack {
    #[default]
    No,
    /// It adds a number.
    Adds(u64),
    /// It adds a register that the address is not made of.
    AddsRegister(u8),
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub(crate) machine: Machine,
    pub(crate) base: Option<u8>,
    pub(crate) index: Option<u8>,
    pub(crate) extend: Extend,
    pub(crate) scale: u8,
    /// Beside the registers as they are before the instruction.
    pub(crate) displacement: u64,
    /// It counts from the beginning of the code.
    pub(crate) relative: bool,
    pub(crate) write_back: WriteBack,
    /// Bytes.
    pub size: u16,
    /// The instruction writes it.
    pub writes: bool,
    /// It reads it.
    pub reads: bool,
    /// It is read, and a store behind writes it.
    pub written_back: bool,
    /// It lies relative to the stack pointer.
    pub on_stack: bool,
    /// See [`Stale`].
    pub stale: Stale,
}

/// The place of an operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its first byte.
    pub at: u64,
    /// Bytes.
    pub size: u16,
}

impl Operand {
    /// The same of an instruction that has not run yet: its registers are whole.
    pub fn ahead(self) -> Operand {
        Operand { stale: Stale::No, write_back: WriteBack::No, ..self }
    }

    /// The same for an instruction behind, by the registers that this one left; `None` if they do not lead there.
    pub(crate) fn behind(self) -> Option<Operand> {
        let displacement = match self.write_back {
            WriteBack::No => self.displacement,
            WriteBack::Adds(n) => self.displacement.wrapping_sub(n),
            WriteBack::AddsRegister(_) => return None,
        };
        let whole = self.stale == Stale::No;
        whole.then_some(Operand { displacement, write_back: WriteBack::No, ..self })
    }

    /// The registers that its address is made of.
    pub(crate) fn registers(&self) -> Set {
        Set::of(self.base.into_iter().chain(self.index))
    }

    /// Whether both name the same place, where registers do not change between.
    pub(crate) fn same_place(&self, other: &Operand) -> bool {
        let place = |o: &Operand| (o.base, o.index, o.extend, o.scale, o.displacement, o.relative);
        place(self) == place(other)
    }

    /// Whether an instruction that writes these registers changes one of the address.
    pub(crate) fn is_moved_by(&self, written: Set) -> bool {
        self.registers().meets(written)
    }

    /// Whether an instruction that writes these registers sets the index, other than by loading from such a place.
    pub(crate) fn index_is_set_by(&self, other: Option<&Operand>, written: Set) -> bool {
        let follows =
            other.is_some_and(|o| o.stale != Stale::No && o.index == self.index && o.base == self.base);
        self.index.is_some_and(|index| written.has(index)) && !follows
    }

    /// Where it lies, by the registers behind the instruction, and where the code begins in the process. `None` if they do not lead
    /// there, or are of another machine.
    pub fn address(&self, registers: &Registers, code: u64) -> Option<Address> {
        if matches!(self.stale, Stale::Lost | Stale::NextIndex) {
            return None;
        }
        let value = |place: Option<u8>| place.map_or(Some(0), |place| registers.value(self.machine, place));
        let index = value(self.index)?;
        let index = match self.extend {
            Extend::No => index,
            Extend::Unsigned => index & 0xffff_ffff,
            Extend::Signed => index as i32 as u64,
        };
        let added = match self.write_back {
            WriteBack::No => 0,
            WriteBack::Adds(n) => n,
            WriteBack::AddsRegister(place) => value(Some(place))?,
        };
        let from = if self.relative { code } else { 0 };
        let base = value(self.base)?.wrapping_sub(added);
        let at = base.wrapping_add(index.wrapping_mul(self.scale.into()));
        let at = at.wrapping_add(self.displacement).wrapping_add(from);
        Some(Address { at: self.machine.without_tag(at), size: self.size })
    }
}

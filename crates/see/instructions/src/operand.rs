//! Where an instruction's operand lies, by the registers behind the instruction.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, Register, UsedMemory};

/// Registers of user code as BPF programs hand them over (`keep_registers` of samples.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers(pub [u64; Registers::COUNT]);

impl Registers {
    /// Registers that there are.
    pub const COUNT: usize = 17;

    /// The instruction pointer.
    pub fn ip(&self) -> u64 {
        self.0[15]
    }

    /// The system call that ended right before the sample: `syscall` leaves the address of the next instruction in rcx.
    pub fn called(&self) -> Option<Called> {
        let [.., result, next, _, _, first, ip, _] = self.0;
        (next == ip && ip != 0).then_some(Called { result: result as i64, first })
    }

    /// The place of a register of 64 bits; `None` where its value is not among these.
    fn place(register: Register) -> Option<u8> {
        const ORDER: [Register; Registers::COUNT] = [
            Register::R15,
            Register::R14,
            Register::R13,
            Register::R12,
            Register::RBP,
            Register::RBX,
            Register::R11,
            Register::R10,
            Register::R9,
            Register::R8,
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RSI,
            Register::RDI,
            Register::RIP,
            Register::RSP,
        ];
        ORDER.iter().position(|r| *r == register).and_then(|place| place.try_into().ok())
    }
}

/// A system call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its result: below 0 an error.
    pub result: i64,
    /// Its first argument.
    pub first: u64,
}

/// Whether the registers of an address hold what they held when the address was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// They do.
    No,
    /// The instruction loaded its own base register: the address is that of the next such load, if it is one.
    Next,
    /// It loaded its own index register, which may be a place of a table or what lay there: as [`Stale::Next`] only in a
    /// loop that leaves the register alone.
    NextIndex,
    /// They do not.
    Lost,
}

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    base: Option<u8>,
    index: Option<u8>,
    scale: u8,
    displacement: u64,
    /// It counts from the beginning of the code.
    relative: bool,
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
    /// The operand that an instruction names; `None` where it has none, or one that registers do not lead to: gathers, segments,
    /// the stack of `push` and `call`.
    pub(crate) fn of(instruction: &Instruction, info: &InstructionInfo) -> Option<Operand> {
        let is_access = |m: &&UsedMemory| m.access() != OpAccess::NoMemAccess && m.access() != OpAccess::None;
        let pushes = instruction.is_stack_instruction();
        let implicit = |m: &UsedMemory| pushes && m.base() == Register::RSP && m.index() == Register::None;
        let memory = info.used_memory().iter().filter(is_access).find(|m| !implicit(m))?;
        let segment = matches!(memory.segment(), Register::FS | Register::GS);
        let place = |register: Register| match register {
            Register::None => Some(None),
            other => Registers::place(other).map(Some),
        };
        // iced gives the displacement of an operand relative to the instruction pointer as an address.
        let (base, index) = (place(memory.base())?, place(memory.index())?);
        let size = memory.memory_size().size();
        if segment || size == 0 {
            return None;
        }
        let written = |register: Register| {
            let used = info.used_registers().iter();
            used.filter(|u| u.register().full_register() == register).any(|u| writes(u.access()))
        };
        let lost = |register: Register| register != Register::None && written(register);
        let to = instruction.op0_register();
        let loads_base = instruction.op_count() == 2
            && to == memory.base()
            && memory.index() == Register::None
            && instruction.mnemonic() == Mnemonic::Mov;
        // An index may have 32 bits, the upper ones of its register being cleared or its sign's.
        let loads_index = instruction.op_count() == 2
            && to.full_register() == memory.index()
            && to.size() >= 4
            && matches!(
                instruction.mnemonic(),
                Mnemonic::Mov | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Movzx
            );
        let stale = match (lost(memory.base()), lost(memory.index())) {
            (false, false) => Stale::No,
            (true, false) if loads_base => Stale::Next,
            (false, true) if loads_index => Stale::NextIndex,
            _ => Stale::Lost,
        };
        let access = memory.access();
        Some(Operand {
            base,
            index,
            scale: memory.scale().clamp(1, 8) as u8,
            displacement: memory.displacement(),
            relative: instruction.is_ip_rel_memory_operand(),
            size: size.min(u16::MAX.into()) as u16,
            writes: writes(access),
            reads: matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            ),
            written_back: false,
            on_stack: memory.base() == Register::RSP,
            stale,
        })
    }

    /// The same of an instruction that has not run yet: its registers are whole.
    pub fn ahead(self) -> Operand {
        Operand { stale: Stale::No, ..self }
    }

    /// Whether both name the same place, where registers do not change between.
    pub(crate) fn same_place(&self, other: &Operand) -> bool {
        let place = |o: &Operand| (o.base, o.index, o.scale, o.displacement, o.relative);
        place(self) == place(other)
    }

    /// Whether an instruction changes a register of the address.
    pub(crate) fn is_moved_by(&self, info: &InstructionInfo) -> bool {
        info.used_registers().iter().any(|used| {
            let place = Registers::place(used.register().full_register());
            writes(used.access()) && place.is_some() && (place == self.base || place == self.index)
        })
    }

    /// Whether an instruction writes the index, other than by loading from such a place.
    pub(crate) fn index_is_set_by(&self, other: Option<&Operand>, info: &InstructionInfo) -> bool {
        let written = info.used_registers().iter().any(|used| {
            writes(used.access()) && Registers::place(used.register().full_register()) == self.index
        });
        let follows =
            other.is_some_and(|o| o.stale != Stale::No && o.index == self.index && o.base == self.base);
        written && !follows
    }

    /// Where it lies, by the registers behind the instruction, and where the code begins in the process.
    pub fn address(&self, registers: &Registers, code: u64) -> Option<Address> {
        if matches!(self.stale, Stale::Lost | Stale::NextIndex) {
            return None;
        }
        let value = |place: Option<u8>| place.map_or(0, |place| registers.0[usize::from(place)]);
        let index = value(self.index).wrapping_mul(self.scale.into());
        let from = if self.relative { code } else { 0 };
        let at = value(self.base).wrapping_add(index).wrapping_add(self.displacement).wrapping_add(from);
        Some(Address { at, size: self.size })
    }
}

pub(crate) fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

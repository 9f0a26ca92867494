//! Instructions as the decoder of their machine gives them.

use crate::operand::Operand;
use crate::registers::Set;

/// The kind of work of an instruction, by what may make it wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Arithmetic, moves between registers, branches.
    Plain,
    /// Reads memory.
    Load,
    /// Writes memory, and may read it before.
    Store,
    /// An atomic operation on memory, or a fence.
    Atomic,
    /// Division, roots and others of 10 cycles or more.
    Long,
    /// Asks the processor what it is; a hypervisor answers in its place.
    Identify,
    /// Asks the processor for a random number, which all its cores have from one source.
    Random,
    /// Copies or fills memory, in one instruction.
    Copy,
}

impl Kind {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Atomic => "atomic",
            Kind::Long => "long",
            Kind::Identify => "identify",
            Kind::Random => "random",
            Kind::Copy => "copy",
        }
    }

    /// Whether it takes ten cycles or more by itself, whatever memory does.
    pub fn is_long(self) -> bool {
        matches!(self, Kind::Long | Kind::Identify | Kind::Random)
    }
}

/// How control leaves an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Branch,
    /// To the next, after others have run: a call.
    Call,
    /// Never to the next: a jump, a return.
    Away,
}

/// An instruction as the decoder of its machine gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    /// Bytes from the beginning of the code.
    pub at: u32,
    /// See [`Kind`].
    pub kind: Kind,
    pub flow: Flow,
    /// Where a branch or a jump leads, from the beginning of the code.
    pub target: Option<u64>,
    /// Its operand in memory, where registers lead to it.
    pub operand: Option<Operand>,
    /// General registers that the instruction writes.
    pub written: Set,
    /// It compares, so that a branch behind it is one instruction with it for the processor.
    pub compares: bool,
    /// Its part in a loop that may wait.
    pub look: Look,
}

impl Decoded {
    /// Whether it branches or jumps, and not calls.
    pub fn branch(&self) -> Option<u64> {
        self.target.filter(|_| matches!(self.flow, Flow::Branch | Flow::Away))
    }
}

/// An instruction's part in a loop that may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub role: Role,
    /// Registers of the address of its operand.
    pub address: Set,
}

/// See [`Look`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Not part of a loop that only waits.
    Work,
    /// A branch, a pause, a counter of turns, a value for an exchange.
    Nothing,
    /// It sets its registers to what these hold, or to a part of it.
    Move { from: Set },
    /// It makes a value of these registers alone, the same each time if they are; of none, a constant.
    Make { of: Set },
    /// It reads memory into its registers.
    Load { to: Set },
    /// It compares these registers, or what it reads.
    Compare { of: Set, reads: bool },
    /// It exchanges a register with memory, and leaves there what was in memory.
    Exchange { to: Set },
    /// It writes these registers to the word that an instruction before read, if no other has written it meanwhile.
    StoreIfUnchanged { from: Set },
}

/// An instruction as a disassembler prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Mnemonic and operands, as `objdump` has them: `mov (%rax),%rax`, `ldr x0, [x0]`.
    pub text: String,
    /// The address that it names by its distance: where it branches or calls, or the data that it uses.
    pub target: Option<u64>,
}

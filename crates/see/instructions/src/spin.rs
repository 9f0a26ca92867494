//! Loops that do nothing but look at memory until it changes.

use crate::code::Decoded;
use crate::registers::Set;

/// No loop that waits has more instructions.
const MOST: usize = 16;

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

/// Whether a loop, from its first instruction to the branch that comes back, waits for memory to change: it reads the same words each
/// time and compares them, changes nothing but a counter, and calls nobody. An exchange of one value with the same word counts as such a
/// read: it is how spinning locks are tried. A loop that comes back because its store has failed is an atomic operation instead.
pub(crate) fn is_spin(body: &[Decoded]) -> bool {
    if body.len() > MOST {
        return false;
    }
    let (mut addresses, mut written, mut loaded) = (Set::NONE, Set::NONE, Set::NONE);
    // Registers that hold the same at this place each time, whatever writes them elsewhere in the loop.
    let mut constant = Set::NONE;
    let (mut compared, mut reads) = (false, false);
    // Of the last comparison alone.
    let mut decides = false;
    let mut stores = false;
    for instruction in body {
        let mut is_constant = false;
        addresses = addresses.and(instruction.look.address.without(constant));
        match instruction.look.role {
            Role::Work => return false,
            Role::Nothing => {}
            Role::Make { of } => is_constant = of.is_in(constant),
            Role::Move { from } => {
                if from.meets(loaded) {
                    loaded = loaded.and(instruction.written);
                }
            }
            Role::Load { to } => {
                reads = true;
                loaded = loaded.and(to);
            }
            Role::Compare { of, reads: reading } => {
                reads |= reading;
                decides = reading || of.meets(loaded);
                compared |= decides;
            }
            Role::Exchange { to } => {
                reads = true;
                loaded = loaded.and(to);
            }
            Role::StoreIfUnchanged { from } => {
                // The loop changes the value that it read.
                if from.meets(loaded) {
                    return false;
                }
                stores = true;
                // The register that says whether it has stored.
                loaded = loaded.without(instruction.written);
            }
        }
        written = written.and(instruction.written);
        constant = match is_constant {
            true => constant.and(instruction.written),
            false => constant.without(instruction.written),
        };
    }
    reads && compared && (decides || !stores) && !addresses.meets(written)
}

//! Loops that do nothing but look at memory until it changes.

use crate::decoded::{Decoded, Role};
use crate::machine::Machine;
use crate::registers::Set;

/// No loop that waits has more instructions.
const MOST: usize = 16;

/// Whether a CPU waits for another at an instruction, or at the one before: `pause`; `yield`, `wfe`, `wfet`, `isb`. `code` is
/// the four bytes before the instruction, and the four that begin there. The engine's `at_pause` says the same of a sample.
pub fn pauses(machine: Machine, code: [u8; 8]) -> bool {
    let [a, b, c, d, e, f, g, h] = code;
    match machine {
        Machine::X86_64 => [c, d] == [0xf3, 0x90] || [e, f] == [0xf3, 0x90],
        Machine::Aarch64 => [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes).into_iter().any(|word| {
            matches!(word, 0xd503_203f | 0xd503_205f)
                || word & !0x1f == 0xd503_1000
                || word & !0xf00 == 0xd503_30df
        }),
    }
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

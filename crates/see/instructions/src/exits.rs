//! Where control leaves a function.

use std::ops::Range;

/// Where a function ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// Offsets of its instructions that return.
    pub returns: Vec<u32>,
    /// Addresses outside of it that it jumps to, each once: the code there returns to the function's caller.
    pub jumps: Vec<u64>,
    /// Offsets of its unconditional jumps to such an address, with the address; nothing for one that the linker has yet to fill in
    /// (`jmp *function@GOT(%rip)`).
    pub ends: Vec<(u32, Option<u64>)>,
    /// It jumps where a register or memory says: to a part of itself (`switch`), or to another function.
    pub indirect: bool,
}

impl Exits {
    /// Notes a jump at an offset, which ends the function if it leads outside of it and is always taken.
    pub(crate) fn jump(&mut self, inside: &Range<u64>, at: u32, target: u64, always: bool) {
        if inside.contains(&target) {
            return;
        }
        if !self.jumps.contains(&target) {
            self.jumps.push(target);
        }
        if always {
            self.ends.push((at, Some(target)));
        }
    }
}

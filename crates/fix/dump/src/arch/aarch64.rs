//! aarch64: cores are written; calls are not injected, because that was not tested on such a machine.

use super::{Frame, Gadgets, General, Sets};

/// `e_machine`.
pub(crate) const MACHINE: u16 = 183;
/// AUDIT_ARCH_AARCH64: the machine, 64 bits, little endian.
pub(crate) const AUDIT: u32 = 0xc000_00b7;
/// Bytes of the instruction that makes a system call.
pub(crate) const CALL_LENGTH: u64 = 4;
/// Bytes of the general registers, `struct user_pt_regs`.
pub(crate) const GENERAL: usize = 34 * 8;
/// NT_PRFPREG: here a register set of its own.
const NT_PRFPREG: u32 = 2;
/// Register sets in addition to the general ones: floating point, thread pointer, pointer authentication,
/// SVE, tagged addresses.
pub(crate) const SETS: &[u32] = &[NT_PRFPREG, 0x401, 0x405, 0x406, 0x409];

/// Index in x0 to x30, sp, pc, pstate.
pub(super) const SP: usize = 31;
pub(super) const PC: usize = 32;

impl General {
    /// Not among the general registers.
    pub(crate) fn thread_block(&self) -> u64 {
        0
    }

    /// Never used: no gadgets are found.
    pub(crate) fn calling(&self, _: Gadgets, _: u64, _: i64, _: [u64; 6]) -> Self {
        self.clone()
    }

    /// Never used: no gadgets are found.
    pub(crate) fn result(&self) -> i64 {
        -i64::from(libc::ENOSYS)
    }
}

/// None: see the module.
pub(crate) fn find_gadgets(_: &[u8]) -> (Option<usize>, Option<usize>) {
    (None, None)
}

/// None: see the module.
pub(crate) fn frame(_: &General, _: &Sets, _: u64, _: Gadgets) -> Option<Frame> {
    None
}

/// The floating-point registers are in the sets already.
pub(crate) fn floating(_: &Sets) -> Option<&[u8]> {
    None
}

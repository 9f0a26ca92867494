//! What the programs of `cpus.bpf.c` write: the types are the skeleton's own.

use super::skel::types;
use crate::bpf_support::Plain;

/// What is traced, by CPU.
pub(super) use types::events as Events;
/// What the kernel counts anyway, by CPU.
pub(super) use types::peek as Peek;

/// Bits of `peek_have`.
pub(super) const HAVE_FAULTS: u32 = 1;
pub(super) const HAVE_IRQS: u32 = 2;
pub(super) const HAVE_SOFTIRQS: u32 = 4;

// SAFETY: integers only.
unsafe impl Plain for Events {}
// SAFETY: integers only.
unsafe impl Plain for Peek {}

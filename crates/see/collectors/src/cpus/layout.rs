//! Types that the programs of `cpus.bpf.c` write: the skeleton's own.

use super::skel::types;
use crate::bpf_support::Plain;

/// Traced events, by CPU.
pub(super) use types::events as Events;
/// Events that the kernel counts itself, by CPU.
pub(super) use types::peek as Peek;

/// Bits of `peek_have`.
pub(super) const HAVE_FAULTS: u32 = 1;
pub(super) const HAVE_IRQS: u32 = 2;
pub(super) const HAVE_SOFTIRQS: u32 = 4;

// SAFETY: integers only.
unsafe impl Plain for Events {}
// SAFETY: integers only.
unsafe impl Plain for Peek {}

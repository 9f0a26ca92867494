//! Types that the programs of `numa.bpf.c` write: the skeleton's own, or ours that the compiler compares with them.

use std::ffi::c_char;

use super::skel::types;
use crate::bpf_support::{Plain, same_layout};

/// The thread a CPU runs, and since when.
pub(super) use types::cpu as Cpu;

/// CPU demand of a thread so far.
pub(super) use types::want as Want;

/// Nodes the programs keep apart.
pub(super) const NODES: usize = 64;

/// `struct out`, and the `struct thread` that follows it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Out {
    pub tgid: u32,
    pub tid: u32,
    pub comm: [c_char; 16],
    pub time: [u64; NODES],
}

impl Default for Out {
    fn default() -> Out {
        Out { tgid: 0, tid: 0, comm: [0; 16], time: [0; NODES] }
    }
}

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Cpu {}
// SAFETY: integers only.
unsafe impl Plain for Want {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Out {}

same_layout!(Out, types::out: tgid = tgid, tid = tid, comm = comm, time = thread);
const _: () = assert!(size_of::<Out>() == size_of::<types::out>());
const _: () = assert!(size_of::<[u64; NODES]>() == size_of::<types::thread>());

//! Giving up what a process may do.

use std::io;

use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

/// Rights that an observer needs after attaching: the tables of its programs and events of CPUs that come, stacks
/// and files of other users' processes, and the addresses of the kernel's functions.
pub const OBSERVER: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::SYSLOG);

/// Has the calling thread, and all threads that it starts from now on, be this user and group without further groups, with
/// no capabilities but `keep`, for good: no program that is executed can give more.
///
/// # Errors
/// The kernel refuses; the thread may then have given up a part.
pub fn become_user((user, group): (u32, u32), keep: CapabilitySet) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    // Those that this kernel does not know cannot be removed.
    for one in CapabilitySet::all().difference(keep).iter() {
        match remove_capability_from_bounding_set(one) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    set_keep_capabilities(!keep.is_empty())?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_capabilities(
        None,
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() },
    )?;
    clear_ambient_capability_set()?;
    set_no_new_privs(true)?;
    // Others of that user are not to read this process's memory.
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

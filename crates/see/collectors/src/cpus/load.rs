//! Loading the programs of `cpus.bpf.c`.

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::skel::{CpusSkel, CpusSkelBuilder};
use crate::bpf_support::load::{cpu_parts, storage};

/// Loads the programs of these names.
pub(super) fn load(names: &[&str]) -> libbpf_rs::Result<CpusSkel<'static>> {
    let cpus = cpu_parts().map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e)))? as u32;
    let mut open = CpusSkelBuilder::default().open(storage())?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.cpus = cpus;
    }
    open.maps.events.set_max_entries(cpus)?;
    open.maps.arrivals.set_max_entries(cpus)?;
    open.maps.peeks.set_max_entries(cpus)?;
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = names.iter().any(|n| program.name() == *n);
        program.set_autoload(wanted);
    }
    open.load()
}

//! Loading the programs of `cpus.bpf.c`.

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::skel::{CpusSkel, CpusSkelBuilder};
use crate::bpf_support::load::{cpu_parts, storage};

/// The programs that count faults and switches: the first counts both where both are wanted.
pub(super) const FAULTS: &str = "on_faults";
pub(super) const SWITCHES: &str = "on_switch";

/// Loads the programs of these names.
pub(super) fn load(names: &[&str]) -> libbpf_rs::Result<CpusSkel<'static>> {
    let cpus = cpu_parts().map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e)))? as u32;
    let both = names.contains(&FAULTS) && names.contains(&SWITCHES);
    let mut open = CpusSkelBuilder::default().open(storage())?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.cpus = cpus;
        rodata.faults_and_switches = both;
    }
    open.maps.events.set_max_entries(cpus)?;
    open.maps.arrivals.set_max_entries(cpus)?;
    open.maps.peeks.set_max_entries(cpus)?;
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name();
        let wanted = names.iter().any(|n| name == *n) && !(both && name == SWITCHES);
        program.set_autoload(wanted);
    }
    open.load()
}

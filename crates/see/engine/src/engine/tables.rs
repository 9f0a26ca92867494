//! The tables that the BPF programs write and user space reads in place.

use libbpf_rs::{MapCore, MapMut};

use super::layout::{
    Calls, CpuSlot, FirstSlot, IoRow, LengthSlot, Lengths, LockSlot, ProbeCounts, RequestSlot, TimeSlot,
};
use super::skel::EngineMaps;
use crate::bpf_support::{Error, Mapped, Plain, Result};

pub struct Tables {
    pub slots: Mapped<CpuSlot>,
    pub locks: Mapped<LockSlot>,
    pub other_locks: Mapped<LockSlot>,
    pub first_waits: Mapped<FirstSlot>,
    pub io_rows: Mapped<IoRow>,
    pub times: Mapped<TimeSlot>,
    pub requests: Mapped<RequestSlot>,
    pub lengths: Mapped<Lengths>,
    pub length_rows: Mapped<LengthSlot>,
    pub calls: Mapped<Calls>,
}

/// Maps a table of `len` values that are only read.
fn read_only<T: Plain>(map: &MapMut<'_>, len: usize, doing: &'static str) -> Result<Mapped<T>> {
    Mapped::new(map, len).map_err(|source| Error::Io { doing, source })
}

/// Maps a table whose rows are cleared when they have been read.
fn cleared<T: Plain>(map: &MapMut<'_>, doing: &'static str) -> Result<Mapped<T>> {
    Mapped::to_clear(map, map.max_entries() as usize).map_err(|source| Error::Io { doing, source })
}

impl Tables {
    /// Maps the tables of `cpus` CPUs.
    ///
    /// # Errors
    /// One of them cannot be mapped.
    pub fn map(maps: &EngineMaps<'_>, cpus: usize) -> Result<Tables> {
        Ok(Tables {
            slots: slots(maps, cpus)?,
            locks: cleared(&maps.lock_slots, "mapping the lock table")?,
            other_locks: cleared(&maps.other_slots, "mapping the lock table")?,
            first_waits: cleared(&maps.first_slots, "mapping the waits of first waiters")?,
            io_rows: cleared(&maps.io_rows, "mapping the requests to devices")?,
            times: cleared(&maps.time_slots, "mapping the time off CPU")?,
            requests: cleared(&maps.request_slots, "mapping the requests of clients")?,
            lengths: read_only(&maps.lengths, cpus, "mapping the counts of lengths")?,
            length_rows: cleared(&maps.length_slots, "mapping the counts of lengths")?,
            calls: read_only(&maps.sleep_calls, cpus, "mapping the times of calls")?,
        })
    }
}

/// The slots of the CPUs, for one reader more.
pub fn slots(maps: &EngineMaps<'_>, cpus: usize) -> Result<Mapped<CpuSlot>> {
    read_only(&maps.cpu_slots, cpus, "mapping the CPU slots")
}

/// How often each CPU ran a probe.
pub fn hits(maps: &EngineMaps<'_>, cpus: usize) -> Result<Mapped<ProbeCounts>> {
    read_only(&maps.probe_hits, cpus, "mapping the hits of probes")
}

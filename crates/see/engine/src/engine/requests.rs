//! Requests to block devices, as the BPF programs counted them.

use std::collections::HashMap;

use libbpf_rs::MapCore as _;

use super::layout::{IoRequest, IoRow};
use super::{Engine, layout, load};
use crate::bpf_support::namespace::{self, process_dir};
use crate::bpf_support::{Error, Mapped, Result};

/// ns; most devices are done with a request sooner.
const UNDER_WAY: u64 = 50_000_000;

/// Of `enum io_by` in engine.h.
const IO_BY_CALL: u16 = 0;
const IO_BY_AHEAD: u16 = 1;

/// Requests of one kind to one device, for one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Major and minor number of the device; 0 and 0 where it has none.
    pub device: (u32, u32),
    /// The process; 0 where it is not known, [`Requests::OTHERS`] for all those that there was no room for.
    pub tgid: u32,
    /// `REQ_OP_*` of include/linux/blk_types.h.
    pub operation: u8,
    /// Who asked: `enum io_by` of engine.h.
    pub by: u8,
    /// Requests that were done.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// ns in queues before the device was given them.
    pub queued: u64,
    /// ns in the device.
    pub time: u64,
    /// ns of the longest.
    pub max: u64,
}

/// Major and minor number of the device that the BPF programs call by a number.
pub(crate) fn device_of(code: u64) -> (u32, u32) {
    ((code >> 32) as u32, (code as u32) >> 1)
}

impl Requests {
    /// `IO_OTHER` of engine.h.
    pub const OTHERS: u32 = u32::MAX;

    fn of(row: &IoRow) -> Requests {
        Requests {
            device: device_of(row.device),
            tgid: row.tgid as u32,
            operation: (row.operation >> 8) as u8,
            by: row.operation as u8,
            count: row.count,
            bytes: row.bytes,
            queued: row.queued,
            time: row.time,
            max: row.max,
        }
    }
}

impl Engine {
    /// Takes the requests of one half of the table out of it.
    pub(super) fn requests(&mut self, half: usize) -> Vec<Requests> {
        let mut sums: HashMap<(u64, u64, u64), IoRow> = HashMap::new();
        // Half of the CPUs' rows, and half of those behind them.
        let parts = self.tables.io_rows.len() / (load::IO_ROWS + load::IO_OTHERS) / layout::HALVES;
        let (rows, others) = (parts * load::IO_ROWS, parts * load::IO_OTHERS);
        let behind = rows * layout::HALVES + half * others;
        for row in self.tables.io_rows.take((half * rows..(half + 1) * rows).chain(behind..behind + others)) {
            let sum = sums.entry((row.device, row.operation, row.tgid)).or_default();
            (sum.device, sum.operation, sum.tgid) = (row.device, row.operation, row.tgid);
            sum.count += row.count;
            sum.bytes += row.bytes;
            sum.queued += row.queued;
            sum.time += row.time;
            sum.max = sum.max.max(row.max);
        }
        sums.values().map(Requests::of).collect()
    }

    /// Requests of processes that are in the table though these have ended, which the kernel lets nobody do before they are done:
    /// their ends were not seen. Those of the last [`UNDER_WAY`] before `end`, ns, may be read-ahead that nobody waited for.
    pub(super) fn unseen_ends(&self, end: u64) -> Result<u64> {
        if namespace::is_own() {
            return Ok(0);
        }
        let io = |source| Error::Io { doing: "mapping the requests", source };
        let rows = self.skel.maps.io_requests.max_entries() as usize;
        let table: Mapped<IoRequest> = Mapped::new(&self.skel.maps.io_requests, rows).map_err(io)?;
        let unseen = (0..table.len()).filter(|row| table.first_word(*row) != 0).filter(|row| {
            let request = table.get(*row);
            let old = request.issued != 0 && request.issued + UNDER_WAY < end;
            let asked = matches!(request.by, IO_BY_CALL | IO_BY_AHEAD);
            old && asked && request.tgid != 0 && !process_dir(request.tgid).exists()
        });
        Ok(unseen.count() as u64)
    }

    /// Makes room for other processes with requests in flight: those that have ended have none.
    pub(super) fn forget_ended(&mut self) {
        if namespace::is_own() {
            return;
        }
        let Some(bss) = &mut self.skel.maps.bss_data else { return };
        let rows = bss.io_processes.iter_mut().zip(&mut bss.io_by_workers);
        for (process, by_workers) in rows.take(bss.io_used as usize) {
            if *process != 0 && !process_dir(*process).exists() {
                *by_workers = 0;
                *process = 0;
            }
        }
    }
}

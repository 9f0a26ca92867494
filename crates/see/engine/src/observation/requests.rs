//! Requests to block devices, with names.

use std::collections::HashMap;
use std::fs::read_link;

use ncpu_schema::{AskedBy, requests};
use ncpu_table::Table;

use super::bounds::{Names, OTHERS_NAME};
use crate::engine::Requests;

/// `REQ_OP_*` of include/linux/blk_types.h.
fn operation(number: u8) -> &'static str {
    match number {
        0 => "read",
        1 => "write",
        2 => "flush",
        3 => "discard",
        _ => "other",
    }
}

/// Names of devices by their numbers, looked up once each.
#[derive(Default)]
pub(super) struct Devices(HashMap<(u32, u32), String>);

impl Devices {
    pub fn name(&mut self, (major, minor): (u32, u32)) -> &str {
        self.0.entry((major, minor)).or_insert_with(|| {
            let link = read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
            let name = link.and_then(|l| Some(l.file_name()?.to_string_lossy().into_owned()));
            // One that was taken out has a number still.
            name.unwrap_or_else(|| format!("{major}:{minor}"))
        })
    }

    /// Table `requests`, of an interval.
    pub fn table(&mut self, t: f64, mut new: Vec<Requests>, processes: &Names) -> Table {
        new.sort_unstable_by_key(|r| (r.device, r.tgid, r.operation, r.by));
        let mut rows = requests::Rows::new();
        for r in new {
            let process = match r.tgid {
                0 => "[kernel]",
                Requests::OTHERS => OTHERS_NAME,
                tgid => processes.of(tgid).unwrap_or("[gone]"),
            };
            rows.push(requests::Row {
                time: Some(t),
                device: self.name(r.device).into(),
                process: process.into(),
                pid: (r.tgid != 0 && r.tgid != Requests::OTHERS).then(|| r.tgid.into()),
                operation: operation(r.operation).into(),
                by: AskedBy::ALL.get(usize::from(r.by)).copied(),
                count: Some(r.count),
                bytes: Some(r.bytes),
                queued: Some(r.queued as f64 / 1e9),
                seconds: Some(r.time as f64 / 1e9),
                max: Some(r.max as f64 / 1e3),
            });
        }
        rows.finish()
    }
}

//! Huge pages: what of a process lies on them, why the rest does not, and how more of it can.

pub mod collapse;
pub mod coverage;
pub mod foretell;
pub mod larger;
pub mod pools;
pub mod text;

use std::path::PathBuf;

use ncpu_files::reader::{Whose, proc_text};
use ncpu_machine::process;
use ncpu_table::{Column, Kind, Table, Unit};

use crate::{Error, Result};
use coverage::{Allowed, Coverage, Mapping};

/// A process as it was looked at.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
    /// Settings and limits for it.
    pub allowed: Allowed,
}

/// The longest text of smaps that is read: a million mappings.
const MAX_TEXT: usize = 1 << 30;

/// Looks at a process.
///
/// # Errors
/// It is gone, a zombie, a thread of the kernel, not ours to look at, or its figures do not come in time.
pub fn look(pid: u32) -> Result<Looked> {
    crate::place::balance::check(pid)?;
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let path = directory.join("smaps");
    // By the reader: another user may have the kernel wait for the lock of the mappings.
    let text = proc_text(&path, Whose::TARGET, MAX_TEXT).map_err(|e| match e.raw_os_error() {
        // It has ended since the check.
        Some(libc::ESRCH | libc::ENOENT) => Error::Refused(format!("process {pid} has ended")),
        _ => Error::file(&path, e),
    })?;
    let name = process::name(&directory).unwrap_or_default();
    let mut mappings = coverage::parse(&text);
    larger::look(pid, &mut mappings);
    Ok(Looked { pid, name, mappings, allowed: Allowed::read(pid) })
}

/// Coverage by process and object, the largest first.
pub fn objects_table(all: &[Looked]) -> Table {
    let bytes = |name: &str, meaning: &str| Column::int(name, Unit::Bytes, Kind::Gauge, meaning);
    let columns = [
        Column::id("pid", "the process"),
        Column::text("process", "its name"),
        Column::text("object", "heap, anonymous memory, stack, text, shm or other files"),
        bytes("resident", "bytes resident"),
        bytes("thp", "of them on 2 MiB pages that the kernel made"),
        bytes(
            "mthp",
            "on larger pages than the smallest that small entries map: mTHP, large folios; only root sees",
        ),
        bytes("pool", "on 2 MiB pages of a pool (hugetlbfs)"),
        bytes("giant", "on larger pages of a pool"),
        Column::float("huge", Unit::Percent, Kind::Gauge, "share on huge pages of any size"),
        bytes("could", "on small pages that could be put together"),
        Column::text("why", "what keeps most of the rest from huge pages"),
    ];
    let mut rows = Vec::new();
    for looked in all {
        for (object, coverage) in coverage::by_object(&looked.mappings, &looked.allowed) {
            rows.push((looked, object, coverage));
        }
    }
    rows.sort_by_key(|(l, _, c)| (std::cmp::Reverse(c.resident), l.pid));
    let mut table = Table::builder("objects", &columns);
    for (looked, object, c) in rows {
        table
            .row()
            .int(looked.pid.into())
            .text(&looked.name)
            .text(object.word())
            .int(c.resident)
            .int(c.thp)
            .int_opt(c.larger)
            .int(c.pool)
            .int(c.giant)
            .float(100.0 * c.share())
            .int(c.could)
            .text_opt(c.reason());
    }
    table.finish()
}

/// Coverage by mapping.
pub fn mappings_table(all: &[Looked]) -> Table {
    let bytes = |name: &str, meaning: &str| Column::int(name, Unit::Bytes, Kind::Gauge, meaning);
    let columns = [
        Column::id("pid", "the process"),
        Column::text("address", "first address"),
        bytes("size", "bytes mapped"),
        Column::text("object", "what it is part of"),
        Column::text("name", "file or name"),
        bytes("resident", "bytes resident"),
        bytes("thp", "of them on 2 MiB pages that the kernel made"),
        bytes(
            "mthp",
            "on larger pages than the smallest that small entries map: mTHP, large folios; only root sees",
        ),
        bytes("pool", "on pages of a pool"),
        bytes("page", "size of a page of the mapping, transparent huge pages left out"),
        Column::text("why", "why not all of it is on huge pages"),
    ];
    let mut table = Table::builder("mappings", &columns);
    for looked in all {
        for m in looked.mappings.iter().filter(|m| m.resident + m.pool > 0) {
            table
                .row()
                .int(looked.pid.into())
                .text(format!("{:x}", m.start))
                .int(m.end - m.start)
                .text(m.object().word())
                .text(&m.name)
                .int(m.resident)
                .int(m.thp)
                .int_opt(m.larger)
                .int(m.pool)
                .int(m.page)
                .text_opt(coverage::why(m, &looked.allowed));
        }
    }
    table.finish()
}

/// All of a process together.
pub fn whole(looked: &Looked) -> Coverage {
    let mut out = Coverage::default();
    looked.mappings.iter().for_each(|m| out.add(m, &looked.allowed));
    out
}

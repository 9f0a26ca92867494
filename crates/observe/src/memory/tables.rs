//! A snapshot as a table.

use ncpu_table::{Column, Kind, Table, Unit};

use super::Snapshot;

/// The columns of table `memory`.
pub fn columns() -> Vec<Column> {
    vec![
        Column::float("time", Unit::Seconds, Kind::Gauge, "when, from the first look"),
        Column::id("node", "NUMA node"),
        Column::text("class", "what the pages are for"),
        Column::count("pages", "pages"),
        Column::int("bytes", Unit::Bytes, Kind::Count, "the same in bytes"),
        Column::float("share", Unit::Percent, Kind::Share, "of the machine's pages"),
        Column::text("source", "bpf, kpageflags, or meminfo: an estimate"),
    ]
}

/// A row for each node and class, `time` seconds after the first look.
pub fn table(snapshot: &Snapshot, time: f64) -> Table {
    let all = snapshot.total().total().max(1) as f64;
    let mut rows = Table::builder("memory", &columns());
    for (node, counts) in &snapshot.nodes {
        for (class, pages) in counts.iter() {
            rows.row()
                .float(time)
                .int(u64::from(*node))
                .text(class.name())
                .int(pages)
                .int(pages.saturating_mul(snapshot.page_size))
                .float(100.0 * pages as f64 / all)
                .text(snapshot.source.word());
        }
    }
    rows.finish()
}

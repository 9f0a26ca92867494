//! A snapshot as a table.

use ncpu_schema::memory;
use ncpu_table::Table;

use super::Snapshot;

/// Table `memory`: a row for each node and class, `time` seconds after the first look.
pub fn table(snapshot: &Snapshot, time: f64) -> Table {
    let all = snapshot.total().total().max(1) as f64;
    let mut rows = memory::Rows::new();
    for (node, counts) in &snapshot.nodes {
        for (class, pages) in counts.iter() {
            rows.push(memory::Row {
                time: Some(time),
                node: Some(u64::from(*node)),
                class: class.name().into(),
                pages: Some(pages),
                bytes: Some(pages.saturating_mul(snapshot.page_size)),
                share: Some(100.0 * pages as f64 / all),
                source: snapshot.source.word().into(),
            });
        }
    }
    rows.finish()
}

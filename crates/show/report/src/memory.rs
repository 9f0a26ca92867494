//! Memory by class as Solaris' `::memstat` prints it, and by node.

use std::collections::BTreeMap;
use std::fmt::Write;

use ncpu_schema::{memory, pages};
use ncpu_table::{Column, Table, Type, Unit};

/// Bytes of an MB, as `::memstat` counts.
const MB: u64 = 1 << 20;

/// The classes of a table `memory` for one node, or for all together: pages and bytes by class.
type Classes<'t> = Vec<(&'t str, u64, u64)>;

fn classes<'t>(table: &memory::Reader<'t>, of: impl Fn(usize) -> bool) -> Classes<'t> {
    let mut classes: Classes = Vec::new();
    for row in table.rows() {
        let (Some(class), true) = (table.class.get(row), of(row)) else { continue };
        let pages = table.pages.get(row).unwrap_or(0);
        let bytes = table.bytes.get(row).unwrap_or(0);
        match classes.iter_mut().find(|c| c.0 == class) {
            Some(known) => {
                known.1 = known.1.saturating_add(pages);
                known.2 = known.2.saturating_add(bytes);
            }
            None => classes.push((class, pages, bytes)),
        }
    }
    classes
}

/// The summary: pages, MB and per cent of each class that has any, and the total.
pub fn memstat(table: &memory::Reader<'_>) -> String {
    let classes = classes(table, |_| true);
    let total = classes.iter().fold(0u64, |sum, c| sum.saturating_add(c.1));
    let mut out = String::new();
    let _ = writeln!(out, "{:<16} {:>16}  {:>16}  {:>4}", "Page Summary", "Pages", "MB", "%Tot");
    let _ = writeln!(out, "{:<16} {1}  {1}  {2}", "-".repeat(12), "-".repeat(16), "-".repeat(4));
    for (class, pages, bytes) in classes.iter().filter(|c| c.1 > 0) {
        let percent = (100.0 * *pages as f64 / total.max(1) as f64).round();
        let _ = writeln!(out, "{class:<16} {pages:>16}  {:>16}  {percent:>3}%", bytes / MB);
    }
    let bytes = classes.iter().fold(0u64, |sum, c| sum.saturating_add(c.2));
    let _ = writeln!(out, "{:<16} {total:>16}  {:>16}", "Total", bytes / MB);
    out
}

/// MB of each class on each node, as many nodes side by side as `width` allows; empty where there is
/// one node only.
pub fn nodes(table: &memory::Reader<'_>, width: usize) -> String {
    const NAME: usize = 14;
    const CELL: usize = 10;
    let mut nodes: BTreeMap<u64, Classes> = BTreeMap::new();
    for node in table.rows().filter_map(|row| table.node.get(row)) {
        nodes.entry(node).or_insert_with(|| classes(table, |row| table.node.get(row) == Some(node)));
    }
    let mut out = String::new();
    if nodes.len() < 2 {
        return out;
    }
    let shown: Vec<&str> =
        classes(table, |_| true).into_iter().filter(|c| c.1 > 0).map(|c| c.0).chain(["Total"]).collect();
    let numbers: Vec<_> = nodes.iter().collect();
    let each = (width.saturating_sub(NAME) / CELL).clamp(1, 16);
    for block in numbers.chunks(each) {
        let _ = write!(out, "\n{:<NAME$}", "MB");
        for (node, _) in block {
            let _ = write!(out, "{:>CELL$}", format!("node {node}"));
        }
        out.push('\n');
        for class in &shown {
            let _ = write!(out, "{class:<NAME$}");
            for (_, classes) in block {
                let bytes = classes
                    .iter()
                    .filter(|c| *class == "Total" || c.0 == *class)
                    .fold(0u64, |sum, c| sum.saturating_add(c.2));
                let _ = write!(out, "{:>CELL$}", bytes / MB);
            }
            out.push('\n');
        }
    }
    out
}

/// The table with its bytes in MB, for people.
pub fn in_mb(table: &Table) -> Table {
    let bytes = |c: &Column| c.ty == Type::Int && c.unit == Unit::Bytes;
    let columns: Vec<Column> = table
        .columns()
        .iter()
        .map(|c| match c.name.as_str() {
            _ if !bytes(c) => c.clone(),
            "bytes" => Column::float("MB", Unit::None, c.kind, &c.meaning),
            name => Column::float(&format!("{name} MB"), Unit::None, c.kind, &c.meaning),
        })
        .collect();
    let mut rows = Table::builder(table.name(), &columns);
    for at in 0..table.num_rows() {
        table.columns().iter().fold(rows.row(), |row, c| match c.ty {
            Type::Text => row.text_opt(table.text(at, &c.name)),
            Type::Int if bytes(c) => row.float_opt(table.number(at, &c.name).map(|n| n / MB as f64)),
            Type::Int => row.int_opt(table.int(at, &c.name)),
            Type::Float => row.float_opt(table.number(at, &c.name)),
        });
    }
    rows.finish()
}

/// Rows of table `pages`, whose widths do not change from one batch to the next.
pub fn pages(table: &pages::Reader<'_>, head: bool) -> String {
    let mut out = String::with_capacity(table.len() * 96);
    if head {
        let _ = writeln!(
            out,
            "{:>10} {:>4} {:<13} {:>8} {:>8} {:>9}  flags",
            "pfn", "node", "class", "mapcount", "refcount", "cgroup"
        );
    }
    let number = |cell: Option<u64>| cell.map_or("-".into(), |n| n.to_string());
    for row in table.rows() {
        let _ = writeln!(
            out,
            "{:>10} {:>4} {:<13} {:>8} {:>8} {:>9}  {}",
            number(table.pfn.get(row)),
            number(table.node.get(row)),
            table.class.get(row).unwrap_or("-"),
            number(table.mapcount.get(row)),
            number(table.refcount.get(row)),
            number(table.cgroup.get(row)),
            table.flags.get(row).unwrap_or("-")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use ncpu_table::Kind;

    use super::*;

    fn table(rows: &[(u64, &str, u64)]) -> Table {
        let mut table = memory::Rows::new();
        for &(node, class, pages) in rows {
            table.push(memory::Row {
                node: Some(node),
                class: class.into(),
                pages: Some(pages),
                bytes: Some(pages * 8192),
                ..Default::default()
            });
        }
        table.finish()
    }

    fn read(table: &Table) -> memory::Reader<'_> {
        memory::Reader::of(table).unwrap()
    }

    /// The table of the blog, "Wicked fast memstat", whose pages are of 8 KiB.
    #[test]
    fn the_solaris_example() {
        let t = table(&[
            (0, "Kernel", 428086),
            (0, "ZFS File Data", 25006),
            (0, "Anon", 13992767),
            (0, "Exec and libs", 652),
            (0, "Page cache", 24979),
            (0, "Nothing", 0),
            (0, "Free (cachelist)", 1809),
            (0, "Free (freelist)", 1979424),
        ]);
        assert_eq!(
            memstat(&read(&t)),
            "\
Page Summary                Pages                MB  %Tot
------------     ----------------  ----------------  ----
Kernel                     428086              3344    3%
ZFS File Data               25006               195    0%
Anon                     13992767            109318   85%
Exec and libs                 652                 5    0%
Page cache                  24979               195    0%
Free (cachelist)             1809                14    0%
Free (freelist)           1979424             15464   12%
Total                    16452723            128536
"
        );
        assert_eq!(nodes(&read(&t), 80), "");
    }

    #[test]
    fn nodes_side_by_side_as_fit() {
        let t = table(&[
            (0, "Kernel", 128),
            (0, "Free", 0),
            (1, "Kernel", 256),
            (1, "Free", 1280),
            (7, "Free", 128),
        ]);
        let text = nodes(&read(&t), 40);
        assert_eq!(
            text,
            "\nMB                node 0    node 1\n\
             Kernel                 1         2\n\
             Free                   0        10\n\
             Total                  1        12\n\
             \nMB                node 7\n\
             Kernel                 0\n\
             Free                   1\n\
             Total                  1\n"
        );
        assert!(nodes(&read(&t), 200).lines().count() == 5);
    }

    #[test]
    fn bytes_become_mb() {
        let mut b = Table::builder(
            "files",
            &[
                Column::text("file", ""),
                Column::id("inode", ""),
                Column::int("bytes", Unit::Bytes, Kind::Gauge, ""),
                Column::int("cache", Unit::Bytes, Kind::Gauge, ""),
            ],
        );
        b.row().text("/x").null().int(3 << 19).null();
        let t = in_mb(&b.finish());
        assert_eq!(
            (t.text(0, "file"), t.number(0, "MB"), t.number(0, "cache MB")),
            (Some("/x"), Some(1.5), None)
        );
        assert_eq!(t.int(0, "inode"), None);
    }

    #[test]
    fn no_rows_are_no_memory() {
        let t = table(&[]);
        assert!(memstat(&read(&t)).ends_with("Total                           0                 0\n"));
        assert_eq!(nodes(&read(&t), 80), "");
    }
}

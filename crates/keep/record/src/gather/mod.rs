//! A recording in memory that is still growing.

mod small;

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use ncpu_table::{Column, Table};

use crate::join::{like, with_schema};
use crate::manifest::is_table_name;
use crate::{Error, Manifest, Recording, Result};
use small::Small;

/// Pieces of a table that are kept apart: each has some hundred bytes for each column beside its rows.
const MOST_PIECES: usize = 64;

/// Gathers the tables of a live run as a [`Recording`], without using the disk. Rows of tables of the same
/// name are combined, columns by their names; a cell is null if its table lacks the column. However long the
/// run is, a table takes some megabytes: a larger one gets coarser times, then its smallest rows are summed
/// up, and a note says so.
#[derive(Debug)]
pub struct Gather {
    manifest: Manifest,
    parts: BTreeMap<String, Parts>,
}

#[derive(Debug)]
struct Parts {
    first: Table,
    batches: Vec<RecordBatch>,
    bytes: usize,
    small: Small,
}

impl Parts {
    /// Adds columns that the table did not have yet.
    fn widen(&mut self, columns: &[Column]) -> Result<()> {
        let before = self.table()?;
        let wide = |table: &Table| table.with_columns(columns).map_err(|e| Error::table(table.name(), e));
        self.first = wide(&self.first)?;
        self.batches = vec![with_schema(&wide(&before)?, &self.first.batch().schema())?];
        Ok(())
    }

    fn table(&self) -> Result<Table> {
        let name = self.first.name();
        let schema = self.first.batch().schema();
        Table::of_batches(name, &schema, &self.batches).map_err(|e| Error::table(name, e))
    }
}

impl Gather {
    /// Starts with no tables.
    pub fn new(manifest: Manifest) -> Gather {
        Gather { manifest, parts: BTreeMap::new() }
    }

    /// The manifest, to add notes to.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Adds a table's rows.
    ///
    /// # Errors
    /// The name is invalid for a recording's table, or a column has another type than before.
    pub fn append(&mut self, table: &Table) -> Result<()> {
        let name = table.name();
        if !self.parts.contains_key(name) {
            if !is_table_name(name) {
                return Err(Error::TableName(name.into()));
            }
            let small = Small::new(self.manifest.interval_s);
            // Without its rows, which are kept below.
            let first =
                Table::of_batches(name, &table.batch().schema(), &[]).map_err(|e| Error::table(name, e))?;
            self.parts.insert(name.into(), Parts { first, batches: Vec::new(), bytes: 0, small });
        }
        let Some(parts) = self.parts.get_mut(name) else { return Ok(()) };
        let table = &like(parts.first.columns(), table)?;
        if table.columns().len() > parts.first.columns().len() {
            parts.widen(table.columns())?;
        }
        parts.batches.push(with_schema(table, &parts.first.batch().schema())?);
        parts.bytes += table.bytes();
        let large = parts.bytes > parts.small.most();
        if large || parts.batches.len() > MOST_PIECES {
            let mut whole = parts.table()?;
            if large {
                whole = parts.small.fold(whole).map_err(|e| Error::table(name, e))?;
                parts.bytes = whole.bytes();
            }
            parts.batches = vec![with_schema(&whole, &parts.first.batch().schema())?];
        }
        Ok(())
    }

    /// The recording.
    ///
    /// # Errors
    /// A table grew beyond the limit of one Arrow array (2 GiB of text).
    pub fn finish(mut self) -> Result<Recording> {
        self.manifest.complete = true;
        self.manifest.notes.extend(self.parts.iter().filter_map(|(name, parts)| parts.small.note(name)));
        let tables = self.parts.into_iter().map(|(name, parts)| Ok((name, parts.table()?)));
        let tables = tables.collect::<Result<_>>()?;
        Ok(Recording { tables, ..Recording::new(self.manifest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_name_are_put_together() {
        let table = |name: &str, cpu: u64| {
            let mut b = Table::builder(name, &[Column::id("cpu", "CPU")]);
            b.row().int(cpu);
            b.finish()
        };
        let mut gather = Gather::new(Manifest::new(ncpu_schema::Purpose::Other, 2, vec![], 1.0));
        gather.append(&table("cpus", 0)).unwrap();
        gather.append(&table("other", 1).renamed("cpus")).unwrap();
        gather.append(&table("locks", 2)).unwrap();
        let wrong = Table::builder("cpus", &[Column::text("cpu", "CPU")]).finish();
        assert!(gather.append(&wrong).unwrap_err().to_string().contains("cpu (Int)"));
        assert!(gather.append(&table("../cpus", 1)).unwrap_err().to_string().contains("`../cpus`"));
        let recording = gather.finish().unwrap();
        assert_eq!(recording.tables["cpus"].num_rows(), 2);
        assert_eq!(recording.tables["cpus"].int(1, "cpu"), Some(1));
        assert_eq!(recording.tables.len(), 2);
    }

    /// A watch of an hour, of a table with a row in each interval.
    #[test]
    fn small_tables_take_little_more_than_their_rows() {
        let mut gather = Gather::new(Manifest::new(ncpu_schema::Purpose::Other, 2, vec![], 1.0));
        let columns = [Column::text("name", "a name"), Column::count("n", "a number")];
        for n in 0..3600 {
            let mut rows = Table::builder("few", &columns);
            rows.row().text("server").int(n);
            gather.append(&rows.finish()).unwrap();
        }
        let kept: usize = gather.parts["few"].batches.iter().map(RecordBatch::get_array_memory_size).sum();
        assert!(kept < 400 << 10, "{kept} bytes");
        assert_eq!(gather.finish().unwrap().tables["few"].num_rows(), 3600);
    }

    #[test]
    fn a_column_that_some_rows_lack_is_null_there() {
        let all = [Column::id("cpu", "CPU"), Column::count("a", "a"), Column::count("b", "b")];
        let rows = |names: &[&str], n: u64| {
            let mut b = Table::builder("cpus", &all);
            b.row().int(n).int(10 * n).int(100 * n);
            b.finish().project(names).unwrap()
        };
        let mut gather = Gather::new(Manifest::new(ncpu_schema::Purpose::Other, 2, vec![], 1.0));
        for (n, names) in (1..).zip([&["cpu", "a"][..], &["a", "cpu"], &["b", "a", "cpu"], &["cpu"]]) {
            gather.append(&rows(names, n)).unwrap();
        }
        let table = &gather.finish().unwrap().tables["cpus"];
        let column = |name: &str| (0..4).map(|row| table.int(row, name)).collect::<Vec<_>>();
        assert_eq!(column("cpu"), [1, 2, 3, 4].map(Some));
        assert_eq!(column("a"), [Some(10), Some(20), Some(30), None]);
        assert_eq!(column("b"), [None, None, Some(300), None]);
    }
}

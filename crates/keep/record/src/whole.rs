//! Tables about a whole recording, such as its length, combined from those of its intervals.

use std::collections::BTreeMap;

use ncpu_schema::{Tables, VERSION, drops, limits_met, memory_change, memory_events, pressure, summary};
use ncpu_table::Table;

use crate::{Error, Result};

/// Tables with a row for each key.
const SUMMED: [&str; 4] = [limits_met::NAME, memory_events::NAME, drops::NAME, pressure::NAME];

/// The places of memory are measured anew each time, and the last measurement stands.
const PLACES: &str = "numa_";

/// Such tables of consecutive intervals.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    tables: BTreeMap<String, Table>,
}

/// The interface for readers.
impl Tables for Whole {
    fn name(&self) -> &str {
        "these intervals"
    }

    fn schema(&self) -> u32 {
        VERSION
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }
}

impl Whole {
    /// Whether tables of this name are combined here; rows of others are concatenated.
    pub fn takes(name: &str) -> bool {
        name == summary::NAME
            || name == memory_change::NAME
            || SUMMED.contains(&name)
            || name.starts_with(PLACES)
    }

    /// Adds a table of the next interval.
    ///
    /// # Errors
    /// Its columns do not match the schema.
    pub fn add(&mut self, table: &Table) -> Result<()> {
        let name = table.name().to_owned();
        let failed = |e: &dyn std::fmt::Display| Error::table(&name, e.to_string());
        let both = match self.tables.get(&name).filter(|_| !name.starts_with(PLACES)) {
            None => table.clone(),
            Some(before) => {
                let table = table.with_columns(before.columns()).map_err(|e| failed(&e))?;
                let before = before.with_columns(table.columns()).map_err(|e| failed(&e))?;
                let batches = [before.batch().clone(), table.batch().clone()];
                Table::of_batches(&name, &before.batch().schema(), &batches).map_err(|e| failed(&e))?
            }
        };
        let both = match SUMMED.contains(&name.as_str()) {
            true => both.summed().map_err(|e| failed(&e))?,
            false => both,
        };
        self.tables.insert(name.clone(), both);
        let one = match name.as_str() {
            summary::NAME => self.summary().map_err(|e| failed(&e))?,
            memory_change::NAME => self.changes().map_err(|e| failed(&e))?,
            _ => return Ok(()),
        };
        self.tables.extend(one.map(|one| (name, one)));
        Ok(())
    }

    /// Whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// All tables.
    pub fn into_tables(self) -> impl Iterator<Item = Table> {
        self.tables.into_values()
    }

    /// Combines two summaries.
    fn summary(&self) -> std::result::Result<Option<Table>, ncpu_schema::Error> {
        let Some(all) = summary::Reader::open(self)? else { return Ok(None) };
        let most = |value: fn(&summary::Reader<'_>, usize) -> Option<u64>| {
            all.rows().filter_map(|row| value(&all, row)).max()
        };
        let last = all.rows().last();
        let mut rows = summary::Rows::new();
        rows.push(summary::Row {
            elapsed: Some(all.elapsed.sum()),
            user: last.and_then(|row| all.user.get(row)),
            system: last.and_then(|row| all.system.get(row)),
            cpus: most(|all, row| all.cpus.get(row)),
            steal: Some(all.steal.sum()),
            iowait: Some(all.iowait.sum()),
            hz: most(|all, row| all.hz.get(row)),
            status: last.and_then(|row| all.status.get(row)),
            max_rss: most(|all, row| all.max_rss.get(row)),
        });
        Ok(Some(rows.finish()))
    }

    /// For each class of memory: before the first interval, the maximum, and after the last.
    fn changes(&self) -> std::result::Result<Option<Table>, ncpu_schema::Error> {
        let Some(all) = memory_change::Reader::open(self)? else { return Ok(None) };
        let mut classes: Vec<(String, [Option<u64>; 3])> = Vec::new();
        for row in all.rows() {
            let Some(class) = all.class.get(row) else { continue };
            let [before, most, after] = [all.before.get(row), all.most.get(row), all.after.get(row)];
            match classes.iter_mut().find(|(name, _)| name == class) {
                Some((_, seen)) => *seen = [seen[0], seen[1].max(most), after],
                None => classes.push((class.into(), [before, most, after])),
            }
        }
        let mut rows = memory_change::Rows::new();
        for (class, [before, most, after]) in classes {
            rows.push(memory_change::Row { class: class.as_str().into(), before, most, after });
        }
        Ok(Some(rows.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(what: &str, count: u64) -> Table {
        let mut rows = drops::Rows::new();
        rows.push(drops::Row { what: what.into(), count: Some(count) });
        rows.finish()
    }

    #[test]
    fn tables_of_intervals_are_one() {
        let mut whole = Whole::default();
        for n in 1..=5 {
            let mut rows = summary::Rows::new();
            rows.push(summary::Row {
                elapsed: Some(1.5),
                user: None,
                system: None,
                cpus: Some(2 + n % 2),
                steal: Some(0.25),
                iowait: None,
                hz: Some(99),
                status: None,
                max_rss: None,
            });
            whole.add(&rows.finish()).unwrap();
            whole.add(&lost(if n < 4 { "samples" } else { "stacks" }, n)).unwrap();
            let mut rows = memory_change::Rows::new();
            let [before, most, after] = [n, 10 - n, n + 1].map(Some);
            rows.push(memory_change::Row { class: "AnonPages".into(), before, most, after });
            whole.add(&rows.finish()).unwrap();
        }
        let tables: BTreeMap<_, _> = whole.into_tables().map(|t| (t.name().to_owned(), t)).collect();
        let summary = &tables["summary"];
        assert_eq!(
            (summary.num_rows(), summary.number(0, "elapsed"), summary.int(0, "cpus")),
            (1, Some(7.5), Some(3))
        );
        assert_eq!(summary.number(0, "steal"), Some(1.25));
        let drops = &tables["drops"];
        assert_eq!((drops.num_rows(), drops.int(0, "count"), drops.int(1, "count")), (2, Some(6), Some(9)));
        let memory = &tables["memory_change"];
        assert_eq!(["before", "most", "after"].map(|c| memory.int(0, c)), [Some(1), Some(9), Some(6)]);
        assert!(Whole::takes("numa_cpu") && Whole::takes("drops") && !Whole::takes("locks"));
    }
}

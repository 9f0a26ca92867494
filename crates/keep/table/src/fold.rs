//! Fewer rows with the same sums: coarser times, and many small rows merged into one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, StringArray, UInt64Array};

use crate::{Kind, Result, Table, Type};

/// The key of a merged row.
pub const OTHERS: &str = "[others]";

impl Table {
    /// Merges rows with the same keys, as [`Table::group_by`] with all keys. The order of the columns is
    /// kept.
    ///
    /// # Errors
    /// The new table is invalid.
    pub fn summed(&self) -> Result<Table> {
        let keys: Vec<&str> =
            self.columns().iter().filter(|c| c.kind == Kind::Key).map(|c| c.name.as_str()).collect();
        let names: Vec<&str> = self.columns().iter().map(|c| c.name.as_str()).collect();
        self.group_by(&keys)?.project(&names)
    }

    /// Rounds times to steps: each row gets the last time of its step. Unchanged if the float column is
    /// missing.
    ///
    /// # Errors
    /// The new table is invalid.
    pub fn coarser(&self, column: &str, step: f64) -> Result<Table> {
        let Some((at, times)) = self.floats(column) else { return Ok(self.clone()) };
        let number = |t: f64| (t / step).ceil() as i64;
        let mut last: HashMap<i64, f64> = HashMap::new();
        for t in times.iter().flatten() {
            let last = last.entry(number(t)).or_insert(t);
            *last = last.max(t);
        }
        let coarse = times.iter().map(|t| t.and_then(|t| last.get(&number(t)).copied()));
        self.with_array(at, Arc::new(coarse.collect::<Float64Array>()))
    }

    /// Number of distinct values in a float column; 0 if it is missing.
    pub fn distinct(&self, column: &str) -> usize {
        let Some((_, values)) = self.floats(column) else { return 0 };
        let mut bits: Vec<u64> = values.iter().flatten().map(f64::to_bits).collect();
        bits.sort_unstable();
        bits.dedup();
        bits.len()
    }

    /// Keeps the `keep` rows with most time, or with the highest counts if there are no times. The other rows
    /// are merged by their keys outside `lost`. Their keys in `lost` become [`OTHERS`] in text columns and
    /// null in others.
    ///
    /// # Errors
    /// A column of `lost` is not in the table.
    pub fn folded(&self, lost: &[&str], keep: usize) -> Result<Table> {
        let lost = lost.iter().map(|c| self.index(c)).collect::<Result<Vec<_>>>()?;
        let sizes: Vec<&str> = [Kind::Time, Kind::Count]
            .iter()
            .map(|kind| self.columns().iter().filter(|c| c.kind == *kind).map(|c| c.name.as_str()).collect())
            .find(|names: &Vec<&str>| !names.is_empty())
            .unwrap_or_default();
        let size = |row: usize| sizes.iter().filter_map(|name| self.number(row, name)).sum::<f64>();
        let mut rows: Vec<(f64, usize)> = (0..self.num_rows()).map(|row| (size(row), row)).collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut small = vec![false; self.num_rows()];
        rows.iter().skip(keep).for_each(|&(_, row)| small[row] = true);
        let mut table = self.clone();
        for at in lost {
            let array = table.batch().column(at);
            let any = array.as_any();
            let new: ArrayRef = match self.columns()[at].ty {
                Type::Text => {
                    let Some(old) = any.downcast_ref::<StringArray>() else { continue };
                    Arc::new(
                        old.iter()
                            .zip(&small)
                            .map(|(v, &small)| if small { Some(OTHERS) } else { v })
                            .collect::<StringArray>(),
                    )
                }
                Type::Int => {
                    let Some(old) = any.downcast_ref::<UInt64Array>() else { continue };
                    Arc::new(
                        old.iter()
                            .zip(&small)
                            .map(|(v, &small)| v.filter(|_| !small))
                            .collect::<UInt64Array>(),
                    )
                }
                Type::Float => {
                    let Some(old) = any.downcast_ref::<Float64Array>() else { continue };
                    Arc::new(
                        old.iter()
                            .zip(&small)
                            .map(|(v, &small)| v.filter(|_| !small))
                            .collect::<Float64Array>(),
                    )
                }
            };
            table = table.with_array(at, new)?;
        }
        table.summed()
    }

    /// Bytes of the rows, close to their size in memory.
    pub fn bytes(&self) -> usize {
        self.batch().columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum()
    }

    fn floats(&self, column: &str) -> Option<(usize, &Float64Array)> {
        let at = self.index(column).ok()?;
        Some((at, self.batch().column(at).as_any().downcast_ref::<Float64Array>()?))
    }

    fn with_array(&self, at: usize, array: ArrayRef) -> Result<Table> {
        let mut arrays = self.batch().columns().to_vec();
        arrays[at] = array;
        Table::from_parts(self.name(), self.columns().to_vec(), arrays)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Column, Kind, Table, Unit};

    fn threads(rows: impl Iterator<Item = (f64, u64, &'static str, f64)>) -> Table {
        let mut b = Table::builder(
            "threads",
            &[
                Column::float("t", Unit::Seconds, Kind::Key, ""),
                Column::id("tid", ""),
                Column::text("process", ""),
                Column::float("cpu", Unit::Seconds, Kind::Time, ""),
                Column::text("note", ""),
                Column::int("max", Unit::Nanoseconds, Kind::Peak, ""),
            ],
        );
        for (t, tid, process, cpu) in rows {
            b.row().float(t).int(tid).text(process).float(cpu).null().int(tid);
        }
        b.finish()
    }

    fn sum(table: &Table) -> f64 {
        (0..table.num_rows()).filter_map(|r| table.number(r, "cpu")).sum()
    }

    #[test]
    fn times_in_steps_are_the_last_of_each() {
        // Steps of 2 s: 1.5 and 2.0 share one, 2.1 and 3.9 share the next.
        let t = threads([1.5, 2.0, 2.1, 3.9].map(|t| (t, 7, "a", 1.0)).into_iter());
        let coarse = t.coarser("t", 2.0).unwrap().summed().unwrap();
        assert_eq!(coarse.columns(), t.columns());
        let times: Vec<_> =
            (0..coarse.num_rows()).map(|r| (coarse.number(r, "t"), coarse.number(r, "cpu"))).collect();
        assert_eq!(times, [(Some(2.0), Some(2.0)), (Some(3.9), Some(2.0))]);
        assert_eq!(coarse.distinct("t"), 2);
        assert_eq!((t.coarser("cpus", 2.0).unwrap().num_rows(), t.distinct("cpus")), (4, 0));
    }

    #[test]
    fn small_rows_are_one_by_what_is_left_of_their_keys() {
        let rows = (0..1000).map(|i| (1.0, i, if i % 2 == 0 { "even" } else { "odd" }, i as f64));
        let t = threads(rows);
        let folded = t.folded(&["tid"], 10).unwrap();
        assert_eq!((folded.num_rows(), sum(&folded)), (12, sum(&t)));
        let kept: Vec<_> = (0..12).filter_map(|r| folded.int(r, "tid")).collect();
        assert_eq!(kept, (990..1000).collect::<Vec<_>>());
        let others = folded.folded(&["tid", "process"], 10).unwrap();
        assert_eq!((others.num_rows(), sum(&others)), (11, sum(&t)));
        let other = (0..11).find(|&r| others.text(r, "process") == Some(super::OTHERS)).unwrap();
        assert_eq!((others.int(other, "tid"), others.int(other, "max")), (None, Some(991)));
        assert!(t.folded(&["pid"], 1).is_err());
    }
}

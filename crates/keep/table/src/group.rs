//! Merges rows with the same key.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, StringArray, UInt64Array};
use arrow_schema::ArrowError;

use crate::{Column, Kind, Result, Table, Type};

impl Table {
    /// One row for each distinct combination of `keys`, in order of first appearance: counts and times are
    /// summed, peaks keep the largest value, gauges, shares and means are averaged over rows. Key columns
    /// outside `keys` are dropped.
    ///
    /// # Errors
    /// A key is not a column of the table.
    pub fn group_by(&self, keys: &[&str]) -> Result<Table> {
        let mut groups = Groups::new(self, keys)?;
        groups.add(self)?;
        groups.finish()
    }
}

/// [`Table::group_by`] over successive tables; only the groups are kept in memory.
pub struct Groups {
    name: String,
    /// Of the tables to add.
    columns: Vec<Column>,
    /// Indices of the key columns.
    keys: Vec<usize>,
    sums: Vec<usize>,
    /// Texts of keys, by their numbers.
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u64>,
    /// By key: the bits of its null words, then the words.
    places: HashMap<Box<[u64]>, usize>,
    /// The same words, group after group.
    words: Vec<u64>,
    /// Totals of the other columns, group after group.
    totals: Vec<Total>,
}

/// The total of a column in a group.
#[derive(Clone, Copy, Default)]
struct Total {
    /// The sum; for peaks the maximum.
    sum: f64,
    /// The same for integers, since [`f64`] is exact only up to 2^53.
    whole: u64,
    /// Rows with a value.
    rows: u64,
}

/// The values of a column.
enum Values<'a> {
    Text(&'a StringArray),
    Int(&'a UInt64Array),
    Float(&'a Float64Array),
}

impl<'a> Values<'a> {
    fn new(table: &'a Table, column: usize) -> Result<Values<'a>> {
        let array = table.batch().column(column).as_any();
        let text = array.downcast_ref().map(Values::Text);
        let int = || array.downcast_ref().map(Values::Int);
        let found = text.or_else(int).or_else(|| array.downcast_ref().map(Values::Float));
        found.ok_or_else(|| unlike(table.name()))
    }

    /// Adds a cell; a peak keeps the larger value.
    fn add(&self, row: usize, peak: bool, total: &mut Total) {
        let (value, whole) = match self {
            Values::Int(a) if a.is_valid(row) => (a.value(row) as f64, a.value(row)),
            Values::Float(a) if a.is_valid(row) => (a.value(row), 0),
            Values::Text(_) | Values::Int(_) | Values::Float(_) => return,
        };
        total.rows += 1;
        total.sum = if peak { total.sum.max(value) } else { total.sum + value };
        total.whole = if peak { total.whole.max(whole) } else { total.whole.saturating_add(whole) };
    }
}

fn unlike(table: &str) -> crate::Error {
    ArrowError::SchemaError(format!("tables `{table}` have different columns")).into()
}

impl Groups {
    /// Makes an empty set of groups for tables with the columns of `table`.
    ///
    /// # Errors
    /// A key is not a column of the table, or there are more than 64 keys.
    pub fn new(table: &Table, keys: &[&str]) -> Result<Groups> {
        let keys = keys.iter().map(|k| table.index(k)).collect::<Result<Vec<_>>>()?;
        if keys.len() > 64 {
            return Err(ArrowError::SchemaError("more than 64 keys".into()).into());
        }
        let columns = table.columns().to_vec();
        let sums = (0..columns.len()).filter(|&c| columns[c].kind != Kind::Key).collect();
        Ok(Groups {
            name: table.name().into(),
            columns,
            keys,
            sums,
            texts: Vec::new(),
            numbers: HashMap::new(),
            places: HashMap::new(),
            words: Vec::new(),
            totals: Vec::new(),
        })
    }

    /// Adds the rows of a table. Columns are matched by name; a missing column is null.
    ///
    /// # Errors
    /// The table has an additional column, or one with another type.
    pub fn add(&mut self, table: &Table) -> Result<()> {
        let table = &table.with_columns(&self.columns)?;
        if table.columns().len() != self.columns.len() {
            return Err(unlike(&self.name));
        }
        let values =
            |columns: &[usize]| columns.iter().map(|&c| Values::new(table, c)).collect::<Result<Vec<_>>>();
        let (keys, sums) = (values(&self.keys)?, values(&self.sums)?);
        let peak: Vec<bool> = self.sums.iter().map(|&c| self.columns[c].kind == Kind::Peak).collect();
        let mut key = vec![0; 1 + keys.len()];
        // Adjacent rows often have the same text.
        let mut last: Vec<Option<(&str, u64)>> = vec![None; keys.len()];
        for row in 0..table.num_rows() {
            key[0] = 0;
            for (at, values) in keys.iter().enumerate() {
                let word = match values {
                    Values::Text(a) if a.is_valid(row) => Some(match (a.value(row), last[at]) {
                        (text, Some((before, number))) if text == before => number,
                        (text, _) => {
                            let number = number(&mut self.numbers, &mut self.texts, text);
                            last[at] = Some((text, number));
                            number
                        }
                    }),
                    Values::Text(_) => None,
                    Values::Int(a) => a.is_valid(row).then(|| a.value(row)),
                    Values::Float(a) => a.is_valid(row).then(|| a.value(row).to_bits()),
                };
                key[0] |= u64::from(word.is_none()) << at;
                key[1 + at] = word.unwrap_or(0);
            }
            let place = match self.places.get(&key[..]) {
                Some(place) => *place,
                None => {
                    let place = self.places.len();
                    self.places.insert(key.clone().into(), place);
                    self.words.extend_from_slice(&key);
                    self.totals.extend(std::iter::repeat_n(Total::default(), sums.len()));
                    place
                }
            };
            let totals = &mut self.totals[place * sums.len()..];
            for ((total, values), peak) in totals.iter_mut().zip(&sums).zip(&peak) {
                values.add(row, *peak, total);
            }
        }
        Ok(())
    }

    /// The groups, in order of first appearance, with the keys first.
    ///
    /// # Errors
    /// The text exceeds an Arrow array (2 GiB).
    pub fn finish(self) -> Result<Table> {
        let width = 1 + self.keys.len();
        let mut columns = Vec::with_capacity(self.keys.len() + self.sums.len());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.capacity());
        for (at, &c) in self.keys.iter().enumerate() {
            let groups = self.words.chunks_exact(width);
            let words = groups.map(|key| (key[0] >> at & 1 == 0).then_some(key[1 + at]));
            arrays.push(match self.columns[c].ty {
                Type::Text => {
                    let text = |number: u64| self.texts.get(number as usize).map(|text| &**text);
                    Arc::new(words.map(|word| word.and_then(text)).collect::<StringArray>())
                }
                Type::Int => Arc::new(words.collect::<UInt64Array>()),
                Type::Float => Arc::new(words.map(|w| w.map(f64::from_bits)).collect::<Float64Array>()),
            });
            columns.push(self.columns[c].clone());
        }
        for (at, &c) in self.sums.iter().enumerate() {
            let column = &self.columns[c];
            let mean = matches!(column.kind, Kind::Gauge | Kind::Share | Kind::Mean);
            let totals = self.totals.iter().skip(at).step_by(self.sums.len());
            let totals = totals.map(|total| (total.rows > 0).then_some(total));
            let average = |total: &Total| total.sum / total.rows as f64;
            arrays.push(match (column.ty, mean) {
                (Type::Text, _) => Arc::new(totals.map(|_| None::<&str>).collect::<StringArray>()),
                (Type::Int, true) => {
                    Arc::new(totals.map(|t| t.map(|t| average(t).round() as u64)).collect::<UInt64Array>())
                }
                (Type::Int, false) => Arc::new(totals.map(|t| t.map(|t| t.whole)).collect::<UInt64Array>()),
                (Type::Float, true) => Arc::new(totals.map(|t| t.map(average)).collect::<Float64Array>()),
                (Type::Float, false) => Arc::new(totals.map(|t| t.map(|t| t.sum)).collect::<Float64Array>()),
            });
            columns.push(column.clone());
        }
        Table::from_parts(&self.name, columns, arrays)
    }
}

/// The number of a text; a new text gets the next number.
fn number(numbers: &mut HashMap<Box<str>, u64>, texts: &mut Vec<Box<str>>, text: &str) -> u64 {
    if let Some(number) = numbers.get(text) {
        return *number;
    }
    let number = texts.len() as u64;
    texts.push(text.into());
    numbers.insert(text.into(), number);
    number
}

#[cfg(test)]
mod tests {
    use super::Groups;
    use crate::{Column, Kind, Table, Unit};
    use proptest::prelude::*;

    #[test]
    fn sums_peaks_and_means() {
        let mut t = Table::builder(
            "locks",
            &[
                Column::text("lock", ""),
                Column::text("caller", ""),
                Column::count("count", ""),
                Column::int("max", Unit::Nanoseconds, Kind::Peak, ""),
                Column::float("mean", Unit::Nanoseconds, Kind::Mean, ""),
            ],
        );
        t.row().text("a").text("x").int(1).int(9).float(2.0);
        t.row().text("b").text("x").int(2).int(8).null();
        t.row().text("a").text("y").int(3).int(7).float(4.0);
        let g = t.finish().group_by(&["lock"]).unwrap();
        assert_eq!(g.num_rows(), 2);
        assert_eq!((g.int(0, "count"), g.int(0, "max"), g.number(0, "mean")), (Some(4), Some(9), Some(3.0)));
        assert_eq!(g.number(1, "mean"), None);
        assert!(g.index("caller").is_err());
    }

    #[test]
    fn tables_one_after_the_other_are_as_one() {
        let columns = [
            Column::text("name", ""),
            Column::id("cpu", ""),
            Column::float("t", Unit::Seconds, Kind::Key, ""),
            Column::float("share", Unit::None, Kind::Share, ""),
        ];
        let mut groups = None;
        for round in 0..3 {
            let mut t = Table::builder("x", &columns);
            t.row().text("a").int(1).float(0.5).float(f64::from(round));
            t.row().null().int(1).float(0.5).float(7.0);
            t.row().text("a").null().float(0.5).null();
            t.row().text(format!("only {round}")).int(1).null().float(1.0);
            let t = t.finish();
            let groups = match &mut groups {
                Some(groups) => groups,
                none => none.insert(Groups::new(&t, &["name", "cpu", "t"]).unwrap()),
            };
            groups.add(&t).unwrap();
            let more = [&columns[..], &[Column::text("more", "")]].concat();
            assert!(groups.add(&Table::builder("x", &more).finish()).is_err());
            assert!(groups.add(&Table::builder("x", &[Column::id("name", "")]).finish()).is_err());
        }
        let all = groups.unwrap().finish().unwrap();
        assert_eq!(all.num_rows(), 3 + 3);
        assert_eq!((all.text(0, "name"), all.number(0, "share")), (Some("a"), Some(1.0)));
        assert_eq!(
            (all.text(1, "name"), all.int(1, "cpu"), all.number(1, "share")),
            (None, Some(1), Some(7.0))
        );
        assert_eq!((all.int(2, "cpu"), all.number(2, "t"), all.number(2, "share")), (None, Some(0.5), None));
        assert_eq!((all.text(5, "name"), all.number(5, "t")), (Some("only 2"), None));
        assert_eq!(all.columns().len(), 4);
    }

    fn rows(of: &[(usize, u64, u64)]) -> Table {
        let columns = [
            Column::text("name", ""),
            Column::count("count", ""),
            Column::int("most", Unit::None, Kind::Peak, ""),
            Column::int("level", Unit::None, Kind::Gauge, ""),
        ];
        let mut out = Table::builder("x", &columns);
        for (name, count, most) in of {
            out.row().text(["a", "b", "c"][*name]).int(*count).int(*most).int(*most % 1000);
        }
        out.finish()
    }

    proptest! {
        /// In any order and number of tables, sums of integers are exact beyond the precision of an f64.
        #[test]
        fn sums_are_exact_and_merged_groups_are_those_of_all_rows(
            (all, mixed) in prop::collection::vec((0..3usize, 0..1u64 << 58, any::<u64>()), 1..40)
                .prop_flat_map(|v| (Just(v.clone()), Just(v).prop_shuffle())),
            cut in 0..40usize,
        ) {
            let sorted = |t: &Table| {
                let mut rows: Vec<_> = (0..t.num_rows())
                    .map(|r| (t.text(r, "name").map(str::to_owned), t.int(r, "count"), t.int(r, "most"), t.int(r, "level")))
                    .collect();
                rows.sort();
                rows
            };
            let grouped = rows(&all).group_by(&["name"]).unwrap();
            let sum = |of: &[Option<u64>]| of.iter().flatten().map(|n| u128::from(*n)).sum::<u128>();
            let counts: Vec<Option<u64>> = (0..grouped.num_rows()).map(|r| grouped.int(r, "count")).collect();
            prop_assert_eq!(sum(&counts), all.iter().map(|row| u128::from(row.1)).sum::<u128>());
            for r in 0..grouped.num_rows() {
                let own = all.iter().filter(|row| Some(["a", "b", "c"][row.0]) == grouped.text(r, "name"));
                let own: Vec<_> = own.collect();
                prop_assert_eq!(grouped.int(r, "most"), own.iter().map(|row| row.2).max());
                let mean = own.iter().map(|row| row.2 % 1000).sum::<u64>() as f64 / own.len() as f64;
                prop_assert_eq!(grouped.int(r, "level"), Some(mean.round() as u64));
            }
            prop_assert_eq!(sorted(&rows(&mixed).group_by(&["name"]).unwrap()), sorted(&grouped));
            let (first, second) = mixed.split_at(cut.min(mixed.len()));
            let mut groups = Groups::new(&rows(first), &["name"]).unwrap();
            groups.add(&rows(first)).unwrap();
            groups.add(&rows(second)).unwrap();
            prop_assert_eq!(sorted(&groups.finish().unwrap()), sorted(&grouped));
        }
    }

    #[test]
    fn columns_are_matched_by_name() {
        let columns = [Column::count("count", ""), Column::text("name", ""), Column::count("waits", "")];
        let mut first = Table::builder("x", &columns);
        first.row().int(1).text("a").int(10);
        let first = first.finish();
        let mut groups = Groups::new(&first, &["name"]).unwrap();
        groups.add(&first).unwrap();
        groups.add(&first.project(&["name", "waits", "count"]).unwrap()).unwrap();
        groups.add(&first.project(&["name", "count"]).unwrap()).unwrap();
        let all = groups.finish().unwrap();
        assert_eq!((all.num_rows(), all.int(0, "count"), all.int(0, "waits")), (1, Some(3), Some(20)));
    }
}

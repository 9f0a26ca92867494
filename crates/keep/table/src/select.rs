//! `-k`, `-A`, `-m` and `--top`: sort, quantile bands, means, the first rows.
//!
//! The semantics are those of Solaris 11.1 `mpstat -k intr -A 4 -m 10 5`: rows are sorted by a metric,
//! highest first, and divided into N bands of equal size. Each band becomes one row with sums of counts and
//! times (or, with `-m`, means). Shares and gauges are always averaged.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, StringArray, UInt64Array};

use crate::{Cell, Column, Error, Kind, Result, Table, Type, Unit, objects};

/// The column and direction of a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The column's name.
    pub column: String,
    /// Lowest first [default: numbers highest first, text ascending].
    pub ascending: bool,
    /// Text in descending order.
    pub backwards: bool,
}

impl FromStr for SortKey {
    type Err = std::convert::Infallible;

    /// `COLUMN`, `COLUMN:asc`, or `COLUMN:desc`, which sorts text in descending order.
    fn from_str(s: &str) -> Result<SortKey, Self::Err> {
        let (column, ascending, backwards) = match (s.strip_suffix(":asc"), s.strip_suffix(":desc")) {
            (Some(column), _) => (column, true, false),
            (_, Some(column)) => (column, false, true),
            _ => (s, false, false),
        };
        Ok(SortKey { column: column.into(), ascending, backwards })
    }
}

/// The user's selection from a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// `-k COLUMN`.
    pub sort: Option<SortKey>,
    /// `-A N`: quantile bands.
    pub bands: Option<usize>,
    /// `-m`: each band's row holds means instead of sums.
    pub mean: bool,
    /// `--top N`: only the first N rows.
    pub top: Option<usize>,
}

impl Select {
    /// Checks before any table exists that a table of these columns can be sorted this way.
    ///
    /// # Errors
    /// The sort column is missing, or a number is 0.
    pub fn check(&self, columns: &[Column], table: &str) -> Result<()> {
        self.apply(Table::builder(table, columns).finish()).map(|_| ())
    }

    /// Sorts, forms bands and limits the rows.
    ///
    /// # Errors
    /// An unknown column, bands without a sort column, `-m` without bands, or zero bands or rows.
    pub fn apply(&self, table: Table) -> Result<Table> {
        if self.bands == Some(0) {
            return Err(Error::Zero("-A"));
        }
        if self.top == Some(0) {
            return Err(Error::Zero("--top"));
        }
        let table = match &self.sort {
            Some(key) => sort(&table, key)?,
            None => table,
        };
        let table = match (self.bands, &self.sort) {
            (Some(n), None) => return Err(Error::BandsWithoutSort(n)),
            (Some(n), Some(_)) => bands(&table, n, self.mean)?,
            (None, _) if self.mean => return Err(Error::MeanWithoutBands),
            (None, _) => table,
        };
        Ok(match self.top {
            Some(n) if n < table.num_rows() => Table::from_batch(table.name(), table.batch().slice(0, n))?,
            _ => table,
        })
    }
}

fn sort(table: &Table, key: &SortKey) -> Result<Table> {
    let at = table.index(&key.column)?;
    let descending = key.backwards || (!key.ascending && table.columns()[at].ty != Type::Text);
    let mut rows: Vec<usize> = (0..table.num_rows()).collect();
    // A stable sort: equal rows keep their order.
    rows.sort_by(|&a, &b| {
        let (a, b) = (table.cell(a, at), table.cell(b, at));
        let order = match (a, b) {
            // Unknown values are last in both directions.
            (Cell::Null, _) | (_, Cell::Null) => return (a == Cell::Null).cmp(&(b == Cell::Null)),
            (Cell::Int(a), Cell::Int(b)) => a.cmp(&b),
            (Cell::Float(a), Cell::Float(b)) => a.total_cmp(&b),
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            // A column has one type.
            _ => Ordering::Equal,
        };
        if descending { order.reverse() } else { order }
    });
    table.rows(&rows)
}

/// The rows of band `i` of `n`, from `rows × i / n` on: band sizes differ by at most one.
fn band_range(rows: usize, n: usize, i: usize) -> std::ops::Range<usize> {
    rows * i / n..rows * (i + 1) / n
}

fn bands(table: &Table, n: usize, mean: bool) -> Result<Table> {
    let n = n.min(table.num_rows().max(1));
    let ranges: Vec<Vec<usize>> = (0..n).map(|i| band_range(table.num_rows(), n, i).collect()).collect();
    let label = Column::text("band", "number of the band among the sorted rows, and the number of bands");
    let labels = StringArray::from_iter_values((1..=n).map(|i| format!("{i}/{n}")));
    merge(table, (label, Arc::new(labels)), &ranges, mean)
}

impl Table {
    /// The rows whose cells contain all these words, ignoring case.
    ///
    /// # Errors
    /// Arrow rejects the columns.
    pub fn with_words(&self, words: &str) -> Result<Table> {
        let words = words.to_lowercase();
        let words: Vec<&str> = words.split_whitespace().collect();
        let text = |row| {
            let cells = (0..self.columns().len()).map(|at| match self.cell(row, at) {
                Cell::Null => String::new(),
                Cell::Int(n) => n.to_string(),
                Cell::Float(x) => x.to_string(),
                Cell::Text(text) if self.columns()[at].unit == Unit::Objects => {
                    objects::words(text).to_lowercase()
                }
                Cell::Text(text) => text.to_lowercase(),
            });
            cells.collect::<Vec<_>>().join(" ")
        };
        let has_all = |row: &usize| {
            let text = text(*row);
            words.iter().all(|word| text.contains(word))
        };
        self.rows(&(0..self.num_rows()).filter(has_all).collect::<Vec<_>>())
    }

    /// One row for each value of `key`, in order of the values. Rows with the same value are merged as in a
    /// band of `-A`: sums of counts and times (or, with `mean`, means); shares and gauges are always
    /// averaged. Rows for which `value_of` returns `None` are merged into a last row without a value.
    ///
    /// # Errors
    /// Arrow rejects the columns.
    pub fn merge_by(
        &self,
        key: Column,
        value_of: impl Fn(usize) -> Option<u64>,
        mean: bool,
    ) -> Result<Table> {
        let mut groups: BTreeMap<(bool, Option<u64>), Vec<usize>> = BTreeMap::new();
        for row in 0..self.num_rows() {
            let value = value_of(row);
            groups.entry((value.is_none(), value)).or_default().push(row);
        }
        let keys = UInt64Array::from_iter(groups.keys().map(|(_, value)| *value));
        merge(self, (key, Arc::new(keys)), &groups.into_values().collect::<Vec<_>>(), mean)
    }
}

/// A row for each group of rows, named by `label`.
fn merge(table: &Table, label: (Column, ArrayRef), groups: &[Vec<usize>], mean: bool) -> Result<Table> {
    let mut columns = vec![label.0, Column::int("rows", Unit::None, Kind::Gauge, "number of merged rows")];
    let mut arrays: Vec<ArrayRef> =
        vec![label.1, Arc::new(UInt64Array::from_iter_values(groups.iter().map(|r| r.len() as u64)))];
    for (i, column) in table.columns().iter().enumerate() {
        let array = table.batch().column(i);
        match (column.kind, column.ty) {
            // The name of merged rows is the set of their names.
            (Kind::Key, Type::Int) => {
                let ids = array.as_any().downcast_ref::<UInt64Array>().expect("type checked");
                columns.push(Column::text(&column.name, &column.meaning));
                arrays.push(Arc::new(StringArray::from_iter_values(
                    groups
                        .iter()
                        .map(|r| id_set(r.iter().filter(|&&j| ids.is_valid(j)).map(|&j| ids.value(j)))),
                )));
            }
            (_, Type::Text) => {
                let names = array.as_any().downcast_ref::<StringArray>().expect("type checked");
                columns.push(column.clone());
                arrays.push(Arc::new(StringArray::from_iter_values(groups.iter().map(|r| {
                    let mut set: Vec<&str> =
                        r.iter().filter(|&&j| names.is_valid(j)).map(|&j| names.value(j)).collect();
                    set.sort_unstable();
                    set.dedup();
                    // A full list of names would be longer than any line.
                    match set[..] {
                        [] => String::new(),
                        [one] => one.to_string(),
                        _ => format!("{} different", set.len()),
                    }
                }))));
            }
            (kind, ty) => {
                let value = |j: usize| -> Option<f64> {
                    if array.is_null(j) {
                        None
                    } else if ty == Type::Int {
                        array.as_any().downcast_ref::<UInt64Array>().map(|a| a.value(j) as f64)
                    } else {
                        array.as_any().downcast_ref::<Float64Array>().map(|a| a.value(j))
                    }
                };
                let means = mean || matches!(kind, Kind::Gauge | Kind::Share | Kind::Mean | Kind::Key);
                columns.push(Column { ty: Type::Float, ..column.clone() });
                arrays.push(Arc::new(Float64Array::from_iter(groups.iter().map(|r| {
                    let known: Vec<f64> = r.iter().copied().filter_map(value).collect();
                    let sum: f64 = known.iter().sum();
                    match known.len() {
                        0 => None,
                        _ if kind == Kind::Peak => known.iter().copied().reduce(f64::max),
                        k if means => Some(sum / k as f64),
                        _ => Some(sum),
                    }
                }))));
            }
        }
    }
    Table::from_parts(table.name(), columns, arrays)
}

/// `0-3,8`: a set of numbers in the kernel's list format.
fn id_set(ids: impl Iterator<Item = u64>) -> String {
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let mut out = String::new();
    let mut i = 0;
    while i < ids.len() {
        let mut j = i;
        while j + 1 < ids.len() && ids[j + 1] == ids[j] + 1 {
            j += 1;
        }
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&ids[i].to_string());
        if j > i {
            out.push('-');
            out.push_str(&ids[j].to_string());
        }
        i = j + 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(intr: &[u64]) -> Table {
        let mut b = Table::builder(
            "cpus",
            &[
                Column::id("CPU", "CPU number"),
                Column::int("intr", Unit::PerSecond, Kind::Count, "interrupts"),
                Column::float("usr", Unit::Percent, Kind::Share, "user time"),
            ],
        );
        for (cpu, &n) in intr.iter().enumerate() {
            b.row().int(cpu as u64).int(n).float(n as f64 / 10.0);
        }
        b.finish()
    }

    fn select(k: &str, bands: Option<usize>, mean: bool, top: Option<usize>) -> Select {
        Select { sort: Some(k.parse().unwrap()), bands, mean, top }
    }

    #[test]
    fn sorts_highest_first_and_keeps_ties_in_order() {
        let t = select("intr", None, false, None).apply(cpus(&[5, 9, 5, 1])).unwrap();
        let order: Vec<_> = (0..4).map(|r| t.int(r, "CPU").unwrap()).collect();
        assert_eq!(order, [1, 0, 2, 3]);
        let t = select("intr:asc", None, false, Some(1)).apply(cpus(&[5, 9, 5, 1])).unwrap();
        assert_eq!((t.num_rows(), t.int(0, "CPU")), (1, Some(3)));
    }

    #[test]
    fn words_are_found_in_any_column_and_go_backwards_where_asked() {
        let mut b = Table::builder(
            "locks",
            &[Column::text("lock", ""), Column::float("spin", Unit::Seconds, Kind::Time, "")],
        );
        for (lock, spin) in [("b_mutex", Some(0.25)), ("a_Mutex", None), ("c", Some(1.0))] {
            b.row().text(lock).float_opt(spin);
        }
        let table = b.finish();
        let found = |words: &str| -> Vec<String> {
            let table = table.with_words(words).unwrap();
            (0..table.num_rows()).map(|row| table.text(row, "lock").unwrap().into()).collect()
        };
        assert_eq!(found("mutex"), ["b_mutex", "a_Mutex"]);
        assert_eq!(found("  MUTEX 0.2 "), ["b_mutex"]);
        assert_eq!((found("1"), found("").len(), found("x y").len()), (vec!["c".into()], 3, 0));
        let order = |k: &str| -> Vec<String> {
            let table = select(k, None, false, None).apply(table.clone()).unwrap();
            (0..3).map(|row| table.text(row, "lock").unwrap().into()).collect()
        };
        assert_eq!(order("lock"), ["a_Mutex", "b_mutex", "c"]);
        assert_eq!(order("lock:desc"), ["c", "b_mutex", "a_Mutex"]);
        assert_eq!(order("spin:desc"), ["c", "b_mutex", "a_Mutex"], "what is not known is last");
    }

    #[test]
    fn quartiles_as_the_solaris_mpstat_example() {
        let t = select("intr", Some(4), true, None).apply(cpus(&[10, 80, 20, 70, 30, 60, 40, 50])).unwrap();
        assert_eq!(t.num_rows(), 4);
        assert_eq!(t.text(0, "CPU"), Some("1,3"));
        assert_eq!(t.number(0, "intr"), Some(75.0));
        assert_eq!(t.number(3, "intr"), Some(15.0));
        let sums =
            select("intr", Some(4), false, None).apply(cpus(&[10, 80, 20, 70, 30, 60, 40, 50])).unwrap();
        assert_eq!(sums.number(0, "intr"), Some(150.0));
        assert_eq!(sums.number(0, "usr"), Some(7.5), "a percentage is never summed");
    }

    #[test]
    fn grouped_by_what_the_caller_knows_of_a_row() {
        let core = |row| if row == 4 { None } else { Some(row as u64 % 2) };
        let t = cpus(&[10, 20, 30, 40, 50]).merge_by(Column::id("core", "core"), core, false).unwrap();
        assert_eq!(t.num_rows(), 3);
        assert_eq!(
            (t.int(0, "core"), t.text(0, "CPU"), t.number(0, "intr")),
            (Some(0), Some("0,2"), Some(40.0))
        );
        assert_eq!((t.int(2, "core"), t.int(2, "rows")), (None, Some(1)));
        let t = cpus(&[10, 30]).merge_by(Column::id("core", "core"), |_| Some(7), true).unwrap();
        assert_eq!((t.number(0, "intr"), t.number(0, "usr")), (Some(20.0), Some(2.0)));
    }

    #[test]
    fn mistakes_are_told() {
        let e = select("inter", None, false, None).apply(cpus(&[1])).unwrap_err();
        assert_eq!(e.to_string(), "table `cpus` has no column `inter`; its columns are CPU, intr, usr");
        let no_sort = Select { bands: Some(4), ..Select::default() };
        assert!(no_sort.apply(cpus(&[1])).unwrap_err().to_string().contains("-k COLUMN"));
        assert!(select("intr", None, true, None).apply(cpus(&[1])).is_err());
        assert!(select("intr", Some(0), true, None).apply(cpus(&[1])).is_err());
    }

    #[test]
    fn sets_read_as_the_kernel_writes_them() {
        assert_eq!(id_set([3, 1, 2, 8, 0].into_iter()), "0-3,8");
        assert_eq!(id_set(std::iter::empty()), "");
    }

    proptest! {
        #[test]
        fn bands_lose_no_row_and_no_event(intr in prop::collection::vec(0u64..1_000_000, 0..200), n in 1usize..20) {
            let total: u64 = intr.iter().sum();
            let rows = intr.len();
            let t = select("intr", Some(n), false, None).apply(cpus(&intr)).unwrap();
            let sum: f64 = (0..t.num_rows()).filter_map(|r| t.number(r, "intr")).sum();
            let counted: u64 = (0..t.num_rows()).map(|r| t.int(r, "rows").unwrap()).sum();
            prop_assert_eq!(sum, total as f64);
            prop_assert_eq!(counted, rows as u64);
        }
    }
}

//! Rows of the same key put together.

use std::collections::HashMap;

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};

use crate::{Kind, Result, Table, Type};

impl Table {
    /// One row for each distinct combination of `keys`, in order of first appearance: counts and
    /// times are summed, peaks keep the largest, gauges, shares and means are averaged over rows.
    /// Columns that are keys but not in `keys` are dropped.
    ///
    /// # Errors
    /// A key is no column of the table.
    pub fn group_by(&self, keys: &[&str]) -> Result<Table> {
        let key_at = keys.iter().map(|k| self.index(k)).collect::<Result<Vec<_>>>()?;
        let sums: Vec<usize> =
            (0..self.columns().len()).filter(|&c| self.columns()[c].kind != Kind::Key).collect();
        let mut place: HashMap<Vec<Option<String>>, usize> = HashMap::new();
        let mut order: Vec<usize> = Vec::new();
        let mut totals: Vec<Vec<(f64, usize)>> = Vec::new();
        for row in 0..self.num_rows() {
            let key = key_at.iter().map(|&c| self.cell_text(row, c)).collect();
            let at = *place.entry(key).or_insert_with(|| {
                order.push(row);
                totals.push(vec![(0.0, 0); sums.len()]);
                order.len() - 1
            });
            for (total, &c) in totals[at].iter_mut().zip(&sums) {
                let Some(v) = self.number(row, &self.columns()[c].name) else { continue };
                total.0 = if self.columns()[c].kind == Kind::Peak { total.0.max(v) } else { total.0 + v };
                total.1 += 1;
            }
        }
        let columns: Vec<_> = key_at.iter().chain(&sums).map(|&c| self.columns()[c].clone()).collect();
        let mut out = Table::builder(self.name(), &columns);
        for (first, totals) in order.into_iter().zip(totals) {
            let mut row = out.row();
            for &c in &key_at {
                row = match self.columns()[c].ty {
                    Type::Text => row.text_opt(self.text(first, &self.columns()[c].name)),
                    Type::Int => row.int_opt(self.int(first, &self.columns()[c].name)),
                    Type::Float => row.float_opt(self.number(first, &self.columns()[c].name)),
                };
            }
            for ((sum, n), &c) in totals.into_iter().zip(&sums) {
                let column = &self.columns()[c];
                let mean = matches!(column.kind, Kind::Gauge | Kind::Share | Kind::Mean);
                let value = if mean && n > 0 { sum / n as f64 } else { sum };
                row = match (n, column.ty) {
                    (0, _) | (_, Type::Text) => row.null(),
                    (_, Type::Int) => row.int(value.round() as u64),
                    (_, Type::Float) => row.float(value),
                };
            }
        }
        Ok(out.finish())
    }

    fn cell_text(&self, row: usize, column: usize) -> Option<String> {
        let array = self.batch().column(column);
        if array.is_null(row) {
            return None;
        }
        let any = array.as_any();
        if let Some(a) = any.downcast_ref::<StringArray>() {
            return Some(a.value(row).to_string());
        }
        if let Some(a) = any.downcast_ref::<UInt64Array>() {
            return Some(a.value(row).to_string());
        }
        any.downcast_ref::<Float64Array>().map(|a| a.value(row).to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Column, Kind, Table, Unit};

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
}

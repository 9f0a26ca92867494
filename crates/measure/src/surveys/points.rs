//! Figures that have a place in a grid: as a row each, and as people read them.

use ncpu_table::{Column, Kind, Table, Unit};

/// A value in the key of a row or column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Text(String),
    Int(u64),
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Point {
    /// The key of its row.
    pub keys: Vec<Key>,
    /// The key of its column.
    pub across: Key,
    /// `None` where it was not measured.
    pub value: Option<f64>,
    /// Half of its 95 % confidence interval, per cent, where it is known.
    pub error: Option<f64>,
    /// A caveat, or the reason for a missing figure.
    pub notes: String,
}

/// The figures of a grid.
pub struct Grid<'a> {
    /// The table's name.
    pub name: &'a str,
    /// Columns that name a row.
    pub keys: &'a [Column],
    /// The column that becomes the columns of the wide form.
    pub across: Column,
    /// The figure.
    pub figure: Column,
    /// The wide form shows the figure times this.
    pub scale: f64,
    /// The title of the wide form.
    pub title: &'a str,
}

impl Grid<'_> {
    /// A row for each figure.
    pub fn long(&self, points: &[Point]) -> Table {
        let mut columns = self.keys.to_vec();
        columns.extend([
            self.across.clone(),
            self.figure.clone(),
            Column::float(
                "+-",
                Unit::Percent,
                Kind::Share,
                "half of its 95 % confidence interval, as a share of it",
            ),
            Column::text("notes", "what to beware of; why there is none"),
        ]);
        let mut out = Table::builder(self.name, &columns);
        for point in points {
            let mut row = out.row();
            for key in point.keys.iter().chain([&point.across]) {
                row = match key {
                    Key::Text(t) => row.text(t),
                    Key::Int(n) => row.int(*n),
                };
            }
            row.float_opt(point.value).float_opt(point.error).text(&point.notes);
        }
        out.finish()
    }

    /// A row for each combination of keys and a column for each name across, both in their order of coming.
    pub fn wide(&self, points: &[Point]) -> (String, Table) {
        let mut rows: Vec<&[Key]> = Vec::new();
        let mut across: Vec<&Key> = Vec::new();
        for point in points {
            if !rows.contains(&point.keys.as_slice()) {
                rows.push(&point.keys);
            }
            if !across.contains(&&point.across) {
                across.push(&point.across);
            }
        }
        let mut columns = self.keys.to_vec();
        columns.extend(across.iter().map(|name| {
            let name = match name {
                Key::Text(t) => t.clone(),
                Key::Int(n) => n.to_string(),
            };
            Column::float(&name, Unit::None, Kind::Gauge, self.title)
        }));
        let mut out = Table::builder(self.name, &columns);
        for keys in rows {
            let mut row = out.row();
            for key in keys {
                row = match key {
                    Key::Text(t) => row.text(t),
                    Key::Int(n) => row.int(*n),
                };
            }
            for name in &across {
                let point = points.iter().find(|p| p.keys == keys && p.across == **name);
                row = row.float_opt(point.and_then(|p| p.value).map(|v| v * self.scale));
            }
        }
        (self.title.to_string(), out.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_every_figure() {
        let grid = Grid {
            name: "test",
            keys: &[Column::id("from", "row")],
            across: Column::id("to", "column"),
            figure: Column::float("latency", Unit::Nanoseconds, Kind::Gauge, "it"),
            scale: 0.5,
            title: "halves",
        };
        let point = |from, to, value| Point {
            keys: vec![Key::Int(from)],
            across: Key::Int(to),
            value,
            error: None,
            notes: String::new(),
        };
        let points = [point(0, 1, Some(10.0)), point(1, 0, Some(20.0)), point(1, 1, None)];
        let long = grid.long(&points);
        assert_eq!((long.num_rows(), long.number(1, "latency")), (3, Some(20.0)));
        let (title, wide) = grid.wide(&points);
        assert_eq!((title.as_str(), wide.num_rows()), ("halves", 2));
        assert_eq!((wide.number(0, "1"), wide.number(0, "0")), (Some(5.0), None));
        assert_eq!((wide.number(1, "0"), wide.number(1, "1")), (Some(10.0), None));
    }
}

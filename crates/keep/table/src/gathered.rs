//! Columns whose type is inferred from their cells, for comma-separated values and JSON.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray, UInt64Array};

/// A column that grows cell by cell, each with the text of the file. Its type is unsigned integer if all
/// cells are, else float if all cells are numbers, else text, in which `007` stays `007`.
#[derive(Default)]
pub(crate) struct Gathered {
    cells: Vec<Option<String>>,
    quoted: bool,
}

impl Gathered {
    /// Number of cells.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Adds empty cells up to `len`.
    pub(crate) fn fill(&mut self, len: usize) {
        self.cells.resize(len.max(self.cells.len()), None);
    }

    /// Adds a cell.
    pub(crate) fn push(&mut self, cell: Option<String>) {
        self.cells.push(cell);
    }

    /// Adds a cell that the file marks as text, even if it looks like a number.
    pub(crate) fn push_text(&mut self, cell: String) {
        self.quoted = true;
        self.cells.push(Some(cell));
    }

    /// The cells as one of the types of tables. Blanks around numbers are ignored.
    pub(crate) fn finish(self) -> ArrayRef {
        let known = !self.quoted && self.cells.iter().any(Option::is_some);
        if known && let Some(ints) = self.parsed::<u64>() {
            return Arc::new(UInt64Array::from(ints));
        }
        if known && let Some(floats) = self.parsed::<f64>() {
            return Arc::new(Float64Array::from(floats));
        }
        Arc::new(StringArray::from(self.cells))
    }

    fn parsed<T: FromStr>(&self) -> Option<Vec<Option<T>>> {
        let parse = |cell: &Option<String>| match cell {
            None => Some(None),
            Some(text) => text.trim().parse().ok().map(Some),
        };
        self.cells.iter().map(parse).collect()
    }
}

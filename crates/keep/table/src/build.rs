//! Builds a table row by row and reads its cells.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, Float64Builder, StringBuilder, UInt64Builder};
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};

use crate::{Column, Error, Kind, Result, Type, Unit, objects};

/// The largest plausible number of a table, in CPU-seconds or bytes. The sum of a thousand such numbers still
/// fits.
const MOST: f64 = 9e15;

/// A named Arrow record batch whose columns are all [`Column`]s.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    name: String,
    columns: Vec<Column>,
    batch: RecordBatch,
}

impl Table {
    /// Starts a table of these columns.
    pub fn builder(name: &str, columns: &[Column]) -> Builder {
        let cells = columns.iter().map(|c| Cells::new(c.ty)).collect();
        Builder { name: name.into(), columns: columns.to_vec(), cells, rows: 0 }
    }

    /// Makes a table from a batch of a recording.
    ///
    /// # Errors
    /// A column has a type that no table supports (anything but UTF-8, unsigned 64-bit and 64-bit float).
    pub fn from_batch(name: &str, batch: RecordBatch) -> Result<Table> {
        let columns = batch
            .schema()
            .fields()
            .iter()
            .map(|f| {
                Column::from_field(f).ok_or_else(|| {
                    Error::Arrow(ArrowError::SchemaError(format!(
                        "column `{}` of table `{name}` has type {}; expected Utf8, UInt64 or Float64",
                        f.name(),
                        f.data_type()
                    )))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Table { name: name.into(), columns, batch })
    }

    /// Concatenates batches of one schema. Columns are matched by name.
    ///
    /// # Errors
    /// A batch lacks a column of the schema or has it with another type, a column has an unsupported type, or
    /// the text exceeds an Arrow array (2 GiB).
    pub fn of_batches(name: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Table> {
        if let [only] = batches {
            return Table::from_batch(name, only.clone().with_schema(Arc::clone(schema))?);
        }
        let empty = Table::from_batch(name, RecordBatch::new_empty(Arc::clone(schema)))?;
        let mut arrays = Vec::with_capacity(empty.columns.len());
        for column in &empty.columns {
            let mut cells = Cells::new(column.ty);
            for batch in batches {
                let array = batch.column_by_name(&column.name).ok_or_else(|| missing(&column.name))?;
                cells.append(&column.name, array)?;
            }
            arrays.push(cells.finish());
        }
        Ok(Table { batch: RecordBatch::try_new(Arc::clone(schema), arrays)?, ..empty })
    }

    /// The same rows with these columns first, in this order. A missing column is null in every row. The
    /// table's other columns follow.
    ///
    /// # Errors
    /// The table has a column of the same name and another type.
    pub fn with_columns(&self, columns: &[Column]) -> Result<Table> {
        if self.columns == columns {
            return Ok(self.clone());
        }
        let rest = self.columns.iter().filter(|own| !columns.iter().any(|c| c.name == own.name));
        let columns: Vec<Column> = columns.iter().chain(rest).cloned().collect();
        let arrays = columns.iter().map(|column| {
            let Ok(at) = self.index(&column.name) else {
                let mut cells = Cells::new(column.ty);
                (0..self.num_rows()).for_each(|_| cells.null());
                return Ok(cells.finish());
            };
            match self.columns[at].ty == column.ty {
                true => Ok(Arc::clone(self.batch.column(at))),
                false => Err(missing(&column.name)),
            }
        });
        let arrays = arrays.collect::<Result<_>>()?;
        Table::from_parts(&self.name, columns, arrays)
    }

    /// Replaces impossible numbers, those that are not finite or exceed [`MOST`], with null. Returns the
    /// table and the count of replaced numbers. For tables from other sources, where one such number would
    /// ruin a sum.
    ///
    /// # Errors
    /// As [`Table::with_columns`].
    pub fn possible(self) -> Result<(Table, usize)> {
        let mut impossible = 0;
        let arrays = self.columns.iter().zip(self.batch.columns()).map(|(column, array)| {
            if let Some(floats) = array.as_any().downcast_ref::<Float64Array>() {
                let bad = |x: f64| x.is_nan() || x.abs() > MOST;
                let count = floats.iter().flatten().filter(|&x| bad(x)).count();
                if count > 0 {
                    impossible += count;
                    let cells = floats.iter().map(|x| x.filter(|&x| !bad(x)));
                    return Arc::new(cells.collect::<Float64Array>()) as ArrayRef;
                }
            } else if let Some(ints) = array.as_any().downcast_ref::<UInt64Array>()
                && matches!(column.kind, Kind::Count | Kind::Time)
            {
                let bad = |n: u64| n > MOST as u64;
                let count = ints.iter().flatten().filter(|&n| bad(n)).count();
                if count > 0 {
                    impossible += count;
                    let cells = ints.iter().map(|n| n.filter(|&n| !bad(n)));
                    return Arc::new(cells.collect::<UInt64Array>()) as ArrayRef;
                }
            }
            Arc::clone(array)
        });
        let arrays: Vec<ArrayRef> = arrays.collect();
        if impossible == 0 {
            return Ok((self, 0));
        }
        // A column may say that it has no nulls.
        Ok((Table::from_parts(&self.name, self.columns.clone(), arrays)?, impossible))
    }

    /// These rows, in this order.
    pub(crate) fn rows(&self, rows: &[usize]) -> Result<Table> {
        let arrays = self.columns.iter().enumerate().map(|(at, column)| {
            let mut cells = Cells::new(column.ty);
            for &row in rows {
                match (&mut cells, self.cell(row, at)) {
                    (Cells::Text(b), Cell::Text(text)) => b.append_value(text),
                    (Cells::Int(b), Cell::Int(n)) => b.append_value(n),
                    (Cells::Float(b), Cell::Float(x)) => b.append_value(x),
                    (cells, _) => cells.null(),
                }
            }
            cells.finish()
        });
        Table::from_parts(&self.name, self.columns.clone(), arrays.collect())
    }

    pub(crate) fn from_parts(name: &str, columns: Vec<Column>, arrays: Vec<ArrayRef>) -> Result<Table> {
        let fields: Vec<_> = columns.iter().map(Column::to_field).collect();
        let metadata = HashMap::from([("table".to_string(), name.to_string())]);
        Table::whole(name, columns, Schema::new_with_metadata(fields, metadata), arrays)
    }

    /// As [`Table::from_parts`], for tables whose cells are only read: the batch has no column metadata.
    pub(crate) fn of_cells(name: &str, columns: Vec<Column>, arrays: Vec<ArrayRef>) -> Result<Table> {
        let pairs = columns.iter().zip(&arrays);
        let fields: Vec<Field> =
            pairs.map(|(c, a)| Field::new(&c.name, a.data_type().clone(), true)).collect();
        Table::whole(name, columns, Schema::new(fields), arrays)
    }

    fn whole(name: &str, columns: Vec<Column>, schema: Schema, arrays: Vec<ArrayRef>) -> Result<Table> {
        let rows = arrays.first().map_or(0, |a| a.len());
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)?;
        Ok(Table { name: name.into(), columns, batch })
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The Arrow batch, for writers and queries.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The index of a column.
    ///
    /// # Errors
    /// [`Error::NoColumn`], which lists the existing columns.
    pub fn index(&self, column: &str) -> Result<usize> {
        self.columns.iter().position(|c| c.name == column).ok_or_else(|| Error::NoColumn {
            table: self.name.clone(),
            asked: column.into(),
            columns: self.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// A cell as a number; `None` if it is null, text, or missing.
    pub fn number(&self, row: usize, column: &str) -> Option<f64> {
        let array = self.batch.column_by_name(column)?;
        if row >= array.len() || array.is_null(row) {
            return None;
        }
        if let Some(a) = array.as_any().downcast_ref::<Float64Array>() {
            return Some(a.value(row));
        }
        array.as_any().downcast_ref::<UInt64Array>().map(|a| a.value(row) as f64)
    }

    /// A cell as an unsigned integer; `None` if it is null, of another type, or missing.
    pub fn int(&self, row: usize, column: &str) -> Option<u64> {
        let array = self.batch.column_by_name(column)?.as_any().downcast_ref::<UInt64Array>()?;
        (row < array.len() && array.is_valid(row)).then(|| array.value(row))
    }

    /// A cell as text; `None` if it is null, a number, or missing.
    pub fn text(&self, row: usize, column: &str) -> Option<&str> {
        let array = self.batch.column_by_name(column)?.as_any().downcast_ref::<StringArray>()?;
        (row < array.len() && array.is_valid(row)).then(|| array.value(row))
    }

    /// A text cell for readers: for a column of [`Unit::Objects`], the words of its objects.
    pub fn words(&self, row: usize, column: &str) -> Option<Cow<'_, str>> {
        let text = self.text(row, column)?;
        let objects = self.index(column).is_ok_and(|at| self.columns()[at].unit == Unit::Objects);
        Some(if objects { objects::words(text) } else { Cow::Borrowed(text) })
    }

    /// The cell of a row and column index; null after the last row.
    pub(crate) fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        let array = self.batch.column(column);
        if row >= array.len() || array.is_null(row) {
            return Cell::Null;
        }
        let any = array.as_any();
        if let Some(ints) = any.downcast_ref::<UInt64Array>() {
            Cell::Int(ints.value(row))
        } else if let Some(floats) = any.downcast_ref::<Float64Array>() {
            Cell::Float(floats.value(row))
        } else {
            any.downcast_ref::<StringArray>().map_or(Cell::Null, |texts| Cell::Text(texts.value(row)))
        }
    }

    /// The same rows under another name.
    pub fn renamed(mut self, name: &str) -> Table {
        self.name = name.into();
        self
    }

    /// The same rows with another numeric column before the column `before`, or at the end if that column is
    /// missing.
    ///
    /// # Errors
    /// The numbers of values and rows differ.
    pub fn with_numbers(&self, column: Column, values: &[Option<f64>], before: &str) -> Result<Table> {
        let at = self.index(before).unwrap_or(self.columns.len());
        let mut columns = self.columns.clone();
        let mut arrays = self.batch.columns().to_vec();
        columns.insert(at, Column { ty: Type::Float, ..column });
        arrays.insert(at, Arc::new(Float64Array::from(values.to_vec())));
        Table::from_parts(&self.name, columns, arrays)
    }

    /// The same rows with `by` subtracted from a float column, but not below zero. Unchanged if the column is
    /// missing.
    ///
    /// # Errors
    /// The new table is invalid.
    pub fn less(&self, column: &str, by: f64) -> Result<Table> {
        let floats =
            |at: usize| self.batch.column(at).as_any().downcast_ref::<Float64Array>().map(|a| (at, a));
        let Some((at, values)) = self.index(column).ok().and_then(floats) else { return Ok(self.clone()) };
        let mut arrays = self.batch.columns().to_vec();
        let less = values.iter().map(|value| value.map(|value| (value - by).max(0.0)));
        arrays[at] = Arc::new(less.collect::<Float64Array>());
        Table::from_parts(&self.name, self.columns.clone(), arrays)
    }

    /// The same rows with another text column at the end.
    ///
    /// # Errors
    /// A column of that name already exists.
    pub fn with_text(&self, column: Column, value: impl Fn(usize) -> Option<String>) -> Result<Table> {
        let mut columns = self.columns.clone();
        let mut arrays = self.batch.columns().to_vec();
        columns.push(Column { ty: Type::Text, ..column });
        arrays.push(Arc::new((0..self.num_rows()).map(value).collect::<StringArray>()));
        Table::from_parts(&self.name, columns, arrays)
    }

    /// Only these columns, in this order.
    ///
    /// # Errors
    /// [`Error::NoColumn`].
    pub fn project(&self, columns: &[&str]) -> Result<Table> {
        let at = columns.iter().map(|c| self.index(c)).collect::<Result<Vec<_>>>()?;
        Table::from_parts(
            &self.name,
            at.iter().map(|&i| self.columns[i].clone()).collect(),
            at.iter().map(|&i| self.batch.column(i).clone()).collect(),
        )
    }
}

/// The value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// Unknown.
    Null,
    /// Of an integer column.
    Int(u64),
    /// Of a float column.
    Float(f64),
    /// Of a text column.
    Text(&'a str),
}

enum Cells {
    Text(StringBuilder),
    Int(UInt64Builder),
    Float(Float64Builder),
}

impl Cells {
    fn new(ty: Type) -> Cells {
        match ty {
            Type::Text => Cells::Text(StringBuilder::new()),
            Type::Int => Cells::Int(UInt64Builder::new()),
            Type::Float => Cells::Float(Float64Builder::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Cells::Text(b) => b.len(),
            Cells::Int(b) => b.len(),
            Cells::Float(b) => b.len(),
        }
    }

    fn null(&mut self) {
        match self {
            Cells::Text(b) => b.append_null(),
            Cells::Int(b) => b.append_null(),
            Cells::Float(b) => b.append_null(),
        }
    }

    /// Appends the cells of an array.
    fn append(&mut self, name: &str, array: &ArrayRef) -> Result<()> {
        let any = array.as_any();
        let wrong = || missing(name);
        match self {
            Cells::Text(b) => b.append_array(any.downcast_ref().ok_or_else(wrong)?)?,
            Cells::Int(b) => b.append_array(any.downcast_ref().ok_or_else(wrong)?),
            Cells::Float(b) => b.append_array(any.downcast_ref().ok_or_else(wrong)?),
        }
        Ok(())
    }

    /// Without the room that was kept for a thousand more: most tables have a few rows.
    fn finish(&mut self) -> ArrayRef {
        let mut array: ArrayRef = match self {
            Cells::Text(b) => Arc::new(b.finish()),
            Cells::Int(b) => Arc::new(b.finish()),
            Cells::Float(b) => Arc::new(b.finish()),
        };
        array.shrink_to_fit();
        array
    }
}

fn missing(column: &str) -> Error {
    ArrowError::SchemaError(format!("a batch lacks column `{column}` or has it with another type")).into()
}

/// Collects rows; see [`Table::builder`].
pub struct Builder {
    name: String,
    columns: Vec<Column>,
    cells: Vec<Cells>,
    rows: usize,
}

impl Builder {
    /// Starts the next row; cells that are not set are null.
    pub fn row(&mut self) -> Row<'_> {
        self.pad();
        self.rows += 1;
        Row { table: self, at: 0 }
    }

    fn pad(&mut self) {
        let rows = self.rows;
        for cells in &mut self.cells {
            (cells.len()..rows).for_each(|_| cells.null());
        }
    }

    /// Number of started rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row has been started.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Builds the table.
    pub fn finish(mut self) -> Table {
        self.pad();
        let arrays = self.cells.iter_mut().map(Cells::finish).collect();
        Table::from_parts(&self.name, self.columns, arrays)
            .expect("the builder keeps every column at the same length and of its own type")
    }
}

/// One row, filled column by column in order.
///
/// A cell of the wrong type, or one after the last column, is a programming error and panics.
pub struct Row<'a> {
    table: &'a mut Builder,
    at: usize,
}

impl Row<'_> {
    fn next(&mut self) -> &mut Cells {
        let at = self.at;
        self.at += 1;
        let name = &self.table.name;
        self.table.cells.get_mut(at).unwrap_or_else(|| panic!("table `{name}` has no column {at}"))
    }

    fn wrong(&self, given: &str) -> ! {
        let column = &self.table.columns[self.at - 1].name;
        panic!("column `{column}` of table `{}` was given {given}", self.table.name)
    }

    /// A text cell.
    pub fn text(mut self, value: impl AsRef<str>) -> Self {
        match self.next() {
            Cells::Text(b) => b.append_value(value),
            _ => self.wrong("text"),
        }
        self
    }

    /// A text cell, null for `None`.
    pub fn text_opt(self, value: Option<impl AsRef<str>>) -> Self {
        match value {
            Some(v) => self.text(v),
            None => self.null(),
        }
    }

    /// An integer cell. A float column accepts it too.
    pub fn int(mut self, value: u64) -> Self {
        match self.next() {
            Cells::Int(b) => b.append_value(value),
            Cells::Float(b) => b.append_value(value as f64),
            Cells::Text(_) => self.wrong("an integer"),
        }
        self
    }

    /// An integer cell, null for `None`.
    pub fn int_opt(self, value: Option<u64>) -> Self {
        match value {
            Some(v) => self.int(v),
            None => self.null(),
        }
    }

    /// A float cell.
    pub fn float(mut self, value: f64) -> Self {
        match self.next() {
            Cells::Float(b) => b.append_value(value),
            _ => self.wrong("a float"),
        }
        self
    }

    /// A float cell, null for `None`.
    pub fn float_opt(self, value: Option<f64>) -> Self {
        match value {
            Some(v) => self.float(v),
            None => self.null(),
        }
    }

    /// A cell with an unknown value.
    pub fn null(mut self) -> Self {
        self.next().null();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn columns() -> [Column; 4] {
        [
            Column::text("name", ""),
            Column::count("count", ""),
            Column::float("t", Unit::Seconds, Kind::Key, ""),
            Column::objects("evidence", ""),
        ]
    }

    /// Two complete rows, and one with a single cell.
    fn table() -> Table {
        let mut out = Table::builder("x", &columns());
        assert!(out.is_empty());
        out.row().text("a").int(1).float(2.5).text(r#"[{"words":"b"}]"#);
        out.row().null().int_opt(None).int(3).text_opt(None::<&str>);
        out.row().text("c");
        assert_eq!((out.len(), out.is_empty()), (3, false));
        out.finish()
    }

    #[test]
    fn cells_are_those_given_and_null_where_none_was() {
        let t = table();
        assert_eq!((t.name(), t.num_rows(), t.columns().len()), ("x", 3, 4));
        assert_eq!([0, 1, 2, 3].map(|r| t.text(r, "name")), [Some("a"), None, Some("c"), None]);
        assert_eq!([0, 1, 2, 3].map(|r| t.int(r, "count")), [Some(1), None, None, None]);
        assert_eq!([0, 1, 2, 3].map(|r| t.number(r, "t")), [Some(2.5), Some(3.0), None, None]);
        assert_eq!(
            (t.number(0, "count"), t.number(0, "name"), t.number(0, "other")),
            (Some(1.0), None, None)
        );
        assert_eq!((t.int(0, "t"), t.text(0, "count"), t.int(0, "other")), (None, None, None));
        assert_eq!((t.words(0, "evidence"), t.words(0, "name")), (Some("b".into()), Some("a".into())));
        let cells = [t.cell(0, 0), t.cell(0, 1), t.cell(0, 2), t.cell(1, 0), t.cell(9, 0)];
        assert_eq!(cells, [Cell::Text("a"), Cell::Int(1), Cell::Float(2.5), Cell::Null, Cell::Null]);
        assert_eq!(t.index("t").unwrap(), 2);
        let unknown = t.index("T").unwrap_err().to_string();
        assert_eq!(unknown, "table `x` has no column `T`; its columns are name, count, t, evidence");
    }

    #[test]
    fn rows_and_columns_are_chosen_and_added() {
        let t = table();
        let some = t.project(&["t", "name"]).unwrap();
        assert_eq!(
            (some.columns().len(), some.number(0, "t"), some.text(2, "name")),
            (2, Some(2.5), Some("c"))
        );
        assert!(t.project(&["x"]).is_err());
        let rows = t.rows(&[2, 0, 0, 7]).unwrap();
        let names: Vec<_> = (0..rows.num_rows()).map(|r| rows.text(r, "name")).collect();
        assert_eq!(names, [Some("c"), Some("a"), Some("a"), None]);
        assert_eq!((rows.int(1, "count"), rows.number(2, "t")), (Some(1), Some(2.5)));
        assert_eq!(t.clone().renamed("y").name(), "y");
        let more = Column::float("share", Unit::Percent, Kind::Share, "");
        let with = t.with_numbers(more.clone(), &[Some(1.0), None, Some(2.0)], "t").unwrap();
        assert_eq!((with.index("share").unwrap(), with.number(2, "share")), (2, Some(2.0)));
        assert_eq!(t.with_numbers(more, &[None; 3], "none").unwrap().index("share").unwrap(), 4);
        let with = t.with_text(Column::text("note", ""), |row| (row == 1).then(|| "n".into())).unwrap();
        assert_eq!([0, 1].map(|r| with.text(r, "note")), [None, Some("n")]);
        let less = t.less("t", 2.75).unwrap();
        assert_eq!([0, 1, 2].map(|r| less.number(r, "t")), [Some(0.0), Some(0.25), None]);
        assert_eq!(t.less("name", 1.0).unwrap(), t, "not a float column");
    }

    #[test]
    fn numbers_added_are_floats_however_their_column_is_declared() {
        let t = table().with_numbers(Column::count("calls", ""), &[Some(0.5); 3], "t").unwrap();
        assert_eq!(
            (t.columns()[2].ty, t.number(1, "calls"), t.int(1, "calls")),
            (Type::Float, Some(0.5), None)
        );
        let t = table().with_text(Column::count("calls", ""), |_| Some("few".into())).unwrap();
        assert_eq!((t.columns()[4].ty, t.text(1, "calls")), (Type::Text, Some("few")));
    }

    /// A count, a time and an identifier; then each of their impossible values in turn.
    #[test]
    fn impossible_numbers_become_null_and_are_counted() {
        let columns = [
            Column::count("calls", ""),
            Column::float("t", Unit::Seconds, Kind::Time, ""),
            Column::id("address", ""),
        ];
        let (most, above) = (9_000_000_000_000_000, 9_000_000_000_000_001);
        let mut out = Table::builder("x", &columns);
        out.row().int(most).float(9e15).int(u64::MAX);
        out.row().int(above).float(-9e15).int(above);
        out.row().int(u64::MAX).float(9.1e15).int(0);
        out.row().null().float(f64::NAN);
        out.row().int(3).float(f64::NEG_INFINITY).int(1);
        let (t, replaced) = out.finish().possible().unwrap();
        let calls: Vec<_> = (0..5).map(|r| t.int(r, "calls")).collect();
        assert_eq!(calls, [Some(most), None, None, None, Some(3)]);
        let times: Vec<_> = (0..5).map(|r| t.number(r, "t")).collect();
        assert_eq!(times, [Some(9e15), Some(-9e15), None, None, None]);
        let addresses: Vec<_> = (0..5).map(|r| t.int(r, "address")).collect();
        assert_eq!(
            addresses,
            [Some(u64::MAX), Some(above), Some(0), None, Some(1)],
            "no sum is made of them"
        );
        assert_eq!(replaced, 5);
        assert_eq!(table().possible().unwrap(), (table(), 0));
    }

    #[test]
    fn columns_that_a_table_lacks_are_null_and_its_own_follow() {
        let t = table().project(&["count", "name"]).unwrap();
        let all = t.with_columns(&columns()[..3]).unwrap();
        let names: Vec<&str> = all.columns().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["name", "count", "t"]);
        assert_eq!(
            (all.text(0, "name"), all.int(0, "count"), all.number(0, "t")),
            (Some("a"), Some(1), None)
        );
        let first = t.with_columns(&[Column::id("pid", "")]).unwrap();
        assert_eq!((first.index("pid").unwrap(), first.index("name").unwrap()), (0, 2));
        assert!(t.with_columns(&[Column::text("count", "")]).is_err(), "of another type");
    }

    #[test]
    fn batches_one_after_another_are_one_table() {
        let t = table();
        let schema = t.batch().schema();
        let both = Table::of_batches("y", &schema, &[t.batch().clone(), t.batch().clone()]).unwrap();
        assert_eq!((both.name(), both.num_rows(), both.text(5, "name")), ("y", 6, Some("c")));
        assert_eq!((both.int(3, "count"), both.number(4, "t")), (Some(1), Some(3.0)));
        assert_eq!(Table::of_batches("y", &schema, &[t.batch().clone()]).unwrap().num_rows(), 3);
        assert_eq!(Table::of_batches("y", &schema, &[]).unwrap().num_rows(), 0);
        let lacking = t.project(&["name"]).unwrap();
        assert!(Table::of_batches("y", &schema, &[t.batch().clone(), lacking.batch().clone()]).is_err());
    }

    #[test]
    #[should_panic(expected = "column `count` of table `x` was given text")]
    fn a_cell_of_another_type_is_named() {
        Table::builder("x", &columns()).row().text("a").text("b");
    }

    #[test]
    #[should_panic(expected = "table `x` has no column 4")]
    fn a_cell_beyond_the_last_is_named() {
        Table::builder("x", &columns()).row().null().null().null().null().null();
    }
}

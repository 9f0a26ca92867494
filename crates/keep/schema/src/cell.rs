//! Types of columns: what a row gives, what a column says of itself, and what a reader gets.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};
use ncpu_table::{Kind, Row, Table, Type, Unit};

use crate::{Error, Unknown, Vocabulary};

/// A declared column, before it knows its type.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in the table.
    pub name: &'static str,
    /// Unit of its numbers.
    pub unit: Unit,
    /// How rows are put together.
    pub kind: Kind,
    /// One line of documentation.
    pub meaning: &'static str,
    /// The schema's version that brought it; it may be missing in older recordings.
    pub since: u32,
}

impl Column {
    fn table_column(&self, ty: Type) -> ncpu_table::Column {
        ncpu_table::Column {
            name: self.name.into(),
            ty,
            unit: self.unit,
            kind: self.kind,
            meaning: self.meaning.into(),
        }
    }
}

/// The table a reader reads, and what its messages call the recording.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub(crate) recording: &'a str,
    pub(crate) schema: u32,
    pub(crate) table: &'a Table,
    pub(crate) read: Option<&'static [&'static str]>,
}

impl<'a> Source<'a> {
    /// Refuses columns that are not declared: in a table whose columns are a vocabulary, one that is not known
    /// would be left out of every sum.
    pub(crate) fn closed(&self, what: &'static str, declared: &[ncpu_table::Column]) -> Result<(), Error> {
        match self.table.columns().iter().find(|c| !declared.iter().any(|d| d.name == c.name)) {
            None => Ok(()),
            Some(column) => Err(Error::Column {
                recording: self.recording.into(),
                table: self.table.name().into(),
                unknown: Unknown { what, word: column.name.clone() },
            }),
        }
    }

    /// The array of a column; `None` where it came with a later version than the recording's, or was left in its file.
    fn array<A: 'static>(
        &self,
        name: &str,
        since: u32,
        wanted: &'static str,
    ) -> Result<Option<&'a A>, Error> {
        let Some(array) = self.table.batch().column_by_name(name) else {
            if since > self.schema || self.read.is_some_and(|read| !read.contains(&name)) {
                return Ok(None);
            }
            return Err(Error::NoColumn {
                recording: self.recording.into(),
                table: self.table.name().into(),
                column: name.into(),
                columns: self.table.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "),
            });
        };
        array.as_any().downcast_ref().map(Some).ok_or_else(|| Error::Type {
            recording: self.recording.into(),
            table: self.table.name().into(),
            column: name.into(),
            found: match self.table.columns().iter().find(|c| c.name == name).map(|c| c.ty) {
                Some(Type::Text) => "text",
                Some(Type::Int) => "a whole number",
                Some(Type::Float) | None => "a number",
            },
            wanted,
        })
    }
}

/// The type of a declared column (or, of [`Each`], of a group of columns).
pub trait Spec {
    /// Value of a row.
    type Cell<'a>: Default;
    /// Type that reads the column.
    type Reader<'a>;
    /// Where the columns are a vocabulary, what a word of it is; then the table has no other columns than declared.
    const CLOSED: Option<&'static str> = None;

    /// The columns of the table.
    fn columns(column: &Column) -> Vec<ncpu_table::Column>;

    /// Fills the cells.
    fn put<'r>(row: Row<'r>, cell: Self::Cell<'_>) -> Row<'r>;

    /// Looks the columns up.
    ///
    /// # Errors
    /// A column is missing, has another type, or holds an unknown word.
    fn read<'a>(column: &Column, source: Source<'a>) -> Result<Self::Reader<'a>, Error>;
}

/// Text for a row: of a `&str`, a `String`, or an `Option` of either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label<'a>(Option<Cow<'a, str>>);

impl<'a> From<&'a str> for Label<'a> {
    fn from(text: &'a str) -> Self {
        Label(Some(text.into()))
    }
}

impl From<String> for Label<'_> {
    fn from(text: String) -> Self {
        Label(Some(text.into()))
    }
}

impl<'a> From<&'a String> for Label<'a> {
    fn from(text: &'a String) -> Self {
        Label(Some(text.as_str().into()))
    }
}

impl<'a> From<&'a Arc<str>> for Label<'a> {
    fn from(text: &'a Arc<str>) -> Self {
        Label(Some((&**text).into()))
    }
}

impl<'a> From<Cow<'a, str>> for Label<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Label(Some(text))
    }
}

impl<'a, T: Into<Label<'a>>> From<Option<T>> for Label<'a> {
    fn from(text: Option<T>) -> Self {
        text.map_or(Label(None), Into::into)
    }
}

/// A column of text.
#[derive(Debug)]
pub struct Text;

/// A column of text, resolved.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a>(Option<&'a StringArray>);

impl<'a> Texts<'a> {
    /// The cell of a row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.0.filter(|a| row < a.len() && a.is_valid(row)).map(|a| a.value(row))
    }
}

impl Spec for Text {
    type Cell<'a> = Label<'a>;
    type Reader<'a> = Texts<'a>;

    fn columns(column: &Column) -> Vec<ncpu_table::Column> {
        vec![column.table_column(Type::Text)]
    }

    fn put<'r>(row: Row<'r>, cell: Label<'_>) -> Row<'r> {
        row.text_opt(cell.0)
    }

    fn read<'a>(column: &Column, source: Source<'a>) -> Result<Texts<'a>, Error> {
        source.array(column.name, column.since, "text").map(Texts)
    }
}

/// A column of unsigned whole numbers.
#[derive(Debug)]
pub struct Int;

/// A column of unsigned whole numbers, resolved.
#[derive(Clone, Copy, Debug)]
pub struct Ints<'a>(Option<&'a UInt64Array>);

impl Ints<'_> {
    /// The cell of a row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<u64> {
        self.0.filter(|a| row < a.len() && a.is_valid(row)).map(|a| a.value(row))
    }

    /// The sum of all cells that are not null.
    pub fn sum(&self) -> u64 {
        self.0.map_or(0, |a| a.iter().flatten().fold(0, u64::saturating_add))
    }
}

impl Spec for Int {
    type Cell<'a> = Option<u64>;
    type Reader<'a> = Ints<'a>;

    fn columns(column: &Column) -> Vec<ncpu_table::Column> {
        vec![column.table_column(Type::Int)]
    }

    fn put<'r>(row: Row<'r>, cell: Option<u64>) -> Row<'r> {
        row.int_opt(cell)
    }

    fn read<'a>(column: &Column, source: Source<'a>) -> Result<Ints<'a>, Error> {
        source.array(column.name, column.since, "a whole number").map(Ints)
    }
}

/// A column of floating-point numbers.
#[derive(Debug)]
pub struct Float;

/// A column of floating-point numbers, resolved.
#[derive(Clone, Copy, Debug)]
pub struct Floats<'a>(Option<&'a Float64Array>);

impl Floats<'_> {
    /// The cell of a row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<f64> {
        self.0.filter(|a| row < a.len() && a.is_valid(row)).map(|a| a.value(row))
    }

    /// The sum of all cells that are not null.
    pub fn sum(&self) -> f64 {
        self.0.map_or(0.0, |a| a.iter().flatten().sum())
    }

    /// The largest cell; `None` where all are null.
    pub fn max(&self) -> Option<f64> {
        self.0.and_then(|a| a.iter().flatten().max_by(f64::total_cmp))
    }
}

impl Spec for Float {
    type Cell<'a> = Option<f64>;
    type Reader<'a> = Floats<'a>;

    fn columns(column: &Column) -> Vec<ncpu_table::Column> {
        vec![column.table_column(Type::Float)]
    }

    fn put<'r>(row: Row<'r>, cell: Option<f64>) -> Row<'r> {
        row.float_opt(cell)
    }

    fn read<'a>(column: &Column, source: Source<'a>) -> Result<Floats<'a>, Error> {
        source.array(column.name, column.since, "a number").map(Floats)
    }
}

/// A column of text whose cells are words of a [`Vocabulary`].
#[derive(Debug)]
pub struct Word<V>(PhantomData<V>);

/// A column of words, resolved and checked.
#[derive(Clone, Debug)]
pub struct Words<V>(Vec<Option<V>>);

impl<V: Copy> Words<V> {
    /// The cell of a row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<V> {
        self.0.get(row).copied().flatten()
    }
}

impl<V: Vocabulary> Spec for Word<V> {
    type Cell<'a> = Option<V>;
    type Reader<'a> = Words<V>;

    fn columns(column: &Column) -> Vec<ncpu_table::Column> {
        vec![column.table_column(Type::Text)]
    }

    fn put<'r>(row: Row<'r>, cell: Option<V>) -> Row<'r> {
        row.text_opt(cell.map(V::name))
    }

    fn read<'a>(column: &Column, source: Source<'a>) -> Result<Words<V>, Error> {
        let texts = Texts(source.array(column.name, column.since, "text")?);
        let word = |row| {
            texts.get(row).map(V::of_name).transpose().map_err(|unknown| Error::Word {
                recording: source.recording.into(),
                table: source.table.name().into(),
                column: column.name.into(),
                row,
                unknown,
            })
        };
        (0..source.table.num_rows()).map(word).collect::<Result<_, _>>().map(Words)
    }
}

/// A group of columns of floating-point numbers: one for each word of a [`Vocabulary`].
#[derive(Debug)]
pub struct Each<V>(PhantomData<V>);

/// A number for each word of a [`Vocabulary`].
#[derive(Clone, Debug, PartialEq)]
pub struct Per<V> {
    cells: Vec<Option<f64>>,
    of: PhantomData<V>,
}

impl<V: Vocabulary> Per<V> {
    /// Takes the number of each word from a function; `None` where it was not measured.
    pub fn new(of: impl FnMut(V) -> Option<f64>) -> Per<V> {
        Per { cells: V::ALL.iter().copied().map(of).collect(), of: PhantomData }
    }
}

impl<V> Default for Per<V> {
    fn default() -> Per<V> {
        Per { cells: Vec::new(), of: PhantomData }
    }
}

/// A group of columns, resolved.
#[derive(Clone, Debug)]
pub struct PerColumns<'a, V> {
    columns: Vec<Floats<'a>>,
    of: PhantomData<V>,
}

impl<V: Vocabulary> PerColumns<'_, V> {
    /// A cell; `None` where it is null.
    pub fn get(&self, row: usize, word: V) -> Option<f64> {
        self.columns.get(word.index())?.get(row)
    }

    /// The sum of a word's column.
    pub fn sum(&self, word: V) -> f64 {
        self.columns.get(word.index()).map_or(0.0, Floats::sum)
    }
}

impl<V: Vocabulary> Spec for Each<V> {
    type Cell<'a> = Per<V>;
    type Reader<'a> = PerColumns<'a, V>;
    const CLOSED: Option<&'static str> = Some(V::WHAT);

    fn columns(column: &Column) -> Vec<ncpu_table::Column> {
        let of = |word: &V| Column { name: word.name(), meaning: word.meaning(), ..*column };
        V::ALL.iter().map(|word| of(word).table_column(Type::Float)).collect()
    }

    fn put<'r>(row: Row<'r>, cell: Per<V>) -> Row<'r> {
        (0..V::ALL.len()).fold(row, |row, i| row.float_opt(cell.cells.get(i).copied().flatten()))
    }

    fn read<'a>(column: &Column, source: Source<'a>) -> Result<PerColumns<'a, V>, Error> {
        let since = |word: V| word.since().max(column.since);
        let read = |word: &V| source.array(word.name(), since(*word), "a number").map(Floats);
        let columns = V::ALL.iter().map(read).collect::<Result<_, _>>()?;
        Ok(PerColumns { columns, of: PhantomData })
    }
}

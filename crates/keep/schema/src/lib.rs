//! Terms that observe, foresee, record and report share: states, reasons, layers, tables and columns, as types.
//!
//! Each table of a recording is declared once, in `tables/`. The declaration gives a module with
//!
//! - `Row` and `Rows`, to fill the table: a `Row` is a struct with a typed field per column, so a column can
//!   neither be forgotten nor be given a value of another type;
//! - `Reader`, to read it: columns are looked up once, and one that is missing, has another type or holds a word
//!   that is not in the schema is an [`Error`] that names recording, table and column;
//! - `col`, the names of the columns, for sorting and grouping;
//! - an entry in [`tables`], from which the manual's page is generated ([`document`]).
//!
//! Every cell may be null: null means "not measured", and that is not zero.
//!
//! ```
//! use ncpu_schema::{CpuState, Per, cpu_time};
//!
//! let mut rows = cpu_time::Rows::new();
//! let spent = Per::new(|state| Some(if state == CpuState::Idle { 0.75 } else { 0.0 }));
//! rows.push(cpu_time::Row { time: 1.0.into(), cpu: 3.into(), spent, kernel: None });
//! let table = rows.finish();
//!
//! let cpu_time = cpu_time::Reader::of(&table).unwrap();
//! assert_eq!(cpu_time.spent.get(0, CpuState::Idle), Some(0.75));
//! assert_eq!(cpu_time.spent.sum(CpuState::Idle), 0.75);
//! ```

mod cell;
pub mod chance;
mod division;
mod document;
mod error;
mod layer;
mod recording;
mod states;
mod tables;
mod vocabulary;

pub use cell::{
    Column, Each, Float, Floats, Int, Ints, Label, Per, PerColumns, Spec, Text, Texts, Word, Words,
};
pub use division::{Counts, Division, Strange, layer_of};
pub use document::document;
pub use error::Error;
pub use layer::Layer;
pub use recording::{Purpose, Tables, View};
pub use states::{
    Activity, AskedBy, Counter, CpuState, Doing, DosePlace, DoseVerdict, Grounds, IdleReason, InterruptKind,
    Length, Loss, Microstate, Place, Runnable, SampleClass, StackKind, TimerKind, UserCause, WaitScope,
};
pub use tables::*;
pub use vocabulary::{Unknown, Vocabulary};

/// Version of the schema. It rises with every column, word or table that an older reader would not understand;
/// a column that came with version N says `since N` and may be missing in older recordings, and only there.
pub const VERSION: u32 = 9;

/// Column `holder_in` of table `thread_time`, where the thread that ended a wait waited for a CPU itself.
pub const ON_QUEUE: &str = "a run queue";

/// A table as declared: for documentation, and for code that handles all tables alike.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Meaning of a row.
    pub meaning: &'static str,
    /// Its columns, in order.
    pub columns: fn() -> Vec<ncpu_table::Column>,
    /// Checks a table of this name: columns, types and words.
    pub check: for<'a> fn(&'a str, u32, &'a ncpu_table::Table) -> Result<(), Error>,
}

impl Definition {
    /// The same rows with all columns of the declaration, in its order. A column that the table lacks is null in every row,
    /// and its readers give `None`. Columns that are not declared follow.
    ///
    /// # Errors
    /// A column has another type.
    pub fn complete(&self, table: &ncpu_table::Table) -> ncpu_table::Result<ncpu_table::Table> {
        table.with_columns(&(self.columns)())
    }

    /// Starts a table of these columns, to be filled cell by cell.
    pub fn builder(&self) -> ncpu_table::Builder {
        ncpu_table::Table::builder(self.name, &(self.columns)())
    }
}

/// The definition of a table; `None` for one that is not in the schema.
pub fn definition(name: &str) -> Option<&'static Definition> {
    tables().find(|d| d.name == name)
}

/// The rows of a recording's table put together by some of its columns; `None` where there is no such table.
///
/// # Errors
/// The table lacks one of them.
pub fn grouped(
    recording: &impl Tables,
    table: &'static str,
    keys: &[&str],
) -> Result<Option<ncpu_table::Table>, Error> {
    let Some(table) = recording.table(table) else { return Ok(None) };
    table.group_by(keys).map(Some).map_err(|_| Error::NoColumn {
        recording: recording.name().into(),
        table: table.name().into(),
        column: keys.join(", "),
        columns: table.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Checks every table of a recording that the schema knows.
///
/// # Errors
/// A required column is missing or has another type, or a cell holds a word that the schema does not have.
pub fn check(recording: &impl Tables) -> Result<(), Error> {
    tables().try_for_each(|d| match recording.table(d.name) {
        Some(table) => (d.check)(recording.name(), recording.schema(), table),
        None => Ok(()),
    })
}

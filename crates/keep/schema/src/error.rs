//! Errors in a table that was read.

use crate::Unknown;

/// A table that does not say what the schema says. Every message names the recording and the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A table is needed and not there.
    #[error(
        "{recording} has no table `{table}`: it is of another command than is asked for, or was cut off in its first interval"
    )]
    NoTable {
        /// The recording.
        recording: String,
        /// The table.
        table: &'static str,
    },
    /// A column that this version of the recording must have is missing.
    #[error("{recording}: table `{table}` has no column `{column}`; its columns are {columns}")]
    NoColumn {
        /// The recording.
        recording: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Columns of the table.
        columns: String,
    },
    /// A column has another type.
    #[error("{recording}: column `{column}` of table `{table}` is {found} instead of {wanted}")]
    Type {
        /// The recording.
        recording: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The type it has.
        found: &'static str,
        /// The type it must have.
        wanted: &'static str,
    },
    /// A cell holds a word that is not in the schema.
    #[error("{recording}: column `{column}` of table `{table}`, row {row}: {unknown}")]
    Word {
        /// The recording.
        recording: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The row, from 0.
        row: usize,
        /// The word.
        unknown: Unknown,
    },
    /// A column of a table whose columns are a vocabulary is not in it.
    #[error("{recording}: table `{table}` has a column that this ncpu cannot place: {unknown}")]
    Column {
        /// The recording.
        recording: String,
        /// The table.
        table: String,
        /// The column's name.
        unknown: Unknown,
    },
}

//! The common format of all data that `ncpu` collects: a [`Table`].
//!
//! A table is an Arrow record batch whose columns have a [`Unit`], a [`Kind`] and a one-line meaning.
//! Collectors produce tables and never print; views print tables and never collect. The common format allows
//! one way to sort, take quantile bands and average ([`Select`]), and one way to print ([`Printer`]).
//!
//! ```
//! use ncpu_table::{Column, Kind, Select, Table, Unit};
//!
//! let mut rows = Table::builder("locks", &[
//!     Column::text("lock", "name of the lock"),
//!     Column::int("count", Unit::None, Kind::Count, "contended acquisitions"),
//! ]);
//! rows.row().text("pcf").int(1_170_899);
//! rows.row().text("mmap_lock").int(86_959);
//! let table = rows.finish();
//! let top = Select { sort: Some("count".parse().unwrap()), top: Some(1), ..Select::default() };
//! assert_eq!(top.apply(table).unwrap().num_rows(), 1);
//! ```

mod budget;
mod build;
mod column;
mod compact;
mod fold;
mod gathered;
mod group;
mod json;
pub mod objects;
mod parquet;
mod place;
mod print;
mod read;
pub mod safe;
mod select;
pub mod size;
mod text;
pub mod width;

pub use budget::Budget;
use build::Cell;
pub use build::{Builder, Row, Table};
pub use column::{Column, Kind, Type, Unit};
pub use compact::Compact;
pub use fold::OTHERS;
pub use group::Groups;
pub use json::VERSION_KEY;
pub use parquet::{ParquetGroups, ParquetStyle, ParquetWriter, read as read_parquet, texts as parquet_texts};
pub use place::place;
pub use print::{Format, Printer};
pub use select::{Select, SortKey};
pub use text::{figure, render as render_text};

/// An error about a table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user named a column that the table does not have.
    #[error("table `{table}` has no column `{asked}`; its columns are {columns}")]
    NoColumn {
        /// The table's name.
        table: String,
        /// The requested column.
        asked: String,
        /// The existing columns, separated by commas.
        columns: String,
    },
    /// Bands divide a sorted order, so `-A` needs `-k`.
    #[error("-A {0} divides rows sorted by a column into bands; name the column with -k COLUMN")]
    BandsWithoutSort(usize),
    /// `-m` averages bands, so it needs `-A`.
    #[error("-m takes the mean of each band; set the number of bands with -A N")]
    MeanWithoutBands,
    /// Zero bands or zero rows make no table.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// Two tables with different columns cannot share one CSV or Parquet stream.
    #[error(
        "{format} output holds one table, but `{first}` was followed by `{second}`; use -o json or choose one table"
    )]
    MixedTables {
        /// Name of the format.
        format: &'static str,
        /// The first table of the stream.
        first: String,
        /// The table with other columns.
        second: String,
    },
    /// A file could not be read or does not contain a table.
    #[error("{path}: {why}", path = path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        why: String,
    },
    /// Arrow refused an operation.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A Parquet file contains something that tables do not support.
    #[error("{0}")]
    Foreign(String),
    /// Parquet could not be written or read.
    #[error(transparent)]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// The output could not be written.
    #[error("writing output: {0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether the reader closed the pipe (`ncpu cpus | head`), which is not a failure.
    pub fn is_broken_pipe(&self) -> bool {
        use std::io::ErrorKind::BrokenPipe;
        match self {
            Error::Io(e) | Error::Arrow(arrow_schema::ArrowError::IoError(_, e)) => e.kind() == BrokenPipe,
            Error::Parquet(::parquet::errors::ParquetError::External(e)) => {
                e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == BrokenPipe)
            }
            _ => false,
        }
    }

    /// The underlying system error, which names the cause (such as a full disk), if there is one; otherwise
    /// this error.
    ///
    /// # Errors
    /// This error has no underlying system error.
    pub fn into_io(self) -> Result<std::io::Error> {
        use ::parquet::errors::ParquetError::External;
        match self {
            Error::Io(e) | Error::Arrow(arrow_schema::ArrowError::IoError(_, e)) => Ok(e),
            Error::Parquet(External(e)) => {
                e.downcast::<std::io::Error>().map(|e| *e).map_err(|e| Error::Parquet(External(e)))
            }
            other => Err(other),
        }
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use std::io;

    use super::Error;

    /// System errors as Arrow, Parquet and this crate wrap them.
    fn errors(kind: io::ErrorKind) -> [Error; 3] {
        let of = || io::Error::from(kind);
        [
            Error::Io(of()),
            Error::Arrow(arrow_schema::ArrowError::IoError("write".into(), of())),
            Error::Parquet(::parquet::errors::ParquetError::External(Box::new(of()))),
        ]
    }

    #[test]
    fn a_reader_that_went_away_is_known_from_other_failures() {
        assert!(errors(io::ErrorKind::BrokenPipe).iter().all(Error::is_broken_pipe));
        assert!(!errors(io::ErrorKind::StorageFull).iter().any(Error::is_broken_pipe));
        assert!(!Error::MeanWithoutBands.is_broken_pipe());
        let other = ::parquet::errors::ParquetError::General("x".into());
        assert!(!Error::Parquet(other).is_broken_pipe());
    }

    #[test]
    fn the_systems_error_is_found_in_each() {
        for error in errors(io::ErrorKind::StorageFull) {
            assert_eq!(error.into_io().unwrap().kind(), io::ErrorKind::StorageFull);
        }
        assert!(matches!(Error::Zero("rows").into_io(), Err(Error::Zero("rows"))));
        let strange = ::parquet::errors::ParquetError::External("no error of the system".into());
        assert!(Error::Parquet(strange).into_io().is_err());
    }
}

//! A recording on disk: write, recover, verify, read, import.
//!
//! A recording is a directory `NAME.ncpu/` with a `manifest.json` and a Parquet file per table. While it is
//! being written each table is an append-only Arrow IPC stream that is flushed every interval, so that kill
//! -9 or power loss costs at most the last one; [`Recording::open`] recovers it and adds a note.
//! `docs/recording.md` describes the files for other readers.
//!
//! ```
//! use ncpu_record::{Manifest, Recording, Writer};
//! use ncpu_schema::Purpose;
//! use ncpu_table::{Column, Table};
//!
//! # fn main() -> ncpu_record::Result<()> {
//! let mut rows = Table::builder("locks", &[
//!     Column::text("lock", "name of the lock"),
//!     Column::count("count", "contended acquisitions"),
//! ]);
//! rows.row().text("pcf").int(1_170_899);
//! let table = rows.finish();
//!
//! let dir = std::env::temp_dir().join(format!("doc-{}.ncpu", std::process::id()));
//! let mut writer = Writer::create(&dir, Manifest::new(Purpose::Run, 512, vec!["make".into()], 1.0))?;
//! writer.append(&table)?;
//! writer.flush()?;
//! writer.finish()?;
//!
//! let recording = Recording::open(&dir)?;
//! assert_eq!(recording.tables["locks"].int(0, "count"), Some(1_170_899));
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok(())
//! # }
//! ```

mod date;
mod digest;
mod gather;
mod join;
pub mod lockstat;
mod machine;
mod manifest;
mod read;
mod series;
mod sink;
mod stream;
mod sync;
pub mod tenants;
mod whole;
mod write;

use std::io;
use std::path::{Path, PathBuf};

pub use date::utc;
pub use gather::Gather;
pub use machine::Machine;
pub use manifest::{FORMAT, FileEntry, Manifest, Place, Shape, Throughput};
pub use read::{Opened, Recording, Selection};
pub use series::{Keep, Moment, Moments, Series};
pub use sink::{Incomplete, Sink, Target};
#[doc(hidden)]
pub use stream::recover as recover_stream;
pub use whole::Whole;
pub use write::Writer;

/// Errors of a recording. Every message names the file or directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an operation.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A recording is never overwritten.
    #[error("{} already holds a recording; choose another name, or remove it first", .0.display())]
    Exists(PathBuf),
    /// A directory of other files is not made into a recording.
    #[error("{} is neither empty nor a recording; expected a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// Recordings that follow one another, and are deleted by their age, need a separate directory.
    #[error("{} holds other files ({other}); expected a new or empty directory for these recordings alone", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of them.
        other: String,
    },
    /// The directory has no `manifest.json`.
    #[error("{} is not a recording: it has no manifest.json", .0.display())]
    NotARecording(PathBuf),
    /// The manifest is malformed.
    #[error("{}: {reason}; the recording's tables may still be read with any Parquet engine", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A newer `ncpu` wrote the recording.
    #[error(
        "{}: recording format {found} is newer than {FORMAT}, the newest this ncpu {} reads; use a newer ncpu",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    NewerFormat {
        /// The manifest.
        path: PathBuf,
        /// The format it names.
        found: u64,
    },
    /// The writer was interrupted, so the manifest has no checksums yet.
    #[error("{} is unfinished and has no checksums to verify; opening it recovers the written part", .0.display())]
    Unfinished(PathBuf),
    /// A file in the manifest's list does not exist.
    #[error("{} is missing, though the manifest lists it; copy the whole directory", .0.display())]
    Missing(PathBuf),
    /// A file differs from the written one.
    #[error("{} is damaged: {reason}; take it from a good copy of the recording", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// Another process writes recordings to the directory.
    #[error("{} is written to by another ncpu watch; stop it, or name another directory", .0.display())]
    Taken(PathBuf),
    /// A table's name becomes a file name.
    #[error("`{0}` cannot name a table of a recording; expected 1 to 64 of a-z A-Z 0-9 _ -")]
    TableName(String),
    /// A table keeps its columns for the length of a recording.
    #[error("table `{table}` began with columns {was} and cannot go on with {now}")]
    Columns {
        /// The table.
        table: String,
        /// The columns it began with.
        was: String,
        /// The columns of the new rows.
        now: String,
    },
    /// A table could not be encoded or combined.
    #[error("table `{table}`: {reason}")]
    Table {
        /// The table.
        table: String,
        /// The error of Arrow or Parquet.
        reason: String,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Error {
        Error::Io { path: path.into(), action, source }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Error {
        Error::Damaged { path: path.into(), reason: reason.into() }
    }

    pub(crate) fn table(table: &str, reason: impl std::fmt::Display) -> Error {
        Error::Table { table: table.into(), reason: reason.to_string() }
    }
}

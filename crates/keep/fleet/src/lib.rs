//! Many recordings as one table: rolled up, laid out for query engines, and queried through ADBC.
//!
//! A fleet is a directory or a prefix in an object store with a directory per table and below it
//! `date=…/hour=…/part-N.parquet`. A part never changes. It is put in place under the next free number, and
//! only if that number is still free. A writer that finds it taken reads the parts written meanwhile and
//! leaves out the recordings in them. So any number of writers lose and double nothing without a lock, and a
//! rerun adds nothing.
//!
//! Recordings are rolled up: no times, sums by kind in whole microseconds, host and labels in every row.
//! Whole numbers have the same sum in any order, so every engine gives the same digits, and shares are
//! quotients of such sums. Each table takes its own number (`link`, `If-None-Match: *`), the table
//! `recordings` last, so running an addition again completes an interrupted one. Questions are SQL files
//! (`sql/`) that DuckDB and Sail accept alike; verdicts (`regress`, `outliers`) are computed in Rust from
//! their rows. `ncpu` itself contains neither an engine nor a client of S3: it checks the arguments and
//! executes `ncpu-fleet`, which loads an engine's ADBC driver at run time.

pub mod add;
pub mod answers;
pub mod ask;
pub mod canary;
pub mod compact;
pub mod copies;
pub mod delta;
pub mod engine;
pub mod install;
pub mod labels;
pub mod outliers;
pub mod page;
pub mod parts;
pub mod regress;
pub mod rollup;
pub mod store;
pub mod tables;
mod threads;
pub mod when;

use std::path::PathBuf;

/// Errors of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option or argument is invalid.
    #[error("{0}")]
    Usage(String),
    /// A fleet is not in the expected state.
    #[error("{0}")]
    Fleet(String),
    /// A recording cannot be added.
    #[error("{}: {why}", path.display())]
    Recording {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file or object cannot be read or written.
    #[error("{name}: cannot {action}: {why}")]
    Store {
        /// Its name.
        name: String,
        /// The attempted action.
        action: &'static str,
        /// The error of the system or the server.
        why: String,
    },
    /// The engine failed, or does not exist.
    #[error("{0}")]
    Engine(String),
}

impl Error {
    pub(crate) fn store(name: impl Into<String>, action: &'static str, why: impl ToString) -> Error {
        Error::Store { name: name.into(), action, why: why.to_string() }
    }

    pub(crate) fn part(name: &str, why: &dyn std::fmt::Display) -> Error {
        Error::Fleet(format!(
            "{name} is damaged: {why}; remove it and add the recordings of that hour again, which restores its rows"
        ))
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

//! Many recordings as one table: rolled up, laid out for query engines, and asked through ADBC.
//!
//! A fleet is a directory or a prefix in an object store with a directory per table and below it
//! `date=…/hour=…/part-N.parquet`. A part never changes. It is put in place under the next free number, and only if
//! that is still free; whoever finds it taken reads what came in between and leaves out what is there already. So any
//! number of writers lose and double nothing without a lock, and a rerun adds nothing.
//!
//! Recordings are rolled up: no times, sums by kind in whole microseconds, host and labels in every row. Whole numbers sum to the same
//! in any order, so that every engine gives the same digits, and shares are quotients of such sums. Each table takes its own number
//! (`link`, `If-None-Match: *`), the table `recordings` last, so that running an addition again completes it where it was cut off.
//! Questions are files of SQL (`sql/`) that DuckDB and Sail take alike; verdicts (`regress`, `outliers`) are reached in Rust from their
//! rows. `ncpu` itself holds no engine and no client of S3: it checks the arguments and executes `ncpu-fleet`, which loads an engine's
//! ADBC driver at run time.

pub mod add;
pub mod answers;
pub mod ask;
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

/// What can go wrong with a fleet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option or argument says nothing.
    #[error("{0}")]
    Usage(String),
    /// A fleet is not what it should be.
    #[error("{0}")]
    Fleet(String),
    /// A recording cannot be taken.
    #[error("{}: {why}", path.display())]
    Recording {
        /// Where it is.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file or object cannot be read or written.
    #[error("{name}: cannot {action}: {why}")]
    Store {
        /// Which one.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the system or the server said.
        why: String,
    },
    /// The engine failed, or is not there.
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

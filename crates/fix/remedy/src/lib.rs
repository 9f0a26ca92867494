//! Changes to how a program runs: libraries loaded before its own, and commands that act on processes, CPUs and
//! memory. Each change is in the [`journal`] first.

use std::path::{Path, PathBuf};

mod chase;
pub mod colour;
mod confine;
pub mod fix;
pub mod group;
pub mod guard;
pub mod hugepages;
pub mod image;
pub mod journal;
pub mod launch;
pub mod overlay;
pub mod partition;
pub mod place;
pub mod preload;
pub mod program;
pub mod running;
pub mod schedule;
pub mod setting;
pub mod sys;
pub mod tenant;

/// Why a command of this crate failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The undo journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A program did not start.
    #[error(transparent)]
    Launch(#[from] launch::Error),
    /// The machine cannot be divided so.
    #[error(transparent)]
    Parts(#[from] partition::parts::Error),
    /// The policy cannot be had here.
    #[error(transparent)]
    Place(#[from] place::policy::Error),
    /// The request cannot be carried out.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The exit status of a program that was not started, as a shell has it; `None` for anything else.
    pub fn exit_status(&self) -> Option<u8> {
        match self {
            Error::Launch(e) => Some(e.exit_status()),
            _ => None,
        }
    }

    fn file(path: &Path, source: std::io::Error) -> Error {
        Error::File { path: path.to_owned(), source }
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

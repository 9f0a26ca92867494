//! Files that others may have prepared: read without being held up, written without being led astray.
//!
//! `ncpu` often runs as root and writes where others may write too (`/tmp`), and it reads recordings that others made.
//! So a directory is opened once and held, and names are looked up below it; what is written is a new file under a
//! temporary name that becomes visible by a rename and never follows a link; what is read is a regular file of a size
//! that was checked before a byte of it is taken.

mod dir;
mod guard;
mod new;
mod read;
pub mod reader;

pub use dir::{Dir, bounded};
pub use guard::guarded;
pub use new::NewFile;
pub use read::{MOST_TEXT, lines, open_regular, read, text};

/// Permissions of files that `ncpu` writes unless told otherwise: what was observed is the owner's business.
pub const PRIVATE: u32 = 0o600;

/// Permissions of a directory for files of these: who may read them may enter.
pub const fn directory_mode(files: u32) -> u32 {
    files | (files & 0o444) >> 2
}

//! Storage of a fleet: a directory, or a prefix in an object store.
//!
//! The crate `object_store` supports both. But its directories follow links, sync nothing and have no locks,
//! on which [`Store::lock`] and [`Store::put_new`] depend; and its S3 needs an asynchronous client of about a
//! hundred crates for five requests.

mod local;
mod s3;

use crate::{Error, Result};
use local::Local;
use s3::S3;

/// The file that marks a directory as a fleet.
pub const MARKER: &str = "ncpu-fleet.json";

/// The layout this version writes and the newest it reads.
const FORMAT: u64 = 1;

/// A file or object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name below the root.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The most bytes that are read of plans, journals and lists.
const MOST_OF_TEXT: u64 = 64 << 20;

/// The most bytes that are read of a file; `of_part`: of a part.
fn most_of(name: &str, of_part: u64) -> u64 {
    if name.ends_with(".parquet") { of_part } else { MOST_OF_TEXT }
}

/// The file system operations that a fleet needs. Names are relative to the root and separate their parts
/// with `/`.
pub trait Store: Send + Sync {
    /// Its name in messages.
    fn root(&self) -> &str;

    /// All files below a directory, at any depth; empty if the directory does not exist.
    ///
    /// # Errors
    /// It cannot be listed.
    fn list(&self, below: &str) -> Result<Vec<Entry>>;

    /// The bytes of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Makes a file that appears whole or not at all, and never replaces another. Returns whether the name
    /// was free.
    ///
    /// # Errors
    /// It cannot be written. The file then either does not exist, or is complete.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, name: &str) -> Result<()>;

    /// The directory, if the store is one on this machine.
    fn directory(&self) -> Option<&std::path::Path>;

    /// Locks the fleet until the returned value is dropped: queries and additions share the lock, a
    /// compaction holds it exclusively. An object store has no locks: there an addition leaves a note that
    /// [`Store::adding`] finds.
    ///
    /// # Errors
    /// The lock cannot be taken; `None` if another process holds it.
    fn lock(&self, hold: Hold) -> Result<Option<Box<dyn std::any::Any + Send>>>;

    /// Notes of additions in progress or interrupted, and their text; empty in stores with locks.
    ///
    /// # Errors
    /// They cannot be read.
    fn adding(&self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    /// Removes the partial files of interrupted additions. No addition may be running.
    ///
    /// # Errors
    /// It cannot be removed.
    fn sweep(&self) -> Result<()> {
        Ok(())
    }
}

/// The purpose of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Reading.
    Ask,
    /// Adding parts.
    Add,
    /// Removing parts.
    Alone,
}

/// Opens an existing fleet.
///
/// # Errors
/// The root does not exist, or is not a fleet.
pub fn open(root: &str) -> Result<Box<dyn Store>> {
    open_to_write(root, ncpu_files::PRIVATE)
}

/// As [`open`], with the permissions of files to write.
///
/// # Errors
/// As [`open`].
pub fn open_to_write(root: &str, mode: u32) -> Result<Box<dyn Store>> {
    let store = at(root, mode, false)?;
    match store.get(MARKER)? {
        Some(marker) => check(root, &marker)?,
        None => {
            return Err(Error::Fleet(format!(
                "{root} is not a fleet: it has no {MARKER}; `ncpu fleet add {root} DIR…` makes one"
            )));
        }
    }
    Ok(store)
}

/// Opens the fleet at a root, or makes one if the root does not exist.
///
/// # Errors
/// The root is something else, or cannot be written.
pub fn open_or_make(root: &str, mode: u32) -> Result<Box<dyn Store>> {
    let store = at(root, mode, true)?;
    if let Some(marker) = store.get(MARKER)? {
        check(root, &marker)?;
    } else {
        let found = store.list("")?;
        // Another process may just have made it.
        let made = || found.iter().any(|entry| entry.name == MARKER);
        if let Some(other) = found.first().filter(|_| !made()) {
            return Err(Error::Fleet(format!(
                "{root} is neither a fleet nor empty (it has {}); expected a new directory",
                other.name
            )));
        }
        // The name distinguishes a fleet from an earlier one at the same place: copies of parts are stored
        // under it.
        let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
        let marker = serde_json::json!({
            "ncpu_fleet": FORMAT, "ncpu_version": env!("CARGO_PKG_VERSION"), "name": name
        });
        let marker = format!("{marker}\n");
        store.put_new(MARKER, marker.as_bytes())?;
    }
    // Everything depends on this; some servers that speak S3 ignore the condition.
    if store.put_new(MARKER, b"")? {
        return Err(Error::Fleet(format!(
            "{root}: the server writes over objects although it was asked not to (If-None-Match): fleets need a \
             server that heeds it"
        )));
    }
    Ok(store)
}

/// The name of the fleet, chosen when it was made.
///
/// # Errors
/// Its marker cannot be read.
pub fn name(store: &dyn Store) -> Result<String> {
    let marker = store.get(MARKER)?.unwrap_or_default();
    let value: Option<serde_json::Value> = serde_json::from_slice(&marker).ok();
    let name = value.as_ref().and_then(|v| v.get("name")?.as_str()).unwrap_or_default();
    Ok(name.chars().filter(char::is_ascii_alphanumeric).collect())
}

fn at(root: &str, mode: u32, make: bool) -> Result<Box<dyn Store>> {
    match root.split_once("://") {
        Some(("s3", _)) => Ok(Box::new(S3::open(root)?)),
        Some((other, _)) => Err(Error::Usage(format!(
            "{root}: unknown store of fleets `{other}`; expected a directory or s3://BUCKET/PREFIX"
        ))),
        None => Ok(Box::new(Local::open(root, mode, make)?)),
    }
}

fn check(root: &str, marker: &[u8]) -> Result<()> {
    let value: Option<serde_json::Value> = serde_json::from_slice(marker).ok();
    match value.as_ref().and_then(|v| v.get("ncpu_fleet")?.as_u64()) {
        Some(1..=FORMAT) => Ok(()),
        Some(n) => Err(Error::Fleet(format!(
            "{root}: fleet format {n} is unknown to this ncpu; use a newer version"
        ))),
        None => Err(Error::Fleet(format!("{root} is not a fleet: invalid {MARKER}"))),
    }
}

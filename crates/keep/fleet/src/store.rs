//! Where a fleet is kept: a directory, or a prefix in an object store.
//!
//! Crate `object_store` has both. Its directories follow links, sync nothing and know no locks, on which [`Store::lock`] and
//! [`Store::put_new`] rest; its S3 needs an asynchronous client of some hundred crates for five requests.

mod local;
mod s3;

use crate::{Error, Result};
use local::Local;
use s3::S3;

/// The file that says that a directory is a fleet.
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

/// What a fleet needs of a file system. Names are relative to the root and have `/` between their parts.
pub trait Store: Send + Sync {
    /// What messages call it.
    fn root(&self) -> &str;

    /// Everything below a directory, at any depth; nothing where there is none.
    ///
    /// # Errors
    /// It cannot be listed.
    fn list(&self, below: &str) -> Result<Vec<Entry>>;

    /// The bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Makes a file that appears whole or not at all, and never takes the place of another; tells whether the name was
    /// free.
    ///
    /// # Errors
    /// It cannot be written. Then it is not there, or it is there whole.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// Removes a file; one that is gone is as good.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, name: &str) -> Result<()>;

    /// The directory, where it is one of this machine.
    fn directory(&self) -> Option<&std::path::Path>;

    /// Keeps others who call this from going on until the answer is dropped: those who ask and add share it, who compacts
    /// has it alone. An object store has no such thing: there an addition leaves a note that [`Store::adding`] finds.
    ///
    /// # Errors
    /// It cannot be had; `None` where somebody else has it.
    fn lock(&self, hold: Hold) -> Result<Option<Box<dyn std::any::Any + Send>>>;

    /// Notes of additions that are under way, or were cut off, and what they say; none where locks keep them off.
    ///
    /// # Errors
    /// They cannot be read.
    fn adding(&self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    /// Removes what additions that were cut off left half written. Nobody may be adding.
    ///
    /// # Errors
    /// It cannot be removed.
    fn sweep(&self) -> Result<()> {
        Ok(())
    }
}

/// What somebody is about to do with a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Reads it.
    Ask,
    /// Adds parts.
    Add,
    /// Takes parts away.
    Alone,
}

/// Opens the fleet at a root that must be one.
///
/// # Errors
/// There is nothing, or something else.
pub fn open(root: &str) -> Result<Box<dyn Store>> {
    open_to_write(root, ncpu_files::PRIVATE)
}

/// [`open`], for files of these permissions to be written.
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

/// Opens the fleet at a root, or makes one where there is nothing.
///
/// # Errors
/// There is something else, or it cannot be written.
pub fn open_or_make(root: &str, mode: u32) -> Result<Box<dyn Store>> {
    let store = at(root, mode, true)?;
    if let Some(marker) = store.get(MARKER)? {
        check(root, &marker)?;
    } else {
        let found = store.list("")?;
        // Somebody else may just have made it.
        let made = || found.iter().any(|entry| entry.name == MARKER);
        if let Some(other) = found.first().filter(|_| !made()) {
            return Err(Error::Fleet(format!(
                "{root} is not a fleet and not empty, it has {}: name a new directory",
                other.name
            )));
        }
        // The name tells a fleet from one that was here before: copies of parts are kept by it.
        let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
        let marker = serde_json::json!({
            "ncpu_fleet": FORMAT, "ncpu_version": env!("CARGO_PKG_VERSION"), "name": name
        });
        let marker = format!("{marker}\n");
        store.put_new(MARKER, marker.as_bytes())?;
    }
    // Everything rests on this; some servers that speak S3 ignore the condition.
    if store.put_new(MARKER, b"")? {
        return Err(Error::Fleet(format!(
            "{root}: the server writes over objects although it was asked not to (If-None-Match): fleets need a \
             server that heeds it"
        )));
    }
    Ok(store)
}

/// The name that the fleet got when it was made.
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
        Some(n) => {
            Err(Error::Fleet(format!("{root}: fleet format {n} is not known to this ncpu: use a newer one")))
        }
        None => Err(Error::Fleet(format!("{root} is not a fleet: its {MARKER} does not say so"))),
    }
}

//! Reading a recording, whether finished or interrupted.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ncpu_files::Dir;
use ncpu_schema::{Purpose, Tables};
use ncpu_table::{Budget, Table, read_parquet};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::manifest::{MANIFEST, table_of};
use crate::stream::recover;
use crate::write::{PARQUET, STREAM};
use crate::{Error, FileEntry, Manifest, Result, Writer};

/// A recording in memory: read from disk by [`Recording::open`] or gathered live by [`crate::Gather`].
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The manifest.
    pub manifest: Manifest,
    /// Its name in messages: its path, or `this observation`.
    pub name: String,
    /// The tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Tables that were recovered because the writer did not finish; they may lack the last interval.
    pub recovered: Vec<String>,
    /// Notes for the user: bytes dropped in recovery, ignored files.
    pub notes: Vec<String>,
    /// The selected tables; `None` for all.
    pub selection: Option<Selection>,
}

/// Tables by name, and the columns to read; an empty list is all columns.
pub type Selection = &'static [(&'static str, &'static [&'static str])];

/// The selected columns of a table; `None` for all.
fn selected(selection: Option<Selection>, table: &str) -> Option<&'static [&'static str]> {
    let (_, columns) = selection?.iter().find(|(name, _)| *name == table)?;
    (!columns.is_empty()).then_some(*columns)
}

impl Tables for Recording {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema(&self) -> u32 {
        self.manifest.schema
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.get(name)
    }

    fn read(&self, table: &str) -> Option<&'static [&'static str]> {
        selected(self.selection, table)
    }
}

impl Recording {
    /// A recording in memory without tables; it cannot be interrupted.
    pub fn new(manifest: Manifest) -> Recording {
        Recording {
            manifest: Manifest { complete: true, ..manifest },
            name: "this observation".into(),
            tables: BTreeMap::new(),
            recovered: Vec::new(),
            notes: Vec::new(),
            selection: None,
        }
    }

    /// A recording without data except an empty table: its views have their usual columns.
    pub fn empty(purpose: Purpose, table: Table) -> Recording {
        Recording::new(Manifest::new(purpose, 1, Vec::new(), 1.0)).with(table)
    }

    /// The recording with this table, which replaces one of the same name.
    pub fn with(mut self, table: Table) -> Recording {
        self.tables.insert(table.name().into(), table);
        self
    }

    /// The kind of recording. For recordings made before manifests contained it, the tables decide.
    pub fn purpose(&self) -> Purpose {
        let has = |name: &str| self.tables.contains_key(name);
        self.manifest.kind.unwrap_or_else(|| match () {
            () if has("curves") => Purpose::Scale,
            () if has("cpu_time") => Purpose::Run,
            () if has("numa_processes") => Purpose::Numa,
            () => Purpose::Other,
        })
    }

    /// Reads a recording. Each file is checked against its checksum. If the writer did not finish, each
    /// stream is read up to its cut, and [`Recording::recovered`] and [`Recording::notes`] say so.
    ///
    /// # Errors
    /// The directory is not a recording or has a newer format, or a file is missing or damaged; the error
    /// names the file.
    pub fn open(dir: &Path) -> Result<Recording> {
        Opened::open(dir)?.tables(None)
    }

    /// Checks every file of a recording against the manifest without decoding it.
    ///
    /// # Errors
    /// As [`Recording::open`]; also if the writer did not finish, because then there are no checksums.
    pub fn verify(dir: &Path) -> Result<Manifest> {
        let Opened { dir, manifest, .. } = Opened::open(dir)?;
        if !manifest.complete {
            return Err(Error::Unfinished(dir.path().into()));
        }
        for (name, entry) in &manifest.files {
            checked(&dir, name, entry, None)?;
        }
        Ok(manifest)
    }

    /// Writes the recording to a new directory.
    ///
    /// # Errors
    /// As [`Writer::create`], [`Writer::append`] and [`Writer::finish`].
    pub fn save(&self, dir: &Path) -> Result<()> {
        let mut writer = Writer::create(dir, self.manifest.clone())?;
        for table in self.tables.values() {
            writer.append(table)?;
        }
        writer.finish()
    }

    /// The latest time in the tables, in seconds from the start; `None` if no table has times.
    pub fn until(&self) -> Option<f64> {
        let times = |t: &Table| (0..t.num_rows()).filter_map(|r| t.number(r, "t")).reduce(f64::max);
        self.tables.values().filter_map(times).reduce(f64::max)
    }

    fn uses(&self, name: &str) -> bool {
        if name == MANIFEST {
            return true;
        }
        if self.manifest.complete {
            return self.manifest.files.contains_key(name);
        }
        // Unfinished: the streams, and Parquet files of an interrupted finish.
        let left = name.strip_suffix(".tmp").unwrap_or(name);
        table_of(name, STREAM).is_some() || left == MANIFEST || table_of(left, PARQUET).is_some()
    }

    /// Gives the tables of recordings before version 3 of the schema their present names: `counters` were an
    /// interval's events, `hardware` the processors' counts. Their columns distinguish them, so a recording
    /// that was read and written again keeps its tables.
    fn rename_old_tables(&mut self) {
        let per_interval = |table: &Table| table.columns().iter().all(|c| c.name != "CPU");
        if self.tables.get("counters").is_some_and(per_interval) {
            let events = self.tables.remove("counters").map(|t| t.renamed("events"));
            self.tables.extend(events.map(|t| ("events".into(), t)));
        }
        if let Some(counted) = self.tables.remove("hardware") {
            self.tables.entry("counters".into()).or_insert_with(|| counted.renamed("counters"));
        }
    }

    /// Removes impossible numbers, which a recording of another machine may contain.
    fn leave_impossible_out(&mut self) -> Result<()> {
        for (name, table) in std::mem::take(&mut self.tables) {
            let (table, count) = table.possible().map_err(|e| Error::table(&name, e))?;
            if count > 0 {
                self.notes.push(format!("table {name}: {count} impossible numbers were left out"));
            }
            self.tables.insert(name, table);
        }
        Ok(())
    }

    fn read_files(&mut self, dir: &Dir, budget: &mut Budget) -> Result<()> {
        for (name, entry) in &self.manifest.files {
            // `parse` rejects every other name.
            let Some(table) = table_of(name, PARQUET).filter(|t| wanted(self.selection, t)) else { continue };
            let path = dir.path().join(name);
            let bytes = checked(dir, name, entry, Some(budget))?;
            let rows = parquet(&path, table, bytes, entry.rows, self.selection, budget)?;
            self.tables.insert(table.into(), rows);
        }
        Ok(())
    }

    fn recover(&mut self, dir: &Dir, names: &[String], budget: &mut Budget) -> Result<()> {
        for name in names {
            let Some(table) = table_of(name, STREAM).filter(|t| wanted(self.selection, t)) else { continue };
            let path = dir.path().join(name);
            let failed = |e| Error::io(&path, "read", e);
            let file = dir.open_file(name).map_err(failed)?;
            charge(&file.metadata().map_err(failed)?, budget)
                .map_err(|e| Error::damaged(&path, e.to_string()))?;
            let bytes = ncpu_files::bounded(file, MOST).map_err(failed)?;
            let Some(found) = recover(&bytes).map_err(|why| Error::damaged(&path, why))? else {
                self.notes.push(format!("{} was cut off before its first interval", path.display()));
                continue;
            };
            if let Some(why) = found.why {
                self.notes.push(format!(
                    "{}: the last {} of {} bytes were dropped: {why}",
                    path.display(),
                    found.dropped,
                    bytes.len()
                ));
            }
            let rows = Table::of_batches(table, &found.schema, &found.batches);
            self.tables.insert(table.into(), rows.map_err(|e| Error::table(table, e))?);
            self.recovered.push(table.into());
        }
        Ok(())
    }
}

/// A recording with its manifest read, but no table yet.
#[derive(Debug)]
pub struct Opened {
    dir: Dir,
    /// The manifest.
    pub manifest: Manifest,
    /// The text of the manifest. It contains the checksum of each file, so it identifies the whole recording.
    pub text: String,
}

impl Opened {
    /// Reads the manifest of a recording.
    ///
    /// # Errors
    /// The directory is not a recording or has a newer format.
    pub fn open(dir: &Path) -> Result<Opened> {
        Opened::in_dir(held(dir)?)
    }

    /// [`Opened::open`] for an open directory.
    pub(crate) fn in_dir(dir: Dir) -> Result<Opened> {
        let (manifest, text) = Manifest::read_in(&dir)?;
        Ok(Opened { dir, manifest, text })
    }

    /// Reads the selected tables, or all. The files of the others are neither read nor checked, and with a
    /// selection the meanings of columns are not read.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn tables(self, selection: Option<Selection>) -> Result<Recording> {
        let dir = &self.dir;
        let mut recording = Recording {
            manifest: self.manifest,
            name: dir.path().display().to_string(),
            tables: BTreeMap::new(),
            recovered: Vec::new(),
            notes: Vec::new(),
            selection,
        };
        // Selections are for many recordings at a time.
        let mut budget = match selection {
            Some(_) => Budget::new(LEAST_OF_MANY, MOST_OF_MANY),
            None => Budget::new(LEAST, MOST),
        };
        // With a selection, foreign files are not reported.
        let names = match recording.manifest.complete && selection.is_some() {
            true => Vec::new(),
            false => dir.names().map_err(|e| Error::io(dir.path(), "list", e))?,
        };
        if recording.manifest.complete {
            recording.read_files(dir, &mut budget)?;
        } else {
            recording.recover(dir, &names, &mut budget)?;
        }
        recording.rename_old_tables();
        recording.leave_impossible_out()?;
        for name in names {
            if !recording.uses(&name) {
                recording.notes.push(format!(
                    "{} does not belong to the recording: ignored",
                    dir.path().join(name).display()
                ));
            }
        }
        Ok(recording)
    }
}

/// The most bytes of one table's file that are read, and the most memory of all tables: an Arrow array holds
/// 2 GiB of text.
const MOST: u64 = 4 << 30;

/// The memory that the tables of a recording may take even if it has few bytes on disk.
const LEAST: u64 = 256 << 20;

/// The same for one of many recordings that are read at once, and the most for a large one.
const LEAST_OF_MANY: u64 = 64 << 20;
const MOST_OF_MANY: u64 = 1 << 30;

/// Adds a file to the budget. The holes of a sparse file take no disk space, so they add nothing and are
/// subtracted.
fn charge(file: &Metadata, budget: &mut Budget) -> ncpu_table::Result<()> {
    let on_disk = file.len().min(file.blocks().saturating_mul(512));
    budget.add_file(on_disk);
    budget.take(file.len() - on_disk)
}

fn held(dir: &Path) -> Result<Dir> {
    Dir::open(dir).map_err(|e| match e.kind() {
        io::ErrorKind::NotADirectory => Error::NotARecording(dir.into()),
        _ => Error::io(dir, "open", e),
    })
}

/// The bytes of a file that match the manifest. Its length is checked before any byte is read.
fn checked(dir: &Dir, name: &str, entry: &FileEntry, budget: Option<&mut Budget>) -> Result<Vec<u8>> {
    let path = &dir.path().join(name);
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Error::Missing(path.into()),
        _ => Error::io(path, "read", e),
    };
    let file = dir.open_file(name).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    let found = metadata.len();
    if found < entry.bytes {
        return Err(Error::damaged(path, format!("it is truncated to {found} of {} bytes", entry.bytes)));
    }
    if found > entry.bytes {
        return Err(Error::damaged(path, format!("it has {found} bytes instead of {}", entry.bytes)));
    }
    if let Some(budget) = budget {
        charge(&metadata, budget).map_err(|e| Error::damaged(path, e.to_string()))?;
    }
    let bytes = ncpu_files::bounded(file, MOST).map_err(refused)?;
    if bytes.len() as u64 != entry.bytes {
        return Err(Error::damaged(path, "it changed while it was read"));
    }
    let mut hash = Sha256::new();
    hash.update(&bytes);
    let found = hex(hash);
    if found != entry.sha256 {
        return Err(Error::damaged(path, format!("its SHA-256 is {found} instead of {}", entry.sha256)));
    }
    Ok(bytes)
}

fn wanted(selection: Option<Selection>, table: &str) -> bool {
    selection.is_none_or(|selection| selection.iter().any(|(name, _)| *name == table))
}

fn parquet(
    path: &Path,
    table: &str,
    bytes: Vec<u8>,
    rows: u64,
    selection: Option<Selection>,
    budget: &mut Budget,
) -> Result<Table> {
    if !bytes.starts_with(b"PAR1") {
        return Err(Error::damaged(path, "it is not a Parquet file"));
    }
    let columns = selected(selection, table);
    let wanted = |c: &str| columns.is_none_or(|columns| columns.contains(&c));
    // Reading the meanings takes long compared with few rows.
    let read = read_parquet(table, bytes, Some(rows), budget, wanted, selection.is_none());
    read.map_err(|e| Error::damaged(path, e.to_string()))
}

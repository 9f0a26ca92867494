//! Reading a recording, whole or cut off.

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
    /// What was recorded.
    pub manifest: Manifest,
    /// What messages call it: its path, or `this observation`.
    pub name: String,
    /// The tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Tables that were recovered because the writer did not finish; they may lack the last interval.
    pub recovered: Vec<String>,
    /// What the reader should know: bytes dropped in recovery, files ignored.
    pub notes: Vec<String>,
    /// What was read of it; nothing where that is all.
    pub selection: Option<Selection>,
}

/// Tables by name, and their columns that are read; of those without a list all.
pub type Selection = &'static [(&'static str, &'static [&'static str])];

/// The columns of a table that are selected; nothing where that is all.
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
    /// A recording without tables, in memory, which nothing can cut short.
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

    /// A recording in which nothing was seen but for an empty table: its views have the columns that they will have.
    pub fn empty(purpose: Purpose, table: Table) -> Recording {
        Recording::new(Manifest::new(purpose, 1, Vec::new(), 1.0)).with(table)
    }

    /// The recording with this table, which replaces one of the same name.
    pub fn with(mut self, table: Table) -> Recording {
        self.tables.insert(table.name().into(), table);
        self
    }

    /// What it is a recording of. For recordings made before manifests said so, the tables decide.
    pub fn purpose(&self) -> Purpose {
        let has = |name: &str| self.tables.contains_key(name);
        self.manifest.kind.unwrap_or_else(|| match () {
            () if has("curves") => Purpose::Scale,
            () if has("cpu_time") => Purpose::Run,
            () if has("numa_processes") => Purpose::Numa,
            () => Purpose::Other,
        })
    }

    /// Reads a recording. Each file is checked against its checksum; if the writer did not finish,
    /// each stream is read up to where it was cut off, and [`Recording::recovered`] and
    /// [`Recording::notes`] say so.
    ///
    /// # Errors
    /// The directory is no recording or of a newer format, or a file is missing or damaged; the
    /// error names the file.
    pub fn open(dir: &Path) -> Result<Recording> {
        Opened::open(dir)?.tables(None)
    }

    /// Checks every file of a recording against the manifest without decoding it.
    ///
    /// # Errors
    /// As [`Recording::open`]; also when the writer did not finish, as there is nothing to check
    /// against.
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

    /// Until when the tables go, in seconds from the start; `None` where no table has times.
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
        // Unfinished: the streams, and Parquet files of a finish that did not come to its end.
        let left = name.strip_suffix(".tmp").unwrap_or(name);
        table_of(name, STREAM).is_some() || left == MANIFEST || table_of(left, PARQUET).is_some()
    }

    /// Gives the tables of recordings before version 3 of the schema their names of today: `counters` were an
    /// interval's events, `hardware` what processors count. Told apart by their columns, so that a recording that
    /// was read and written again keeps its tables.
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

    /// Leaves out numbers that nothing can have, as a recording of another machine may hold them.
    fn leave_impossible_out(&mut self) -> Result<()> {
        for (name, table) in std::mem::take(&mut self.tables) {
            let (table, count) = table.possible().map_err(|e| Error::table(&name, e))?;
            if count > 0 {
                self.notes.push(format!("table {name}: {count} numbers are impossible: left out"));
            }
            self.tables.insert(name, table);
        }
        Ok(())
    }

    fn read_files(&mut self, dir: &Dir, budget: &mut Budget) -> Result<()> {
        for (name, entry) in &self.manifest.files {
            // `parse` let no other name through.
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

/// A recording whose manifest has been read, and no table yet.
#[derive(Debug)]
pub struct Opened {
    dir: Dir,
    /// What was recorded.
    pub manifest: Manifest,
    /// The manifest as it is written. It holds the checksum of each file, so it stands for the whole recording.
    pub text: String,
}

impl Opened {
    /// Reads the manifest of a recording.
    ///
    /// # Errors
    /// The directory is no recording or of a newer format.
    pub fn open(dir: &Path) -> Result<Opened> {
        Opened::in_dir(held(dir)?)
    }

    /// [`Opened::open`] of a directory that is open.
    pub(crate) fn in_dir(dir: Dir) -> Result<Opened> {
        let (manifest, text) = Manifest::read_in(&dir)?;
        Ok(Opened { dir, manifest, text })
    }

    /// Reads those tables that are selected, else all. The files of the others are neither read nor checked, and what
    /// columns mean is not read where there is a selection.
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
        // Selections are of many recordings at a time.
        let mut budget = match selection {
            Some(_) => Budget::new(LEAST_OF_MANY, MOST_OF_MANY),
            None => Budget::new(LEAST, MOST),
        };
        // Who selects tables is not told of files that are none.
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

/// Bytes of one table's file that are read at most, and the memory that all tables may take: an array of Arrow holds 2 GiB of
/// text.
const MOST: u64 = 4 << 30;

/// Memory that the tables of a recording may take however few bytes it has on disk.
const LEAST: u64 = 256 << 20;

/// The same of one of many recordings that are read at once, and the most of one with many bytes.
const LEAST_OF_MANY: u64 = 64 << 20;
const MOST_OF_MANY: u64 = 1 << 30;

/// Adds a file to the budget. Bytes that take no room on disk, in the holes of a sparse file, add nothing and are taken out.
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

/// The bytes of a file that are exactly those the manifest tells of. Its length is looked at before any is read.
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
        return Err(Error::damaged(path, "it is no Parquet file"));
    }
    let columns = selected(selection, table);
    let wanted = |c: &str| columns.is_none_or(|columns| columns.contains(&c));
    // Meanings take long to read where there are few rows.
    let read = read_parquet(table, bytes, Some(rows), budget, wanted, selection.is_none());
    read.map_err(|e| Error::damaged(path, e.to_string()))
}

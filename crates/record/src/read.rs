//! Reading a recording, whole or cut off.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use ncpu_table::Table;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sha2::{Digest, Sha256};

use crate::gather::join;
use crate::manifest::{MANIFEST, table_of};
use crate::stream::recover;
use crate::write::{PARQUET, STREAM, hex};
use crate::{Error, FileEntry, Gather, Manifest, Result, Writer};

/// A recording in memory: read from disk by [`Recording::open`] or gathered live by [`Gather`].
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was recorded.
    pub manifest: Manifest,
    /// The tables by name.
    pub tables: BTreeMap<String, Table>,
    /// Tables that were recovered because the writer did not finish; they may lack the last interval.
    pub recovered: Vec<String>,
    /// What the reader should know: bytes dropped in recovery, files ignored.
    pub notes: Vec<String>,
}

impl Recording {
    /// Reads a recording. Each file is checked against its checksum; if the writer did not finish,
    /// each stream is read up to where it was cut off, and [`Recording::recovered`] and
    /// [`Recording::notes`] say so.
    ///
    /// # Errors
    /// The directory is no recording or of a newer format, or a file is missing or damaged; the
    /// error names the file.
    pub fn open(dir: &Path) -> Result<Recording> {
        let manifest = Manifest::read(dir)?;
        let mut recording =
            Recording { manifest, tables: BTreeMap::new(), recovered: Vec::new(), notes: Vec::new() };
        let names = list(dir)?;
        if recording.manifest.complete {
            recording.read_files(dir)?;
        } else {
            recording.recover(dir, &names)?;
        }
        for name in names {
            if !recording.uses(&name) {
                recording
                    .notes
                    .push(format!("{} is no part of the recording: ignored", dir.join(name).display()));
            }
        }
        Ok(recording)
    }

    /// Checks every file of a recording against the manifest without decoding it.
    ///
    /// # Errors
    /// As [`Recording::open`]; also when the writer did not finish, as there is nothing to check
    /// against.
    pub fn verify(dir: &Path) -> Result<Manifest> {
        let manifest = Manifest::read(dir)?;
        if !manifest.complete {
            return Err(Error::Unfinished(dir.into()));
        }
        for (name, entry) in &manifest.files {
            checked(&dir.join(name), entry)?;
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

    /// Starts to gather a recording in memory.
    pub fn gather(manifest: Manifest) -> Gather {
        Gather::new(manifest)
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

    fn read_files(&mut self, dir: &Path) -> Result<()> {
        for (name, entry) in &self.manifest.files {
            let path = dir.join(name);
            let bytes = checked(&path, entry)?;
            // `parse` let no other name through.
            let Some(table) = table_of(name, PARQUET) else { continue };
            let rows = parquet(&path, table, bytes)?;
            if rows.num_rows() as u64 != entry.rows {
                return Err(Error::damaged(
                    &path,
                    format!("it holds {} rows and the manifest says {}", rows.num_rows(), entry.rows),
                ));
            }
            self.tables.insert(table.into(), rows);
        }
        Ok(())
    }

    fn recover(&mut self, dir: &Path, names: &[String]) -> Result<()> {
        for name in names {
            let Some(table) = table_of(name, STREAM) else { continue };
            let path = dir.join(name);
            let bytes = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
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
            self.tables.insert(table.into(), join(table, &found.schema, &found.batches)?);
            self.recovered.push(table.into());
        }
        Ok(())
    }
}

fn list(dir: &Path) -> Result<Vec<String>> {
    let run = || {
        let mut names = fs::read_dir(dir)?
            .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    run().map_err(|e| Error::io(dir, "list", e))
}

/// The bytes of a file that are exactly those the manifest tells of.
fn checked(path: &Path, entry: &FileEntry) -> Result<Vec<u8>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Missing(path.into())),
        Err(e) => return Err(Error::io(path, "read", e)),
    };
    let found = bytes.len() as u64;
    if found < entry.bytes {
        return Err(Error::damaged(path, format!("it is truncated to {found} of {} bytes", entry.bytes)));
    }
    if found > entry.bytes {
        return Err(Error::damaged(path, format!("it has {found} bytes instead of {}", entry.bytes)));
    }
    let mut hash = Sha256::new();
    hash.update(&bytes);
    let found = hex(hash);
    if found != entry.sha256 {
        return Err(Error::damaged(path, format!("its SHA-256 is {found} instead of {}", entry.sha256)));
    }
    Ok(bytes)
}

fn parquet(path: &Path, table: &str, bytes: Vec<u8>) -> Result<Table> {
    let read = || -> Result<Table, String> {
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).map_err(|e| e.to_string())?;
        let schema = reader.schema().clone();
        let reader = reader.build().map_err(|e| e.to_string())?;
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
        join(table, &schema, &batches).map_err(|e| e.to_string())
    };
    // The checksum guards against damage, not against a file made to deceive, and the Parquet reader
    // does not promise to take every such file without a panic.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(table)) => Ok(table),
        Ok(Err(why)) => Err(Error::damaged(path, why)),
        Err(_) => Err(Error::damaged(path, "the Parquet reader gave up on it")),
    }
}

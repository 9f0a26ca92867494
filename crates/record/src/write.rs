//! Writing a recording so that nothing but the last interval can be lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use ncpu_table::Table;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use crate::gather::{same_columns, with_schema};
use crate::manifest::{MANIFEST, is_table_name};
use crate::sync::Syncer;
use crate::{Error, FileEntry, Manifest, Result};

pub(crate) const STREAM: &str = ".arrows";
pub(crate) const PARQUET: &str = ".parquet";

/// A recording being written.
///
/// Dropped without [`Writer::finish`] it leaves what was flushed, for the next reader to recover.
pub struct Writer {
    dir: PathBuf,
    manifest: Manifest,
    streams: BTreeMap<String, Stream>,
    syncer: Syncer,
}

struct Stream {
    path: PathBuf,
    file: Arc<File>,
    first: Table,
    writer: StreamWriter<BufWriter<Arc<File>>>,
    rows: u64,
    dirty: bool,
}

impl Writer {
    /// Makes the directory (an empty one is taken) and writes the manifest, marked incomplete.
    ///
    /// # Errors
    /// The directory holds a recording or other files, or cannot be made or written.
    pub fn create(dir: &Path, mut manifest: Manifest) -> Result<Writer> {
        match fs::create_dir(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if dir.join(MANIFEST).exists() {
                    return Err(Error::Exists(dir.into()));
                }
                let mut entries = fs::read_dir(dir).map_err(|e| Error::io(dir, "write a recording to", e))?;
                if entries.next().is_some() {
                    return Err(Error::NotEmpty(dir.into()));
                }
            }
            Err(e) => return Err(Error::io(dir, "make the directory", e)),
        }
        manifest.complete = false;
        manifest.files.clear();
        manifest.write(dir)?;
        let syncer = Syncer::start().map_err(|e| Error::io(dir, "start a thread to sync", e))?;
        Ok(Writer { dir: dir.into(), manifest, streams: BTreeMap::new(), syncer })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest, to add notes to; [`Writer::finish`] writes it.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Adds a table's rows to those of the same name.
    ///
    /// # Errors
    /// The name is not one a recording can have, the columns are not those the table began with, or
    /// the stream cannot be written.
    pub fn append(&mut self, table: &Table) -> Result<()> {
        let name = table.name();
        if !is_table_name(name) {
            return Err(Error::TableName(name.into()));
        }
        if table.columns().is_empty() {
            return Err(Error::table(name, "a table of no columns cannot be recorded"));
        }
        if !self.streams.contains_key(name) {
            self.streams.insert(name.into(), Stream::create(&self.dir, table)?);
        }
        let Some(stream) = self.streams.get_mut(name) else { return Ok(()) };
        same_columns(&stream.first, table)?;
        let batch = with_schema(table, &stream.first.batch().schema())?;
        stream.writer.write(&batch).map_err(|e| arrow_error(&stream.path, name, e))?;
        stream.rows += batch.num_rows() as u64;
        stream.dirty = true;
        Ok(())
    }

    /// Hands what was appended to the system (a kill loses nothing of it) and has it synced to disk
    /// behind our back (a power loss loses at most what is younger than that).
    ///
    /// # Errors
    /// A stream cannot be written, or an earlier sync failed.
    pub fn flush(&mut self) -> Result<()> {
        let mut files = Vec::new();
        for stream in self.streams.values_mut().filter(|s| s.dirty) {
            stream.writer.get_mut().flush().map_err(|e| Error::io(&stream.path, "write", e))?;
            stream.dirty = false;
            files.push((stream.path.clone(), Arc::clone(&stream.file)));
        }
        self.syncer.sync(files)
    }

    /// Turns the streams into Parquet, writes the manifest with their checksums and removes them.
    /// Whatever goes wrong before the manifest is in place leaves the streams for recovery.
    ///
    /// # Errors
    /// A file cannot be written or read back.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        let mut done = Vec::new();
        for (name, stream) in std::mem::take(&mut self.streams) {
            let Stream { path, writer, rows, .. } = stream;
            drop(writer);
            let (file, entry) = convert(&self.dir, &name, &path, rows)?;
            self.manifest.files.insert(file, entry);
            done.push(path);
        }
        self.manifest.complete = true;
        self.manifest.write(&self.dir)?;
        for path in done {
            fs::remove_file(&path).map_err(|e| Error::io(&path, "remove", e))?;
        }
        Ok(())
    }
}

impl Stream {
    fn create(dir: &Path, table: &Table) -> Result<Stream> {
        let path = dir.join(format!("{}{STREAM}", table.name()));
        let file = File::options().write(true).create_new(true).open(&path);
        let file = Arc::new(file.map_err(|e| Error::io(&path, "create", e))?);
        let buffered = BufWriter::new(Arc::clone(&file));
        let writer = StreamWriter::try_new(buffered, &table.batch().schema())
            .map_err(|e| arrow_error(&path, table.name(), e))?;
        Ok(Stream { path, file, first: table.clone(), writer, rows: 0, dirty: true })
    }
}

/// Reads a stream batch by batch into a Parquet file; yields the file's name and entry.
fn convert(dir: &Path, table: &str, stream: &Path, rows: u64) -> Result<(String, FileEntry)> {
    let name = format!("{table}{PARQUET}");
    let path = dir.join(&name);
    let temporary = dir.join(format!("{name}.tmp"));
    let run = || -> Result<FileEntry> {
        let source = File::open(stream).map_err(|e| Error::io(stream, "read back", e))?;
        let reader =
            StreamReader::try_new(BufReader::new(source), None).map_err(|e| arrow_error(stream, table, e))?;
        let target = File::create(&temporary).map_err(|e| Error::io(&temporary, "create", e))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let failed = |e| parquet_error(&temporary, table, e);
        let mut writer = ArrowWriter::try_new(&target, reader.schema(), Some(properties)).map_err(failed)?;
        let mut written = 0;
        for batch in reader {
            let batch = batch.map_err(|e| arrow_error(stream, table, e))?;
            written += batch.num_rows() as u64;
            writer.write(&batch).map_err(failed)?;
        }
        writer.close().map_err(failed)?;
        target.sync_all().map_err(|e| Error::io(&temporary, "sync to disk", e))?;
        if written != rows {
            return Err(Error::damaged(stream, format!("{rows} rows were written and {written} read back")));
        }
        let (bytes, sha256) = checksum(&temporary)?;
        fs::rename(&temporary, &path).map_err(|e| Error::io(&path, "rename to", e))?;
        Ok(FileEntry { rows, bytes, sha256 })
    };
    match run() {
        Ok(entry) => Ok((name, entry)),
        Err(e) => {
            // On a full disk every byte given back helps the next reader.
            let _ = fs::remove_file(&temporary);
            Err(e)
        }
    }
}

fn checksum(path: &Path) -> Result<(u64, String)> {
    let run = || {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok((bytes, hex(hash))),
                n => {
                    hash.update(&buffer[..n]);
                    bytes += n as u64;
                }
            }
        }
    };
    run().map_err(|e| Error::io(path, "read back", e))
}

pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Keeps the system's error, which names the cause (no space), when there is one inside.
fn arrow_error(path: &Path, table: &str, error: arrow_schema::ArrowError) -> Error {
    match error {
        arrow_schema::ArrowError::IoError(_, source) => Error::io(path, "write", source),
        other => Error::table(table, other),
    }
}

fn parquet_error(path: &Path, table: &str, error: parquet::errors::ParquetError) -> Error {
    if let parquet::errors::ParquetError::External(inner) = error {
        return match inner.downcast::<io::Error>() {
            Ok(source) => Error::io(path, "write", *source),
            Err(other) => Error::table(table, other),
        };
    }
    Error::table(table, error)
}

//! Writes a recording so that at most the last interval can be lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_ipc::writer::StreamWriter;
use ncpu_files::{Dir, PRIVATE};
use ncpu_table::{ParquetWriter, Table};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::join::{like, unlike, with_schema};
use crate::manifest::{MANIFEST, begin, is_table_name, temporary};
use crate::stream::Batches;
use crate::sync::Syncer;
use crate::{Error, FileEntry, Manifest, Result};

pub(crate) const STREAM: &str = ".arrows";
pub(crate) const PARQUET: &str = ".parquet";

/// A recording being written.
///
/// Dropped without [`Writer::finish`] it leaves the flushed part, for the next reader to recover.
pub struct Writer {
    dir: Dir,
    mode: u32,
    manifest: Manifest,
    streams: BTreeMap<String, Stream>,
    syncer: Syncer,
    bytes: u64,
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
    /// Makes the directory (an existing empty one is used) and writes the manifest, marked incomplete. Only
    /// the owner may read the files.
    ///
    /// # Errors
    /// The directory contains a recording or other files, or cannot be made or written.
    pub fn create(dir: &Path, manifest: Manifest) -> Result<Writer> {
        Writer::create_with(dir, manifest, PRIVATE)
    }

    /// As [`Writer::create`], with the given permissions of files; users that may read them may enter the
    /// directory.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_with(path: &Path, manifest: Manifest, mode: u32) -> Result<Writer> {
        let dir = match Dir::make(path, mode) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let refused = |e| Error::io(path, "write a recording to", e);
                let dir = Dir::open(path).map_err(refused)?;
                let names = dir.names().map_err(refused)?;
                if names.iter().any(|n| n == MANIFEST) {
                    return Err(Error::Exists(path.into()));
                }
                if !names.is_empty() {
                    return Err(Error::NotEmpty(path.into()));
                }
                dir
            }
            Err(e) => return Err(Error::io(path, "make the directory", e)),
        };
        Writer::begin(dir, manifest, mode)
    }

    /// As [`Writer::create_with`], for a new directory in an open one.
    pub(crate) fn create_in(parent: &Dir, name: &str, manifest: Manifest, mode: u32) -> Result<Writer> {
        let failed = |e| Error::io(&parent.path().join(name), "make the directory", e);
        let dir = parent.make_in(name, mode).map_err(failed)?;
        Writer::begin(dir, manifest, mode)
    }

    fn begin(dir: Dir, mut manifest: Manifest, mode: u32) -> Result<Writer> {
        manifest.complete = false;
        manifest.files.clear();
        manifest.write(&dir, mode)?;
        let syncer = Syncer::start().map_err(|e| Error::io(dir.path(), "start a thread to sync", e))?;
        Ok(Writer { dir, mode, manifest, streams: BTreeMap::new(), syncer, bytes: 0 })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Bytes of the appended rows: nearly the length of the streams.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The manifest, to add notes to; [`Writer::finish`] writes it.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Writes the current manifest, marked incomplete: values set before the first rows are then kept however
    /// the recording ends.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_manifest(&self) -> Result<()> {
        self.manifest.write(&self.dir, self.mode)
    }

    /// Adds a table's rows to those of the same name.
    ///
    /// # Errors
    /// The name is invalid for a recording's table, the table has a column that it did not begin with or that
    /// had another type, or the stream cannot be written.
    pub fn append(&mut self, table: &Table) -> Result<()> {
        let name = table.name();
        if !is_table_name(name) {
            return Err(Error::TableName(name.into()));
        }
        if table.columns().is_empty() {
            return Err(Error::table(name, "a table without columns cannot be recorded"));
        }
        if !self.streams.contains_key(name) {
            self.streams.insert(name.into(), Stream::create(&self.dir, self.mode, table)?);
        }
        let Some(stream) = self.streams.get_mut(name) else { return Ok(()) };
        let first = stream.first.columns();
        let table = &like(first, table)?;
        if table.columns().len() > first.len() {
            return Err(unlike(first, table));
        }
        let batch = with_schema(table, &stream.first.batch().schema())?;
        stream.writer.write(&batch).map_err(|e| arrow_error(&stream.path, name, e))?;
        stream.rows += batch.num_rows() as u64;
        self.bytes += batch
            .columns()
            .iter()
            .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64)
            .sum::<u64>();
        stream.dirty = true;
        Ok(())
    }

    /// Passes appended rows to the system (a kill loses none of them) and starts a sync to disk in the
    /// background (a power loss loses at most later rows).
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

    /// Converts the streams to Parquet, writes the manifest with their checksums and removes them. Any
    /// failure before the manifest is in place leaves the streams for recovery.
    ///
    /// # Errors
    /// A file cannot be written or read back.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        let mut done = Vec::new();
        for (name, stream) in std::mem::take(&mut self.streams) {
            let Stream { path, file, writer, rows, .. } = stream;
            drop(writer);
            let source = Source { path: &path, file: &file, rows };
            let (file, entry) = convert(&self.dir, self.mode, &name, &source)?;
            self.manifest.files.insert(file, entry);
            done.push((format!("{name}{STREAM}"), path));
        }
        self.manifest.complete = true;
        self.manifest.write(&self.dir, self.mode)?;
        for (name, path) in done {
            self.dir.remove(name).map_err(|e| Error::io(&path, "remove", e))?;
        }
        Ok(())
    }
}

impl Stream {
    fn create(dir: &Dir, mode: u32, table: &Table) -> Result<Stream> {
        let name = format!("{}{STREAM}", table.name());
        let path = dir.path().join(&name);
        let file = dir.create(&name, mode);
        let file = Arc::new(file.map_err(|e| Error::io(&path, "create", e))?);
        let buffered = BufWriter::new(Arc::clone(&file));
        let writer = StreamWriter::try_new(buffered, &table.batch().schema())
            .map_err(|e| arrow_error(&path, table.name(), e))?;
        Ok(Stream { path, file, first: table.clone(), writer, rows: 0, dirty: true })
    }
}

/// A stream that was written to its end.
struct Source<'a> {
    path: &'a Path,
    file: &'a File,
    rows: u64,
}

/// Converts a stream batch by batch to a Parquet file; returns the file's name and entry.
fn convert(dir: &Dir, mode: u32, table: &str, source: &Source<'_>) -> Result<(String, FileEntry)> {
    let name = format!("{table}{PARQUET}");
    let path = dir.path().join(&name);
    let (stream, rows) = (source.path, source.rows);
    let run = || -> Result<FileEntry> {
        let mut file = source.file;
        file.seek(SeekFrom::Start(0)).map_err(|e| Error::io(stream, "read back", e))?;
        let failed = |e| Error::io(stream, "read back", e);
        let mut batches = Batches::new(BufReader::new(file)).map_err(failed)?;
        let target = begin(dir, &name, mode).map_err(|e| Error::io(&path, "create", e))?;
        let first =
            Table::of_batches(table, batches.schema(), &[]).map_err(|e| table_error(&path, table, e))?;
        let mut writer = ParquetWriter::new(&target, &first).map_err(|e| table_error(&path, table, e))?;
        let mut written = 0;
        while let Some(batch) = batches.next().map_err(failed)? {
            written += batch.num_rows() as u64;
            let rows = Table::from_batch(table, batch).map_err(|e| table_error(&path, table, e))?;
            writer.write(&rows).map_err(|e| table_error(&path, table, e))?;
        }
        writer.close().map_err(|e| table_error(&path, table, e))?;
        target.sync_all().map_err(|e| Error::io(&path, "sync to disk", e))?;
        if written != rows {
            return Err(Error::damaged(stream, format!("{rows} rows were written and {written} read back")));
        }
        let (bytes, sha256) = checksum(&target).map_err(|e| Error::io(&path, "read back", e))?;
        dir.rename(temporary(&name), &name).map_err(|e| Error::io(&path, "rename to", e))?;
        Ok(FileEntry { rows, bytes, sha256 })
    };
    match run() {
        Ok(entry) => Ok((name, entry)),
        Err(e) => {
            // On a full disk every freed byte helps the next reader.
            let _ = dir.remove(temporary(&name));
            Err(e)
        }
    }
}

fn checksum(mut file: &File) -> io::Result<(u64, String)> {
    file.seek(SeekFrom::Start(0))?;
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
}

/// Keeps the system's error, which names the cause (no space), if the error contains one.
fn arrow_error(path: &Path, table: &str, error: arrow_schema::ArrowError) -> Error {
    match error {
        arrow_schema::ArrowError::IoError(_, source) => Error::io(path, "write", source),
        other => Error::table(table, other),
    }
}

fn table_error(path: &Path, table: &str, error: ncpu_table::Error) -> Error {
    match error.into_io() {
        Ok(source) => Error::io(path, "write", source),
        Err(other) => Error::table(table, other),
    }
}

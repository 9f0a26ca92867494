//! The output of a dump: a file that gets its name only once it is complete, or a pipe.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::appender::Appender;
use crate::seekable::{Codec, Entry, Trailer, end};

enum Kind {
    /// The file under its temporary name, and its final name.
    File {
        file: Appender,
        partial: PathBuf,
        path: PathBuf,
    },
    Pipe(File),
}

/// The output of a dump. Until it is finished its name is `NAME.partial`, and an unfinished one is removed on
/// drop.
pub(crate) struct Output {
    kind: Kind,
    codec: Codec,
    entries: Vec<Entry>,
    /// Bytes written, all of them complete frames.
    written: u64,
    /// The most bytes it may have.
    limit: u64,
    /// Bytes of the disk that stay free.
    spare: u64,
    keep: bool,
}

/// Bytes between two checks of the free space.
const LOOK: u64 = 64 << 20;

impl Output {
    /// Makes the file, readable only by its owner. `-` is standard output.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create(path: &Path, codec: Codec, limit: u64, spare: u64) -> Result<Self, Error> {
        let kind = if path == Path::new("-") {
            // SAFETY: duplicates standard output; no other code has the new descriptor.
            let fd = unsafe { libc::dup(libc::STDOUT_FILENO) };
            if fd < 0 {
                return Err(Error::last("standard output"));
            }
            // SAFETY: as above.
            Kind::Pipe(unsafe { File::from_raw_fd(fd) })
        } else {
            let mut partial = path.as_os_str().to_owned();
            partial.push(".partial");
            let partial = PathBuf::from(partial);
            // The rest of a killed dump. A link there is removed and not followed.
            match fs::remove_file(&partial) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::file(partial, e)),
                _ => {}
            }
            let file = Appender::create(&partial).map_err(|e| Error::file(&partial, e))?;
            Kind::File { file, partial, path: path.to_owned() }
        };
        Ok(Self { kind, codec, entries: Vec::new(), written: 0, limit, spare, keep: false })
    }

    /// A file without a name beside the output, for saved pages. It is removed when it is closed, also when
    /// we are killed.
    pub(crate) fn spill(&self) -> Option<File> {
        let directory = match &self.kind {
            Kind::File { path, .. } => match path.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            },
            Kind::Pipe(_) => std::env::temp_dir(),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(directory).ok()
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    fn file(&self) -> &File {
        match &self.kind {
            Kind::File { file, .. } => file.file(),
            Kind::Pipe(file) => file,
        }
    }

    /// Makes a user the owner of the file.
    ///
    /// # Errors
    /// The file system has no owners, or we may not.
    pub(crate) fn give_to(&self, uid: u32, gid: u32) -> Result<(), Error> {
        std::os::unix::fs::fchown(self.file(), Some(uid), Some(gid)).map_err(Error::Write)
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// The disk is full. The file ends with the last complete frame.
    pub(crate) fn write(&mut self, frame: &[u8], entry: Entry) -> Result<(), Error> {
        let length = frame.len() as u64;
        if self.written + length > self.limit {
            return Err(Error::Limit(self.limit));
        }
        if self.spare > 0 && (self.written == 0 || self.written / LOOK != (self.written + length) / LOOK) {
            self.check_space()?;
        }
        self.append(frame)?;
        self.written += length;
        self.entries.push(entry);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.kind {
            Kind::File { file, .. } => file.append(bytes),
            Kind::Pipe(file) => file.write_all(bytes),
        }
        .map_err(Error::Write)
    }

    /// Appends the table, at the end of the file.
    fn append_table(&mut self, trailer: &Trailer) -> Result<(), Error> {
        let table = end(&self.entries, trailer, self.codec);
        self.append(&table)?;
        match &mut self.kind {
            Kind::File { file, .. } => file.flush().map_err(Error::Write),
            Kind::Pipe(_) => Ok(()),
        }
    }

    fn check_space(&self) -> Result<(), Error> {
        // SAFETY: an all-zero statvfs is a valid one, to be filled in.
        let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is ours.
        let result = unsafe { libc::fstatvfs(self.file().as_raw_fd(), &raw mut space) };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if result == 0 && free < self.spare {
            return Err(Error::Write(io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        Ok(())
    }

    /// Finishes a complete dump: from here on it has its name.
    ///
    /// # Errors
    /// The disk has no space for the table; the file is left as by [`Output::abandon`].
    pub(crate) fn finish(&mut self, trailer: &Trailer) -> Result<(), Error> {
        if let Err(e) = self.append_table(trailer) {
            self.abandon(&Trailer { complete: false, reason: e.to_string(), ..trailer.clone() });
            return Err(e);
        }
        self.keep = true;
        if let Kind::File { partial, path, .. } = &self.kind {
            fs::rename(partial, path).map_err(|e| Error::file(path, e))?;
        }
        Ok(())
    }

    /// Ends an incomplete dump, as after a full disk: makes the written part readable and marks it as a part.
    /// It keeps its temporary name, which is returned.
    pub(crate) fn abandon(&mut self, trailer: &Trailer) -> Option<PathBuf> {
        if let Kind::Pipe(_) = self.kind {
            // The reader of the pipe has ended, or gets the table.
            let _ = self.append_table(trailer);
            return None;
        }
        if self.entries.is_empty() {
            // No frame was written, so nothing is kept.
            return None;
        }
        loop {
            // The last frames are removed to make space for the table.
            if self.cut().is_ok()
                && self.append_table(trailer).is_ok()
                && let Kind::File { partial, .. } = &self.kind
            {
                self.keep = true;
                return Some(partial.clone());
            }
            self.written -= u64::from(self.entries.pop()?.compressed);
        }
    }

    /// Cuts the file to its complete frames.
    fn cut(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::File { file, .. } => file.cut(self.written),
            Kind::Pipe(_) => Ok(()),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Kind::File { partial, .. } = &self.kind
            && !self.keep
        {
            // Interrupted, or the process could not be dumped: no file is left.
            let _ = fs::remove_file(partial);
        }
    }
}

//! A file that appears whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FileType;

use crate::Dir;

/// A file being written under a temporary name; [`NewFile::done`] gives it its own. Dropped before, it is removed.
#[derive(Debug)]
pub struct NewFile {
    dir: Dir,
    name: OsString,
    temporary: Option<String>,
    file: File,
}

impl NewFile {
    /// Begins a file that takes the place of one that is there. A character device is written to as it is
    /// (`/dev/null`).
    ///
    /// # Errors
    /// Its directory is not there or not writable, or its name is that of a link, a directory or a pipe.
    pub fn begin(path: &Path, mode: u32) -> io::Result<NewFile> {
        let name = path.file_name().ok_or_else(|| io::Error::other("it does not end in a name of a file"))?;
        let dir = Dir::open(path.parent().unwrap_or(Path::new(".")))?;
        let refuse = |what| Err(io::Error::other(format!("it is {what}: remove it or name another file")));
        match dir.kind(name)? {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::CharacterDevice) => {
                let file = File::options().write(true).open(path)?;
                return Ok(NewFile { dir, name: name.into(), temporary: None, file });
            }
            Some(FileType::Symlink) => return refuse("a symbolic link, which is not followed"),
            Some(FileType::Directory) => return refuse("a directory"),
            Some(_) => return refuse("no regular file"),
        }
        for _ in 0..100 {
            let temporary = temporary_name(name);
            match dir.create(&temporary, mode) {
                Ok(file) => {
                    return Ok(NewFile { dir, name: name.into(), temporary: Some(temporary), file });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other("no temporary name beside it is free"))
    }

    /// Writes a whole file at once.
    ///
    /// # Errors
    /// As [`NewFile::begin`] and [`NewFile::done`].
    pub fn write(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let mut file = NewFile::begin(path, mode)?;
        file.write_all(bytes)?;
        file.done()
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// The system's.
    pub fn done(mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.dir.rename(temporary, &self.name)?;
            self.temporary = None;
        }
        Ok(())
    }
}

/// Not to be guessed, so that nobody can keep it taken.
fn temporary_name(name: &OsStr) -> String {
    let short: String = name.to_string_lossy().chars().take(40).collect();
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(10).collect();
    format!(".{short}.{random}.tmp")
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing can be done about one that stays.
            let _ = self.dir.remove(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn it_is_whole_or_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("page.html");
        let mut file = NewFile::begin(&path, 0o600).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left");
        std::fs::write(&path, "old").unwrap();
        NewFile::write(&path, 0o644, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    }

    #[test]
    fn what_others_put_there_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let precious = place.path().join("precious");
        std::fs::write(&precious, "keep me").unwrap();
        let link = place.path().join("page.html");
        symlink(&precious, &link).unwrap();
        let error = NewFile::begin(&link, 0o600).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read(&precious).unwrap(), b"keep me");
        assert!(NewFile::begin(place.path(), 0o600).is_err());
        assert!(NewFile::begin("/nosuch/x".as_ref(), 0o600).is_err());
        NewFile::write("/dev/null".as_ref(), 0o600, b"away").unwrap();
    }
}

//! A directory that is opened once and held.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};

use crate::directory_mode;

/// How a directory below another is opened: a link in its place is not followed.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A directory. What happens to its path meanwhile does not matter.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory.
    ///
    /// # Errors
    /// There is none, or it may not be read.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Dir { fd, path: path.into() })
    }

    /// Makes a directory whose files will have these permissions.
    ///
    /// # Errors
    /// It is there already ([`io::ErrorKind::AlreadyExists`]), or cannot be made.
    pub fn make(path: &Path, files: u32) -> io::Result<Dir> {
        Dir::make_at(rustix::fs::CWD, path, path, files)
    }

    /// [`Dir::make`] in this directory.
    ///
    /// # Errors
    /// As [`Dir::make`].
    pub fn make_in(&self, name: &str, files: u32) -> io::Result<Dir> {
        Dir::make_at(self.fd.as_fd(), Path::new(name), &self.path.join(name), files)
    }

    fn make_at(at: BorrowedFd<'_>, name: &Path, path: &Path, files: u32) -> io::Result<Dir> {
        rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700))?;
        // Whoever may write to the directory above could have put another one in its place.
        let fd = rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?;
        if rustix::fs::fstat(&fd)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it was replaced while it was made"));
        }
        if files != crate::PRIVATE {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(directory_mode(files)))?;
        }
        Ok(Dir { fd, path: path.into() })
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// There is none, it is a link or no directory, or it may not be read.
    pub fn open_in(&self, name: &str) -> io::Result<Dir> {
        let fd = rustix::fs::openat(&self.fd, name, DIRECTORY, Mode::empty())?;
        Ok(Dir { fd, path: self.path.join(name) })
    }

    /// Whether it belongs to this user and lies in the same file system as `other`.
    ///
    /// # Errors
    /// The system's.
    pub fn is_ours_beside(&self, other: &Dir) -> io::Result<bool> {
        let [this, other] = [rustix::fs::fstat(&self.fd)?, rustix::fs::fstat(&other.fd)?];
        Ok(this.st_uid == rustix::process::geteuid().as_raw() && this.st_dev == other.st_dev)
    }

    /// Opens a file that only stands for something to be locked, made where it is missing, and locks it; `None` where
    /// another process has. It is unlocked when the file is closed, by whatever end of this process.
    ///
    /// # Errors
    /// It is a link or no regular file, or the system refuses.
    pub fn lock(&self, name: &str, mode: u32) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))?;
        regular(rustix::fs::fstat(&fd)?.st_mode)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(fd.into())),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives it to another user, as root may.
    ///
    /// # Errors
    /// The system's.
    pub fn give(&self, user: u32, group: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&self.fd, Some(user), Some(group))
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a new file, to be written and read back.
    ///
    /// # Errors
    /// Something of this name is there ([`io::ErrorKind::AlreadyExists`]), be it a link to nowhere, or the system
    /// refuses.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(
            &self.fd,
            name.as_ref(),
            flags,
            Mode::from_raw_mode(mode & crate::PRIVATE | 0o200),
        )?;
        if mode != crate::PRIVATE {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        }
        Ok(fd.into())
    }

    /// Opens a regular file to be read.
    ///
    /// # Errors
    /// There is none, it is a link, a pipe, a device or a directory, or may not be read.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        // Opening a pipe would wait for its writer, and opening a device may do anything; so look first, and again.
        let before = rustix::fs::statat(&self.fd, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?;
        regular(before.st_mode)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name.as_ref(), flags, Mode::empty())?;
        regular(rustix::fs::fstat(&fd)?.st_mode)?;
        Ok(fd.into())
    }

    /// The bytes of a regular file.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; [`io::ErrorKind::FileTooLarge`] where it is longer than `most`.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<Vec<u8>> {
        bounded(self.open_file(name)?, most)
    }

    /// Renames a file within the directory.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from.as_ref(), &self.fd, to.as_ref())?)
    }

    /// Gives a file another name in the directory, unless that is taken; tells whether it was free.
    ///
    /// # Errors
    /// The system's.
    pub fn link(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<bool> {
        match rustix::fs::linkat(&self.fd, from.as_ref(), &self.fd, to.as_ref(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty())?)
    }

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_dir(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// Bytes that a file takes on disk; `None` where it is a link or no regular file.
    ///
    /// # Errors
    /// The system's.
    pub fn taken(&self, name: &str) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(file.then(|| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)))
    }

    /// What kind of file a name is, links not followed; `None` where there is none.
    ///
    /// # Errors
    /// The system's.
    pub fn kind(&self, name: impl AsRef<OsStr>) -> io::Result<Option<FileType>> {
        match rustix::fs::statat(&self.fd, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Names of all that is in it, sorted; those that are no UTF-8 with replacement characters.
    ///
    /// # Errors
    /// The system's.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Waits until the directory's entries are on the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

fn regular(mode: u32) -> io::Result<()> {
    let what = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what} and not a regular file")))
}

/// All bytes of a file.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] where it is longer than `most`, and the system's.
pub fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let too_long = || {
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes, the most read"))
    };
    let length = rustix::fs::fstat(&file)?.st_size.try_into().unwrap_or(0u64);
    if length > most {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize + 1).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Files of /proc have no length, pipes neither, and any file may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let precious = place.path().join("precious");
        std::fs::write(&precious, "keep me").unwrap();
        symlink(&precious, place.path().join("link")).unwrap();
        symlink("/nowhere", place.path().join("dangling")).unwrap();
        let dir = Dir::open(place.path()).unwrap();
        for name in ["link", "dangling", "precious"] {
            assert_eq!(dir.create(name, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert!(dir.read("link", 100).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(dir.read("precious", 100).unwrap(), b"keep me");
    }

    #[test]
    fn only_regular_files_are_read_and_no_more_than_allowed() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, place.path().join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        assert!(dir.read("pipe", 100).unwrap_err().to_string().contains("a pipe"));
        assert!(
            Dir::open("/dev".as_ref()).unwrap().read("zero", 100).unwrap_err().to_string().contains("device")
        );
        let sparse = dir.create("sparse", 0o600).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(dir.read("sparse", 1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        dir.create("ten", 0o600).unwrap().write_all(b"0123456789").unwrap();
        assert_eq!(dir.read("ten", 10).unwrap().len(), 10);
        assert_eq!(dir.read("ten", 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(dir.names().unwrap(), ["pipe", "sparse", "ten"]);
    }

    #[test]
    fn permissions_are_those_asked_for() {
        let place = tempfile::tempdir().unwrap();
        for (mode, directory) in [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755)] {
            let dir = Dir::make(&place.path().join(format!("{mode:o}")), mode).unwrap();
            assert_eq!(std::fs::metadata(dir.path()).unwrap().mode() & 0o7777, directory);
            assert_eq!(dir.create("x", mode).unwrap().metadata().unwrap().mode() & 0o7777, mode);
        }
    }
}

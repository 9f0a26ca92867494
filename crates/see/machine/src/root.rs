//! Reads files below a root directory: each relative to an open directory, without blocking on a FIFO, and
//! within a size limit.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, openat};

use crate::{CpuSet, Error, Result};

/// No file of sysfs comes near this size; /proc/cpuinfo of 8192 CPUs is about 20 MiB.
const LONGEST: u64 = 64 << 20;

const PAGE: usize = 4096;

/// An open directory of the tree.
pub(crate) struct Dir {
    fd: OwnedFd,
    /// Its path, for messages.
    path: PathBuf,
}

impl Dir {
    /// Opens the root.
    pub fn root(path: &Path) -> Result<Dir> {
        let fd = openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Error::Root { root: path.into(), source: e.into() })?;
        Ok(Dir { fd, path: path.into() })
    }

    /// An open directory, and its path for messages.
    pub fn from_fd(fd: OwnedFd, path: &str) -> Dir {
        Dir { fd, path: path.into() }
    }

    /// Opens a directory below, or returns the error.
    pub fn open_dir(&self, name: &str) -> rustix::io::Result<Dir> {
        let name = name.trim_start_matches('/');
        let fd = openat(&self.fd, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Dir { fd, path: self.path.join(name) })
    }

    /// Opens a directory below; `None` if it does not exist.
    pub fn dir(&self, name: &str) -> Option<Dir> {
        self.open_dir(name).ok()
    }

    /// The path of a file below, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name.trim_start_matches('/'))
    }

    /// Whether an entry of this name exists.
    pub fn has(&self, name: &str) -> bool {
        accessat(&self.fd, name.trim_start_matches('/'), Access::EXISTS, AtFlags::empty()).is_ok()
    }

    /// The names in this directory.
    pub fn names(&self) -> Vec<String> {
        let Ok(dir) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        dir.filter_map(|e| e.ok()?.file_name().to_str().ok().map(String::from)).collect()
    }

    /// The names of directories in this directory, without links to directories.
    pub fn subdirectories(&self) -> Vec<String> {
        let Ok(dir) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        dir.filter_map(|e| {
            let e = e.ok()?;
            let name = e.file_name().to_str().ok()?;
            // Every file system that can hold a machine's tree reports the type.
            let is = e.file_type() == rustix::fs::FileType::Directory;
            (is && name != "." && name != "..").then(|| name.to_string())
        })
        .collect()
    }

    /// The numbers of entries named `prefix` and a number (`cpu17`, `node3`).
    pub fn numbered(&self, prefix: &str) -> CpuSet {
        self.names().iter().filter_map(|n| n.strip_prefix(prefix)?.parse().ok()).collect()
    }

    /// Opens a file for reading.
    pub fn open(&self, name: &str) -> rustix::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.fd, name.trim_start_matches('/'), flags, Mode::empty()).map(File::from)
    }

    /// The target of a symbolic link.
    pub fn link(&self, name: &str) -> rustix::io::Result<String> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(target.to_string_lossy().into_owned())
    }

    /// Reads a file's first page into `buf`; returns the open file if more may follow.
    pub fn head(&self, name: &str, buf: &mut Vec<u8>) -> Option<File> {
        let (fd, len) = self.page(name, buf).unwrap_or_default();
        buf.truncate(len);
        fd.filter(|_| len == PAGE || of_proc(name)).map(File::from)
    }

    fn page(&self, name: &str, buf: &mut Vec<u8>) -> Option<(Option<OwnedFd>, usize)> {
        let fd = OwnedFd::from(self.open(name).ok()?);
        buf.resize(buf.len().max(PAGE), 0);
        let len = rustix::io::read(&fd, &mut buf[..PAGE]).ok()?;
        Some((Some(fd), len))
    }

    /// Reads a file into `buf`; `None` if it cannot be read, which sysfs also uses for "not known" (an
    /// offline CPU's topology).
    pub fn read<'b>(&self, name: &str, buf: &'b mut Vec<u8>) -> Option<&'b str> {
        // One read returns all of a sysfs file, which is at most a page.
        let (fd, mut len) = self.page(name, buf)?;
        if len == PAGE || of_proc(name) {
            buf.truncate(len);
            rest(File::from(fd?), buf);
            len = buf.len();
        }
        // A model name may contain a stray Latin-1 byte: only that byte is lost.
        if std::str::from_utf8(&buf[..len]).is_err() {
            *buf = String::from_utf8_lossy(&buf[..len]).into_owned().into_bytes();
            len = buf.len();
        }
        std::str::from_utf8(&buf[..len]).ok()
    }

    /// Reads a file's leading number; `None` if it has none. `4096K` reads as 4096.
    pub fn number<T: TryFrom<i64>>(&self, name: &str, buf: &mut Vec<u8>) -> Option<T> {
        leading_number(self.read(name, buf)?).and_then(|n| T::try_from(n).ok())
    }

    /// Reads a CPU list; `None` if the file does not exist.
    pub fn list(&self, name: &str, buf: &mut Vec<u8>) -> Result<Option<CpuSet>> {
        match self.read(name, buf).map(CpuSet::parse_list) {
            None => Ok(None),
            Some(Ok(set)) => Ok(Some(set)),
            Some(Err(source)) => Err(Error::Set { path: self.path(name), source }),
        }
    }

    /// Reads a CPU mask; `None` if the file does not exist.
    pub fn mask(&self, name: &str, buf: &mut Vec<u8>) -> Result<Option<CpuSet>> {
        match self.read(name, buf).map(CpuSet::parse_mask) {
            None => Ok(None),
            Some(Ok(set)) => Ok(Some(set)),
            Some(Err(source)) => Err(Error::Set { path: self.path(name), source }),
        }
    }
}

/// Whether a file is in `/proc`. A read there ends early if the next record (a CPU, a zone, a line) would not
/// fit in the buffer.
fn of_proc(name: &str) -> bool {
    name.trim_start_matches('/').starts_with("proc/")
}

/// Reads the rest of a file.
pub(crate) fn rest(file: File, buf: &mut Vec<u8>) {
    // Bytes read before an error are kept; a reader must accept a short file anyway.
    let _ = file.take(LONGEST).read_to_end(buf);
}

/// The number at the start of a text.
pub(crate) fn leading_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let n: i64 = digits[..end].parse().ok()?;
    Some(if text.starts_with('-') { -n } else { n })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_no_end_of_a_file_of_proc() {
        // A mapping is a record there: no read fills its buffer to the end.
        let whole = std::fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(whole.len() > PAGE, "as long as a page, or it shows nothing");
        let (root, mut buf) = (Dir::root(Path::new("/")).unwrap(), Vec::new());
        let last = |text: &str| text.lines().rfind(|line| line.contains("[")).map(String::from);
        assert_eq!(root.read("proc/self/smaps", &mut buf).and_then(last), last(&whole));
        let mut rest_of_it = root.head("/proc/self/smaps", &mut buf).expect("more may follow");
        rest_of_it.read_to_end(&mut buf).unwrap();
        assert_eq!(last(std::str::from_utf8(&buf).unwrap()), last(&whole));
    }
}

//! A fleet in a directory.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use ncpu_files::Dir;
use rustix::fs::{FileType, FlockOperation};

use crate::store::{Entry, Hold, Store, most_of};
use crate::tables::Kept;
use crate::{Error, Result};

/// The most bytes of a part that are read.
const MOST: u64 = 4 << 30;

/// The lock file. It is never removed, because removing it could remove a file that another process has just
/// locked.
const LOCK: &str = ".lock";

pub(crate) struct Local {
    root: String,
    path: PathBuf,
    mode: u32,
}

impl Local {
    /// Opens a directory, or makes it; its files get these permissions.
    pub(crate) fn open(root: &str, mode: u32, make: bool) -> Result<Local> {
        let local = Local { root: root.into(), mode, path: PathBuf::from(root) };
        match Dir::open(&local.path) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound && make => {
                local.make(&local.path.clone())?;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Error::Fleet(format!("{root} does not exist")));
            }
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(Error::Fleet(format!("{root} is not a fleet: it is not a directory")));
            }
            Err(e) => return Err(Error::store(root, "open", e)),
        }
        Ok(local)
    }

    /// Makes a directory. One that another process has just made is not an error.
    fn make(&self, path: &Path) -> Result<()> {
        match Dir::make(path, self.mode) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(Error::store(path.display().to_string(), "make the directory", e)),
        }
    }

    fn walk(&self, below: &Path, name: &str, out: &mut Vec<Entry>) -> Result<()> {
        let failed = |e| Error::store(below.display().to_string(), "list", e);
        let dir = match Dir::open(below) {
            Ok(dir) => dir,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        // Hidden names are the lock and files being written.
        for found in dir.names().map_err(failed)?.into_iter().filter(|n| !n.starts_with('.')) {
            let whole = if name.is_empty() { found.clone() } else { format!("{name}/{found}") };
            match dir.kind(&found).map_err(failed)? {
                Some(FileType::Directory) => self.walk(&below.join(&found), &whole, out)?,
                Some(FileType::RegularFile) => {
                    // It may have been compacted since it was listed.
                    if let Ok(about) = dir.open_file(&found).and_then(|f| f.metadata()) {
                        out.push(Entry { name: whole, bytes: about.len() });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Store for Local {
    fn root(&self) -> &str {
        &self.root
    }

    fn list(&self, below: &str) -> Result<Vec<Entry>> {
        let mut out = Vec::new();
        self.walk(&self.path.join(below), below, &mut out)?;
        Ok(out)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let (dir, file) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
        match Dir::open(dir).and_then(|dir| dir.read(file, most_of(name, MOST))) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::store(path.display().to_string(), "read", e)),
        }
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let mut at = self.path.clone();
        let mut parts: Vec<&str> = name.split('/').collect();
        let file = parts.pop().unwrap_or_default();
        for part in parts {
            at.push(part);
            self.make(&at)?;
        }
        let failed = |action| {
            let name = at.join(file).display().to_string();
            move |e: std::io::Error| Error::store(name, action, e)
        };
        let dir = Dir::open(&at).map_err(failed("open the directory of"))?;
        let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(12).collect();
        let temporary = format!(".{file}.{random}.tmp");
        let write = || -> Result<bool> {
            let mut open = dir.create(&temporary, self.mode).map_err(failed("create"))?;
            open.write_all(bytes).and_then(|()| open.sync_data()).map_err(failed("write"))?;
            dir.link(&temporary, file).map_err(failed("give its name to"))
        };
        let done = write();
        // On a full disk every byte helps; a file that was never made needs no removal.
        let _ = dir.remove(&temporary);
        done
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::store(path.display().to_string(), "remove", e))
            }
            _ => {
                // Engines read every directory. Directories that are not empty stay.
                let above = path.ancestors().skip(1);
                let parts = |p: &&Path| {
                    let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                    name.starts_with("hour=") || name.starts_with("date=")
                };
                for directory in above.take_while(parts) {
                    if std::fs::remove_dir(directory).is_err() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.path)
    }

    /// Files being written have hidden names; without a running addition they are leftovers.
    fn sweep(&self) -> Result<()> {
        Kept::ALL.iter().try_for_each(|table| sweep(&self.path.join(table.name())))
    }

    fn lock(&self, hold: Hold) -> Result<Option<Box<dyn std::any::Any + Send>>> {
        let dir = Dir::open(&self.path).map_err(|e| Error::store(&self.root, "open", e))?;
        let made = match dir.create(LOCK, self.mode) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => dir.open_file(LOCK),
            other => other,
        };
        let file: File = match made {
            Ok(file) => file,
            // A user with read permission only queries without the lock: compactions are rare enough.
            Err(e)
                if hold == Hold::Ask
                    && matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                return Ok(Some(Box::new(())));
            }
            Err(e) => return Err(Error::store(format!("{}/{LOCK}", self.root), "open", e)),
        };
        let how = match hold {
            Hold::Alone => FlockOperation::NonBlockingLockExclusive,
            Hold::Ask | Hold::Add => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(&file, how) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(Error::store(format!("{}/{LOCK}", self.root), "lock", e)),
        }
    }
}

fn sweep(below: &Path) -> Result<()> {
    let failed = |e| Error::store(below.display().to_string(), "list", e);
    let dir = match Dir::open(below) {
        Ok(dir) => dir,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    for name in dir.names().map_err(failed)? {
        match dir.kind(&name).map_err(failed)? {
            Some(FileType::Directory) => sweep(&below.join(&name))?,
            Some(FileType::RegularFile) if name.starts_with('.') && name.ends_with(".tmp") => {
                let failed = |e| Error::store(below.join(&name).display().to_string(), "remove", e);
                dir.remove(&name).map_err(failed)?;
            }
            _ => {}
        }
    }
    Ok(())
}

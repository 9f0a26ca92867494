//! `--preload locks`: a command that notes its waits for pthread locks by a library, in files that are read here.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ncpu_observe_core::program::User;
use ncpu_remedy::preload::{self, Places};
use ncpu_remedy::program::{self, Program};
use rustix::io::Errno;

/// Prefix of the name of each such directory.
const NAME: &str = "ncpu-locks-";

/// The files' directory, which goes with this. Where `ncpu` was killed, the next one removes it.
pub struct PreloadLocks {
    dir: PathBuf,
    /// The directory, locked (flock(2)) for as long as this process lives; `None` where it cannot be locked.
    _lock: Option<File>,
    notes: Vec<String>,
}

impl PreloadLocks {
    /// Makes it, in memory where there is room for files there.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn new() -> anyhow::Result<PreloadLocks> {
        let mut refused = None;
        for above in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
            remove_abandoned(&above);
            match make(&above) {
                Ok((dir, lock)) => return Ok(PreloadLocks { dir, _lock: lock, notes: Vec::new() }),
                Err(e) => refused = Some(e),
            }
        }
        let why = refused.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
        Err(why).context("--preload: no place for the files of locks, in /dev/shm or TMPDIR")
    }

    /// Where the command's processes make their files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes for readers; `whole` says that the waits come from the kernel's tracing.
    pub fn notes(&self, whole: bool) -> Vec<String> {
        match whole {
            true => {
                vec!["user locks were traced by the kernel: libncpu_locks.so was loaded and not read".into()]
            }
            false => self.notes.clone(),
        }
    }

    /// The variables that have a command load the library. Parts of it that the library cannot see are noted.
    ///
    /// # Errors
    /// There is no library, or no command; or the command is one that it cannot take hold of.
    pub fn variables(
        &mut self,
        command: &[OsString],
        user: Option<&User>,
    ) -> anyhow::Result<Vec<(OsString, OsString)>> {
        let executable =
            std::env::current_exe().context("cannot find the path of ncpu, and so its libraries")?;
        let places = Places::of(&executable, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
        let (library, image) = places.find("locks").context("--preload")?;
        let path = std::env::var_os("PATH");
        let file = program::find(command.first().context("no command is given")?, path.as_deref())?;
        let program = Program::look(&file, path.as_deref())?;
        if let Some(obstacle) = program.obstacle(&image) {
            // Programs that it starts may differ.
            self.notes.push(format!(
                "libncpu_locks.so cannot take hold of {}: it {obstacle}",
                ncpu_table::safe::line(&program.loaded.display().to_string())
            ));
        } else if program.image.go {
            self.notes.push(format!(
                "{} is a Go program: its locks are Go's own, which no library sees",
                ncpu_table::safe::line(&program.loaded.display().to_string())
            ));
        }
        if let Some(user) = user {
            std::os::unix::fs::chown(&self.dir, Some(user.uid), None)
                .context("--preload: giving the files' directory to the user")?;
        }
        let already = std::env::var_os("LD_PRELOAD");
        let value = preload::value(&[library], already.as_deref(), &program.image)?;
        Ok(vec![
            ("LD_PRELOAD".into(), value),
            (ncpu_preload::waits::VARIABLE.into(), self.dir.clone().into_os_string()),
        ])
    }
}

impl Drop for PreloadLocks {
    fn drop(&mut self) {
        // A process that outlives us keeps its mapping.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A directory of its own, locked where that is possible.
fn make(above: &Path) -> std::io::Result<(PathBuf, Option<File>)> {
    // Another ncpu may take one for abandoned before it is locked, and remove it.
    for _ in 0..16 {
        let mut name = above.join(format!("{NAME}XXXXXX")).into_os_string().into_vec();
        name.push(0);
        // SAFETY: a C string that mkdtemp may change in place.
        if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
            return Err(std::io::Error::last_os_error());
        }
        name.pop();
        let dir = PathBuf::from(OsString::from_vec(name));
        let Ok(file) = open(&dir) else { continue };
        match lock(&file) {
            // One that was removed has no links.
            Ok(()) if file.metadata()?.nlink() > 0 => return Ok((dir, Some(file))),
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(_) => return Ok((dir, None)),
        }
    }
    Err(std::io::ErrorKind::ResourceBusy.into())
}

/// Removes the directories of killed processes: nobody has them locked.
fn remove_abandoned(above: &Path) {
    let me = rustix::process::geteuid();
    let Ok(entries) = std::fs::read_dir(above) else { return };
    let ours = |name: &OsString| name.to_str().is_some_and(|n| n.starts_with(NAME));
    for dir in entries.flatten().filter(|e| ours(&e.file_name())).map(|e| e.path()) {
        let Ok(file) = open(&dir) else { continue };
        let owned = file.metadata().is_ok_and(|m| me.is_root() || m.uid() == me.as_raw());
        if owned && lock(&file).is_ok() {
            // Files that other users made unremovable stay: they are theirs.
            let _ = std::fs::remove_dir_all(&dir);
        }
    }
}

/// Locks it, unless another process has it locked.
fn lock(file: &File) -> Result<(), Errno> {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
}

/// Opens a directory, and nothing that a link leads to.
fn open(dir: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir)
}

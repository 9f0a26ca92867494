//! `--preload locks`: a command that notes its waits for pthread locks by a library, in files that are read here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ncpu_observe::program::User;
use ncpu_remedy::preload::{self, Places};
use ncpu_remedy::program::{self, Program};

/// The files' directory, which goes with this.
pub struct PreloadLocks {
    dir: PathBuf,
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
            let mut name = above.join("ncpu-locks-XXXXXX").into_os_string().into_vec();
            name.push(0);
            // SAFETY: a C string that mkdtemp may change in place.
            let made = unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) };
            if !made.is_null() {
                name.pop();
                return Ok(PreloadLocks { dir: OsString::from_vec(name).into(), notes: Vec::new() });
            }
            refused = Some(std::io::Error::last_os_error());
        }
        let why = refused.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
        Err(why).context("--preload: no place for the files of locks, in /dev/shm or TMPDIR")
    }

    /// Where the command's processes make their files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What a reader must know; `whole` says that the kernel's tracing told the waits.
    pub fn notes(&self, whole: bool) -> Vec<String> {
        match whole {
            true => {
                vec!["user locks were traced by the kernel: libncpu_locks.so was loaded and not read".into()]
            }
            false => self.notes.clone(),
        }
    }

    /// The variables that have a command load the library. What the library cannot see of it is noted.
    ///
    /// # Errors
    /// There is no library, or no command; or the command is one that it cannot take hold of.
    pub fn variables(
        &mut self,
        command: &[OsString],
        user: Option<&User>,
    ) -> anyhow::Result<Vec<(OsString, OsString)>> {
        let executable =
            std::env::current_exe().context("cannot tell where ncpu is, and so its libraries")?;
        let places = Places::of(&executable, std::env::var_os("NCPU_PRELOAD_DIR").as_deref());
        let (library, image) = places.find("locks").context("--preload")?;
        let path = std::env::var_os("PATH");
        let file = program::find(command.first().context("no command is given")?, path.as_deref())?;
        let program = Program::look(&file, path.as_deref())?;
        if let Some(obstacle) = program.obstacle(&image) {
            // What it starts may be another matter.
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

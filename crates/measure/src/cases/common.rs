//! Code that cases of several families share.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::case::{Alone, Batch, Bench, Failure, Worker, tried};
use crate::options::{Flag, Options};

/// A case whose workers share nothing; the closure makes a worker's batches.
pub fn alone<F>(make: F) -> Result<Box<dyn Bench>, Failure>
where
    F: Fn(Worker) -> Result<Box<dyn Batch>, Failure> + Sync + 'static,
{
    Ok(Box::new(Alone(make)))
}

/// An option.
pub const fn flag(letter: char, value: &'static str, default: &'static str, about: &'static str) -> Flag {
    Flag { letter, value, default, about }
}

/// `-f FILE`.
pub const fn file(default: &'static str) -> Flag {
    flag('f', "FILE", default, "the file")
}

/// A worker's batch that tries a call on a descriptor, which it owns, again and again.
pub fn on(fd: OwnedFd, mut call: impl FnMut(RawFd) -> bool + 'static) -> Box<dyn Batch> {
    tried(move || call(fd.as_raw_fd()))
}

/// Opens a file.
pub fn open(path: &CStr, flags: i32) -> Result<OwnedFd, Failure> {
    // SAFETY: a name that ends in a zero.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) })
        .map_err(|e| Failure::Failed(format!("{}: {e}", path.to_string_lossy())))
}

/// Takes what a system call gave.
pub fn owned(fd: RawFd) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel gave it to us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A file in `dir` that has no name any more, as those whose locks are cascaded.
pub fn nameless(dir: &CStr) -> Result<OwnedFd, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let dir = std::path::Path::new(std::ffi::OsStr::from_bytes(dir.to_bytes()));
    let file = tempfile::tempfile_in(dir).map_err(|e| Failure::Failed(format!("{}: {e}", dir.display())))?;
    Ok(file.into())
}

/// Sees to it that the process may have `n` more descriptors than those of its own; in libMicro's way, the
/// limit is raised as far as it has to be.
pub fn descriptors(n: u64) -> Result<(), Failure> {
    // Descriptors that the process has open by itself, generously.
    let want = n + 64;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(Failure::os("getrlimit"));
    }
    if limit.rlim_cur >= want {
        return Ok(());
    }
    let more = libc::rlimit { rlim_cur: want, rlim_max: limit.rlim_max.max(want) };
    // SAFETY: a live rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const more) } == 0 {
        return Ok(());
    }
    Err(Failure::Lacks(format!(
        "needs {want} file descriptors in a process and may have {}; a smaller -B, or a larger `ulimit -Hn`, \
         which root can set",
        limit.rlim_max
    )))
}

/// Batches of a call that gives a descriptor; they are closed after the batch.
pub struct Opens<F> {
    open: F,
    /// Threads of the process, which share its descriptors.
    threads: u64,
    fds: Vec<RawFd>,
}

impl<F: FnMut() -> RawFd + 'static> Opens<F> {
    /// For a worker of a process with `threads` threads.
    pub fn boxed(threads: usize, open: F) -> Box<dyn Batch> {
        Box::new(Opens { open, threads: threads as u64, fds: Vec::new() })
    }
}

impl<F: FnMut() -> RawFd> Batch for Opens<F> {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        descriptors(n * self.threads)?;
        self.fds.resize(n as usize, -1);
        Ok(())
    }

    fn run(&mut self, _: u64) -> u64 {
        let mut errors = 0;
        for fd in &mut self.fds {
            *fd = (self.open)();
            errors += u64::from(*fd < 0);
        }
        errors
    }

    fn after(&mut self, _: u64) {
        close_all(&mut self.fds);
    }
}

/// Closes what is open of them.
pub fn close_all(fds: &mut Vec<RawFd>) {
    for fd in fds.drain(..).filter(|&fd| fd >= 0) {
        // SAFETY: opened by the batch, and forgotten here.
        unsafe { libc::close(fd) };
    }
}

/// The word that names one of a few things.
pub fn one_of<T: Copy>(o: &Options, letter: char, known: &[(&str, T)]) -> Result<T, Failure> {
    let text = o.text(letter).unwrap_or("");
    known.iter().find(|(name, _)| *name == text).map(|(_, x)| *x).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        Failure::Usage(format!("-{letter} {text}: give one of {}", names.join(", ")))
    })
}

/// A function of a library that is called as dynamically linked programs do it: by a jump that only the linker knows the
/// aim of (the procedure linkage table). The compiler knows it as little, so that it neither leaves a call out nor puts
/// code of its own in its place.
macro_rules! linked {
    ($function:path: fn($($name:ident: $type:ty),*) -> $result:ty) => {{
        unsafe extern "C" fn jump($($name: $type),*) -> $result {
            // SAFETY: as the function asks it of its caller.
            unsafe { $function($($name),*) }
        }
        std::hint::black_box(jump as unsafe extern "C" fn($($type),*) -> $result)
    }};
}
pub(super) use linked;

//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why a dump was not taken, or not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process has the number.
    #[error("no process {0}")]
    NoProcess(i32),
    /// The number is that of a thread.
    #[error("{tid} is a thread of process {pid}: dump that")]
    Thread {
        /// The number given.
        tid: i32,
        /// The process it belongs to.
        pid: i32,
    },
    /// The process has ended and waits for its parent.
    #[error("process {0} has ended (zombie): it has no memory left")]
    Zombie(i32),
    /// Its first thread has ended, and others run.
    #[error(
        "the first thread of process {0} has ended and others run on: the kernel shows memory by the first thread, so it cannot \
         be dumped"
    )]
    FirstThread(i32),
    /// The process is a thread of the kernel.
    #[error("{0} is a kernel thread: it has no memory of its own")]
    KernelThread(i32),
    /// A 32-bit process.
    #[error("process {0} is a 32-bit program: cores of those are not written")]
    Bits32(i32),
    /// We are asked to dump ourselves.
    #[error("a process cannot dump itself")]
    Myself,
    /// A debugger or tracer is attached.
    #[error("process {pid} is traced already, by {tracer}: a process has one tracer at a time")]
    Traced {
        /// The process.
        pid: i32,
        /// Its tracer.
        tracer: i32,
    },
    /// The kernel does not let us.
    #[error(
        "process {0}: not permitted; its owner or root may (CAP_SYS_PTRACE), where its image is readable"
    )]
    NotPermitted(i32),
    /// The process ended, or executed another program, meanwhile.
    #[error("process {0} ended meanwhile")]
    Gone(i32),
    /// Something is not supported where we run.
    #[error("{0}")]
    Unsupported(String),
    /// A call of the kernel failed.
    #[error("{what}: {source}")]
    Call {
        /// The call and what it was for.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("writing the dump: {0}")]
    Write(#[source] io::Error),
    /// The output reached its limit.
    #[error("the dump reached its limit of {0} bytes")]
    Limit(u64),
    /// The dump was not completed, and what there was of it was kept.
    #[error("{source}; the part that was written is in {}", partial.display())]
    Part {
        /// Why it ends.
        source: Box<Error>,
        /// The file.
        partial: PathBuf,
    },
    /// The file is not a dump, or is damaged.
    #[error("{0}")]
    Format(String),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The error of the last call, of which `what` tells.
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::Call { what: what.into(), source: io::Error::last_os_error() }
    }

    /// An error of a call, of which `what` tells.
    pub(crate) fn call(what: impl Into<String>, source: io::Error) -> Self {
        Self::Call { what: what.into(), source }
    }

    /// An error of a file.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// The kernel's number of the error, where it has one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } | Self::File { source, .. } | Self::Write(source) => {
                source.raw_os_error()
            }
            _ => None,
        }
    }
}

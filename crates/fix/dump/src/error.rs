//! Errors of dumps.

use std::io;
use std::path::PathBuf;

/// Why a dump was not taken, or not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process has this number.
    #[error("no process {0}")]
    NoProcess(i32),
    /// The number is a thread's.
    #[error("{tid} is a thread of process {pid}; dump the process")]
    Thread {
        /// The number given.
        tid: i32,
        /// The process it belongs to.
        pid: i32,
    },
    /// The process has ended and waits for its parent.
    #[error("process {0} has ended (zombie) and has no memory left")]
    Zombie(i32),
    /// Its first thread has ended, and others run.
    #[error(
        "the first thread of process {0} has ended and others run on: the kernel shows memory by the first thread, so it cannot \
         be dumped"
    )]
    FirstThread(i32),
    /// The process is a thread of the kernel.
    #[error("{0} is a kernel thread and has no memory of its own")]
    KernelThread(i32),
    /// A 32-bit process.
    #[error("process {0} is a 32-bit program, which is not supported")]
    Bits32(i32),
    /// The process is the dumping program itself.
    #[error("a process cannot dump itself")]
    Myself,
    /// A debugger or tracer is attached.
    #[error("process {pid} is already traced by {tracer}; a process can have only one tracer")]
    Traced {
        /// The process.
        pid: i32,
        /// Its tracer.
        tracer: i32,
    },
    /// The kernel refuses access.
    #[error(
        "process {0}: not permitted; its owner or root may (CAP_SYS_PTRACE), where its image is readable"
    )]
    NotPermitted(i32),
    /// The process ended, or executed another program, during the dump.
    #[error("process {0} ended meanwhile")]
    Gone(i32),
    /// An operation is not supported here.
    #[error("{0}")]
    Unsupported(String),
    /// A call of the kernel failed.
    #[error("{what}: {source}")]
    Call {
        /// The call and its purpose.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("writing the dump: {0}")]
    Write(#[source] io::Error),
    /// The output reached its limit.
    #[error("the dump reached its limit of {0} bytes")]
    Limit(u64),
    /// The dump was not completed, and its written part was kept.
    #[error("{source}; the part that was written is in {}", partial.display())]
    Part {
        /// The reason.
        source: Box<Error>,
        /// The file.
        partial: PathBuf,
    },
    /// The file is not a dump, or is damaged.
    #[error("{0}")]
    Format(String),
    /// The dump was interrupted on request.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The error of the last call, which `what` describes.
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::Call { what: what.into(), source: io::Error::last_os_error() }
    }

    /// An error of a call, which `what` describes.
    pub(crate) fn call(what: impl Into<String>, source: io::Error) -> Self {
        Self::Call { what: what.into(), source }
    }

    /// An error of a file.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// The kernel's error number, if there is one.
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

//! Cores of processes: of running ones with very short stops, and of crashing ones.
//!
//! A dump is an ELF core in the seekable zstd format: frames of 4 MB that are compressed, checked and read
//! independently, so that all CPUs write it, all CPUs read it, and a debugger reads only the frames it needs.
//!
//! | module | its job |
//! | --- | --- |
//! | [`target`] | the kernel's data about a process: state, threads, mappings |
//! | `trace` | stops all threads, reads their registers, releases them |
//! | `inject`, `seccomp` | makes one thread of a process execute system calls for us, if its filters permit
//! them |
//! | `acquire`, `fork` | the uses of these calls: a userfaultfd, or a copy of the process |
//! | `protect` | write-protects memory from outside (userfaultfd), handles the faults |
//! | `live` | takes a snapshot of a running process by one of these methods |
//! | `mend` | reassembles huge pages that a snapshot split |
//! | `notes`, `layout` | the parts of an ELF core before the memory |
//! | `pipeline`, `buffer`, `appender` | memory to compressed frames to a file, with all CPUs |
//! | [`seekable`] | the file format |
//! | [`read`], [`mount`](mod@mount), [`core_file`] | reading a dump |
//! | [`crash`], `hold` | dumps of processes that crash, by the kernel's core_pattern; their memory after
//! their end |
//!
//! Write protection by a userfaultfd preserves memory as it was at one moment. The process makes the
//! descriptor itself, by a call injected with ptrace, and only `ncpu` holds it: when it is closed, however
//! `ncpu` ends, the kernel removes the protection. Pages are protected while the process runs. All threads
//! stop only for protecting again the pages written meanwhile and for reading registers, so the length of the
//! stop depends on the rate of writes and not on the size. A thread that writes later waits until the page is
//! saved (`protect`), and a copier replaces the data it read by saved data, so neither needs a lock on
//! memory. A thread that makes an injected call has a signal frame on its stack that restores it without us
//! (`inject`). Compressing threads pass frames to one writing thread, in the order of the file (`pipeline`).

mod acquire;
mod appender;
mod arch;
mod budget;
mod buffer;
mod choose;
pub mod core_file;
pub mod crash;
mod error;
mod fork;
mod hold;
mod inject;
mod layout;
pub mod live;
mod memory;
mod mend;
pub mod mount;
mod notes;
mod output;
mod pagemap;
mod pipeline;
mod protect;
pub mod read;
mod seccomp;
pub mod seekable;
mod sys;
pub mod target;
mod trace;
mod userfaultfd;

pub use error::Error;
pub use fork::reap;

//! Cores of processes: of running ones without stopping them for longer than a glance, and of crashing ones.
//!
//! A dump is an ELF core in the seekable zstd format: frames of 4 MB that are compressed, checked and read
//! independently, so that all CPUs write it, all CPUs read it, and a debugger reads only the frames it needs.
//!
//! | module | its job |
//! | --- | --- |
//! | [`target`] | what the kernel tells about a process: state, threads, mappings |
//! | `trace` | stops all threads, reads their registers, lets them go |
//! | `inject`, `seccomp` | makes one thread of a process execute system calls for us, if its filters let them pass |
//! | `acquire`, `fork` | what those calls are for: a userfaultfd, or a copy of the process |
//! | `protect` | write-protects memory from outside (userfaultfd), serves the faults |
//! | `live` | takes a snapshot of a running process by one of these means |
//! | `mend` | huge pages that a snapshot split, put together again |
//! | `notes`, `layout` | the parts of an ELF core before the memory |
//! | `pipeline`, `buffer`, `appender` | memory to compressed frames to a file, by all CPUs |
//! | [`seekable`] | the file format |
//! | [`read`], [`mount`](mod@mount), [`core_file`] | the way back |
//! | [`crash`], `hold` | dumps of processes that crash, by the kernel's core_pattern; their memory once they are gone |
//!
//! Write protection by a userfaultfd keeps memory as it was at one moment. The process makes it itself, by a call injected with ptrace,
//! and only `ncpu` holds it: when it is closed, by whatever end of `ncpu`, the kernel takes the protection away. Pages are protected
//! while the process runs; all threads stop only to protect again what was written meanwhile and to read registers, so the stop
//! follows the rate of writes and not the size. A thread that writes later waits until the page is saved aside (`protect`), and a
//! copier replaces what it read by what was saved, so neither needs a lock on memory. A thread that makes an injected call has a
//! signal frame on its stack that restores it without us (`inject`). Threads that compress hand frames to one thread that writes, in
//! the order of the file (`pipeline`).

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

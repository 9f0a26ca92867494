//! The toolkit of collectors: loading BPF programs, reading their tables and receiving their records. All BPF
//! programs share the headers in this directory.

mod clock;
mod error;
mod event_ring;
mod features;
pub mod load;
pub mod log;
mod mmap;
pub mod namespace;
pub mod perf;
pub mod perf_event;
mod plain;
pub mod ring;

pub use clock::monotonic_ns;
pub use error::{Error, Result};
pub use event_ring::Ring;
pub use features::{Feature, OldKernel};
pub use mmap::Mapped;
pub use plain::{Plain, comm, read, same_layout};
pub use ring::Stack;

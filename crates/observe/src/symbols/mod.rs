//! Names for addresses: kernel and user symbols, kernel locks, and what a stack was doing.

mod btf;
mod classify;
mod elf;
mod kernel;
mod locks;
mod maps;
mod objects;
mod slabs;
mod user;
mod wait;

pub use btf::{BtfError, BtfMembers};
pub(crate) use classify::is_tlb;
pub use classify::{KernelClass, kernel_class};
pub use kernel::{Kernel, KernelError};
pub use locks::LockNamer;
pub use maps::ProcMaps;
pub(crate) use maps::{code_files, region};
pub use objects::Owner;
pub use user::User;
pub use wait::{UserWait, futex_wait_class, user_wait_class};

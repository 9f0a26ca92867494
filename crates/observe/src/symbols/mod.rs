//! Names for addresses: kernel and user symbols, kernel locks, and what a stack was doing.

mod classify;
mod kernel;

pub use classify::{KernelClass, kernel_class};
pub use kernel::{Kernel, KernelError};

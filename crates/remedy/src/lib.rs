//! What changes how a program runs: libraries that are loaded before its own.

pub mod image;
pub mod preload;
pub mod program;

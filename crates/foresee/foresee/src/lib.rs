//! Foretells what a program does on a machine one does not have: a discrete-event model of threads, CPUs, locks, cache
//! lines, interrupts and memory, whose runs are recordings like any other.

pub mod buy;
mod cycle;
pub mod first;
pub mod fix;
pub mod foretell;
pub mod from;
pub mod hardware;
pub mod machines;
pub mod model;
pub mod place;
pub mod program;
mod random;
pub mod rank;
mod recorded;
pub mod sim;
pub mod tables;

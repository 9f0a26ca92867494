//! Ranges of integers: identifiers, ports, addresses.

pub mod arena;
pub(crate) mod magazine;
pub(crate) mod objects;
pub mod request;
pub mod vmem;

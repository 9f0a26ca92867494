//! Curves: throughput at N CPUs a program was not measured on, from those it was.

pub mod belief;
pub mod check;
pub mod fit;
pub mod law;
pub mod set;

//! Curves: throughput at N CPUs a program was not measured on, from those it was.

pub mod belief;
pub mod check;
pub mod fit;
pub mod forecast;
pub mod law;
pub mod learn;
mod matrix;
pub mod set;
pub mod what_if;

//! Views of what a machine is: a tree for people, the layouts of the classic tools, tables for
//! everything else.

mod classic;
mod tables;
mod tree;

use ncpu_table::size::compact as bytes;

pub use classic::{lgrp, numactl, psrinfo, showcores};
pub use tables::{caches, cores, cpus, distances, nodes, objects};
pub use tree::tree;

/// "1 core", "2 cores".
fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// A model or vendor as it may be shown: no control character of a forged tree reaches the terminal.
fn shown(text: &str) -> String {
    ncpu_table::safe::line(text).into_owned()
}

#[cfg(test)]
mod tests;

//! Views of what a machine is: a tree for people, the layouts of the classic tools, tables for
//! everything else.

mod classic;
mod tables;
mod tree;

pub use classic::{lgrp, numactl, psrinfo, showcores};
pub use tables::{caches, cores, cpus, distances, nodes, objects};
pub use tree::tree;

/// Binary multiples as `lgrpinfo` writes them: 128G, 3.9G, 774M.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut n = n as f64;
    let mut unit = 0;
    while n >= 1023.5 && unit + 1 < UNITS.len() {
        n /= 1024.0;
        unit += 1;
    }
    let whole = unit == 0 || n >= 9.95 || n.fract() == 0.0;
    if whole { format!("{n:.0}{}", UNITS[unit]) } else { format!("{n:.1}{}", UNITS[unit]) }
}

/// "1 core", "2 cores".
fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// A model or vendor as it may be shown: no control character of a forged tree reaches the terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;

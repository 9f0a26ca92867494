//! What a recording holds in the formats of other tools: profiles for `go tool pprof`, folded stacks for flame graphs, a
//! trace for Perfetto.

mod perfetto;
mod pprof;
mod wire;

use std::collections::BTreeMap;

use ncpu_schema::{Error, StackKind, Tables, stacks};
use ncpu_table::safe;

pub use perfetto::perfetto;
pub use pprof::pprof;

/// What marks a frame of the kernel.
const KERNEL: &str = "_[k]";

/// Seconds and samples of each kind of stack.
type Kinds = [(f64, u64); 3];

/// Each stack once, with its seconds and samples of each kind.
fn sums(recording: &impl Tables) -> Result<BTreeMap<&str, Kinds>, Error> {
    let mut sums: BTreeMap<&str, Kinds> = BTreeMap::new();
    let Some(table) = stacks::Reader::open(recording)? else { return Ok(sums) };
    for row in table.rows() {
        let (Some(kind), Some(stack)) = (table.kind.get(row), table.stack.get(row)) else { continue };
        let sum = &mut sums.entry(stack).or_default()[kind as usize];
        sum.0 += table.seconds.get(row).filter(|s| s.is_finite() && *s > 0.0).unwrap_or(0.0);
        sum.1 = sum.1.saturating_add(table.samples.get(row).unwrap_or(0));
    }
    Ok(sums)
}

/// Stacks of one kind, a line each: frames, outermost first, a blank, microseconds. Of `on-cpu` also what was spinning,
/// which is on CPU too.
///
/// # Errors
/// Table `stacks` is not as the schema has it.
pub fn folded(recording: &impl Tables, kind: StackKind) -> Result<Vec<u8>, Error> {
    let mut out = String::new();
    for (stack, sums) in sums(recording)? {
        let spin = if kind == StackKind::OnCpu { sums[StackKind::Spin as usize].0 } else { 0.0 };
        let microseconds = ((sums[kind as usize].0 + spin) * 1e6).round() as u64;
        if microseconds > 0 {
            // A line's end is a stack's end.
            for part in stack.split_inclusive(safe::is_unsafe) {
                let clean = part.trim_end_matches(safe::is_unsafe);
                out.push_str(clean);
                out.push_str(&safe::line(&part[clean.len()..]));
            }
            out.push_str(&format!(" {microseconds}\n"));
        }
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests;

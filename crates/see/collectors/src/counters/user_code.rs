//! Counts of the cores in user mode during another observation.

use std::path::Path;

use ncpu_machine::events::{Role, Sources};

use super::{Collector, Counted, Options, Result};

/// Counts user mode on every CPU: cycles, instructions, page walks, misses of the last-level cache. `None`
/// where the machine shows no hardware PMU.
///
/// Counters of a CPU run on when threads switch, so they cost the observed nothing; they count every
/// program's user code.
///
/// # Errors
/// See [`Collector::begin`].
pub fn user_code() -> Result<Option<Collector>> {
    let sources = Sources::read_cores(Path::new("/"))?;
    if sources.cores().next().is_none() {
        return Ok(None);
    }
    let walks = [Role::WalkLoad, Role::WalkStore, Role::WalkCode].map(|role| sources.role(role));
    let names =
        ["cycles", "instructions"].into_iter().chain(walks.into_iter().flatten()).chain(["LLC-load-misses"]);
    // Every name is one this machine knows.
    let events = names.filter_map(|name| sources.parse(&format!("{name}:u")).ok()).flatten().collect();
    Collector::begin(Options { target: Counted::Cpus, events, by_cpu: true }).map(Some)
}

//! Knights Landing: its MCDRAM is memory, a cache in front of memory, or both, and the kernel reports little
//! about it.

use crate::root::{Dir, leading_number};
use crate::{Cache, CacheType, Topology};

/// Size of MCDRAM on every Knights Landing.
const MCDRAM: u64 = 16 << 30;

/// Moves MCDRAM nodes to the CPUs of their neighbour node, and adds MCDRAM that serves as a cache as an L3.
pub(crate) fn apply(root: &Dir, t: &mut Topology) {
    let nodes = t.nodes.len();
    if !matches!(nodes, 1 | 2 | 4 | 8) || (nodes > 1 && t.distances.len() != nodes) {
        return;
    }
    for n in 0..nodes {
        if t.nodes[n].cpus.is_empty() {
            let near =
                (0..nodes).filter(|&o| !t.nodes[o].cpus.is_empty()).min_by_key(|&o| (t.distances[n][o], o));
            if let Some(near) = near {
                t.nodes[n].local_cpus = t.nodes[near].cpus.clone();
            }
        }
    }
    let flat = t.nodes.iter().any(|n| n.cpus.is_empty());
    let dumped = dump(root);
    // Without a node of its own, MCDRAM can only be a cache.
    let size = match dumped.size {
        Some(size) => size,
        None if flat => 0,
        None => MCDRAM / nodes as u64,
    };
    if size == 0 || dumped.flat {
        return;
    }
    for n in 0..nodes {
        if !t.nodes[n].cpus.is_empty() {
            t.caches.push(Cache {
                level: 3,
                ty: CacheType::Unified,
                size,
                line: dumped.line.unwrap_or(64),
                ways: dumped.ways.unwrap_or(1),
                cpus: t.nodes[n].cpus.clone(),
                memory_side: true,
            });
        }
    }
}

#[derive(Default)]
struct Dump {
    size: Option<u64>,
    line: Option<u32>,
    ways: Option<u32>,
    flat: bool,
}

/// The file that `hwloc-dump-hwdata` wrote at boot (`/run/hwloc/knl_memoryside_cache`).
fn dump(root: &Dir) -> Dump {
    let mut buf = Vec::new();
    let text = root.read("run/hwloc/knl_memoryside_cache", &mut buf).unwrap_or_default();
    let get = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
        leading_number(line)
    };
    Dump {
        size: get("cache_size").and_then(|n| u64::try_from(n).ok()),
        line: get("line_size").and_then(|n| u32::try_from(n).ok()),
        ways: get("associativity").and_then(|n| u32::try_from(n).ok()),
        flat: text.lines().any(|l| l.trim_end() == "memory_mode: Flat"),
    }
}

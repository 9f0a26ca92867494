//! The tables of `ncpu numa`. Rows of one `t` belong together.

use std::collections::{BTreeMap, HashMap, HashSet};

use ncpu_machine::Topology;
use ncpu_schema::{
    numa_cpu, numa_distances, numa_events, numa_memory, numa_nodes, numa_processes, numa_segment_memory,
    numa_segments, numa_settings,
};
use ncpu_table::Table;

use super::Process;
use super::segments::Segments;
use super::times::Times;

/// The counters of `/sys/devices/system/node/nodeN/numastat`, in the order of the columns.
const STATS: [&str; 6] =
    ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// Nodes: memory, huge pages, what was allocated.
pub(super) fn nodes(
    t: f64,
    elapsed: f64,
    topology: &Topology,
    now: &HashMap<u32, BTreeMap<String, u64>>,
    before: &HashMap<u32, BTreeMap<String, u64>>,
) -> Table {
    let mut out = numa_nodes::TABLE.builder();
    for node in &topology.nodes {
        let stat = |of: &HashMap<u32, BTreeMap<String, u64>>, key: &str| {
            of.get(&node.id).and_then(|s| s.get(key)).copied()
        };
        let thp = ["AnonHugePages", "ShmemHugePages", "FileHugePages"]
            .iter()
            .filter_map(|k| stat(now, k))
            .reduce(|a, b| a.saturating_add(b));
        let pool = |f: fn(&ncpu_machine::Hugepages) -> Option<u64>| {
            node.hugepages.iter().filter_map(|h| f(h)?.checked_mul(h.size)).fold(0, u64::saturating_add)
        };
        let mut row = out
            .row()
            .float(t)
            .int(node.id.into())
            .text(node.cpus.to_list())
            .float(elapsed)
            .int_opt(node.total)
            .int_opt(stat(now, "MemFree").or(node.free))
            .int_opt(thp)
            .int(pool(|h| Some(h.total)))
            .int(pool(|h| h.free));
        for key in STATS {
            row = row.int_opt(stat(now, key).map(|n| n.saturating_sub(stat(before, key).unwrap_or(n))));
        }
    }
    out.finish()
}

/// How far nodes are from one another.
pub(super) fn distances(topology: &Topology) -> Table {
    let mut out = numa_distances::TABLE.builder();
    for (from, row) in topology.nodes.iter().zip(&topology.distances) {
        for (to, distance) in topology.nodes.iter().zip(row) {
            out.row().int(from.id.into()).int(to.id.into()).int((*distance).into());
        }
    }
    out.finish()
}

/// Processes, without where their memory is.
pub(super) fn processes(t: f64, processes: &[Process]) -> Table {
    let mut out = numa_processes::TABLE.builder();
    for p in processes {
        out.row()
            .float(t)
            .int(p.pid.into())
            .text(&p.name)
            .int(p.threads)
            .int(p.rss)
            .text_opt(p.mems.as_ref().map(|m| m.to_list()))
            .int_opt(p.huge)
            .float_opt(p.neighbours)
            .float_opt(p.faults_remote.map(|f| f.0))
            .int_opt(p.faults_remote.map(|f| f.1))
            .text(if p.libnuma { "yes" } else { "no" })
            .int_opt(p.sampled)
            .float(p.took * 1e3);
    }
    out.finish()
}

/// Where the memory of processes lies. A page of a segment is in the row of each process that maps it.
pub(super) fn memory(t: f64, processes: &[Process]) -> Table {
    let mut out = numa_memory::TABLE.builder();
    for p in processes {
        for (place, nodes) in &p.memory {
            for (node, bytes) in nodes {
                out.row()
                    .float(t)
                    .int(p.pid.into())
                    .text(&p.name)
                    .text(&place.object)
                    .text_opt(place.segment.as_ref())
                    .text(&place.policy)
                    .int(place.page)
                    .int((*node).into())
                    .int(*bytes);
            }
        }
    }
    out.finish()
}

/// CPU time of processes by node.
pub(super) fn cpu(t: f64, spent: &Times, wanted: &HashSet<u32>) -> Table {
    let mut out = numa_cpu::TABLE.builder();
    let mut pids: Vec<u32> = spent.processes.keys().copied().filter(|p| wanted.contains(p)).collect();
    pids.sort_unstable();
    for pid in pids {
        let p = &spent.processes[&pid];
        for (node, ns) in &p.nodes {
            let threads = p.threads.values().filter(|t| t.contains_key(node)).count();
            out.row()
                .float(t)
                .int(pid.into())
                .text_opt((!p.name.is_empty()).then_some(&p.name))
                .int((*node).into())
                .float(*ns as f64 / 1e9)
                .int(threads as u64);
        }
    }
    out.finish()
}

/// Shared segments.
pub(super) fn segments(t: f64, segments: &Segments) -> Table {
    let mut out = numa_segments::TABLE.builder();
    for s in segments.iter() {
        let pids: Vec<String> = s.users.keys().map(u32::to_string).collect();
        out.row()
            .float(t)
            .text(&s.name)
            .text(s.kind)
            .int(s.size)
            .int_opt(s.resident)
            .text(pids.join(" "))
            .text_opt(s.policy.as_ref().map(|p| &p.text))
            .text_opt(s.mount.as_ref().map(|p| &p.text))
            .int_opt(s.huge)
            .text(s.how)
            .float_opt(s.neighbours);
    }
    out.finish()
}

/// Where shared segments lie, each counted once.
pub(super) fn segment_memory(t: f64, segments: &Segments) -> Table {
    let mut out = numa_segment_memory::TABLE.builder();
    for s in segments.iter() {
        for (node, bytes) in &s.nodes {
            out.row().float(t).text(&s.name).int((*node).into()).int(*bytes);
        }
    }
    out.finish()
}

/// The machine's NUMA counters.
pub(super) fn events(t: f64, now: &HashMap<String, u64>, before: &HashMap<String, u64>) -> Table {
    let mut out = numa_events::TABLE.builder();
    let mut names: Vec<&String> = now.keys().collect();
    names.sort();
    for name in names {
        let n = now[name].saturating_sub(before.get(name).copied().unwrap_or(now[name]));
        out.row().float(t).text(name).int(n);
    }
    out.finish()
}

/// Settings that bear on placement, and how it was looked.
pub(super) fn settings(t: f64, settings: &[(&'static str, String)]) -> Table {
    let mut out = numa_settings::TABLE.builder();
    for (name, value) in settings {
        out.row().float(t).text(name).text(value);
    }
    out.finish()
}

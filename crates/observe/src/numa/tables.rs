//! The tables of `ncpu numa`. Rows of one `t` belong together.

use std::collections::{BTreeMap, HashMap, HashSet};

use ncpu_machine::Topology;
use ncpu_table::{Builder, Column, Kind, Table, Unit};

use super::Process;
use super::segments::Segments;
use super::time::Times;

fn at() -> Column {
    Column::float("t", Unit::Seconds, Kind::Key, "end of the interval, since the observation began")
}

fn bytes(name: &str, meaning: &str) -> Column {
    Column::int(name, Unit::Bytes, Kind::Gauge, meaning)
}

/// The counters of `/sys/devices/system/node/nodeN/numastat`, by column and by the kernel's name.
const STATS: [(&str, &str, &str); 6] = [
    ("hit", "numa_hit", "pages taken from this node as intended"),
    ("miss", "numa_miss", "pages taken from this node that were meant for another"),
    ("foreign", "numa_foreign", "pages meant for this node that came from another"),
    ("interleave_hit", "interleave_hit", "pages taken from this node by interleaving, as intended"),
    ("local", "local_node", "pages taken from this node by its own CPUs"),
    ("other", "other_node", "pages taken from this node by other nodes' CPUs"),
];

/// Nodes: memory, huge pages, what was allocated.
pub(super) fn nodes(
    t: f64,
    elapsed: f64,
    topology: &Topology,
    now: &HashMap<u32, BTreeMap<String, u64>>,
    before: &HashMap<u32, BTreeMap<String, u64>>,
) -> Table {
    let mut columns = vec![
        at(),
        Column::id("node", "NUMA node"),
        Column::text("cpus", "its online CPUs; none: it is memory only"),
        Column::float("elapsed", Unit::Seconds, Kind::Time, "length of the interval"),
        bytes("total", "memory"),
        bytes("free", "memory free"),
        bytes("thp", "in transparent huge pages: anonymous, of shared memory and of files"),
        bytes("hugetlb", "in the pools of huge pages, of all sizes"),
        bytes("hugetlb_free", "of that not handed out"),
    ];
    columns.extend(STATS.iter().map(|(name, _, meaning)| Column::count(name, meaning)));
    let mut out = Table::builder("numa_nodes", &columns);
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
        for (_, key, _) in STATS {
            row = row.int_opt(stat(now, key).map(|n| n.saturating_sub(stat(before, key).unwrap_or(n))));
        }
    }
    out.finish()
}

/// How far nodes are from one another.
pub(super) fn distances(topology: &Topology) -> Table {
    let mut out = Table::builder(
        "numa_distances",
        &[
            Column::id("from", "node of the CPU"),
            Column::id("to", "node of the memory"),
            Column::int("distance", Unit::None, Kind::Gauge, "relative cost of an access; 10 is local"),
        ],
    );
    for (from, row) in topology.nodes.iter().zip(&topology.distances) {
        for (to, distance) in topology.nodes.iter().zip(row) {
            out.row().int(from.id.into()).int(to.id.into()).int((*distance).into());
        }
    }
    out.finish()
}

/// Processes, without where their memory is.
pub(super) fn processes(t: f64, processes: &[Process]) -> Table {
    let mut out = Table::builder(
        "numa_processes",
        &[
            at(),
            Column::id("pid", "process"),
            Column::text("process", "its name"),
            Column::int("threads", Unit::None, Kind::Gauge, "its threads"),
            bytes("rss", "resident memory"),
            Column::text("mems", "nodes its cpuset lets it take memory from"),
            bytes("thp", "of its memory in transparent huge pages"),
            Column::float(
                "together",
                Unit::Share,
                Kind::Share,
                "of neighbouring pages, the share on one node: low where memory is interleaved",
            ),
            Column::float(
                "faults_remote",
                Unit::Share,
                Kind::Share,
                "of NUMA hint faults, the share on another node's memory than the thread ran on",
            ),
            Column::count("faults", "NUMA hint faults behind that"),
            Column::text("libnuma", "whether libnuma is loaded"),
            Column::int("sampled", Unit::None, Kind::Gauge, "pages looked at, where not all were"),
            Column::float("look", Unit::Milliseconds, Kind::Time, "time the look at its memory took"),
        ],
    );
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
    let mut out = Table::builder(
        "numa_memory",
        &[
            at(),
            Column::id("pid", "process"),
            Column::text("process", "its name"),
            Column::text(
                "object",
                "heap, stack, anonymous, files, code (programs and libraries), or a shared segment's name",
            ),
            Column::text("segment", "the shared segment it is"),
            Column::text("policy", "memory policy, the kernel's words"),
            Column::id("page", "bytes of a page"),
            Column::id("node", "NUMA node"),
            bytes("bytes", "resident there"),
        ],
    );
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
    let mut out = Table::builder(
        "numa_cpu",
        &[
            at(),
            Column::id("pid", "process"),
            Column::text("process", "its name, where it is known"),
            Column::id("node", "NUMA node"),
            Column::float("cpu", Unit::CpuSeconds, Kind::Time, "time its threads were on CPUs of the node"),
            Column::int("threads", Unit::None, Kind::Gauge, "living threads of it that ran there"),
        ],
    );
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
    let mut out = Table::builder(
        "numa_segments",
        &[
            at(),
            Column::text("segment", "its name"),
            Column::text("kind", "sysv, tmpfs, memfd, anonymous (shared) or hugetlb"),
            bytes("size", "its length"),
            bytes("resident", "of it in memory, where that is known"),
            Column::text("pids", "processes that map it"),
            Column::text("policy", "its memory policy"),
            Column::text("mpol", "the policy its tmpfs was mounted with"),
            Column::int("page", Unit::Bytes, Kind::Gauge, "bytes of its huge pages"),
            Column::text("how", "how its nodes are known: mapped (page tables), all pages, or sampled"),
            Column::float(
                "together",
                Unit::Share,
                Kind::Share,
                "of neighbouring pages, the share on one node",
            ),
        ],
    );
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
    let mut out = Table::builder(
        "numa_segment_memory",
        &[
            at(),
            Column::text("segment", "its name"),
            Column::id("node", "NUMA node"),
            bytes("bytes", "resident there"),
        ],
    );
    for s in segments.iter() {
        for (node, bytes) in &s.nodes {
            out.row().float(t).text(&s.name).int((*node).into()).int(*bytes);
        }
    }
    out.finish()
}

/// The machine's NUMA counters.
pub(super) fn events(t: f64, now: &HashMap<String, u64>, before: &HashMap<String, u64>) -> Table {
    let mut out: Builder = Table::builder(
        "numa_events",
        &[
            at(),
            Column::text("event", "counter of /proc/vmstat"),
            Column::count("count", "how often in the interval"),
        ],
    );
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
    let mut out = Table::builder(
        "numa_settings",
        &[at(), Column::text("setting", "its name"), Column::text("value", "its value")],
    );
    for (name, value) in settings {
        out.row().float(t).text(name).text(value);
    }
    out.finish()
}

//! A machine as tables.

use ncpu_machine::{CacheType, CpuSet, Topology};
use ncpu_table::{Column, Kind, Table, Unit};

use super::bytes;

fn key(name: &str, meaning: &str) -> Column {
    Column::id(name, meaning)
}

fn gauge(name: &str, unit: Unit, meaning: &str) -> Column {
    Column::int(name, unit, Kind::Gauge, meaning)
}

/// The lowest CPU of a core: its name, since the kernel's `core_id` is unique within a package only.
fn core_name(t: &Topology, cpu: u32) -> Option<u64> {
    t.core_of(cpu)?.cpus.first().map(u64::from)
}

fn holder(groups: &[ncpu_machine::Group], cpu: u32) -> Option<u64> {
    groups.iter().find(|g| g.cpus.contains(cpu))?.id.map(u64::from)
}

/// A row for each CPU, offline ones too.
pub fn cpus(t: &Topology) -> Table {
    let mut b = Table::builder(
        "cpus",
        &[
            key("cpu", "CPU number"),
            Column::text("state", "online or offline"),
            Column::text("allowed", "whether this process may run on it"),
            key("core", "lowest CPU of its core"),
            key("core_id", "the kernel's core_id, unique within a package at best"),
            key("thread", "which strand of its core it is"),
            key("package", "physical_package_id"),
            key("die", "die_id where a package has several dies"),
            key("cluster", "cluster_id where cores share a cluster"),
            key("node", "NUMA node"),
            Column::text("kind", "kind of core on a hybrid machine"),
            Column::float("MHz", Unit::Megahertz, Kind::Gauge, "rated clock"),
        ],
    );
    for id in t.online.or(&t.offline()).iter() {
        let row = b.row().int(u64::from(id));
        let Some(cpu) = t.cpu(id) else {
            let _ = row.text("offline").text("no");
            continue;
        };
        let row = row
            .text("online")
            .text(if t.allowed.contains(id) { "yes" } else { "no" })
            .int_opt(core_name(t, id))
            .int_opt(t.core_of(id).and_then(|c| c.id).map(u64::from))
            .int(cpu.thread as u64)
            .int_opt(t.package_of(id).and_then(|p| p.id).map(u64::from))
            .int_opt(holder(&t.dies, id))
            .int_opt(holder(&t.clusters, id))
            .int_opt(t.node_of(id).map(|n| u64::from(n.id)));
        let _ = match cpu.kind {
            Some(kind) => row.text(&t.kinds[kind].name),
            None => row.null(),
        }
        .float_opt(cpu.mhz);
    }
    b.finish()
}

/// A row for each core.
pub fn cores(t: &Topology) -> Table {
    let mut b = Table::builder(
        "cores",
        &[
            key("core", "lowest CPU of the core"),
            key("core_id", "the kernel's core_id, unique within a package at best"),
            key("package", "physical_package_id"),
            key("node", "NUMA node"),
            Column::text("kind", "kind of core on a hybrid machine"),
            gauge("threads", Unit::None, "CPUs of the core"),
            Column::text("cpus", "CPUs of the core"),
            Column::float("MHz", Unit::Megahertz, Kind::Gauge, "rated clock"),
        ],
    );
    for core in &t.cores {
        let Some(first) = core.cpus.first() else { continue };
        let cpu = t.cpu(first);
        let row = b
            .row()
            .int(u64::from(first))
            .int_opt(core.id.map(u64::from))
            .int_opt(t.package_of(first).and_then(|p| p.id).map(u64::from))
            .int_opt(t.node_of(first).map(|n| u64::from(n.id)));
        let row = match cpu.and_then(|c| c.kind) {
            Some(kind) => row.text(&t.kinds[kind].name),
            None => row.null(),
        };
        let _ = row.int(core.cpus.len() as u64).text(core.cpus.to_list()).float_opt(cpu.and_then(|c| c.mhz));
    }
    b.finish()
}

/// A row for each cache.
pub fn caches(t: &Topology) -> Table {
    let mut b = Table::builder(
        "caches",
        &[
            Column::text("cache", "level and kind: L1d, L1i, L2, L3"),
            key("level", "1 is nearest to the core"),
            Column::text("type", "Data, Instruction, Unified, or Memory-side"),
            gauge("size", Unit::Bytes, "capacity"),
            gauge("line", Unit::Bytes, "size of a line"),
            gauge("ways", Unit::None, "associativity"),
            gauge("ncpu", Unit::None, "CPUs that share it"),
            Column::text("cpus", "CPUs that share it"),
        ],
    );
    let known = |n: u64| (n != 0).then_some(n);
    for c in &t.caches {
        let _ = b
            .row()
            .text(c.name())
            .int(u64::from(c.level))
            .text(if c.memory_side { "Memory-side" } else { c.ty.word() })
            .int_opt(known(c.size))
            .int_opt(known(u64::from(c.line)))
            .int_opt(known(u64::from(c.ways)))
            .int(c.cpus.len() as u64)
            .text(c.cpus.to_list());
    }
    b.finish()
}

/// A row for each NUMA node.
pub fn nodes(t: &Topology) -> Table {
    let mut b = Table::builder(
        "nodes",
        &[
            key("node", "NUMA node"),
            Column::text("allowed", "whether this process may take memory from it"),
            gauge("ncpu", Unit::None, "CPUs of the node"),
            gauge("total", Unit::Bytes, "memory of the node"),
            gauge("free", Unit::Bytes, "memory not in use"),
            Column::text("hugepages", "free and all pages of each pool that has any"),
            gauge("side_cache", Unit::Bytes, "memory-side caches in front of the memory"),
            Column::text("cpus", "CPUs of the node"),
            Column::text("local_cpus", "CPUs nearest to its memory"),
            Column::text(
                "device",
                "the device whose driver gives out its memory, where it is not the machine's",
            ),
        ],
    );
    let devices = t.device_nodes.iter().map(|n| (n, Some("GPU")));
    for (n, device) in t.nodes.iter().map(|n| (n, None)).chain(devices) {
        let pools = n.hugepages.iter().filter(|h| h.total > 0);
        let pools = pools.map(|h| match h.free {
            Some(free) => format!("{}:{free}/{}", bytes(h.size), h.total),
            None => format!("{}:{}", bytes(h.size), h.total),
        });
        let side: u64 = n.side_caches.iter().map(|c| c.size).sum();
        let _ = b
            .row()
            .int(u64::from(n.id))
            .text(if t.allowed_nodes.contains(n.id) { "yes" } else { "no" })
            .int(n.cpus.len() as u64)
            .int_opt(n.total)
            .int_opt(n.free)
            .text(pools.collect::<Vec<_>>().join(" "))
            .int_opt((side > 0).then_some(side))
            .text(n.cpus.to_list())
            .text(n.local_cpus.to_list())
            .text_opt(device);
    }
    b.finish()
}

/// A row for each pair of nodes.
pub fn distances(t: &Topology) -> Table {
    let mut b = Table::builder(
        "distances",
        &[
            key("from", "node of the CPU"),
            key("to", "node of the memory"),
            gauge("distance", Unit::None, "10 is local, 20 twice as far"),
        ],
    );
    for (from, row) in t.nodes.iter().zip(&t.distances) {
        for (to, distance) in t.nodes.iter().zip(row) {
            let _ = b.row().int(u64::from(from.id)).int(u64::from(to.id)).int(u64::from(*distance));
        }
    }
    for ((from, to), distance) in &t.device_distances {
        let _ = b.row().int(u64::from(*from)).int(u64::from(*to)).int(u64::from(*distance));
    }
    b.finish()
}

/// A row for each thing there is, from the machine down to its CPUs.
pub fn objects(t: &Topology) -> Table {
    let mut b = Table::builder(
        "objects",
        &[
            Column::text("type", "machine, node, drawer, book, package, die, cluster, L3 ... L1i, core, cpu"),
            key("id", "the kernel's number for it"),
            gauge("ncpu", Unit::None, "online CPUs in it"),
            Column::text("cpus", "online CPUs in it; of a node, those nearest to its memory"),
            Column::text("allowed", "those of them this process may run on"),
            gauge("size", Unit::Bytes, "memory of a node or machine, capacity of a cache"),
            gauge("line", Unit::Bytes, "line of a cache"),
            Column::text("name", "model of a package, kind of a core"),
        ],
    );
    let mut put = |ty: &str,
                   id: Option<u32>,
                   cpus: &CpuSet,
                   size: Option<u64>,
                   line: Option<u32>,
                   name: Option<&str>| {
        let row = b
            .row()
            .text(ty)
            .int_opt(id.map(u64::from))
            .int(cpus.len() as u64)
            .text(cpus.to_list())
            .text(cpus.and(&t.allowed).to_list())
            .int_opt(size)
            .int_opt(line.map(u64::from));
        let _ = match name {
            Some(name) => row.text(name),
            None => row.null(),
        };
    };
    put("machine", None, &t.online, Some(t.memory()), None, None);
    for n in &t.nodes {
        put("node", Some(n.id), &n.local_cpus, n.total, None, None);
    }
    for (ty, groups) in [("drawer", &t.drawers), ("book", &t.books)] {
        groups.iter().for_each(|g| put(ty, g.id, &g.cpus, None, None, None));
    }
    for p in &t.packages {
        put("package", p.id, &p.cpus, None, None, p.model.as_deref());
    }
    for (ty, groups) in [("die", &t.dies), ("cluster", &t.clusters)] {
        groups.iter().for_each(|g| put(ty, g.id, &g.cpus, None, None, None));
    }
    for level in (1..=5).rev() {
        for ty in [CacheType::Unified, CacheType::Data, CacheType::Instruction] {
            for c in t.caches.iter().filter(|c| c.level == level && c.ty == ty) {
                let line = (c.line > 0).then_some(c.line);
                put(&c.name(), None, &c.cpus, (c.size > 0).then_some(c.size), line, None);
            }
        }
    }
    let kind = |cpu: Option<u32>| Some(t.kinds[t.cpu(cpu?)?.kind?].name.as_str());
    for c in &t.cores {
        put("core", c.id, &c.cpus, None, None, kind(c.cpus.first()));
    }
    for c in &t.cpus {
        put("cpu", Some(c.id), &CpuSet::from_iter([c.id]), None, None, kind(Some(c.id)));
    }
    b.finish()
}

//! NUMA nodes from `/sys/devices/system/node`.

use crate::root::{Dir, leading_number};
use crate::{CpuSet, Hugepages, Node, Result, SideCache, Topology};

/// Finds the nodes and their distances; a machine without any is one node.
pub(crate) fn find(root: &Dir, t: &mut Topology) -> Result<()> {
    if let Some(dir) = root.dir("sys/devices/system/node") {
        listed(root, &dir, t)?;
    }
    if t.nodes.is_empty() {
        let mut node = Node { cpus: t.online.clone(), local_cpus: t.online.clone(), ..Node::default() };
        let mut buf = Vec::new();
        meminfo(root.read("proc/meminfo", &mut buf).unwrap_or_default(), &mut node);
        if let Some(pools) = root.dir("sys/kernel/mm/hugepages") {
            hugepages(&pools, &mut node);
        }
        t.nodes.push(node);
    }
    Ok(())
}

fn listed(root: &Dir, dir: &Dir, t: &mut Topology) -> Result<()> {
    let mut buf = Vec::new();
    let ids = match dir.list("online", &mut buf)? {
        Some(ids) => ids,
        None => dir.numbered("node"),
    };
    let gpus = gpu_nodes(root);
    let mut taken = CpuSet::new();
    let mut places = Vec::new();
    for (place, id) in ids.iter().enumerate() {
        let Some(own) = dir.dir(&format!("node{id}")) else { continue };
        let cpus = match own.mask("cpumap", &mut buf) {
            Ok(Some(cpus)) => cpus,
            Ok(None) => continue,
            Err(error) => {
                t.warnings.push(format!("{}; node {id} left out", error.whole()));
                continue;
            }
        };
        if cpus.intersects(&taken) {
            t.warnings.push(format!("node {id} claims CPUs of another node; left out"));
            continue;
        }
        taken = taken.or(&cpus);
        // Memory of a GPU, which the driver puts there for itself.
        if gpus.contains(id) {
            continue;
        }
        let cpus = cpus.and(&t.online);
        let mut node = Node { id, local_cpus: cpus.clone(), cpus, ..Node::default() };
        meminfo(own.read("meminfo", &mut buf).unwrap_or_default(), &mut node);
        if let Some(pools) = own.dir("hugepages") {
            hugepages(&pools, &mut node);
        }
        if let Some(caches) = own.dir("memory_side_cache") {
            side_caches(&caches, &mut node);
        }
        t.nodes.push(node);
        places.push(place);
    }
    t.distances = distances(dir, t, ids.len(), &places);
    localize(dir, t);
    Ok(())
}

/// Nodes that are the memory of NVIDIA GPUs (`/proc/driver/nvidia/gpus/*/numa_status`).
fn gpu_nodes(root: &Dir) -> CpuSet {
    let Some(gpus) = root.dir("proc/driver/nvidia/gpus") else { return CpuSet::new() };
    let mut buf = Vec::new();
    gpus.names()
        .iter()
        .filter_map(|gpu| {
            let text = gpus.read(&format!("{gpu}/numa_status"), &mut buf)?;
            let (_, node) = text.split_once("Node:")?;
            leading_number(node).and_then(|n| u32::try_from(n).ok())
        })
        .collect()
}

fn meminfo(text: &str, node: &mut Node) {
    // "Node 0 MemTotal:       32864016 kB", in /proc/meminfo without the node.
    let bytes = |key: &str| {
        let (_, value) = text.split_once(key)?;
        u64::try_from(leading_number(value)?).ok()?.checked_mul(1024)
    };
    (node.total, node.free) = (bytes("MemTotal:"), bytes("MemFree:"));
}

fn hugepages(dir: &Dir, node: &mut Node) {
    let mut buf = Vec::new();
    for name in dir.names() {
        let kib = name.strip_prefix("hugepages-").and_then(|n| n.strip_suffix("kB"));
        let Some(size) = kib.and_then(|n| n.parse::<u64>().ok()?.checked_mul(1024)) else { continue };
        let mut get = |file: &str| {
            dir.number::<i64>(&format!("{name}/{file}"), &mut buf).and_then(|n| u64::try_from(n).ok())
        };
        if let Some(total) = get("nr_hugepages") {
            node.hugepages.push(Hugepages { size, total, free: get("free_hugepages") });
        }
    }
    node.hugepages.sort_by_key(|h| h.size);
}

fn side_caches(dir: &Dir, node: &mut Node) {
    let mut buf = Vec::new();
    for level in dir.numbered("index").iter() {
        let mut get = |file: &str| dir.number::<i64>(&format!("index{level}/{file}"), &mut buf);
        if let (Some(size), Some(line)) = (get("size"), get("line_size")) {
            node.side_caches.push(SideCache {
                level,
                size: u64::try_from(size).unwrap_or(0),
                line: u32::try_from(line).unwrap_or(0),
            });
        }
    }
}

/// Each node's row has one number per online node, in order; a row that does not spoils the matrix.
fn distances(dir: &Dir, t: &Topology, nodes: usize, places: &[usize]) -> Vec<Vec<u32>> {
    let mut buf = Vec::new();
    let mut rows = Vec::new();
    for node in &t.nodes {
        let text = dir.read(&format!("node{}/distance", node.id), &mut buf).unwrap_or_default();
        let row: Vec<u32> = text.split_ascii_whitespace().map_while(|d| d.parse().ok()).collect();
        if row.len() < nodes {
            return Vec::new();
        }
        rows.push(places.iter().map(|&p| row[p]).collect());
    }
    rows
}

/// Says which CPUs are local to memory that has none of its own.
fn localize(dir: &Dir, t: &mut Topology) {
    let by_id: Vec<(u32, CpuSet)> = t.nodes.iter().map(|n| (n.id, n.cpus.clone())).collect();
    // Nodes with CPUs first, so that the others build upon them.
    let (with, without): (Vec<usize>, Vec<usize>) =
        (0..t.nodes.len()).partition(|&n| !t.nodes[n].cpus.is_empty());
    for n in with.into_iter().chain(without) {
        let id = t.nodes[n].id;
        // access1 is of CPUs alone, access0 of devices too (Linux 5.10).
        let initiators = ["access1", "access0"]
            .iter()
            .find_map(|access| dir.dir(&format!("node{id}/{access}/initiators")))
            .map(|d| d.numbered("node"))
            .unwrap_or_default();
        for (other, cpus) in &by_id {
            if *other != id && initiators.contains(*other) {
                t.nodes[n].local_cpus = t.nodes[n].local_cpus.or(cpus);
            }
        }
        if t.nodes[n].local_cpus.is_empty() {
            t.nodes[n].local_cpus = nearest(t, n).unwrap_or_default();
        }
    }
}

/// The CPUs of the nodes nearest to this one; `None` where the distances do not tell.
fn nearest(t: &Topology, n: usize) -> Option<CpuSet> {
    let row = t.distances.get(n)?;
    let others = || (0..t.nodes.len()).filter(|&o| o != n);
    let least = others().map(|o| row[o]).min()?;
    let near: Vec<usize> = others().filter(|&o| row[o] == least).collect();
    // As far from all the others as from one another tells nothing.
    if least <= row[n] || near.len() + 1 == t.nodes.len() {
        return None;
    }
    let cpus = near.iter().fold(CpuSet::new(), |set, &o| set.or(&t.nodes[o].local_cpus));
    (!cpus.is_empty()).then_some(cpus)
}

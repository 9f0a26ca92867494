//! NUMA nodes from `/sys/devices/system/node`.

use std::collections::BTreeMap;

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
    for id in ids.iter() {
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
        let cpus = cpus.and(&t.online);
        let mut node = Node { id, local_cpus: cpus.clone(), cpus, ..Node::default() };
        meminfo(own.read("meminfo", &mut buf).unwrap_or_default(), &mut node);
        if let Some(pools) = own.dir("hugepages") {
            hugepages(&pools, &mut node);
        }
        if let Some(caches) = own.dir("memory_side_cache") {
            side_caches(&caches, &mut node);
        }
        // The driver of a GPU reserves this memory for itself: programs do not get it by default.
        if gpus.contains(id) { t.device_nodes.push(node) } else { t.nodes.push(node) }
    }
    distances(dir, t, &ids);
    localize(dir, t);
    Ok(())
}

/// Nodes that are memory of NVIDIA GPUs (`/proc/driver/nvidia/gpus/*/numa_status`).
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
    // "Node 0 MemTotal:       32864016 kB", without the node in /proc/meminfo.
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

/// Reads the distances. A malformed row invalidates the matrix.
fn distances(dir: &Dir, t: &mut Topology, online: &CpuSet) {
    let mut rows = BTreeMap::new();
    for node in t.nodes.iter().chain(&t.device_nodes) {
        match row(dir, node.id, online) {
            Ok(row) => rows.insert(node.id, row),
            Err(why) => {
                t.warnings.extend(why);
                return;
            }
        };
    }
    let distance = |from: u32, to: u32| rows.get(&from)?.get(&to).copied();
    let matrix: Option<Vec<Vec<u32>>> =
        t.nodes.iter().map(|a| t.nodes.iter().map(|b| distance(a.id, b.id)).collect()).collect();
    t.distances = matrix.unwrap_or_default();
    let all = || t.nodes.iter().chain(&t.device_nodes).map(|n| n.id);
    let devices: CpuSet = t.device_nodes.iter().map(|n| n.id).collect();
    let pairs = all().flat_map(|a| all().map(move |b| (a, b)));
    t.device_distances = pairs
        .filter(|(a, b)| devices.contains(*a) || devices.contains(*b))
        .filter_map(|(a, b)| Some(((a, b), distance(a, b)?)))
        .collect();
}

/// The distances from a node to others by number: the kernel lists those of the online nodes in order. A tree
/// and its row may disagree about the online nodes; the row is then for the nodes that have a directory.
/// `Err` contains a warning, except for a missing row.
fn row(dir: &Dir, id: u32, online: &CpuSet) -> Result<BTreeMap<u32, u32>, Option<String>> {
    let mut buf = Vec::new();
    let text = dir.read(&format!("node{id}/distance"), &mut buf).unwrap_or_default();
    let row: Vec<u32> = text.split_ascii_whitespace().map_while(|d| d.parse().ok()).collect();
    let least = row.iter().min().ok_or(None)?;
    let named = dir.numbered("node");
    // Nothing is nearer to a node than its own memory.
    let fits =
        |ids: &&CpuSet| ids.iter().position(|n| n == id).is_some_and(|own| row.get(own) == Some(least));
    let ids = [online, &named]
        .into_iter()
        .filter(|ids| ids.len() == row.len())
        .chain([online].into_iter().filter(|ids| ids.len() < row.len()))
        .find(fits)
        .ok_or_else(|| {
            Some(format!(
                "node {id}: {} distances do not belong to the {} nodes that are online; distances left out",
                row.len(),
                online.len()
            ))
        })?;
    Ok(ids.iter().zip(row.iter().copied()).collect())
}

/// Sets the local CPUs of memory without CPUs.
fn localize(dir: &Dir, t: &mut Topology) {
    let by_id: Vec<(u32, CpuSet)> = t.nodes.iter().map(|n| (n.id, n.cpus.clone())).collect();
    // Nodes with CPUs first, because the others depend on them.
    let (with, without): (Vec<usize>, Vec<usize>) =
        (0..t.nodes.len()).partition(|&n| !t.nodes[n].cpus.is_empty());
    for n in with.into_iter().chain(without) {
        let id = t.nodes[n].id;
        // access1 is for CPUs only, access0 for devices too (Linux 5.10).
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

/// The CPUs of the nodes nearest to this one; `None` if the distances do not determine them.
fn nearest(t: &Topology, n: usize) -> Option<CpuSet> {
    let row = t.distances.get(n)?;
    let others = || (0..t.nodes.len()).filter(|&o| o != n);
    let least = others().map(|o| row[o]).min()?;
    let near: Vec<usize> = others().filter(|&o| row[o] == least).collect();
    // Nodes that are all equally distant give no hint.
    if least <= row[n] || near.len() + 1 == t.nodes.len() {
        return None;
    }
    let cpus = near.iter().fold(CpuSet::new(), |set, &o| set.or(&t.nodes[o].local_cpus));
    (!cpus.is_empty()).then_some(cpus)
}

//! The layouts of `psrinfo -pv`, `lgrpinfo`, `showcores` and `numactl --hardware`.

use std::collections::HashMap;
use std::fmt::Write;

use ncpu_machine::{CpuSet, Topology};

use super::{bytes, count, shown};

/// The layout of `psrinfo -pv`: packages, their cores and CPUs, model and clock. Where every core
/// has one CPU the cores are left out, as there.
pub fn psrinfo(t: &Topology) -> String {
    let threaded = t.cores.iter().any(|c| c.cpus.len() > 1);
    let housed = t.packages.iter().fold(CpuSet::new(), |set, p| set.or(&p.cpus));
    let homeless = t.online.minus(&housed);
    let mut packages: Vec<(&CpuSet, Option<&str>, Option<f64>)> = t
        .packages
        .iter()
        .filter(|p| !p.cpus.is_empty())
        .map(|p| (&p.cpus, p.model.as_deref().or(p.vendor.as_deref()), p.mhz))
        .collect();
    // A kernel that reports no packages still has processors.
    if !homeless.is_empty() {
        packages.push((&homeless, None, homeless.first().and_then(|c| t.cpu(c)?.mhz)));
    }
    let mut out = String::new();
    for (at, (cpus, model, mhz)) in packages.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let cores: Vec<_> =
            t.cores.iter().filter(|c| threaded && !c.cpus.is_empty() && c.cpus.is_subset(cpus)).collect();
        let strands = format!("{} ({})", count(cpus.len(), "virtual processor"), spaced(cpus));
        let cored = if cores.is_empty() { String::new() } else { count(cores.len(), "core") + " and " };
        let _ = writeln!(out, "The physical processor has {cored}{strands}");
        for core in &cores {
            let strands = count(core.cpus.len(), "virtual processor");
            let _ = writeln!(out, "  The core has {strands} ({})", spaced(&core.cpus));
        }
        let indent = if cores.is_empty() { "  " } else { "    " };
        let clock = mhz.map(|mhz| format!("(clock {mhz:.0} MHz)"));
        let line = [model.map(shown), clock].into_iter().flatten().collect::<Vec<_>>().join(" ");
        if !line.is_empty() {
            let _ = writeln!(out, "{indent}{line}");
        }
        // The clock above is the first CPU's.
        let kinds = t.kinds.iter().map(|k| (k, k.cpus.and(cpus))).filter(|(_, own)| !own.is_empty());
        let kinds: Vec<_> = kinds.collect();
        for (kind, own) in kinds.iter().filter(|_| kinds.len() > 1) {
            let clock = own.first().and_then(|c| t.cpu(c)?.mhz);
            let clock = clock.map_or_else(String::new, |mhz| format!(" (clock {mhz:.0} MHz)"));
            let _ = writeln!(out, "{indent}{}{clock}: {}", shown(&kind.name), spaced(own));
        }
    }
    out
}

/// As the blog's tools write sets: runs of three or more as ranges, the rest one by one.
fn spaced(set: &CpuSet) -> String {
    let runs = set.ranges().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first} {last}"),
        _ => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(" ")
}

/// The layout of `lgrpinfo`: node N is lgroup N + 1 below the root; a machine of one node is the
/// root alone.
pub fn lgrp(t: &Topology) -> String {
    let mut out = String::new();
    let mut group = |head: String, children: String, cpus: &CpuSet, total: Option<u64>, free: Option<u64>| {
        let size = |n: Option<u64>| n.map_or("unknown".into(), bytes);
        let used = total.zip(free).map(|(t, f)| t.saturating_sub(f));
        let cpus = if cpus.is_empty() { "none".into() } else { spaced(cpus) };
        let _ = writeln!(
            out,
            "lgroup {head}:\n        Children: {children}\n        CPUs: {cpus}\n        Memory: installed {}, allocated {}, free {}",
            size(total),
            size(used),
            size(free)
        );
    };
    let leaves: CpuSet = if t.nodes.len() > 1 {
        t.nodes.iter().map(|n| n.id.saturating_add(1)).collect()
    } else {
        CpuSet::new()
    };
    let sum = |f: &dyn Fn(&ncpu_machine::Node) -> Option<u64>| {
        t.nodes.iter().map(f).try_fold(0u64, |sum, n| Some(sum.saturating_add(n?)))
    };
    let children = if leaves.is_empty() { "none".into() } else { spaced(&leaves) };
    group("0 (root)".into(), children, &t.online, sum(&|n| n.total), sum(&|n| n.free));
    for node in t.nodes.iter().filter(|_| !leaves.is_empty()) {
        let head = format!("{} (leaf)", node.id.saturating_add(1));
        group(head, "none, Parent: 0".into(), &node.cpus, node.total, node.free);
    }
    out
}

/// The blog's `showcores`: each CPU and its core, which is named by its lowest CPU because the
/// kernel's `core_id` is unique within a package only.
pub fn showcores(t: &Topology) -> String {
    let mut out = " CPU core\n".to_string();
    for cpu in &t.cpus {
        let core = t.core_of(cpu.id).and_then(|c| c.cpus.first()).map_or("-".into(), |c| c.to_string());
        let _ = writeln!(out, "{:>4} {core:>3}", cpu.id);
    }
    out
}

/// The layout of `numactl --hardware`: all online nodes, those that are the memory of a device too.
pub fn numactl(t: &Topology) -> String {
    let mut nodes: Vec<&ncpu_machine::Node> = t.nodes.iter().chain(&t.device_nodes).collect();
    nodes.sort_by_key(|n| n.id);
    let ids: CpuSet = nodes.iter().map(|n| n.id).collect();
    let mut out = format!("available: {} nodes ({})\n", nodes.len(), ids.to_list());
    for node in &nodes {
        let id = node.id;
        let cpus: String = node.cpus.iter().map(|c| format!(" {c}")).collect();
        let _ = writeln!(out, "node {id} cpus:{cpus}");
        for (name, size) in [("size", node.total), ("free", node.free)] {
            let size = size.map_or("<not available>".into(), |n| format!("{} MB", n >> 20));
            let _ = writeln!(out, "node {id} {name}: {size}");
        }
    }
    let own: HashMap<u32, usize> = t.nodes.iter().enumerate().map(|(at, n)| (n.id, at)).collect();
    let distance = |from: u32, to: u32| match (own.get(&from), own.get(&to)) {
        (Some(&from), Some(&to)) => t.distances.get(from)?.get(to).copied(),
        _ => t.device_distances.get(&(from, to)).copied(),
    };
    let rows: Option<Vec<Vec<u32>>> =
        ids.iter().map(|a| ids.iter().map(|b| distance(a, b)).collect()).collect();
    match rows {
        Some(rows) => {
            let row = |cells: &[u32]| cells.iter().map(|n| format!("{n:>3} ")).collect::<String>();
            let _ = writeln!(out, "node distances:\nnode {}", row(&ids.iter().collect::<Vec<_>>()));
            for (id, distances) in ids.iter().zip(&rows) {
                let _ = writeln!(out, "{id:>3}: {}", row(distances));
            }
        }
        None => out.push_str("No distance information available.\n"),
    }
    out += &devices(t).map_or_else(String::new, |words| words + "\n");
    out
}

/// Which nodes are the memory of devices.
pub(super) fn devices(t: &Topology) -> Option<String> {
    let ids: CpuSet = t.device_nodes.iter().map(|n| n.id).collect();
    let total = t.device_nodes.iter().filter_map(|n| n.total).fold(0, u64::saturating_add);
    let nodes = if ids.len() == 1 { "node" } else { "nodes" };
    (!ids.is_empty())
        .then(|| format!("memory of GPUs, which their driver gives out: {nodes} {ids} ({})", bytes(total)))
}

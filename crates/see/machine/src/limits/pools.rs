//! Pools of huge pages, of the machine and of each node.

use super::files::{Files, field};
use super::{Area, Found, Knob, Reading, Scope, Size, Unit};

pub(super) fn read(files: &Files<'_>, size: Size, found: &mut Found) {
    pool(files, "sys/kernel/mm/hugepages", &Scope::Machine, found);
    let nodes = files.dir.dir("sys/devices/system/node");
    let nodes: Vec<u32> = nodes.map(|d| d.numbered("node").iter().collect()).unwrap_or_default();
    // With one node its pool equals the machine's.
    if size.nodes > 1 {
        for node in nodes {
            pool(files, &format!("sys/devices/system/node/node{node}/hugepages"), &Scope::Node(node), found);
        }
    }
    for (name, path) in
        [("transparent_hugepage/enabled", "enabled"), ("transparent_hugepage/defrag", "defrag")]
    {
        let path = format!("sys/kernel/mm/transparent_hugepage/{path}");
        found.set("memory", name, files.text(&path), &path);
    }
    let vmstat = files.text("proc/vmstat").unwrap_or_default();
    if let Some(failed) = field(&vmstat, "thp_fault_fallback ") {
        found.set("memory", "thp_fault_fallback", Some(failed.to_string()), "proc/vmstat");
    }
}

/// The pools of each page size below a directory.
fn pool(files: &Files<'_>, dir: &str, scope: &Scope, found: &mut Found) {
    let Some(pools) = files.dir.dir(dir) else { return };
    let mut sizes: Vec<u64> = pools
        .names()
        .iter()
        .filter_map(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .collect();
    sizes.sort_unstable();
    for kib in sizes {
        let at = format!("{dir}/hugepages-{kib}kB");
        let number = |name: &str| files.number(&format!("{at}/{name}"));
        let Some(total) = number("nr_hugepages") else { continue };
        let free = number("free_hugepages").unwrap_or(0);
        let notes: Vec<String> = [("resv_hugepages", "reserved"), ("surplus_hugepages", "surplus")]
            .into_iter()
            .filter_map(|(file, word)| number(file).filter(|&n| n > 0).map(|n| format!("{n} {word}")))
            .chain(
                number("nr_overcommit_hugepages")
                    .map(|n| format!("{n} more on demand (nr_overcommit_hugepages)")),
            )
            .collect();
        // Pages reserved for a mapping count as used.
        let used = total.saturating_sub(free).saturating_add(number("resv_hugepages").unwrap_or(0));
        let name = match kib {
            _ if kib >= 1 << 20 => format!("{} GiB", kib >> 20),
            _ if kib >= 1 << 10 => format!("{} MiB", kib >> 10),
            _ => format!("{kib} KiB"),
        };
        found.readings.push(
            Reading::new(
                format!("huge pages of {name}"),
                Area::HugePages,
                Unit::Count,
                Some(total),
                Knob::File(format!("/{at}/nr_hugepages")),
            )
            .scope(scope.clone())
            .used(Some(used))
            .note(Some(notes.join(", ")).filter(|n| !n.is_empty())),
        );
    }
}

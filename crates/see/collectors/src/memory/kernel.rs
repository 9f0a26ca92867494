//! Uses of the kernel's own pages that other files show, since no bit of a page does.

use std::fs;
use std::path::Path;

/// Uses of [`Class::Kernel`](super::Class::Kernel) pages and their bytes, as far as files below `root` tell.
/// They overlap no class but that one; what is left has no account.
pub fn kernel_uses(root: &Path, page_size: u64) -> Vec<(&'static str, u64)> {
    let mut uses = Vec::new();
    let mut add = |name, bytes| {
        if bytes > 0 {
            uses.push((name, bytes));
        }
    };
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    for (key, name) in [("VmallocUsed", "vmalloc"), ("Percpu", "per-CPU")] {
        let kib = meminfo.lines().find_map(|l| {
            let value = l.strip_prefix(key)?.strip_prefix(':')?;
            value.split_ascii_whitespace().next()?.parse::<u64>().ok()
        });
        add(name, kib.unwrap_or(0).saturating_mul(1024));
    }
    // Scattered buffers of ZFS's cache; the others are in slabs.
    let abd = fs::read_to_string(root.join("proc/spl/kstat/zfs/abdstats")).unwrap_or_default();
    let zfs = abd.lines().filter_map(|l| {
        let mut words = l.split_ascii_whitespace();
        let name = words.next()?;
        let value = words.nth(1)?.parse::<u64>().ok()?;
        matches!(name, "scatter_data_size" | "scatter_chunk_waste").then_some(value)
    });
    add("ZFS file data", zfs.fold(0, u64::saturating_add));
    let zones = fs::read_to_string(root.join("proc/zoneinfo")).unwrap_or_default();
    let free = ncpu_machine::memory::parse_zoneinfo(&zones)
        .iter()
        .fold(0u64, |n, z| n.saturating_add(z.on_cpu_lists));
    add("free on lists of the CPUs", free.saturating_mul(page_size));
    uses
}

#[cfg(test)]
mod tests {
    use ncpu_machine_trees::put;

    use super::*;

    #[test]
    fn what_is_known_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(kernel_uses(root.path(), 4096).is_empty());
        put(root.path(), "proc/meminfo", "VmallocTotal: 9999 kB\nVmallocUsed:     100 kB\nPercpu: 0 kB\n");
        let abd = "13 1 0x01 21 5712 1 2\nname type data\nscatter_cnt 4 7\nscatter_data_size 4 8192\nscatter_chunk_waste 4 512\n";
        put(root.path(), "proc/spl/kstat/zfs/abdstats", abd);
        let zone =
            "Node 0, zone Normal\n  pagesets\n    cpu: 0\n      count: 3\n    cpu: 1\n      count: 4\n";
        put(root.path(), "proc/zoneinfo", zone);
        assert_eq!(
            kernel_uses(root.path(), 4096),
            [("vmalloc", 102400), ("ZFS file data", 8704), ("free on lists of the CPUs", 7 * 4096)]
        );
    }
}

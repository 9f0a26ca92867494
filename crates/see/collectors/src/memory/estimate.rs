//! What `/proc/meminfo` tells without looking at pages: an estimate, for users that are not root.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::{Class, Counts};

/// Estimates the classes of each node below `root` from `sys/devices/system/node/nodeN/meminfo`, or of a
/// machine without nodes from `proc/meminfo`.
///
/// `Exec and libs` stays in `File mapped`, for the kernel's counters do not separate them, and `File
/// mapped` may hold some mapped shared memory. Reserved memory is the difference between the pages of the
/// zones and those of the allocator.
///
/// # Errors
/// `proc/meminfo` cannot be read.
pub(super) fn read(root: &Path, page_size: u64) -> io::Result<BTreeMap<u32, Counts>> {
    let mut nodes = BTreeMap::new();
    let dir = root.join("sys/devices/system/node");
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|n| n.strip_prefix("node")?.parse().ok()) else { continue };
        if let Ok(text) = fs::read_to_string(entry.path().join("meminfo")) {
            nodes.insert(id, counts(&text, page_size));
        }
    }
    if nodes.is_empty() {
        nodes.insert(0, counts(&fs::read_to_string(root.join("proc/meminfo"))?, page_size));
    }
    let zones = fs::read_to_string(root.join("proc/zoneinfo")).unwrap_or_default();
    for zone in ncpu_machine::memory::parse_zoneinfo(&zones) {
        if let Some(counts) = nodes.get_mut(&zone.node).filter(|_| zone.name != "Device") {
            let reserved = &mut counts[Class::Reserved];
            *reserved = reserved.saturating_add(zone.present.saturating_sub(zone.managed));
        }
    }
    // A node without memory gets no row.
    nodes.retain(|_, counts| counts.total() > 0);
    Ok(nodes)
}

fn counts(text: &str, page_size: u64) -> Counts {
    let mut values: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        // "MemTotal:       24731708 kB", "Node 0 MemTotal:       24731708 kB".
        let Some((key, value)) = line.split_once(':') else { continue };
        let key = key.rsplit(' ').next().unwrap_or(key);
        let number = value.split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        // Counts of hugetlb pages have no unit.
        if let (Some(kib), true) = (number, value.trim_end().ends_with("kB")) {
            values.insert(key, kib.saturating_mul(1024) / page_size);
        }
    }
    let pages = |key: &str| values.get(key).copied().unwrap_or(0);
    let mut c = Counts::default();
    c[Class::Free] = pages("MemFree");
    c[Class::Slab] = pages("Slab");
    c[Class::PageTables] = pages("PageTables").saturating_add(pages("SecPageTables"));
    c[Class::AnonThp] = pages("AnonHugePages");
    c[Class::Anon] = pages("AnonPages").saturating_sub(c[Class::AnonThp]);
    c[Class::SharedThp] = pages("ShmemHugePages");
    c[Class::Shared] = pages("Shmem").saturating_sub(c[Class::SharedThp]);
    c[Class::Hugetlb] = pages("Hugetlb");
    // A node has FilePages, which are Cached, Buffers and SwapCached of the whole.
    let file = match values.get("FilePages") {
        Some(&pages) => pages,
        None => pages("Cached").saturating_add(pages("Buffers")),
    };
    let file = file.saturating_sub(pages("Shmem"));
    c[Class::Mapped] = pages("Mapped").min(file);
    c[Class::Cache] = file - c[Class::Mapped];
    let known = c.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(n));
    c[Class::Kernel] = pages("MemTotal").saturating_sub(known);
    c
}

#[cfg(test)]
mod tests {
    use ncpu_machine_trees::put;
    use proptest::prelude::*;

    use super::*;

    const MEMINFO: &str = "MemTotal:  1000 kB\nMemFree: 400 kB\nBuffers: 8 kB\nCached: 200 kB\nMapped: 40 kB\n\
        AnonPages: 120 kB\nAnonHugePages: 20 kB\nShmem: 16 kB\nSlab: 80 kB\nPageTables: 12 kB\nHugePages_Total: 7\n";

    #[test]
    fn classes_of_the_whole_machine() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        assert!(read(dir.path(), 4096).is_err());
        fs::write(dir.path().join("proc/meminfo"), MEMINFO).unwrap();
        let zone = "Node 0, zone Normal\n  spanned 300\n  present 260\n  managed 250\n";
        fs::write(dir.path().join("proc/zoneinfo"), zone).unwrap();
        let c = read(dir.path(), 4096).unwrap()[&0];
        let of = |class| c[class];
        assert_eq!(
            (of(Class::Free), of(Class::Anon), of(Class::AnonThp), of(Class::Shared)),
            (100, 25, 5, 4)
        );
        assert_eq!((of(Class::Mapped), of(Class::Cache), of(Class::Reserved)), (10, 38, 10));
        assert_eq!(c.total(), 250 + 10);
    }

    #[test]
    fn classes_of_each_node() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        for (node, total) in [(0, 800), (3, 400), (5, 0)] {
            let text = format!("Node {node} MemTotal: {total} kB\nNode {node} FilePages: {} kB\n", total / 2);
            put(dir.path(), format!("sys/devices/system/node/node{node}/meminfo"), &text);
        }
        let nodes = read(dir.path(), 4096).unwrap();
        assert_eq!(nodes.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!((nodes[&3].total(), nodes[&3][Class::Cache]), (100, 50));
    }

    proptest! {
        #[test]
        fn any_meminfo_is_borne(text in "((MemTotal|Cached|Slab|Shmem|Mapped|MemFree): {1,4}[0-9]{0,21}( kB)?\n|.{0,20}\n){0,20}") {
            counts(&text, 4096);
        }
    }
}

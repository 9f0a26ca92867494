//! The places of physical memory: ranges of page frames and their NUMA nodes, from `/proc/iomem`,
//! `/proc/zoneinfo` and the memory blocks of sysfs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::root::Dir;
use crate::{Error, Result};

/// Page frames `start..end` of memory, all on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// First page frame number.
    pub start: u64,
    /// The frame after the last.
    pub end: u64,
    /// NUMA node.
    pub node: u32,
    /// Whether the kernel uses it; a memory block may be offline.
    pub online: bool,
}

impl Frames {
    /// The number of pages.
    pub fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// A zone of a node (`/proc/zoneinfo`), in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// `DMA`, `Normal`, `Device`, …
    pub name: String,
    /// First page frame number.
    pub start: u64,
    /// Pages from the first to the last, including holes.
    pub spanned: u64,
    /// Existing pages.
    pub present: u64,
    /// Pages that the allocator manages: existing pages without those reserved at boot.
    pub managed: u64,
    /// Free pages on the lists of CPUs.
    pub on_cpu_lists: u64,
}

/// A machine's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryMap {
    /// By page frame, with neighbours of the same node and state merged.
    pub ranges: Vec<Frames>,
    /// The zones that hold memory, without ZONE_DEVICE.
    pub zones: Vec<Zone>,
    /// Warnings for the user about malformed data.
    pub warnings: Vec<String>,
}

impl MemoryMap {
    /// Reads the memory of the machine whose `sys` and `proc` lie below `root`, in pages of
    /// `page_size` bytes.
    ///
    /// # Errors
    /// `proc/iomem` does not exist, hides addresses (which only root sees), or names no memory.
    pub fn read(root: &Path, page_size: u64) -> Result<MemoryMap> {
        let dir = Dir::root(root)?;
        let mut buf = Vec::new();
        let path: PathBuf = dir.path("proc/iomem");
        let Some(text) = dir.read("proc/iomem", &mut buf) else {
            return Err(Error::NoMachine { root: root.into(), missing: "proc/iomem" });
        };
        let ram: Vec<(u64, u64)> = parse_iomem(text)
            .into_iter()
            // The kernel uses whole pages only.
            .map(|(start, end)| (start.div_ceil(page_size), end / page_size))
            .filter(|(start, end)| start < end)
            .collect();
        if ram.is_empty() {
            return Err(Error::NoMemory { path });
        }
        let mut zones = parse_zoneinfo(dir.read("proc/zoneinfo", &mut buf).unwrap_or_default());
        zones.retain(|z| z.present > 0 && z.name != "Device");
        let mut map = MemoryMap { ranges: Vec::new(), zones, warnings: Vec::new() };
        let pages: u64 = ram.iter().map(|(start, end)| end - start).sum();
        // If spans of nodes interleave, they do not determine the node of the pages between. Nor does the
        // zones' sum if blocks are offline.
        let spans = map.spans();
        let blocks = if spans.is_none() || pages != map.present() {
            Blocks::read(&dir, page_size)
        } else {
            Blocks::default()
        };
        for (start, end) in ram {
            map.place(start, end, spans.as_deref(), &blocks);
        }
        let online: u64 = map.ranges.iter().filter(|r| r.online).map(Frames::pages).sum();
        if !map.zones.is_empty() && online != map.present() {
            map.warnings.push(format!(
                "proc/iomem names {online} pages of online memory, proc/zoneinfo {}",
                map.present()
            ));
        }
        Ok(map)
    }

    /// Pages the zones hold.
    pub fn present(&self) -> u64 {
        self.zones.iter().fold(0, |sum, z| sum.saturating_add(z.present))
    }

    /// Pages of memory, including offline ones.
    pub fn pages(&self) -> u64 {
        self.ranges.iter().map(Frames::pages).sum()
    }

    /// The nodes that hold memory, in order.
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.ranges.iter().map(|r| r.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The memory range of each node, in order of page frames; `None` if nodes interleave.
    fn spans(&self) -> Option<Vec<(u64, u64, u32)>> {
        let mut by_node: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for z in &self.zones {
            let end = z.start.saturating_add(z.spanned);
            let span = by_node.entry(z.node).or_insert((z.start, end));
            *span = (span.0.min(z.start), span.1.max(end));
        }
        let mut spans: Vec<_> = by_node.into_iter().map(|(node, (start, end))| (start, end, node)).collect();
        spans.sort_unstable();
        spans.windows(2).all(|w| w[0].1 <= w[1].0).then_some(spans)
    }

    /// Divides `start..end` where its node or its state changes.
    fn place(&mut self, start: u64, end: u64, spans: Option<&[(u64, u64, u32)]>, blocks: &Blocks) {
        let mut at = start;
        while at < end {
            let (mut next, mut node, mut online) = (end, 0, true);
            if let Some(block) = blocks.frames_of(at) {
                next = next.min(block.end);
                (node, online) = (block.node, block.online);
            }
            if let Some(spans) = spans {
                let i = spans.partition_point(|s| s.1 <= at);
                match spans.get(i) {
                    Some(s) if s.0 <= at => {
                        next = next.min(s.1);
                        node = s.2;
                    }
                    Some(s) => next = next.min(s.0),
                    None => {}
                }
            }
            match self.ranges.last_mut() {
                Some(last) if last.end == at && last.node == node && last.online == online => last.end = next,
                _ => self.ranges.push(Frames { start: at, end: next, node, online }),
            }
            at = next;
        }
    }
}

/// The memory blocks of sysfs: units of hotplug.
#[derive(Debug, Default)]
struct Blocks {
    pages: u64,
    of: BTreeMap<u64, (u32, bool)>,
}

impl Blocks {
    fn read(root: &Dir, page_size: u64) -> Blocks {
        let mut blocks = Blocks::default();
        let mut buf = Vec::new();
        let Some(dir) = root.dir("sys/devices/system/memory") else { return blocks };
        let bytes =
            dir.read("block_size_bytes", &mut buf).and_then(|t| u64::from_str_radix(t.trim(), 16).ok());
        blocks.pages = bytes.unwrap_or(0) / page_size;
        if blocks.pages == 0 {
            return blocks;
        }
        for name in dir.names() {
            let Some(block) = name.strip_prefix("memory").and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            let online = dir.read(&format!("{name}/state"), &mut buf).is_none_or(|s| s.trim() != "offline");
            blocks.of.insert(block, (0, online));
        }
        let Some(nodes) = root.dir("sys/devices/system/node") else { return blocks };
        for id in nodes.numbered("node").iter() {
            let Some(node) = nodes.dir(&format!("node{id}")) else { continue };
            for name in node.names() {
                let block = name.strip_prefix("memory").and_then(|n| n.parse::<u64>().ok());
                if let Some(block) = block.and_then(|b| blocks.of.get_mut(&b)) {
                    block.0 = id;
                }
            }
        }
        blocks
    }

    fn frames_of(&self, pfn: u64) -> Option<Frames> {
        let number = pfn.checked_div(self.pages)?;
        let &(node, online) = self.of.get(&number)?;
        let start = number * self.pages;
        Some(Frames { start, end: start.saturating_add(self.pages), node, online })
    }
}

/// The byte ranges (end excluded) of `System RAM` in `/proc/iomem`, in order and disjoint. They include
/// memory that a driver hands to the kernel (`System RAM (kmem)`, below persistent memory).
pub fn parse_iomem(text: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let (addresses, name) = line.split_once(" : ")?;
        let (start, end) = addresses.trim().split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?.checked_add(1)?;
        // Users other than root read every address as 0.
        (name.starts_with("System RAM") && end > 1 && start < end).then_some((start, end))
    };
    let mut ranges: Vec<(u64, u64)> = text.lines().filter_map(range).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// The zones of `/proc/zoneinfo`, including those without memory.
pub fn parse_zoneinfo(text: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let Some((node, name)) = rest.split_once(", zone") else { continue };
            let Ok(node) = node.trim().parse() else { continue };
            zones.push(Zone { node, name: name.trim().into(), ..Zone::default() });
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let mut words = line.split_ascii_whitespace();
        let (Some(key), Some(value), None) = (words.next(), words.next(), words.next()) else { continue };
        let Ok(value) = value.parse::<u64>() else { continue };
        match key.trim_end_matches(':') {
            "spanned" => zone.spanned = value,
            "present" => zone.present = value,
            "managed" => zone.managed = value,
            "start_pfn" => zone.start = value,
            "count" => zone.on_cpu_lists = zone.on_cpu_lists.saturating_add(value),
            _ => {}
        }
    }
    zones
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use ncpu_machine_trees::put;

    const IOMEM: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
0009fc00-000fffff : Reserved
  000f0000-000fffff : System ROM
00100000-bfffffff : System RAM
  01000000-01ffffff : Kernel code
100000000-23fffffff : System RAM
240000000-27fffffff : Persistent Memory
  240000000-27fffffff : dax0.0
    250000000-27fffffff : System RAM (kmem)
";

    fn zone(node: u32, start: u64, spanned: u64, present: u64) -> String {
        format!(
            "Node {node}, zone   Normal\n  pages free     3840\n        boost    0\n        spanned  {spanned}\n        \
             present  {present}\n        managed  {present}\n        cma      0\n        protection: (0, 1, 2)\n  pagesets\n    \
             cpu: 0\n              count:    7\n              high: 9\n    cpu: 1\n              count: 5\n  start_pfn:           {start}\n"
        )
    }

    fn tree(iomem: &str, zoneinfo: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "proc/iomem", iomem);
        put(dir.path(), "proc/zoneinfo", zoneinfo);
        dir
    }

    #[test]
    fn memory_and_what_a_driver_adds() {
        let ranges = parse_iomem(IOMEM);
        assert_eq!(
            ranges,
            [
                (0x1000, 0x9fc00),
                (0x100000, 0xc0000000),
                (0x100000000, 0x240000000),
                (0x250000000, 0x280000000)
            ]
        );
    }

    #[test]
    fn addresses_that_are_hidden_are_no_memory() {
        let dir = tree("00000000-00000000 : System RAM\n00000000-00000000 : Reserved\n", "");
        let error = MemoryMap::read(dir.path(), 4096).unwrap_err();
        assert!(error.to_string().contains("proc/iomem names no memory"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        assert!(MemoryMap::read(dir.path(), 4096).is_err());
    }

    #[test]
    fn nodes_from_zones() {
        let zones =
            zone(0, 1, 0x1fffff, 0x9e + 0xbff00 + 0x100000) + &zone(1, 0x200000, 0x80000, 0x40000 + 0x30000);
        let map = MemoryMap::read(tree(IOMEM, &zones).path(), 4096).unwrap();
        let frames = |start, end, node| Frames { start, end, node, online: true };
        assert_eq!(
            map.ranges,
            [
                frames(1, 0x9f, 0),
                frames(0x100, 0xc0000, 0),
                frames(0x100000, 0x200000, 0),
                frames(0x200000, 0x240000, 1),
                frames(0x250000, 0x280000, 1)
            ]
        );
        assert_eq!((map.nodes(), map.warnings.len()), (vec![0, 1], 0), "{:?}", map.warnings);
        assert_eq!(map.pages(), map.present());
        assert_eq!(map.zones[0].on_cpu_lists, 12);
    }

    #[test]
    fn interleaved_nodes_and_offline_blocks_from_sysfs() {
        // Blocks of 0x10000 pages: node 0 has 0 and 2, node 1 has 1 and 3; 3 is offline.
        let zones = zone(0, 0, 0x30000, 0x20000) + &zone(1, 0x10000, 0x20000, 0x10000);
        let dir = tree("00000000-3fffffff : System RAM\n", &zones);
        let sys = dir.path().join("sys/devices/system");
        for block in 0..4 {
            let state = if block == 3 { "offline\n" } else { "online\n" };
            put(&sys, format!("memory/memory{block}/state"), state);
            fs::create_dir_all(sys.join(format!("node/node{}/memory{block}", block % 2))).unwrap();
        }
        fs::write(sys.join("memory/block_size_bytes"), "10000000\n").unwrap();
        let map = MemoryMap::read(dir.path(), 4096).unwrap();
        let at = |start: u64, node, online| Frames { start, end: start + 0x10000, node, online };
        assert_eq!(
            map.ranges,
            [at(0, 0, true), at(0x10000, 1, true), at(0x20000, 0, true), at(0x30000, 1, false)]
        );
        assert!(map.warnings.is_empty(), "{:?}", map.warnings);
    }

    #[test]
    fn sums_that_differ_are_told() {
        let map = MemoryMap::read(tree(IOMEM, &zone(0, 0, 0x300000, 5)).path(), 4096).unwrap();
        assert_eq!(map.warnings.len(), 1);
    }

    proptest! {
        #[test]
        fn any_iomem_gives_ordered_disjoint_ranges(
            lines in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..40),
            noise in ".{0,60}",
        ) {
            let mut text = noise;
            for (start, end, ram) in lines {
                text += &format!("\n  {start:08x}-{end:08x} : {}", if ram { "System RAM" } else { "Reserved" });
            }
            let ranges = parse_iomem(&text);
            prop_assert!(ranges.iter().all(|r| r.0 < r.1));
            prop_assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0));
        }

        #[test]
        fn any_zoneinfo_is_borne(text in "(Node [0-9]{1,12}, zone [A-Z]{0,4}\n|[a-z_]{0,8}:? {1,3}[0-9]{1,22}\n|.{0,20}\n){0,40}") {
            let zones = parse_zoneinfo(&text);
            let map = MemoryMap { zones, ..MemoryMap::default() };
            map.present();
            map.spans();
        }
    }
}

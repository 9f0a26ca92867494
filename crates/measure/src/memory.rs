//! Memory that benchmarks work on: mapped in pages of a size, and whether there is enough of it.

use std::path::Path;

use ncpu_machine::Topology;

use ncpu_table::size;

use crate::failure::Failure;
use crate::place::Memory;

/// Bytes of the pages that memory is mapped with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// As `malloc` gives them: small, or huge where the kernel is set to (transparent huge pages).
    #[default]
    Default,
    /// 4 KiB (or the machine's base page), never huge.
    Small,
    /// Transparent huge pages wherever the kernel has them.
    Transparent,
    /// 2 MiB from the pool of huge pages.
    Huge2M,
    /// 1 GiB from the pool.
    Huge1G,
}

impl std::fmt::Display for PageSize {
    /// As it is parsed; `default` where the kernel chooses.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PageSize::Default => "default",
            PageSize::Small => "4k",
            PageSize::Transparent => "thp",
            PageSize::Huge2M => "2m",
            PageSize::Huge1G => "1g",
        })
    }
}

impl std::str::FromStr for PageSize {
    type Err = String;
    fn from_str(text: &str) -> Result<PageSize, String> {
        match text.to_ascii_lowercase().as_str() {
            "4k" => Ok(PageSize::Small),
            "thp" => Ok(PageSize::Transparent),
            "2m" => Ok(PageSize::Huge2M),
            "1g" => Ok(PageSize::Huge1G),
            _ => Err("give 4k, thp, 2m or 1g".into()),
        }
    }
}

impl PageSize {
    /// The unit of lengths and addresses, bytes, and flags of `mmap`.
    pub(crate) fn unit(self) -> (usize, i32) {
        match self {
            PageSize::Default | PageSize::Small => (4096, 0),
            PageSize::Transparent => (2 << 20, 0),
            PageSize::Huge2M => (2 << 20, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB),
            PageSize::Huge1G => (1 << 30, libc::MAP_HUGETLB | libc::MAP_HUGE_1GB),
        }
    }
}

/// Fresh memory of this process, given back when dropped.
#[derive(Debug)]
pub struct Area {
    base: *mut u8,
    mapped: usize,
    at: *mut u8,
    bytes: usize,
}

// SAFETY: owned memory that belongs to no thread.
unsafe impl Send for Area {}
// SAFETY: only a raw pointer is given out.
unsafe impl Sync for Area {}

impl Area {
    /// Maps at least `bytes`, untouched.
    ///
    /// # Errors
    /// Not enough memory, or the pool of huge pages has too few.
    pub fn map(bytes: usize, size: PageSize) -> Result<Area, Failure> {
        let (unit, flags) = size.unit();
        // mmap aligns to what the pool's pages need, but not to transparent huge pages.
        let slack = if size == PageSize::Transparent { unit } else { 0 };
        let none = || Failure::Failed(format!("no memory for {}", size::words(bytes as u64)));
        let bytes = bytes.max(1).checked_next_multiple_of(unit).ok_or_else(none)?;
        let mapped = bytes.checked_add(slack).ok_or_else(none)?;
        // SAFETY: asks for fresh memory anywhere.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(if flags == 0 { none() } else { no_huge_pages(bytes, unit) });
        }
        let skip = if slack == 0 { 0 } else { (base as usize).next_multiple_of(unit) - base as usize };
        // SAFETY: within what was mapped, which is longer by the slack.
        let at = unsafe { base.cast::<u8>().add(skip) };
        let advice = match size {
            PageSize::Small => Some(libc::MADV_NOHUGEPAGE),
            PageSize::Transparent => Some(libc::MADV_HUGEPAGE),
            _ => None,
        };
        if let Some(advice) = advice {
            // SAFETY: the area just mapped. A kernel without huge pages refuses, and has none to avoid.
            unsafe { libc::madvise(base, mapped, advice) };
        }
        Ok(Area { base: base.cast(), mapped, at, bytes })
    }

    /// Its begin, aligned to its pages.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// It never is.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Writes `byte` to all of it, so that all its pages are there.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the whole area is ours.
        unsafe { std::ptr::write_bytes(self.at, byte, self.bytes) };
    }

    /// The node of 16 of its pages, if it is one; a query moves nothing.
    pub fn node(&self) -> Option<u32> {
        let mut pages: Vec<*mut libc::c_void> =
            // SAFETY: within the area.
            (0..16).map(|i| unsafe { self.at.add((self.bytes * i / 16) & !4095) }.cast()).collect();
        let mut nodes = vec![-1i32; pages.len()];
        // SAFETY: both arrays have the length told; no target nodes: only asked.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_mut_ptr(),
                std::ptr::null::<i32>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        (done == 0 && nodes.iter().all(|&n| n == nodes[0])).then(|| u32::try_from(nodes[0]).ok())?
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped with this length and not used after.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

fn no_huge_pages(bytes: usize, unit: usize) -> Failure {
    Failure::Lacks(format!(
        "huge pages: {} of {} MiB are wanted and not free; set /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
        bytes / unit,
        unit >> 20,
        unit >> 10
    ))
}

/// Pages of a size that are free in the pool of huge pages, and promised to nobody.
///
/// # Errors
/// No page is free.
pub fn pool(size: PageSize, root: &Path) -> Result<u64, Failure> {
    let (unit, _) = size.unit();
    let read = |name: &str| {
        let file = root.join(format!("sys/kernel/mm/hugepages/hugepages-{}kB/{name}", unit >> 10));
        std::fs::read_to_string(file).ok().and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let free = read("free_hugepages").saturating_sub(read("resv_hugepages"));
    if free == 0 { Err(no_huge_pages(unit, unit)) } else { Ok(free) }
}

/// Checks that `bytes` are available without swapping, before any is touched: memory that is overcommitted is
/// not refused but taken from others, or ends in the OOM killer.
///
/// # Errors
/// The machine, the cgroup or the node has less.
pub fn room(bytes: u64, memory: Memory, machine: &Topology, root: &Path) -> Result<(), Failure> {
    let mut limits = vec![(available(root), "are available on this machine".to_string())];
    for (left, cgroup) in cgroups(root) {
        limits.push((Some(left), format!("are left of the memory limit of cgroup {cgroup}")));
    }
    if let Memory::Node(node) = memory
        && machine.nodes.iter().any(|n| n.id == node)
    {
        limits.push((node_available(root, node), format!("are available on node {node}")));
    }
    for (left, words) in limits {
        if let Some(left) = left
            && left < bytes
        {
            return Err(Failure::Failed(format!(
                "{} are wanted, and {} {words}",
                size::words(bytes),
                size::words(left)
            )));
        }
    }
    Ok(())
}

/// Kilobytes of lines `NAME: N kB`, summed over `names`, as bytes.
fn kilobytes(text: &str, names: &[&str]) -> Option<u64> {
    let of = |name: &str| {
        text.lines().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            (key.split_ascii_whitespace().next_back()? == name)
                .then(|| value.split_ascii_whitespace().next()?.parse::<u64>().ok())?
        })
    };
    names.iter().map(|n| of(n)).sum::<Option<u64>>().map(|kb| kb << 10)
}

fn available(root: &Path) -> Option<u64> {
    kilobytes(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?, &["MemAvailable"])
}

/// Free memory of a node, with the part of its page cache that can be given up, bytes; if the kernel
/// reports it.
pub fn node_available(root: &Path, node: u32) -> Option<u64> {
    let file = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
    kilobytes(&std::fs::read_to_string(file).ok()?, &["MemFree", "Active(file)", "Inactive(file)"])
}

/// The rest of the limits of this process's cgroup and those above it (version 2), bytes.
fn cgroups(root: &Path) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(own) = text.lines().find_map(|l| l.strip_prefix("0::/")) else { return Vec::new() };
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut left = Vec::new();
    for path in Path::new(own).ancestors() {
        let dir = root.join("sys/fs/cgroup").join(path);
        if let (Some(max), Some(used)) =
            (number(&dir.join("memory.max")), number(&dir.join("memory.current")))
        {
            // The page cache counts as used, and is given up.
            let cache = std::fs::read_to_string(dir.join("memory.stat")).ok().and_then(|t| {
                let of =
                    |name: &str| t.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
                Some(of("active_file ")? + of("inactive_file ")?)
            });
            left.push((
                max.saturating_sub(used.saturating_sub(cache.unwrap_or(0))),
                format!("/{}", path.display()),
            ));
        }
    }
    left
}

/// Bytes of the largest cache.
pub fn largest_cache(machine: &Topology) -> u64 {
    machine.caches.iter().filter(|c| !c.memory_side).map(|c| c.size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_aligned_and_ours() {
        for size in [PageSize::Default, PageSize::Small, PageSize::Transparent] {
            let area = Area::map(3 << 20, size).unwrap();
            area.fill(7);
            assert_eq!(area.as_ptr() as usize % size.unit().0, 0);
            assert!(area.len() >= 3 << 20 && !area.is_empty());
            // SAFETY: its last byte.
            assert_eq!(unsafe { *area.as_ptr().add(area.len() - 1) }, 7);
        }
        assert!(Area::map(1 << 62, PageSize::Default).unwrap_err().to_string().contains("no memory for"));
    }

    #[test]
    fn the_least_of_the_limits_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |name: &str, text: &str| ncpu_machine_trees::put(root, name, text);
        ncpu_machine_trees::generate::write(
            root,
            &ncpu_machine_trees::generate::Shape { nodes: 2, cores: 1, threads: 1 },
        )
        .unwrap();
        put("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8192 kB\n");
        put(
            "sys/devices/system/node/node1/meminfo",
            "Node 1 MemFree: 1024 kB\nNode 1 Active(file): 512 kB\nNode 1 Inactive(file): 512 kB\n",
        );
        let machine = Topology::read(root).unwrap();
        let room = |mib: u64, memory| room(mib << 20, memory, &machine, root).map_err(|e| e.to_string());
        assert_eq!(room(8, Memory::Default), Ok(()));
        assert_eq!(
            room(9, Memory::Default),
            Err("9 MiB are wanted, and 8 MiB are available on this machine".into())
        );
        assert_eq!(room(2, Memory::Node(1)), Ok(()));
        assert_eq!(
            room(3, Memory::Node(1)),
            Err("3 MiB are wanted, and 2 MiB are available on node 1".into())
        );
        put("proc/self/cgroup", "0::/job/step\n");
        put("sys/fs/cgroup/job/memory.max", "6291456\n");
        put("sys/fs/cgroup/job/memory.current", "4194304\n");
        put("sys/fs/cgroup/job/memory.stat", "anon 1\nactive_file 1048576\ninactive_file 1048576\n");
        put("sys/fs/cgroup/job/step/memory.max", "max\n");
        assert_eq!(room(4, Memory::Default), Ok(()));
        assert_eq!(
            room(5, Memory::Default),
            Err("5 MiB are wanted, and 4 MiB are left of the memory limit of cgroup /job".into())
        );
    }
}

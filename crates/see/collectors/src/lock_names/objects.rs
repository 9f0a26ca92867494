//! Asks the kernel for the object at an address: its slab cache, and its owner.

use std::io::Read;
use std::mem::MaybeUninit;
use std::ops::Range;

use libbpf_rs::{Iter, Link, MapCore, MapFlags, ProgramInput};

use ncpu_symbols::Kernel;

use crate::bpf_support::load;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/locknames.skel.rs"));
}

/// The programs, loaded but attached to nothing.
pub(super) struct Objects {
    skel: skel::LocknamesSkel<'static>,
    tasks: Link,
}

/// The cache an address belongs to, and the shape of its slabs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slab {
    pub cache: String,
    pub size: u32,
    pub object_size: u32,
    pub red_left_pad: u32,
    /// `order << 16 | objects`, as usual and when memory was fragmented.
    pub shapes: [u32; 2],
}

/// Where structures are that have no symbol.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The run queue of each CPU: address and CPU.
    pub run_queues: Vec<(u64, u32)>,
    /// The data of each NUMA node.
    pub nodes: Vec<u64>,
    /// Some `struct page`.
    pub page: u64,
    /// The record of some task.
    pub task: u64,
}

/// A process that uses an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its process id.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
}

impl Objects {
    pub fn open() -> libbpf_rs::Result<Objects> {
        // The skeleton borrows its object until it is dropped; a few bytes stay behind.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let types = load::Types::read().map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e)))?;
        let skel = types.open(skel::LocknamesSkelBuilder::default(), storage)?.load()?;
        let tasks = skel.progs.walk_tasks.attach()?;
        Ok(Objects { skel, tasks })
    }

    /// Finds out how this kernel tells an object's cache: by bpf_get_kmem_cache (Linux 6.13), else by
    /// its array of pages, which has symbols on x86-64 (`KALLSYMS_ALL`) and one of a few places on AArch64. Says whether there is a
    /// way.
    pub fn find_slabs(&mut self, kernel: Option<&Kernel>) -> bool {
        if self.slab(0).is_some() {
            return true;
        }
        if cfg!(target_arch = "aarch64") {
            return self.find_pages();
        }
        let at = |name| kernel.filter(|_| cfg!(target_arch = "x86_64"))?.address_of(name);
        let (Some(map), Some(pages)) = (at("page_offset_base"), at("vmemmap_base")) else { return false };
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            (data.direct_map_at, data.pages_at) = (map, pages);
        }
        self.slab(0).is_some()
    }

    /// Finds the array of pages of AArch64 by an object of a known cache: the record of a task.
    fn find_pages(&mut self) -> bool {
        let task = self.places().task;
        let bits = rustix::param::page_size().trailing_zeros();
        for (direct_map, pages) in layouts(bits) {
            let Some(data) = self.skel.maps.bss_data.as_deref_mut() else { return false };
            (data.direct_map, data.pages) = (direct_map, pages);
            if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
                data.page_bits = bits;
            }
            if self.slab(task).flatten().is_some_and(|slab| slab.cache == "task_struct") {
                return true;
            }
        }
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            (data.direct_map, data.pages, data.have_slabs) = (0, 0, 0);
        }
        false
    }

    /// The slab cache `addr` lies in; `Some(None)` if in none, `None` if the kernel cannot tell.
    pub fn slab(&mut self, addr: u64) -> Option<Option<Slab>> {
        let data = self.skel.maps.bss_data.as_deref_mut()?;
        data.addr = addr;
        self.skel.progs.name_slab.test_run(ProgramInput::default()).ok()?;
        let o = &data.object;
        (data.have_slabs != 0).then(|| {
            (o.found != 0).then(|| Slab {
                cache: text(&o.name),
                size: o.size,
                object_size: o.object_size,
                red_left_pad: o.red_left_pad,
                shapes: [o.oo, o.min],
            })
        })
    }

    /// Works without bpf_get_kmem_cache, on a machine whose layout is not randomized.
    #[cfg(test)]
    pub fn as_older_kernels(&mut self) -> bool {
        const PAGES: u64 = 0xffffea0000000000;
        let known = cfg!(target_arch = "x86_64") && self.places().page >> 40 == PAGES >> 40;
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut().filter(|_| known) {
            (data.without_kfunc, data.direct_map, data.pages) = (1, 0xffff888000000000, PAGES);
        }
        known
    }

    /// Walks all tasks once (about 0.2 µs each) to find what has no symbol.
    pub fn places(&mut self) -> Places {
        self.set_wanted([true, false, false]);
        self.walk();
        let Some(data) = self.skel.maps.bss_data.as_deref() else { return Places::default() };
        let queues = data.run_queues.iter().zip(0..).filter(|(a, _)| **a != 0).map(|(&a, cpu)| (a, cpu));
        let nodes = data.nodes.iter().take(data.node_count as usize).copied();
        Places { run_queues: queues.collect(), nodes: nodes.collect(), page: data.a_page, task: data.a_task }
    }

    /// Walks all tasks once (about 0.5 µs each) to find which process uses each of `objects`.
    pub fn owners(&mut self, objects: &[u64]) -> Vec<Option<Owner>> {
        const EMPTY: [u8; 20] = [0; 20];
        let map = &self.skel.maps.owned;
        for object in objects {
            // A full map leaves the rest without an owner.
            let _ = map.update(&object.to_ne_bytes(), &EMPTY, MapFlags::ANY);
        }
        self.set_wanted([false, true, false]);
        self.walk();
        let map = &self.skel.maps.owned;
        let owner = |object: &u64| {
            let value = map.lookup(&object.to_ne_bytes(), MapFlags::ANY).ok()??;
            let tgid = u32::from_ne_bytes(value.get(..4)?.try_into().ok()?);
            let comm = value.get(4..)?.split(|&b| b == 0).next()?;
            (tgid != 0).then(|| Owner { tgid, comm: String::from_utf8_lossy(comm).into_owned() })
        };
        let owners = objects.iter().map(owner).collect();
        for object in objects {
            let _ = map.delete(&object.to_ne_bytes());
        }
        owners
    }

    /// Walks all tasks once to find where the hash buckets of their processes' futexes lie (Linux 6.16).
    pub fn futex_hashes(&mut self) -> Vec<Range<u64>> {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.hash_count = 0;
        }
        self.set_wanted([false, false, true]);
        self.walk();
        let Some(data) = self.skel.maps.bss_data.as_deref() else { return Vec::new() };
        data.hashes.iter().take(data.hash_count as usize).map(|hash| hash.start..hash.end).collect()
    }

    /// Places, owners, hashes.
    fn set_wanted(&mut self, wanted: [bool; 3]) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            [data.want_places, data.want_owners, data.want_hashes] = wanted.map(u32::from);
        }
    }

    fn walk(&mut self) {
        // The program prints nothing: reading to the end is what runs it.
        let _ = Iter::new(&self.tasks).map(|mut walk| walk.read_to_end(&mut Vec::new()));
    }
}

/// Where the direct map and the array of pages begin on AArch64, by the bits of addresses and of pages
/// (arch/arm64/include/asm/memory.h): before Linux 6.9, and since.
fn layouts(page_bits: u32) -> impl Iterator<Item = (u64, u64)> {
    /// `STRUCT_PAGE_MAX_SHIFT`: a `struct page` takes 64 bytes.
    const PAGE_STRUCT_BITS: u32 = 6;
    let shift = page_bits - PAGE_STRUCT_BITS;
    [48u32, 52, 39, 47, 42, 36].into_iter().flat_map(move |bits| {
        let below_top = |bits: u32| (1u64 << bits).wrapping_neg();
        let direct_map = below_top(bits);
        let end = below_top(bits.min(48) - 1);
        let size = (end - direct_map) >> shift;
        [(direct_map, below_top(bits - shift)), (direct_map, below_top(30) - size)]
    })
}

fn text(chars: &[i8]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_pages_lie_where_the_kernel_has_them() {
        // Documentation/arch/arm64/memory.rst: 48 bits, pages of 4 KiB; Linux 6.1 and 6.12.
        let all: Vec<(u64, u64)> = layouts(12).collect();
        assert_eq!(all[0], (0xffff_0000_0000_0000, 0xffff_fc00_0000_0000));
        assert_eq!(all[1], (0xffff_0000_0000_0000, 0xffff_fdff_c000_0000));
        assert!(layouts(16).all(|(direct_map, pages)| direct_map < pages));
    }
}

//! Arenas of integers: an operation takes a range and gives it back.

use super::{Group, Shape, Subject};
use libncpu::vmem::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The data of a range beside its start.
trait Arena: Sync {
    const NAME: &'static str;
    type Taken: Copy;
    /// Of `total` quanta.
    fn new(total: u64, quantum: u64, cache_to: u64) -> Self;
    /// Quanta.
    fn alloc(&self, size: u64) -> Option<Self::Taken>;
    fn free(&self, taken: Self::Taken, size: u64);
}

struct Ours(libncpu::Vmem<'static>, u64);

impl Arena for Ours {
    const NAME: &'static str = "ncpu";
    type Taken = u64;
    fn new(total: u64, quantum: u64, cache_to: u64) -> Ours {
        let options = Options { quantum, cache_to: cache_to * quantum, ..Options::default() };
        let arena = libncpu::Vmem::new(options).expect("memory");
        arena.add(0, total * quantum).expect("memory");
        Ours(arena, quantum)
    }
    #[inline]
    fn alloc(&self, size: u64) -> Option<u64> {
        self.0.alloc(size * self.1).ok()
    }
    #[inline]
    fn free(&self, taken: u64, size: u64) {
        self.0.free(taken, size * self.1).expect("just taken");
    }
}

/// A simple implementation: free ranges by start and by size, under a lock. Best fit; merges.
struct Trees(Mutex<(ByStart, BySize)>);
type ByStart = BTreeMap<u64, u64>;
type BySize = BTreeSet<(u64, u64)>;

impl Arena for Trees {
    const NAME: &'static str = "btreemap";
    type Taken = u64;
    fn new(total: u64, _: u64, _: u64) -> Trees {
        Trees(Mutex::new((BTreeMap::from([(0, total)]), BTreeSet::from([(total, 0)]))))
    }
    fn alloc(&self, size: u64) -> Option<u64> {
        let (starts, sizes) = &mut *self.0.lock().expect("not poisoned");
        let &(length, start) = sizes.range((size, 0)..).next()?;
        sizes.remove(&(length, start));
        starts.remove(&start);
        if length > size {
            starts.insert(start + size, length - size);
            sizes.insert((length - size, start + size));
        }
        Some(start)
    }
    fn free(&self, mut start: u64, mut size: u64) {
        let (starts, sizes) = &mut *self.0.lock().expect("not poisoned");
        if let Some(length) = starts.remove(&(start + size)) {
            sizes.remove(&(length, start + size));
            size += length;
        }
        if let Some((&before, &length)) = starts.range(..start).next_back()
            && before + length == start
        {
            sizes.remove(&(length, before));
            (start, size) = (before, size + length);
        }
        starts.insert(start, size);
        sizes.insert((size, start));
    }
}

/// The crate `offset-allocator`: Sebastian Aaltonen's two-level segregated fit, made for one thread, under a lock.
struct Offsets(Mutex<offset_allocator::Allocator>);

impl Arena for Offsets {
    const NAME: &'static str = "offset";
    type Taken = offset_allocator::Allocation;
    fn new(total: u64, _: u64, _: u64) -> Offsets {
        Offsets(Mutex::new(offset_allocator::Allocator::new(total as u32)))
    }
    fn alloc(&self, size: u64) -> Option<offset_allocator::Allocation> {
        self.0.lock().expect("not poisoned").allocate(size as u32)
    }
    fn free(&self, taken: offset_allocator::Allocation, _: u64) {
        self.0.lock().expect("not poisoned").free(taken);
    }
}

/// Requests the sizes in turn, and holds `hold` ranges at a time.
struct InTurn<A>(A, &'static [u64], usize);

impl<A: Arena> Subject for InTurn<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }
    fn hammer(&self, stop: &AtomicBool, _: Shape) -> u64 {
        let (mut n, mut turn) = (0, 0);
        let mut held = Vec::with_capacity(self.2);
        while !stop.load(Relaxed) {
            for _ in 0..self.2 {
                let size = self.1[turn];
                turn = if turn + 1 == self.1.len() { 0 } else { turn + 1 };
                held.push((self.0.alloc(size).expect("more than all hold"), size));
            }
            for (taken, size) in held.drain(..) {
                self.0.free(taken, size);
            }
            n += self.2 as u64;
        }
        n
    }
}

fn group(
    name: &'static str,
    about: &'static str,
    (total, quantum, cache_to): (u64, u64, u64),
    sizes: &'static [u64],
    hold: usize,
) -> Group {
    Group {
        name,
        about,
        sections: false,
        subjects: vec![
            Box::new(InTurn(<Ours as Arena>::new(total, quantum, cache_to), sizes, hold)),
            Box::new(InTurn(<Trees as Arena>::new(total, quantum, cache_to), sizes, hold)),
            Box::new(InTurn(<Offsets as Arena>::new(total, quantum, cache_to), sizes, hold)),
        ],
    }
}

/// Identifiers.
pub fn ids() -> Group {
    group("vmem", "an operation takes one of 1000000 integers and gives it back", (1_000_000, 1, 1), &[1], 1)
}

/// I/O addresses: 2 GiB in pages of 8 KiB.
pub fn io() -> Group {
    group(
        "vmem-io",
        "an operation takes 8 to 128 KiB of 2 GiB and gives them back; 32 held at a time",
        (2 << 17, 8 << 10, 16),
        &[1, 2, 1, 8, 1, 4, 2, 1, 16, 1, 8],
        32,
    )
}

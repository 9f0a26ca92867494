//! Fills, zeroes and scans large blocks of memory with several CPUs, those nearest to each part.
//!
//! # Where it comes from
//!
//! The blog on how Solaris boots large machines: the hypervisor zeroes a domain's memory in parallel, "using CPUs that
//! are physically closest to memory", and at shutdown memory is scanned in parallel. One CPU cannot keep a memory
//! controller busy, and on a machine with NUMA nodes each node has controllers of its own.
//!
//! # How
//!
//! The block is cut into pieces of at most 64 MiB, which the caller and its helpers take one after the other.
//! With several NUMA nodes, the kernel reports where each piece's first page lies, and pieces are queued by
//! node. Each helper is kept on the CPUs of a node and takes from that node's queue first, then from the
//! nearest that still has pieces.
//!
//! # Bad conditions
//!
//! Memory is read and written as by a loop in the program. A page that cannot be made (a pool of huge pages
//! used up, a file that became shorter) raises `SIGBUS`. Helpers block signals, so in a helper it ends the
//! process without a handler being called. Use [`crate::memory::populate::populate`] first where that can
//! happen. Without threads, or without memory for the queues, the caller does all the work.

use crate::memory::crew;
use crate::memory::populate::Helpers;
use crate::percpu::{OutOfMemory, boxed};
use crate::sys::cpus::{self, Cpus};
use crate::sys::kernel::call;
use crate::sys::{self, Topology};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Result of [`scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Scan {
    /// Words of 8 bytes that match; a shorter one at the end counts as one.
    pub equal: u64,
    /// Words in all.
    pub words: u64,
    /// The byte offset of the first word that does not match.
    pub first: Option<usize>,
}

/// Sets every byte to 0.
pub fn zero(memory: &mut [u8], helpers: Helpers) {
    fill(memory, 0, helpers);
}

/// Writes `word` repeatedly, in this machine's byte order, from the first byte on; cut off at the end.
pub fn fill(memory: &mut [u8], word: u64, helpers: Helpers) {
    // SAFETY: exclusive, and that long.
    unsafe { fill_at(memory.as_mut_ptr(), memory.len(), word, helpers) }
}

/// As [`fill`], of memory that may not be initialised.
///
/// # Safety
/// `at..at + length` is writable, and nobody else uses it meanwhile.
pub unsafe fn fill_at(at: *mut u8, length: usize, word: u64, helpers: Helpers) {
    let at = at as usize;
    each_piece(at, length, helpers, &|offset, length| {
        // SAFETY: within the block; each piece is one thread's.
        unsafe { fill_piece((at + offset) as *mut u8, length, word) };
    });
}

/// Compares each word of 8 bytes with `word`, in this machine's byte order, from the first byte on. The last
/// word may be shorter.
pub fn scan(memory: &[u8], word: u64, helpers: Helpers) -> Scan {
    let (equal, first) = (AtomicU64::new(0), AtomicUsize::new(usize::MAX));
    let at = memory.as_ptr() as usize;
    each_piece(at, memory.len(), helpers, &|offset, length| {
        // SAFETY: within the block, which nobody writes.
        let piece = unsafe { std::slice::from_raw_parts((at + offset) as *const u8, length) };
        let found = scan_piece(piece, word);
        equal.fetch_add(found.equal, Relaxed);
        if let Some(at) = found.first {
            first.fetch_min(offset + at, Relaxed);
        }
    });
    let first = first.into_inner();
    Scan {
        equal: equal.into_inner(),
        words: memory.len().div_ceil(8) as u64,
        first: (first != usize::MAX).then_some(first),
    }
}

/// # Safety
/// As [`fill_at`].
unsafe fn fill_piece(at: *mut u8, length: usize, word: u64) {
    let (words, rest) = (length / 8, length % 8);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: this many words are writable. Long runs use the processor's own way: whole lines, without
    // reading them.
    unsafe {
        std::arch::asm!("rep stosq", inout("rcx") words => _, inout("rdi") at => _, in("rax") word,
            options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for i in 0..words {
        // SAFETY: as above.
        unsafe { at.cast::<u64>().add(i).write_unaligned(word) };
    }
    for (i, byte) in word.to_ne_bytes().into_iter().take(rest).enumerate() {
        // SAFETY: the last bytes.
        unsafe { at.add(words * 8 + i).write(byte) };
    }
}

/// Without panics and without thread-local state, because helpers run it.
fn scan_piece(piece: &[u8], word: u64) -> Scan {
    let mut found = Scan { words: piece.len().div_ceil(8) as u64, ..Scan::default() };
    // Counted block by block, which the compiler vectorises. A block with a mismatch is then examined word by
    // word.
    let (blocks, rest) = piece.as_chunks::<4096>();
    let same = |bytes: &[u8]| {
        // The last word may be shorter.
        bytes.iter().zip(word.to_ne_bytes()).all(|(byte, wanted)| *byte == wanted)
    };
    let mut look = |block: &[u8], at: usize| {
        let equal: u64 = if block.len() == 4096 {
            let (words, _) = block.as_chunks::<8>();
            words.iter().map(|bytes| u64::from(u64::from_ne_bytes(*bytes) == word)).sum()
        } else {
            block.chunks(8).map(|bytes| u64::from(same(bytes))).sum()
        };
        found.equal = found.equal.wrapping_add(equal);
        if equal < block.len().div_ceil(8) as u64 && found.first.is_none() {
            let wrong = block.chunks(8).position(|bytes| !same(bytes));
            found.first = wrong.map(|word| at.wrapping_add(word.wrapping_mul(8)));
        }
    };
    let mut at = 0usize;
    for block in blocks {
        look(block, at);
        at = at.wrapping_add(4096);
    }
    look(rest, at);
    found
}

/// The largest piece, in bytes; pieces are whole words.
const LARGEST: usize = 64 << 20;
/// The least work for a thread: about 50 µs.
const LEAST: usize = 512 << 10;
/// Pieces for each thread, because some cost more than others.
const EACH: usize = 32;

/// The pieces of a node, in the order of all pieces.
struct Queue {
    next: AtomicUsize,
    end: usize,
}

/// The pieces by node.
struct Queues<'a> {
    /// Indices of pieces, sorted by node.
    order: Box<[u32]>,
    /// By index of node.
    nodes: Box<[Queue]>,
    topology: &'a Topology,
}

/// The kernel's number of the node that the first page of each piece of `size` bytes is on, negative if it
/// has no page; `None` if the kernel does not report it.
fn ask(at: usize, size: usize, count: usize) -> Option<Box<[i32]>> {
    let pages = boxed(count, |piece| at + piece * size).ok()?;
    let mut nodes = boxed(count, |_| -1i32).ok()?;
    let (from, to) = (pages.as_ptr() as usize, nodes.as_mut_ptr() as usize);
    // SAFETY: both have this length; without target nodes the call only reports.
    unsafe { call(libc::SYS_move_pages, [0, count, from, 0, to, 0]) }.ok()?;
    Some(nodes)
}

impl<'a> Queues<'a> {
    /// A queue for each node, by the place of each piece. Pages that do not exist yet will be allocated on
    /// the node of the thread that touches them: `here`, an index.
    fn new(lie: &[i32], here: usize, topology: &'a Topology) -> Result<Queues<'a>, OutOfMemory> {
        let index = |piece: usize| {
            usize::try_from(lie[piece]).ok().and_then(|id| topology.with_id(id)).unwrap_or(here)
        };
        let mut counts = boxed(topology.nodes(), |_| 0usize)?;
        (0..lie.len()).for_each(|piece| counts[index(piece)] += 1);
        let mut begin = 0;
        let nodes = boxed(topology.nodes(), |node| {
            let end = begin + counts[node];
            Queue { next: AtomicUsize::new(std::mem::replace(&mut begin, end)), end }
        })?;
        let mut order = boxed(lie.len(), |_| 0u32)?;
        let mut place = boxed(topology.nodes(), |node| nodes[node].next.load(Relaxed))?;
        for piece in 0..lie.len() {
            let place = &mut place[index(piece)];
            order[*place] = piece as u32;
            *place += 1;
        }
        Ok(Queues { order, nodes, topology })
    }

    /// The next piece for a thread on a node: of that node, otherwise of the nearest that has any.
    fn take(&self, node: usize) -> Option<usize> {
        self.topology.nearest(node).iter().find_map(|&near| {
            let queue = self.nodes.get(near)?;
            // Read first, so that an empty queue's line is not written over and over.
            if queue.next.load(Relaxed) >= queue.end {
                return None;
            }
            let place = queue.next.fetch_add(1, Relaxed);
            if place < queue.end { self.order.get(place).map(|&piece| piece as usize) } else { None }
        })
    }

    /// The node of helper number `helper` of `helpers`, from 0: each node has helpers in proportion to
    /// its pieces.
    fn home(&self, helper: usize, helpers: usize) -> usize {
        let place = helper * self.order.len() / helpers;
        self.nodes.iter().position(|queue| place < queue.end).unwrap_or(0)
    }
}

/// Calls `job(offset, length)` for all pieces of a block.
fn each_piece(at: usize, length: usize, helpers: Helpers, job: &(dyn Fn(usize, usize) + Sync)) {
    let allowed = if length < 2 * LEAST { None } else { Cpus::allowed() };
    let cpus = allowed.map_or(1, |cpus| cpus.count().max(1));
    let helpers = helpers.0.min(cpus - 1).min(length / LEAST).min(crew::MOST);
    let size = (length / ((helpers + 1) * EACH)).clamp(LEAST, LARGEST).next_multiple_of(8);
    let count = length.div_ceil(size);
    let topology = sys::topology();
    let queues = match helpers > 0 && topology.nodes() > 1 {
        true => ask(at, size, count).and_then(|lie| Queues::new(&lie, sys::node(), topology).ok()),
        false => None,
    };
    let homes = queues.as_ref().and_then(|queues| {
        let here = sys::node();
        let homes =
            boxed(helpers + 1, |number| if number == 0 { here } else { queues.home(number - 1, helpers) });
        let allowed = allowed?;
        let sets = boxed(topology.nodes(), |node| {
            let id = topology.id_of(node);
            cpus::of_nodes(|other| other == id).and(&allowed)
        });
        Some((homes.ok()?, sets.ok()?))
    });
    let near = |number: usize| {
        let (homes, sets) = homes.as_ref()?;
        sets.get(*homes.get(number)?).filter(|cpus| cpus.count() > 0)
    };
    let next = AtomicUsize::new(0);
    crew::run(helpers, &near, &|number| {
        let home = homes.as_ref().and_then(|(homes, _)| homes.get(number).copied());
        let piece = match (&queues, home) {
            (Some(queues), Some(home)) => queues.take(home),
            _ => Some(next.fetch_add(1, Relaxed)).filter(|&piece| piece < count),
        };
        let Some(piece) = piece else { return false };
        let offset = piece.wrapping_mul(size);
        job(offset, size.min(length.wrapping_sub(offset)));
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected result of a scan, computed word by word.
    fn plain(memory: &[u8], word: u64) -> Scan {
        let wanted = word.to_ne_bytes();
        let equal = |chunk: &[u8]| chunk == &wanted[..chunk.len()];
        Scan {
            equal: memory.chunks(8).filter(|chunk| equal(chunk)).count() as u64,
            words: memory.chunks(8).count() as u64,
            first: memory.chunks(8).position(|chunk| !equal(chunk)).map(|i| i * 8),
        }
    }

    #[test]
    fn short_blocks_of_every_length_and_alignment() {
        let word = 0x0807_0605_0403_0201;
        let lengths = if cfg!(miri) { 24 } else { 130 };
        for align in 0..16 {
            for length in 0..lengths {
                let mut memory = vec![0xaau8; length + 32];
                fill(&mut memory[align..align + length], word, Helpers(3));
                assert!(memory[..align].iter().chain(&memory[align + length..]).all(|&b| b == 0xaa));
                let block = &memory[align..align + length];
                assert!(block.iter().enumerate().all(|(i, &b)| b == word.to_ne_bytes()[i % 8]));
                assert_eq!(scan(block, word, Helpers(3)), plain(block, word));
                assert_eq!(scan(block, word, Helpers(3)).first, None);
                if length > 0 {
                    memory[align + length - 1] ^= 0x80;
                    let block = &memory[align..align + length];
                    assert_eq!(scan(block, word, Helpers::NONE), plain(block, word));
                    assert!(scan(block, word, Helpers::NONE).first.is_some());
                }
            }
        }
    }

    #[test]
    fn pieces_are_taken_near_first_and_once() {
        let topology = Topology::row(3, 2);
        // Node 7 is unknown and two pages do not exist: all three count as here, node 1.
        let lie = [2, 0, 0, 1, -14, 2, 7, 0, -2, 2];
        let queues = Queues::new(&lie, 1, &topology).expect("memory");
        assert_eq!([0, 1, 2].map(|helper| queues.home(helper, 3)), [0, 1, 1]);
        let taken: Vec<usize> = std::iter::from_fn(|| queues.take(2)).collect();
        assert_eq!(taken, [0, 5, 9, 3, 4, 6, 8, 1, 2, 7]);
        assert_eq!(queues.take(0), None);
        let queues = Queues::new(&lie, 1, &topology).expect("memory");
        assert_eq!((queues.take(0), queues.take(1), queues.take(2)), (Some(1), Some(3), Some(0)));
    }

    #[test]
    #[cfg(not(miri))]
    fn large_blocks_by_helpers() {
        // A length that is not a multiple of any unit.
        let mut memory = vec![1u8; (37 << 20) + 4093];
        for helpers in [0, 1, 3, 16] {
            let helpers = Helpers(helpers);
            fill(&mut memory[3..], 7, helpers);
            assert_eq!(scan(&memory[3..], 7, helpers), plain(&memory[3..], 7));
            zero(&mut memory[3..], helpers);
            assert_eq!(&memory[..3], [1; 3]);
            assert!(scan(&memory[3..], 0, helpers).first.is_none());
            // Of several differences the first is reported, whichever thread finds it.
            for wrong in [36 << 20, 20 << 20, (5 << 20) + 1] {
                memory[3 + wrong] = 9;
                let found = scan(&memory[3..], 0, helpers);
                assert_eq!(found, plain(&memory[3..], 0));
                assert_eq!(found.first, Some(wrong / 8 * 8));
            }
            memory[..3].fill(1);
        }
    }
}

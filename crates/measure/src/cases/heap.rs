//! Allocators under threads: libc's, or one from a library that is loaded beside it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Mutex;

use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::library::Library;
use crate::options::{Flag, Options};

const SIZE: Flag = Flag { letter: 's', value: "SIZE", default: "64", about: "bytes of a block" };
const HELD: Flag = Flag { letter: 'g', value: "N", default: "100", about: "blocks held" };
const LIBRARY: Flag = Flag {
    letter: 'l',
    value: "LIBRARY",
    default: "",
    about: "its malloc and free, as in libjemalloc.so.2; libc's without",
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "alloc_pair",
        about: "allocate a block and free it at once",
        flags: &[SIZE, LIBRARY],
        setup: |o| heap(o, How::Pair),
    },
    Case {
        name: "alloc_mixed",
        about: "free one of the blocks held and allocate another, of 16 bytes to SIZE",
        flags: &[Flag { default: "4k", ..SIZE }, HELD, LIBRARY],
        setup: |o| heap(o, How::Mixed),
    },
    Case {
        name: "alloc_handoff",
        about: "allocate a block and free one that another thread allocated",
        flags: &[SIZE, HELD, LIBRARY],
        setup: |o| heap(o, How::Handoff),
    },
];

#[derive(Clone, Copy)]
enum How {
    Pair,
    Mixed,
    Handoff,
}

/// A block, which any thread may free.
#[derive(Clone, Copy)]
struct Block(*mut c_void);

// SAFETY: malloc's blocks belong to no thread.
unsafe impl Send for Block {}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

struct Heap {
    how: How,
    size: usize,
    held: usize,
    malloc: Malloc,
    free: Free,
    /// Bundles of blocks for whoever comes next.
    handed: Mutex<VecDeque<Vec<Block>>>,
    /// Never closed: freeing may run at any time.
    _library: Option<Library>,
}

fn heap(o: &Options, how: How) -> Result<Box<dyn Bench>, Failure> {
    let library = o.text('l').map(Library::open).transpose()?;
    let (malloc, free): (Malloc, Free) = match &library {
        None => (libc::malloc, libc::free),
        // SAFETY: these names have these types in every library that has them.
        Some(l) => unsafe { (l.function(c"malloc")?, l.function(c"free")?) },
    };
    let held = if matches!(how, How::Pair) { 1 } else { o.number('g')?.clamp(1, 1 << 24) as usize };
    let size = o.number('s')?.clamp(1, 1 << 40) as usize;
    Ok(Box::new(Heap { how, size, held, malloc, free, handed: Mutex::default(), _library: library }))
}

impl Heap {
    /// A block with a written first byte, or `None`.
    #[inline]
    fn get(&self, size: usize) -> Option<Block> {
        // SAFETY: any size may be asked for, and what comes has at least a byte.
        unsafe {
            let at = std::hint::black_box((self.malloc)(size));
            (!at.is_null()).then(|| {
                at.cast::<u8>().write_volatile(1);
                Block(at)
            })
        }
    }

    #[inline]
    fn put(&self, block: Block) {
        // SAFETY: the same allocator gave it, and it is freed once.
        unsafe { (self.free)(block.0) };
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Vec<Block>>> {
        self.handed.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Bench for Heap {
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Heaping { heap: self, own: Vec::new(), random: 0x9e37_79b9 + me.index as u64 }))
    }
}

struct Heaping<'a> {
    heap: &'a Heap,
    own: Vec<Block>,
    random: u64,
}

impl Heaping<'_> {
    #[inline]
    fn random(&mut self, below: usize) -> usize {
        // Knuth's MMIX; its high bits are good enough to choose with.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below.max(1)
    }

    fn mixed(&mut self, n: u64) -> u64 {
        let mut errors = 0;
        for _ in 0..n {
            if self.own.len() >= self.heap.held {
                let at = self.random(self.own.len());
                let block = self.own.swap_remove(at);
                self.heap.put(block);
            }
            let size = 16 + self.random(self.heap.size.saturating_sub(15));
            match self.heap.get(size) {
                Some(block) => self.own.push(block),
                None => errors += 1,
            }
        }
        errors
    }

    /// Bundles go through a queue, so that its lock is taken once for many blocks.
    fn handoff(&mut self, n: u64) -> u64 {
        let (mut left, mut errors) = (n, 0);
        while left > 0 {
            let now = left.min(self.heap.held as u64);
            let bundle: Vec<Block> = (0..now).filter_map(|_| self.heap.get(self.heap.size)).collect();
            errors += now - bundle.len() as u64;
            let other = {
                let mut queue = self.heap.queue();
                queue.push_back(bundle);
                // With several threads, the bundle of one is at the front when another comes.
                if queue.len() > 1 { queue.pop_front() } else { None }
            };
            other.into_iter().flatten().for_each(|block| self.heap.put(block));
            left -= now;
        }
        errors
    }
}

impl Batch for Heaping<'_> {
    fn run(&mut self, n: u64) -> u64 {
        match self.heap.how {
            How::Pair => (0..n)
                .map(|_| {
                    self.heap.get(self.heap.size).map_or(1, |b| {
                        self.heap.put(b);
                        0
                    })
                })
                .sum(),
            How::Mixed => self.mixed(n),
            How::Handoff => self.handoff(n),
        }
    }
}

impl Drop for Heaping<'_> {
    fn drop(&mut self) {
        self.own.drain(..).for_each(|block| self.heap.put(block));
    }
}

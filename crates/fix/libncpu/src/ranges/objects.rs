//! Ranges that magazines may hold: the address of each, and whether it is handed out.
//!
//! Found by address without a lock. Objects never move and are not freed before the arena is, so a reader may
//! stand on an object that was taken out of its chain: it then misses, or finds another key, and repeats the
//! look-up under the lock. A change of state names the state that was seen, which contains the generation:
//! the change fails if the object has been used for another address since. An address is written before the
//! state that its generation begins with (release), and read after it (acquire).

use crate::percpu::{OutOfMemory, boxed};
use crate::ranges::arena::spread;
use crate::sys::{AtomicPtr, AtomicU64, Ordering};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Bit of a state: handed out, not in a magazine.
const OUT: u64 = 1;
/// The class of unused objects.
const UNUSED: u64 = 0x7f;
const GENERATION: u64 = 1 << 8;
/// The number of links that a reader follows without the lock.
const FAR: usize = 8;

/// A state of an object: generation, class, and whether it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    /// The index of its size among the cached sizes.
    pub(crate) fn class(self) -> usize {
        (self.0 >> 1 & UNUSED) as usize
    }
    pub(crate) fn is_out(self) -> bool {
        self.0 & OUT != 0
    }
}

/// A range of a cached size. On a line of its own, because the objects of a magazine are used by one CPU and
/// their neighbours by others.
#[repr(align(64))]
pub(crate) struct Object {
    address: AtomicU64,
    state: AtomicU64,
    /// The next object in the hash chain, or in the list of spare objects.
    next: AtomicPtr<Object>,
}

impl Object {
    pub(crate) fn address(&self) -> u64 {
        self.address.load(Relaxed)
    }
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Acquire))
    }
    /// Hands it out. Only for the thread that has taken it out of a magazine.
    #[inline]
    pub(crate) fn hand_out(&self) {
        self.state.store(self.state.load(Relaxed) | OUT, Release);
    }
    /// Takes it back; false if its state has changed.
    #[inline]
    pub(crate) fn take_back(&self, seen: State) -> bool {
        seen.is_out() && self.state.compare_exchange(seen.0, seen.0 & !OUT, AcqRel, Relaxed).is_ok()
    }
}

/// A hash table of chains.
pub(crate) struct Table {
    /// 64 minus the number of bits of a bucket's number, at least 1.
    shift: u32,
    buckets: Box<[AtomicPtr<Object>]>,
}

/// The object at an address, if it is found without a lock, and its state before the address was read.
#[inline]
pub(crate) fn lookup(table: &AtomicPtr<Table>, quantum: u64, address: u64) -> Option<(&Object, State)> {
    // SAFETY: null or one of `Objects::tables`, which live as long as `table`.
    let table = unsafe { table.load(Acquire).as_ref() }?;
    let mut at = table.buckets[(spread(address, quantum) >> table.shift) as usize].load(Acquire);
    for _ in 0..FAR {
        // SAFETY: null or one of `Objects::chunks`, likewise.
        let object = unsafe { at.as_ref() }?;
        let state = object.state();
        if object.address() == address {
            return Some((object, state));
        }
        at = object.next.load(Acquire);
    }
    None
}

/// All objects of an arena. Changed under its lock only.
pub(crate) struct Objects {
    quantum: u64,
    chunks: Vec<Box<[Object]>>,
    /// The last table is in use. Readers may still look at earlier ones, which together have half its size.
    tables: Vec<Box<[Table]>>,
    spare: *mut Object,
    used: usize,
}

// SAFETY: the pointer is to one of the chunks, which are owned.
unsafe impl Send for Objects {}

impl Objects {
    pub(crate) fn new(quantum: u64) -> Objects {
        Objects { quantum, chunks: Vec::new(), tables: Vec::new(), spare: std::ptr::null_mut(), used: 0 }
    }

    /// The number of objects, in magazines or handed out.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Makes the range of `class` at `address` an object, handed out or not. Readers find it in `shared`.
    pub(crate) fn adopt(
        &mut self,
        shared: &AtomicPtr<Table>,
        address: u64,
        class: usize,
        out: bool,
    ) -> Result<&'static Object, OutOfMemory> {
        if self.tables.last().is_none_or(|table| self.used >= table[0].buckets.len()) {
            // Without memory chains get longer, but one table must exist.
            if let Err(error) = self.grow(shared)
                && self.tables.is_empty()
            {
                return Err(error);
            }
        }
        if self.spare.is_null() {
            self.more()?;
        }
        // SAFETY: of `chunks`, which are not dropped before the arena; callers do not keep it longer.
        let object = unsafe { &*self.spare };
        self.spare = object.next.load(Relaxed);
        self.used += 1;
        object.address.store(address, Relaxed);
        let generation = object.state.load(Relaxed) & !(GENERATION - 1);
        object.state.store(generation | (class as u64) << 1 | u64::from(out), Release);
        self.chain(object);
        Ok(object)
    }

    /// Ends an object that is neither in a magazine nor handed out.
    pub(crate) fn discard(&mut self, object: &Object) {
        let mut link = self.bucket(object.address());
        while !std::ptr::eq(link.load(Relaxed), object) {
            // SAFETY: a chain of objects of ours, and this one is in it.
            link = unsafe { &(*link.load(Relaxed)).next };
        }
        link.store(object.next.load(Relaxed), Release);
        let generation = (object.state.load(Relaxed) & !(GENERATION - 1)).wrapping_add(GENERATION);
        object.state.store(generation | UNUSED << 1, Release);
        object.next.store(self.spare, Release);
        self.spare = std::ptr::from_ref(object).cast_mut();
        self.used -= 1;
    }

    /// The object at an address, found reliably.
    pub(crate) fn find(&self, address: u64) -> Option<&'static Object> {
        if self.tables.is_empty() {
            return None;
        }
        let mut at = self.bucket(address).load(Relaxed);
        loop {
            // SAFETY: null or of `chunks`; callers keep it no longer than the arena.
            let object = unsafe { at.as_ref() }?;
            if object.address() == address {
                return Some(object);
            }
            at = object.next.load(Relaxed);
        }
    }

    fn bucket(&self, address: u64) -> &AtomicPtr<Object> {
        let table = &self.tables[self.tables.len() - 1][0];
        &table.buckets[(spread(address, self.quantum) >> table.shift) as usize]
    }

    fn chain(&self, object: &Object) {
        let bucket = self.bucket(object.address());
        object.next.store(bucket.load(Relaxed), Release);
        bucket.store(std::ptr::from_ref(object).cast_mut(), Release);
    }

    /// Doubles the number of objects, by at least 64.
    fn more(&mut self) -> Result<(), OutOfMemory> {
        self.chunks.try_reserve(1).map_err(|_| OutOfMemory(size_of::<Box<[Object]>>()))?;
        let chunk = boxed(self.used.max(64), |_| Object {
            address: AtomicU64::new(0),
            state: AtomicU64::new(UNUSED << 1),
            next: AtomicPtr::new(std::ptr::null_mut()),
        })?;
        // Stored first: moving a box after pointers into it were made would invalidate them.
        self.chunks.push(chunk);
        // The first object is used first: neighbours in the arena are neighbours here.
        for object in self.chunks.iter().flatten().rev().take(self.used.max(64)) {
            object.next.store(self.spare, Relaxed);
            self.spare = std::ptr::from_ref(object).cast_mut();
        }
        Ok(())
    }

    /// A table of twice the size.
    fn grow(&mut self, shared: &AtomicPtr<Table>) -> Result<(), OutOfMemory> {
        let length = self.tables.last().map_or(64, |table| 2 * table[0].buckets.len());
        self.tables.try_reserve(1).map_err(|_| OutOfMemory(size_of::<Box<[Table]>>()))?;
        let buckets = boxed(length, |_| AtomicPtr::new(std::ptr::null_mut()))?;
        let shift = 64 - length.trailing_zeros();
        let mut buckets = Some(buckets);
        let table = boxed(1, |_| Table { shift, buckets: buckets.take().unwrap_or_default() })?;
        self.tables.push(table);
        for object in self.chunks.iter().flatten() {
            if object.state().class() as u64 != UNUSED {
                self.chain(object);
            }
        }
        shared.store(std::ptr::from_ref(&self.tables[self.tables.len() - 1][0]).cast_mut(), Release);
        Ok(())
    }
}

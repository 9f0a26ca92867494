//! Arenas of integers for many threads: addresses, identifiers, ports, anything that is handed out in ranges.
//!
//! # Where it comes from
//!
//! Jeff Bonwick and Jonathan Adams, "Magazines and Vmem" (USENIX 2001). The Solaris kernel used vmem for its
//! own address space and, according to Steve Sistare's blog, for the I/O addresses of devices (DVMA). Written
//! from the paper.
//!
//! # Structure
//!
//! An [`Arena`] under a lock keeps all ranges. For each multiple of the quantum up to [`Options::cache_to`]
//! there are magazines of ranges of that size, a pair per CPU and a depot, so that most requests touch no
//! shared line. The paper puts slabs between the two. Here each cached range is a segment of the arena, so
//! ranges that return there merge whatever their sizes were. A range that is in a magazine, or was handed out
//! from one, has an object. The object is found by the range's address without a lock and holds its state, so
//! every free of a range that is not handed out is detected.
//!
//! # Invariants
//!
//! 1. *No range is handed out twice.* The arena hands out a range under its lock, or a magazine does whose
//!    lock is held. The range returns by one compare-and-swap of its object's state from "out", or under the
//!    lock.
//! 2. *No free range is overlooked.* Before it refuses, a request holds the arena's lock, keeps threads out
//!    of all magazines, waits until none is inside and empties them into the arena. Then every range that is
//!    not handed out is free there, and the request is refused only if no range fits.
//!
//! After that the magazines stay closed for at least one request per pair of magazines, and
//! longer while little is free: then a refusal costs one search of the arena. A parent refuses by the same
//! rule; ranges that another child has imported are not free to it.
//!
//! # Memory ordering
//!
//! Freeing releases, by the state's compare-and-swap and the store that unlocks the magazines; handing out
//! acquires by locking them. So accesses to a range before it was freed happen before its next use.

use crate::locks::mutex::{Mutex, MutexGuard};
use crate::percpu::OutOfMemory;
use crate::ranges::arena::{Arena, Totals};
use crate::ranges::magazine::{Given, Magazines, bar_all, open_all};
use crate::ranges::objects::{Object, Objects, Table, lookup};
use crate::ranges::request::{Constraints, Error, Policy};
use crate::sys::{self, AtomicPtr};

/// The most sizes that can be cached.
const CLASSES: u64 = 64;
/// The least number of requests for which magazines stay closed.
const CLOSED: u64 = 64;

/// Options of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// All ranges are multiples of this power of two.
    pub quantum: u64,
    /// The largest size that magazines serve, at most 64 quanta; 0 disables magazines.
    pub cache_to: u64,
    /// The policy of [`Vmem::alloc`]. [`Policy::Next`] excludes magazines, which reuse ranges at once.
    pub policy: Policy,
    /// The least size that is imported from a parent at a time, if it has a free range that long.
    pub import: u64,
}

impl Default for Options {
    /// Single integers, with sizes up to 8 cached; constant time.
    fn default() -> Options {
        Options { quantum: 1, cache_to: 8, policy: Policy::Instant, import: 0 }
    }
}

/// State of a part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Not handed out, and in no magazine.
    Free,
    /// Handed out.
    Allocated,
    /// In a magazine.
    Cached,
}

/// A part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first integer.
    pub start: u64,
    /// Its size.
    pub size: u64,
    /// Its state.
    pub used: Use,
    /// Whether a span begins with it.
    pub first: bool,
}

/// Contents and counts of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Ranges in the arena. Ranges in magazines do not count as free.
    pub totals: Totals,
    /// Integers in magazines.
    pub cached: u64,
    /// Requests that magazines served.
    pub hits: u64,
    /// Ranges that magazines took back.
    pub returns: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// How often all magazines were closed and emptied.
    pub drains: u64,
    /// Spans imported from the parent since the beginning.
    pub imports: u64,
    /// Spans given back to the parent since the beginning.
    pub releases: u64,
    /// Rounds in new magazines, the largest of all sizes; they grow where the depot is contended.
    pub magazine: u32,
}

/// The state under the lock.
struct Core {
    arena: Arena,
    objects: Objects,
    /// Whether threads are kept out of the magazines, which are then empty.
    closed: bool,
    /// Requests since they were closed or one was refused.
    since: u64,
    refusals: u64,
    drains: u64,
    imports: u64,
    releases: u64,
}

/// An arena of integers for many threads.
///
/// ```
/// use libncpu::{Vmem, vmem};
/// let ports = Vmem::new(vmem::Options::default())?;
/// ports.add(49152, 16384)?;
/// let port = ports.alloc(1)?;
/// assert!((49152..=65535).contains(&port));
/// ports.free(port, 1)?;
/// assert!(ports.free(port, 1).is_err());
/// # Ok::<(), libncpu::Error>(())
/// ```
pub struct Vmem<'p> {
    quantum: u64,
    shift: u32,
    policy: Policy,
    import: u64,
    /// By size in quanta, less 1.
    caches: Box<[Magazines]>,
    /// For `lookup`.
    table: AtomicPtr<Table>,
    parent: Option<&'p Vmem<'p>>,
    core: Mutex<Core>,
}

impl<'p> Vmem<'p> {
    /// An arena without integers. Takes 256 bytes per cached size and possible CPU and, at first, two
    /// magazines of 136 bytes where they are used.
    pub fn new(options: Options) -> Result<Vmem<'static>, Error> {
        Vmem::on(options, sys::topology().cpus())
    }

    /// An arena that imports the integers it lacks from another, and gives back each span as soon as it is
    /// completely free.
    pub fn with_parent(options: Options, parent: &'p Vmem<'p>) -> Result<Vmem<'p>, Error> {
        let mut new: Vmem<'p> = Vmem::new(options)?;
        new.parent = Some(parent);
        Ok(new)
    }

    /// As `new`, for another machine: for tests.
    #[doc(hidden)]
    pub fn on(options: Options, cpus: usize) -> Result<Vmem<'static>, Error> {
        let Options { quantum, cache_to, policy, import } = options;
        let arena = Arena::new(quantum)?;
        let classes = cache_to / quantum;
        if classes > CLASSES {
            return Err(Error::Invalid("cache_to must be at most 64 quanta"));
        }
        if classes > 0 && policy == Policy::Next {
            return Err(Error::Invalid(
                "with next fit cache_to must be below the quantum: magazines reuse at once",
            ));
        }
        let by_rseq = classes > 0 && sys::locks_by_rseq();
        let mut caches = Vec::new();
        caches
            .try_reserve_exact(classes as usize)
            .map_err(|_| OutOfMemory(classes as usize * size_of::<Magazines>()))?;
        for _ in 0..classes {
            caches.push(Magazines::new(cpus, by_rseq)?);
        }
        Ok(Vmem {
            quantum,
            shift: quantum.trailing_zeros(),
            policy,
            import,
            caches: caches.into_boxed_slice(),
            table: AtomicPtr::new(std::ptr::null_mut()),
            parent: None,
            core: Mutex::new(Core {
                arena,
                objects: Objects::new(quantum),
                closed: false,
                since: 0,
                refusals: 0,
                drains: 0,
                imports: 0,
                releases: 0,
            }),
        })
    }

    /// Adds the `size` integers from `start` on, a span: both multiples of the quantum.
    pub fn add(&self, start: u64, size: u64) -> Result<(), Error> {
        self.core.lock().arena.add(start, size, false)
    }

    /// Hands out `size` integers, rounded up to multiples of the quantum; returns the first.
    #[inline]
    pub fn alloc(&self, size: u64) -> Result<u64, Error> {
        if let Some(cache) = self.cache(size)
            && let Some(start) = cache.alloc()
        {
            return Ok(start);
        }
        self.alloc_slow(size)
    }

    /// Hands out `size` integers by a policy, within `constraints`. Never served by magazines.
    pub fn alloc_with(&self, size: u64, policy: Policy, constraints: &Constraints) -> Result<u64, Error> {
        let mut core = self.core.lock();
        let size = core.arena.round(size)?;
        self.while_closed(&mut core);
        self.take(&mut core, size, constraints, policy)
    }

    /// Takes back the `size` integers from `start` on, whichever call handed them out.
    ///
    /// Returns an error and changes nothing if they are not handed out, or not with this size.
    #[inline]
    pub fn free(&self, start: u64, size: u64) -> Result<(), Error> {
        let class = self.class(size);
        if let Some(cache) = self.caches.get(class)
            && let Some((object, seen)) = lookup(&self.table, self.quantum, start)
            && seen.class() == class
            && cache.free(object, seen) == Given::Done
        {
            return Ok(());
        }
        self.free_slow(start, size)
    }

    /// Returns the contents of magazines to the arena, and spans that are unneeded after that to the parent.
    /// O(CPUs).
    pub fn reap(&self) -> Result<(), Error> {
        let mut core = self.core.lock();
        self.close(&mut core);
        self.open(&mut core);
        self.release_idle(&mut core)
    }

    /// Calls `visit` for every part, by address. The arena is locked meanwhile, so `visit` must not use it.
    /// Parts may change between cached and handed out during the walk.
    pub fn walk(&self, mut visit: impl FnMut(Part)) {
        let core = self.core.lock();
        core.arena.walk(|segment| {
            let cached = |start| core.objects.find(start).is_some_and(|object| !object.state().is_out());
            let used = match segment.allocated {
                false => Use::Free,
                true if cached(segment.start) => Use::Cached,
                true => Use::Allocated,
            };
            visit(Part { start: segment.start, size: segment.size, used, first: segment.first });
        });
    }

    /// Contents and counts. O(ranges + CPUs).
    pub fn statistics(&self) -> Statistics {
        let mut cached = 0;
        self.walk(|part| cached += if part.used == Use::Cached { part.size } else { 0 });
        let (mut hits, mut returns, mut magazine) = (0u64, 0u64, 0);
        for cache in &self.caches {
            let (allocs, frees) = cache.hits();
            (hits, returns) = (hits.wrapping_add(allocs), returns.wrapping_add(frees));
            magazine = magazine.max(cache.size());
        }
        let core = self.core.lock();
        let Core { refusals, drains, imports, releases, .. } = *core;
        let totals = core.arena.totals();
        Statistics { totals, cached, hits, returns, refusals, drains, imports, releases, magazine }
    }

    /// The quantum.
    pub fn quantum(&self) -> u64 {
        self.quantum
    }

    /// Before a fork: takes every lock of the arena, so that the child gets a consistent arena.
    /// `pthread_atfork` calls the handlers of children before those of their parents if they are registered
    /// after them.
    pub fn before_fork(&self) {
        let mut core = self.core.lock();
        self.close(&mut core);
        std::mem::forget(core);
    }

    /// After a fork: releases the locks, in the parent process and in the `child`.
    ///
    /// # Safety
    /// This thread called `before_fork`, here or in the parent process, and has not called this since.
    pub unsafe fn after_fork(&self, child: bool) {
        let raw = self.core.raw();
        // SAFETY: this thread holds the lock; in the child it is the only one.
        unsafe { if child { raw.reset_after_fork() } else { raw.unlock() } }
    }

    #[inline(always)]
    fn class(&self, size: u64) -> usize {
        (size.wrapping_sub(1) >> self.shift) as usize
    }

    #[inline(always)]
    fn cache(&self, size: u64) -> Option<&Magazines> {
        self.caches.get(self.class(size))
    }

    #[cold]
    fn alloc_slow(&self, size: u64) -> Result<u64, Error> {
        let cache = self.cache(size);
        if let Some(cache) = cache
            && let Some(start) = cache.alloc_from_depot()
        {
            if cache.due() {
                self.reap_surplus(cache)?;
            }
            return Ok(start);
        }
        let mut core = self.core.lock();
        let rounded = core.arena.round(size)?;
        self.while_closed(&mut core);
        let start = self.take(&mut core, rounded, &Constraints::default(), self.policy)?;
        if let Some(cache) = cache
            && !core.closed
        {
            self.fill(&mut core, cache, rounded, start);
        }
        Ok(start)
    }

    /// Makes a handed-out range an object, and allocates more ranges for this CPU's magazine.
    fn fill(&self, core: &mut Core, cache: &Magazines, size: u64, start: u64) {
        let class = self.class(size);
        // Without memory it stays a plain range of the arena.
        if core.objects.adopt(&self.table, start, class, true).is_err() {
            return;
        }
        // Leaves enough for the other CPUs.
        let fair = core.arena.room().1 / (2 * cache.pairs() as u64) / size;
        let any = Constraints::default();
        cache.fill(fair, || {
            let start = core.arena.alloc(size, &any, self.policy).ok()?;
            match core.objects.adopt(&self.table, start, class, false) {
                Ok(object) => Some(object),
                Err(_) => {
                    // It was allocated above, so it can be freed; no span is given up for it.
                    let freed = core.arena.free(start, size);
                    debug_assert!(freed.is_ok());
                    None
                }
            }
        });
    }

    #[cold]
    fn free_slow(&self, start: u64, size: u64) -> Result<(), Error> {
        let class = self.class(size);
        if let Some(cache) = self.caches.get(class)
            && let Some((object, seen)) = lookup(&self.table, self.quantum, start)
            && seen.class() == class
            && cache.free_to_depot(object, seen) == Given::Done
        {
            return if cache.due() { self.reap_surplus(cache) } else { Ok(()) };
        }
        let mut core = self.core.lock();
        self.while_closed(&mut core);
        if let Some(object) = core.objects.find(start) {
            let seen = object.state();
            if seen.is_out() && seen.class() != class {
                let allocated = (seen.class() as u64 + 1) << self.shift;
                return Err(Error::WrongSize { address: start, allocated, given: size });
            }
            // In a magazine already, or put there a moment ago.
            if !object.take_back(seen) {
                return Err(Error::NotAllocated { address: start });
            }
            return self.retire(&mut core, object);
        }
        if core.arena.free(start, size)? {
            return self.release(&mut core, Some(start));
        }
        Ok(())
    }

    /// With an object in hand that is not handed out: returns its range to the arena.
    fn retire(&self, core: &mut Core, object: &Object) -> Result<(), Error> {
        if core.put_back(object, self.shift)? { self.release(core, None) } else { Ok(()) }
    }

    /// Gives a span that is completely free back to the parent: the one around `within`, or any.
    fn release(&self, core: &mut Core, within: Option<u64>) -> Result<(), Error> {
        if let Some(parent) = self.parent
            && let Some((start, size)) = core.arena.remove(within)
        {
            core.releases += 1;
            parent.free(start, size)?;
        }
        Ok(())
    }

    /// Gives all completely free spans back.
    fn release_idle(&self, core: &mut Core) -> Result<(), Error> {
        let mut before = u64::MAX;
        while self.parent.is_some() && before != core.releases {
            before = core.releases;
            self.release(core, None)?;
        }
        Ok(())
    }

    #[cold]
    fn reap_surplus(&self, cache: &Magazines) -> Result<(), Error> {
        let mut core = self.core.lock();
        let (core, mut result) = (&mut *core, Ok(()));
        cache.reap(|object| {
            result = result.and(self.retire(core, object));
        });
        result
    }

    /// Takes a range from the arena, the parent, or the contents of magazines.
    fn take(&self, core: &mut Core, size: u64, c: &Constraints, policy: Policy) -> Result<u64, Error> {
        let refused = |result: &Result<u64, Error>| matches!(result, Err(Error::Exhausted { .. }));
        let mut taken = core.arena.alloc(size, c, policy);
        if refused(&taken) && self.import(core, size, c)? {
            taken = core.arena.alloc(size, c, policy);
        }
        if refused(&taken) && self.hope(core, size) && self.close(core) {
            taken = core.arena.alloc(size, c, policy);
            if refused(&taken) && self.release_idle(core).is_ok() && self.import(core, size, c)? {
                taken = core.arena.alloc(size, c, policy);
            }
        }
        if refused(&taken) {
            core.refusals += 1;
            core.since = 0;
            self.release_idle(core)?;
        }
        taken
    }

    /// Whether magazines may hold enough for this request.
    fn hope(&self, core: &Core, size: u64) -> bool {
        // Objects are in magazines or handed out, and none is larger than this.
        let most = (core.objects.used() as u64).saturating_mul((self.caches.len() as u64) << self.shift);
        !core.closed
            && most > 0
            && (self.parent.is_some() || size <= core.arena.room().1.saturating_add(most))
    }

    /// Imports a span in which a range of `size` fits, if the parent has one.
    fn import(&self, core: &mut Core, size: u64, c: &Constraints) -> Result<bool, Error> {
        let Some(parent) = self.parent else { return Ok(false) };
        let unit = self.quantum.max(parent.quantum);
        let any = Constraints { align: unit, ..Constraints::default() };
        let mut wishes = [None; 2];
        if *c == Constraints::default() {
            wishes = [Some((size.max(self.import), any)), Some((size, any))];
        } else {
            let align = c.align.max(unit);
            if c.phase.is_multiple_of(unit) {
                // A span that begins with the range.
                wishes[0] = Some((size, Constraints { align, ..*c }));
            }
            // A span with room for the range wherever the span begins.
            let slack = c.align.max(c.nocross).max(unit);
            wishes[1] = size
                .checked_add(slack)
                .map(|size| (size, Constraints { min: c.min & !(unit - 1), max: c.max | (unit - 1), ..any }));
        }
        for (size, constraints) in wishes.into_iter().flatten() {
            let Some(size) = size.checked_next_multiple_of(unit) else { continue };
            let plain = parent.quantum == unit && constraints == any;
            let found =
                if plain { parent.alloc(size) } else { parent.alloc_with(size, parent.policy, &constraints) };
            match found {
                Ok(start) => {
                    if let Err(error) = core.arena.add(start, size, true) {
                        parent.free(start, size)?;
                        return Err(error);
                    }
                    core.imports += 1;
                    return Ok(true);
                }
                // A request that is invalid for the parent cannot be served by it.
                Err(Error::Exhausted { .. } | Error::Invalid(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(false)
    }

    /// Empties all magazines into the arena and keeps threads out. Returns false if it cannot.
    fn close(&self, core: &mut Core) -> bool {
        if core.closed {
            return true;
        }
        if !bar_all(&self.caches) {
            return false;
        }
        for cache in &self.caches {
            cache.drain(|object| {
                let put = core.put_back(object, self.shift);
                debug_assert!(put.is_ok());
            });
        }
        core.closed = true;
        core.since = 0;
        core.drains += 1;
        true
    }

    fn open(&self, core: &mut Core) {
        open_all(&self.caches);
        core.closed = false;
    }

    /// Counts a request while closed, and opens the magazines once the cost of closing is paid for.
    fn while_closed(&self, core: &mut MutexGuard<'_, Core>) {
        if !core.closed {
            return;
        }
        core.since += 1;
        let cost = self.caches.iter().map(|cache| cache.pairs() as u64).sum::<u64>().max(CLOSED);
        let (total, free) = core.arena.room();
        // With little left the next refusal is near, and refusing is cheap while closed.
        if core.since > cost * if free >= total / 8 { 1 } else { 16 } {
            self.open(core);
        }
    }
}

/// Gives imported spans back, except spans with ranges that are still handed out.
impl Drop for Vmem<'_> {
    fn drop(&mut self) {
        let Some(parent) = self.parent else { return };
        let core = self.core.get_mut();
        for cache in &self.caches {
            cache.drain(|object| {
                let put = core.put_back(object, self.shift);
                debug_assert!(put.is_ok());
            });
        }
        while let Some((start, size)) = core.arena.remove(None) {
            // It fails only if other code freed the span in the parent, bypassing this arena.
            let freed = parent.free(start, size);
            debug_assert!(freed.is_ok());
        }
    }
}

impl Core {
    /// Returns the range of an object that is not handed out to the arena; true if its span can be given
    /// back.
    fn put_back(&mut self, object: &Object, shift: u32) -> Result<bool, Error> {
        let (start, size) = (object.address(), (object.state().class() as u64 + 1) << shift);
        self.objects.discard(object);
        self.arena.free(start, size)
    }
}

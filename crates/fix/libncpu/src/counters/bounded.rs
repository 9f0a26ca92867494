//! A counter with a hard limit that scales with the number of CPUs.
//!
//! # Where it comes from
//!
//! A kernel accounts for swap space or locked memory in this way: many threads take and give back amounts all
//! the time, the sum must not pass a limit, and no request may be refused while enough is free. Steve
//! Sistare's blog gives the figures that such a counter reached in Solaris 11.1. The structure behind them,
//! the credit tree, is patented (US 8,863,140). This counter is a different one, derived from the problem:
//! free credit is spread over *stocks*, one per CPU. The CPU that the thread runs on chooses the stock, not a
//! hash. Stocks have no capacity, nothing overflows or cascades upwards, and no tally is kept. Returned
//! credit stays in the stock that it was given to, however large the amount. A thread that runs short looks
//! for credit, nearest stock first, led by a bitmap of the stocks that hold some. And the counter has two
//! modes that the credit tree lacks: a stock is *open*, or it is *closed* while all credit is central and
//! exact.
//!
//! # Structure
//!
//! Free credit lies in a stock per CPU, a pool per NUMA node and a root pool. `take` and `give` are one
//! compare-and-swap on the own CPU's stock. A stock that runs short is refilled from its node's pool, and
//! that pool from the root. The amount follows the CPU's demand: it doubles with each refill and halves when
//! other threads reclaim it. If the pools are short too, the taker reclaims the credit of stocks with a set
//! bit, node by node, nearest first, until it has enough. Only if that is not enough it makes certain:
//!
//! # Invariants
//!
//! 1. *Never over the limit.* Each unit of credit is in one place: a stock, a pool, the hands of a thread that holds
//!    the root's or a node's lock, or taken. Every step moves credit or fails; none makes it.
//! 2. *Never refused while enough is free.* Before it refuses, a taker that holds the root's lock closes all stocks
//!    of each node, under the node's lock: it swaps the mark `CLOSED` in and takes out what was there. Credit in
//!    hands of others is impossible then: refills hold the node's lock while they move credit and find the node
//!    closed afterwards, and only holders of the root's lock reach the rest. Giving to a closed stock goes to the
//!    root, after the refusal. So at the last swap all free credit is in the root or in the taker's hands, and it
//!    refuses if that is too little at that moment.
//!
//! While closed, every take and give goes to the root pool under its lock: near the limit the counter is a central
//! one, whose refusals need neither search nor lock. When the root holds enough again to give every CPU some, a node's
//! stocks are opened by the next that comes along there.
//!
//! # Memory ordering
//!
//! `give` releases and `take` acquires, so what was done with a resource before it was given back happens before its
//! next use. Everything else happens under locks. The bitmap is a hint (relaxed): a stock missed by it is found by
//! closing.
//!
//! # Cost
//!
//! `take` and `give`: one atomic operation on a line of the own CPU. A refill: O(1) under the node's lock, every
//! 2^k-th take. Reclaiming: O(stocks that hold something) until there is enough. Refusing: O(CPUs) the first time,
//! O(1) while it stays closed.

use crate::locks::raw_mutex::RawMutex;
use crate::percpu::{OutOfMemory, Padded, PerCpu, boxed, one};
use crate::sys::{self, AtomicBool, AtomicI64, AtomicU64, Forked, Ordering, Topology};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::fmt;

/// The stock is closed: all goes to the root.
const CLOSED: u64 = 1 << 63;
/// The largest limit.
pub const MOST: u64 = 1 << 62;

/// State of one CPU.
struct Stock {
    /// Free credit, or `CLOSED`.
    credit: AtomicU64,
    /// How much the next refill brings. A hint.
    refill: AtomicU64,
}

struct Node {
    lock: RawMutex,
    /// Written under the lock.
    pool: AtomicU64,
    /// Written under the lock. Whether the node's stocks are closed.
    closed: AtomicBool,
    /// The CPUs of this node.
    cpus: Box<[usize]>,
    /// One bit for each of these CPUs, set if its stock may hold credit.
    holding: Box<[AtomicU64]>,
}

struct Root {
    lock: RawMutex,
    /// Written under the lock. Negative if the limit was set below what was taken.
    pool: AtomicI64,
    /// Odd while every stock is closed and all that is free is in `pool`. Written under the lock.
    seal: AtomicU64,
}

/// The state that belongs to no single CPU. It does not move, because fork handlers keep its address.
struct Centre {
    root: Padded<Root>,
    nodes: Box<[Padded<Node>]>,
}

impl Forked for Centre {
    /// Without these locks a child would lose the credit in the hands of other threads, and locks would stay
    /// taken.
    fn before(&self) {
        self.root.lock.lock();
        self.nodes.iter().for_each(|node| node.lock.lock());
    }

    unsafe fn after(&self, child: bool) {
        let locks = self.nodes.iter().map(|node| &node.lock).chain([&self.root.lock]);
        for lock in locks {
            // SAFETY: taken in `before`. A child has one thread, and no thread was inside a critical section.
            unsafe { if child { lock.reset_after_fork() } else { lock.unlock() } };
        }
    }
}

/// Error of making a counter or of changing its limit. A failed change has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The requested limit, which is above [`MOST`].
    TooLarge(u64),
    /// Out of memory.
    OutOfMemory(OutOfMemory),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLarge(limit) => write!(f, "limit {limit} is too large; expected at most {MOST}"),
            Error::OutOfMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Error {
        Error::OutOfMemory(error)
    }
}

/// The counter. Taken and given are units of whatever is counted.
///
/// # What is checked
///
/// A counter does not record which thread took how much. A [`give`](BoundedCounter::give) of more than all
/// threads together have taken is refused for certain while the counter is *closed*: at first, from each
/// refusal, [`read_exact`] or [`set_limit`] until it has much left, and always with
/// [`BoundedCounter::checked`]. While the counter is open, `give` looks at its own CPU's stock only, and
/// refuses amounts that would raise that stock above the largest limit so far. A surplus that passes can be
/// taken, above the limit, until the counter closes the next time and drops it.
///
/// [`read_exact`]: BoundedCounter::read_exact
/// [`set_limit`]: BoundedCounter::set_limit
pub struct BoundedCounter {
    limit: AtomicU64,
    /// The largest limit so far, at most [`MOST`]: more cannot be free on a CPU.
    peak: AtomicU64,
    /// Whether it may open.
    opens: bool,
    stocks: PerCpu<Stock>,
    /// By CPU: its index in its node's `cpus`.
    index: Box<[usize]>,
    centre: Box<Centre>,
    topology: &'static Topology,
}

impl Drop for BoundedCounter {
    fn drop(&mut self) {
        sys::leave(&raw const *self.centre);
    }
}

/// A sum of credit. Cut off where only a surplus can lead, with room for another addition.
fn add(sum: i64, credit: u64) -> i64 {
    let most = i64::MAX / 2;
    sum.saturating_add(i64::try_from(credit).unwrap_or(most)).min(most)
}

/// Holds a [`RawMutex`] until dropped.
struct Held<'a>(&'a RawMutex);

impl<'a> Held<'a> {
    fn new(lock: &'a RawMutex) -> Held<'a> {
        lock.lock();
        Held(lock)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: taken in `new`.
        unsafe { self.0.unlock() }
    }
}

impl BoundedCounter {
    /// A counter with nothing taken and a limit of `limit`. 128 bytes per possible CPU, 128 per NUMA node.
    ///
    /// # Errors
    /// A limit above [`MOST`]; out of memory.
    pub fn new(limit: u64) -> Result<BoundedCounter, Error> {
        BoundedCounter::with(limit, sys::topology(), false)
    }

    /// As `new`, a counter that stays closed: it refuses every give of more than is taken, and does not
    /// scale. Use it to find the caller that gives too much.
    ///
    /// # Errors
    /// As for `new`.
    pub fn checked(limit: u64) -> Result<BoundedCounter, Error> {
        let mut counter = BoundedCounter::new(limit)?;
        counter.opens = false;
        Ok(counter)
    }

    /// As `new`, for another machine, and open: for tests.
    #[doc(hidden)]
    pub fn on(limit: u64, topology: &'static Topology) -> Result<BoundedCounter, Error> {
        BoundedCounter::with(limit, topology, true)
    }

    fn with(limit: u64, topology: &'static Topology, open: bool) -> Result<BoundedCounter, Error> {
        if limit > MOST {
            return Err(Error::TooLarge(limit));
        }
        let mut counts = boxed(topology.nodes(), |_| 0usize)?;
        let index = boxed(topology.cpus(), |cpu| {
            let count = &mut counts[topology.node_of(cpu)];
            *count += 1;
            *count - 1
        })?;
        let mut nodes = Vec::new();
        nodes
            .try_reserve_exact(topology.nodes())
            .map_err(|_| OutOfMemory(topology.nodes() * size_of::<Node>()))?;
        for (node, &count) in counts.iter().enumerate() {
            let mut own = (0..topology.cpus()).filter(|&cpu| topology.node_of(cpu) == node);
            nodes.push(Padded(Node {
                lock: RawMutex::new(),
                pool: AtomicU64::new(0),
                closed: AtomicBool::new(!open),
                cpus: boxed(count, |_| own.next().unwrap_or(0))?,
                holding: boxed(count.div_ceil(64), |_| AtomicU64::new(0))?,
            }));
        }
        let stocks = PerCpu::with_slots(topology.cpus(), |_| Stock {
            credit: AtomicU64::new(if open { 0 } else { CLOSED }),
            refill: AtomicU64::new(1),
        })?;
        let centre = one(Centre {
            root: Padded(Root {
                lock: RawMutex::new(),
                pool: AtomicI64::new(limit.cast_signed()),
                seal: AtomicU64::new(u64::from(!open)),
            }),
            nodes: nodes.into_boxed_slice(),
        })?;
        // SAFETY: on the heap, and left out when the counter is dropped.
        if !unsafe { sys::join(&raw const *centre) } {
            return Err(OutOfMemory(size_of::<usize>()).into());
        }
        let (limit, peak) = (AtomicU64::new(limit), AtomicU64::new(limit));
        Ok(BoundedCounter { limit, peak, opens: true, stocks, index, centre, topology })
    }

    /// Takes `n`, or returns false if less than that is free.
    #[inline]
    pub fn take(&self, n: u64) -> bool {
        self.take_at(self.stocks.here(), n)
    }

    /// Gives back `n` of the taken credit.
    ///
    /// Returns false and changes nothing if `n` cannot have been taken, as far as that [is
    /// checked](BoundedCounter#what-is-checked).
    #[inline]
    pub fn give(&self, n: u64) -> bool {
        self.give_at(self.stocks.here(), n)
    }

    /// `take` as if on a CPU: for tests.
    #[doc(hidden)]
    #[inline]
    pub fn take_at(&self, cpu: usize, n: u64) -> bool {
        let stock = &self.stocks[cpu].credit;
        let mut seen = stock.load(Relaxed);
        while seen >= n && seen < CLOSED {
            match stock.compare_exchange_weak(seen, seen - n, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        self.take_slow(cpu, n)
    }

    /// `give` as if on a CPU: for tests.
    #[doc(hidden)]
    #[inline]
    pub fn give_at(&self, cpu: usize, n: u64) -> bool {
        let stock = &self.stocks[cpu].credit;
        let mut seen = stock.load(Relaxed);
        let peak = self.peak.load(Relaxed);
        while seen < CLOSED && n <= peak.saturating_sub(seen) {
            match stock.compare_exchange_weak(seen, seen + n, Release, Relaxed) {
                Ok(0) => {
                    self.mark(cpu);
                    return true;
                }
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        self.give_slow(cpu, n)
    }

    /// Credit taken. Exact if no thread takes or gives meanwhile; otherwise off by at most the amounts taken
    /// and given during the call. O(CPUs).
    pub fn read(&self) -> u64 {
        let stocks = self.stocks.iter().map(|stock| stock.credit.load(Acquire) & !CLOSED);
        let pools = self.centre.nodes.iter().map(|node| node.pool.load(Acquire));
        let free = stocks.chain(pools).fold(0, add) + self.centre.root.pool.load(Acquire);
        u64::try_from(self.limit.load(Acquire).cast_signed() - free).unwrap_or(0)
    }

    /// Credit taken at one moment during this call. Stops takes and gives while it adds up; O(CPUs).
    pub fn read_exact(&self) -> u64 {
        let _root = Held::new(&self.centre.root.lock);
        let free = self.without_surplus(self.close_all() + self.centre.root.pool.load(Relaxed));
        self.seal(free);
        u64::try_from(self.limit.load(Relaxed).cast_signed() - free).unwrap_or(0)
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit. Returns by how much the taken credit exceeds the new limit. Nothing is revoked, but
    /// no thread can take until more than that was given back.
    ///
    /// # Errors
    /// A limit above [`MOST`]: nothing changes.
    pub fn set_limit(&self, limit: u64) -> Result<u64, Error> {
        if limit > MOST {
            return Err(Error::TooLarge(limit));
        }
        let _root = Held::new(&self.centre.root.lock);
        let change = limit.cast_signed() - self.limit.load(Relaxed).cast_signed();
        // All credit is in the root here, so a lower limit holds from this moment on.
        let free = self.without_surplus(self.close_all() + self.centre.root.pool.load(Relaxed)) + change;
        self.limit.store(limit, Relaxed);
        self.peak.fetch_max(limit, Relaxed);
        self.seal(free);
        Ok(u64::try_from(-free).unwrap_or(0))
    }

    /// Notes that a stock may hold something.
    fn mark(&self, cpu: usize) {
        let at = self.index[cpu];
        let word = &self.centre.nodes[self.topology.node_of(cpu)].holding[at / 64];
        let bit = 1 << (at % 64);
        // The bit is usually set already; then no shared line is written.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    #[cold]
    fn give_slow(&self, cpu: usize, n: u64) -> bool {
        let _root = Held::new(&self.centre.root.lock);
        let pool = self.centre.root.pool.load(Relaxed);
        // The root alone never holds more than the limit, and all that is free while it is sealed.
        let limit = self.limit.load(Relaxed).cast_signed();
        let Some(free) =
            n.try_into().ok().and_then(|n: i64| pool.checked_add(n)).filter(|&free| free <= limit)
        else {
            return false;
        };
        self.centre.root.pool.store(free, Release);
        let node = &self.centre.nodes[self.topology.node_of(cpu)];
        let _node = Held::new(&node.lock);
        self.open_if_ample(node, n);
        true
    }

    #[cold]
    fn take_slow(&self, cpu: usize, n: u64) -> bool {
        if n > self.limit.load(Relaxed) || self.sealed_below(n) {
            return false;
        }
        let home = self.topology.node_of(cpu);
        let node = &self.centre.nodes[home];
        {
            let _node = Held::new(&node.lock);
            if !node.closed.load(Relaxed) && self.take_from_pool(node, cpu, n) {
                return true;
            }
        }
        let _root = Held::new(&self.centre.root.lock);
        {
            let _node = Held::new(&node.lock);
            if self.take_from_root(node, cpu, n) {
                return true;
            }
        }
        let reclaimed = self.reclaim(home, n);
        let free = reclaimed + self.centre.root.pool.load(Relaxed);
        if free >= n.cast_signed() {
            self.keep(node, free - n.cast_signed());
            return true;
        }
        let free = self.without_surplus(self.close_all() + free);
        let enough = free >= n.cast_signed();
        self.seal(if enough { free - n.cast_signed() } else { free });
        enough
    }

    /// With the node's lock held: takes `n` from its pool and refills the stock.
    fn take_from_pool(&self, node: &Node, cpu: usize, n: u64) -> bool {
        let pool = node.pool.load(Relaxed);
        if pool < n {
            return false;
        }
        let stock = &self.stocks[cpu];
        let demand = stock.refill.load(Relaxed);
        stock.refill.store(demand.saturating_mul(2).min(MOST), Relaxed);
        // Never more than half of this CPU's fair share: other CPUs come too.
        let extra = demand.saturating_mul(n).min((pool - n) / (2 * node.cpus.len().max(1) as u64));
        node.pool.store(pool - n - extra, Release);
        if extra > 0 {
            // Open, and only holders of the node's lock close it.
            stock.credit.fetch_add(extra, AcqRel);
            self.mark(cpu);
        }
        true
    }

    /// With the root's and the node's lock held: takes `n` from the root pool and refills the node's.
    fn take_from_root(&self, node: &Node, cpu: usize, n: u64) -> bool {
        let pool = self.centre.root.pool.load(Relaxed);
        if pool < n.cast_signed() {
            return false;
        }
        self.open_if_ample(node, n);
        if node.closed.load(Relaxed) {
            self.centre.root.pool.store(pool - n.cast_signed(), Release);
            return true;
        }
        let pool = pool.cast_unsigned();
        let demand =
            self.stocks[cpu].refill.load(Relaxed).saturating_mul(n).saturating_mul(node.cpus.len() as u64);
        let extra = demand.min((pool - n) / (2 * self.centre.nodes.len() as u64));
        self.centre.root.pool.store((pool - n - extra).cast_signed(), Release);
        node.pool.store(node.pool.load(Relaxed) + n + extra, Release);
        self.take_from_pool(node, cpu, n)
    }

    /// With the root's lock held: collects what the stocks and pools hold, nearest first, until it is enough for `n`.
    fn reclaim(&self, home: usize, n: u64) -> i64 {
        let mut hand = 0;
        let wanted = n.cast_signed() - self.centre.root.pool.load(Relaxed);
        for &near in self.topology.nearest(home) {
            let node = &self.centre.nodes[near];
            let _node = Held::new(&node.lock);
            if node.closed.load(Relaxed) {
                continue;
            }
            hand = add(hand, node.pool.load(Relaxed));
            node.pool.store(0, Relaxed);
            for (word, bits) in node.holding.iter().enumerate() {
                let mut left = if bits.load(Relaxed) == 0 { 0 } else { bits.swap(0, Relaxed) };
                while left != 0 {
                    let stock = &self.stocks[node.cpus[word * 64 + left.trailing_zeros() as usize]];
                    left &= left - 1;
                    hand = add(hand, stock.credit.swap(0, AcqRel));
                    stock.refill.store((stock.refill.load(Relaxed) / 2).max(1), Relaxed);
                }
            }
            if hand >= wanted {
                break;
            }
        }
        hand
    }

    /// With the root's lock held: closes all stocks and returns what they and the pools held.
    fn close_all(&self) -> i64 {
        let mut hand = 0;
        for node in &self.centre.nodes {
            let _node = Held::new(&node.lock);
            if node.closed.load(Relaxed) {
                continue;
            }
            node.closed.store(true, Relaxed);
            hand = add(hand, node.pool.load(Relaxed));
            node.pool.store(0, Relaxed);
            for &cpu in &node.cpus {
                hand = add(hand, self.stocks[cpu].credit.swap(CLOSED, AcqRel));
            }
            for bits in &node.holding {
                bits.store(0, Relaxed);
            }
        }
        hand
    }

    /// Free credit in `found`, the sum after all stocks were closed. A sum above the limit contains credit
    /// that was given without having been taken.
    fn without_surplus(&self, found: i64) -> i64 {
        found.min(self.limit.load(Relaxed).cast_signed())
    }

    /// With the root's lock held and all closed: `free` is all that is free, and it is in the root.
    fn seal(&self, free: i64) {
        self.centre.root.pool.store(free, SeqCst);
        let seal = self.centre.root.seal.load(Relaxed);
        self.centre.root.seal.store(seal | 1, SeqCst);
    }

    /// Whether less than `n` was free at one moment, as far as this can be decided without a lock. While
    /// sealed, each change is one store to the root's pool, so if the seal is the same before and after, the
    /// pool's value was valid in between.
    fn sealed_below(&self, n: u64) -> bool {
        let seal = self.centre.root.seal.load(SeqCst);
        seal & 1 == 1
            && self.centre.root.pool.load(SeqCst) < n.cast_signed()
            && self.centre.root.seal.load(SeqCst) == seal
    }

    /// With the root's lock held: puts the rest where threads look for it next.
    fn keep(&self, node: &Node, rest: i64) {
        let _node = Held::new(&node.lock);
        if node.closed.load(Relaxed) || rest < 0 {
            self.centre.root.pool.store(rest, Release);
        } else {
            self.centre.root.pool.store(0, Release);
            node.pool.store(node.pool.load(Relaxed) + rest.cast_unsigned(), Release);
        }
    }

    /// With both locks held: opens the node's stocks if the root holds `n` for every CPU.
    fn open_if_ample(&self, node: &Node, n: u64) {
        let ample = n.max(1).saturating_mul(4 * self.stocks.len() as u64);
        if self.opens
            && node.closed.load(Relaxed)
            && self.centre.root.pool.load(Relaxed) >= ample.min(MOST).cast_signed()
        {
            // Must happen before credit can leave the root.
            let seal = self.centre.root.seal.load(Relaxed);
            self.centre.root.seal.store(seal + (seal & 1), SeqCst);
            for &cpu in &node.cpus {
                self.stocks[cpu].credit.store(0, Release);
            }
            node.closed.store(false, Relaxed);
        }
    }
}

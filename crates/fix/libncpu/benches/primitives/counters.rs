//! Counters: an operation of a bounded one takes and gives back, of a plain one adds.

use super::{Group, Shape, Subject};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// A counter under a limit.
trait Bounded: Sync {
    const NAME: &'static str;
    fn new(limit: u64) -> Self;
    fn take(&self, n: u64) -> bool;
    fn give(&self, n: u64);
}

/// Takes and gives `HOLD` units one by one; refusals count as operations too.
struct InTurn<B>(B, usize);

impl<B: Bounded> Subject for InTurn<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }
    fn hammer(&self, stop: &AtomicBool, _: Shape) -> u64 {
        let mut n = 0;
        while !stop.load(Relaxed) {
            let taken = (0..self.1).filter(|_| self.0.take(1)).count();
            (0..taken).for_each(|_| self.0.give(1));
            n += self.1 as u64;
        }
        n
    }
}

impl Bounded for libncpu::BoundedCounter {
    const NAME: &'static str = "ncpu";
    fn new(limit: u64) -> Self {
        libncpu::BoundedCounter::new(limit).expect("memory")
    }
    fn take(&self, n: u64) -> bool {
        libncpu::BoundedCounter::take(self, n)
    }
    fn give(&self, n: u64) {
        libncpu::BoundedCounter::give(self, n);
    }
}

/// One word, compare-and-swap.
struct Atomic(AtomicU64, u64);

impl Bounded for Atomic {
    const NAME: &'static str = "atomic";
    fn new(limit: u64) -> Self {
        Atomic(AtomicU64::new(0), limit)
    }
    fn take(&self, n: u64) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |used| (used + n <= self.1).then_some(used + n)).is_ok()
    }
    fn give(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }
}

/// One word under a lock.
struct Locked(Mutex<u64>, u64);

impl Bounded for Locked {
    const NAME: &'static str = "mutex";
    fn new(limit: u64) -> Self {
        Locked(Mutex::new(0), limit)
    }
    fn take(&self, n: u64) -> bool {
        let mut used = self.0.lock().expect("not poisoned");
        let fits = *used + n <= self.1;
        *used += if fits { n } else { 0 };
        fits
    }
    fn give(&self, n: u64) {
        *self.0.lock().expect("not poisoned") -= n;
    }
}

const SHARDS: usize = 64;

#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicI64);

thread_local!(static SHARD: Cell<usize> = const { Cell::new(usize::MAX) });

/// A number of the thread's own below [`SHARDS`].
fn shard() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    SHARD.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Relaxed) as usize % SHARDS);
        }
        own.get()
    })
}

/// The kernel's percpu_counter with limited_add: batches, and a lock near the limit, where it adds all up.
struct Batch(Box<[Shard]>, Mutex<()>, AtomicI64, i64);

impl Batch {
    const BATCH: i64 = 32;
    fn add(&self, n: i64) {
        let shard = &self.0[shard()].0;
        let now = shard.fetch_add(n, Relaxed) + n;
        if now.abs() >= Self::BATCH {
            let _lock = self.1.lock();
            self.2.fetch_add(shard.swap(0, Relaxed), Relaxed);
        }
    }
}

impl Bounded for Batch {
    const NAME: &'static str = "batch";
    fn new(limit: u64) -> Self {
        Batch(
            (0..SHARDS).map(|_| Shard::default()).collect(),
            Mutex::new(()),
            AtomicI64::new(0),
            limit as i64,
        )
    }
    fn take(&self, n: u64) -> bool {
        let n = n as i64;
        if self.2.load(Relaxed) + Self::BATCH * SHARDS as i64 + n <= self.3 {
            self.add(n);
            return true;
        }
        let _lock = self.1.lock();
        let used = self.2.load(Relaxed) + self.0.iter().map(|shard| shard.0.load(Relaxed)).sum::<i64>();
        let fits = used + n <= self.3;
        if fits {
            self.2.fetch_add(n, Relaxed);
        }
        fits
    }
    fn give(&self, n: u64) {
        self.add(-(n as i64));
    }
}

fn bounded(name: &'static str, about: &'static str, limit: u64, hold: usize) -> Group {
    Group {
        name,
        about,
        sections: false,
        subjects: vec![
            Box::new(InTurn(libncpu::BoundedCounter::new(limit).expect("memory"), hold)),
            Box::new(InTurn(<Atomic as Bounded>::new(limit), hold)),
            Box::new(InTurn(<Locked as Bounded>::new(limit), hold)),
            Box::new(InTurn(<Batch as Bounded>::new(limit), hold)),
        ],
    }
}

/// Far from the limit.
pub fn bounded_far() -> Group {
    bounded(
        "bounded-far",
        "an operation takes 1 and gives it back; limit 1000000 (batch: not exact)",
        1_000_000,
        1,
    )
}

/// At the limit: two threads alone want more than the limit.
pub fn bounded_near() -> Group {
    bounded(
        "bounded-near",
        "an operation tries to take 1 of 12, eight at a time, and gives back what it got",
        12,
        8,
    )
}

macro_rules! adds {
    ($type:ty, $name:literal, |$counter:ident| $add:expr) => {
        impl Subject for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn hammer(&self, stop: &AtomicBool, _: Shape) -> u64 {
                let ($counter, mut n) = (self, 0);
                while !stop.load(Relaxed) {
                    for _ in 0..16 {
                        $add;
                    }
                    n += 16;
                }
                n
            }
        }
    };
}

/// The plain shared word.
struct Shared(AtomicI64);
/// A shard by thread, as crates do it.
struct Sharded(Box<[Shard]>);

adds!(libncpu::Counter, "ncpu", |counter| counter.add(1));
adds!(Shared, "atomic", |counter| counter.0.fetch_add(1, Relaxed));
adds!(Sharded, "sharded", |counter| counter.0[shard()].0.fetch_add(1, Relaxed));

/// Counters without a limit.
pub fn plain() -> Group {
    Group {
        name: "counter",
        about: "an operation adds 1",
        sections: false,
        subjects: vec![
            Box::new(libncpu::Counter::new().expect("memory")),
            Box::new(Shared(AtomicI64::new(0))),
            Box::new(Sharded((0..SHARDS).map(|_| Shard::default()).collect())),
        ],
    }
}

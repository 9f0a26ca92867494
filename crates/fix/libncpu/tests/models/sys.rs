//! `sys` for the model checker: every access is a point where the checker may switch threads, and it chooses
//! CPUs, times and timeouts. Memory is sequentially consistent here: the sources argue the orderings, this
//! does not check them.

use shuttle::rand::{Rng, thread_rng};
#[allow(unused_imports)]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use shuttle::thread::{self, Thread, ThreadId};
use std::cell::{Cell, RefCell};
use std::io;

/// Passes at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    pub fn now() -> Instant {
        // Often long enough to starve.
        Instant(thread_rng().gen_range(0..40_000_000))
    }
    pub fn after(_after: std::time::Duration) -> Instant {
        Instant::soon()
    }
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
    pub fn plus(self, ns: u64) -> Instant {
        Instant(self.0 + ns)
    }
    pub fn ns(self) -> u64 {
        self.0
    }
    pub fn passed(self) -> bool {
        Instant::now() >= self
    }
    /// A deadline that some looks find passed.
    pub fn soon() -> Instant {
        Instant(30_000_000)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Woken,
    Changed,
    TimedOut,
}

#[allow(dead_code)]
pub const ALL: u32 = u32::MAX;

struct Sleeper {
    address: usize,
    bits: u32,
    thread: Thread,
}

thread_local! {
    /// The kernel's queues, first in, first out. Shuttle runs all threads of a model on one; never borrowed over a
    /// switch.
    static SLEEPERS: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
}

thread_local! {
    /// Critical sections that a model has begun so far, if it counts them.
    pub static SECTIONS: Cell<u32> = const { Cell::new(0) };
    /// Threads that sleep as the demander of a mutex, with the value of [`SECTIONS`] when each began to.
    static DEMANDERS: RefCell<Vec<(ThreadId, u32)>> = const { RefCell::new(Vec::new()) };
}

/// The bit by which the demander of a mutex is woken.
const DEMANDER: u32 = 2;

/// The number of critical sections that began since this thread first slept as a demander, if it did; forgets
/// that it did.
pub fn sections_while_demanding() -> Option<u32> {
    let me = thread::current().id();
    DEMANDERS.with_borrow_mut(|all| {
        let at = all.iter().position(|(thread, _)| *thread == me)?;
        Some(SECTIONS.get() - all.swap_remove(at).1)
    })
}

/// At the start of a schedule: a failed one may have left sleepers.
pub fn restart() {
    SLEEPERS.with_borrow_mut(Vec::clear);
    NOW.set(0);
    DEMANDS_UNWOKEN.set(false);
    SECTIONS.set(0);
    DEMANDERS.with_borrow_mut(Vec::clear);
}

/// The address of a futex.
#[derive(Clone, Copy)]
pub struct Address(usize);

pub struct Futex {
    word: AtomicU32,
}

impl Futex {
    pub const fn new(value: u32) -> Futex {
        Futex { word: AtomicU32::new(value) }
    }

    pub fn wait(&self, expected: u32, bits: u32, deadline: Option<Instant>, _shared: bool) -> Wait {
        // No switch between the load and the entry into the queue, as under the kernel's bucket lock.
        if self.word.load(Ordering::SeqCst) != expected {
            return Wait::Changed;
        }
        let me = thread::current();
        if bits == DEMANDER {
            DEMANDERS.with_borrow_mut(|all| {
                if all.iter().all(|(thread, _)| *thread != me.id()) {
                    all.push((me.id(), SECTIONS.get()));
                }
            });
        }
        let address = self.address().0;
        SLEEPERS.with_borrow_mut(|all| all.push(Sleeper { address, bits, thread: me.clone() }));
        loop {
            // A signal, or the deadline.
            let disturbed = thread_rng().gen_range(0..16) == 0;
            if deadline.is_some() || disturbed {
                thread::yield_now();
            } else {
                thread::park();
            }
            let there = SLEEPERS.with_borrow_mut(|all| {
                let at = all.iter().position(|s| s.thread.id() == me.id())?;
                (deadline.is_some() || disturbed).then(|| all.remove(at));
                Some(())
            });
            if there.is_none() {
                return Wait::Woken;
            }
            if disturbed {
                return Wait::Changed;
            }
            if deadline.is_some() {
                return Wait::TimedOut;
            }
        }
    }

    pub fn wake(&self, count: u32, bits: u32, shared: bool) -> usize {
        wake_at(self.address(), count, bits, shared)
    }

    pub fn address(&self) -> Address {
        Address(std::ptr::from_ref(self) as usize)
    }
}

pub fn wake_at(address: Address, count: u32, bits: u32, _shared: bool) -> usize {
    let mut woken = Vec::new();
    SLEEPERS.with_borrow_mut(|all| {
        while woken.len() < count as usize {
            let found = all.iter().position(|s| s.address == address.0 && s.bits & bits != 0);
            let Some(at) = found else { break };
            woken.push(all.remove(at).thread);
        }
    });
    for thread in &woken {
        thread.unpark();
    }
    woken.len()
}

impl std::ops::Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

pub fn light_barrier() {
    fence(Ordering::SeqCst);
}

pub fn heavy_barrier() -> bool {
    fence(Ordering::SeqCst);
    true
}

pub fn without_barrier() {}

/// Restartable sequences need the processor and the kernel; this is the atomic form of the lock.
pub fn locks_by_rseq() -> bool {
    false
}

pub fn fence_rseq() -> bool {
    true
}

pub unsafe fn lock_here(_first: *const [AtomicU16; 2], _stride: usize, _slots: usize) -> Option<usize> {
    None
}

/// One of two, so waiters find themselves on the owner's CPU, rightly or not.
pub fn cpu() -> Option<u32> {
    Some(thread_rng().gen_range(0..2))
}

pub fn cpus() -> u32 {
    2
}

pub fn pause(_n: u32) {
    thread::yield_now();
}

/// Few, so that spinning ends soon.
pub fn pauses_per_us() -> u32 {
    1
}

thread_local! {
    /// For the schedules of this model.
    pub static DEMANDS_UNWOKEN: Cell<bool> = const { Cell::new(false) };
}

pub fn demands_unwoken() -> bool {
    DEMANDS_UNWOKEN.get()
}

pub fn in_window() -> bool {
    thread_rng().gen_range(0..4) == 0
}

#[allow(dead_code)]
pub fn yield_now() {
    thread::yield_now();
}

pub fn alone() -> bool {
    false
}

pub fn cpu_or_thread() -> u32 {
    thread_rng().gen_range(0..2)
}

pub fn node() -> usize {
    thread_rng().gen_range(0..2)
}

/// Two nodes of a CPU each.
pub struct Topology;

pub fn topology() -> &'static Topology {
    &Topology
}

impl Topology {
    pub fn cpus(&self) -> usize {
        2
    }
    pub fn nodes(&self) -> usize {
        2
    }
    pub fn node_of(&self, cpu: usize) -> usize {
        cpu % 2
    }
    pub fn nearest(&self, node: usize) -> &[usize] {
        if node == 0 { &[0, 1] } else { &[1, 0] }
    }
}

thread_local! {
    /// The clock of timers, in ns.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Advances a little with each look, and to the time of an alarm when the checker chooses.
pub fn clock() -> u64 {
    NOW.set(NOW.get() + thread_rng().gen_range(0..200));
    NOW.get()
}

/// Any of two CPUs.
pub fn here() -> usize {
    thread_rng().gen_range(0..2)
}

pub struct Alarm(AtomicU64);

const NOT_SET: u64 = u64::MAX;

impl Alarm {
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm(AtomicU64::new(NOT_SET)))
    }

    pub fn set(&self, at: u64) -> io::Result<()> {
        self.0.store(at.min(NOT_SET - 1), Ordering::SeqCst);
        Ok(())
    }

    pub fn wait(&self) -> io::Result<()> {
        loop {
            let at = self.0.load(Ordering::SeqCst);
            let passes = clock() >= at || thread_rng().gen_range(0..4) == 0;
            // The time of expiry is not fixed before it: until then the alarm may be set to another time.
            if at != NOT_SET
                && passes
                && self.0.compare_exchange(at, NOT_SET, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                NOW.set(NOW.get().max(at));
                return Ok(());
            }
            thread::yield_now();
        }
    }
}

pub trait Serve {
    fn serve(&self);
}

pub struct Helper(thread::JoinHandle<()>);

impl Helper {
    pub unsafe fn start<S: Serve + Sync + 'static>(server: *const S) -> io::Result<Helper> {
        let server = server as usize;
        Ok(Helper(thread::spawn(move || unsafe { &*(server as *const S) }.serve())))
    }

    pub fn join(self) {
        self.0.join().unwrap();
    }
}

pub fn settle(_cpu: usize) {}

pub fn thread_id() -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    thread::current().id().hash(&mut hasher);
    hasher.finish() as u32 | 1
}

pub fn forks() -> u32 {
    0
}

pub fn watch_forks() -> bool {
    true
}

pub fn bind(_cpu: usize) -> bool {
    true
}

pub unsafe fn add_here(first: *const AtomicI64, stride: usize, slots: usize, n: i64) -> bool {
    let cpu = cpu_or_thread() as usize % slots;
    unsafe { (*first.byte_add(cpu * stride)).fetch_add(n, Ordering::Relaxed) };
    true
}

/// Threads of a model do not die with a lock held.
pub fn thread_lives(_: u32) -> bool {
    true
}

pub trait Forked: Sync {
    fn before(&self);
    unsafe fn after(&self, child: bool);
}

pub unsafe fn join<T: Forked + 'static>(_: *const T) -> bool {
    true
}

pub fn leave<T: Forked + 'static>(_: *const T) {}

pub fn once_forked(_: impl FnOnce()) {
    unreachable!("no model forks")
}

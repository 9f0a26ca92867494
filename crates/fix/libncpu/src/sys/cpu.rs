//! The CPU that a thread is on, how many there are, and how to wait on one.

use super::clock::Instant;
use super::rseq::cpu;
use super::topology::Topology;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The CPU and NUMA node this thread runs on, asked of the kernel (vDSO).
pub fn cpu_and_node() -> (u32, u32) {
    let (mut cpu, mut node) = (0u32, 0u32);
    if cfg!(miri) {
        return (cpu, node);
    }
    // SAFETY: two writable words.
    unsafe { libc::syscall(libc::SYS_getcpu, &mut cpu, &mut node, std::ptr::null::<u8>()) };
    (cpu, node)
}

/// CPUs that this process may run on, at least 1; read once.
pub fn cpus() -> u32 {
    static CPUS: AtomicU32 = AtomicU32::new(0);
    match CPUS.load(Ordering::Relaxed) {
        0 => {
            let n = std::thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
            CPUS.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

/// Executes `n` of the processor's instructions for busy-waiting.
#[inline]
pub fn pause(n: u32) {
    for _ in 0..n {
        std::hint::spin_loop();
    }
}

/// How many [`pause`]s take about a microsecond, at least 1: from 20 to 300 by processor, so measured once.
pub fn pauses_per_us() -> u32 {
    static PAUSES: AtomicU32 = AtomicU32::new(0);
    match PAUSES.load(Ordering::Relaxed) {
        0 => {
            // The least of a few: an interruption only makes one longer.
            let ns = (0..5)
                .map(|_| {
                    let start = Instant::now();
                    pause(32);
                    Instant::now().since(start)
                })
                .min()
                .unwrap_or(1_000);
            let pauses = u32::try_from(32_000 / ns.max(32)).unwrap_or(1).max(1);
            PAUSES.store(pauses, Ordering::Relaxed);
            pauses
        }
        n => n,
    }
}

/// Whether sleepers' turn has come: an eighth of the time, a millisecond or less at once.
///
/// Stateless, so that a lock need not remember when it last woke anyone: bits of the processor's time stamp.
pub fn in_window() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads the time-stamp counter.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() } >> 20;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let ticks = Instant::now().ns() >> 19;
    ticks & 7 == 0
}

/// Whether threads that sleep for a lock wake up by themselves to demand it. The model checker has both ways: a thread
/// that does would hide that its wake-up was lost.
#[inline(always)]
pub fn demands_unwoken() -> bool {
    true
}

/// The index of the NUMA node that this thread is on, in the order of [`Topology`].
pub fn node() -> usize {
    let cpu = cpu().unwrap_or_else(|| cpu_and_node().0);
    topology().node_of(cpu as usize)
}

/// CPUs, nodes and how near they are to each other.
pub fn topology() -> &'static Topology {
    // No lock, which a fork at the wrong moment would leave taken in the child: who comes second drops its own.
    static TOPOLOGY: AtomicPtr<Topology> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: null, or leaked below.
    if let Some(known) = unsafe { TOPOLOGY.load(Ordering::Acquire).as_ref() } {
        return known;
    }
    let read = Box::into_raw(Box::new(Topology::read(std::path::Path::new("/sys/devices/system"))));
    match TOPOLOGY.compare_exchange(std::ptr::null_mut(), read, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed from now on.
        Ok(_) => unsafe { &*read },
        // SAFETY: this thread's box that nobody saw, and the other's, which stays.
        Err(first) => unsafe {
            drop(Box::from_raw(read));
            &*first
        },
    }
}

/// The CPU this thread is on. Unlike [`cpu`] at any price: a timer shall expire where it was armed.
#[inline]
pub fn here() -> usize {
    let ask = || {
        // SAFETY: takes nothing; negative only on kernels without it.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
    };
    cpu().unwrap_or_else(ask) as usize
}

/// Binds this thread to a CPU. False if it may not run there.
pub fn bind(cpu: usize) -> bool {
    // As many CPUs as Linux can be built for; `cpu_set_t` has fewer.
    let mut set = [0u64; 128];
    let Some(word) = set.get_mut(cpu / 64) else { return false };
    *word = 1 << (cpu % 64);
    // SAFETY: reads the set.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) == 0 }
}

//! The current CPU of a thread, the number of CPUs, and ways to wait on a CPU.

use super::clock::Instant;
use super::rseq::cpu;
use super::topology::Topology;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The CPU and NUMA node this thread runs on, from the kernel (vDSO).
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

/// The number of [`pause`]s in about a microsecond, at least 1: from 20 to 300 by processor, so measured
/// once.
pub fn pauses_per_us() -> u32 {
    static PAUSES: AtomicU32 = AtomicU32::new(0);
    match PAUSES.load(Ordering::Relaxed) {
        0 => {
            // The least of a few measurements: an interruption only makes one longer.
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

/// Whether it is the sleepers' turn: an eighth of the time, for a millisecond or less at once.
///
/// Stateless, so that a lock need not store when it last woke a thread: bits of the processor's time stamp.
pub fn in_window() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads the time-stamp counter.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() } >> 20;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let ticks = Instant::now().ns() >> 19;
    ticks & 7 == 0
}

/// Whether threads that sleep for a lock wake up by themselves to demand it. The model checker runs with both
/// values: a thread that wakes up by itself would hide a lost wake-up.
#[inline(always)]
pub fn demands_unwoken() -> bool {
    true
}

/// The index of the NUMA node that this thread is on, in the order of [`Topology`].
pub fn node() -> usize {
    let cpu = cpu().unwrap_or_else(|| cpu_and_node().0);
    topology().node_of(cpu as usize)
}

/// CPUs, nodes and the distances between them.
pub fn topology() -> &'static Topology {
    // No lock, which a fork at the wrong moment would leave taken in the child: the second thread drops its
    // own copy.
    static TOPOLOGY: AtomicPtr<Topology> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: null, or leaked below.
    if let Some(known) = unsafe { TOPOLOGY.load(Ordering::Acquire).as_ref() } {
        return known;
    }
    let read = Box::into_raw(Box::new(Topology::read(std::path::Path::new("/sys/devices/system"))));
    match TOPOLOGY.compare_exchange(std::ptr::null_mut(), read, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed from now on.
        Ok(_) => unsafe { &*read },
        // SAFETY: this thread's box, which no other thread saw, and the other thread's, which stays.
        Err(first) => unsafe {
            drop(Box::from_raw(read));
            &*first
        },
    }
}

/// The CPU this thread is on. Unlike [`cpu`] it makes a system call if necessary: a timer must expire where
/// it was armed.
#[inline]
pub fn here() -> usize {
    let ask = || {
        // SAFETY: takes no pointers; negative only on kernels that lack it.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
    };
    cpu().unwrap_or_else(ask) as usize
}

/// Binds this thread to a CPU. False if it may not run there.
pub fn bind(cpu: usize) -> bool {
    // Enough for the most CPUs that Linux can be built for; `cpu_set_t` has fewer.
    let mut set = [0u64; 128];
    let Some(word) = set.get_mut(cpu / 64) else { return false };
    *word = 1 << (cpu % 64);
    // SAFETY: reads the set.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) == 0 }
}

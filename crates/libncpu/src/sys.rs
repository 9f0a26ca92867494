//! The one place that touches the machine: futexes, barriers, clocks, the number of the CPU.
//!
//! The algorithms import what they need from `crate::sys` only. The model checker's build
//! (`tests/models`) compiles the same algorithm sources against another `sys`.

pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::time::Duration;

/// A point on `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The time now; about 20 ns.
    pub fn now() -> Instant {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is writable; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// The point `after` from now; far durations saturate.
    pub fn after(after: Duration) -> Instant {
        Instant(Instant::now().0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The point `seconds` and `nanoseconds` on `CLOCK_MONOTONIC`; `None` if that is no time.
    pub fn from_timespec(seconds: i64, nanoseconds: i64) -> Option<Instant> {
        if !(0..1_000_000_000).contains(&nanoseconds) {
            return None;
        }
        let seconds = u64::try_from(seconds.max(0)).ok()?;
        Some(Instant(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as u64)))
    }

    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub fn ns(self) -> u64 {
        self.0
    }

    /// The point `ns` later.
    pub fn plus(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, 0 if it is later.
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whether this point has passed.
    pub fn passed(self) -> bool {
        Instant::now() >= self
    }

    fn timespec(self) -> libc::timespec {
        libc::timespec {
            tv_sec: i64::try_from(self.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (self.0 % 1_000_000_000) as _,
        }
    }
}

/// Why a [`Futex::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A wake-up that the waker counted (or, rarely, one meant for another use of the address).
    Woken,
    /// The word had another value, or a signal came.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// Every sleeper of a futex.
pub const ALL: u32 = u32::MAX;

/// Where a futex is, or was: a pointer and no number, since Miri finds futexes by provenance.
#[derive(Clone, Copy)]
pub struct Address(*const u32);

/// A word that threads can sleep on.
#[repr(transparent)]
pub struct Futex(AtomicU32);

impl Futex {
    /// A futex with a first value.
    pub const fn new(value: u32) -> Futex {
        Futex(AtomicU32::new(value))
    }

    /// Sleeps while the word is `expected`, until a wake-up whose `bits` overlap or the deadline.
    pub fn wait(&self, expected: u32, bits: u32, deadline: Option<Instant>, shared: bool) -> Wait {
        let deadline = deadline.map(Instant::timespec);
        let private = if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
        // SAFETY: the word outlives the call; the deadline is null or points to a timespec.
        let done = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT_BITSET | private,
                expected,
                deadline.as_ref().map_or(std::ptr::null(), |d| d as *const libc::timespec),
                std::ptr::null::<u32>(),
                bits,
            )
        };
        if done == 0 {
            return Wait::Woken;
        }
        match errno() {
            libc::ETIMEDOUT => Wait::TimedOut,
            libc::EAGAIN | libc::EINTR => Wait::Changed,
            other => unreachable_futex(other),
        }
    }

    /// Wakes up to `count` sleepers whose bits overlap `bits`; returns how many there were.
    pub fn wake(&self, count: u32, bits: u32, shared: bool) -> usize {
        wake_at(self.address(), count, bits, shared)
    }

    /// The address that [`wake_at`] takes.
    pub fn address(&self) -> Address {
        Address(self.0.as_ptr())
    }
}

/// Wakes sleepers at an address whose memory may be gone by now: the kernel only compares addresses.
pub fn wake_at(address: Address, count: u32, bits: u32, shared: bool) -> usize {
    let private = if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: FUTEX_WAKE_BITSET does not access the word.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            address.0,
            libc::FUTEX_WAKE_BITSET | private,
            i32::try_from(count).unwrap_or(i32::MAX),
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            bits,
        )
    };
    // EFAULT of a shared futex whose mapping is gone: nobody sleeps there.
    usize::try_from(woken).unwrap_or(0)
}

impl std::ops::Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cold]
fn unreachable_futex(errno: i32) -> Wait {
    // EFAULT, EINVAL, ENOSYS: the lock's memory is gone or the kernel has no futexes. Spinning on in a lock that
    // cannot work would hide it.
    panic!("futex: {}", std::io::Error::from_raw_os_error(errno))
}

fn errno() -> i32 {
    // SAFETY: always a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Keeps the compiler from moving accesses across; the processor's part is [`heavy_barrier`], called by the other side.
#[inline(always)]
pub fn light_barrier() {
    // Miri has no membarrier.
    if cfg!(miri) {
        fence(Ordering::SeqCst);
    }
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Makes every other thread of the process pass a full memory barrier, so that its [`light_barrier`] is one.
///
/// `membarrier(2)`, private expedited: an interrupt to each CPU that runs a thread of this process, microseconds.
/// `false` where the kernel or a sandbox has none: callers then limit how long they rely on it.
#[must_use]
pub fn heavy_barrier() -> bool {
    if cfg!(miri) {
        fence(Ordering::SeqCst);
        return true;
    }
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    let membarrier = |command: i32| {
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    fence(Ordering::SeqCst);
    // Registration is once per process; a call before it fails with EPERM.
    let done = membarrier(PRIVATE_EXPEDITED)
        || (membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED));
    fence(Ordering::SeqCst);
    done
}

/// Where glibc's registration of restartable sequences lies relative to the thread pointer.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod rseq {
    use super::{AtomicUsize, Ordering};

    /// Offset of `struct rseq` from the thread pointer, or one of the two that no aligned structure can have.
    static OFFSET: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = 1;
    const NONE: usize = 2;

    #[cold]
    fn look() -> usize {
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: a valid C string; the symbols are data of glibc ≥ 2.35 that never go away.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        let found = if offset.is_null() || size.is_null() {
            NONE
        } else {
            // SAFETY: glibc's `const ptrdiff_t` and `const unsigned int`; size is 0 if registration failed.
            unsafe { if *size.cast::<u32>() == 0 { NONE } else { *offset.cast::<usize>() } }
        };
        OFFSET.store(found, Ordering::Relaxed);
        found
    }

    /// The offset of `struct rseq` from the thread pointer.
    #[inline(always)]
    pub(super) fn offset() -> Option<usize> {
        let offset = match OFFSET.load(Ordering::Relaxed) {
            UNKNOWN => look(),
            known => known,
        };
        (offset != NONE).then_some(offset)
    }
}

/// The CPU this thread runs on, which may be another by the time the caller looks at it; `None` if that cannot be
/// told without a system call.
///
/// One load from the thread's `struct rseq`, which the kernel keeps up to date.
#[inline(always)]
pub fn cpu() -> Option<u32> {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let offset = rseq::offset()?;
        let cpu: u32;
        // SAFETY: glibc's registered area of this thread: `cpu_id_start` is its first word, always a possible CPU.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("mov {cpu:e}, dword ptr fs:[{offset}]", cpu = out(reg) cpu, offset = in(reg) offset,
                options(nostack, readonly, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("mrs {at}, tpidr_el0", "ldr {cpu:w}, [{at}, {offset}]", at = out(reg) _,
                cpu = out(reg) cpu, offset = in(reg) offset, options(nostack, readonly, preserves_flags));
        }
        Some(cpu)
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    {
        None
    }
}

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

/// Whether this thread is the only one of the process; false where the C library does not tell (glibc before 2.32).
///
/// May allocate where it does not.
pub fn alone() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: a C string; the symbol is a char of glibc's that is there for good, cleared before a second thread runs.
    unsafe {
        let alone = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()).cast::<u8>();
        !alone.is_null() && *alone != 0
    }
}

/// Lets another thread run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Where there is no membarrier: waits long enough for any processor to have drained its store buffer.
#[cold]
pub fn without_barrier() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Whether sleepers' turn has come: an eighth of the time, a millisecond or less at once.
///
/// Stateless, so that a lock need not remember when it last woke anyone: bits of the processor's time stamp.
pub fn in_window() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads the time-stamp counter.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() } >> 20;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let ticks = Instant::now().0 >> 19;
    ticks & 7 == 0
}

/// The kernel's ID of this thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments; always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether a thread of any process in this PID namespace has not ended. True if that cannot be told.
pub fn thread_lives(id: u32) -> bool {
    // A zombie accepts signals, so kill(2) cannot tell.
    match std::fs::read_to_string(format!("/proc/{id}/stat")) {
        // After the last parenthesis of the name, which may hold anything.
        Ok(stat) => !matches!(
            stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()),
            Some('Z' | 'X' | 'x')
        ),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        // No such thread, or /proc hides it or is not there; a thread of another user's cannot be signalled, but is.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = libc::pid_t::try_from(id).unwrap_or(libc::pid_t::MAX);
            // Miri has no kill, and threads whose IDs /proc does not know.
            // SAFETY: signal 0 is not sent.
            !cfg!(miri) && unsafe { libc::kill(id, 0) == 0 || errno() != libc::ESRCH }
        }
        Err(_) => true,
    }
}

/// The CPU, or where that cannot be told cheaply a number of the thread's own that spreads as well.
#[inline(always)]
pub fn cpu_or_thread() -> u32 {
    match cpu() {
        Some(cpu) => cpu,
        None => thread_number(),
    }
}

fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// The index of the NUMA node that this thread is on, in the order of [`Topology`].
pub fn node() -> usize {
    let cpu = cpu().unwrap_or_else(|| cpu_and_node().0);
    topology().node_of(cpu as usize)
}

/// CPUs, nodes and how near they are to each other.
pub fn topology() -> &'static Topology {
    static TOPOLOGY: std::sync::OnceLock<Topology> = std::sync::OnceLock::new();
    TOPOLOGY.get_or_init(|| Topology::read(std::path::Path::new("/sys/devices/system")))
}

pub use crate::alarm::{Alarm, Helper, Serve, bind, clock, forks, here, once_forked, settle, watch_forks};
pub use crate::topology::Topology;

/// Adds `n` to the counter of the CPU that the thread is on: the one `cpu * stride` bytes after `first`, of `slots`.
/// False, and nothing is added, if the CPU has none.
///
/// One restartable sequence where the process has them, so that no other thread writes the slot at the same time;
/// else an atomic addition. A process uses one or the other throughout.
///
/// # Safety
/// There are `slots` counters at that distance, and only this function writes them.
#[inline(always)]
pub unsafe fn add_here(first: *const AtomicI64, stride: usize, slots: usize, n: i64) -> bool {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    if let Some(rseq) = rseq::offset() {
        let done: u32;
        // SAFETY: the sequence from 3 to 4 has one store, its last instruction, within the slot of a CPU below
        // `slots`. If it is interrupted the kernel goes on at 5, which begins anew; glibc registered that signature.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                ".pushsection __rseq_cs, \"aw\", @progbits",
                ".balign 32",
                "2: .long 0, 0",
                ".quad 3f, 4f - 3f, 5f",
                ".popsection",
                ".pushsection .text.rseq_abort, \"ax\", @progbits",
                // An undefined instruction before the signature, for disassemblers.
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "5: jmp 6f",
                ".popsection",
                "6: lea {at}, [rip + 2b]",
                "mov qword ptr fs:[{rseq} + 8], {at}",
                "xor {done:e}, {done:e}",
                "3: mov {at:e}, dword ptr fs:[{rseq} + 4]",
                "cmp {at}, {slots}",
                "jae 7f",
                "imul {at}, {stride}",
                "add qword ptr [{first} + {at}], {n}",
                "4: mov {done:e}, 1",
                "7:",
                at = out(reg) _,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                n = in(reg) n,
                options(nostack),
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                ".pushsection __rseq_cs, \"aw\", %progbits",
                ".balign 32",
                "2: .long 0, 0",
                ".quad 3f, 4f - 3f, 5f",
                ".popsection",
                ".pushsection .text.rseq_abort, \"ax\", %progbits",
                // The signature is an instruction: brk #0x45e0.
                ".inst 0xd428bc00",
                "5: b 6f",
                ".popsection",
                "mrs {area}, tpidr_el0",
                "add {area}, {area}, {rseq}",
                "6: adrp {at}, 2b",
                "add {at}, {at}, :lo12:2b",
                "str {at}, [{area}, #8]",
                "mov {done:w}, wzr",
                "3: ldr {at:w}, [{area}, #4]",
                "cmp {at}, {slots}",
                "b.hs 7f",
                "madd {at}, {at}, {stride}, {first}",
                "ldr {sum}, [{at}]",
                "add {sum}, {sum}, {n}",
                "str {sum}, [{at}]",
                "4: mov {done:w}, #1",
                "7:",
                at = out(reg) _,
                area = out(reg) _,
                sum = out(reg) _,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                n = in(reg) n,
                options(nostack),
            );
        }
        return done != 0;
    }
    let cpu = cpu_or_thread() as usize % slots;
    // SAFETY: a counter, as the caller promised.
    unsafe { (*first.byte_add(cpu * stride)).fetch_add(n, Ordering::Relaxed) };
    true
}

const REGISTER_RSEQ: i32 = 1 << 8;
const FENCE_RSEQ: i32 = 1 << 7;

/// Whether [`lock_here`] and [`fence_rseq`] work in this process: glibc 2.35, Linux 5.10, x86-64.
pub fn locks_by_rseq() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        rseq::offset().is_some() && fence_rseq()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

/// Restarts every restartable sequence that a thread of this process is in, and is a full memory barrier on each of
/// their CPUs. False where the kernel or a sandbox has no such membarrier(2): nothing may be concluded then.
#[must_use]
pub fn fence_rseq() -> bool {
    let membarrier = |command: i32| {
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    membarrier(FENCE_RSEQ) || (membarrier(REGISTER_RSEQ) && membarrier(FENCE_RSEQ))
}

/// Makes the first of two words 1 if both are 0: those of the CPU that the thread is on, `cpu * stride` bytes after
/// `first`, of `slots`. Returns the CPU. `None`, and nothing changes, if one is not 0 or the CPU has none.
///
/// A restartable sequence, so of threads on one CPU only one gets it, without an atomic operation. An acquire of what
/// was before the word became 0, since x86 does not reorder loads. Another CPU keeps threads out by making the second
/// word 1 and then calling [`fence_rseq`]: who was in the sequence has stored by then, or finds it 1.
///
/// # Safety
/// [`locks_by_rseq`] returned true. There are `slots` pairs at that distance, the first aligned to 4 bytes, and
/// nobody else makes a first word 1.
#[inline(always)]
pub unsafe fn lock_here(first: *const [AtomicU16; 2], stride: usize, slots: usize) -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let rseq = rseq::offset()?;
        let (cpu, done): (usize, u32);
        // SAFETY: as in `add_here`: one store, the last instruction, to a word of a CPU below `slots`.
        unsafe {
            std::arch::asm!(
                ".pushsection __rseq_cs, \"aw\", @progbits",
                ".balign 32",
                "2: .long 0, 0",
                ".quad 3f, 4f - 3f, 5f",
                ".popsection",
                ".pushsection .text.rseq_abort, \"ax\", @progbits",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "5: jmp 6f",
                ".popsection",
                "6: lea {at}, [rip + 2b]",
                "mov qword ptr fs:[{rseq} + 8], {at}",
                "xor {done:e}, {done:e}",
                "3: mov {cpu:e}, dword ptr fs:[{rseq} + 4]",
                "cmp {cpu}, {slots}",
                "jae 7f",
                "mov {at}, {cpu}",
                "imul {at}, {stride}",
                "cmp dword ptr [{first} + {at}], 0",
                "jne 7f",
                "mov word ptr [{first} + {at}], 1",
                "4: mov {done:e}, 1",
                "7:",
                at = out(reg) _,
                cpu = out(reg) cpu,
                done = out(reg) done,
                rseq = in(reg) rseq,
                slots = in(reg) slots,
                stride = in(reg) stride,
                first = in(reg) first,
                options(nostack),
            );
        }
        (done != 0).then_some(cpu)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = (first, stride, slots);
        None
    }
}

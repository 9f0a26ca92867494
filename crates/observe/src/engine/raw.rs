//! The layout of what the BPF programs write; mirrors `src/bpf/engine.h`.

/// Where a CPU is: indices of [`CpuSlot::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Where {
    /// No thread to run.
    Idle,
    /// A thread of the observed program.
    Target,
    /// Another program.
    Other,
    /// `ncpu` itself, its samplers included.
    Own,
    /// The program, on CPU in the slow path of a kernel lock.
    Spin,
    /// An interrupt handler.
    Hardirq,
    /// A softirq handler.
    Softirq,
    /// Answering another CPU's TLB shootdown.
    Tlb,
}

/// Number of [`Where`]s.
pub const WHERE: usize = 8;

impl Where {
    /// All, in the order of [`CpuSlot::at`].
    pub const ALL: [Where; WHERE] = [
        Where::Idle,
        Where::Target,
        Where::Other,
        Where::Own,
        Where::Spin,
        Where::Hardirq,
        Where::Softirq,
        Where::Tlb,
    ];

    /// The word used in tables.
    pub fn word(self) -> &'static str {
        ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"][self as usize]
    }

    pub(crate) fn from_raw(raw: u32) -> Where {
        Self::ALL.get(raw as usize).copied().unwrap_or(Where::Other)
    }
}

/// Why a thread is off CPU (`enum wait`).
pub const WAIT: [&str; 6] = ["", "run queue", "kernel lock", "user lock", "I/O", "asleep"];

/// What idle CPUs are idle for (`enum idle`).
pub const IDLE: [&str; 6] = ["runq", "klock", "ulock", "io", "serial", "asleep"];

/// The microstates of `prstat -m`, in the order of [`ThreadOut::micro`].
pub const MICRO: [&str; 8] = ["USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT"];

pub(crate) const KIND_FUTEX: u32 = 0x8000_0000;
pub(crate) const KIND_OFF: u32 = 0x4000_0000;
pub(crate) const KIND_SLEEP: u32 = 0x2000_0000;
pub(crate) const KIND_USER: u32 = 0x1000_0000;

/// Locks that tell of their waits by static tracepoints (`enum user_lock`).
pub const USER_LOCK: [&str; 5] = ["", "mutex", "queue lock", "rwlock:R", "rwlock:W"];

/// `struct cpu_slot`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct CpuSlot {
    /// ns on the monotonic clock when the state now began; 0 where the CPU was never seen.
    pub last: u64,
    /// ns by [`Where`].
    pub at: [u64; WHERE],
    pub(crate) base: u32,
    pub(crate) depth: u32,
    pub(crate) irq: [u8; 4],
    pub(crate) spinning: [u8; 4],
    pub(crate) waiting: [i32; 8],
    pub(crate) switches: u64,
    pub(crate) tlb_sent: u64,
    pub(crate) tlb_received: u64,
    pub(crate) lock_events: u64,
    pub(crate) off_walk: u64,
    pub(crate) drop_lock: u64,
    pub(crate) drop_nest: u64,
    pub(crate) drop_task: u64,
    pub(crate) drop_ring: u64,
    pub(crate) lost_fault_end: u64,
    pub(crate) irqs: u64,
    pub(crate) softirqs: u64,
    pub(crate) waits: u64,
    pub(crate) ended: u64,
    pub(crate) window: u64,
    pub(crate) window_waits: u32,
    pub(crate) time_mask: u32,
    pub(crate) mean_spin: u64,
    pub(crate) done: [u64; 6],
    pub(crate) spin: [[u64; 4]; 4],
    pub(crate) task: u64,
    pub(crate) unseen: u64,
}

/// `struct lock_slot`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct LockSlot {
    pub(crate) lock: u64,
    pub(crate) stack: u64,
    pub(crate) tgid: u32,
    pub(crate) kind: u32,
    pub(crate) count: u64,
    pub(crate) spin: u64,
    pub(crate) block: u64,
    pub(crate) max: u64,
    pub(crate) holder: u32,
    pub(crate) futex: u32,
    pub(crate) vote: u64,
    pub(crate) wakes: u64,
    pub(crate) timed: u64,
}

/// `struct thread_out`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ThreadOut {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent process.
    pub ppid: u32,
    pub(crate) target: u32,
    /// ns since boot when it started.
    pub start: u64,
    /// ns by [`MICRO`].
    pub micro: [u64; 8],
    /// ns spun in kernel locks (a part of the time on CPU).
    pub spin: u64,
    /// Voluntary context switches.
    pub vcx: u64,
    /// Involuntary context switches.
    pub icx: u64,
    /// System calls.
    pub scl: u64,
    /// Signals delivered.
    pub sig: u64,
    /// Minor faults.
    pub minf: u64,
    /// Major faults.
    pub majf: u64,
    pub(crate) comm: [u8; 16],
    pub(crate) group: [u8; 16],
}

pub(crate) const EV_SAMPLE: u32 = 1;
pub(crate) const EV_EXIT: u32 = 2;
pub(crate) const EV_LOCK_STACK: u32 = 3;
pub(crate) const EV_OFF_CPU: u32 = 4;
pub(crate) const EV_FUTEX: u32 = 5;
pub(crate) const EV_USER_STACK: u32 = 6;
pub(crate) const EV_EXEC: u32 = 7;

/// `struct event_head`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct EventHead {
    pub kind: u32,
    pub cpu: u32,
    pub tgid: u32,
    pub tid: u32,
    pub time: u64,
    pub comm: [u8; 16],
}

/// `struct stack_event` without its frames, which follow it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct StackHead {
    pub head: EventHead,
    pub id: u64,
    pub place: u32,
    pub weight: u32,
    pub kernel_bytes: i32,
    pub user_bytes: i32,
}

/// Types that may be read from any bytes of their size.
///
/// # Safety
/// Every bit pattern must be a value and there must be no references inside.
pub(crate) unsafe trait Plain: Copy + Default {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for CpuSlot {}
// SAFETY: integers only.
unsafe impl Plain for LockSlot {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for ThreadOut {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for EventHead {}
// SAFETY: integers and a `Plain` struct only.
unsafe impl Plain for StackHead {}

/// The value at the start of `bytes`; `None` where they are too short.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: length checked, `T` is `Plain`, the read is unaligned.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A task's name up to its NUL.
pub(crate) fn comm(raw: &[u8; 16]) -> String {
    let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
    String::from_utf8_lossy(&raw[..end]).into_owned()
}

impl CpuSlot {
    /// Where the CPU is now; the mirror of `at()` in engine.bpf.c.
    pub(crate) fn now_at(&self) -> Where {
        let depth = self.depth as usize;
        if depth == 0 || depth > 3 {
            let base = Where::from_raw(self.base);
            let waits = self.waits > 0 || self.spinning[0] > 0;
            return if waits && base == Where::Target { Where::Spin } else { base };
        }
        if self.spinning[depth] > 0 { Where::Spin } else { Where::from_raw(self.irq[depth - 1].into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_header() {
        assert_eq!(size_of::<CpuSlot>(), 512);
        assert_eq!(size_of::<LockSlot>(), 88);
        assert_eq!(size_of::<ThreadOut>(), 16 + 8 + 64 + 7 * 8 + 32);
        assert_eq!(size_of::<StackHead>(), 64);
    }

    #[test]
    fn short_events_are_refused() {
        assert!(read::<StackHead>(&[0; 63]).is_none());
        assert!(read::<StackHead>(&[0; 64]).is_some());
    }

    #[test]
    fn names_may_hold_anything() {
        assert_eq!(comm(b"make\0garbage_abc"), "make");
        assert_eq!(comm(&[0xff; 16]).chars().count(), 16);
    }
}

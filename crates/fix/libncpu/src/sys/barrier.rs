//! Asymmetric barriers, whose cost one side pays: `membarrier(2)`.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

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
/// `membarrier(2)`, private expedited: an interrupt to each CPU that runs a thread of this process,
/// microseconds. `false` if the kernel or a sandbox does not support it: callers then limit how long they
/// rely on it.
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

/// For kernels without membarrier: waits long enough for any processor to have drained its store buffer.
#[cold]
pub fn without_barrier() {
    std::thread::sleep(Duration::from_millis(1));
}

const REGISTER_RSEQ: i32 = 1 << 8;

const FENCE_RSEQ: i32 = 1 << 7;

/// Restarts every restartable sequence that a thread of this process is in, and is a full memory barrier on
/// each of their CPUs. False if the kernel or a sandbox does not support this membarrier(2): then it
/// guarantees nothing.
#[must_use]
pub fn fence_rseq() -> bool {
    let membarrier = |command: i32| {
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    membarrier(FENCE_RSEQ) || (membarrier(REGISTER_RSEQ) && membarrier(FENCE_RSEQ))
}

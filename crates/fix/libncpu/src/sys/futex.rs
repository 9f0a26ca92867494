//! Words that threads sleep on.

use super::clock::Instant;
use super::thread::errno;
use std::sync::atomic::AtomicU32;

/// Why a [`Futex::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A wake-up that the waker counted (or, rarely, one meant for another use of the address).
    Woken,
    /// The word had another value, or a signal interrupted the wait.
    Changed,
    /// The deadline passed.
    TimedOut,
}

/// Every sleeper of a futex.
pub const ALL: u32 = u32::MAX;

/// The address of a futex, which may be freed: a pointer and not a number, since Miri finds futexes by
/// provenance.
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

    /// Wakes up to `count` sleepers whose bits overlap `bits`; returns the number of woken sleepers.
    pub fn wake(&self, count: u32, bits: u32, shared: bool) -> usize {
        wake_at(self.address(), count, bits, shared)
    }

    /// The address that [`wake_at`] takes.
    pub fn address(&self) -> Address {
        Address(self.0.as_ptr())
    }
}

/// Wakes sleepers at an address. Its memory may already be freed: the kernel only compares addresses.
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
    // EFAULT of a shared futex whose mapping no longer exists: no thread sleeps there.
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
    // EFAULT, EINVAL, ENOSYS: the lock's memory was unmapped, or the kernel has no futexes. To spin on in a
    // lock that cannot work would hide it.
    panic!("futex: {}", std::io::Error::from_raw_os_error(errno))
}

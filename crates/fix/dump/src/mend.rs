//! Reassembles huge pages that a snapshot split (MADV_COLLAPSE, Linux 6.1).
//!
//! A process that writes to a huge page which it shares with its copy gets a private small page, and the huge
//! one is split. Write protection releases huge pages as a whole and rarely splits any. The kernel's own
//! daemon would take hours for some gigabytes. This never changes the contents of memory; if we end, some
//! pages stay small.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::pagemap::{PageMap, Ranges, Which, within};
use crate::sys::{pidfd_open, set_nice};

const HUGE: u64 = 2 << 20;
/// The end of the addresses that programs may map.
const TOP: u64 = (1 << 47) - 4096;
const MADV_COLLAPSE: i32 = 25;

/// The anonymous huge pages of a process at one moment.
pub(crate) struct Huge(Ranges);

impl Huge {
    /// Finds the huge pages. Empty if the kernel does not report them (before Linux 6.7).
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn find(pages: &PageMap) -> Result<Self, Error> {
        let mut ranges = Ranges::new();
        pages.find(0, TOP, Which::HugeOwn, &mut ranges)?;
        Ok(Self(ranges))
    }

    /// Reassembles pages that were split since, and returns a note if there were any. Takes some milliseconds
    /// for each page, during which a thread that touches it waits. So it runs at low priority, and after
    /// everything else.
    pub(crate) fn mend(&self, pid: i32, pages: &PageMap, stop: &AtomicBool) -> Option<String> {
        let now = Self::find(pages).ok()?;
        let whole = self.0.iter().flat_map(|&(start, end)| (start..end).step_by(HUGE as usize));
        let split: Vec<u64> = whole.filter(|&at| within(&now.0, at, at + HUGE).next().is_none()).collect();
        // Pages that the process itself has unmapped meanwhile do not count as split.
        let split: Vec<u64> = split
            .into_iter()
            .filter(|&at| {
                let mut present = Ranges::new();
                pages.find(at, at + HUGE, Which::Own, &mut present).is_ok() && present == [(at, at + HUGE)]
            })
            .collect();
        if split.is_empty() {
            return None;
        }
        let pidfd = pidfd_open(pid).ok()?;
        let (mut mended, mut refused) = (0u64, None);
        // This thread has no other work from here on.
        set_nice(10);
        for &at in split.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
            match collapse(&pidfd, at) {
                Ok(()) => mended += HUGE,
                Err(e) => {
                    let over = matches!(e.raw_os_error(), Some(libc::EPERM | libc::ESRCH | libc::ENOSYS));
                    refused = Some(e);
                    if over {
                        break;
                    }
                }
            }
        }
        let mb = |bytes: u64| bytes / 1_000_000;
        let why = refused.map(|e| format!(" ({e})")).unwrap_or_default();
        Some(format!(
            "{} MB of huge pages were split, {} MB of them reassembled{why}",
            mb(split.len() as u64 * HUGE),
            mb(mended)
        ))
    }
}

fn collapse(pidfd: &OwnedFd, at: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: at as *mut _, iov_len: HUGE as usize };
    // SAFETY: one vector; the address is a number of the other process.
    let result = unsafe {
        libc::syscall(libc::SYS_process_madvise, pidfd.as_raw_fd(), &raw const range, 1, MADV_COLLAPSE, 0)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

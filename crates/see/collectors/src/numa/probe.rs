//! On which node pages lie, asked of the kernel without moving them: `move_pages` with no target
//! nodes. Of another process's address space, or of a shared segment that is mapped here for it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// A segment of more pages than this (128 MiB of small ones) is sampled: half as many pages, in pairs of
/// neighbours, give a share within 0.8 % (1.96 × sqrt(1/4 / 16384)).
pub const MOST: u64 = 32_768;

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// The node of each address's page in a process; `None` where no page is present.
///
/// # Errors
/// The process is another user's or has ended.
pub fn nodes_of(pid: u32, addresses: &[u64]) -> std::io::Result<Vec<Option<u32>>> {
    let mut status = vec![-1i32; addresses.len()];
    for (addresses, status) in addresses.chunks(1024).zip(status.chunks_mut(1024)) {
        // SAFETY: both arrays hold `len` items; without target nodes nothing is moved, and the
        // addresses are only looked up in the process's page tables.
        let r = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid as libc::pid_t,
                addresses.len() as libc::c_ulong,
                addresses.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0 as libc::c_int,
            )
        };
        if r < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(status.into_iter().map(|s| u32::try_from(s).ok()).collect())
}

/// Pages found in a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Resident pages seen by node, ascending.
    pub pages: Vec<(u32, u64)>,
    /// Whether every page was looked at.
    pub whole: bool,
    /// Of neighbouring resident pages, the share on one node.
    pub neighbours: Option<f64>,
}

/// A shared mapping of a segment, for reading.
struct Window {
    base: *mut libc::c_void,
    bytes: usize,
    sysv: bool,
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by `file` or `sysv` below and never handed out.
        unsafe {
            if self.sysv {
                libc::shmdt(self.base);
            } else {
                libc::munmap(self.base, self.bytes);
            }
        }
    }
}

/// Looks at a file of tmpfs, a memfd, shared anonymous memory. Not at hugetlbfs: there a look at a
/// hole would take a huge page.
///
/// # Errors
/// It cannot be mapped.
pub fn file(file: &File, bytes: u64) -> std::io::Result<Found> {
    let length = usize::try_from(bytes).map_err(std::io::Error::other)?;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    look(&Window { base, bytes: length, sysv: false })
}

/// Looks at a SysV segment; it counts as attached meanwhile.
///
/// # Errors
/// It cannot be attached.
pub fn sysv(id: u64, bytes: u64) -> std::io::Result<Found> {
    let id = libc::c_int::try_from(id).map_err(std::io::Error::other)?;
    // SAFETY: attached read-only at an address of the kernel's choice.
    let base = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
    if base as isize == -1 {
        return Err(std::io::Error::last_os_error());
    }
    look(&Window { base, bytes: usize::try_from(bytes).unwrap_or(0), sysv: true })
}

fn look(window: &Window) -> std::io::Result<Found> {
    let page = page();
    let pages = window.bytes as u64 / page;
    let whole = pages <= MOST;
    // Pairs of neighbours, so that it is known whether they lie together.
    let places: Vec<u64> = if whole {
        (0..pages).collect()
    } else {
        let pairs = MOST / 4;
        (0..pairs)
            .flat_map(|i| {
                let at = (u128::from(i) * u128::from(pages - 2) / u128::from(pairs)) as u64;
                [at, at + 1]
            })
            .collect()
    };
    let base = window.base as u64;
    let mut resident = Vec::with_capacity(places.len());
    let mut at = 0;
    while at < places.len() {
        // One call for a run of pages.
        let run = places[at..].iter().zip(places[at]..).take_while(|(p, want)| **p == *want).count();
        let mut present = vec![0u8; run];
        // SAFETY: the range lies in the window, the vector has a byte a page.
        let r = unsafe {
            libc::mincore(
                (base + places[at] * page) as *mut libc::c_void,
                run * page as usize,
                present.as_mut_ptr(),
            )
        };
        if r != 0 {
            return Err(std::io::Error::last_os_error());
        }
        resident.extend((0..run).filter(|&i| present[i] & 1 == 1).map(|i| base + places[at + i] * page));
        at += run;
    }
    touch(&resident);
    let nodes = nodes_of(0, &resident)?;
    let mut sums: std::collections::BTreeMap<u32, u64> = Default::default();
    nodes.iter().flatten().for_each(|n| *sums.entry(*n).or_default() += 1);
    let pairs = || {
        let both = resident.windows(2).zip(nodes.windows(2));
        both.filter(|(a, n)| a[1] - a[0] == page && n[0].is_some() && n[1].is_some())
    };
    let neighbours = (pairs().count() > 0)
        .then(|| pairs().filter(|(_, n)| n[0] == n[1]).count() as f64 / pairs().count() as f64);
    Ok(Found { pages: sums.into_iter().collect(), whole, neighbours })
}

/// Makes resident pages known to our page table, which is where `move_pages` looks. Read by a system
/// call, not by a load: a file cut short meanwhile gives an error and no SIGBUS.
fn touch(addresses: &[u64]) {
    let mut sink = vec![0u8; 512];
    for chunk in addresses.chunks(512) {
        let mut at = 0;
        while at < chunk.len() {
            let part = &chunk[at..];
            let remote: Vec<libc::iovec> =
                part.iter().map(|&a| libc::iovec { iov_base: a as *mut libc::c_void, iov_len: 1 }).collect();
            let local = libc::iovec { iov_base: sink.as_mut_ptr().cast(), iov_len: part.len() };
            // SAFETY: at most `part.len()` bytes are written to `sink`; the other side is only read,
            // and an address that is gone ends the call.
            let n = unsafe {
                libc::process_vm_readv(
                    std::process::id() as libc::pid_t,
                    &raw const local,
                    1,
                    remote.as_ptr(),
                    remote.len() as libc::c_ulong,
                    0,
                )
            };
            // The one it stopped at is left out.
            at += usize::try_from(n).unwrap_or(0) + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn own_pages_have_a_node() {
        let page = vec![1u8; 3 * PAGE as usize];
        let at = (page.as_ptr() as u64).next_multiple_of(PAGE);
        match nodes_of(0, &[at, 8]) {
            Ok(nodes) => assert!(nodes[0].is_some() && nodes[1].is_none(), "{nodes:?}"),
            Err(e) => println!("skipped: move_pages: {e}"),
        }
    }

    #[test]
    fn of_a_sparse_file_only_what_is_there_is_counted_and_nothing_is_made() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        // SAFETY: a new descriptor.
        let fd = unsafe { libc::memfd_create(c"ncpu-test".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: just made, owned by nobody else.
        let memfd = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        let bytes = 600 * PAGE;
        memfd.set_len(bytes).unwrap();
        for page in [0, 7, 8, 500] {
            memfd.write_at(b"x", page * PAGE).unwrap();
        }
        let blocks = memfd.metadata().unwrap().blocks();
        let found = match file(&memfd, bytes) {
            Ok(found) => found,
            Err(e) => return println!("skipped: {e}"),
        };
        assert_eq!(found.pages.iter().map(|p| p.1).sum::<u64>(), blocks / 8, "{found:?}");
        assert!(found.whole);
        assert_eq!(memfd.metadata().unwrap().blocks(), blocks);
    }
}

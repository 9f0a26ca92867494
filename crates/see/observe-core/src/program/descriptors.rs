//! Descriptors of processes that are forked and go on without an exec.

use std::os::fd::RawFd;

/// Descriptors that a process may keep, at most.
const MOST: usize = 8;

/// Closes all descriptors but these, of which there are 8 at most: a process that keeps the end of a pipe keeps those alive who
/// wait for its end. Allocates nothing, so that it may be called after fork(2). Before Linux 5.9 all stay open.
///
/// # Panics
/// There are more than 8.
pub fn keep_only(kept: &[RawFd]) {
    let mut sorted = [RawFd::MAX; MOST];
    sorted[..kept.len()].copy_from_slice(kept);
    sorted.sort_unstable();
    let mut next = 0;
    for fd in &sorted[..kept.len()] {
        close_range(next, i64::from(*fd) - 1);
        next = i64::from(*fd) + 1;
    }
    close_range(next, i64::from(u32::MAX));
}

fn close_range(first: i64, last: i64) {
    if first <= last {
        // SAFETY: plain numbers; the caller has given up what they name.
        unsafe { libc::syscall(libc::SYS_close_range, first as u32, last as u32, 0) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_forked_process_keeps_these_alone() {
        let files: Vec<std::fs::File> = (0..5).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        // SAFETY: the child calls only async-signal-safe functions until it exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            keep_only(&[fds[3], fds[1]]);
            // SAFETY: asks about numbers.
            let open = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
            let right = fds.iter().enumerate().all(|(at, fd)| open(*fd) == (at == 1 || at == 3)) && !open(0);
            // SAFETY: runs no destructors.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 0);
    }
}

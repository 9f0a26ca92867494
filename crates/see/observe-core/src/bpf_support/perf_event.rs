//! The only place that calls `perf_event_open`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};

/// Opens an event of thread `pid` (-1: all threads; with `PERF_FLAG_PID_CGROUP`, a cgroup's descriptor) on
/// `cpu` (-1: any), in the group of the leader `group`.
///
/// # Errors
/// The error from the kernel; perf_event_open(2) has the list.
pub fn open(
    attr: &perf_event_attr,
    pid: i32,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    attr.size = size_of::<perf_event_attr>() as u32;
    let group = group.map_or(-1, |g| g.as_raw_fd());
    // SAFETY: the attributes are a live local with the size that they state.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(
            &raw mut attr,
            pid,
            cpu,
            group,
            (flags | PERF_FLAG_FD_CLOEXEC).into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises the limit of open files so that `more` files can be opened in addition to the open ones.
///
/// # Errors
/// The hard limit is lower and cannot be raised; returns that limit and the needed number.
pub fn allow_files(more: usize) -> Result<(), (u64, u64)> {
    // Far fewer files than this are already open.
    let need = more as u64 + 256;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 || limit.rlim_cur >= need {
        return Ok(());
    }
    let hard = limit.rlim_max;
    limit.rlim_cur = need;
    limit.rlim_max = hard.max(need);
    // SAFETY: as above. Raising the hard limit needs CAP_SYS_RESOURCE and is limited by fs.nr_open.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err((hard, need)),
    }
}

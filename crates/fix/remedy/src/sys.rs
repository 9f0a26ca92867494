//! Safe wrappers of kernel calls that rustix has not.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use ncpu_machine::CpuSet;
use ncpu_machine::process::{self, Stat};

/// The system's error where a call gave -1.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A set as the kernel takes it: a bit for each, in words.
pub(crate) fn words(set: &CpuSet) -> Vec<u64> {
    let mut words = vec![0u64; set.last().map_or(1, |last| last as usize / 64 + 1)];
    for bit in set.iter() {
        words[bit as usize / 64] |= 1 << (bit % 64);
    }
    words
}

/// The CPUs a thread may use; thread 0 is the calling one.
///
/// # Errors
/// It is gone.
pub fn affinity(tid: u32) -> io::Result<CpuSet> {
    // 65,536 CPUs: more than the kernel can be built for.
    let mut mask = vec![0u64; 1024];
    // SAFETY: the kernel writes at most the given number of bytes.
    let bytes =
        check(unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, mask.len() * 8, mask.as_mut_ptr()) })?;
    let words = mask.iter().take(bytes as usize / 8).enumerate();
    Ok(words
        .flat_map(|(i, w)| (0..64).filter(move |b| w >> b & 1 == 1).map(move |b| i as u32 * 64 + b))
        .collect())
}

/// Lets a thread use these CPUs only; thread 0 is the calling one.
///
/// # Errors
/// It is gone, not ours, or has none of these CPUs.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mask = words(cpus);
    // SAFETY: the mask has the given length. Beyond CPU 1023 libc's cpu_set_t is too short.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, mask.len() * 8, mask.as_ptr()) })?;
    Ok(())
}

/// The numbers of all processes.
pub fn processes() -> Vec<u32> {
    numbers("/proc")
}

/// The threads of a process; empty when it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

fn numbers(dir: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Pages of a file in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// In the cache.
    pub pages: u64,
    /// Of these changed and not yet written.
    pub dirty: u64,
}

/// The page cache of a whole file (Linux 6.5).
///
/// # Errors
/// The kernel has no `cachestat`, or the file has no page cache.
pub fn cachestat(file: impl AsFd) -> io::Result<Cached> {
    const CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        offset: u64,
        length: u64,
    }
    // cache, dirty, writeback, evicted, recently evicted
    let mut out = [0u64; 5];
    let whole = Range { offset: 0, length: 0 };
    // SAFETY: the structures are those of linux/mman.h.
    check(unsafe {
        libc::syscall(CACHESTAT, file.as_fd().as_raw_fd(), &raw const whole, out.as_mut_ptr(), 0)
    })?;
    Ok(Cached { pages: out[0], dirty: out[1] })
}

/// A descriptor of a process, which becomes readable when it ends.
///
/// # Errors
/// The process does not exist.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: it is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Where pages of a process lie: a node, or the negative error of a page that has none (`-ENOENT`: not there yet).
///
/// # Errors
/// The process is gone, or not ours to look at.
pub fn page_nodes(pid: u32, pages: &[u64]) -> io::Result<Vec<i32>> {
    call_move_pages(pid, pages, None, 0)
}

/// Moves pages of a process to nodes; where each lies then, as [`page_nodes`] tells it. Pages that other processes have
/// mapped too stay, except with `all`, for which it takes CAP_SYS_NICE.
///
/// # Errors
/// The process is gone, or not ours.
pub fn move_pages(pid: u32, pages: &[u64], nodes: &[i32], all: bool) -> io::Result<Vec<i32>> {
    const MOVE: libc::c_int = 2;
    const MOVE_ALL: libc::c_int = 4;
    call_move_pages(pid, pages, Some(nodes), if all { MOVE_ALL } else { MOVE })
}

/// `move_pages(2)`; without nodes nothing is moved.
fn call_move_pages(
    pid: u32,
    pages: &[u64],
    nodes: Option<&[i32]>,
    flags: libc::c_int,
) -> io::Result<Vec<i32>> {
    if let Some(nodes) = nodes {
        assert_eq!(pages.len(), nodes.len());
    }
    let mut status = vec![-libc::ENOENT; pages.len()];
    // SAFETY: all lists have the given number of entries.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            flags,
        )
    })?;
    Ok(status)
}

/// A process and all its descendants.
pub fn tree_of(root: u32) -> Vec<u32> {
    let mut out = vec![root];
    let mut at = 0;
    while at < out.len() {
        for tid in threads(out[at]) {
            let file = format!("/proc/{}/task/{tid}/children", out[at]);
            let text = std::fs::read_to_string(file).unwrap_or_default();
            for child in text.split_ascii_whitespace().filter_map(|w| w.parse().ok()) {
                if !out.contains(&child) {
                    out.push(child);
                }
            }
        }
        at += 1;
    }
    out
}

/// The threads of a process and all its descendants.
pub fn threads_of_tree(root: u32) -> Vec<u32> {
    tree_of(root).into_iter().flat_map(threads).collect()
}

/// The threads of a process, of its descendants, and of their orphans: processes that began after it, in its session or
/// control group, and whose parent is in neither.
pub fn threads_of_family(root: u32) -> Vec<u32> {
    let mut family = tree_of(root);
    let proc = Path::new("/proc");
    let stat = |pid: u32| {
        let text = process::read(&proc.join(pid.to_string()).join("stat")).ok()?;
        let stat = Stat::parse(&text)?;
        Some((stat.start()?, stat.session()?, stat.parent()?))
    };
    let group = |pid: u32| process::read(&proc.join(pid.to_string()).join("cgroup")).ok();
    if let Some((began, session, _)) = stat(root) {
        // A machine without control groups has all processes in one.
        let common = group(root).filter(|of| group(1).is_none_or(|first| first != *of));
        let with_it = |pid: u32, theirs: i32| theirs == session || common.is_some() && group(pid) == common;
        let is_orphan = |pid: &u32| {
            let Some((start, theirs, parent)) = stat(*pid) else { return false };
            start >= began
                && with_it(*pid, theirs)
                && stat(parent).is_some_and(|(_, of_parent, _)| !with_it(parent, of_parent))
        };
        let all = process::pids(proc).unwrap_or_default().into_iter();
        let orphans: Vec<u32> = all.filter(|pid| !family.contains(pid) && is_orphan(pid)).collect();
        for orphan in orphans {
            family.extend(tree_of(orphan));
        }
    }
    family.into_iter().flat_map(threads).collect()
}

/// The stack pointer of a thread that may be running: it is stopped for some microseconds. If this process is killed
/// meanwhile, the kernel lets the thread go on.
///
/// # Errors
/// The thread is gone, not ours, or has a tracer already.
pub fn stack_pointer(tid: u32) -> io::Result<u64> {
    let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: the requests write nothing of ours but `registers`, with the size in the request.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, tid, 0usize, 0usize))?;
        let mut signal = 0;
        let registers = stopped(tid, &mut signal);
        // Refused only while it runs, because it could not be stopped: then it goes free when we end.
        libc::ptrace(libc::PTRACE_DETACH, tid, 0usize, signal as usize);
        let registers = registers?;
        #[cfg(target_arch = "x86_64")]
        return Ok(registers.rsp);
        #[cfg(target_arch = "aarch64")]
        return Ok(registers.sp);
    }
}

/// Stops a thread that we trace, and reads its registers. A signal that it was stopped by instead goes to `signal`; it is
/// to have it when it goes on.
///
/// # Safety
/// None beyond that the thread is our tracee; the kernel refuses any other.
unsafe fn stopped(tid: i32, signal: &mut i32) -> io::Result<libc::user_regs_struct> {
    const NT_PRSTATUS: usize = 1;
    // PTRACE_EVENT_STOP of <linux/ptrace.h>.
    const EVENT_STOP: libc::c_int = 128;
    // SAFETY: `status` and `registers` are ours, and the vector has the length of the latter.
    unsafe {
        check(libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0usize, 0usize))?;
        let mut status = 0;
        check(libc::c_long::from(libc::waitpid(tid, &raw mut status, libc::__WALL)))?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if status >> 16 != EVENT_STOP {
            *signal = libc::WSTOPSIG(status);
        }
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let mut vector = libc::iovec {
            iov_base: (&raw mut registers).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        check(libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &raw mut vector))?;
        Ok(registers)
    }
}

/// Puts the small pages of a range of a process together to huge ones.
///
/// # Errors
/// As of `process_madvise(2)` with `MADV_COLLAPSE`.
pub fn collapse(process: impl AsFd, start: u64, length: u64) -> io::Result<()> {
    const COLLAPSE: libc::c_int = 25;
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: length as usize };
    // SAFETY: the range is of another address space; here it is a number.
    check(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_fd().as_raw_fd(),
            &raw const range,
            1,
            COLLAPSE,
            0,
        )
    })?;
    Ok(())
}

//! perf events that run BPF programs: timers and software events.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut};

/// `struct perf_event_attr` up to PERF_ATTR_SIZE_VER5 (include/uapi/linux/perf_event.h).
#[derive(Default)]
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    period_or_freq: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    rest: [u64; 8],
}

const TYPE_SOFTWARE: u32 = 1;
const SW_CPU_CLOCK: u64 = 0;
/// Minor faults (`PERF_COUNT_SW_PAGE_FAULTS_MIN`).
pub(crate) const SW_FAULTS_MIN: u64 = 5;
/// Major faults (`PERF_COUNT_SW_PAGE_FAULTS_MAJ`).
pub(crate) const SW_FAULTS_MAJ: u64 = 6;
const FLAG_FREQ: u64 = 1 << 10;

fn open(cpu: usize, config: u64, period_or_freq: u64, flags: u64) -> std::io::Result<OwnedFd> {
    let attr = Attr {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config,
        period_or_freq,
        flags,
        ..Attr::default()
    };
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    // SAFETY: `attr` outlives the call and says its own size; all threads (-1) on one CPU.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1 as libc::pid_t,
            cpu as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        let e = std::io::Error::last_os_error();
        return Err(std::io::Error::new(e.kind(), format!("perf_event_open on CPU {cpu}: {e}")));
    }
    // SAFETY: a fresh descriptor nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A timer on one CPU.
pub(crate) fn cpu_clock(cpu: usize, hz: u32) -> std::io::Result<OwnedFd> {
    open(cpu, SW_CPU_CLOCK, hz.into(), FLAG_FREQ)
}

/// Every occurrence of a software event on one CPU.
pub(crate) fn software(cpu: usize, event: u64) -> std::io::Result<OwnedFd> {
    open(cpu, event, 1, 0)
}

/// Runs a program on an event; the link owns the descriptor from here on.
pub(crate) fn attach(program: &ProgramMut<'_>, fd: OwnedFd) -> std::io::Result<Link> {
    let link = program.attach_perf_event(fd.as_raw_fd()).map_err(std::io::Error::other)?;
    // libbpf closes the descriptor with the link.
    std::mem::forget(fd);
    Ok(link)
}

/// The CPUs that are online now.
pub(crate) fn online_cpus() -> Vec<usize> {
    ncpu_machine::online_cpus(std::path::Path::new("/"))
        .map_or_else(|_| Vec::new(), |set| set.iter().map(|c| c as usize).collect())
}

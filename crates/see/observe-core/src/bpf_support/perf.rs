//! perf events that run BPF programs: timers and software events.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libbpf_rs::{Link, ProgramMut};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_PAGE_FAULTS_MAJ,
    PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_TYPE_SOFTWARE, perf_event_attr,
};

/// Page faults, counted when they begin.
pub const SW_FAULTS: u64 = PERF_COUNT_SW_PAGE_FAULTS as u64;
/// Minor faults.
pub const SW_FAULTS_MIN: u64 = PERF_COUNT_SW_PAGE_FAULTS_MIN as u64;
/// Major faults.
pub const SW_FAULTS_MAJ: u64 = PERF_COUNT_SW_PAGE_FAULTS_MAJ as u64;

fn attr(config: u64, period_or_freq: u64, freq: bool) -> perf_event_attr {
    let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config, ..perf_event_attr::default() };
    attr.sample_period = period_or_freq;
    attr.set_freq(freq.into());
    attr
}

fn open(cpu: usize, config: u64, period_or_freq: u64, freq: bool) -> std::io::Result<OwnedFd> {
    let attr = attr(config, period_or_freq, freq);
    super::perf_event::open(&attr, -1, cpu as i32, None, 0)
        .map_err(|e| std::io::Error::new(e.kind(), format!("perf_event_open on CPU {cpu}: {e}")))
}

/// A timer on one CPU.
pub fn cpu_clock(cpu: usize, hz: u32) -> std::io::Result<OwnedFd> {
    open(cpu, PERF_COUNT_SW_CPU_CLOCK.into(), hz.into(), true)
}

/// A timer of one process, which counts while the process runs.
pub fn cpu_clock_of(pid: u32, hz: u32) -> std::io::Result<OwnedFd> {
    let period_ns = 1_000_000_000 / u64::from(hz.max(1));
    super::perf_event::open(&attr(PERF_COUNT_SW_CPU_CLOCK.into(), period_ns, false), pid as i32, -1, None, 0)
}

/// A timer that runs a program until it is dropped.
pub struct Timer {
    /// Owns the descriptor.
    link: Link,
    fd: RawFd,
}

impl Timer {
    /// Starts a timer on one CPU.
    pub fn start(program: &ProgramMut<'_>, cpu: usize, hz: u32) -> std::io::Result<Timer> {
        let fd = cpu_clock(cpu, hz)?;
        let raw = fd.as_raw_fd();
        Ok(Timer { link: attach(program, fd)?, fd: raw })
    }

    /// Sets the timer's period in ns.
    pub fn set_period(&self, ns: u64) -> std::io::Result<()> {
        let _owner = &self.link;
        // The kernel reads the period from this address, regardless of the declared type of the argument.
        let at = (&raw const ns).expose_provenance() as u64;
        // SAFETY: the link keeps the descriptor open, and the period is a live local.
        match unsafe { perf_event_open_sys::ioctls::PERIOD(self.fd, at) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Counts every occurrence of a software event on one CPU.
pub fn software(cpu: usize, event: u64) -> std::io::Result<OwnedFd> {
    open(cpu, event, 1, false)
}

/// Runs a program on an event. The link owns the descriptor from here on.
pub fn attach(program: &ProgramMut<'_>, fd: OwnedFd) -> std::io::Result<Link> {
    let link = program.attach_perf_event(fd.as_raw_fd()).map_err(std::io::Error::other)?;
    // libbpf closes the descriptor with the link.
    std::mem::forget(fd);
    Ok(link)
}

/// The CPUs that are online.
pub fn online_cpus() -> Vec<usize> {
    ncpu_machine::online_cpus(std::path::Path::new("/"))
        .map_or_else(|_| Vec::new(), |set| set.iter().map(|c| c as usize).collect())
}

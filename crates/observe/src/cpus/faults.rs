//! Page faults by CPU from the kernel's software events, where its own counters cannot be reached.
//!
//! Dearer than those: a read of another CPU's event interrupts that CPU.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

/// `struct perf_event_attr`, as far as the first version goes.
#[repr(C)]
#[derive(Default)]
struct Attr {
    ty: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const PAGE_FAULTS_MIN: u64 = 5;
const PAGE_FAULTS_MAJ: u64 = 6;
const FORMAT_GROUP: u64 = 1 << 3;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Two counting events for each CPU, read together.
pub(super) struct Faults {
    cpus: Vec<Option<(File, File)>>,
}

impl Faults {
    /// No events yet: [`Faults::open`] opens those of a CPU.
    pub fn new() -> Faults {
        // Two files a CPU are soon more than the usual 1024.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls are given a valid rlimit.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
        }
        Faults { cpus: Vec::new() }
    }

    /// Opens the events of a CPU, afresh if they were open: events do not outlive their CPU's
    /// going offline. One that has gone by now has none.
    pub fn open(&mut self, cpu: u32) -> std::io::Result<()> {
        let at = cpu as usize;
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, || None);
        }
        self.cpus[at] = None;
        let minor = match event(cpu, PAGE_FAULTS_MIN, -1) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            minor => minor?,
        };
        let major = event(cpu, PAGE_FAULTS_MAJ, minor.as_raw_fd())?;
        self.cpus[at] = Some((minor, major));
        Ok(())
    }

    /// Minor and major faults on a CPU since its events were opened.
    pub fn read(&self, cpu: u32) -> Option<[u64; 2]> {
        let (group, _) = self.cpus.get(cpu as usize)?.as_ref()?;
        let mut words = [0; 24];
        let mut group: &File = group;
        (group.read(&mut words).ok()? == words.len()).then_some(())?;
        let word = |i: usize| u64::from_ne_bytes(std::array::from_fn(|b| words[8 * i + b]));
        Some([word(1), word(2)])
    }
}

fn event(cpu: u32, config: u64, group: i32) -> std::io::Result<File> {
    let attr = Attr {
        ty: TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config,
        read_format: FORMAT_GROUP,
        ..Attr::default()
    };
    // SAFETY: the attributes are of the size they say, and outlive the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, -1, cpu as i32, group, FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

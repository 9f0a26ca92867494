//! Page faults by CPU from the kernel's software events, where its own counters cannot be reached.
//!
//! Dearer than those: a read of another CPU's event interrupts that CPU.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_FORMAT_GROUP, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};

/// Two counting events for each CPU, read together.
pub(super) struct Faults {
    cpus: Vec<Option<(File, File)>>,
}

impl Faults {
    /// No events yet: [`Faults::open`] opens those of a CPU.
    pub fn new() -> Faults {
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
        // Two files a CPU are soon more than the usual 1024; opening tells where that may not be.
        let _ = crate::perf_event::allow_files(2 * self.cpus.len());
        let minor = match event(cpu, PERF_COUNT_SW_PAGE_FAULTS_MIN, None) {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            minor => minor?,
        };
        let major = event(cpu, PERF_COUNT_SW_PAGE_FAULTS_MAJ, Some(&minor))?;
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

fn event(cpu: u32, config: u32, group: Option<&File>) -> std::io::Result<File> {
    let attr = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        config: config.into(),
        read_format: PERF_FORMAT_GROUP.into(),
        ..perf_event_attr::default()
    };
    crate::perf_event::open(&attr, -1, cpu as i32, group.map(AsFd::as_fd), 0).map(File::from)
}

//! System calls of the collector, behind a trait, so that tests can put another kernel in their place: the
//! machines the tests run on have no hardware counters.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use ncpu_machine::events::{Config, Exclude};
use perf_event_open_sys::bindings::{
    PERF_FLAG_PID_CGROUP, PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
    perf_event_attr,
};

/// An event to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `config` to `config3`.
    pub config: Config,
    /// Modes not counted.
    pub exclude: Exclude,
    /// Whose.
    pub who: Who,
    /// On which CPU; on any, for a thread.
    pub cpu: Option<u32>,
    /// Which of the threads it starts count with it.
    pub inherit: Inherit,
    /// Count from the thread's `exec` on.
    pub from_exec: bool,
    /// One read gives the counts of the whole group.
    pub together: bool,
}

/// The threads whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody's.
    All,
    /// A thread's.
    Thread(i32),
    /// Those of a cgroup, by a descriptor of its directory.
    Cgroup(RawFd),
}

/// Which threads and processes that a thread starts count too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// Does not count.
    None,
    /// Threads of its process count (Linux 5.13).
    Threads,
    /// Everything counts.
    All,
}

/// The system calls.
pub trait Kernel {
    /// An open event.
    type Event;

    /// Opens an event in the group that another leads. A leader is opened disabled.
    ///
    /// # Errors
    /// Those of the system call.
    fn open(&self, request: &Request, leader: Option<&Self::Event>) -> io::Result<Self::Event>;

    /// Lets a group count, through its leader.
    ///
    /// # Errors
    /// Those of the system call.
    fn enable(&self, leader: &Self::Event) -> io::Result<()>;

    /// Reads an event or, through its leader, a group; gives the number of words.
    ///
    /// # Errors
    /// Those of the system call.
    fn read(&self, event: &Self::Event, words: &mut [u64]) -> io::Result<usize>;
}

/// The kernel that runs.
pub struct Linux;

impl Kernel for Linux {
    type Event = File;

    fn open(&self, request: &Request, leader: Option<&File>) -> io::Result<File> {
        let mut attr =
            perf_event_attr { type_: request.kind, config: request.config[0], ..perf_event_attr::default() };
        attr.config1 = request.config[1];
        attr.config2 = request.config[2];
        attr.config3 = request.config[3];
        let mut format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        if request.together {
            format |= PERF_FORMAT_GROUP;
        }
        attr.read_format = format.into();
        let exclude = request.exclude;
        attr.set_exclude_user(exclude.user.into());
        attr.set_exclude_kernel(exclude.kernel.into());
        attr.set_exclude_hv(exclude.hv.into());
        attr.set_exclude_host(exclude.host.into());
        attr.set_exclude_guest(exclude.guest.into());
        attr.set_inherit((request.inherit != Inherit::None).into());
        attr.set_inherit_thread((request.inherit == Inherit::Threads).into());
        // A group is enabled with its leader. Were it to count already, an event that joins it might not be
        // scheduled (Linux 6.18 does not where the two are of different software PMUs).
        if leader.is_none() {
            attr.set_disabled(1);
            attr.set_enable_on_exec(request.from_exec.into());
        }
        let (pid, flags) = match request.who {
            Who::All => (-1, 0),
            Who::Thread(tid) => (tid, 0),
            Who::Cgroup(fd) => (fd, PERF_FLAG_PID_CGROUP),
        };
        let cpu = request.cpu.map_or(-1, |cpu| cpu as i32);
        crate::bpf_support::perf_event::open(&attr, pid, cpu, leader.map(AsFd::as_fd), flags).map(File::from)
    }

    fn enable(&self, leader: &File) -> io::Result<()> {
        use perf_event_open_sys::bindings::PERF_IOC_FLAG_GROUP;
        // SAFETY: the descriptor is that of an open event, and the request takes a number.
        match unsafe { perf_event_open_sys::ioctls::ENABLE(leader.as_raw_fd(), PERF_IOC_FLAG_GROUP) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn read(&self, mut event: &File, words: &mut [u64]) -> io::Result<usize> {
        let mut bytes = [0u8; 8 * MAX_WORDS];
        let bytes = &mut bytes[..8 * words.len().min(MAX_WORDS)];
        let n = event.read(bytes)? / 8;
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(n)
    }
}

/// The longest group there is, with the three words before its counts.
pub const MAX_WORDS: usize = 3 + 64;

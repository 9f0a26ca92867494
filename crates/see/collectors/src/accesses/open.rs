//! Opening the events that sample accesses.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ncpu_machine::events::{AccessEvent, Encoding};
use perf_event_open_sys::bindings::perf_event_attr;

use super::{Error, Scope};
use crate::bpf_support::Ring;

/// Pages of a ring: at 4000 samples a second and 56 bytes each, half a second.
const PAGES: usize = 32;

/// The opened events.
pub(super) struct Opened {
    pub rings: Vec<Ring>,
    /// Events that are in a group with those that have rings, or must be enabled.
    pub leaders: Vec<OwnedFd>,
    /// The kernel's own accesses are not sampled, as this user may not.
    pub user_only: bool,
    /// Samples of all processes come, and those of others must be left out.
    pub everybody: bool,
}

/// The content of samples, and their number a second.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// `PERF_SAMPLE_*`.
    pub sample_type: u64,
    /// User registers of `asm/perf_regs.h`, a bit each.
    pub registers: u64,
    /// Samples of the kernel say nothing.
    pub user_only: bool,
    pub hz: u64,
}

/// How an event is opened; what the kernel refuses is given up in turn.
#[derive(Clone, Copy)]
struct How {
    /// A thread, or -1 for everybody on a CPU.
    pid: i32,
    /// With what the thread starts, from its `exec` on.
    program: bool,
    user_only: bool,
    wanted: Wanted,
}

/// Opens each event on each of its CPUs that are online.
pub(super) fn open(scope: Scope, events: &[AccessEvent], wanted: Wanted) -> Result<Opened, Error> {
    let cpus = ncpu_machine::online_cpus(std::path::Path::new("/"))?;
    let how =
        |pid, program, user_only| How { pid, program, user_only: user_only || wanted.user_only, wanted };
    // Events for all processes, separated by process when read, cost an event a CPU for any number of
    // threads.
    let mut ways = match scope {
        Scope::Program(pid) => {
            let pid = pid as i32;
            vec![
                (vec![how(pid, true, false)], false),
                (vec![how(pid, true, true)], false),
                // AMD's IBS samples CPUs, not threads (before Linux 6.2).
                (vec![how(-1, false, false)], true),
            ]
        }
        Scope::Process(pid) => {
            let threads = threads(pid);
            vec![
                (vec![how(-1, false, false)], true),
                (threads.iter().map(|&tid| how(tid, false, false)).collect(), false),
                (threads.iter().map(|&tid| how(tid, false, true)).collect(), false),
            ]
        }
    }
    .into_iter()
    .peekable();
    while let Some((hows, everybody)) = ways.next() {
        let files = hows.len() * cpus.len() * events.len() * 2;
        if let Err((hard, need)) = crate::bpf_support::perf_event::allow_files(files) {
            return Err(Error::Files { hard, need });
        }
        let mut opened =
            Opened { rings: Vec::new(), leaders: Vec::new(), user_only: hows[0].user_only, everybody };
        let done = hows.iter().try_for_each(|how| {
            cpus.iter().try_for_each(|cpu| {
                let here = |e: &&AccessEvent| e.encoding.cpus.as_ref().is_none_or(|c| c.contains(cpu));
                events.iter().filter(here).try_for_each(|event| one(event, *how, cpu, &mut opened))
            })
        });
        match done {
            Ok(()) if !opened.rings.is_empty() => return Ok(opened),
            Ok(()) => return Err(Error::Nowhere),
            Err((_, e)) if ways.peek().is_some() && gives_way(&e) => {}
            Err((event, source)) => return Err(Error::Open { event, source }),
        }
    }
    Err(Error::Nowhere)
}

/// Whether another way may be allowed where this one is not.
fn gives_way(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EINVAL | libc::EOPNOTSUPP))
}

fn threads(pid: u32) -> Vec<i32> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<i32> = dir.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    if threads.is_empty() {
        threads.push(pid as i32);
    }
    threads
}

fn one(event: &AccessEvent, how: How, cpu: u32, into: &mut Opened) -> Result<(), (String, io::Error)> {
    let failed = |e| (event.name.clone(), e);
    let leader = match &event.leader {
        None => None,
        Some(encoding) => {
            match crate::bpf_support::perf_event::open(
                &attr(encoding, how, true),
                how.pid,
                cpu as i32,
                None,
                0,
            ) {
                Ok(file) => Some(file),
                Err(e) if gone(&e) => return Ok(()),
                Err(e) => return Err(failed(e)),
            }
        }
    };
    let mut attr = attr(&event.encoding, how, leader.is_none());
    attr.sample_type = how.wanted.sample_type;
    attr.sample_regs_user = how.wanted.registers;
    attr.sample_period = how.wanted.hz;
    attr.set_freq(1);
    attr.set_watermark(1);
    attr.wakeup_watermark = u32::MAX;
    // IBS knows no modes; the rest counts no guests when it is to be precise.
    attr.set_exclude_guest((!event.any_instruction).into());
    if event.any_instruction && how.user_only {
        attr.set_exclude_kernel(0);
        attr.set_exclude_hv(0);
    }
    let software = event.encoding.kind == ncpu_machine::events::TYPE_SOFTWARE;
    // The highest precision available: the address is valid only together with the instruction's own state.
    let mut precise = if software || event.any_instruction { 0 } else { 3 };
    let file = loop {
        attr.set_precise_ip(precise);
        match crate::bpf_support::perf_event::open(
            &attr,
            how.pid,
            cpu as i32,
            leader.as_ref().map(AsFd::as_fd),
            0,
        ) {
            Ok(file) => break file,
            Err(e) if gone(&e) => return Ok(()),
            Err(e) if precise > 1 && matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                precise -= 1;
            }
            Err(e) => return Err(failed(e)),
        }
    };
    let enabled = file.try_clone().map_err(failed)?;
    into.rings.push(Ring::new(file, PAGES).map_err(failed)?);
    into.leaders.push(leader.unwrap_or(enabled));
    Ok(())
}

/// The CPU went offline or the thread has ended.
fn gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::ESRCH))
}

fn attr(encoding: &Encoding, how: How, leads: bool) -> perf_event_attr {
    let mut attr =
        perf_event_attr { type_: encoding.kind, config: encoding.config[0], ..perf_event_attr::default() };
    attr.config1 = encoding.config[1];
    attr.config2 = encoding.config[2];
    attr.config3 = encoding.config[3];
    attr.set_disabled(leads.into());
    attr.set_inherit(how.program.into());
    attr.set_enable_on_exec((how.program && leads).into());
    attr.set_exclude_kernel(how.user_only.into());
    attr.set_exclude_hv(how.user_only.into());
    attr
}

/// Lets them sample, those of a program that is held from its `exec` on.
pub(super) fn enable(opened: &Opened, on: bool) -> io::Result<()> {
    use perf_event_open_sys::bindings::PERF_IOC_FLAG_GROUP;
    use perf_event_open_sys::ioctls::{DISABLE, ENABLE};
    for leader in &opened.leaders {
        let fd = leader.as_raw_fd();
        // SAFETY: the descriptor is that of an open event, and the requests take a number.
        let done =
            unsafe { if on { ENABLE(fd, PERF_IOC_FLAG_GROUP) } else { DISABLE(fd, PERF_IOC_FLAG_GROUP) } };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

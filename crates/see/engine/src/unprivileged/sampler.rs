//! The perf events that a user may have: timers that sample, and clocks that count the program's time on each CPU.
//!
//! A timer of a task is its clock too: it counts the time that the task and all it starts are on that CPU, exactly,
//! whether they are sampled or not. One event a CPU is all there is, whatever the number of threads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ncpu_instructions::Registers;
use ncpu_machine::events::TYPE_SOFTWARE;
use ncpu_machine::events::stacks::{self, Record};
use ncpu_schema::View;
use perf_event_open_sys::bindings::{PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK, perf_event_attr};
use perf_event_open_sys::ioctls::{DISABLE, ENABLE, SET_OUTPUT};

use crate::bpf_support::{Ring, monotonic_ns, perf_event};

/// Pages of a CPU's ring: with its head just what every user may lock for each CPU (`perf_event_mlock_kb`, 516).
const PAGES: usize = 64;

/// On larger machines each fork and each new thread would pay for hundreds of events.
const MOST_CPUS: usize = 256;

/// Timers and clocks, running or about to.
pub(super) struct Sampler {
    /// The view that its samples give.
    pub view: View,
    /// By CPU.
    rings: Vec<Ring>,
    /// The program's clocks by CPU: one of each thread that was there at the beginning.
    clocks: Vec<(u32, OwnedFd)>,
    bytes: Vec<u8>,
    /// Records that came while the rings were read, with their times.
    late: Vec<(u64, Record)>,
}

/// Which threads to sample.
#[derive(Clone, Copy)]
pub(super) enum Whom<'a> {
    /// A process that is held before its `exec`, and all it starts.
    Held(u32),
    /// Threads that run, and all they start.
    Running(&'a [u32]),
    /// Whatever runs on each CPU.
    Everyone,
}

impl Whom<'_> {
    fn threads(&self) -> &[u32] {
        match self {
            Whom::Held(pid) => std::slice::from_ref(pid),
            Whom::Running(threads) => threads,
            Whom::Everyone => &[],
        }
    }
}

impl Sampler {
    /// Opens the deepest view that this user may have, of CPUs that are online.
    ///
    /// # Errors
    /// No event is allowed at all: what the kernel says to the most modest.
    pub fn open(whom: Whom<'_>, cpus: &[u32], hz: u32) -> io::Result<Sampler> {
        if cpus.len() > MOST_CPUS {
            return Err(io::Error::other(format!(
                "each thread that starts would take an event on each of {} CPUs, and {MOST_CPUS} is the most here",
                cpus.len()
            )));
        }
        let files = cpus.len() * (whom.threads().len() + 1);
        perf_event::allow_files(files).map_err(|(hard, need)| {
            io::Error::other(format!(
                "only {hard} files may be open at once (ulimit -n), and it takes {need}"
            ))
        })?;
        let mut last = io::ErrorKind::Unsupported.into();
        let views = [View::Machine, View::Program, View::UserCode];
        // The others are timers of threads.
        let views = if matches!(whom, Whom::Everyone) { &views[..1] } else { &views[..] };
        for &view in views {
            match Sampler::of(view, whom, cpus, hz) {
                Ok(sampler) => return Ok(sampler),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn of(view: View, whom: Whom<'_>, cpus: &[u32], hz: u32) -> io::Result<Sampler> {
        let mut out =
            Sampler { view, rings: Vec::new(), clocks: Vec::new(), bytes: Vec::new(), late: Vec::new() };
        for &cpu in cpus {
            let mut ring: Option<Ring> = None;
            if view == View::Machine {
                ring = Some(ringed(open(&timer(false, hz), -1, cpu)?)?);
            }
            let attr = clock(view, whom, hz);
            for &thread in whom.threads() {
                let event = match open(&attr, thread as i32, cpu) {
                    // It has ended meanwhile.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    event => event?,
                };
                out.clocks.push((cpu, event.try_clone()?));
                match &ring {
                    // The machine's timers sample; the clock only counts.
                    Some(_) if view == View::Machine => {}
                    Some(ring) => redirect(&event, ring)?,
                    None => ring = Some(ringed(event)?),
                }
            }
            out.rings.extend(ring);
        }
        match out.clocks.is_empty() && !matches!(whom, Whom::Everyone) {
            true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            false => Ok(out),
        }
    }

    /// Begins, but for a program that is held: it is sampled from its `exec` on.
    ///
    /// # Errors
    /// An event cannot be started.
    pub fn start(&self, whom: Whom<'_>) -> io::Result<()> {
        let clocks =
            self.clocks.iter().filter(|_| matches!(whom, Whom::Running(_))).map(|(_, fd)| fd.as_fd());
        let timers = self.rings.iter().filter(|_| self.view == View::Machine).map(AsFd::as_fd);
        // SAFETY: an open event, and a request that takes a number.
        clocks.chain(timers).try_for_each(|fd| done(unsafe { ENABLE(fd.as_raw_fd(), 0) }))
    }

    /// Ends; what was counted and sampled stays readable.
    pub fn stop(&self) {
        for fd in self.clocks.iter().map(|(_, fd)| fd.as_fd()).chain(self.rings.iter().map(AsFd::as_fd)) {
            // SAFETY: as in `start`. A timer that cannot be stopped ends with the descriptor.
            let _ = unsafe { DISABLE(fd.as_raw_fd(), 0) };
        }
    }

    /// Nanoseconds that the program was on each CPU so far.
    ///
    /// # Errors
    /// A clock cannot be read.
    pub fn clocks(&self) -> io::Result<Vec<(u32, u64)>> {
        let mut out: Vec<(u32, u64)> = Vec::new();
        for (cpu, clock) in &self.clocks {
            let mut count = [0u8; 8];
            rustix::io::read(clock, &mut count)?;
            let count = u64::from_ne_bytes(count);
            match out.last_mut().filter(|(last, _)| last == cpu) {
                Some((_, sum)) => *sum += count,
                None => out.push((*cpu, count)),
            }
        }
        Ok(out)
    }

    /// The records that came before this call with their times, ns, in the order of these; and the number of bytes that were lost.
    ///
    /// The rings are read one after another. A record that comes meanwhile waits for the next call, since the one that names its
    /// thread may lie in a ring that was read already.
    pub fn drain(&mut self) -> (Vec<(u64, Record)>, u64) {
        let until = monotonic_ns();
        let mut lost = 0;
        for ring in &mut self.rings {
            self.bytes.clear();
            lost += ring.drain(&mut self.bytes);
            lost += stacks::parse(&self.bytes, |time, record| self.late.push((time, record))) as u64;
        }
        (taken_until(&mut self.late, until), lost)
    }

    /// Become readable when a ring is half full.
    pub fn wakers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }
}

/// Takes the records up to a time, sorted; later ones stay. Records of one time stay in the order of their ring.
fn taken_until(late: &mut Vec<(u64, Record)>, until: u64) -> Vec<(u64, Record)> {
    late.sort_by_key(|(time, _)| *time);
    let split = late.partition_point(|(time, _)| *time <= until);
    late.drain(..split).collect()
}

/// A timer of a CPU, or of a task while it runs, which is its time on CPU too; it wakes its reader when its ring is half
/// full.
fn timer(of_task: bool, hz: u32) -> perf_event_attr {
    let config = if of_task { PERF_COUNT_SW_TASK_CLOCK } else { PERF_COUNT_SW_CPU_CLOCK };
    let mut attr = perf_event_attr { type_: TYPE_SOFTWARE, config: config.into(), ..Default::default() };
    attr.sample_period = 1_000_000_000 / u64::from(hz.max(1));
    attr.sample_type = stacks::SAMPLE_TYPE;
    attr.sample_regs_user = Registers::PERF_MASK;
    attr.set_comm(1);
    attr.set_task(1);
    attr.set_sample_id_all(1);
    // All CPUs' records are sorted by it.
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_disabled(1);
    attr.set_watermark(1);
    attr.wakeup_watermark = (PAGES / 2 * rustix::param::page_size()) as u32;
    attr
}

/// The clock of a task and all it starts.
fn clock(view: View, whom: Whom<'_>, hz: u32) -> perf_event_attr {
    let mut attr = match view {
        View::Machine => {
            let mut attr = timer(true, hz);
            attr.sample_period = 0;
            attr.sample_type = 0;
            attr
        }
        _ => timer(true, hz),
    };
    attr.set_inherit(1);
    attr.set_enable_on_exec(matches!(whom, Whom::Held(_)).into());
    // The clock counts in every mode; only samples of the kernel are left out.
    let user_only = (view != View::Program).into();
    attr.set_exclude_kernel(user_only);
    attr.set_exclude_hv(user_only);
    attr
}

fn open(attr: &perf_event_attr, pid: i32, cpu: u32) -> io::Result<OwnedFd> {
    perf_event::open(attr, pid, cpu as i32, None, 0)
}

fn ringed(event: OwnedFd) -> io::Result<Ring> {
    Ring::new(event, PAGES)
}

/// Has an event write into the ring of another on its CPU.
fn redirect(event: &OwnedFd, ring: &Ring) -> io::Result<()> {
    // SAFETY: two open events.
    done(unsafe { SET_OUTPUT(event.as_raw_fd(), ring.as_fd().as_raw_fd()) })
}

fn done(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The setting of `kernel.perf_event_paranoid`; `None` where it cannot be read.
pub(super) fn paranoid(root: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(root.join("proc/sys/kernel/perf_event_paranoid")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_another_ring_comes_before_the_samples_it_names() {
        let name = |name: &str| Record::Name { pid: 7, tid: 7, name: name.into() };
        let sample = || Record::Sample { pid: 7, tid: 7, kernel: vec![], user: vec![1], registers: vec![] };
        let ended = Record::Ended { tid: 7 };
        // Two samples of the first ring, then the records of the second; one of them came while the rings were read.
        let mut late = vec![
            (20, sample()),
            (40, sample()),
            (10, name("first")),
            (30, name("second")),
            (50, ended.clone()),
        ];
        let expected = [(10, name("first")), (20, sample()), (30, name("second")), (40, sample())];
        assert_eq!(taken_until(&mut late, 45), expected);
        late.push((48, sample()));
        assert_eq!(taken_until(&mut late, 50), [(48, sample()), (50, ended)]);
        assert!(late.is_empty());
    }

    #[test]
    fn records_of_one_time_keep_the_order_of_their_ring() {
        let mut late: Vec<_> = (0..40).map(|tid| (5, Record::Ended { tid })).collect();
        let expected = late.clone();
        assert_eq!(taken_until(&mut late, 5), expected);
    }
}

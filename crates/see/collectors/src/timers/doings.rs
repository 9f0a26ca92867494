//! Activity of each CPU: ticks, timers, softirqs and kernel threads beside programs and idling.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use ncpu_schema::{Doing, Per, cpu_doings};
use ncpu_symbols::Kernel;
use ncpu_table::Table;

use super::layout::{CpuDoing, DOINGS};
use super::load::{Wanted, attach};
use super::skel::TimersSkel;
use crate::bpf_support::{Error, Mapped, Result, load, monotonic_ns, perf};

/// The tick's handler, newest name first (6.9 renamed it).
const TICK: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// CPUs being watched; ends when dropped.
pub struct Doings {
    skel: Box<TimersSkel<'static>>,
    _links: Vec<Link>,
    cpus: Mapped<CpuDoing>,
    online: Vec<usize>,
    start: Vec<CpuDoing>,
    notes: Vec<String>,
}

impl Doings {
    /// Attaches and begins.
    ///
    /// # Errors
    /// No privileges, no BTF, or no `sched_switch`.
    pub fn begin() -> Result<Doings> {
        let mut notes = Vec::new();
        let tick = match Kernel::load(Path::new("/")) {
            Ok(kernel) => TICK.map(|name| kernel.address_of(name).unwrap_or(0)),
            Err(e) => {
                notes.push(format!("ticks are among other timers: {e}"));
                [0; 2]
            }
        };
        let (mut skel, links) = attach(&Wanted { who: None, doings: Some(tick) }, &mut notes)?;
        let possible = load::cpu_parts()?;
        let cpus = Mapped::new(&skel.maps.doings, possible)
            .map_err(|source| Error::Io { doing: "mapping the CPUs' times", source })?;
        if let Some(bss) = &mut skel.maps.bss_data {
            bss.observing = 1;
        }
        let online = perf::online_cpus();
        let mut doings = Doings { skel, _links: links, cpus, online, start: Vec::new(), notes };
        doings.mark();
        doings.start = (0..possible).map(|cpu| doings.cpus.get(cpu)).collect();
        Ok(doings)
    }

    /// Makes every CPU charge its time up to now.
    fn mark(&self) {
        load::run_on(&self.skel.progs.mark, &self.online);
    }

    /// Waits until the process behind `end` ends, `deadline` passes or `stop` is set.
    pub fn watch(&mut self, end: Option<BorrowedFd<'_>>, deadline: Option<Instant>, stop: &AtomicBool) {
        use rustix::event::{PollFd, PollFlags, poll};
        while !stop.load(Ordering::Relaxed) {
            let left =
                deadline.map_or(Duration::from_secs(1), |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            let time =
                rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds: Vec<_> = end.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            if poll(&mut fds, Some(&time)).is_ok_and(|n| n > 0) {
                return;
            }
        }
    }

    /// Ends. Table `cpu_doings`: a row is a CPU, its seconds in each state.
    pub fn finish(mut self) -> (Table, Vec<String>) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 0;
        }
        let end = monotonic_ns();
        let mut out = cpu_doings::Rows::new();
        let mut drops = 0;
        for &cpu in self.online.iter().filter(|&&cpu| cpu < self.cpus.len()) {
            let (now, start) = (self.cpus.get(cpu), self.start[cpu]);
            if start.last == 0 {
                continue; // it has gone offline
            }
            let mut at: [u64; DOINGS] = std::array::from_fn(|i| now.at[i].saturating_sub(start.at[i]));
            // The state it is in has not been charged yet.
            at[now.now_at().min(DOINGS - 1)] += end.saturating_sub(now.last);
            out.push(cpu_doings::Row {
                cpu: Some(cpu as u64),
                elapsed: Some(end.saturating_sub(start.last) as f64 / 1e9),
                spent: Per::new(|doing: Doing| Some(at[doing as usize] as f64 / 1e9)),
                ticks: Some(now.ticks - start.ticks),
                jiffies: Some(now.jiffies - start.jiffies),
            });
            drops += now.drop - start.drop;
        }
        if drops > 0 {
            self.notes.push(format!("dropped: {drops} interrupts (nested too deeply)"));
        }
        (out.finish(), self.notes)
    }
}

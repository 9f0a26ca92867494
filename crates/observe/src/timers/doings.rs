//! What each CPU does: ticks, timers, softirqs and kernel threads beside programs and idling.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use ncpu_table::{Column, Kind, Table, Unit};

use super::bpf::{Wanted, attach, skel::TimersSkel};
use super::raw::{CpuDoing, DOINGS};
use crate::engine::mmap::Mapped;
use crate::engine::{Error, Result, monotonic_ns, perf};
use crate::symbols::Kernel;

/// The tick's handler, newest name first (6.9 renamed it).
const TICK: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// In the order of `enum doing`: name, meaning.
const DOING: [(&str, &str); DOINGS] = [
    ("idle", "idle"),
    ("programs", "threads of programs: user code and system calls"),
    ("ksoftirqd", "ksoftirqd, beside the softirqs it serves"),
    ("rcu_threads", "RCU's threads"),
    ("kworker", "workqueues"),
    ("migration", "migration threads"),
    ("kthreads", "other kernel threads"),
    ("timer_irq", "timer interrupts, beside the handlers they call"),
    ("tick", "the tick's handler"),
    ("hrtimers", "other handlers of timers of high resolution"),
    ("hi", "softirq HI"),
    ("timer", "softirq TIMER: the timer wheel"),
    ("net_tx", "softirq NET_TX"),
    ("net_rx", "softirq NET_RX"),
    ("block", "softirq BLOCK"),
    ("irq_poll", "softirq IRQ_POLL"),
    ("tasklet", "softirq TASKLET"),
    ("sched", "softirq SCHED: load balancing"),
    ("hrtimer", "softirq HRTIMER"),
    ("rcu", "softirq RCU"),
];

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
        let possible = crate::load::possible_cpus()?;
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
        for &cpu in &self.online {
            let input = libbpf_rs::ProgramInput {
                cpu: cpu as u32,
                flags: 1, // BPF_F_TEST_RUN_ON_CPU
                ..Default::default()
            };
            // A CPU that has just gone offline is charged up to its last event instead.
            let _ = self.skel.progs.mark.test_run(input);
        }
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
        let mut columns = vec![
            Column::id("CPU", "CPU number"),
            Column::float("elapsed", Unit::Seconds, Kind::Gauge, "how long it was watched"),
        ];
        let seconds =
            |(name, meaning): &(&str, &str)| Column::float(name, Unit::Seconds, Kind::Time, meaning);
        columns.extend(DOING.iter().map(seconds));
        columns.push(Column::count("ticks", "runs of the tick's handler"));
        columns.push(Column::count("jiffies", "ticks in which the kernel's time advanced"));
        let mut out = Table::builder("cpu_doings", &columns);
        let mut drops = 0;
        for &cpu in self.online.iter().filter(|&&cpu| cpu < self.cpus.len()) {
            let (now, start) = (self.cpus.get(cpu), self.start[cpu]);
            if start.last == 0 {
                continue; // it has gone offline
            }
            let mut at: [u64; DOINGS] = std::array::from_fn(|i| now.at[i].saturating_sub(start.at[i]));
            // The state it is in has not been charged yet.
            at[now.now_at().min(DOINGS - 1)] += end.saturating_sub(now.last);
            let mut row = out.row().int(cpu as u64).float(end.saturating_sub(start.last) as f64 / 1e9);
            for ns in at {
                row = row.float(ns as f64 / 1e9);
            }
            row.int(now.ticks - start.ticks).int(now.jiffies - start.jiffies);
            drops += now.drop - start.drop;
        }
        if drops > 0 {
            self.notes.push(format!("dropped: {drops} interrupts (nested too deeply)"));
        }
        (out.finish(), self.notes)
    }
}

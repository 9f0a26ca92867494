//! The code that arms timers: by handler, process and stack, counted in the kernel.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, RingBuffer};
use ncpu_schema::{TimerKind, timer_arms, timer_callers, timer_span};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use super::layout::{Counters, KIND_HRTIMER, TGID_INTERRUPT, TimerRow};
use super::load::{Wanted, attach};
use super::skel::TimersSkel;
use crate::bpf_support::ring::{self, Inbox};
use crate::bpf_support::{Error, Mapped, Result, Stack, comm, load, monotonic_ns};
use crate::names::{Symbols, without_probe};
use crate::program::Target;

/// Stacks walked a second on the whole machine: a walk costs more than the rest.
const WALKS_PER_SECOND: u64 = 400;

/// Timers being counted; ends when dropped.
pub struct Who {
    skel: Box<TimersSkel<'static>>,
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    inbox: Inbox<(u64, Stack)>,
    rows: Mapped<TimerRow>,
    counters: Mapped<Counters>,
    symbols: Symbols,
    stacks: HashMap<u64, Stack>,
    began: u64,
    notes: Vec<String>,
}

impl Who {
    /// Attaches and begins counting.
    ///
    /// # Errors
    /// No privileges, no BTF, or no tracepoint of any timer.
    pub fn begin(target: &Target) -> Result<Who> {
        let mut notes = Vec::new();
        let mut symbols = Symbols::of_bpf();
        let (mut skel, links) = attach(&Wanted { who: Some(target), doings: None }, &mut notes)?;
        notes.extend(symbols.load_kernel());
        let (ring, inbox) = ring::open(&skel.maps.ring, ring::stack)?;
        let io = |source| Error::Io { doing: "mapping the tables", source };
        let cpus = load::cpu_parts()?;
        use libbpf_rs::MapCore;
        let rows = Mapped::new(&skel.maps.rows, skel.maps.rows.max_entries() as usize).map_err(io)?;
        let counters = Mapped::new(&skel.maps.counters, cpus).map_err(io)?;
        if let Some(bss) = &mut skel.maps.bss_data {
            bss.observing = 1;
        }
        Ok(Who {
            skel,
            _links: links,
            ring,
            inbox,
            rows,
            counters,
            symbols,
            stacks: HashMap::new(),
            began: monotonic_ns(),
            notes,
        })
    }

    /// Parts that cannot be seen on this machine, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Counts until the process behind `end` ends, `deadline` passes or `stop` is set.
    pub fn watch(&mut self, end: Option<BorrowedFd<'_>>, deadline: Option<Instant>, stop: &AtomicBool) {
        const LOOK: Duration = Duration::from_millis(100);
        let (mut starts, mut tuned) = (0, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if deadline.is_some_and(|d| now >= d) {
                return;
            }
            let left = deadline.map_or(LOOK, |d| d - now).min(LOOK);
            let ended = self.wait(end, left);
            self.receive();
            if ended {
                return;
            }
            if tuned.elapsed() >= LOOK {
                let all = (0..self.counters.len()).map(|cpu| self.counters.get(cpu).starts).sum();
                self.tune(all - starts, tuned.elapsed());
                (starts, tuned) = (all, Instant::now());
            }
        }
    }

    fn wait(&self, end: Option<BorrowedFd<'_>>, time: Duration) -> bool {
        // SAFETY: the ring buffer owns its descriptor and outlives this call.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) };
        let mut fds = vec![PollFd::from_borrowed_fd(ring, PollFlags::IN)];
        fds.extend(end.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let time =
            rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // Interrupted by a signal: the loop looks at `stop`.
        let _ = rustix::event::poll(&mut fds, Some(&time));
        fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
    }

    fn receive(&mut self) {
        let _ = self.ring.consume();
        for (id, stack) in self.inbox.take() {
            self.symbols.note(stack.tgid, stack.tid, &stack.comm);
            self.stacks.entry(id).or_insert(stack);
        }
    }

    fn tune(&mut self, starts: u64, time: Duration) {
        let rate = (starts as f64 / time.as_secs_f64().max(0.001)) as u64;
        let one_in = (rate / WALKS_PER_SECOND).clamp(1, 65_536).next_power_of_two() as u32;
        if let Some(data) = &mut self.skel.maps.data_data {
            data.walk_mask = one_in - 1;
        }
    }

    /// Ends counting. Tables `timer_arms` (exact, by handler and process), `timer_callers` (of those starts
    /// whose stack was walked, by stack) and `timer_span` (how long it was counted).
    pub fn finish(mut self) -> (Vec<Table>, Vec<String>) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 0;
        }
        let elapsed = (monotonic_ns() - self.began) as f64 / 1e9;
        self.receive();
        let mut sums: HashMap<(u64, u64, u32, u32), TimerRow> = HashMap::new();
        for i in (0..self.rows.len()).filter(|&i| self.rows.first_word(i) != 0) {
            let row = self.rows.get(i);
            merge(sums.entry((row.function, row.stack, row.tgid, row.kind)).or_default(), &row);
        }
        let mut sums: Vec<TimerRow> = sums.into_values().collect();
        sums.sort_by_key(|r| (u64::MAX - r.starts, r.function, r.tgid, r.stack));
        let names: HashMap<u32, String> =
            sums.iter().filter(|r| r.comm[0] != 0).map(|r| (r.tgid, comm(&r.comm))).collect();
        let (mut arms, mut callers) = (timer_arms::Rows::new(), timer_callers::Rows::new());
        for row in &sums {
            let function = self.symbols.kernel(&[row.function]).swap_remove(0);
            let process = match (row.tgid, names.get(&row.tgid)) {
                (TGID_INTERRUPT, _) => "[interrupt]",
                (0, _) => "[idle]",
                (_, Some(name)) => name,
                (_, None) => "[unknown]",
            };
            if row.stack == 0 {
                arms.push(armed(row, &function, process));
            } else if let Some(stack) = self.stacks.get(&row.stack) {
                let kernel = self.symbols.kernel(&stack.kernel);
                let user = self.symbols.user(stack.tgid, &stack.user);
                let kernel = without_probe(&kernel);
                let kernel = if row.tgid == TGID_INTERRUPT { own_frames(kernel) } else { kernel };
                let frames: Vec<&str> = kernel.iter().chain(&user).map(|f| &**f).collect();
                let (caller, frames) = (caller(kernel, &user), frames.join(";"));
                callers.push(with_caller(armed(row, &function, process), caller, frames));
            }
        }
        let mut span = timer_span::Rows::new();
        span.push(timer_span::Row { elapsed: Some(elapsed) });
        let mut drops = [0; 3];
        for cpu in 0..self.counters.len() {
            let c = self.counters.get(cpu);
            drops.iter_mut().zip([c.drop_row, c.drop_armed, c.drop_ring]).for_each(|(sum, n)| *sum += n);
        }
        let what = ["starts (row table full)", "owners of timers (table full)", "stacks (ring buffer full)"];
        self.notes.extend(
            drops.iter().zip(what).filter(|(n, _)| **n > 0).map(|(n, what)| format!("dropped: {n} {what}")),
        );
        (vec![arms.finish(), callers.finish(), span.finish()], self.notes)
    }
}

/// Adds what another CPU counted for the same key.
fn merge(sum: &mut TimerRow, row: &TimerRow) {
    let both = sum.starts > 0 && row.starts > 0;
    let min =
        if both { sum.distance_min.min(row.distance_min) } else { sum.distance_min.max(row.distance_min) };
    *sum = TimerRow {
        starts: sum.starts + row.starts,
        cancels: sum.cancels + row.cancels,
        expires: sum.expires + row.expires,
        distance: sum.distance + row.distance,
        distance_min: min,
        distance_max: sum.distance_max.max(row.distance_max),
        handler: sum.handler + row.handler,
        handler_max: sum.handler_max.max(row.handler_max),
        comm: if row.comm[0] != 0 { row.comm } else { sum.comm },
        ..*row
    };
}

fn armed<'a>(row: &TimerRow, function: &'a str, process: &'a str) -> timer_arms::Row<'a> {
    let seconds = |ns: u64| Some(ns as f64 / 1e9);
    timer_arms::Row {
        function: function.into(),
        by: Some(if row.kind == KIND_HRTIMER { TimerKind::High } else { TimerKind::Wheel }),
        pid: (row.tgid != TGID_INTERRUPT).then_some(row.tgid.into()),
        process: process.into(),
        starts: Some(row.starts),
        // To expire, a timer is taken off its queue as if it were cancelled.
        cancels: Some(row.cancels.saturating_sub(row.expires)),
        expires: Some(row.expires),
        distance: seconds(row.distance),
        nearest: seconds(row.distance_min),
        farthest: seconds(row.distance_max),
        handler: seconds(row.handler),
        longest: seconds(row.handler_max),
    }
}

/// The same of those starts that have one stack.
fn with_caller<'a>(row: timer_arms::Row<'a>, caller: String, frames: String) -> timer_callers::Row<'a> {
    let timer_arms::Row { function, by, pid, process, starts, cancels, expires, .. } = row;
    let timer_arms::Row { distance, nearest, farthest, handler, longest, .. } = row;
    timer_callers::Row {
        function,
        by,
        pid,
        process,
        caller: caller.into(),
        stack: frames.into(),
        starts,
        cancels,
        expires,
        distance,
        nearest,
        farthest,
        handler,
        longest,
    }
}

/// An interrupt's own frames, without those of what it hit.
fn own_frames(kernel: &[Arc<str>]) -> &[Arc<str>] {
    const ENTRIES: [&str; 9] = [
        "asm_",
        "sysvec_",
        "__sysvec_",
        "common_interrupt",
        "irq_exit",
        "do_softirq",
        "arch_timer_handler_",
        "el1h_64_irq",
        "el0t_64_irq",
    ];
    let entry = kernel.iter().position(|f| ENTRIES.iter().any(|e| f.starts_with(e)));
    &kernel[..entry.unwrap_or(kernel.len())]
}

/// The system call, or the innermost kernel function that only arms timers for others' sake, and the
/// innermost function of the program itself.
fn caller(kernel: &[Arc<str>], user: &[Arc<str>]) -> String {
    let call = kernel.iter().find_map(|f| {
        let (prefix, name) = f.split_once("_sys_")?;
        ["__x64", "__se", "__do", "__arm64", "__ia32"].contains(&prefix).then_some(name)
    });
    let call = call.or_else(|| kernel.iter().map(|f| &**f).find(|f| !arms_for_others(f)));
    let user = || user.iter().map(|f| &**f).filter(|f| *f != "[unknown]");
    let own = user().find(|f| !waits_for_others(f)).or(user().next());
    match (call, own) {
        (Some(call), Some(own)) => format!("{call} < {own}"),
        (Some(one), None) | (None, Some(one)) => one.into(),
        // All of it is the timers' own code: the handler asked for it by what it returned.
        (None, None) if !kernel.is_empty() => "[handler]".into(),
        (None, None) => "[unknown]".into(),
    }
}

/// The kernel's own ways to arm a timer.
fn arms_for_others(function: &str) -> bool {
    const STARTS: [&str; 26] = [
        "call_timer_fn",
        "expire_timers",
        "__run_timer",
        "hrtimer_",
        "enqueue_timer",
        "__enqueue_timer",
        "__internal_add_timer",
        "__hrtimer_",
        "enqueue_hrtimer",
        "schedule_timeout",
        "schedule_hrtimeout",
        "mod_timer",
        "__mod_timer",
        "add_timer",
        "timer_reduce",
        "do_nanosleep",
        "usleep_range",
        "msleep",
        "io_schedule_timeout",
        "wait_for_completion",
        "do_wait_for_common",
        "__wait_for_common",
        "queue_delayed_work",
        "__queue_delayed_work",
        "mod_delayed_work",
        "trace_",
    ];
    STARTS.iter().any(|s| function.starts_with(s))
}

/// The C library's and the languages' own ways to wait.
fn waits_for_others(function: &str) -> bool {
    const HOLDS: [&str; 17] = [
        "nanosleep",
        "usleep",
        "poll",
        "select",
        "epoll",
        "futex",
        "sem_",
        "pthread_",
        "timedwait",
        "mq_timed",
        "setitimer",
        "timer_settime",
        "timerfd_settime",
        "syscall",
        "std::",
        "core::",
        "__libc",
    ];
    function == "sleep" || HOLDS.iter().any(|s| function.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|&n| n.into()).collect()
    }

    #[test]
    fn a_caller_is_a_system_call_and_who_makes_it() {
        let kernel = frames(&[
            "hrtimer_start_range_ns",
            "do_nanosleep",
            "hrtimer_nanosleep",
            "__x64_sys_clock_nanosleep",
        ]);
        let user = frames(&["clock_nanosleep", "usleep", "worker", "main"]);
        assert_eq!(caller(&kernel, &user), "clock_nanosleep < worker");
        assert_eq!(caller(&kernel, &frames(&["__poll"])), "clock_nanosleep < __poll");
    }

    #[test]
    fn a_kernel_threads_caller_is_its_own_function() {
        let kernel = frames(&["__mod_timer", "schedule_timeout", "rcu_gp_fqs_loop", "rcu_gp_kthread"]);
        assert_eq!(caller(&kernel, &[]), "rcu_gp_fqs_loop");
        assert_eq!(caller(&[], &[]), "[unknown]");
        let tick = frames(&[
            "enqueue_hrtimer",
            "__hrtimer_run_queues",
            "hrtimer_interrupt",
            "asm_sysvec_apic_timer_interrupt",
            "main",
        ]);
        assert_eq!(caller(own_frames(&tick), &[]), "[handler]");
        let tick = frames(&[
            "hrtimer_start_range_ns",
            "__hrtimer_run_queues",
            "hrtimer_interrupt",
            "arch_timer_handler_virt",
            "handle_percpu_devid_irq",
            "gic_handle_irq",
            "el1h_64_irq",
            "cpu_startup_entry",
        ]);
        assert_eq!(caller(own_frames(&tick), &[]), "[handler]");
    }

    #[test]
    fn rows_of_two_cpus_are_one() {
        let a =
            TimerRow { starts: 2, distance: 30, distance_min: 10, distance_max: 20, ..TimerRow::default() };
        let b = TimerRow { starts: 1, distance: 5, distance_min: 5, distance_max: 5, ..TimerRow::default() };
        // On a third CPU timers only expired.
        let c = TimerRow { expires: 3, handler: 7, handler_max: 4, ..TimerRow::default() };
        let mut sum = TimerRow::default();
        for row in [&a, &b, &c] {
            merge(&mut sum, row);
        }
        assert_eq!((sum.starts, sum.expires, sum.distance), (3, 3, 35));
        assert_eq!((sum.distance_min, sum.distance_max, sum.handler_max), (5, 20, 4));
    }
}

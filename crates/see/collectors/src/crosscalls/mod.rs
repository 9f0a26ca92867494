//! Cross-calls: interrupts by which one CPU makes others do something – drop translations, look at their
//! run queue, run a function – with who sends them and what they cost at both ends.
//!
//! Calls, targets, interrupts and packages are exact, and so is the receivers' time. The senders' waiting
//! is exact where the kernel has csd tracepoints (Linux 6.5): from the call to the end of the function on
//! the last target; timer samples are the second estimate, and elsewhere the only one. Senders are exact by
//! process and system call; by caller they are estimated from the stacks walked.
//!
//! No tracepoint says when a sender stops waiting. But it waits for the last target, and each target notes in memory of its own
//! when it finished; the sender looks that up at its next call, for large calls seldom. Receivers writing to the sender would make
//! its line the contention.

mod layout;
mod load;
pub mod packages;
mod received;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, RingBuffer};
use ncpu_schema::{crosscall_summary, drops};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use crate::bpf_support::ring::{self, Inbox};
use crate::bpf_support::{Error, Mapped, Result, Stack, comm, monotonic_ns, perf};
use crate::names::caller::{asked, entered};
use crate::names::{Symbols, fold, without_probe};
use crate::program::Target;
use layout::{BUCKETS, CALL, CAUSES, Cpu, FLUSHES, OTHERS, Row, TLB};
use load::Has;
pub use received::Received;

/// Stacks walked a second on the whole machine for each cause: a walk costs ten times the rest.
const WALKS_PER_SECOND: u64 = 200;
/// How many stacks are kept; later new ones are shown as `[unknown]`.
const MAX_STACKS: usize = 100_000;
const HZ: u32 = 199;

/// The calls to observe.
#[derive(Clone, Debug)]
pub struct Config {
    /// The target whose calls are reported one by one; the calls of others are only counted.
    pub target: Target,
    /// The package of each possible CPU ([`packages::of`], or [`packages::spread`] to ask what if).
    pub package_of: Vec<u32>,
    /// Walk the stack of every call, whatever it costs.
    pub walk_all: bool,
}

/// Where processors tell each other to drop translations without interrupts.
fn broadcast() -> Option<String> {
    cfg!(target_arch = "aarch64").then(|| {
        "TLB shootdowns interrupt no CPU here: AArch64 broadcasts them (TLBI with DVM), so they are not cross-calls; their cost is part \
         of the calls that unmap and protect memory"
            .into()
    })
}

/// A running observation.
pub struct Crosscalls {
    skel: Box<skel::CrosscallsSkel<'static>>,
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    inbox: Inbox<(u64, Stack)>,
    cpus: Mapped<Cpu>,
    rows: Mapped<Row>,
    /// The reported part of each row of a CPU.
    before: HashMap<usize, Row>,
    cpus_before: HashMap<usize, Cpu>,
    stacks: HashMap<u64, Stack>,
    symbols: Symbols,
    has: Has,
    walk_all: bool,
    packages: usize,
    online: usize,
    hz: u32,
    began: u64,
    last_tick: u64,
    notes: Vec<String>,
}

impl Crosscalls {
    /// Attaches and begins counting.
    ///
    /// # Errors
    /// No privileges, no BTF, or neither ipi nor tlb tracepoints; what else is missing is left out and told
    /// by [`Crosscalls::finish`].
    pub fn begin(config: &Config) -> Result<Crosscalls> {
        let mut notes = Vec::new();
        libbpf_rs::set_print(None);
        let mut symbols = Symbols::of_bpf();
        notes.extend(symbols.load_kernel());
        let kernel = symbols.kernel_symbols();
        let (mut skel, has) = load::load(config, kernel.as_deref(), &mut notes)?;
        let mut links = load::attach(&mut skel)?;
        let io = |doing| move |source| Error::Io { doing, source };
        let cpus = Mapped::new(&skel.maps.cpus, skel.maps.cpus.max_entries() as usize)
            .map_err(io("mapping the CPUs' counters"))?;
        let rows = Mapped::new(&skel.maps.rows, skel.maps.rows.max_entries() as usize)
            .map_err(io("mapping the table of calls"))?;
        let (ring, inbox) = ring::open(&skel.maps.ring, ring::stack)?;
        let online = perf::online_cpus();
        let mut hz = HZ.min(20_000 / online.len().max(1) as u32).max(1);
        for &cpu in &online {
            match perf::cpu_clock(cpu, hz).and_then(|fd| perf::attach(&skel.progs.sample, fd)) {
                Ok(link) => links.push(link),
                Err(e) => {
                    notes.push(format!("no second estimate of waiting: {e}"));
                    hz = 0;
                    break;
                }
            }
        }
        if let Some(bss) = &mut skel.maps.bss_data {
            bss.observing = 1;
        }
        let mut used = config.package_of.clone();
        used.sort_unstable();
        used.dedup();
        let mut observation = Crosscalls {
            skel: Box::new(skel),
            _links: links,
            ring,
            inbox,
            cpus,
            rows,
            before: HashMap::new(),
            cpus_before: HashMap::new(),
            stacks: HashMap::new(),
            symbols,
            has,
            walk_all: config.walk_all,
            packages: used.len().max(1),
            online: online.len(),
            hz,
            began: monotonic_ns(),
            last_tick: monotonic_ns(),
            notes,
        };
        if config.walk_all {
            observation.walk_every([1; 4]);
        }
        Ok(observation)
    }

    fn walk_every(&mut self, every: [u64; 4]) {
        if let Some(data) = &mut self.skel.maps.data_data {
            data.walk_mask = every.map(|n| n.clamp(1, 65_536).next_power_of_two() as u32 - 1);
        }
    }

    /// Counts until the process behind `pidfd` ends, `deadline` passes or `stop` is set; calls `sink` with
    /// the new rows of every table each `interval`.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn watch<E>(
        &mut self,
        pidfd: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        interval: Duration,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(&Table) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut next = Instant::now() + interval;
        while !stop.load(Ordering::Relaxed) && deadline.is_none_or(|d| Instant::now() < d) {
            let now = Instant::now();
            if now >= next {
                self.tick(sink)?;
                next = now + interval;
            }
            // New stacks wake nobody; and a process must be looked at while it lives.
            let until = next.min(deadline.unwrap_or(next)).min(now + Duration::from_millis(50));
            let time = until.saturating_duration_since(now);
            let time =
                rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            let mut fds: Vec<PollFd<'_>> =
                pidfd.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            // Interrupted by a signal: the loop looks at `stop`.
            let _ = rustix::event::poll(&mut fds, Some(&time));
            self.receive();
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                break;
            }
        }
        Ok(())
    }

    fn receive(&mut self) {
        let _ = self.ring.consume();
        for (id, stack) in self.inbox.take() {
            self.symbols.note(stack.tgid, stack.tid, &stack.comm);
            if self.stacks.len() < MAX_STACKS {
                self.stacks.insert(id, stack);
            }
        }
    }

    /// The new rows of all tables.
    fn tick<E>(
        &mut self,
        sink: &mut dyn FnMut(&Table) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let new = self.new_rows();
        self.receive();
        let now = monotonic_ns();
        let seconds = (now.saturating_sub(self.last_tick) as f64 / 1e9).max(0.01);
        self.last_tick = now;
        if !self.walk_all {
            let mut calls = [0u64; 4];
            for (_, r) in new.iter().filter(|(_, r)| !r.received() && r.stack == 0 && r.tgid() != OTHERS) {
                calls[r.cause()] += r.calls;
            }
            self.walk_every(calls.map(|n| (n as f64 / seconds) as u64 / WALKS_PER_SECOND));
        }
        let mut all = self.sender_tables(&new);
        all.push(self.received_table(&new));
        all.push(self.cpu_table(&new));
        all.extend(self.counter_tables());
        for table in all.iter().filter(|t| t.num_rows() > 0) {
            sink(table)?;
        }
        Ok(())
    }

    /// The growth of each row of each CPU since the last call, with the row's CPU.
    fn new_rows(&mut self) -> Vec<(usize, Row)> {
        let per_cpu = self.rows.len() / self.cpus.len().max(1);
        let mut new = Vec::new();
        for i in 0..self.rows.len() {
            if self.rows.first_word(i) == 0 {
                continue;
            }
            let now = self.rows.get(i);
            let before = self.before.insert(i, now).unwrap_or_default();
            let less = |now: u64, before: u64| now.saturating_sub(before);
            let row = Row {
                calls: less(now.calls, before.calls),
                targets: less(now.targets, before.targets),
                ipis: less(now.ipis, before.ipis),
                packages: less(now.packages, before.packages),
                wait: less(now.wait_estimate(), before.wait_estimate()),
                // The estimate is made; it stands as it is.
                timed: 1,
                waited: less(now.waited, before.waited),
                ..now
            };
            if row.calls + row.targets + row.ipis + row.wait > 0 {
                new.push((i / per_cpu.max(1), row));
            }
        }
        new
    }

    fn function(&mut self, func: u64) -> Option<String> {
        (func != 0).then(|| self.symbols.kernel(&[func]).first().map(|f| f.to_string())).flatten()
    }

    /// `crosscalls` and `crosscall_callers`.
    fn sender_tables(&mut self, new: &[(usize, Row)]) -> Vec<Table> {
        // Rows of all CPUs put together.
        let mut sums: HashMap<(u64, u64, u64), Row> = HashMap::new();
        for (_, r) in new.iter().filter(|(_, r)| !r.received() && r.tgid() != OTHERS) {
            let sum = sums.entry((r.who, r.func, r.stack)).or_insert(Row {
                who: r.who,
                func: r.func,
                stack: r.stack,
                comm: r.comm,
                ..Row::default()
            });
            sum.calls += r.calls;
            sum.targets += r.targets;
            sum.ipis += r.ipis;
            sum.packages += r.packages;
            sum.wait += r.wait;
            sum.waited += r.waited;
            sum.max = sum.max.max(r.max);
            sum.longest = sum.longest.max(r.longest);
        }
        let mut sent = ncpu_schema::crosscalls::TABLE.builder();
        let mut callers = ncpu_schema::crosscall_callers::TABLE.builder();
        for r in sums.values() {
            let place = r.place();
            let function = self.function(r.func);
            let stack = self.stacks.get(&r.stack).cloned().unwrap_or_default();
            let exact = r.stack == 0;
            let process = if r.tgid() == 0 { "[idle]".to_string() } else { comm(&r.comm) };
            let out = if exact { sent.row() } else { callers.row() };
            let mut out = out
                .text(CAUSES[r.cause()])
                .text_opt(function)
                .text(&process)
                .int(r.tgid().into())
                .text(&place);
            if !exact {
                let kernel = self.symbols.kernel(&stack.kernel);
                let user = self.symbols.user(stack.tgid, &stack.user);
                let folded = fold("", &user, without_probe(&kernel));
                let frames: Vec<&str> = folded.split(';').skip(1).collect();
                let frames: Vec<&str> = frames.into_iter().rev().collect();
                out = out
                    .text(asked(without_probe(&kernel).iter().map(|f| &**f)))
                    .text_opt(entered(&user, &place))
                    .text(frames.join(";"));
            }
            out.int(r.calls)
                .int_opt(self.tells_targets(r.cause()).then_some(r.targets))
                .int_opt(self.has.ipi.then_some(r.ipis))
                .int_opt((self.has.csd || r.cause() == 1).then_some(r.packages))
                .int(r.waited)
                .float_opt(self.has.csd.then_some(r.wait as f64 / 1e9))
                .int_opt(self.tells_targets(r.cause()).then_some(r.max))
                .float_opt((r.longest > 0).then_some(r.longest as f64 / 1e3));
        }
        vec![sent.finish(), callers.finish()]
    }

    fn tells_targets(&self, cause: usize) -> bool {
        self.has.csd || self.has.ipi || (cause != TLB && cause != CALL)
    }

    fn received_table(&mut self, new: &[(usize, Row)]) -> Table {
        let mut sums: HashMap<(usize, u64), [u64; 4]> = HashMap::new();
        for (_, r) in new.iter().filter(|(_, r)| r.stack == 0) {
            // A function's time is its cause's where the kernel does not tell functions.
            let func = if self.has.csd { r.func } else { 0 };
            let sum = sums.entry((r.cause(), func)).or_default();
            let add = if r.received() { [r.calls, r.wait, 0, 0] } else { [0, 0, r.calls, r.targets] };
            sum.iter_mut().zip(add).for_each(|(s, a)| *s += a);
        }
        let mut out = ncpu_schema::crosscalls_received::TABLE.builder();
        for ((cause, func), [received, ns, sent, asked]) in sums {
            let function = self.function(func);
            out.row()
                .text(CAUSES[cause])
                .text_opt(function)
                .int(received)
                .float(ns as f64 / 1e9)
                .int(sent)
                .int_opt(self.tells_targets(cause).then_some(asked));
        }
        out.finish()
    }

    fn cpu_table(&self, new: &[(usize, Row)]) -> Table {
        let mut sums: std::collections::BTreeMap<(usize, usize), [u64; 6]> = Default::default();
        for (cpu, r) in new.iter().filter(|(_, r)| r.stack == 0 && r.tgid() != OTHERS) {
            let sum = sums.entry((*cpu, r.cause())).or_default();
            let add = if r.received() {
                [0, 0, 0, 0, r.calls, r.wait]
            } else {
                [r.calls, r.targets, r.ipis, r.wait, 0, 0]
            };
            sum.iter_mut().zip(add).for_each(|(s, a)| *s += a);
        }
        let mut out = ncpu_schema::crosscall_cpus::TABLE.builder();
        for ((cpu, cause), [calls, targets, ipis, wait, received, ns]) in sums {
            out.row()
                .int(cpu as u64)
                .text(CAUSES[cause])
                .int(calls)
                .int_opt(self.tells_targets(cause).then_some(targets))
                .int_opt(self.has.ipi.then_some(ipis))
                .float_opt(self.has.csd.then_some(wait as f64 / 1e9))
                .int(received)
                .float(ns as f64 / 1e9);
        }
        out.finish()
    }

    /// `crosscall_fanout` and `tlb_flushes`.
    fn counter_tables(&mut self) -> [Table; 2] {
        let mut fanout = [[0u64; BUCKETS]; 4];
        let mut flushes = [[0u64; 3]; FLUSHES.len()];
        for i in 0..self.cpus.len() {
            let now = self.cpus.get(i);
            let before = self.cpus_before.insert(i, now).unwrap_or_default();
            for (cause, sums) in fanout.iter_mut().enumerate() {
                for (b, sum) in sums.iter_mut().enumerate() {
                    // A call under way may yet move to the next bucket.
                    *sum += now.fanout[cause][b].saturating_sub(before.fanout[cause][b]);
                }
            }
            for (reason, sums) in flushes.iter_mut().enumerate() {
                sums[0] += now.flushes[reason] - before.flushes[reason];
                sums[1] += now.pages[reason] - before.pages[reason];
                sums[2] += now.whole[reason] - before.whole[reason];
            }
        }
        let mut out = ncpu_schema::crosscall_fanout::TABLE.builder();
        for (cause, buckets) in fanout.iter().enumerate().filter(|(c, _)| self.tells_targets(*c)) {
            for (b, &calls) in buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
                let (from, to) = bounds(b);
                out.row().text(CAUSES[cause]).int(from).int(to).int(calls);
            }
        }
        let mut reasons = ncpu_schema::tlb_flushes::TABLE.builder();
        for (reason, [count, pages, whole]) in flushes.into_iter().enumerate().filter(|(_, f)| f[0] > 0) {
            reasons.row().text(FLUSHES[reason]).int(count).int(pages).int(whole);
        }
        [out.finish(), reasons.finish()]
    }

    /// Ends counting and hands over the last rows, with the summary; returns what could not be observed,
    /// a line each.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(
        mut self,
        sink: &mut dyn FnMut(&Table) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<String>, E> {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 0;
        }
        let elapsed = monotonic_ns().saturating_sub(self.began) as f64 / 1e9;
        self.tick(sink)?;
        let [mut samples, mut waiting, mut rows, mut stacks] = [0; 4];
        for i in 0..self.cpus.len() {
            let c = self.cpus.get(i);
            samples += c.samples;
            waiting += c.waiting;
            rows += c.dropped_rows;
            stacks += c.dropped_stacks;
        }
        let mut summary = crosscall_summary::Rows::new();
        summary.push(crosscall_summary::Row {
            elapsed: Some(elapsed),
            cpus: Some(self.online as u64),
            packages: Some(self.packages as u64),
            hz: Some(self.hz.into()),
            samples: Some(samples),
            waiting: Some(waiting),
            targets_told: Some((self.has.csd || self.has.ipi).into()),
            senders_told: Some(self.has.ipi.into()),
        });
        sink(&summary.finish())?;
        let mut drops = drops::Rows::new();
        for (what, n) in [("calls (table full)", rows), ("stacks (ring buffer full)", stacks)] {
            if n > 0 {
                drops.push(drops::Row { what: what.into(), count: Some(n) });
            }
        }
        if !drops.is_empty() {
            sink(&drops.finish())?;
        }
        Ok(self.notes)
    }
}

/// Fewest and most targets of a call in a bucket: 0, 1, 2, 3–4, 5–8 and so on.
fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        1 => (1, 1),
        b => ((1 << (b - 2)) + 1, 1 << (b - 1)),
    }
}

/// This machine's packages, or `packages` of equal size.
///
/// # Errors
/// The machine's topology cannot be read.
pub fn package_of(packages: Option<u32>) -> std::result::Result<Vec<u32>, ncpu_machine::Error> {
    let machine = ncpu_machine::Topology::read(Path::new("/"))?;
    let cpus = machine.possible.last().map_or(1, |last| last as usize + 1);
    Ok(match packages {
        Some(n) => packages::spread(cpus, n),
        None => packages::of(&machine, cpus),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_no_gap() {
        assert_eq!([bounds(0), bounds(1), bounds(2), bounds(3)], [(0, 0), (1, 1), (2, 2), (3, 4)]);
        for b in 1..BUCKETS {
            assert_eq!(bounds(b).0, bounds(b - 1).1 + 1);
        }
        assert_eq!(bounds(BUCKETS - 1).1, 4096);
    }
}

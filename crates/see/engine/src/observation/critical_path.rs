//! The threads that idle CPUs waited for, as table `critical_path`.
//!
//! While threads of the program run, each timer sample of one stands for its share of the CPUs that idled at that moment.
//! While none runs, the kernel side charges the idle time to the wait that ended next. A thread that waits for
//! another is not in the table: the other is.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ncpu_machine::process;
use ncpu_schema::{IdleReason, critical_path};
use ncpu_symbols::Pythons;
use ncpu_table::Table;

use super::bounds::Names;
use crate::bpf_support::Stack;
use crate::bpf_support::namespace::process_dir;
use crate::engine::{Cause, Charged, Idling, Snapshot, Wait};
use crate::names::waits::is_wait_function;
use crate::names::{Symbols, call_name, fold, without_probe};

/// Functions that a row names.
const FUNCTIONS: usize = 3;

/// CPUs up to which each sample of code that spins is looked at, and threads that are charged for it at most.
const LOOKED_AT: usize = 64;
const MOST_RUNNING: usize = 16;

/// Rows of a reason that are reported one by one; smaller ones are put together.
const MOST: usize = 500;

type Sums = [(f64, f64); Idling::REASONS.len()];

/// The samples of the current interval.
#[derive(Default)]
pub(super) struct CriticalPath {
    /// CPUs and looks by stack, each in parts of a sample.
    running: HashMap<Stack, (Sums, u64)>,
    /// The last sample of each CPU, and whether it was of code that spins.
    last: HashMap<u32, (u64, Stack, bool)>,
    /// Stacks that spin, with one that ran meanwhile: CPU-seconds, and for how long.
    spun: HashMap<(Stack, Stack), (f64, f64, u64)>,
    /// Samples of code that spins. With many CPUs, every Nth is looked at.
    spins: usize,
    /// Idle time that no sample has been charged for yet: ns of CPUs, and ns in which there were any.
    left: [(u64, u64); Idling::REASONS.len()],
}

/// The key of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    reason: usize,
    process: String,
    thread: String,
    doing: String,
    code: String,
    stack: String,
}

impl CriticalPath {
    /// A sample of a thread of the program, and who idled meanwhile.
    pub fn sample(&mut self, stack: &Stack, idling: Idling) {
        let (running, samples) = (f64::from(idling.running), f64::from(idling.samples));
        if idling.running == 0 || idling.cpus == [0; Idling::REASONS.len()] {
            return;
        }
        let (sums, n) = self.running.entry(Stack { tid: 0, ..stack.clone() }).or_default();
        *n += 1;
        for (sum, &cpus) in sums.iter_mut().zip(&idling.cpus).filter(|(_, cpus)| **cpus > 0) {
            sum.0 += samples * f64::from(cpus) / running;
            sum.1 += samples / running;
        }
    }

    /// A sample of a thread of the program on a CPU. One that spins waits for those of its process which run meanwhile and do not
    /// spin: each other CPU was sampled no longer than a period ago.
    pub fn beside(&mut self, stack: &Stack, spins: bool, cpu: u32, time: u64, hz: u32) {
        let stack = Stack { tid: 0, ..stack.clone() };
        let period = 1.0 / f64::from(hz.max(1));
        self.spins += usize::from(spins);
        let every = (self.last.len() / LOOKED_AT).max(1);
        if spins && self.spins.is_multiple_of(every) {
            let lately = time.saturating_sub((1.5e9 * period) as u64);
            let others = || {
                let own = |(of, (at, other, _)): &(&u32, &(u64, Stack, bool))| {
                    **of != cpu && *at >= lately && other.tgid == stack.tgid
                };
                self.last.iter().filter(own).map(|(_, (_, other, spins))| (other, *spins))
            };
            let running = others().filter(|(_, spins)| !spins).take(MOST_RUNNING);
            let running: Vec<Stack> = running.map(|(stack, _)| stack.clone()).collect();
            let part = period * every as f64 / running.len().max(1) as f64;
            // Those that spin at once wait at once.
            let spinning = 1 + others().filter(|(_, spins)| *spins).count();
            for other in running {
                let sum = self.spun.entry((stack.clone(), other)).or_default();
                add(sum, part, part / spinning as f64, 1);
            }
        }
        self.last.insert(cpu, (time, stack, spins));
    }

    /// The table of an interval: of the samples, and of the rows of the kernel side.
    #[allow(clippy::too_many_arguments)]
    pub fn table(
        &mut self,
        t: f64,
        rows: &[Charged],
        [before, now]: [&Snapshot; 2],
        stack_of: &dyn Fn(u64) -> Option<Stack>,
        symbols: &mut Symbols,
        processes: &Names,
        spins_for: &dyn Fn(&[Arc<str>]) -> Option<IdleReason>,
    ) -> Table {
        let mut sums: HashMap<Key, (f64, f64, u64)> = HashMap::new();
        let name = |tgid: u32, otherwise: &str| processes.of(tgid).unwrap_or(otherwise).to_string();
        // Samples are scaled to the idle time that the leader saw.
        let mut scale = [(0.0, 0.0); Idling::REASONS.len()];
        for (i, reason) in Idling::REASONS.into_iter().enumerate() {
            let (now, before) = (now.busy[reason as usize], before.busy[reason as usize]);
            self.left[i].0 += now.0.saturating_sub(before.0);
            self.left[i].1 += now.1.saturating_sub(before.1);
            let weight =
                |of: fn(&(f64, f64)) -> f64| self.running.values().map(|(s, _)| of(&s[i])).sum::<f64>();
            let (cpus, looks) = (weight(|s| s.0), weight(|s| s.1));
            if cpus > 0.0 && looks > 0.0 {
                let left = std::mem::take(&mut self.left[i]);
                scale[i] = (left.0 as f64 / 1e9 / cpus, left.1 as f64 / 1e9 / looks);
            }
        }
        for (stack, (weights, n)) in self.running.drain() {
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let key = Key {
                process: name(stack.tgid, &stack.comm),
                doing: "running".into(),
                code: code(&without(&user, symbols.of_interpreter(stack.tgid, &stack.user)), &kernel),
                stack: fold(&stack.comm, &user, &kernel),
                thread: stack.comm,
                reason: 0,
            };
            for ((reason, weight), scale) in Idling::REASONS.into_iter().zip(weights).zip(scale) {
                if weight.0 > 0.0 {
                    let sum = sums.entry(Key { reason: reason as usize, ..key.clone() }).or_default();
                    add(sum, weight.0 * scale.0, weight.1 * scale.1, n);
                }
            }
        }
        for ((spinning, stack), sum) in self.spun.drain() {
            let Some(reason) = spins_for(&symbols.user(spinning.tgid, &spinning.user)) else { continue };
            let kernel = symbols.kernel(&stack.kernel);
            let user = symbols.user(stack.tgid, &stack.user);
            let key = Key {
                reason: reason as usize,
                process: name(stack.tgid, &stack.comm),
                doing: "running".into(),
                code: code(&without(&user, symbols.of_interpreter(stack.tgid, &stack.user)), &kernel),
                stack: fold(&stack.comm, &user, &kernel),
                thread: stack.comm,
            };
            add(sums.entry(key).or_default(), sum.0, sum.1, sum.2);
        }
        for row in rows {
            let stack = stack_of(row.stack);
            let (user, kernel) = stack.as_ref().map_or_else(Default::default, |s| {
                (symbols.user(s.tgid, &s.user), symbols.kernel(&s.kernel))
            });
            let interpreter = stack.as_ref().map_or(0..0, |s| symbols.of_interpreter(s.tgid, &s.user));
            let kernel = without_probe(&kernel);
            let process = name(row.tgid, "[gone]");
            let thread = stack.as_ref().map_or_else(|| process.clone(), |s| s.comm.clone());
            let key = Key {
                reason: row.reason,
                doing: doing(row, &name),
                code: code(&without(&user, interpreter), &[]),
                stack: fold(&thread, &user, kernel),
                process,
                thread,
            };
            add(sums.entry(key).or_default(), row.idle as f64 / 1e9, row.time as f64 / 1e9, row.count);
        }
        for (reason, (now, before)) in now.queued.iter().zip(before.queued).enumerate() {
            let ns = now.saturating_sub(before);
            if ns > 0 {
                let key = Key { reason, doing: "about to run: on a run queue".into(), ..Key::default() };
                add(sums.entry(key).or_default(), ns as f64 / 1e9, 0.0, 1);
            }
        }
        table(t, sums)
    }

    /// Idle time that no wake-up had ended when the observation ended.
    pub fn rest(&self, now: &Snapshot) -> Table {
        let pending = now.pending.iter().enumerate().filter(|(_, p)| p.0 > 0).map(|(reason, p)| {
            let key =
                Key { reason, doing: "waiting till the end of the observation".into(), ..Key::default() };
            (key, (p.0 as f64 / 1e9, p.1 as f64 / 1e9, 1))
        });
        let left = Idling::REASONS.iter().zip(&self.left).filter(|(_, l)| l.0 > 0).map(|(reason, l)| {
            let key = Key { reason: *reason as usize, doing: "running, unsampled".into(), ..Key::default() };
            (key, (l.0 as f64 / 1e9, l.1 as f64 / 1e9, 0))
        });
        table(now.elapsed, pending.chain(left).collect())
    }
}

fn add(sum: &mut (f64, f64, u64), idle: f64, seconds: f64, count: u64) {
    sum.0 += idle;
    sum.1 += seconds;
    sum.2 += count;
}

/// The rows as a table, the smallest of many put together.
fn table(t: f64, sums: HashMap<Key, (f64, f64, u64)>) -> Table {
    let mut rows: Vec<(Key, (f64, f64, u64))> = sums.into_iter().collect();
    rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then_with(|| a.0.stack.cmp(&b.0.stack)));
    let mut small: HashMap<(usize, String), (f64, f64, u64)> = HashMap::new();
    for (key, sum) in rows.split_off(rows.len().min(MOST)) {
        let into = small.entry((key.reason, key.doing)).or_default();
        add(into, sum.0, sum.1, sum.2);
    }
    rows.extend(small.into_iter().map(|((reason, doing), sum)| {
        (Key { reason, doing, process: ncpu_table::OTHERS.into(), ..Key::default() }, sum)
    }));
    let mut out = critical_path::Rows::new();
    let some = |s: String| (!s.is_empty()).then_some(s);
    for (key, (idle, seconds, count)) in rows {
        out.push(critical_path::Row {
            reason: IdleReason::ALL.get(key.reason).copied(),
            process: some(key.process).into(),
            thread: some(key.thread).into(),
            doing: key.doing.into(),
            code: some(key.code).into(),
            stack: key.stack.into(),
            idle: Some(idle),
            seconds: Some(seconds),
            count: Some(count),
            time: Some(t),
        });
    }
    out.finish()
}

/// The reason of the wait that ended.
fn doing(row: &Charged, name: &dyn Fn(u32, &str) -> String) -> String {
    let call = row.call.map(call_name);
    let in_call = call.as_deref().map_or(String::new(), |call| format!(" in {call}"));
    let sleeps = matches!(call.as_deref(), Some("nanosleep" | "clock_nanosleep"));
    match row.cause {
        _ if row.wait == Wait::Io => format!("waiting for I/O{in_call}"),
        _ if sleeps => format!("asleep for a time{in_call}"),
        Cause::Program if row.waker == row.tgid => {
            format!("waiting for another thread of the program{in_call}")
        }
        Cause::Program | Cause::Other => {
            let by = name(row.waker, "");
            let otherwise = match row.cause {
                Cause::Program => "another process of the program",
                _ => "another program",
            };
            let by = if by.is_empty() { comm(row.waker).unwrap_or(otherwise.into()) } else { by };
            format!("waiting for {by}{in_call}")
        }
        Cause::Kernel => format!("waiting for the kernel{in_call}"),
        Cause::Timer => format!("waiting for a timer{in_call}"),
        Cause::Unknown => format!("waiting{in_call}"),
    }
}

/// The name of a process that is not observed, if it lives still.
fn comm(pid: u32) -> Option<String> {
    process::name(&process_dir(pid))
}

/// The innermost functions that are the program's own: `parse_input <- load_config`.
fn code(user: &[Arc<str>], kernel: &[Arc<str>]) -> String {
    let own =
        |f: &&Arc<str>| !f.starts_with('[') && !f.starts_with("__") && !is_wait_function(f) && !is_call(f);
    // C functions between functions of Python are the interpreter's.
    let python = user.iter().position(|f| Pythons::is_function(f));
    let own = |(at, f): &(usize, &Arc<str>)| {
        own(f) && python.is_none_or(|first| Pythons::is_function(f) || *at < first)
    };
    let told: Vec<&str> = user.iter().enumerate().filter(own).take(FUNCTIONS).map(|(_, f)| &**f).collect();
    match (told.is_empty(), user.first().or(kernel.first())) {
        (true, Some(first)) => first.to_string(),
        _ => told.join(" <- "),
    }
}

/// All frames but those of a range.
fn without(frames: &[Arc<str>], range: Range<usize>) -> Vec<Arc<str>> {
    [&frames[..range.start], &frames[range.end..]].concat()
}

/// Whether a function is the C library's for a call that sleeps: its caller says more.
fn is_call(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    [
        "nanosleep",
        "clock_nanosleep",
        "usleep",
        "sleep",
        "poll",
        "ppoll",
        "select",
        "pselect",
        "epoll_wait",
        "epoll_pwait",
        "recv",
        "recvfrom",
        "recvmsg",
        "accept",
        "accept4",
        "read",
        "pread",
        "pread64",
        "readv",
        "write",
        "pwrite",
        "pwrite64",
        "writev",
        "send",
        "sendto",
        "sendmsg",
        "wait",
        "wait4",
        "waitpid",
        "waitid",
        "fsync",
        "fdatasync",
        "msync",
        "connect",
        "clone",
        "clone3",
        "start_thread",
        "_start",
    ]
    .contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|n| Arc::from(*n)).collect()
    }

    #[test]
    fn code_is_the_programs_own() {
        let stack =
            frames(&["__memmove_avx_unaligned", "[unknown libc.so.6]", "parse", "load", "main", "_start"]);
        assert_eq!(code(&stack, &[]), "parse <- load <- main");
        assert_eq!(code(&frames(&["clock_nanosleep@GLIBC_2.17", "nanosleep", "nap"]), &[]), "nap");
        assert_eq!(code(&frames(&["[unknown a]", "[unknown b]"]), &[]), "[unknown a]");
        assert_eq!(code(&[], &frames(&["do_exit"])), "do_exit");
        assert_eq!(code(&[], &[]), "");
    }

    #[test]
    fn who_spins_waits_for_those_that_run() {
        let mut path = CriticalPath::default();
        let stack = |comm: &str, tgid| Stack { tgid, comm: comm.into(), ..Stack::default() };
        let tick = 10_000_000;
        for at in 1..=20 {
            path.beside(&stack("runs", 1), false, 0, at * tick, 100);
            path.beside(&stack("foreign", 2), false, 2, at * tick, 100);
            path.beside(&stack("spins", 1), true, 1, at * tick + 5, 100);
        }
        // It ran long ago.
        path.beside(&stack("spins", 1), true, 1, 100 * tick, 100);
        let snapshot = Snapshot::default();
        let told =
            path.table(1.0, &[], [&snapshot; 2], &|_| None, &mut Symbols::new(), &Names::new(), &|_| {
                Some(IdleReason::Serial)
            });
        assert_eq!(told.num_rows(), 1);
        assert_eq!((told.text(0, "reason"), told.text(0, "thread")), (Some("serial"), Some("runs")));
        assert!((told.number(0, "idle").unwrap() - 0.2).abs() < 1e-9, "{:?}", told.number(0, "idle"));
    }

    #[test]
    fn samples_weigh_what_the_leader_saw_and_nothing_is_lost() {
        let mut path = CriticalPath::default();
        let stack = |comm: &str| Stack { tgid: 1, comm: comm.into(), ..Stack::default() };
        // Three CPUs idle while one thread runs, then two while two run.
        (0..30).for_each(|_| path.sample(&stack("a"), Idling { samples: 1, running: 1, cpus: [3, 0, 0] }));
        for name in ["a", "b"] {
            (0..10)
                .for_each(|_| path.sample(&stack(name), Idling { samples: 1, running: 2, cpus: [2, 0, 0] }));
        }
        let mut now = Snapshot::default();
        now.busy[IdleReason::Serial as usize] = (11_000_000_000, 4_000_000_000);
        now.busy[IdleReason::UserLock as usize] = (500_000_000, 500_000_000);
        now.queued[IdleReason::RunQueue as usize] = 250_000_000;
        let wait = Charged {
            tgid: 1,
            cause: Cause::Program,
            call: None,
            waker: 0,
            stack: 0,
            wait: Wait::Asleep,
            reason: IdleReason::Asleep as usize,
            count: 3,
            idle: 2_000_000_000,
            time: 1_000_000_000,
        };
        let mut symbols = Symbols::new();
        let table = path.table(
            1.0,
            &[wait],
            [&Snapshot::default(), &now],
            &|_| None,
            &mut symbols,
            &Names::new(),
            &|_| None,
        );
        let rest = path.rest(&Snapshot { pending: [(1_000_000_000, 500_000_000); 6], ..now.clone() });
        let idle = |t: &Table, keep: &dyn Fn(usize) -> bool| -> f64 {
            (0..t.num_rows()).filter(|&r| keep(r)).filter_map(|r| t.number(r, "idle")).sum()
        };
        let of = |thread: &str| idle(&table, &|r| table.text(r, "thread") == Some(thread));
        // 90 + 10 CPUs of "a" to 10 of "b".
        assert!((of("a") - 10.0).abs() < 1e-9 && (of("b") - 1.0).abs() < 1e-9, "{table:?}");
        assert!((idle(&table, &|_| true) - 13.25).abs() < 1e-9, "{table:?}");
        assert!((idle(&rest, &|_| true) - 6.5).abs() < 1e-9, "no sample of the user lock's: {rest:?}");
    }
}

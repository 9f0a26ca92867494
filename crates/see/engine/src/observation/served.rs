//! Tables `served`, `served_parts` and `slow_requests`: requests of clients, and what they waited for.

use std::collections::BTreeMap;
use std::collections::HashMap;

use ncpu_schema::{Activity, served, served_parts, slow_requests};
use ncpu_table::Table;

use super::bounds::{self, OTHERS_NAME};
use super::locks::LockTables;
use super::thread_time::meaning;
use crate::engine::{
    CalledFunction, Engine, Life, Protocol, RequestRow, RequestWait, Slow, TimeRow, latency_bin,
};
use crate::names::Symbols;

/// Kinds of requests that have rows of their own in an interval: those with most time.
const KINDS: usize = 24;
/// Objects of a kind of wait that have rows of their own in a bin.
const OBJECTS: usize = 4;
/// Slowest requests of an interval that are kept.
const SLOWEST: usize = 10;

/// By which things are named.
pub(super) struct Names<'a> {
    pub locks: &'a mut LockTables,
    pub symbols: &'a mut Symbols,
    pub processes: &'a bounds::Names,
    pub threads: &'a bounds::Names,
    pub functions: &'a [CalledFunction],
    /// The reasons for which goroutines wait, by their numbers, if a process runs a program of Go.
    pub go_wait_reasons: &'a dyn Fn(u32) -> Option<&'a [String]>,
}

impl Names<'_> {
    fn process(&self, tgid: u32) -> String {
        self.processes.of(tgid).unwrap_or("[gone]").into()
    }

    /// Kind and object of a wait of a request of a process.
    fn wait(&mut self, tgid: u32, wait: RequestWait, row: &TimeRow) -> (Activity, Option<String>) {
        // Threads turn to other goroutines while one waits, and whichever is free goes on with it.
        if let RequestWait::Aside | RequestWait::Handed = wait
            && let Some(reasons) = (self.go_wait_reasons)(tgid)
        {
            let reason = row.what.checked_sub(2).and_then(|number| reasons.get(number as usize));
            return (Activity::Parked, reason.filter(|text| !text.is_empty()).cloned());
        }
        match wait {
            RequestWait::Asleep(_) => match meaning(row, false, self.locks, self.symbols) {
                // In a request a thread does not wait for the next.
                (Activity::Idle, what) => (Activity::Thread, what),
                known => known,
            },
            RequestWait::Queued => (Activity::RunQueue, self.ran(row.what.saturating_sub(2) as u32)),
            RequestWait::Held => (Activity::Quota, None),
            RequestWait::Unread => (Activity::Unread, behind(row)),
            RequestWait::Aside => (Activity::Aside, behind(row)),
            RequestWait::Thread => (Activity::Thread, None),
            RequestWait::Handed | RequestWait::Whole => (Activity::Handed, None),
        }
    }

    /// The name of a process that ran meanwhile.
    fn ran(&self, tgid: u32) -> Option<String> {
        if tgid == 0 {
            return None;
        }
        let known = self.processes.of(tgid).map(String::from);
        known.or_else(|| super::queued::named(tgid))
    }

    fn holder(&self, row: &TimeRow) -> Option<String> {
        (row.holder != 0).then(|| self.threads.of(row.holder).map(String::from)).flatten()
    }
}

/// The longest part of the request that its thread served while another waited.
fn behind(row: &TimeRow) -> Option<String> {
    row.what.checked_sub(2).map(|wait| busy_with(RequestWait::new(wait as u32)).into())
}

/// The longest part of a request that another waited for.
fn busy_with(wait: RequestWait) -> &'static str {
    match wait {
        RequestWait::Whole => "on CPU",
        RequestWait::Queued => "waiting for a CPU",
        RequestWait::Held => "quota",
        RequestWait::Unread => "unread",
        RequestWait::Aside => "set aside",
        RequestWait::Handed => "handed over",
        RequestWait::Thread => "another thread",
        RequestWait::Asleep(life) => match life {
            Life::Futex => "futex",
            Life::KernelLock => "kernel lock",
            Life::FileLock => "file lock",
            Life::Semaphore => "semaphore",
            Life::MessageQueue => "message queue",
            Life::Device => "device",
            Life::Fault => "page fault",
            Life::Socket => "socket",
            Life::Pipe => "pipe",
            Life::Events => "events",
            Life::Timer => "timer",
            Life::Child => "child",
            Life::Stopped => "stopped",
            Life::Rest | Life::Passed | Life::ByFile | Life::Queued => "asleep",
        },
    }
}

/// A part of the requests of a bin.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    count: u64,
    ns: u64,
    max: u64,
    row: TimeRow,
}

impl Part {
    fn add(&mut self, other: &Part) {
        self.count += other.count;
        self.ns += other.ns;
        self.max = self.max.max(other.max);
        self.row.add(&other.row);
    }
}

/// Process and request.
type Kind = (String, String);

/// Requests that have the same name, whatever else they were.
fn kinds(rows: &[RequestRow], names: &Names) -> HashMap<(u32, u64), Kind> {
    let mut sums: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.wait == RequestWait::Whole) {
        *sums.entry((row.tgid, row.kind)).or_default() += row.ns;
    }
    let mut order: Vec<((u32, u64), u64)> = sums.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let named = order.into_iter().enumerate().map(|(at, (key, _))| {
        let request = if at < KINDS { Protocol::name(key.1, names.functions) } else { OTHERS_NAME.into() };
        (key, (names.process(key.0), request))
    });
    named.collect()
}

/// The tables of an interval.
pub(super) fn tables(t: f64, rows: &[RequestRow], names: &mut Names) -> [Table; 2] {
    let kinds = kinds(rows, names);
    let mut whole: BTreeMap<(Kind, u32), Part> = BTreeMap::new();
    let mut parts: BTreeMap<(Kind, u32, Activity, Option<String>), Part> = BTreeMap::new();
    for row in rows {
        // Those whose whole found no room.
        let Some(kind) = kinds.get(&(row.tgid, row.kind)).cloned() else { continue };
        let part = Part { count: row.count, ns: row.ns, max: row.max, row: row.what };
        if row.wait == RequestWait::Whole {
            whole.entry((kind.clone(), row.bin)).or_default().add(&part);
            for (doing, ns) in [(Activity::User, row.user), (Activity::System, row.system)] {
                let on = Part { count: row.count, ns, ..Part::default() };
                parts.entry((kind.clone(), row.bin, doing, None)).or_default().add(&on);
            }
            continue;
        }
        let (doing, what) = names.wait(row.tgid, row.wait, &row.what);
        parts.entry((kind, row.bin, doing, what)).or_default().add(&part);
    }
    let mut served = served::Rows::new();
    for (((process, request), bin), part) in whole {
        let (from, to) = latency_bin(bin);
        served.push(served::Row {
            time: Some(t),
            process: process.into(),
            request: request.into(),
            from: Some(from as f64 / 1e3),
            to: Some(to as f64 / 1e3),
            count: Some(part.count),
            seconds: Some(part.ns as f64 / 1e9),
            max: Some(part.max as f64 / 1e3),
        });
    }
    let mut out = served_parts::Rows::new();
    for ((kind, bin, doing, what), part) in few(parts) {
        let (from, to) = latency_bin(bin);
        out.push(served_parts::Row {
            time: Some(t),
            process: kind.0.into(),
            request: kind.1.into(),
            from: Some(from as f64 / 1e3),
            to: Some(to as f64 / 1e3),
            doing: Some(doing),
            what: what.into(),
            count: Some(part.count),
            seconds: Some(part.ns as f64 / 1e9),
            max: (part.max > 0).then_some(part.max as f64 / 1e3),
            holder: names.holder(&part.row).into(),
        });
    }
    [served.finish(), out.finish()]
}

type Parts = BTreeMap<(Kind, u32, Activity, Option<String>), Part>;

/// The objects with most time keep their names.
fn few(parts: Parts) -> Parts {
    let mut sizes: BTreeMap<(Kind, u32, Activity), Vec<u64>> = BTreeMap::new();
    for ((kind, bin, doing, _), part) in &parts {
        sizes.entry((kind.clone(), *bin, *doing)).or_default().push(part.ns);
    }
    sizes.values_mut().for_each(|of| of.sort_unstable_by(|a, b| b.cmp(a)));
    let mut out = Parts::new();
    for ((kind, bin, doing, what), part) in parts {
        let key = (kind, bin, doing);
        let least = sizes.get(&key).and_then(|of| of.get(OBJECTS)).copied();
        let what = if least.is_some_and(|least| part.ns <= least) { Some(OTHERS_NAME.into()) } else { what };
        out.entry((key.0, bin, doing, what)).or_default().add(&part);
    }
    out
}

/// The slowest requests of an interval.
#[derive(Debug, Default)]
pub(super) struct SlowRequests(Vec<Slow>);

impl SlowRequests {
    /// Takes in one.
    pub fn met(&mut self, slow: Slow) {
        self.0.push(slow);
        if self.0.len() >= 4 * SLOWEST {
            self.keep_slowest();
        }
    }

    fn keep_slowest(&mut self) {
        self.0.sort_by(|a, b| b.took.cmp(&a.took).then(a.began.cmp(&b.began)));
        self.0.truncate(SLOWEST);
    }

    /// The table of the interval.
    pub fn table(&mut self, t: f64, engine: &Engine, names: &mut Names) -> Table {
        self.keep_slowest();
        let mut rows = slow_requests::Rows::new();
        for slow in std::mem::take(&mut self.0) {
            let mut push = |doing, what: Option<String>, ns: u64, holder: Option<String>, process: String| {
                rows.push(slow_requests::Row {
                    time: Some(t),
                    process: process.into(),
                    thread: Some(slow.tid.into()),
                    request: Protocol::name(slow.kind, names.functions).into(),
                    began: Some(engine.since_begin(slow.began)),
                    latency: Some(slow.took as f64 / 1e3),
                    doing: Some(doing),
                    what: what.into(),
                    seconds: Some(ns as f64 / 1e9),
                    holder: holder.into(),
                });
            };
            for (doing, ns) in [(Activity::User, slow.user), (Activity::System, slow.system)] {
                push(doing, None, ns, None, names.process(slow.tgid));
            }
            for (wait, row) in &slow.parts {
                let (doing, what) = names.wait(slow.tgid, *wait, row);
                push(doing, what, row.ns, names.holder(row), names.process(slow.tgid));
            }
        }
        rows.finish()
    }
}

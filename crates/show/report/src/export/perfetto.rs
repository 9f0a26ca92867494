//! A trace as Perfetto reads it (perfetto_trace.proto of github.com/google/perfetto): tracks of counters, by interval.
//!
//! A recording's tables tell sums of intervals and not single events, so a track steps from interval to interval. Stacks
//! have no time in a recording and are not in the trace.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::{CpuState, Error, IdleReason, Microstate, cpu_time, idle_time, threads};

use super::wire::Message;

/// Threads that have tracks: those with most time on CPU or spinning.
const THREADS: usize = 500;

/// The only sequence of packets.
const SEQUENCE: u64 = 1;
/// `TrackEvent.Type.TYPE_COUNTER`.
const COUNTER: u64 = 4;
/// `BuiltinClock`: times count from the beginning of the observation.
const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;

/// Values of tracks by the time at which they begin.
#[derive(Default)]
struct Trace {
    descriptors: Vec<Message>,
    values: Vec<(u64, u64, f64)>,
    next: u64,
}

impl Trace {
    /// Another track; its number.
    fn track(&mut self, describe: impl FnOnce(Message) -> Message) -> u64 {
        self.next += 1;
        self.descriptors.push(describe(Message::default().int(1, self.next)));
        self.next
    }

    /// A track that groups others.
    fn group(&mut self, name: &str) -> u64 {
        self.track(|t| t.text(2, name))
    }

    fn counter(&mut self, parent: u64, name: &str) -> u64 {
        self.track(|t| t.text(2, name).int(5, parent).message(8, Message::default().text(6, "CPUs")))
    }

    fn finish(mut self, created: f64) -> Vec<u8> {
        let clock = |id, at| Message::default().int(1, id).int(2, at);
        let clocks = Message::default()
            .message(1, clock(BOOTTIME, 0))
            .message(1, clock(REALTIME, nanoseconds(created)))
            .int(2, BOOTTIME);
        let packet = || Message::default().int(10, SEQUENCE);
        // SEQ_INCREMENTAL_STATE_CLEARED.
        let mut out = Message::default().message(1, packet().int(13, 1).message(6, clocks));
        for descriptor in self.descriptors {
            out = out.message(1, packet().message(60, descriptor));
        }
        self.values.sort_by_key(|(at, track, _)| (*at, *track));
        for (at, track, value) in self.values {
            let event = Message::default().int(9, COUNTER).int(11, track).double(44, value);
            out = out.message(1, packet().int(8, at).message(11, event));
        }
        out.finish()
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9).round() as u64
}

/// Where each interval begins, by the bits of its end; and the last end.
struct Intervals {
    begins: BTreeMap<u64, f64>,
    last: f64,
}

impl Intervals {
    fn of(times: impl Iterator<Item = Option<f64>>) -> Intervals {
        let ends: BTreeMap<u64, f64> =
            times.flatten().filter(|t| t.is_finite() && *t > 0.0).map(|t| (t.to_bits(), t)).collect();
        let begins = std::iter::once(0.0).chain(ends.values().copied());
        let last = ends.values().last().copied().unwrap_or(0.0);
        Intervals { begins: ends.keys().copied().zip(begins).collect(), last }
    }

    /// The beginning of the interval that ends at a time, and its length.
    fn at(&self, end: Option<f64>) -> Option<(f64, f64)> {
        let end = end?;
        let begin = *self.begins.get(&end.to_bits())?;
        (end > begin).then_some((begin, end - begin))
    }
}

/// The tracks of a recording: what the CPUs did, all together and each; what idle ones waited for; what threads did.
/// Values are numbers of CPUs: 0.5 is half of the interval.
///
/// # Errors
/// A table is not as the schema has it.
pub fn perfetto(recording: &Recording) -> Result<Vec<u8>, Error> {
    let mut trace = Trace::default();
    if let Some(table) = cpu_time::Reader::open(recording)? {
        cpus(&mut trace, &table);
    }
    if let Some(table) = idle_time::Reader::open(recording)? {
        let times = Intervals::of(table.rows().map(|r| table.time.get(r)));
        let group = trace.group("idle for");
        for reason in IdleReason::ALL {
            if table.spent.sum(reason) > 0.0 {
                let track = trace.counter(group, reason.name());
                let rows = table.rows().map(|r| (table.time.get(r), table.spent.get(r, reason)));
                put(&mut trace, track, &times, rows);
            }
        }
    }
    if let Some(table) = threads::Reader::open(recording)? {
        thread_tracks(&mut trace, &table);
    }
    Ok(trace.finish(recording.manifest.created_unix))
}

/// Puts seconds of intervals on a track, as CPUs, and 0 behind the last.
fn put(
    trace: &mut Trace,
    track: u64,
    times: &Intervals,
    rows: impl Iterator<Item = (Option<f64>, Option<f64>)>,
) {
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    let mut until = 0;
    for (time, seconds) in rows {
        let (Some((begin, length)), Some(seconds)) = (times.at(time), seconds) else { continue };
        *sums.entry(nanoseconds(begin)).or_default() += seconds / length;
        until = until.max(nanoseconds(begin + length));
    }
    let end = if until > 0 { until } else { nanoseconds(times.last) };
    // A thread that has ended, or was not there in between, has no row: it did nothing.
    let mut before: Option<u64> = None;
    let begins: Vec<u64> = times.begins.values().map(|&b| nanoseconds(b)).collect();
    for begin in begins.into_iter().filter(|&b| b < end) {
        match sums.get(&begin) {
            Some(&value) => trace.values.push((begin, track, value)),
            None if before.is_some_and(|b| sums.contains_key(&b)) => trace.values.push((begin, track, 0.0)),
            None => {}
        }
        before = Some(begin);
    }
    trace.values.push((end, track, 0.0));
}

fn cpus(trace: &mut Trace, table: &cpu_time::Reader<'_>) {
    let times = Intervals::of(table.rows().map(|r| table.time.get(r)));
    let mut of: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for row in table.rows() {
        of.entry(table.cpu.get(row).unwrap_or(0)).or_default().push(row);
    }
    let states: Vec<CpuState> =
        CpuState::ALL.into_iter().filter(|&s| s != CpuState::Idle && table.spent.sum(s) > 0.0).collect();
    let group = trace.group("all CPUs");
    for &state in &states {
        let track = trace.counter(group, state.name());
        put(trace, track, &times, table.rows().map(|r| (table.time.get(r), table.spent.get(r, state))));
    }
    for (cpu, rows) in of {
        let group = trace.group(&format!("CPU {cpu}"));
        for &state in &states {
            let seconds = |&r: &usize| (table.time.get(r), table.spent.get(r, state));
            if rows.iter().map(seconds).any(|(_, s)| s.is_some_and(|s| s > 0.0)) {
                let track = trace.counter(group, state.name());
                put(trace, track, &times, rows.iter().map(seconds));
            }
        }
    }
}

/// The tracks of a thread.
const TOLD: [&str; 4] = ["cpu", "spin", "off-cpu", "waiting for a CPU"];

fn thread_tracks(trace: &mut Trace, table: &threads::Reader<'_>) {
    let times = Intervals::of(table.rows().map(|r| table.time.get(r)));
    let mut of: BTreeMap<(u64, u64), (f64, Vec<usize>)> = BTreeMap::new();
    for row in table.rows() {
        // Without numbers are rows of many.
        let (Some(pid), Some(tid)) = (table.pid.get(row), table.tid.get(row)) else { continue };
        let thread = of.entry((pid, tid)).or_default();
        thread.0 += table.cpu.get(row).unwrap_or(0.0) + table.spin.get(row).unwrap_or(0.0);
        thread.1.push(row);
    }
    let mut busiest: Vec<_> = of.into_iter().filter(|(_, (busy, _))| *busy > 0.0).collect();
    busiest.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(&b.0)));
    busiest.truncate(THREADS);
    let mut processes: BTreeMap<u64, u64> = BTreeMap::new();
    let asleep = [Microstate::Tfl, Microstate::Dfl, Microstate::Lck, Microstate::Slp];
    for ((pid, tid), (_, rows)) in busiest {
        let Some(&first) = rows.first() else { continue };
        let process = *processes.entry(pid).or_insert_with(|| {
            let name = table.process.get(first).unwrap_or("");
            trace.track(|t| t.message(3, Message::default().int(1, pid).text(6, name)))
        });
        let name = table.thread.get(first).unwrap_or("");
        let thread = Message::default().int(1, pid).int(2, tid).text(5, name);
        let parent = trace.track(|t| t.int(5, process).message(4, thread));
        let off = |r: usize| {
            let apart = asleep.iter().filter_map(|&state| table.micro.get(r, state)).reduce(|a, b| a + b);
            apart.or(table.off.get(r))
        };
        let value = |r: usize, what: usize| match what {
            0 => table.cpu.get(r),
            1 => table.spin.get(r),
            2 => off(r),
            _ => table.micro.get(r, Microstate::Lat),
        };
        for (what, name) in TOLD.into_iter().enumerate() {
            if rows.iter().any(|&r| value(r, what).is_some_and(|v| v > 0.0)) {
                let track = trace.counter(parent, name);
                put(trace, track, &times, rows.iter().map(|&r| (table.time.get(r), value(r, what))));
            }
        }
    }
}

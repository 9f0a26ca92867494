//! Files of `perf record` as tables of an observation.
//!
//! A file is foreign text. It is read whole, within [`MOST`] bytes; every size that it states is compared with its length; threads,
//! stacks, mappings and names are kept up to a limit, and what comes beyond is counted.
//!
//! Time on CPU is exact where the file has switches (`perf record --switch-events`); otherwise it is the time that the samples stand for.

mod file;
mod names;
mod tables;
mod threads;

use std::collections::HashMap;

use ncpu_schema::StackKind;
use ncpu_table::Table;

use file::{Event, Origin, PerfFile, Record, kind};
use names::{Names, Stack};
use threads::Threads;

/// Bytes of a file, at most.
pub const MOST: u64 = 1 << 30;

/// Different stacks that are kept; those met later are put together.
const MAX_STACKS: usize = 1 << 17;
/// Bytes of their frames.
const MAX_STACK_BYTES: usize = 256 << 20;
/// Frames of a stack.
const MAX_FRAMES: usize = 512;
/// CPUs of a machine.
const MAX_CPUS: u32 = 1 << 16;

/// Addresses that say where those behind them were executed: `PERF_CONTEXT_*`.
const FIRST_MARK: u64 = -4095_i64 as u64;
const IN_KERNEL: u64 = -128_i64 as u64;
const IN_USER: u64 = -512_i64 as u64;

/// A fault of a file. The caller names the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another kind of file.
    #[error("not a file of perf record")]
    NotPerf,
    /// It contradicts itself.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// A form that is not read here.
    #[error("cannot be imported: {0}")]
    Unsupported(&'static str),
    /// It is larger than is read here.
    #[error("too large: {0}")]
    TooLarge(&'static str),
}

/// The observation that a file holds.
#[derive(Debug)]
pub struct Imported {
    /// The tables of an observation.
    pub tables: Vec<Table>,
    /// Notes for the reader: missing layers, and how to record them.
    pub notes: Vec<String>,
    /// Name of the host.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu_model: String,
    /// CPUs.
    pub cpus: u64,
    /// The command line of perf.
    pub command: Vec<String>,
    /// Seconds from the first record to the last.
    pub elapsed: f64,
    /// Whether all programs of the machine were sampled.
    pub machine: bool,
}

/// Samples of one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    seconds: f64,
    samples: u64,
}

/// Sums of the records so far.
struct State<'f> {
    file: &'f PerfFile<'f>,
    /// The event that tells time.
    event: &'f Event,
    names: Names,
    threads: Threads,
    stacks: HashMap<Stack, Sum>,
    stack_bytes: usize,
    /// Time that samples stand for, by CPU.
    sampled: HashMap<Option<u32>, f64>,
    /// All programs of the machine were sampled.
    machine: bool,
    chains: bool,
    lost: u64,
    unread: u64,
}

/// Reads a file.
///
/// # Errors
/// It is not a file of perf, is damaged, or has a form that is not read here.
pub fn import(bytes: &[u8]) -> Result<Imported, Error> {
    if bytes.len() as u64 > MOST {
        return Err(Error::TooLarge("more than 1 GiB; record with a lower -F, or for a shorter time"));
    }
    let file = PerfFile::parse(bytes)?;
    let Some((begin, end)) = file.span() else {
        return Err(Error::Unsupported("its records have no times"));
    };
    let timed =
        |event: &&Event| event.is_clock() && event.period > 0 || event.is_cycles() && event.hz().is_some();
    let event = file
        .events
        .iter()
        .find(timed)
        .ok_or(Error::Unsupported("no event tells time; record with -e cpu-clock, or cycles with -F"))?;
    let mut state = State {
        names: Names::new(&file.release),
        event,
        threads: Threads::new(begin),
        stacks: HashMap::new(),
        stack_bytes: 0,
        sampled: HashMap::new(),
        machine: false,
        chains: false,
        lost: 0,
        unread: 0,
        file: &file,
    };
    for (time, record) in file.records() {
        if state.record(time, &record).is_none() {
            state.unread += 1;
        }
    }
    state.threads.finish(end);
    Ok(tables::imported(state, (end - begin) as f64 / 1e9))
}

impl State<'_> {
    /// Takes a record; `None` where it is shorter than its kind.
    fn record(&mut self, time: u64, record: &Record<'_>) -> Option<()> {
        let mut body = file::Bytes(record.body);
        match record.kind {
            kind::COMM => {
                let (pid, tid) = (body.u32()?, body.u32()?);
                let executes = record.misc & 1 << 13 != 0;
                self.threads.named(pid, tid, &file::text(body.0));
                if executes {
                    self.names.forget(pid);
                }
            }
            kind::FORK => {
                let (pid, parent, tid, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
                if pid != parent {
                    self.names.fork(parent, pid);
                }
                self.threads.began(pid, parent, tid, time);
            }
            kind::EXIT => {
                let (_, _, tid) = (body.u32()?, body.u32()?, body.u32()?);
                self.threads.ended(tid, time);
            }
            kind::MMAP | kind::MMAP2 => self.names.mapped(record)?,
            kind::LOST => {
                body.u64()?;
                self.lost = self.lost.saturating_add(body.u64()?);
            }
            kind::LOST_SAMPLES => self.lost = self.lost.saturating_add(body.u64()?),
            kind::SWITCH | kind::SWITCH_CPU_WIDE => {
                self.machine |= record.kind == kind::SWITCH_CPU_WIDE;
                let origin = self.file.origin(record)?;
                let (out, preempted) = (record.misc & 1 << 13 != 0, record.misc & 1 << 14 != 0);
                self.threads.switched(&origin, out, preempted);
            }
            kind::SAMPLE => {
                let origin = self.file.origin(record)?;
                let event = self.file.event(origin.id);
                if std::ptr::eq(event, self.event) {
                    self.sample(&origin, record)?;
                }
            }
            kind::THREAD_MAP => {
                // One thread of number -1 stands for all.
                self.machine |= (body.u64()?, body.u64()?) == (1, u64::MAX);
            }
            _ => {}
        }
        Some(())
    }

    fn sample(&mut self, origin: &Origin, record: &Record<'_>) -> Option<()> {
        let sample = PerfFile::sample(self.event, record)?;
        if origin.pid == 0 {
            // The idle loop: all CPUs were sampled.
            self.machine = true;
            return Some(());
        }
        let seconds = match (self.event.is_clock(), self.event.hz()) {
            (true, _) => sample.period.unwrap_or(self.event.period) as f64 / 1e9,
            (false, Some(hz)) => 1.0 / hz as f64,
            (false, None) => 0.0,
        };
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        let mut in_kernel = record.misc & 7 == 1;
        let mut words = file::Bytes(sample.chain);
        let mut inner = true;
        while let Some(address) = words.u64()
            && kernel.len() + user.len() < MAX_FRAMES
        {
            match address {
                IN_KERNEL => in_kernel = true,
                IN_USER => in_kernel = false,
                FIRST_MARK.. => {}
                // A return address lies behind the call.
                _ => {
                    let frames = if in_kernel { &mut kernel } else { &mut user };
                    frames.push(if inner { address } else { address.saturating_sub(1) });
                    inner = false;
                }
            }
        }
        self.chains |= kernel.len() + user.len() > 1;
        if kernel.is_empty() && user.is_empty() {
            if in_kernel { &mut kernel } else { &mut user }.push(sample.ip);
        }
        let (process, thread) = self.threads.sampled(origin, seconds);
        let stack = self.names.stack(origin.pid, process, thread, &kernel, &user);
        *self.sampled.entry(origin.cpu.filter(|cpu| *cpu < MAX_CPUS)).or_default() += seconds;
        let room = self.stacks.len() < MAX_STACKS && self.stack_bytes < MAX_STACK_BYTES;
        let known = self.stacks.contains_key(&stack);
        self.stack_bytes += if room && !known { stack.frames.len() + stack.binaries.len() } else { 0 };
        let stack = if room || known { stack } else { stack.others() };
        let sum = self.stacks.entry(stack).or_default();
        sum.seconds += seconds;
        sum.samples += 1;
        Some(())
    }
}

/// The kind of a stack of samples.
const ON_CPU: StackKind = StackKind::OnCpu;

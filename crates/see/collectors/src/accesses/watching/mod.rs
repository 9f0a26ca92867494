//! Accesses where no counter samples them: a timer's samples say in which lines operands lie, and debug registers then watch such
//! a line, in short turns: which thread reads or writes which word of it, from where, and from whose CPU it comes.
//!
//! A hit costs a few µs, under a hypervisor twenty, so their number is bounded by the kernel and their cost by a share of the
//! capacity.

mod moves;
mod registers;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_instructions::lines::{LINE, Line, Lines, MAX_LINES, Touch};
use ncpu_instructions::{Address, Code, Kind, Machine, Registers};
use ncpu_machine::Topology;
use ncpu_machine::events::user_sample::{self, Sample};
use ncpu_symbols::{CodeKey, CodePlace};

use super::names::Names;
use super::{Access, Counted, Counts};
use moves::Step;
use registers::{Turn, WORD, WORDS};

/// Functions decoded, and samples of one that wait for that.
const MAX_FUNCTIONS: usize = 1 << 12;
const MAX_WAITING: usize = 64;
/// Samples of a function that are enough to decode it.
const ENOUGH: usize = 3;
/// Code made at run time is decoded again after this time.
const AGAIN: Duration = Duration::from_millis(200);
/// Threads remembered.
const MAX_THREADS: usize = 1 << 14;
/// Threads that a turn watches: the line's first.
const THREADS: usize = 16;
/// Samples in a line before it is watched.
const TOUCHES: u64 = 3;
/// Threads that had a sample in this time are watched, ns.
const LATELY: u64 = 200_000_000;
/// Turns of a line; and those without a second thread after which it is not watched any more.
const TURNS: u32 = 200;
const ALONE: u32 = 12;
/// Of the capacity, what watching may cost; and of the first second.
const SHARE: f64 = 0.01;
const AT_FIRST: Duration = Duration::from_millis(10);

/// Least and longest time between two turns.
const SOON: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(200);

/// A function with samples.
struct Function {
    place: CodePlace,
    code: Option<Code>,
    /// When it was decoded.
    decoded: Instant,
    /// With where the code begins in the sample's process: others may have it elsewhere.
    waiting: Vec<(Sample, Registers, u64)>,
}

/// An access that a debug register saw.
struct Accessed {
    /// Its first byte in the word.
    at: u64,
    reads: bool,
    writes: bool,
    atomic: bool,
}

/// The turns of a line.
#[derive(Default)]
struct Past {
    turns: u32,
    threads: HashSet<u32>,
}

/// The work of all turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Effort {
    pub turns: u64,
    /// Lines that were watched.
    pub lines: u64,
    /// Time that lines were watched.
    pub watched: Duration,
    /// CPU time that this took: of hits, by what one costs, and of the thread that watches.
    pub own: Duration,
    /// Words of threads for which no register was free.
    pub crowded: u64,
}

/// Lines that a timer's samples name, watched in turns.
pub(super) struct Watching {
    functions: HashMap<CodeKey, Function>,
    lines: Lines,
    past: HashMap<(u32, u64), Past>,
    /// Samples with an operand in a line.
    sampled: HashMap<(u32, u64), u64>,
    /// When a thread of a process had a sample last, ns.
    threads: HashMap<(u32, u32), u64>,
    /// The newest sample's time, ns.
    now: u64,
    /// Of a hit.
    cost: Duration,
    cpus: f64,
    began: Instant,
    effort: Effort,
    topology: Option<Topology>,
    /// Why no line is watched any more.
    refused: Option<String>,
}

impl Watching {
    /// # Errors
    /// This machine has no debug registers, or this user may not have them.
    pub fn new(cpus: usize) -> io::Result<Watching> {
        Ok(Watching {
            functions: HashMap::new(),
            lines: Lines::default(),
            past: HashMap::new(),
            sampled: HashMap::new(),
            threads: HashMap::new(),
            now: 0,
            cost: registers::cost()?,
            cpus: cpus.max(1) as f64,
            began: Instant::now(),
            effort: Effort::default(),
            topology: Topology::read(Path::new("/")).ok(),
            refused: None,
        })
    }

    /// Takes what a ring held of the timer's samples; of processes for which `wanted` does not hold nothing.
    pub fn take(
        &mut self,
        bytes: &[u8],
        counted: &mut Counted,
        names: &mut Names,
        wanted: impl Fn(u32) -> bool,
    ) {
        let mut samples = Vec::new();
        let done = user_sample::records(bytes, |record| {
            samples.extend(counted.sample_of(record).filter(|sample| wanted(sample.pid)));
        });
        counted.totals.damaged += u64::from(done.is_err());
        let met: HashSet<u32> = samples.iter().map(|s| s.pid).collect();
        met.into_iter().for_each(|pid| names.met(pid));
        for sample in samples {
            counted.totals.timer += 1;
            self.met(sample, names);
        }
        self.lines.forget_private();
    }

    fn met(&mut self, sample: Sample, names: &mut Names) {
        let thread = (sample.pid, sample.tid);
        self.now = self.now.max(sample.time);
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            self.threads.clear();
        }
        self.threads.insert(thread, sample.time);
        let Some(registers) = Registers::of_perf(&sample.registers) else { return };
        let Some(function) = function_of(&mut self.functions, names, sample.pid, sample.ip) else { return };
        if function.waiting.len() < MAX_WAITING {
            let begin = function.place.address;
            function.waiting.push((sample, registers, begin));
        }
        if function.waiting.len() < ENOUGH && function.code.is_none() {
            return;
        }
        decode(function, names);
        let Some(code) = &function.code else { return };
        // Names of functions are not needed: hits name those that write.
        let nobody: Arc<str> = "".into();
        for (sample, registers, begin) in function.waiting.drain(..) {
            let mut met = None;
            for operand in code.operands(sample.ip.wrapping_sub(begin) as u32) {
                let Some(Address { at, size }) = operand.address(&registers, begin) else { continue };
                let writes = operand.writes || operand.written_back;
                let (tgid, tid) = (sample.pid, sample.tid);
                self.lines.touch(&Touch { tgid, tid, at, size, writes }, &nobody);
                let line = (tgid, Lines::line(at));
                if met != Some(line) && self.lines.get(tgid, at).is_some() {
                    *self.sampled.entry(line).or_default() += 1;
                    met = Some(line);
                }
            }
        }
        if self.sampled.len() > 2 * MAX_LINES {
            self.sampled.retain(|(tgid, line), _| self.lines.get(*tgid, *line).is_some());
        }
    }

    /// Watches a line, where one is worth it and the cost allows it. Returns how long to wait until the next turn.
    pub fn turn(&mut self, counted: &mut Counted, names: &mut Names) -> Duration {
        let before = own_time();
        self.watch_one(counted, names);
        self.effort.own += own_time().saturating_sub(before);
        // As long as it takes until that much more is allowed.
        let beyond = self.effort.own.saturating_sub(self.may_cost());
        beyond.div_f64(SHARE * self.cpus).clamp(SOON, LATE)
    }

    fn watch_one(&mut self, counted: &mut Counted, names: &mut Names) {
        if self.refused.is_some() || self.effort.own > self.may_cost() {
            return;
        }
        let Some((pid, line)) = self.next() else { return };
        let threads = self.threads_for(pid, line);
        let past = self.past.entry((pid, line)).or_default();
        let words = self.lines.get(pid, line).map(|known| words_for(known, line, past.turns));
        let turn = Turn { words: words.unwrap_or_default(), threads };
        past.turns += 1;
        let seen = match registers::watch(&turn) {
            Ok(seen) => seen,
            Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                self.effort.crowded += WORDS as u64;
                return;
            }
            Err(e) => {
                self.refused = Some(e.to_string());
                return;
            }
        };
        self.effort.turns += 1;
        self.effort.watched += seen.time;
        self.effort.crowded += seen.crowded as u64;
        self.effort.own += self.cost * seen.hits.len() as u32;
        past.threads.extend(seen.hits.iter().map(|hit| hit.tid));
        self.count(&seen.hits, counted, names);
    }

    /// The most that watching may have cost by now.
    fn may_cost(&self) -> Duration {
        let elapsed = self.began.elapsed();
        // Not all at once: threads that have just begun may still be on one CPU.
        match elapsed.as_secs() {
            0 => AT_FIRST.mul_f64(elapsed.as_secs_f64()),
            _ => elapsed.mul_f64(SHARE * self.cpus),
        }
    }

    /// The line with most samples for the turns it has had; those of several threads before those that one was met in.
    fn next(&self) -> Option<(u32, u64)> {
        let mut by_process: HashMap<u32, usize> = HashMap::new();
        for (pid, _) in self.threads.keys() {
            *by_process.entry(*pid).or_default() += 1;
        }
        let worth = |key: &(u32, u64), line: &Line| {
            let several = line.threads() > 1;
            // Memory that nobody writes is not taken from anybody.
            let may = by_process.get(&key.0).is_some_and(|n| *n > 1) && line.touches() >= TOUCHES;
            let turns = match self.past.get(key) {
                None => 0,
                Some(past) if past.turns >= TURNS => return None,
                Some(past) if past.turns >= ALONE && past.threads.len() < 2 => return None,
                Some(past) => past.turns,
            };
            let touches = line.touches() * if several { 4 } else { 1 };
            (may && (several || line.is_written())).then(|| touches as f64 / f64::from(turns + 1))
        };
        let worths = self.lines.iter().filter_map(|(key, line)| Some((key, worth(key, line)?)));
        // Among equals the lowest address, so that the choice does not hang on the order of a table.
        worths.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(a.0))).map(|(key, _)| *key)
    }

    /// Threads that a turn watches, of those that ran lately: first the threads that used the line, then the other threads of the process,
    /// beginning with a different thread in each turn.
    fn threads_for(&self, pid: u32, line: u64) -> Vec<u32> {
        let users = self.lines.get(pid, line).map(Line::users).unwrap_or_default();
        let touches: HashMap<u32, u32> = users.into_iter().collect();
        let ran_lately = |last: u64| self.now.saturating_sub(last) < LATELY;
        let mut threads: Vec<(u32, u32)> = self
            .threads
            .iter()
            .filter(|((tgid, _), last)| *tgid == pid && ran_lately(**last))
            .map(|((_, tid), _)| (touches.get(tid).copied().unwrap_or(0), *tid))
            .collect();
        threads.sort_unstable_by(|a, b| b.cmp(a));
        let first = threads.iter().take(THREADS * 3 / 4).filter(|(touches, _)| *touches > 0).count();
        let (first, others) = threads.split_at_mut(first);
        if !others.is_empty() {
            let turns = self.past.get(&(pid, line)).map_or(0, |past| past.turns as usize);
            let length = others.len();
            others.rotate_left(turns * (THREADS - first.len()) % length);
        }
        first.iter().chain(&*others).map(|(_, tid)| *tid).take(THREADS).collect()
    }

    /// Counts hits of one line.
    fn count(&mut self, hits: &[Sample], counted: &mut Counted, names: &mut Names) {
        let accesses: Vec<(Access, Accessed)> = hits
            .iter()
            .map(|hit| {
                let accessed = self.accessed(hit, names);
                counted.totals.without += u64::from(accessed.is_none());
                let accessed = accessed.unwrap_or(Accessed {
                    at: hit.address,
                    reads: true,
                    writes: false,
                    atomic: false,
                });
                let Sample { pid, tid, cpu, ip, .. } = *hit;
                (Access { address: accessed.at, pid, tid, cpu, ip }, accessed)
            })
            .collect();
        let steps = accesses.iter().map(|(access, accessed)| Step {
            cpu: access.cpu,
            word: access.address / WORD,
            writes: accessed.writes,
        });
        let moved = moves::moves(steps);
        let node = |cpu| self.topology.as_ref().and_then(|t| Some(t.node_of(cpu)?.id));
        for ((access, Accessed { reads, writes, atomic, .. }), from) in accesses.into_iter().zip(moved) {
            let remote = from.is_some_and(|from| node(from.cpu) != node(access.cpu));
            counted.totals.samples += 1;
            counted.count(
                access,
                Counts {
                    local: u64::from(from.is_some() && !remote),
                    remote: u64::from(remote),
                    loads: reads.into(),
                    stores: writes.into(),
                    locked: atomic.into(),
                    same: u64::from(from.is_some_and(|from| from.same)),
                    ..Counts::default()
                },
            );
        }
    }

    /// The access of a hit, by its instruction; `None` where the code is not known, or does not lead to the word.
    fn accessed(&mut self, hit: &Sample, names: &mut Names) -> Option<Accessed> {
        let machine = Machine::OWN?;
        let function = function_of(&mut self.functions, names, hit.pid, hit.ip)?;
        decode(function, names);
        let begin = function.place.address;
        let code = function.code.as_ref()?;
        let instruction = code.stopped(machine, hit.ip.wrapping_sub(begin) as u32)?;
        let operand = instruction.operand?;
        let whole = match machine {
            Machine::X86_64 => operand,
            Machine::Aarch64 => operand.ahead(),
        };
        let at = Registers::of_perf(&hit.registers).and_then(|r| whole.address(&r, begin));
        let touches = |a: &Address| a.at < hit.address + WORD && a.at + u64::from(a.size) > hit.address;
        // Where registers do not lead to it any more, the word is known all the same.
        let at = match at {
            Some(a) if touches(&a) => a.at.max(hit.address),
            Some(_) => return None,
            None => hit.address,
        };
        let atomic = instruction.kind == Kind::Atomic;
        let writes = operand.writes || atomic;
        Some(Accessed { at, reads: operand.reads || !writes, writes, atomic })
    }

    /// Of the timer's samples, those in a line; `line` is its address.
    pub fn sampled(&self, pid: u32, line: u64) -> u64 {
        self.sampled.get(&(pid, line)).copied().unwrap_or(0)
    }

    /// The work of all turns so far.
    pub fn effort(&self) -> Effort {
        Effort { lines: self.past.len() as u64, ..self.effort }
    }

    /// A note for the reader where lines could not be watched.
    pub fn note(&self) -> Option<String> {
        if let Some(why) = &self.refused {
            return Some(format!("lines were not watched to the end: {why}"));
        }
        (self.effort.crowded > 0 && self.effort.turns == 0).then(|| {
            "no debug register of its threads is free (a debugger may have them), so no line was watched"
                .into()
        })
    }
}

/// CPU time of this thread.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The words of a line for a turn: those that samples fell in, and the others every second time.
fn words_for(known: &Line, line: u64, turns: u32) -> Vec<u64> {
    let mut words: Vec<u64> = (0..LINE).step_by(WORD as usize).collect();
    words.sort_by_key(|word| !known.uses(*word));
    if turns % 2 == 1 {
        words.rotate_left(WORDS);
    }
    words.truncate(WORDS);
    words.iter().map(|word| line + word).collect()
}

fn function_of<'f>(
    functions: &'f mut HashMap<CodeKey, Function>,
    names: &mut Names,
    pid: u32,
    ip: u64,
) -> Option<&'f mut Function> {
    let place = names.code_place(pid, ip)?;
    if functions.len() >= MAX_FUNCTIONS && !functions.contains_key(&place.key) {
        functions.clear();
    }
    let function = functions.entry(place.key).or_insert_with(|| Function {
        place,
        code: None,
        decoded: Instant::now(),
        waiting: Vec::new(),
    });
    function.place = place;
    Some(function)
}

/// Decodes a function, once. Code that was made at run time is decoded again now and then: a compiler may have put other code there.
/// Code that cannot be read, or is of another processor, has no instructions.
fn decode(function: &mut Function, names: &Names) {
    let made = matches!(function.place.key, CodeKey::Memory(..));
    if function.code.is_some() && !(made && function.decoded.elapsed() > AGAIN) {
        return;
    }
    function.decoded = Instant::now();
    let place = &function.place;
    let bytes = names.code_bytes(place).unwrap_or_default();
    function.code = Some(Code::of_file(place.machine, place.whole, &bytes));
}

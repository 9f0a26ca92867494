//! Causes of the time of user code: those of its samples, and the data that they waited for.
//!
//! A sample waits here until its function has enough of them to tell (`ncpu_instructions`), and gets a part of each cause then.
//! Code is read from the program's file when its function has that many. Code that was made at run time is read from memory while the
//! process lives: an observation that ends with its process has tables only then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ncpu_files::reader::process_text;
use ncpu_instructions::lines::{LINE, Lines, Sharing, Touch};
use ncpu_instructions::{Address, Code, Kind, Registers, Waited, stalls};
use ncpu_schema::{UserCause, data, user_causes};
use ncpu_symbols::{CodeKey, CodePlace, region};
use ncpu_table::Table;

use crate::bpf_support::Stack;
use crate::bpf_support::namespace::process_dir;
use crate::names::Symbols;

mod instructions;

/// Samples of a function that are enough to divide them.
const ENOUGH: usize = 12;
/// Functions decoded for a table, and for the last ones: some 50 µs each.
const DECODED: usize = 32;
const DECODED_LAST: usize = 256;
/// Samples that wait, and functions that they are of; further ones are unknown.
const MAX_WAITING: usize = 1 << 15;
const MAX_FUNCTIONS: usize = 1 << 12;
/// Pages of code made at run time that are kept, some 5 KiB each; and how many times as many samples have one read again.
const MAX_MADE: usize = 512;
const MORE: usize = 8;
/// Addresses remembered of an instruction's operand.
const ADDRESSES: usize = 512;
/// Pairs of samples with the same line at least, to estimate the number of lines.
const PAIRS: f64 = 5.0;
/// Processes whose mappings are read to name data, per table.
const NAMED: usize = 8;

/// A timer met user code.
#[derive(Debug)]
pub(super) struct Met {
    /// The thread.
    pub tid: u32,
    /// When, ns.
    pub time: u64,
    pub registers: Box<Registers>,
}

/// A sample that waits for its cause.
struct Waiting {
    met: Met,
    tgid: u32,
    thread: Arc<str>,
    function: Arc<str>,
    /// Where the code begins in its process.
    code: u64,
    /// Where the sample is in it.
    at: u32,
}

/// Code of a function, or of a page.
struct Function {
    place: CodePlace,
    code: Option<Code>,
    /// Samples by the instruction that they waited for.
    counts: Vec<u32>,
    /// Lines of its operand.
    lines: HashMap<usize, Vec<u64>>,
    waiting: Vec<Waiting>,
    /// A process that it was met in, and the function's name there.
    of: (u32, Arc<str>),
    /// Samples of each instruction by cause.
    causes: BTreeMap<(usize, UserCause), f64>,
    /// Of code made at run time, whose names end with its process: the functions of instructions with samples.
    names: BTreeMap<usize, Arc<str>>,
}

/// Code that was made at run time, as it was when `samples` had met it.
#[derive(Default)]
struct Made {
    samples: usize,
    /// It is read again when this many have.
    next: usize,
    bytes: Vec<u8>,
}

/// Thread, function, kind of instruction, cause.
type Row = (Arc<str>, Arc<str>, &'static str, UserCause);

/// Samples of user code and what is known of their causes.
#[derive(Default)]
pub(super) struct UserCode {
    functions: HashMap<CodeKey, Function>,
    /// Samples whose functions are not known yet.
    unplaced: Vec<Waiting>,
    /// Samples that wait, those included.
    waiting: usize,
    lines: Lines,
    /// Lines that a core's own caches hold, once it has been asked for.
    of_core: Option<f64>,
    made: HashMap<CodeKey, Made>,
    /// Samples by thread, function, instruction and cause.
    rows: HashMap<Row, f64>,
    /// Samples by process and address that waited for memory.
    memory: HashMap<(u32, u64, UserCause), f64>,
    /// Source lines are read from debug information.
    source_lines: bool,
}

impl UserCode {
    /// Without samples; `source_lines`: those of instructions are read from debug information.
    pub fn new(source_lines: bool) -> UserCode {
        UserCode { source_lines, ..UserCode::default() }
    }

    /// Samples with a stack, of which those `met` have registers.
    pub fn add(&mut self, stack: &Stack, function: &str, count: u64, met: Vec<Met>) {
        let (thread, function): (Arc<str>, Arc<str>) = (stack.comm.as_str().into(), function.into());
        self.unknown(&thread, &function, count.saturating_sub(met.len() as u64) as f64);
        for met in met {
            if self.waiting >= MAX_WAITING {
                self.unknown(&thread, &function, 1.0);
                continue;
            }
            self.waiting += 1;
            let (thread, function) = (thread.clone(), function.clone());
            self.unplaced.push(Waiting { met, tgid: stack.tgid, thread, function, code: 0, at: 0 });
        }
    }

    /// Reads the code at `ip` of a process, if it was made at run time and enough samples have met it. It is read again when many
    /// more have: a compiler may have put other code there.
    pub fn keep_code(&mut self, symbols: &Symbols, tgid: u32, ip: u64) {
        let Some(place) = symbols.made_code(tgid, ip) else { return };
        if self.made.len() >= MAX_MADE && !self.made.contains_key(&place.key) {
            self.made.clear();
        }
        let made = self.made.entry(place.key).or_default();
        made.samples += 1;
        if made.samples < made.next.max(ENOUGH) {
            return;
        }
        made.next = made.samples * MORE;
        if let Some(bytes) = symbols.code_bytes(&place) {
            made.bytes = bytes;
        }
    }

    /// Finds the functions that samples are in. Where their symbols cannot be read now, they wait for the next table.
    fn place(&mut self, symbols: &mut Symbols) {
        for mut waiting in std::mem::take(&mut self.unplaced) {
            let ip = waiting.met.registers.ip();
            let place = symbols.code_place(waiting.tgid, ip);
            let room = |place: &CodePlace| {
                self.functions.len() < MAX_FUNCTIONS || self.functions.contains_key(&place.key)
            };
            let Some(place) = place.filter(room) else {
                self.unplaced.push(waiting);
                continue;
            };
            (waiting.code, waiting.at) = (place.address, ip.wrapping_sub(place.address) as u32);
            let function = self.functions.entry(place.key).or_insert_with(|| Function {
                place,
                code: None,
                counts: Vec::new(),
                lines: HashMap::new(),
                waiting: Vec::new(),
                of: (waiting.tgid, waiting.function.clone()),
                causes: BTreeMap::new(),
                names: BTreeMap::new(),
            });
            function.waiting.push(waiting);
        }
    }

    fn unknown(&mut self, thread: &Arc<str>, function: &Arc<str>, samples: f64) {
        if samples > 0.0 {
            let row = (thread.clone(), function.clone(), Kind::Plain.name(), UserCause::Unknown);
            *self.rows.entry(row).or_default() += samples;
        }
    }

    /// The tables `user_causes` and `data` of samples whose functions have enough; `last`: of all, and then `instructions`.
    pub fn tables(
        &mut self,
        t: f64,
        last: bool,
        symbols: &mut Symbols,
        process: &dyn Fn(u32) -> Option<String>,
    ) -> Vec<Table> {
        self.place(symbols);
        self.decode(if last { DECODED_LAST } else { DECODED }, symbols);
        let ready: Vec<CodeKey> = self
            .functions
            .iter()
            .filter(|(_, f)| f.code.is_some() && !f.waiting.is_empty())
            .map(|(key, _)| *key)
            .collect();
        self.meet_lines(&ready);
        for key in ready {
            self.divide(key);
        }
        let mut instructions = None;
        if last {
            instructions = Some(self.instructions(t, symbols));
            let functions = std::mem::take(&mut self.functions);
            let unplaced = std::mem::take(&mut self.unplaced);
            for waiting in functions.into_values().flat_map(|f| f.waiting).chain(unplaced) {
                self.unknown(&waiting.thread, &waiting.function, 1.0);
            }
            self.waiting = 0;
            self.made.clear();
        }
        let data = self.data(t, symbols, process);
        if last {
            self.lines = Lines::default();
        }
        self.lines.forget_private();
        let mut rows = user_causes::Rows::new();
        for ((thread, function, instruction, cause), samples) in self.rows.drain() {
            rows.push(user_causes::Row {
                time: Some(t),
                process: Some(&*thread).into(),
                function: Some(&*function).into(),
                instruction: Some(instruction).into(),
                cause: Some(cause),
                samples: Some(samples),
            });
        }
        [rows.finish(), data].into_iter().chain(instructions).collect()
    }

    /// The bytes of a function's code: from its file, from memory, or as they were kept.
    fn bytes(&self, place: &CodePlace, symbols: &Symbols) -> Option<Vec<u8>> {
        symbols.code_bytes(place).or_else(|| self.made.get(&place.key).map(|made| made.bytes.clone()))
    }

    /// Decodes functions with enough samples, those with most first.
    fn decode(&mut self, most: usize, symbols: &Symbols) {
        let mut wanted: Vec<&Function> =
            self.functions.values().filter(|f| f.code.is_none() && f.waiting.len() >= ENOUGH).collect();
        wanted.sort_unstable_by_key(|f| std::cmp::Reverse(f.waiting.len()));
        let places: Vec<CodePlace> = wanted.into_iter().take(most).map(|f| f.place).collect();
        for place in places {
            // Where its bytes cannot be read now, it is tried again.
            let Some(bytes) = self.bytes(&place, symbols) else { continue };
            let Some(function) = self.functions.get_mut(&place.key) else { continue };
            // Samples of code without instructions are unknown.
            let code = Code::of_file(place.machine, place.whole, &bytes);
            function.counts = vec![0; code.instructions().len()];
            function.code = Some(code);
        }
    }

    /// Notes which lines the samples' operands lie in, in the order of time.
    fn meet_lines(&mut self, ready: &[CodeKey]) {
        let mut touches: Vec<(u64, Touch, Arc<str>)> = Vec::new();
        for function in ready.iter().filter_map(|key| self.functions.get(key)) {
            let Some(code) = &function.code else { continue };
            for waiting in &function.waiting {
                for operand in code.operands(waiting.at) {
                    let Some(Address { at, size }) = operand.address(&waiting.met.registers, waiting.code)
                    else {
                        continue;
                    };
                    let (tgid, tid) = (waiting.tgid, waiting.met.tid);
                    let writes = operand.writes || operand.written_back;
                    let touch = Touch { tgid, tid, at, size, writes };
                    touches.push((waiting.met.time, touch, waiting.function.clone()));
                }
            }
        }
        touches.sort_by_key(|(time, ..)| *time);
        for (_, touch, function) in &touches {
            self.lines.touch(touch, function);
        }
    }

    /// Gives the waiting samples of a function their causes.
    fn divide(&mut self, key: CodeKey) {
        let Some(function) = self.functions.get_mut(&key) else { return };
        let Some(code) = &function.code else { return };
        let waiting = std::mem::take(&mut function.waiting);
        self.waiting -= waiting.len();
        // The instruction is the one that took the time.
        let mut told: Vec<(Option<usize>, Row, f64)> = Vec::new();
        let row = |w: &Waiting, kind: Kind, cause| (w.thread.clone(), w.function.clone(), kind.name(), cause);
        let waits: Vec<Option<Waited>> = waiting.iter().map(|w| code.waited(w.at)).collect();
        for (w, waited) in waiting.iter().zip(&waits) {
            if let (None, Some(at)) = (function.place.machine, code.position(w.at)) {
                function.names.entry(at).or_insert_with(|| w.function.clone());
            }
            let Some(Waited::For(i)) = waited else { continue };
            function.counts[*i] += 1;
            let operand = code.instructions()[*i].operand;
            if let Some(address) = operand.and_then(|o| o.address(&w.met.registers, w.code)) {
                let lines = function.lines.entry(*i).or_default();
                if lines.len() < ADDRESSES {
                    lines.push(Lines::line(address.at));
                }
            }
        }
        let stalls = stalls(code, &function.counts);
        let of_core = *self.of_core.get_or_insert_with(lines_of_core);
        let near: HashSet<usize> =
            function.lines.iter().filter(|(_, lines)| are_near(lines, of_core)).map(|(i, _)| *i).collect();
        for (w, waited) in waiting.iter().zip(waits) {
            let at = code.position(w.at);
            let here = at.map(|i| &code.instructions()[i]);
            let Some(waited) = waited else {
                told.push((None, row(w, Kind::Plain, UserCause::Unknown), 1.0));
                continue;
            };
            let i = match waited {
                Waited::For(i) => i,
                Waited::Entered => {
                    told.push((at, row(w, Kind::Plain, UserCause::Computing), 1.0));
                    continue;
                }
                Waited::Perhaps(i) => {
                    let kind = code.instructions()[i].kind;
                    let cause = match kind {
                        Kind::Plain => UserCause::Computing,
                        _ => UserCause::Unknown,
                    };
                    told.push((Some(i), row(w, kind, cause), 1.0));
                    continue;
                }
            };
            let instruction = &code.instructions()[i];
            if instruction.spins && here.is_some_and(|here| here.spins) {
                told.push((Some(i), row(w, instruction.kind, UserCause::Busy), 1.0));
                continue;
            }
            let address = instruction.operand.and_then(|o| o.address(&w.met.registers, w.code));
            let line = address.and_then(|a| self.lines.get(w.tgid, a.at));
            let shared = line.is_some_and(|line| line.sharing().is_some());
            let cause = match instruction.kind {
                Kind::Plain => UserCause::Computing,
                Kind::Long | Kind::Identify | Kind::Random => UserCause::Long,
                _ if shared => UserCause::SharedLine,
                Kind::Atomic => UserCause::Atomic,
                _ if instruction.operand.is_some_and(|o| o.on_stack) || near.contains(&i) => {
                    UserCause::Computing
                }
                // Gathers, and loads that leave nothing of their address.
                _ if address.is_none() => UserCause::Unknown,
                Kind::Load | Kind::Store | Kind::Copy => UserCause::Memory,
            };
            let stall = stalls[i];
            if stall < 1.0 {
                told.push((Some(i), row(w, instruction.kind, UserCause::Computing), 1.0 - stall));
            }
            if stall > 0.0 {
                told.push((Some(i), row(w, instruction.kind, cause), stall));
                if let (UserCause::SharedLine | UserCause::Memory, Some(address)) = (cause, address) {
                    *self.memory.entry((w.tgid, Lines::line(address.at), cause)).or_default() += stall;
                }
            }
        }
        for (at, row, samples) in told {
            if let Some(i) = at {
                *function.causes.entry((i, row.3)).or_default() += samples;
            }
            *self.rows.entry(row).or_default() += samples;
        }
    }

    /// Names the data that was waited for.
    fn data(&mut self, t: f64, symbols: &mut Symbols, process: &dyn Fn(u32) -> Option<String>) -> Table {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for ((tgid, ..), samples) in &self.memory {
            *sums.entry(*tgid).or_default() += samples;
        }
        let mut most: Vec<(u32, f64)> = sums.into_iter().collect();
        most.sort_by(|a, b| b.1.total_cmp(&a.1));
        let maps: HashMap<u32, Vec<u8>> = most
            .into_iter()
            .take(NAMED)
            .filter_map(|(tgid, _)| Some((tgid, process_text(&process_dir(tgid), tgid, "maps").ok()?)))
            .collect();
        // Samples that waited for memory are summed by the object they fell in; each shared line is an
        // object of its own.
        type Object = (u32, String, Option<u64>);
        let mut objects: HashMap<Object, (UserCause, f64)> = HashMap::new();
        for ((tgid, line, cause), samples) in std::mem::take(&mut self.memory) {
            let shared = cause == UserCause::SharedLine;
            // Several variables may lie in a line.
            let word = self.lines.get(tgid, line).filter(|_| shared).map_or(0, |known| known.first_word());
            let variable = symbols.data(tgid, line + word);
            let whole = |name: String| match shared {
                true => name,
                false => name.split_once("+0x").map_or(name.clone(), |(name, _)| name.to_string()),
            };
            let object = variable.map(whole).or_else(|| region(maps.get(&tgid)?, line).map(|r| kept_in(&r)));
            let key = (tgid, object.unwrap_or_else(|| "unknown".into()), shared.then_some(line));
            objects.entry(key).or_insert((cause, 0.0)).1 += samples;
        }
        let mut rows = data::Rows::new();
        for ((tgid, object, line), (cause, samples)) in objects {
            let known = line.and_then(|line| self.lines.get(tgid, line));
            rows.push(data::Row {
                time: Some(t),
                process: process(tgid).into(),
                pid: Some(tgid.into()),
                object: Some(object).into(),
                line: line.map(|line| format!("{line:#x}")).into(),
                cause: Some(cause),
                sharing: known.and_then(|l| l.sharing()).map(Sharing::name).into(),
                words: known.map(|l| l.words()).into(),
                writers: known.map(|l| l.writers()).into(),
                threads: known.map(|l| l.threads()),
                samples: Some(samples),
            });
        }
        rows.finish()
    }
}

/// Whether operands lie in few enough lines for the caches of one core: then their latency is a matter of computing. How many lines there
/// are is known by how often two samples have the same.
fn are_near(lines: &[u64], of_core: f64) -> bool {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for line in lines {
        *counts.entry(*line).or_default() += 1;
    }
    let pairs = counts.values().map(|n| n * (n - 1) / 2).sum::<u64>() as f64;
    let n = lines.len() as f64;
    pairs >= PAIRS && n * n / 2.0 / pairs <= of_core
}

/// Lines of the largest of CPU 0's caches up to the second level; those of 48 KiB where it is not known.
fn lines_of_core() -> f64 {
    const LEAST: u64 = 48 << 10;
    let caches = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let size = |index: u32| {
        let text = |file: &str| std::fs::read_to_string(caches.join(format!("index{index}/{file}"))).ok();
        let kib: u64 = text("size")?.trim().strip_suffix('K')?.parse().ok()?;
        let is_data = text("type")?.trim() != "Instruction";
        let is_near = text("level")?.trim().parse::<u32>().ok()? <= 2;
        (is_data && is_near).then_some(kib << 10)
    };
    (0..8).filter_map(size).fold(LEAST, u64::max) as f64 / LINE as f64
}

/// The kind of memory that unnamed data lies in.
fn kept_in(region: &str) -> String {
    match region {
        "[heap]" | "[anon]" => "heap".into(),
        "[stack]" => "stack".into(),
        file => file.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_near_where_samples_say_that_it_fits_a_cores_caches() {
        const OF_CORE: f64 = 32768.0;
        let mut state = 1_u64;
        let mut among = |lines: u64, samples: usize| {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                64 * (state % lines)
            };
            let lines: Vec<u64> = (0..samples).map(|_| next()).collect();
            are_near(&lines, OF_CORE)
        };
        // A matrix of 72 KiB, and a table of 512 KiB.
        assert!(among(1152, 160) && among(8192, ADDRESSES));
        assert!(!among(16384, 100), "too few samples to tell");
        for lines in [3 * OF_CORE as u64, 1 << 22] {
            let near = (0..200).filter(|_| among(lines, ADDRESSES)).count();
            assert!(near <= 6, "{near} of 200 with {lines} lines");
        }
        assert!(!are_near(&[], OF_CORE));
    }
}

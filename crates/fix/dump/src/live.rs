//! Dumps of running processes.

mod forked;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Error;
use crate::acquire;
use crate::budget;
use crate::choose::{Chosen, choose};
use crate::inject::Refused;
use crate::layout::{CHUNK, Layout, Segment};
use crate::memory::Memory;
use crate::mend::Huge;
use crate::notes;
use crate::output::Output;
use crate::pagemap::{PageMap, Ranges, Which, join, outside, size, within};
use crate::pipeline::{self, Job, Read};
use crate::protect::Guard;
use crate::seekable::{Codec, Trailer};
use crate::target::{self, Mapping, Status, mappings_text};
use crate::trace::{Stop, Thread, unstopped};

/// How a consistent snapshot of a running process's memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Write-protected from outside; pages written meanwhile are saved. Stops for well under a millisecond.
    Protect,
    /// Taken from a copy that the process makes of itself (fork). Stops for the duration of the copying,
    /// about 35 ms per GB.
    Fork,
    /// All threads are stopped until everything is written.
    Stop,
    /// Not consistent: threads stop one at a time, for their registers, and memory is read while it changes.
    Never,
}

impl Method {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Fork => "fork",
            Self::Stop => "stop",
            Self::Never => "never",
        }
    }

    /// Its name after "not by".
    fn words(self) -> &'static str {
        match self {
            Self::Protect => "write protection",
            Self::Fork => "a copy of the process",
            Self::Stop => "stopping it",
            Self::Never => "reading it as it changes",
        }
    }
}

/// Why a method failed.
enum Attempt {
    /// The process or the kernel refuses it: nothing was changed, and another method may be tried.
    Refused(String),
    /// The dump failed.
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(e: Error) -> Self {
        Self::Failed(e)
    }
}

impl From<Refused> for Attempt {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused.0)
    }
}

/// Options of a dump.
#[derive(Clone, Debug)]
pub struct Options {
    /// The output file; `-` is standard output.
    pub output: PathBuf,
    /// The program `ncpu`, which is started as a helper that outlives this process if it is killed; see
    /// [`crate::reap`].
    pub reaper: Option<PathBuf>,
    /// Snapshot method [default: the least intrusive one that the process permits].
    pub method: Option<Method>,
    /// The compression of frames.
    pub codec: Codec,
    /// Compressing threads.
    pub threads: usize,
    /// Their niceness.
    pub nice: i32,
    /// Mappings to leave out: by name with `*` and `?`, or by address, as in `7f00-7fff`.
    pub exclude: Vec<String>,
    /// The most bytes of the file.
    pub limit: u64,
    /// Bytes of the disk that stay free.
    pub spare: u64,
}

/// Result of a dump.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The method used.
    pub method: &'static str,
    /// How long all threads were stopped.
    pub stopped: Duration,
    /// The total time.
    pub elapsed: Duration,
    /// Threads.
    pub threads: usize,
    /// Bytes of the core.
    pub core: u64,
    /// Bytes of memory in it, without zero pages and holes.
    pub memory: u64,
    /// Bytes written.
    pub written: u64,
    /// Write faults that the process waited for, before and after the moment of the snapshot.
    pub faults: (u64, u64),
    /// Bytes saved before they were overwritten.
    pub saved: u64,
    /// Notes: why a less intrusive method was refused, what was left out.
    pub notes: Vec<String>,
}

/// Figures for a progress line: chunks of 4 MB done, and their total number.
#[derive(Debug, Default)]
pub struct Progress {
    /// Done.
    pub done: AtomicU64,
    /// All.
    pub all: AtomicU64,
}

/// Unprotectable bytes that are copied while a process is stopped; with more, another method is used.
const COPIED: u64 = 32 << 20;

/// The process at the moment of the snapshot.
struct Moment {
    threads: Vec<Thread>,
    mappings: Vec<Mapping>,
    stopped: Duration,
}

/// The data of the process that are collected beforehand.
struct Subject<'a> {
    pid: i32,
    status: Status,
    memory: Arc<Memory>,
    options: &'a Options,
    began: Instant,
    notes: Vec<String>,
}

/// Dumps a running process.
///
/// # Errors
/// It cannot be dumped, or the file cannot be written. A file that reached its limit is kept as a part.
pub fn dump(pid: i32, options: &Options, progress: &Progress, stop: &AtomicBool) -> Result<Summary, Error> {
    let began = Instant::now();
    let status = target::check(pid)?;
    let memory = Arc::new(Memory::open(pid)?);
    let mut subject = Subject { pid, status, memory, options, began, notes: Vec::new() };
    let mut output = Output::create(&options.output, options.codec, options.limit, options.spare)?;
    if matches!(subject.status.state, 'T' | 't') && options.method.is_none() {
        subject.notes.push("it is stopped already, and stays so".into());
        return subject.standing(&mut output, progress, stop);
    }
    // The least intrusive first.
    let ways = match &options.method {
        None => &[Method::Protect, Method::Fork, Method::Stop],
        Some(method) => std::slice::from_ref(method),
    };
    for &way in ways {
        if way == Method::Stop && ways.len() > 1 {
            subject.notes.push("it was stopped until all was written".into());
        }
        let done = match way {
            Method::Protect => subject.protected(&mut output, progress, stop),
            Method::Fork => subject.forked(&mut output, progress, stop),
            Method::Stop => subject.standing(&mut output, progress, stop).map_err(Attempt::Failed),
            Method::Never => subject.moving(&mut output, progress, stop).map_err(Attempt::Failed),
        };
        match done {
            Ok(summary) => return Ok(summary),
            Err(Attempt::Failed(e)) => return Err(e),
            Err(Attempt::Refused(why)) if ways.len() == 1 => {
                return Err(Error::Unsupported(format!("not by {}: {why}", way.words())));
            }
            Err(Attempt::Refused(why)) => {
                // It may have ended just now. A thread in uninterruptible sleep may still be stopped by
                // another method.
                match target::check(pid) {
                    Err(Error::Traced { tracer, .. }) if is_ours(tracer) => {}
                    checked => drop(checked?),
                }
                subject.notes.push(format!("not by {}: {why}", way.words()));
            }
        }
    }
    Err(Error::Unsupported("no method of dumping it is left".into()))
}

/// Whether a tracer is a thread of this process.
fn is_ours(tracer: i32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists()
}

impl Subject<'_> {
    /// Chooses the stored parts of the mappings.
    fn choose(&mut self, mappings: &[Mapping]) -> Result<Vec<Chosen>, Error> {
        choose(self.pid, mappings, &self.options.exclude, &self.memory)
    }

    /// A snapshot by write protection.
    fn protected(
        &mut self,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<Summary, Attempt> {
        let protection = acquire::userfaultfd(self.pid, &self.status, &self.memory)?;
        let pages = PageMap::open(self.pid)?;
        let huge = Huge::find(&pages)?;
        let guard = Guard::new(protection, self.memory.clone(), PageMap::open(self.pid)?, output.spill());
        let result = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .spawn_scoped(scope, || guard.serve())
                .map_err(|e| Error::call("starting a thread", e))?;
            let _end = EndOfServer(&guard);
            self.under_guard(&guard, &pages, output, progress, stop)
        });
        // The saved memory is freed from here on.
        drop(guard);
        let mut summary = result?;
        summary.notes.extend(huge.mend(self.pid, &pages, stop));
        Ok(summary)
    }

    fn under_guard(
        &mut self,
        guard: &Guard,
        pages: &PageMap,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<Summary, Attempt> {
        // The process runs. If we end, the kernel removes the protection set here.
        let mappings = target::mappings(self.pid)?;
        let mut chosen = self.choose(&mappings)?;
        let Protected { ranges: mut protected, refused, others } = protect_all(guard, &chosen);
        let mut filled = filled(&chosen, pages)?;
        // Read once beforehand, so that missing pages are loaded while the process runs.
        let mut early = room_for(&refused, pages)?;
        read_all(&self.memory, &mut early)?;
        // Parsed beforehand, so that unchanged text need not be parsed while the process is stopped.
        let text = mappings_text(self.pid)?;
        let seen = target::parse_mappings(&text)?;
        guard.settle();

        // The process is stopped from here to the release.
        let began = Instant::now();
        let mut standing = Stop::all(self.pid)?;
        guard.freeze();
        let text_now = mappings_text(self.pid)?;
        let now = if text_now == text { seen } else { target::parse_mappings(&text_now)? };
        // Memory mapped since the first look must be protected or copied, also in place of an old mapping.
        let vanished = guard.vanished();
        if !vanished.is_empty() {
            protected = protected.iter().flat_map(|&(start, end)| outside(&vanished, start, end)).collect();
        }
        let newcomers = newcomers(&now, &protected, &others);
        let mut added = Vec::new();
        if !newcomers.is_empty() {
            added = self.choose(&newcomers)?;
            early.append(&mut room(&crate::live::filled(&protect_all(guard, &added).refused, pages)?));
            filled.append(&mut crate::live::filled(&added, pages)?);
        }
        read_all(&self.memory, &mut early)?;
        let threads = standing.registers();
        let mut released = standing.release();
        let stopped = began.elapsed();

        // The process runs again, except for threads that were in an uninterruptible call and stop on their
        // way out of it. Of the pages touched before the snapshot, only those in stored parts count.
        let stored = chosen.iter().chain(&added).filter(|c| c.stored > 0);
        let mut stored: Ranges = stored.map(|c| (c.mapping.start, c.mapping.start + c.stored)).collect();
        join(&mut stored);
        filled.extend(guard.dirty().into_iter().flat_map(|(start, end)| within(&stored, start, end)));
        join(&mut filled);
        if !added.is_empty() {
            leave_out_undumped(&mut added, &target::mappings(self.pid)?);
        }
        let mut new: Ranges = newcomers.iter().map(|m| (m.start, m.end)).collect();
        join(&mut new);
        let old: Ranges = now.iter().flat_map(|m| outside(&new, m.start, m.end)).collect();
        keep_within(&mut chosen, &old);
        chosen.extend(added);
        chosen.sort_by_key(|c| c.mapping.start);
        let moment = Moment { threads, mappings: now, stopped };
        let mut tick = || {
            if !released {
                released = standing.release();
            }
            if released { Duration::from_millis(20) } else { Duration::from_millis(1) }
        };
        let early = Early { guard: Some(guard), copied: &early };
        self.write(Method::Protect, &moment, &chosen, filled, early, output, progress, stop, &mut tick)
            .map_err(Attempt::Failed)
    }

    /// A dump of a process that is stopped until it is written.
    fn standing(
        &mut self,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<Summary, Error> {
        let pages = PageMap::open(self.pid)?;
        let began = Instant::now();
        // If we end at any point here, the kernel releases the threads.
        let mut standing = Stop::all_that_stop(self.pid)?;
        let mappings = target::mappings(self.pid)?;
        let chosen = self.choose(&mappings)?;
        let filled = filled(&chosen, &pages)?;
        let threads = standing.registers();
        let moment = Moment { threads, mappings, stopped: Duration::ZERO };
        let early = Early { guard: None, copied: &BTreeMap::new() };
        let mut tick = || Duration::from_millis(20);
        let result =
            self.write(Method::Stop, &moment, &chosen, filled, early, output, progress, stop, &mut tick);
        while !standing.release() && !standing.is_asleep() {
            std::thread::sleep(Duration::from_millis(1));
        }
        result.map(|summary| Summary { stopped: began.elapsed(), ..summary })
    }

    /// A dump that never stops the whole process: each thread is stopped separately for its registers.
    fn moving(
        &mut self,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
    ) -> Result<Summary, Error> {
        let pages = PageMap::open(self.pid)?;
        let mut threads = Vec::new();
        for tid in target::threads(self.pid)? {
            // A thread that has ended meanwhile is left out.
            match Stop::one(self.pid, tid) {
                Ok(mut one) => {
                    threads.extend(one.registers());
                    one.release();
                }
                Err(Error::Unsupported(_)) => threads.extend(unstopped(self.pid, tid)),
                Err(_) => {}
            }
        }
        if threads.is_empty() {
            return Err(Error::Gone(self.pid));
        }
        let mappings = target::mappings(self.pid)?;
        let chosen = self.choose(&mappings)?;
        let filled = filled(&chosen, &pages)?;
        let moment = Moment { threads, mappings, stopped: Duration::ZERO };
        self.notes.push("not consistent: memory was read while the process changed it".into());
        let early = Early { guard: None, copied: &BTreeMap::new() };
        let mut tick = || Duration::from_millis(20);
        self.write(Method::Never, &moment, &chosen, filled, early, output, progress, stop, &mut tick)
    }

    /// Writes the core.
    #[expect(clippy::too_many_arguments, reason = "the snapshot, and where it goes")]
    fn write(
        &mut self,
        method: Method,
        moment: &Moment,
        chosen: &[Chosen],
        filled: Ranges,
        early: Early,
        output: &mut Output,
        progress: &Progress,
        stop: &AtomicBool,
        tick: &mut dyn FnMut() -> Duration,
    ) -> Result<Summary, Error> {
        self.notes.extend(crate::choose::left_out(chosen));
        let unstopped = moment.threads.iter().filter(|t| !t.stopped).count();
        if unstopped > 0 {
            self.notes.push(format!(
                "{unstopped} threads slept uninterruptibly and did not stop: of their registers only program counter and \
                 stack pointer are known"
            ));
        }
        let filled = Arc::new(filled);
        let own = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            "method": method.name(),
            "stopped_us": moment.stopped.as_micros() as u64,
            "notes": self.notes,
        });
        let notes = notes::notes(self.pid, &self.status, &moment.threads, &moment.mappings, &own.to_string());
        let segments: Vec<Segment> = chosen.iter().map(|c| Segment::new(&c.mapping, c.stored)).collect();
        let layout = Layout::new(&segments, filled.clone(), &notes);
        if let Some(guard) = early.guard {
            guard.plan(filled.clone(), layout.firsts());
        }
        progress.all.store(layout.chunks() as u64, Ordering::Relaxed);
        let limit = budget::limit();
        let threads = self.options.threads.min(budget::threads(limit));
        if threads < self.options.threads {
            self.notes.push(format!(
                "{threads} threads of {}: the cgroup has {} MB of memory",
                self.options.threads,
                limit / 1_000_000
            ));
        }
        let job = Job {
            layout: &layout,
            memory: Read::Process(&self.memory),
            guard: early.guard,
            early: early.copied,
            codec: self.options.codec,
            threads,
            nice: self.options.nice,
            progress: &progress.done,
            stop,
        };
        let done = pipeline::run(&job, output, tick);
        let (counts, lost) = early.guard.map(Guard::outcome).unwrap_or_default();
        let mut trailer = Trailer { complete: true, lost, late: counts.unsaved, ..Trailer::default() };
        match done {
            Ok(done) => trailer.unreadable = done.unreadable,
            Err(e @ (Error::Write(_) | Error::Limit(_) | Error::Gone(_))) => {
                trailer.complete = false;
                trailer.reason = e.to_string();
                return Err(match output.abandon(&trailer) {
                    Some(partial) => Error::Part { source: Box::new(e), partial },
                    None => e,
                });
            }
            Err(e) => return Err(e),
        }
        output.finish(&trailer)?;
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(missing(&trailer));
        Ok(Summary {
            method: method.name(),
            stopped: moment.stopped,
            elapsed: self.began.elapsed(),
            threads: moment.threads.len(),
            core: layout.size(),
            memory: size(&filled),
            written: output.written(),
            faults: (counts.before, counts.after),
            saved: counts.saved,
            notes,
        })
    }
}

/// Notes on memory whose contents in the dump differ from the process at that moment.
fn missing(trailer: &Trailer) -> Vec<String> {
    let lost = size(&trailer.lost);
    [
        (lost, "were freed by the process before they were copied; they are zeros in the dump"),
        (trailer.unreadable, "could not be read; they are zeros in the dump"),
        (trailer.late, "are newer than the rest, because there was no space to save them"),
    ]
    .into_iter()
    .filter(|(bytes, _)| *bytes > 0)
    .map(|(bytes, words)| format!("{bytes} bytes {words}"))
    .collect()
}

/// Memory that the guard protects, and the rest.
struct Protected {
    ranges: Ranges,
    /// Writable mappings that refuse protection: private mappings of files, and memory whose faults the process
    /// handles itself. They are copied while the process is stopped.
    refused: Vec<Chosen>,
    /// All mappings that are not protected.
    others: Vec<Mapping>,
}

fn protect_all(guard: &Guard, chosen: &[Chosen]) -> Protected {
    let mut all = Protected { ranges: Ranges::new(), refused: Vec::new(), others: Vec::new() };
    for chosen in chosen {
        let mapping = &chosen.mapping;
        if chosen.stored > 0 && guard.protect(mapping, chosen.ranges.as_deref()).is_ok() {
            all.ranges.push((mapping.start, mapping.end));
            continue;
        }
        all.others.push(mapping.clone());
        if chosen.stored > 0 && mapping.write {
            all.refused.push(chosen.clone());
        }
    }
    all
}

/// Buffers for copies of memory, by address.
fn room(ranges: &[(u64, u64)]) -> BTreeMap<u64, Vec<u8>> {
    ranges.iter().map(|&(start, end)| (start, vec![0; (end - start) as usize])).collect()
}

/// Buffers for copies of mappings that cannot be protected.
fn room_for(refused: &[Chosen], pages: &PageMap) -> Result<BTreeMap<u64, Vec<u8>>, Attempt> {
    let copied = filled(refused, pages)?;
    let bytes = size(&copied);
    if bytes <= COPIED {
        return Ok(room(&copied));
    }
    Err(Attempt::Refused(format!(
        "{} MB of its memory cannot be protected ({}), too much to copy while it is stopped",
        bytes / 1_000_000,
        if refused.iter().any(|c| c.mapping.has(b"um") || c.mapping.has(b"uw")) {
            "it uses userfaultfd itself"
        } else {
            "private mappings of files"
        }
    )))
}

/// Omits mappings that the process excludes from dumps. Only smaps has the flags of memory mapped at the last
/// moment. `mappings` are in the order of their addresses.
fn leave_out_undumped(added: &mut [Chosen], mappings: &[Mapping]) {
    for chosen in added {
        let start = chosen.mapping.start;
        let with_flags = mappings.get(mappings.partition_point(|m| m.end <= start));
        if with_flags.is_some_and(|m| m.start <= start && m.has(b"dd")) {
            chosen.stored = 0;
        }
    }
}

/// Ends the fault handler however its user ends.
struct EndOfServer<'a>(&'a Guard);

impl Drop for EndOfServer<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Data saved before it was overwritten, and data copied at the moment of the snapshot.
struct Early<'a> {
    guard: Option<&'a Guard>,
    copied: &'a BTreeMap<u64, Vec<u8>>,
}

/// The stored pages that contain data.
pub(crate) fn filled(chosen: &[Chosen], pages: &PageMap) -> Result<Ranges, Error> {
    let mut out = Ranges::new();
    for chosen in chosen.iter().filter(|c| c.stored > 0) {
        let end = chosen.mapping.start + chosen.stored;
        match &chosen.ranges {
            Some(ranges) => out.extend(within(ranges, chosen.mapping.start, end)),
            None => pages.find(chosen.mapping.start, end, Which::Filled, &mut out)?,
        }
    }
    Ok(out)
}

/// Reads memory into buffers by address.
fn read_all(memory: &Memory, early: &mut BTreeMap<u64, Vec<u8>>) -> Result<(), Error> {
    for (&start, buffer) in early.iter_mut() {
        memory.read(&[(start, start + buffer.len() as u64)], buffer)?;
    }
    Ok(())
}

/// The mappings in `now` that are new since the first look. `protected` are ranges whose unmapping is
/// reported; for the mappings `others` it is not.
fn newcomers(now: &[Mapping], protected: &[(u64, u64)], others: &[Mapping]) -> Vec<Mapping> {
    let mut out = Vec::new();
    for mapping in now {
        let same = |other: &Mapping| {
            (other.end, other.inode, other.offset, other.shared)
                == (mapping.end, mapping.inode, mapping.offset, mapping.shared)
                && other.name == mapping.name
        };
        let known = others.binary_search_by_key(&mapping.start, |other| other.start);
        if known.is_ok_and(|n| same(&others[n])) {
            continue;
        }
        for (start, end) in outside(protected, mapping.start, mapping.end) {
            let offset = mapping.offset + (start - mapping.start);
            // The page size is missing here.
            let huge = mapping.name.starts_with(b"/anon_hugepage");
            let page = if huge { 2 << 20 } else { mapping.page };
            let flags = if huge { vec![*b"ht"] } else { Vec::new() };
            out.push(Mapping { start, end, offset, page, flags, ..mapping.clone() });
        }
    }
    out
}

/// Limits the chosen parts to ranges, in order of address.
fn keep_within(chosen: &mut Vec<Chosen>, ranges: &[(u64, u64)]) {
    chosen.sort_by_key(|c| c.mapping.start);
    let mut out = Vec::with_capacity(chosen.len());
    for chosen in chosen.drain(..) {
        let stored = chosen.mapping.start + chosen.stored;
        for (start, end) in within(ranges, chosen.mapping.start, chosen.mapping.end) {
            let mut part = chosen.clone();
            part.stored = stored.clamp(start, end) - start;
            (part.mapping.start, part.mapping.end) = (start, end);
            out.push(part);
        }
    }
    *chosen = out;
}

/// The default name of a dump.
#[must_use]
pub fn default_name(pid: i32) -> PathBuf {
    Path::new(&format!("core.{pid}.zst")).to_owned()
}

/// Bytes of a chunk in the progress line.
pub const CHUNK_BYTES: u64 = CHUNK;

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, flag: &[u8; 2]) -> Mapping {
        Mapping { start, end: start + 4096, page: 4096, flags: vec![*flag], ..Mapping::default() }
    }

    /// As many as a process may have, of which all came at the last moment.
    #[test]
    fn what_is_excluded_is_found_among_many_mappings_at_once() {
        let flag = |n: u64| if n.is_multiple_of(3) { b"dd" } else { b"wr" };
        let mappings: Vec<Mapping> = (0..65_000).map(|n| mapping(8192 * n, flag(n))).collect();
        let chosen = |start| Chosen { mapping: mapping(start, b"rd"), stored: 4096, ranges: None, why: None };
        // The last lies between two, where nothing is mapped any more.
        let mut added: Vec<Chosen> = (0..65_000).map(|n| chosen(8192 * n)).chain([chosen(4096)]).collect();
        let began = Instant::now();
        leave_out_undumped(&mut added, &mappings);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let stored = |n: u64| if n < 65_000 && n.is_multiple_of(3) { 0 } else { 4096 };
        assert!(added.iter().zip(0..).all(|(chosen, n)| chosen.stored == stored(n)));
    }
}

//! The purpose of each physical page of the machine: Solaris' `::memstat`.
//!
//! Two sources give one answer. BPF walks the kernel's array of `struct page`; where BPF is not to be
//! had, `/proc/kpageflags` is read. Both go over the memory in chunks that several threads take from
//! one counter, and keep nothing but counts, so their own memory does not grow with the machine's.
//! Without root there is an estimate of `/proc/meminfo`.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ncpu_machine::memory::MemoryMap;

mod bpf;
mod class;
mod counts;
mod estimate;
mod exec;
mod kernel;
mod kpageflags;
mod named;
mod owners;
mod rows;
mod tables;
#[cfg(test)]
mod tests;

pub use bpf::Pages;
pub use class::{CLASSES, Class, Classifier, kpf};
pub use counts::Counts;
pub use exec::ExecFrames;
pub use kernel::kernel_uses;
pub use kpageflags::Kpageflags;
pub use owners::By;
pub use tables::table;

/// Pages that a thread takes at once: 1 GiB of pages of 4 KiB.
const CHUNK: u64 = 1 << 18;

/// Where the answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's array of `struct page`, by BPF.
    Bpf,
    /// `/proc/kpageflags`.
    Kpageflags,
    /// `/proc/meminfo`: an estimate.
    Meminfo,
}

impl Source {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Source::Bpf => "bpf",
            Source::Kpageflags => "kpageflags",
            Source::Meminfo => "meminfo",
        }
    }
}

/// The pages to look at, and the source.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The source [default: the best one available].
    pub source: Option<Source>,
    /// Threads that walk; 0 means one for each CPU that this process may use.
    pub threads: usize,
    /// Only these page frames.
    pub frames: Option<Range<u64>>,
    /// Whether [`Memory::rows`] will be asked for.
    pub rows: bool,
    /// Whether [`Memory::owners`] will be asked for.
    pub owners: bool,
}

/// Errors of a walk of the pages.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory map cannot be read.
    #[error(transparent)]
    Machine(#[from] ncpu_machine::Error),
    /// A source that was asked for cannot be used.
    #[error("--source {}: {source}", which.word())]
    Source {
        /// The source.
        which: Source,
        /// Why not.
        source: io::Error,
    },
    /// A walk broke off.
    #[error("walking the pages ({}): {source}", which.word())]
    Walk {
        /// The source.
        which: Source,
        /// Why.
        source: io::Error,
    },
    /// The frames asked for hold no memory.
    #[error("page frames {}-{} hold no memory; see /proc/iomem", .0.start, .0.end)]
    NoFrames(Range<u64>),
    /// Only an estimate is available, where each page is needed.
    #[error(
        "needs root (CAP_SYS_ADMIN), and BPF or /proc/kpageflags: without them there is only `ncpu memory`'s estimate"
    )]
    Estimate,
    /// The owners cannot be found.
    #[error("finding the owners of pages: {source}")]
    Owners {
        /// Why.
        source: io::Error,
    },
    /// The walk was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One look at the memory.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Pages by node and class.
    pub nodes: BTreeMap<u32, Counts>,
    /// Where they are from.
    pub source: Source,
    /// How long it took to find the files that are mapped executable.
    pub exec: Duration,
    /// How long the walk took.
    pub walk: Duration,
    /// Bytes of a page.
    pub page_size: u64,
}

impl Snapshot {
    /// All nodes together.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.nodes.values().for_each(|c| total.add(c));
        total
    }
}

/// A part of memory, on one node, that one thread walks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    /// Where the range of memory begins that it is of.
    first: u64,
    start: u64,
    end: u64,
    node: u32,
    online: bool,
}

enum Walks {
    Bpf(Box<Pages>),
    Kpageflags(Kpageflags),
    Meminfo,
}

/// Looks at the machine's memory.
pub struct Memory {
    walks: Walks,
    chunks: Vec<Chunk>,
    threads: usize,
    page_size: u64,
    /// Notes for the user: sources that were missing, maps that make no sense.
    pub notes: Vec<String>,
}

impl Memory {
    /// Chooses the source and gets it ready.
    ///
    /// # Errors
    /// The source asked for cannot be used, or the frames asked for hold no memory. Without a source
    /// asked for, there always is the estimate.
    pub fn open(options: &Options) -> Result<Memory> {
        let page_size = rustix::param::page_size() as u64;
        let mut notes = Vec::new();
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        if options.source == Some(Source::Meminfo) {
            return Ok(Memory { walks: Walks::Meminfo, chunks: Vec::new(), threads, page_size, notes });
        }
        let map = match MemoryMap::read(Path::new("/"), page_size) {
            Ok(map) => map,
            Err(e) if options.source.is_some() || options.frames.is_some() => return Err(e.into()),
            Err(e) => {
                notes.push(format!("an estimate from /proc/meminfo: {e}"));
                return Ok(Memory { walks: Walks::Meminfo, chunks: Vec::new(), threads, page_size, notes });
            }
        };
        notes.extend(map.warnings.iter().cloned());
        let chunks = chunks(&map, options.frames.as_ref());
        if let (true, Some(frames)) = (chunks.is_empty(), &options.frames) {
            return Err(Error::NoFrames(frames.clone()));
        }
        let walks = match open_source(options, threads, &map, &mut notes) {
            Ok(walks) => walks,
            Err(e) if options.source.is_some() || options.frames.is_some() => return Err(e),
            Err(e) => {
                notes.push(format!("an estimate from /proc/meminfo: {e}"));
                Walks::Meminfo
            }
        };
        Ok(Memory { walks, chunks, threads, page_size, notes })
    }

    /// Where the answer comes from.
    pub fn source(&self) -> Source {
        match self.walks {
            Walks::Bpf(_) => Source::Bpf,
            Walks::Kpageflags(_) => Source::Kpageflags,
            Walks::Meminfo => Source::Meminfo,
        }
    }

    /// Looks at every page once.
    ///
    /// # Errors
    /// The source fails, or `stop` was set meanwhile.
    pub fn look(&mut self, stop: &AtomicBool) -> Result<Snapshot> {
        let source = self.source();
        let start = Instant::now();
        if matches!(self.walks, Walks::Meminfo) {
            let nodes = estimate::read(Path::new("/"), self.page_size)
                .map_err(|e| Error::Walk { which: source, source: e })?;
            let (exec, walk) = (Duration::ZERO, start.elapsed());
            return Ok(Snapshot { nodes, source, exec, walk, page_size: self.page_size });
        }
        let exec = self.find_exec()?;
        let found = start.elapsed();
        let nodes = self.walk(stop, |thread, chunk| match &self.walks {
            Walks::Bpf(pages) => pages
                .walker(thread)
                .run(bpf::Program::Tally, chunk.first, chunk.start, chunk.end)
                .map(|r| r.0),
            Walks::Kpageflags(flags) => flags.tally(chunk.first, chunk.start, chunk.end, &exec),
            Walks::Meminfo => Ok(Counts::default()),
        })?;
        Ok(Snapshot { nodes, source, exec: found, walk: start.elapsed() - found, page_size: self.page_size })
    }

    /// Finds the files that are mapped executable: the frames of their pages, or for BPF a map in the
    /// kernel and no frames.
    fn find_exec(&mut self) -> Result<ExecFrames> {
        let which = self.source();
        let failed = |source| Error::Walk { which, source };
        match &mut self.walks {
            Walks::Bpf(pages) => {
                let dropped = pages.find_exec().map_err(failed)?;
                if dropped > 0 {
                    self.notes.push(format!(
                        "executables: no room for {dropped} mappings; their files' pages count as mapped or cache"
                    ));
                }
                Ok(ExecFrames::default())
            }
            Walks::Kpageflags(_) => {
                let exec = ExecFrames::find().map_err(failed)?;
                if exec.missed > 0 {
                    self.notes.push(format!(
                        "executables: {} files could not be opened; their pages count as mapped or cache",
                        exec.missed
                    ));
                }
                Ok(exec)
            }
            Walks::Meminfo => Ok(ExecFrames::default()),
        }
    }

    /// Gives each chunk to the next thread that is free, and sums by node.
    fn walk(
        &self,
        stop: &AtomicBool,
        one: impl Fn(usize, &Chunk) -> io::Result<Counts> + Sync,
    ) -> Result<BTreeMap<u32, Counts>> {
        let source = self.source();
        let next = AtomicUsize::new(0);
        let work = |thread: usize| -> Result<BTreeMap<u32, Counts>> {
            let mut nodes: BTreeMap<u32, Counts> = BTreeMap::new();
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return Ok(nodes);
                };
                let counts = nodes.entry(chunk.node).or_default();
                if chunk.online {
                    counts.add(&one(thread, chunk).map_err(|e| Error::Walk { which: source, source: e })?);
                } else {
                    counts[Class::Offline] += chunk.end - chunk.start;
                }
            }
        };
        let threads = self.threads.min(self.chunks.len()).max(1);
        let mut all: BTreeMap<u32, Counts> = BTreeMap::new();
        let results = std::thread::scope(|scope| {
            let work = &work;
            let others: Vec<_> = (1..threads).map(|t| scope.spawn(move || work(t))).collect();
            let mut results = vec![work(0)];
            results.extend(others.into_iter().map(|t| match t.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            results
        });
        for result in results {
            for (node, counts) in result? {
                all.entry(node).or_default().add(&counts);
            }
        }
        Ok(all)
    }
}

/// Cuts the memory into chunks that end at multiples of [`CHUNK`], so that no folio or free block lies
/// in two.
fn chunks(map: &MemoryMap, only: Option<&Range<u64>>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for range in &map.ranges {
        let (mut at, end) = match only {
            Some(only) => (range.start.max(only.start), range.end.min(only.end)),
            None => (range.start, range.end),
        };
        while at < end {
            let next = (at / CHUNK + 1).saturating_mul(CHUNK).min(end);
            chunks.push(Chunk {
                first: range.start,
                start: at,
                end: next,
                node: range.node,
                online: range.online,
            });
            at = next;
        }
    }
    chunks
}

fn open_source(options: &Options, threads: usize, map: &MemoryMap, notes: &mut Vec<String>) -> Result<Walks> {
    let asked = options.source;
    let rows = if options.rows { rows::BATCH } else { 0 };
    let flags = Kpageflags::open(Path::new("/"));
    if asked != Some(Source::Kpageflags) {
        match open_bpf(threads, rows, options.owners, map, flags.as_ref().ok()) {
            Ok(pages) => return Ok(Walks::Bpf(Box::new(pages))),
            Err(source) if asked.is_some() => return Err(Error::Source { which: Source::Bpf, source }),
            Err(e) => {
                if flags.is_ok() {
                    notes.push(format!("by /proc/kpageflags, without BPF: {e}"));
                }
            }
        }
    }
    let flags = flags.map_err(|source| Error::Source {
        which: Source::Kpageflags,
        source: io::Error::new(source.kind(), format!("/proc/kpageflags: {source}")),
    })?;
    Ok(Walks::Kpageflags(flags))
}

fn open_bpf(
    threads: usize,
    rows: usize,
    owners: bool,
    map: &MemoryMap,
    flags: Option<&Kpageflags>,
) -> io::Result<Pages> {
    if !bpf::has_btf() {
        return Err(io::Error::other("the kernel has no BTF (/sys/kernel/btf/vmlinux)"));
    }
    let pages = Pages::open(threads, rows, owners)?;
    let ranges: Vec<_> = map.ranges.iter().filter(|r| r.online).map(|r| (r.start, r.end)).collect();
    if let Some(flags) = flags
        && !pages.agrees(flags, &ranges)?
    {
        return Err(io::Error::other("on a sample of pages it does not agree with /proc/kpageflags"));
    }
    Ok(pages)
}

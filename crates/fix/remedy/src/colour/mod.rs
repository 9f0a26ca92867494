//! Cache colour: whether it matters on this machine, and where the stacks of a process are.

pub mod index;

use std::time::Instant;

use ncpu_machine::{CacheType, Topology};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::chase::follow;
use crate::{Error, Result, sys};
use index::{Conflict, Hot, Index};

/// A cache, as far as sets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its level.
    pub level: u32,
    /// Bytes.
    pub size: u64,
    /// Ways.
    pub ways: u32,
    /// Bytes of a line.
    pub line: u64,
}

impl Cache {
    /// Its index, were it plain.
    pub fn index(&self) -> Index {
        let sets = self.size / self.line / u64::from(self.ways);
        Index::Plain { sets: sets.max(1), line: self.line }
    }
}

/// The data caches of the first CPU we may use, of levels 1 and 2.
pub fn caches(machine: &Topology) -> Vec<Cache> {
    let cpu = machine.allowed.first().or(machine.online.first()).unwrap_or(0);
    let own = machine.caches.iter().filter(|c| c.cpus.contains(cpu) && c.level <= 2);
    let data = own.filter(|c| c.ty != CacheType::Instruction && c.ways > 0 && c.line > 0 && c.size > 0);
    let mut out: Vec<Cache> =
        data.map(|c| Cache { level: c.level, size: c.size, ways: c.ways, line: c.line.into() }).collect();
    out.sort_by_key(|c| c.level);
    out
}

/// The cost of colour in a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The cache.
    pub cache: Cache,
    /// How lines were chosen to be of one colour.
    pub by: &'static str,
    /// Lines that were read.
    pub lines: usize,
    /// Nanoseconds of a dependent read, lines spread over the sets.
    pub spread: f64,
    /// Nanoseconds of a dependent read, lines of one set.
    pub same: f64,
}

impl Cost {
    /// How much dearer one colour is.
    pub fn ratio(&self) -> f64 {
        self.same / self.spread.max(f64::MIN_POSITIVE)
    }

    /// Whether it shows beyond what two measurements of the same differ by.
    pub fn matters(&self) -> bool {
        self.ratio() > 1.25
    }
}

/// Nanoseconds of a dependent read that goes round addresses of `memory`, the best of some rounds.
fn chase(memory: &mut [u64], places: &[usize]) -> f64 {
    let base = memory.as_ptr() as u64;
    for (i, &at) in places.iter().enumerate() {
        memory[at] = base + places[(i + 1) % places.len()] as u64 * 8;
    }
    let first = base + places[0] as u64 * 8;
    // SAFETY: every place of the round holds the address of another place of it, and `memory` outlives the call.
    let round = || unsafe { follow(first, READS) };
    round();
    (0..9)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(round());
            begin.elapsed().as_nanos() as f64 / READS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Dependent reads between two looks at the clock, a multiple of 8.
const READS: u64 = 200_000;

/// The frame in an entry of /proc/PID/pagemap.
const FRAME: u64 = (1 << 55) - 1;
/// How many names are listed for a set.
const NAMES: usize = 40;
/// Bytes of memory in which lines are looked for.
const ROOM: usize = 64 << 20;

/// Measures the cost of lines of one colour in each cache: in the first level by their offset in a page, in the second
/// by the page's frame, where frames can be seen (root). A guest's frames are not the machine's.
///
/// # Errors
/// The machine reports no caches.
pub fn measure(machine: &Topology) -> Result<(Vec<Cost>, Vec<String>)> {
    let caches = caches(machine);
    if caches.is_empty() {
        return Err(Error::Refused("this machine does not describe its caches and their ways".into()));
    }
    let page = ncpu_machine::page_size() as usize;
    let mut memory = vec![0u64; ROOM / 8];
    // Every page is there, and none is the zero page.
    memory.iter_mut().step_by(page / 8).for_each(|w| *w = 1);
    let start = memory.as_ptr() as usize;
    let first = (page - start % page) % page / 8;
    let pages = (memory.len() - first) * 8 / page - 1;
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    for cache in caches {
        // Twice the ways overflow a set for sure.
        let lines = 2 * cache.ways as usize;
        let place = |page_at: usize, line: usize| first + (page_at * page + line * cache.line as usize) / 8;
        let per_page = page / cache.line as usize;
        let index = cache.index();
        let colours = index.colours(page as u64) as usize;
        // Pages a prime apart, so that no prefetcher follows.
        let chosen = |i: usize| i * 37 % pages;
        let (same, spread, by): (Vec<usize>, Vec<usize>, _) = if colours == 1 {
            let same = (0..lines).map(|i| place(chosen(i), 0)).collect();
            let spread = (0..lines).map(|i| place(chosen(i), i * 7 % per_page)).collect();
            (same, spread, "offset in the page")
        } else {
            let frames = match frames(start + first * 8, pages, page) {
                Ok(frames) => frames,
                Err(why) => {
                    notes.push(format!("level {}: frames of pages cannot be seen: {why}", cache.level));
                    continue;
                }
            };
            let wanted = index.colour(frames[0], page as u64);
            let same: Vec<usize> = (0..pages)
                .filter(|&p| index.colour(frames[p], page as u64) == wanted)
                .take(lines)
                .map(|p| place(p, p % 2))
                .collect();
            if same.len() < lines {
                notes.push(format!("level {}: only {} pages of one colour", cache.level, same.len()));
                continue;
            }
            // The same offsets, so that the first level suffers alike.
            let spread = (0..lines).map(|i| place(chosen(i), chosen(i) % 2)).collect();
            (same, spread, "frame of the page")
        };
        let (spread, same) = (chase(&mut memory, &spread), chase(&mut memory, &same));
        out.push(Cost { cache, by, lines, spread, same });
    }
    Ok((out, notes))
}

/// The frames of pages of ours, from /proc/self/pagemap.
fn frames(start: usize, pages: usize, page: usize) -> std::result::Result<Vec<u64>, String> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open("/proc/self/pagemap").map_err(|e| e.to_string())?;
    let mut bytes = vec![0u8; pages * 8];
    file.read_exact_at(&mut bytes, (start / page * 8) as u64).map_err(|e| e.to_string())?;
    let frames: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|b| u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) & FRAME)
        .collect();
    if frames.iter().all(|&f| f == 0) {
        return Err("that needs root".into());
    }
    Ok(frames)
}

/// The cost of colour, as a table.
pub fn costs_table(costs: &[Cost]) -> Table {
    let ns = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Gauge, meaning);
    let columns = [
        Column::id("level", "level of the cache"),
        Column::int("size", Unit::Bytes, Kind::Gauge, "its size"),
        Column::id("ways", "lines that a set holds"),
        Column::id("colours", "places in it that a page can fill, were its index plain"),
        Column::text("by", "what lines of one colour have in common"),
        Column::count("lines", "lines that were read in turn"),
        ns("spread", "nanoseconds of a dependent read, lines of all colours"),
        ns("same", "nanoseconds of a dependent read, lines of one colour"),
        ns("x", "how much dearer one colour is"),
        Column::text("verdict", "whether colour matters here"),
    ];
    let mut table = Table::builder("colour", &columns);
    for cost in costs {
        let verdict = if cost.matters() { "matters" } else { "does not show" };
        table
            .row()
            .int(cost.cache.level.into())
            .int(cost.cache.size)
            .int(cost.cache.ways.into())
            .int(cost.cache.index().colours(ncpu_machine::page_size()))
            .text(cost.by)
            .int(cost.lines as u64)
            .float(cost.spread)
            .float(cost.same)
            .float(cost.ratio())
            .text(verdict);
    }
    table.finish()
}

/// The stack pointers of a process's threads; how many could not be asked. A thread that runs is stopped for that, for
/// some microseconds.
///
/// # Errors
/// The process is not there, or not ours.
pub fn stacks(pid: u32) -> Result<(Vec<Hot>, usize)> {
    crate::place::balance::check(pid)?;
    let (mut out, mut unasked) = (Vec::new(), 0);
    for tid in sys::threads(pid) {
        let path = format!("/proc/{pid}/task/{tid}/syscall");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // It has ended.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
                continue;
            }
            Err(e) => return Err(Error::file(path.as_ref(), e)),
        };
        // number, six arguments, stack pointer, program counter; `running` of a thread that does
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let asleep =
            words.len().checked_sub(2).and_then(|at| words.get(at)).and_then(|w| w.strip_prefix("0x"));
        let asleep = asleep.and_then(|p| u64::from_str_radix(p, 16).ok());
        match asleep.or_else(|| sys::stack_pointer(tid).ok()).filter(|&p| p > 0) {
            Some(address) => out.push(Hot { name: tid.to_string(), address, stack: true }),
            None => unasked += 1,
        }
    }
    Ok((out, unasked))
}

/// Puts physical addresses in the place of a process's own; how many had none and were left out.
///
/// # Errors
/// They cannot be seen, which takes root.
pub fn to_physical(pid: u32, hot: &mut Vec<Hot>) -> Result<usize> {
    use std::os::unix::fs::FileExt;
    let path = format!("/proc/{pid}/pagemap");
    let file = std::fs::File::open(&path).map_err(|e| Error::file(path.as_ref(), e))?;
    let page = ncpu_machine::page_size();
    let before = hot.len();
    let mut hidden = false;
    hot.retain_mut(|each| {
        let mut entry = [0u8; 8];
        let read = file.read_exact_at(&mut entry, each.address / page * 8);
        let entry = u64::from_ne_bytes(entry);
        let (present, frame) = (entry >> 63 == 1, entry & FRAME);
        hidden |= read.is_ok() && present && frame == 0;
        each.address = frame * page + each.address % page;
        read.is_ok() && present
    });
    if hidden {
        return Err(Error::Refused(format!("{path}: frames of pages are seen by root only")));
    }
    Ok(before - hot.len())
}

/// Conflicts, as a table.
pub fn conflicts_table(conflicts: &[Conflict], ways: u32) -> Table {
    let columns = [
        Column::id("set", "set of the cache"),
        Column::count("lines", "lines that compete for it"),
        Column::id("ways", "lines that it holds"),
        Column::count("words", "lines of variables among them"),
        Column::count("stacks", "lines of stacks among them"),
        Column::text("who", "whose they are"),
    ];
    let mut table = Table::builder("conflicts", &columns);
    for conflict in conflicts {
        let (stacks, words): (Vec<&Hot>, Vec<&Hot>) = conflict.members.iter().partition(|m| m.stack);
        let mut who: Vec<String> = words.iter().take(NAMES).map(|m| m.name.clone()).collect();
        if words.len() > NAMES {
            who.push(format!("{} more", words.len() - NAMES));
        }
        if !stacks.is_empty() {
            let threads: Vec<&str> = stacks.iter().take(NAMES).map(|m| m.name.as_str()).collect();
            let more = if stacks.len() > NAMES { " ..." } else { "" };
            who.push(format!("stacks of threads {}{more}", threads.join(" ")));
        }
        table
            .row()
            .int(conflict.set)
            .int(conflict.members.len() as u64)
            .int(ways.into())
            .int(words.len() as u64)
            .int(stacks.len() as u64)
            .text(who.join(", "));
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_visits_its_places() {
        let mut memory = vec![0u64; 4096];
        assert!(chase(&mut memory, &[0, 64, 128]) > 0.0);
        let at = |i: usize| memory.as_ptr() as u64 + 8 * i as u64;
        assert_eq!((memory[0], memory[64], memory[128]), (at(64), at(128), at(0)));
        // SAFETY: as above.
        assert_eq!(unsafe { follow(at(0), 8) }, at(128));
    }

    #[test]
    fn threads_tell_their_stacks() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let until = Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match stacks(std::process::id()) {
                Ok((found, _)) if !found.is_empty() => break,
                Ok(_) if Instant::now() < until => std::thread::sleep(std::time::Duration::from_millis(1)),
                // A kernel without the file.
                other => {
                    eprintln!("skipped: {other:?}");
                    break;
                }
            }
        }
        drop(go);
        assert!(thread.join().unwrap().is_err());
    }
}

//! The program's waits for pthread locks, as `libncpu_locks.so` notes them in files that are read here.
//!
//! The program may write into its files what it likes, so nothing is mapped, everything is bounded, and a sum that goes
//! back counts as nothing.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ncpu_files::Dir;
use ncpu_files::reader::process_text;
use ncpu_preload::waits::{
    AT_ENTRIES, AT_MAPS, AT_THREADS, ENTRIES, Entry, FRAMES, Header, Kind, MAGIC, TABLE, THREADS, Thread,
    nanoseconds, processor_ticks,
};
use ncpu_schema::user_locks;
use ncpu_table::Table;

use crate::names::Symbols;
use crate::names::waits::{joined, waiting_at};

/// Processes whose files are read.
const PROCESSES: usize = 4096;
/// Rows of a table: of a program with more locks, those waited for longest.
const ROWS: usize = 4096;

/// The file that every process with the library maps.
const LIBRARY: &[u8] = b"/libncpu_locks.so";

/// The files of a program's processes.
pub(super) struct Locks {
    dir: Dir,
    processes: BTreeMap<String, Process>,
    /// Files that are not ours, or too many.
    refused: BTreeSet<String>,
    /// Waits without an entry, and threads without a place, of processes that are gone.
    untold: (u64, u64),
    /// Processes that had a file.
    seen: usize,
    /// Whether a process has the library, by a look at its mappings; `None` before the second look.
    has_library: HashMap<u32, Option<bool>>,
    /// Processes without it, the first of them by name.
    without: (usize, Option<String>),
}

/// A process's file, and what was read of it.
struct Process {
    file: File,
    pid: u32,
    threads: Vec<Sums>,
    /// The reported part of each entry: its waits and ns.
    told: HashMap<(usize, usize), (u64, u64)>,
}

/// A thread's words as they were at the last look.
#[derive(Clone, Copy, Default)]
struct Sums {
    tid: u32,
    /// Whether it waits now.
    waits: bool,
    /// The wait that its entry does not have yet.
    last: Option<Last>,
    /// ns waited for locks, that wait included.
    for_locks: u64,
    untold: u64,
}

/// A thread's last wait.
#[derive(Clone, Copy)]
struct Last {
    /// Counted from 1; 0 where it found none.
    entry: u32,
    ns: u64,
    ended: bool,
    blame: u32,
}

/// A moment by the clock and by the processor's counter.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// ns of `CLOCK_MONOTONIC`.
    now: u64,
    ticks: u64,
}

impl Moment {
    pub fn now() -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment { now: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, ticks: processor_ticks() }
    }
}

/// A process that has begun to wait, by its own words.
pub(super) struct New {
    pub pid: u32,
    pub name: String,
    /// The text of its `maps`.
    pub maps: Vec<u8>,
}

/// Waits since the last look.
#[derive(Default)]
pub(super) struct Look {
    /// Seconds that threads waited for locks; 0 is a thread that has ended.
    pub waited: Vec<(u32, f64)>,
    /// Threads that wait now, for a lock or for something else that is known.
    pub waiting: BTreeSet<u32>,
    /// Processes that were not known before.
    pub new: Vec<New>,
}

impl Locks {
    /// Of the files in a directory, which the program's processes make.
    ///
    /// # Errors
    /// It is not there.
    pub fn of(dir: &Path) -> io::Result<Locks> {
        Ok(Locks {
            dir: Dir::open(dir)?,
            processes: BTreeMap::new(),
            refused: BTreeSet::new(),
            untold: (0, 0),
            seen: 0,
            has_library: HashMap::new(),
            without: (0, None),
        })
    }

    /// Takes what processes that have begun to wait made.
    fn find(&mut self) -> Vec<New> {
        let mut new = Vec::new();
        for name in self.dir.names().unwrap_or_default() {
            if self.processes.contains_key(&name) || self.refused.contains(&name) {
                continue;
            }
            match self.processes.len() < PROCESSES {
                true => match self.dir.open_file(&name).ok().and_then(Process::of) {
                    Some(process) => {
                        new.push(process.describe());
                        self.seen += 1;
                        self.processes.insert(name, process);
                    }
                    // It may be about to be begun; a damaged one is looked at again, which costs little.
                    None => continue,
                },
                false => drop(self.refused.insert(name)),
            }
        }
        new
    }

    /// Looks at what threads wait for.
    pub fn look(&mut self, now: Moment) -> Look {
        let mut out = Look { new: self.find(), ..Look::default() };
        for process in self.processes.values_mut() {
            let before = std::mem::take(&mut process.threads);
            process.threads = process.read_threads(now);
            for (i, thread) in process.threads.iter_mut().enumerate() {
                let told = before.get(i).map_or(0, |t| t.for_locks);
                let ns = thread.for_locks.saturating_sub(told);
                // A wait is in no sum while it is added.
                thread.for_locks = thread.for_locks.max(told);
                if ns > 0 {
                    out.waited.push((thread.tid, ns as f64 / 1e9));
                }
                if thread.waits {
                    out.waiting.insert(thread.tid);
                }
            }
        }
        out
    }

    /// Looks whether processes have the library loaded, at the second look: at the first they may not have begun.
    pub fn look_for_library<'a>(&mut self, processes: impl Iterator<Item = (u32, &'a str)>) {
        for (pid, name) in processes {
            if self.has_library.len() >= PROCESSES && !self.has_library.contains_key(&pid) {
                continue;
            }
            match self.has_library.entry(pid) {
                Slot::Vacant(new) => drop(new.insert(None)),
                Slot::Occupied(mut known) if known.get().is_none() => {
                    let Ok(maps) = process_text(format!("/proc/{pid}").as_ref(), pid, "maps") else {
                        continue;
                    };
                    let has = maps.windows(LIBRARY.len()).any(|w| w == LIBRARY);
                    known.insert(Some(has));
                    if !has && !maps.is_empty() {
                        self.without.0 += 1;
                        self.without.1.get_or_insert_with(|| name.to_string());
                    }
                }
                Slot::Occupied(_) => {}
            }
        }
    }

    /// Notes for the reader.
    pub fn words(&self) -> String {
        let mut out = match self.seen {
            0 => "no thread waited for a pthread lock where libncpu_locks.so was loaded".to_string(),
            1 => "waits for pthread locks were timed by libncpu_locks.so, of 1 process".into(),
            n => format!("waits for pthread locks were timed by libncpu_locks.so, of {n} processes"),
        };
        if let (n @ 1.., Some(first)) = &self.without {
            let others = if *n > 1 { format!(" and {} more", n - 1) } else { String::new() };
            out += &format!(
                "; {first}{others} ran without it (static, of another C library, or with an environment of its own): \
                 their waits in futexes stand as user locks or serial phases"
            );
        }
        out + "; locks that are no pthread locks, as Go's and Rust's own, stand there too"
    }

    /// The new waits of each lock up to `t`: table `user_locks`. Processes missing from `live` are reported for the
    /// last time.
    pub fn table(
        &mut self,
        t: f64,
        now: Moment,
        live: impl Fn(u32) -> bool,
        symbols: &mut Symbols,
        process: &HashMap<u32, String>,
        thread: impl Fn(u32) -> Option<String>,
    ) -> Table {
        let mut rows = Vec::new();
        for file in self.processes.values_mut() {
            file.threads = file.read_threads(now);
            rows.extend(file.rows());
        }
        rows.sort_by_key(|row: &Row| std::cmp::Reverse(row.ns));
        rows.truncate(ROWS);
        let mut out = user_locks::Rows::new();
        for row in rows {
            let frames: Vec<u64> =
                std::iter::once(row.caller.saturating_sub(1)).chain(row.frames.iter().copied()).collect();
            let mut frames = symbols.user(row.pid, &frames);
            // A frame pointer that is none leads anywhere.
            let named = frames.iter().skip(1).position(|f: &Arc<str>| f.starts_with("[unknown"));
            frames.truncate(named.map_or(frames.len(), |n| n + 1));
            let name = symbols.data(row.pid, row.lock).unwrap_or_else(|| format!("{:#x}", row.lock));
            let holder = (row.holder != 0).then(|| match thread(row.holder) {
                Some(name) => format!("{name}/{}", row.holder),
                None => row.holder.to_string(),
            });
            out.push(user_locks::Row {
                counted: None,
                error: None,
                pattern: None::<&str>.into(),
                advice: None::<&str>.into(),
                lock: name.into(),
                ty: row.ty.into(),
                process: process.get(&row.pid).map_or("[gone]", String::as_str).into(),
                pid: Some(row.pid.into()),
                caller: waiting_at(&frames).into(),
                holder: holder.into(),
                count: Some(row.count),
                wakes: None,
                spin: None,
                block: Some(row.ns as f64 / 1e9),
                max: Some(row.longest as f64 / 1e3),
                stack: joined(&frames).into(),
                time: Some(t),
                queued: None,
                waking: None,
                threads: None,
                futexes: None,
            });
        }
        let gone: Vec<String> =
            self.processes.iter().filter(|(_, p)| !live(p.pid)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(process) = self.processes.remove(&name) {
                self.untold.0 += process.threads.iter().map(|t| t.untold).sum::<u64>();
                self.untold.1 += process.turned_away();
            }
            // A file that may not be removed is not looked at again.
            if self.dir.remove(&name).is_err() {
                self.refused.insert(name);
            }
        }
        out.finish()
    }

    /// Waits of which only the sums are known, threads that found no place, and processes that were too many.
    pub fn untold(&self) -> [(&'static str, u64); 3] {
        let all = self.processes.values();
        let waits: u64 = all.clone().flat_map(|p| &p.threads).map(|t| t.untold).sum();
        let threads: u64 = all.map(Process::turned_away).sum();
        [
            ("waits for user locks, of threads that wait for more than 64", self.untold.0 + waits),
            ("threads without room for their waits for user locks", self.untold.1 + threads),
            ("processes whose waits for user locks were not read", self.refused.len() as u64),
        ]
    }
}

/// A lock at a place of a process's code, since the last report.
struct Row {
    pid: u32,
    lock: u64,
    caller: u64,
    ty: &'static str,
    count: u64,
    ns: u64,
    longest: u64,
    holder: u32,
    ahead: u64,
    frames: Vec<u64>,
}

impl Process {
    /// `None` while it is not ready.
    fn of(file: File) -> Option<Process> {
        let mut head = [0; size_of::<Header>()];
        file.read_exact_at(&mut head, 0).ok()?;
        let magic = word(&head, std::mem::offset_of!(Header, magic));
        let pid = half(&head, std::mem::offset_of!(Header, pid));
        (magic == MAGIC && pid != 0).then(|| Process { file, pid, threads: Vec::new(), told: HashMap::new() })
    }

    fn header(&self, at: usize) -> u32 {
        let mut head = [0; size_of::<Header>()];
        self.file.read_exact_at(&mut head, 0).map_or(0, |()| half(&head, at))
    }

    fn describe(&self) -> New {
        use std::mem::offset_of;

        let mut head = [0; size_of::<Header>()];
        let read = self.file.read_exact_at(&mut head, 0).is_ok();
        let length = (half(&head, offset_of!(Header, maps)) as usize).min(AT_THREADS - AT_MAPS);
        let mut maps = vec![0; if read { length } else { 0 }];
        if self.file.read_exact_at(&mut maps, AT_MAPS as u64).is_err() {
            maps.clear();
        }
        let name = &head[offset_of!(Header, name)..][..16];
        let name = name.split(|&b| b == 0).next().unwrap_or_default();
        New { pid: self.pid, name: String::from_utf8_lossy(name).into_owned(), maps }
    }

    fn turned_away(&self) -> u64 {
        self.header(std::mem::offset_of!(Header, turned_away)).into()
    }

    fn read_threads(&self, now: Moment) -> Vec<Sums> {
        use std::mem::offset_of;

        let used = (self.header(offset_of!(Header, used)) as usize).min(THREADS);
        let mut bytes = vec![0; used * size_of::<Thread>()];
        if self.file.read_exact_at(&mut bytes, AT_THREADS as u64).is_err() {
            return Vec::new();
        }
        let by_processor = self.header(offset_of!(Header, ticks)) == 1;
        let until = (now.now, if by_processor { now.ticks } else { now.now });
        let read = |thread: &[u8]| {
            let at = |field| word(thread, field);
            let waits = half(thread, offset_of!(Thread, waits));
            let last = (waits != 0).then(|| {
                let since = at(offset_of!(Thread, since));
                let ended = at(offset_of!(Thread, ended));
                Last {
                    entry: half(thread, offset_of!(Thread, entry)),
                    ns: match ended {
                        0 => now.now.saturating_sub(since),
                        ended => nanoseconds((since, at(offset_of!(Thread, began))), ended, until),
                    },
                    ended: ended != 0,
                    blame: half(thread, offset_of!(Thread, blame)),
                }
            });
            let for_lock = last.filter(|_| waits == 1).map_or(0, |last| last.ns);
            let untold = last.filter(|last| last.ended && last.entry == 0).is_some();
            Sums {
                tid: half(thread, offset_of!(Thread, tid)),
                waits: last.is_some_and(|last| !last.ended),
                last,
                for_locks: at(offset_of!(Thread, for_locks)).saturating_add(for_lock),
                untold: at(offset_of!(Thread, dropped)).saturating_add(untold.into()),
            }
        };
        bytes.chunks_exact(size_of::<Thread>()).map(read).collect()
    }

    /// New waits, by lock and caller.
    fn rows(&mut self) -> Vec<Row> {
        let mut rows: HashMap<(u64, u64, u32), Row> = HashMap::new();
        let mut semaphores: HashMap<u64, Semaphore> = HashMap::new();
        let mut bytes = vec![0; TABLE];
        for (index, thread) in self.threads.iter().enumerate() {
            if self.file.read_exact_at(&mut bytes, (AT_ENTRIES + index * TABLE) as u64).is_err() {
                continue;
            }
            for (at, entry) in bytes.chunks_exact(size_of::<Entry>()).take(ENTRIES).enumerate() {
                let Some(mut entry) = Noted::of(entry) else { continue };
                if let Some(last) = thread.last.filter(|last| last.entry as usize == at + 1) {
                    entry.add(last);
                }
                let ns = entry.ns;
                match entry.kind {
                    Kind::Post => {
                        semaphores.entry(entry.lock).or_default().posts.push((index, entry.count));
                    }
                    Kind::Semaphore => {
                        let semaphore = semaphores.entry(entry.lock).or_default();
                        let (count, sum) = semaphore.waiters.entry(index).or_default();
                        *count = count.saturating_add(entry.count);
                        *sum = sum.saturating_add(ns);
                    }
                    _ => {}
                }
                let told = self.told.entry((index, at)).or_default();
                let (count, new) = (entry.count.saturating_sub(told.0), ns.saturating_sub(told.1));
                *told = (told.0 + count, told.1 + new);
                if entry.kind == Kind::Post || (count == 0 && new == 0) {
                    continue;
                }
                let row = rows.entry((entry.lock, entry.caller, entry.kind as u32)).or_insert_with(|| Row {
                    pid: self.pid,
                    lock: entry.lock,
                    caller: entry.caller,
                    ty: match entry.kind {
                        Kind::Mutex => "mutex",
                        Kind::Read | Kind::Write => "rwlock",
                        Kind::Condition => "condition",
                        Kind::Barrier => "barrier",
                        Kind::Semaphore | Kind::Post => "semaphore",
                    },
                    count: 0,
                    ns: 0,
                    longest: 0,
                    holder: 0,
                    ahead: 0,
                    frames: entry.frames.clone(),
                });
                row.count = row.count.saturating_add(count);
                row.ns = row.ns.saturating_add(new);
                row.longest = row.longest.max(entry.longest.max(if count == 0 { new } else { 0 }));
                if entry.ahead > row.ahead {
                    (row.holder, row.ahead) = (entry.holder, entry.ahead);
                }
            }
        }
        for row in rows.values_mut().filter(|row| row.ty == "semaphore") {
            let Some(semaphore) = semaphores.get(&row.lock) else { continue };
            if !semaphore.is_a_lock() {
                row.ty = "unknown";
            }
            let most = semaphore.posts.iter().max_by_key(|(_, n)| *n);
            row.holder = most.and_then(|(index, _)| self.threads.get(*index)).map_or(0, |t| t.tid);
        }
        rows.into_values().collect()
    }
}

/// Waits and posts of a semaphore, by the numbers of a process's threads.
#[derive(Default)]
struct Semaphore {
    /// How often each waited, and how long in all, in nanoseconds.
    waiters: BTreeMap<usize, (u64, u64)>,
    /// How often each posted it while others waited.
    posts: Vec<(usize, u64)>,
}

impl Semaphore {
    /// A lock is posted by its waiters, and waited for by its posters.
    fn is_a_lock(&self) -> bool {
        let sum = |of: &mut dyn Iterator<Item = u64>| of.fold(0u64, u64::saturating_add);
        let posts = sum(&mut self.posts.iter().map(|p| p.1));
        let by_waiters = self.posts.iter().filter(|(index, _)| self.waiters.contains_key(index));
        let posted = |index: &usize| self.posts.iter().any(|p| p.0 == *index);
        // The last to get a lock waits once, and gives it back when nobody waits.
        let counted = self.waiters.iter().filter(|(index, of)| posted(index) || of.0 > 1);
        let waited = sum(&mut counted.map(|(_, of)| of.1));
        let of_posters = self.waiters.iter().filter(|(index, _)| posted(index));
        let by_posters = sum(&mut of_posters.map(|(_, of)| of.1));
        by_posters > 0 && sum(&mut by_waiters.map(|p| p.1)) >= posts / 2 && by_posters >= waited / 2
    }
}

/// An entry of the file.
struct Noted {
    lock: u64,
    caller: u64,
    kind: Kind,
    count: u64,
    ns: u64,
    longest: u64,
    holder: u32,
    ahead: u64,
    frames: Vec<u64>,
}

impl Noted {
    fn of(bytes: &[u8]) -> Option<Noted> {
        use std::mem::offset_of;

        let depth = (half(bytes, offset_of!(Entry, depth)) as usize).min(FRAMES);
        Some(Noted {
            kind: Kind::from_number(half(bytes, offset_of!(Entry, kind)))?,
            lock: word(bytes, offset_of!(Entry, lock)),
            caller: word(bytes, offset_of!(Entry, caller)),
            count: word(bytes, offset_of!(Entry, count)),
            ns: word(bytes, offset_of!(Entry, ns)),
            longest: word(bytes, offset_of!(Entry, longest)),
            holder: half(bytes, offset_of!(Entry, holder)),
            ahead: word(bytes, offset_of!(Entry, ahead)),
            frames: (0..depth).map(|i| word(bytes, offset_of!(Entry, frames) + 8 * i)).collect(),
        })
    }

    /// Adds the wait that the thread has not added yet.
    fn add(&mut self, last: Last) {
        self.ns = self.ns.saturating_add(last.ns);
        if last.ended {
            self.count = self.count.saturating_add(1);
            self.longest = self.longest.max(last.ns);
        }
        if self.holder == 0 {
            (self.holder, self.ahead) = (last.blame, last.ns);
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::Semaphore;

    fn is_a_lock(posts: &[(usize, u64)], waiters: &[(usize, u64, u64)]) -> bool {
        let waiters = waiters.iter().map(|&(index, count, ns)| (index, (count, ns))).collect();
        Semaphore { waiters, posts: posts.to_vec() }.is_a_lock()
    }

    #[test]
    fn a_semaphore_that_its_waiters_post_is_a_lock() {
        assert!(is_a_lock(&[(0, 10), (1, 10)], &[(0, 10, 50), (1, 10, 50)]));
        // The first never waited, and the third got it when the others had ended.
        assert!(is_a_lock(&[(0, 20), (1, 20)], &[(1, 1, 29), (2, 1, 58)]));
        assert!(is_a_lock(&[(0, 20), (1, 20)], &[(0, 4, 2), (1, 3, 27), (2, 1, 58)]));
    }

    #[test]
    fn a_semaphore_that_tells_of_work_is_none() {
        assert!(!is_a_lock(&[(0, 1)], &[(1, 1, 40)]));
        assert!(!is_a_lock(&[(0, 20)], &[(1, 20, 40), (2, 20, 40)]));
        assert!(!is_a_lock(&[], &[(1, 1, 40)]));
        // A worker that posts more work, among those that take it.
        assert!(!is_a_lock(&[(0, 20), (1, 2)], &[(1, 11, 20), (2, 11, 20)]));
        // It waits for another's word far longer than the others for its own.
        assert!(!is_a_lock(&[(0, 2), (1, 2)], &[(1, 2, 1), (2, 2, 90)]));
    }
}

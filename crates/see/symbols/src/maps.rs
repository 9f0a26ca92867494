//! The origin of a process's executable memory, kept after the process has ended.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ncpu_files::reader::{Source, Whose};
use ncpu_machine::process::{self, Fields, Mapping as Line};

/// The most processes remembered; beyond that the one noted longest ago is dropped.
const MAX_PROCESSES: usize = 1 << 12;
/// The most mappings remembered of all processes: 32 bytes each.
const MAX_MAPPINGS: usize = 1 << 16;
/// The most images remembered of one process: it may exec, and earlier samples still need names.
const MAX_IMAGES: usize = 4;
/// Files held from when they were first seen, so that they have names even if their paths change. Each takes a
/// descriptor, which keeps the file's disk space, and its file system mounted, until the file was not used for a while.
const MAX_HELD: usize = 512;
/// The most bytes read of a process's mappings; mappings behind them have no names.
const MAX_TEXT: u64 = 16 << 20;
/// The most files remembered; code in further ones gets no names until [`ProcMaps::forget`].
const MAX_FILES: usize = 1 << 12;
/// The time before a process's mappings are read again for an address outside them: the first, and the
/// longest.
const FIRST_AGAIN: Duration = Duration::from_millis(1);
const LAST_AGAIN: Duration = Duration::from_secs(1);
/// The longest where the last reading found new code.
const NEW_CODE_AGAIN: Duration = Duration::from_millis(50);
/// The most processes for which this time is kept.
const MAX_AGAIN: usize = 1 << 12;

/// The executable mappings of processes, kept so that their addresses can be named after they exit.
///
/// Noting a process costs one read of its `maps` (about 50 µs) and 32 bytes per mapping. A file is held by
/// its inode from when it is first seen, and opened when it is read: the user of a program may replace its
/// file, or mount another over it.
#[derive(Debug)]
pub struct ProcMaps {
    proc: PathBuf,
    /// Whether the processes run on this machine: any user may have made their files.
    live: bool,
    processes: HashMap<u32, Vec<Arc<Image>>>,
    /// The users of these processes.
    owners: HashMap<u32, Whose>,
    order: VecDeque<u32>,
    /// Mappings of all images; shared ones are counted in each.
    mappings: usize,
    files: Vec<MappedFile>,
    by_identity: HashMap<Identity, u32>,
    /// The time when the mappings of a process may be read again for an unknown address, and the waiting time
    /// after that.
    again: HashMap<u32, (Instant, Duration)>,
    /// Processes whose mappings were read again since the last query.
    read_again: BTreeSet<u32>,
}

/// The mappings of one program image, sorted by address.
#[derive(Debug, PartialEq, Eq)]
struct Image(Box<[Mapping]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: u32,
}

/// Identifies a file by device and inode, or another mapping by its label.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    File(u64, u64),
    Label(Box<str>),
}

/// The object that a mapping maps.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// Its usual name: `libc.so.6`, `[vdso]`, `[anon]`.
    pub label: Box<str>,
    /// The path it was mapped by; `None` for a mapping without a file.
    pub path: Option<PathBuf>,
    /// Code may be generated here at run time, and a perf map may name it.
    pub jit: bool,
    identity: (u64, u64),
    held: RefCell<Option<Source>>,
    /// Whether it was used since unused files were last released.
    used: Cell<bool>,
    /// Its last mapping: the process, and the address range.
    place: Cell<(u32, u64, u64)>,
}

impl ProcMaps {
    /// An empty cache that reads `proc` under `root` (`/` on a live system).
    pub fn new(root: &Path) -> ProcMaps {
        let proc = root.join("proc");
        ProcMaps {
            live: root == Path::new("/"),
            proc,
            processes: HashMap::new(),
            owners: HashMap::new(),
            order: VecDeque::new(),
            mappings: 0,
            files: Vec::new(),
            by_identity: HashMap::new(),
            again: HashMap::new(),
            read_again: BTreeSet::new(),
        }
    }

    /// Reads the current mappings of `tgid`; to be called when the process is first seen and when it execs.
    /// Returns whether there were any (a kernel thread, or a process that has ended, has none).
    pub fn note_process(&mut self, tgid: u32) -> bool {
        let dir = self.proc.join(tgid.to_string());
        let whose = Whose::process(&dir, tgid);
        let Ok(maps) = Source::of_proc(&dir.join("maps"), whose) else { return false };
        let mut image = Vec::new();
        let (mut text, mut at) = (Vec::new(), 0u64);
        // Line by line: some programs have megabytes of them, mostly data.
        while at < MAX_TEXT && image.len() < MAX_MAPPINGS {
            let before = text.len();
            text.resize(before + (64 << 10), 0);
            let got = maps.read_at(&mut text[before..], at).unwrap_or(0);
            text.truncate(before + got);
            at += got as u64;
            let lines = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
            self.note_lines(tgid, &text[..lines], whose, &mut image);
            text.drain(..lines);
            // The longest line has a path of 4 KiB, each byte of which may take four.
            if got == 0 || text.len() > 64 << 10 {
                break;
            }
        }
        self.note_image(tgid, image, whose)
    }

    /// Uses the mappings of a process that may have ended, from the text of its `maps`, in this mount
    /// namespace.
    pub fn note_maps(&mut self, tgid: u32, text: &[u8]) -> bool {
        let mut image = Vec::new();
        let whose = Whose::process(&self.proc.join(tgid.to_string()), tgid);
        self.note_lines(tgid, text, whose, &mut image);
        self.note_image(tgid, image, whose)
    }

    fn note_lines(&mut self, tgid: u32, text: &[u8], whose: Whose, image: &mut Vec<Mapping>) {
        for line in text.split(|&b| b == b'\n') {
            let Some(line) = Line::parse(line).filter(|line| line.execute) else { continue };
            let file = self.file_id(tgid, &line, whose);
            image.push(Mapping { start: line.start, end: line.end, offset: line.offset, file });
        }
    }

    fn note_image(&mut self, tgid: u32, image: Vec<Mapping>, whose: Whose) -> bool {
        if image.is_empty() {
            return false;
        }
        self.owners.insert(tgid, whose);
        let image = Arc::new(Image(image.into()));
        let images = self.images(tgid);
        let before = mappings(images);
        match images.last_mut() {
            // The same program with additional libraries.
            Some(last) if last.0[0] == image.0[0] => *last = image,
            _ => images.push(image),
        }
        if images.len() > MAX_IMAGES {
            images.remove(0);
        }
        let after = mappings(images);
        self.mappings = self.mappings + after - before;
        while self.mappings > MAX_MAPPINGS && self.order.len() > 1 {
            self.forget_oldest();
        }
        true
    }

    /// Reads the mappings of a process again, because one of its addresses lies outside them; returns whether
    /// it did. Not every address is code, so this is done at growing intervals; at short ones where there is new code each time.
    pub(crate) fn note_again(&mut self, tgid: u32) -> bool {
        let now = Instant::now();
        if self.again.len() >= MAX_AGAIN {
            self.again.clear();
        }
        let (next, wait) = self.again.entry(tgid).or_insert((now, FIRST_AGAIN));
        if now < *next {
            return false;
        }
        *next = now + *wait;
        *wait = (*wait * 2).min(LAST_AGAIN);
        if self.read_again.len() < MAX_AGAIN {
            self.read_again.insert(tgid);
        }
        let before = self.code(tgid);
        let lives = self.note_process(tgid);
        if self.code(tgid) != before
            && let Some((next, wait)) = self.again.get_mut(&tgid)
        {
            *wait = (*wait).min(NEW_CODE_AGAIN);
            *next = now + *wait;
        }
        lives
    }

    /// Reads the mappings of a process that is not known. One that has ended has none, and is asked as seldom as
    /// [`ProcMaps::note_again`] asks.
    pub(crate) fn note_unknown(&mut self, tgid: u32) {
        if !self.knows(tgid) {
            self.note_again(tgid);
        }
    }

    /// Processes whose mappings were read again for such an address since the last call: they may have loaded
    /// more libraries.
    pub fn take_read_again(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.read_again)
    }

    /// Whether the table of files is full.
    pub fn is_full(&self) -> bool {
        self.files.len() >= MAX_FILES || self.held() >= MAX_HELD
    }

    /// Drops all processes and files. Numbers of files are reassigned, so data stored by number must be
    /// dropped too
    /// ([`crate::User::forget`]).
    pub fn forget(&mut self) {
        self.processes = HashMap::new();
        self.owners = HashMap::new();
        self.order = VecDeque::new();
        self.mappings = 0;
        self.files = Vec::new();
        self.by_identity = HashMap::new();
        self.again = HashMap::new();
        self.read_again = BTreeSet::new();
    }

    /// Releases files that were not used since the last call. They are found again by their mappings, or by
    /// their paths.
    pub fn release_unused(&mut self) {
        for file in &self.files {
            if !file.used.take() {
                file.held.take();
            }
        }
    }

    /// The number of files held.
    fn held(&self) -> usize {
        self.files.iter().filter(|file| file.held.borrow().is_some()).count()
    }

    /// Whether `tgid` is known.
    pub fn knows(&self, tgid: u32) -> bool {
        self.processes.contains_key(&tgid)
    }

    /// The user of a process. The time that data of the process take is charged to this user.
    pub(crate) fn whose(&self, tgid: u32) -> Whose {
        self.owners.get(&tgid).copied().unwrap_or(Whose::OWN)
    }

    /// The file and the offset in it that `addr` maps, in the newest image that maps it.
    pub(crate) fn find(&self, tgid: u32, addr: u64) -> Option<(u32, u64)> {
        self.processes.get(&tgid)?.iter().rev().find_map(|image| {
            let i = image.0.partition_point(|m| m.start <= addr).checked_sub(1)?;
            let m = image.0[i];
            (addr < m.end).then(|| (m.file, (addr - m.start).wrapping_add(m.offset)))
        })
    }

    /// The usual name of the file that `addr` maps: `libc.so.6`, `[vdso]`, `[anon]`.
    pub fn label(&self, tgid: u32, addr: u64) -> Option<&str> {
        let (file, _) = self.find(tgid, addr)?;
        Some(&self.file(file).label)
    }

    /// The files mapped by the process's newest image: each with a mapping's start and file offset.
    pub(crate) fn mapped(&self, tgid: u32) -> Vec<(u32, u64, u64)> {
        let image = self.processes.get(&tgid).and_then(|images| images.last());
        let mut files: Vec<_> =
            image.map_or(Vec::new(), |i| i.0.iter().map(|m| (m.file, m.start, m.offset)).collect());
        files.sort_unstable();
        files.dedup_by_key(|f| f.0);
        files
    }

    /// The name of the file whose mappings contain an address, or end before it: variables without an initial
    /// value come last.
    pub fn file_of(&self, tgid: u32, address: u64) -> Option<&str> {
        let mappings = &self.processes.get(&tgid)?.last()?.0;
        let below = mappings.iter().filter(|m| m.start <= address);
        Some(&self.file(below.max_by_key(|m| m.start)?.file).label)
    }

    /// Identifies the process's newest image among its images.
    pub(crate) fn image(&self, tgid: u32) -> Option<(usize, usize)> {
        let image = self.processes.get(&tgid)?.last()?;
        Some((Arc::as_ptr(image).addr(), image.0.len()))
    }

    /// The code that the process's newest image maps: file, start, end, offset in the file.
    pub(crate) fn code(&self, tgid: u32) -> Vec<(u32, u64, u64, u64)> {
        let image = self.processes.get(&tgid).and_then(|images| images.last());
        image.map_or(Vec::new(), |i| i.0.iter().map(|m| (m.file, m.start, m.end, m.offset)).collect())
    }

    pub(crate) fn file(&self, id: u32) -> &MappedFile {
        &self.files[id as usize]
    }

    /// The mapped file, opened for reading.
    pub(crate) fn source(&self, id: u32) -> Option<Source> {
        let file = self.file(id);
        file.path.as_ref()?;
        file.used.set(true);
        if let Some(held) = &*file.held.borrow() {
            return Some(held.clone());
        }
        let (tgid, start, end) = file.place.get();
        let whose = Whose::process(&self.proc.join(tgid.to_string()), tgid);
        let found = self.find_source(file, tgid, (start, end), whose)?;
        if self.held() < MAX_HELD {
            *file.held.borrow_mut() = Some(found.clone());
        }
        Some(found)
    }

    /// The same for parsing, for which the file's owner must have time left.
    pub(crate) fn to_parse(&self, id: u32) -> Option<Source> {
        self.source(id).filter(Source::may_read)
    }

    /// Opens the mapped inode, by the mapping, or otherwise by a path that leads to it.
    fn find_source(
        &self,
        file: &MappedFile,
        tgid: u32,
        (start, end): (u64, u64),
        whose: Whose,
    ) -> Option<Source> {
        let dir = self.proc.join(tgid.to_string());
        // The mapping or the path may refer to another file by now, and the result is used for all mappings
        // of this one.
        let is_it = |source: &Source| {
            let ((device, inode), (mapped, number)) = (source.identity(), file.identity);
            !self.live || inode == number && (device == mapped || source.has_other_numbers())
        };
        let mapping = Source::mapped(&dir.join(format!("map_files/{start:x}-{end:x}")), whose);
        if let Some(source) = mapping.ok().filter(is_it) {
            return Some(source);
        }
        let path = file.path.as_deref()?;
        let plain = PathBuf::from(OsStr::from_bytes(&Line::plain(path.as_os_str().as_bytes())));
        let path = path.to_owned();
        let nowhere = Path::new("");
        let exe = || Source::mapped(&dir.join("exe"), whose).ok().filter(is_it);
        let inside = |path: &Path| {
            let below = path.strip_prefix("/").ok()?;
            Source::below(&dir.join("root"), below, true, whose).ok().filter(is_it)
        };
        let outside = |path: &Path| Source::below(nowhere, path, true, whose).ok().filter(is_it);
        exe()
            .or_else(|| inside(&plain))
            .or_else(|| inside(&path))
            .or_else(|| outside(&plain))
            .or_else(|| outside(&path))
    }

    /// The process's perf map: by the process's ID in its own namespace, under its own root.
    pub(crate) fn perf_map(&self, tgid: u32) -> Option<Source> {
        let dir = self.proc.join(tgid.to_string());
        let whose = Whose::process(&dir, tgid);
        let status = process::read(&dir.join("status")).unwrap_or_default();
        let inner = Fields(&status).get("NStgid").and_then(|ids| ids.split_whitespace().next_back());
        let inner = inner.map_or_else(|| tgid.to_string(), str::to_owned);
        let inside = format!("tmp/perf-{inner}.map");
        let outside = self.proc.parent().unwrap_or(Path::new("/")).join(format!("tmp/perf-{tgid}.map"));
        Source::below(&dir.join("root"), inside.as_ref(), false, whose)
            .or_else(|_| Source::below("".as_ref(), &outside, false, whose))
            .ok()
    }

    /// The jitdumps that the process has mapped, which is how they are found.
    pub(crate) fn jitdumps(&self, tgid: u32) -> Vec<Source> {
        let is_one = |label: &str| label.starts_with("jit-") && label.ends_with(".dump");
        let files = self.mapped(tgid).into_iter().map(|(file, ..)| file);
        files.filter(|file| is_one(&self.file(*file).label)).filter_map(|file| self.source(file)).collect()
    }

    /// The owner of the process, while it lives.
    pub(crate) fn user(&self, tgid: u32) -> Option<u32> {
        fs::metadata(self.proc.join(tgid.to_string())).ok().map(|meta| meta.uid())
    }

    /// The process's memory, readable while it lives.
    pub(crate) fn memory(&self, tgid: u32) -> Option<Source> {
        let dir = self.proc.join(tgid.to_string());
        Source::of_proc(&dir.join("mem"), Whose::process(&dir, tgid)).ok()
    }

    fn images(&mut self, tgid: u32) -> &mut Vec<Arc<Image>> {
        if !self.processes.contains_key(&tgid) {
            if self.order.len() >= MAX_PROCESSES {
                self.forget_oldest();
            }
            self.order.push_back(tgid);
        }
        self.processes.entry(tgid).or_default()
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front() {
            let images = self.processes.remove(&oldest).unwrap_or_default();
            self.owners.remove(&oldest);
            self.mappings -= mappings(&images);
        }
    }

    fn file_id(&mut self, tgid: u32, line: &Line, whose: Whose) -> u32 {
        let name = line.text();
        let label = label(&name);
        let is_file = line.inode != 0 && name.starts_with('/');
        let identity = match is_file {
            true => Identity::File(device(line), line.inode),
            false => Identity::Label(label.into()),
        };
        if let Some(&id) = self.by_identity.get(&identity) {
            if let Some(file) = self.files.get(id as usize) {
                file.place.set((tgid, line.start, line.end));
            }
            return id;
        }
        if self.files.len() > MAX_FILES {
            return MAX_FILES as u32;
        }
        let other = self.files.len() == MAX_FILES;
        let path = line.file_name();
        let file = MappedFile {
            label: if other { "[other]".into() } else { label.into() },
            path: (is_file && !other).then(|| OsStr::from_bytes(path).into()),
            jit: !other && may_be_generated(&name),
            identity: (device(line), line.inode),
            held: RefCell::default(),
            used: Cell::new(true),
            place: Cell::new((tgid, line.start, line.end)),
        };
        if file.path.is_some() && self.held() < MAX_HELD {
            *file.held.borrow_mut() = self.find_source(&file, tgid, (line.start, line.end), whose);
        }
        let id = self.files.len() as u32;
        self.files.push(file);
        self.by_identity.insert(identity, id);
        id
    }
}

/// The usual name of a mapping.
fn label(name: &str) -> &str {
    if !name.starts_with('/') || name == "/dev/zero (deleted)" {
        let named = name.starts_with('[') && !name.starts_with("[anon");
        return if named { name } else { "[anon]" };
    }
    let path = name.strip_suffix(" (deleted)").unwrap_or(name);
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether code may be generated there at run time, which a perf map may name.
fn may_be_generated(name: &str) -> bool {
    match name.starts_with('/') && name != "/dev/zero (deleted)" {
        true => name.starts_with("/memfd:"),
        false => !matches!(name, "[vdso]" | "[vsyscall]" | "[uprobes]"),
    }
}

/// The number of mappings of some images.
fn mappings(images: &[Arc<Image>]) -> usize {
    images.iter().map(|image| image.0.len()).sum()
}

/// The region of `addr` in the text of a `/proc/PID/maps`: `[heap]`, `[stack]`, `[anon]` or a file's name.
pub fn region(maps: &[u8], addr: u64) -> Option<String> {
    let mut lines = maps.split(|&b| b == b'\n').filter_map(Line::parse);
    let line = lines.find(|line| line.contains(addr))?;
    let path = line.text();
    Some(match path.rsplit('/').next().unwrap_or("") {
        "" => "[anon]".into(),
        name => name.to_owned(),
    })
}

/// The files with code that a process has mapped: device and inode, and the start and end of a mapping.
pub fn code_files(pid: u32) -> Vec<((u64, u64), u64, u64)> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let text = ncpu_files::reader::proc_text(&dir.join("maps"), Whose::process(&dir, pid), MAX_TEXT as usize);
    let Ok(text) = text else { return Vec::new() };
    let mut files: Vec<_> = text
        .split(|&b| b == b'\n')
        .filter_map(Line::parse)
        .filter(|l| l.execute && l.is_file())
        .map(|l| ((device(&l), l.inode), l.start, l.end))
        .collect();
    files.sort_unstable();
    files.dedup_by_key(|f| f.0);
    files
}

/// The device of a mapping as the C library's `dev_t`.
fn device(line: &Line) -> u64 {
    libc::makedev(line.device.0, line.device.1)
}

#[cfg(test)]
mod tests {
    use ncpu_machine_trees::put;

    use super::*;

    fn tree(pid: u32, maps: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), format!("proc/{pid}/maps"), maps);
        dir
    }

    const SH: &str = "\
55d0a0000000-55d0a0010000 r--p 00000000 fe:00 11 /usr/bin/sh
55d0a0010000-55d0a0020000 r-xp 00010000 fe:00 11 /usr/bin/sh
7f0000000000-7f0000100000 r-xp 00028000 fe:00 12   /usr/lib/a b.so
7f0000200000-7f0000201000 r-xp 00000000 00:00 0
7f0000300000-7f0000301000 r-xp 00001000 00:01 13 /memfd:jit (deleted)
7fffdcb46000-7fffdcb48000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn whoever_reads_mappings_again_they_are_told_of_once() {
        let dir = tree(7, SH);
        let mut maps = ProcMaps::new(dir.path());
        maps.note_process(7);
        assert!(maps.take_read_again().is_empty(), "read for the first time");
        assert!(maps.note_again(7));
        assert_eq!(maps.take_read_again().into_iter().collect::<Vec<_>>(), [7]);
        assert!(maps.take_read_again().is_empty());
    }

    #[test]
    fn a_process_that_has_ended_is_not_asked_for_each_address() {
        let dir = tempfile::tempdir().unwrap();
        let mut maps = ProcMaps::new(dir.path());
        maps.note_unknown(7);
        assert!(!maps.knows(7));
        put(dir.path(), "proc/7/maps", SH);
        maps.again.entry(7).and_modify(|(next, _)| *next = Instant::now() + Duration::from_hours(1));
        maps.note_unknown(7);
        assert!(!maps.knows(7), "its mappings were read at once");
        maps.again.entry(7).and_modify(|(next, _)| *next = Instant::now());
        maps.note_unknown(7);
        assert!(maps.knows(7));
    }

    #[test]
    fn mappings_are_read_again_soon_where_there_is_new_code() {
        let dir = tree(7, SH);
        let mut maps = ProcMaps::new(dir.path());
        maps.note_process(7);
        let waits = |maps: &mut ProcMaps, new: bool| -> Duration {
            for i in 0..20u64 {
                let text = format!(
                    "{SH}{:x}-{:x} r-xp 0 00:00 0\n",
                    0x6000_0000 + 0x2000 * i,
                    0x6000_1000 + 0x2000 * i
                );
                std::fs::write(dir.path().join("proc/7/maps"), if new { &text } else { SH }).unwrap();
                maps.again.entry(7).and_modify(|(next, _)| *next = Instant::now());
                assert!(maps.note_again(7));
            }
            maps.again[&7].1
        };
        assert_eq!(waits(&mut maps, false), LAST_AGAIN);
        assert_eq!(waits(&mut maps, true), NEW_CODE_AGAIN);
    }

    #[test]
    fn addresses_lead_to_files() {
        let dir = tree(7, SH);
        let mut maps = ProcMaps::new(dir.path());
        assert!(maps.note_process(7));
        assert!(!maps.note_process(8));
        let label = |addr| maps.find(7, addr).map(|(f, o)| (&*maps.file(f).label, o));
        assert_eq!(label(0x55d0a0010004), Some(("sh", 0x10004)));
        assert_eq!(label(0x55d0a0000004), None, "data is not code");
        assert_eq!(label(0x7f0000000000), Some(("a b.so", 0x28000)));
        assert_eq!(label(0x7f0000200010), Some(("[anon]", 0x10)));
        assert_eq!(label(0x7f0000300010), Some(("memfd:jit", 0x1010)));
        assert_eq!(label(0x7fffdcb46001), Some(("[vdso]", 1)));
        assert_eq!(label(0x7fffdcb48000), None);
        assert_eq!(label(0), None);
    }

    #[test]
    fn data_lies_in_regions() {
        let maps = format!("{SH}5600-5700 rw-p 0 00:00 0   [heap]\n7f10-7f20 rw-p 0 00:00 0 \nxx\n");
        let region = |addr| region(maps.as_bytes(), addr);
        assert_eq!(region(0x5640).as_deref(), Some("[heap]"));
        assert_eq!(region(0x7f10).as_deref(), Some("[anon]"));
        assert_eq!(region(0x55d0a0000004).as_deref(), Some("sh"));
        assert_eq!(region(0x7f20), None);
    }

    #[test]
    fn exec_keeps_the_image_before() {
        let dir = tree(9, SH);
        let mut maps = ProcMaps::new(dir.path());
        maps.note_process(9);
        put(dir.path(), "proc/9/maps", "400000-500000 r-xp 00000000 fe:00 15 /usr/bin/cc\n");
        maps.note_process(9);
        let label = |tgid, addr| maps.find(tgid, addr).map(|(f, _)| &*maps.file(f).label);
        assert_eq!(label(9, 0x400010), Some("cc"));
        assert_eq!(label(9, 0x55d0a0010004), Some("sh"));
        // The data of a process that has ended is kept.
        fs::remove_dir_all(dir.path().join("proc/9")).unwrap();
        assert!(!maps.note_process(9));
        assert_eq!(maps.find(9, 0x400010).map(|(_, o)| o), Some(0x10));
    }

    #[test]
    fn nonsense_and_many_processes_are_borne() {
        let dir = tree(1, "zz\n1-\n5-4 r-xp 0 0:0 0 x\n\n10-20 r-xp 0\n10-20 r-xp 0 0:0 0\n\u{fffd}");
        let mut maps = ProcMaps::new(dir.path());
        assert!(maps.note_process(1));
        for tgid in 2..MAX_PROCESSES as u32 + 10 {
            maps.note_maps(tgid, b"10-20 r-xp 0 0:0 0\n");
        }
        assert!(maps.processes.len() <= MAX_PROCESSES);
        assert!(!maps.knows(1) && maps.knows(MAX_PROCESSES as u32));
        // Large maps: fewer are kept.
        let large: String =
            (1..=1000).map(|i| format!("{i}0000-{i}1000 r-xp 0 fe:00 {i} /lib/{i}\n")).collect();
        for tgid in 1..=150 {
            assert!(maps.note_maps(tgid, large.as_bytes()));
            assert!(maps.mappings <= MAX_MAPPINGS);
        }
        assert!(maps.knows(150) && !maps.knows(10));
        let held: usize = maps.processes.values().map(|images| mappings(images)).sum();
        assert_eq!(held, maps.mappings);
    }
}

//! Where a process's executable memory came from, remembered after the process is gone.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processes remembered; beyond it the one noted longest ago is forgotten.
const MAX_PROCESSES: usize = 1 << 12;
/// Mappings remembered of all processes: 32 bytes each.
const MAX_MAPPINGS: usize = 1 << 16;
/// Images remembered of one process: it may exec, and samples of before still want names.
const MAX_IMAGES: usize = 4;
/// Files held open because their path leads nowhere from here (deleted, or another namespace's).
const MAX_HELD: usize = 256;
/// Files remembered; code in any further one is only known as such, until [`ProcMaps::forget`].
const MAX_FILES: usize = 1 << 12;
/// How long a process's mappings are not read again for an address that lies in none: at first, and at last.
const FIRST_AGAIN: Duration = Duration::from_millis(1);
const LAST_AGAIN: Duration = Duration::from_secs(1);
/// Processes of which that is remembered.
const MAX_AGAIN: usize = 1 << 12;

/// The executable mappings of processes, kept so that their addresses can be named after they exit.
///
/// Noting a process costs one read of its `maps` (about 50 µs) and 32 bytes a mapping; a forked
/// child shares its parent's until it is noted itself. It opens no file that can be opened later.
#[derive(Debug)]
pub struct ProcMaps {
    proc: PathBuf,
    mount_ns: Option<PathBuf>,
    processes: HashMap<u32, Vec<Arc<Image>>>,
    order: VecDeque<u32>,
    /// Mappings of all images, shared ones as often as they are.
    mappings: usize,
    files: Vec<MappedFile>,
    by_identity: HashMap<(Box<str>, u64), u32>,
    held: usize,
    /// When the mappings of a process may be read again for an unknown address, and how long not after that.
    again: HashMap<u32, (Instant, Duration)>,
    read_again: u64,
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

/// What a mapping maps.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// The name people know it by: `libc.so.6`, `[vdso]`, `[anon]`.
    pub label: Box<str>,
    /// Where to open it; `None` where there is no file.
    pub path: Option<PathBuf>,
    /// Code may be made at run time here, and a perf map may name it.
    pub jit: bool,
    /// Keeps what `path` (in `/proc/self/fd`) leads to.
    _held: Option<fs::File>,
}

impl ProcMaps {
    /// An empty cache that reads `proc` under `root` (`/` on a live system).
    pub fn new(root: &Path) -> ProcMaps {
        let proc = root.join("proc");
        ProcMaps {
            mount_ns: fs::read_link(proc.join("self/ns/mnt")).ok(),
            proc,
            processes: HashMap::new(),
            order: VecDeque::new(),
            mappings: 0,
            files: Vec::new(),
            by_identity: HashMap::new(),
            held: 0,
            again: HashMap::new(),
            read_again: 0,
        }
    }

    /// Reads the mappings of `tgid` now; call it when the process is first seen and when it execs.
    /// Says whether there were any (not for a kernel thread or a process that is gone).
    pub fn note_process(&mut self, tgid: u32) -> bool {
        let dir = self.proc.join(tgid.to_string());
        let Ok(text) = fs::read(dir.join("maps")) else { return false };
        let foreign = self.mount_ns.is_some() && fs::read_link(dir.join("ns/mnt")).ok() != self.mount_ns;
        self.note_text(tgid, &text, foreign)
    }

    /// Takes the mappings of a process that may have ended from the text of its `maps`, in this mount namespace.
    pub fn note_maps(&mut self, tgid: u32, text: &[u8]) -> bool {
        self.note_text(tgid, text, false)
    }

    fn note_text(&mut self, tgid: u32, text: &[u8], foreign: bool) -> bool {
        let dir = self.proc.join(tgid.to_string());
        let mut image = Vec::new();
        for line in text.split(|&b| b == b'\n') {
            let Some(line) = parse_line(line).filter(|line| line.code) else { continue };
            let file = self.file_id(&dir, &line, foreign);
            image.push(Mapping { start: line.start, end: line.end, offset: line.offset, file });
        }
        if image.is_empty() {
            return false;
        }
        let image = Arc::new(Image(image.into()));
        let images = self.images(tgid);
        let before = mappings(images);
        match images.last_mut() {
            // The same program with more libraries than before.
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

    /// Reads the mappings of a process once more, since an address of it lies in none of them; says whether it did. Not
    /// every address is one of code, so this is done ever more seldom.
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
        self.read_again += 1;
        self.note_process(tgid)
    }

    /// How often the mappings of a process were read again for such an address.
    pub fn times_read_again(&self) -> u64 {
        self.read_again
    }

    /// A new process begins as a copy of its parent, until it execs and is noted.
    pub fn note_fork(&mut self, parent: u32, child: u32) {
        if let Some(image) = self.processes.get(&parent).and_then(|images| images.last()).cloned() {
            let images = self.images(child);
            let before = mappings(images);
            *images = vec![image];
            let after = mappings(images);
            self.mappings = self.mappings + after - before;
        }
    }

    /// Whether there is no room for another file.
    pub fn is_full(&self) -> bool {
        self.files.len() >= MAX_FILES || self.held >= MAX_HELD
    }

    /// Forgets all processes and files. Numbers of files are given anew: what is known by them must be forgotten too
    /// ([`crate::User::forget`]).
    pub fn forget(&mut self) {
        self.processes = HashMap::new();
        self.order = VecDeque::new();
        self.mappings = 0;
        self.files = Vec::new();
        self.by_identity = HashMap::new();
        self.again = HashMap::new();
        self.held = 0;
    }

    /// Whether anything is known of `tgid`.
    pub fn knows(&self, tgid: u32) -> bool {
        self.processes.contains_key(&tgid)
    }

    /// The file and the offset in it that `addr` maps, in the newest image that maps it.
    pub(crate) fn find(&self, tgid: u32, addr: u64) -> Option<(u32, u64)> {
        self.processes.get(&tgid)?.iter().rev().find_map(|image| {
            let i = image.0.partition_point(|m| m.start <= addr).checked_sub(1)?;
            let m = image.0[i];
            (addr < m.end).then(|| (m.file, (addr - m.start).wrapping_add(m.offset)))
        })
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

    /// The name of the file among whose mappings, or behind them, an address lies: variables without a value in the file come
    /// last.
    pub fn file_of(&self, tgid: u32, address: u64) -> Option<&str> {
        let mappings = &self.processes.get(&tgid)?.last()?.0;
        let below = mappings.iter().filter(|m| m.start <= address);
        Some(&self.file(below.max_by_key(|m| m.start)?.file).label)
    }

    /// Tells the process's newest image from one that it had before.
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

    /// Where the process's perf map is: by the id it has in its own namespace, under its own root.
    pub(crate) fn perf_maps(&self, tgid: u32) -> [PathBuf; 2] {
        let dir = self.proc.join(tgid.to_string());
        let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
        let inner = status.lines().find_map(|l| l.strip_prefix("NStgid:")?.split_whitespace().next_back());
        let inner = inner.map_or_else(|| tgid.to_string(), str::to_owned);
        let outside = self.proc.parent().unwrap_or(Path::new("/")).join(format!("tmp/perf-{tgid}.map"));
        [dir.join(format!("root/tmp/perf-{inner}.map")), outside]
    }

    /// The jitdumps that it has mapped, so that others find them.
    pub(crate) fn jitdumps(&self, tgid: u32) -> Vec<PathBuf> {
        let is_one = |label: &str| label.starts_with("jit-") && label.ends_with(".dump");
        let files = self.mapped(tgid).into_iter().map(|(file, ..)| self.file(file));
        files.filter(|file| is_one(&file.label)).filter_map(|file| file.path.clone()).collect()
    }

    /// Whose the process is, while it lives.
    pub(crate) fn user(&self, tgid: u32) -> Option<u32> {
        fs::metadata(self.proc.join(tgid.to_string())).ok().map(|meta| meta.uid())
    }

    /// Where the process's memory can be read.
    pub(crate) fn memory(&self, tgid: u32) -> PathBuf {
        self.proc.join(tgid.to_string()).join("mem")
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
            self.mappings -= mappings(&images);
        }
    }

    fn file_id(&mut self, dir: &Path, line: &Line, foreign: bool) -> u32 {
        let name = String::from_utf8_lossy(line.path);
        let key = (Box::from(&*name), line.inode);
        if let Some(&id) = self.by_identity.get(&key) {
            return id;
        }
        if self.files.len() > MAX_FILES {
            return MAX_FILES as u32;
        }
        let file = match self.files.len() {
            MAX_FILES => MappedFile { label: "[other]".into(), path: None, jit: false, _held: None },
            _ => self.describe(dir, line, &name, foreign),
        };
        let id = self.files.len() as u32;
        self.files.push(file);
        self.by_identity.insert(key, id);
        id
    }

    fn describe(&mut self, dir: &Path, line: &Line, name: &str, foreign: bool) -> MappedFile {
        let label = |s: &str| MappedFile { label: s.into(), path: None, jit: false, _held: None };
        if !name.starts_with('/') || name == "/dev/zero (deleted)" {
            let named = name.starts_with('[') && !name.starts_with("[anon");
            let jit = !matches!(name, "[vdso]" | "[vsyscall]" | "[uprobes]");
            return MappedFile { jit, ..label(if named { name } else { "[anon]" }) };
        }
        let path = name.strip_suffix(" (deleted)").unwrap_or(name);
        let base = path.rsplit('/').next().unwrap_or(path);
        let mut file = MappedFile { jit: path.starts_with("/memfd:"), ..label(base) };
        let way = if path.len() < name.len() {
            dir.join(format!("map_files/{:x}-{:x}", line.start, line.end))
        } else if foreign {
            dir.join("root").join(&path[1..])
        } else {
            file.path = Some(path.into());
            return file;
        };
        if self.held < MAX_HELD
            && let Ok(open) = fs::File::open(way)
        {
            self.held += 1;
            file.path = Some(format!("/proc/self/fd/{}", open.as_raw_fd()).into());
            file._held = Some(open);
        }
        file
    }
}

/// Mappings of some images.
fn mappings(images: &[Arc<Image>]) -> usize {
    images.iter().map(|image| image.0.len()).sum()
}

/// What `addr` lies in by the text of a `/proc/PID/maps`: `[heap]`, `[stack]`, `[anon]` or a file's name.
pub fn region(maps: &[u8], addr: u64) -> Option<String> {
    let mut lines = maps.split(|&b| b == b'\n').filter_map(parse_line);
    let line = lines.find(|line| (line.start..line.end).contains(&addr))?;
    let path = String::from_utf8_lossy(line.path);
    Some(match path.rsplit('/').next().unwrap_or("") {
        "" => "[anon]".into(),
        name => name.to_owned(),
    })
}

/// The files whose code a process has mapped: device and inode, and where a mapping starts and ends.
pub fn code_files(pid: u32) -> Vec<((u64, u64), u64, u64)> {
    let Ok(text) = fs::read(format!("/proc/{pid}/maps")) else { return Vec::new() };
    let mut files: Vec<_> = text
        .split(|&b| b == b'\n')
        .filter_map(parse_line)
        .filter(|l| l.code && l.inode != 0)
        .map(|l| ((l.device, l.inode), l.start, l.end))
        .collect();
    files.sort_unstable();
    files.dedup_by_key(|f| f.0);
    files
}

/// A mapping as `/proc/PID/maps` tells it.
struct Line<'a> {
    start: u64,
    end: u64,
    offset: u64,
    /// `major:minor` as the C library's dev_t.
    device: u64,
    inode: u64,
    code: bool,
    path: &'a [u8],
}

/// `start-end perms offset dev inode   path`; `None` for what is not a mapping.
fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.strip_prefix(b" ").unwrap_or(tail);
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let code = word()?.as_bytes().get(2) == Some(&b'x');
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(word()?)?);
    let (major, minor) = word()?.split_once(':')?;
    let number = |s| u32::from_str_radix(s, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    let inode = word()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    (start < end).then_some(Line { start, end, offset, device, inode, code, path })
}

#[cfg(test)]
mod tests {
    use ncpu_machine::testing::put;

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
    fn addresses_lead_to_files() {
        let dir = tree(7, SH);
        let mut maps = ProcMaps::new(dir.path());
        assert!(maps.note_process(7));
        assert!(!maps.note_process(8));
        let label = |addr| maps.find(7, addr).map(|(f, o)| (&*maps.file(f).label, o));
        assert_eq!(label(0x55d0a0010004), Some(("sh", 0x10004)));
        assert_eq!(label(0x55d0a0000004), None, "data is no code");
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
    fn exec_keeps_the_image_before_and_fork_shares_it() {
        let dir = tree(7, SH);
        let mut maps = ProcMaps::new(dir.path());
        maps.note_process(7);
        maps.note_fork(7, 9);
        put(dir.path(), "proc/9/maps", "400000-500000 r-xp 00000000 fe:00 15 /usr/bin/cc\n");
        maps.note_process(9);
        let label = |tgid, addr| maps.find(tgid, addr).map(|(f, _)| &*maps.file(f).label);
        assert_eq!(label(9, 0x400010), Some("cc"));
        assert_eq!(label(9, 0x55d0a0010004), Some("sh"));
        assert_eq!(label(7, 0x400010), None);
        // A process that is gone keeps what was noted.
        fs::remove_dir_all(dir.path().join("proc/9")).unwrap();
        assert!(!maps.note_process(9));
        assert_eq!(maps.find(9, 0x400010).map(|(_, o)| o), Some(0x10));
    }

    #[test]
    fn nonsense_and_many_processes_are_borne() {
        let dir = tree(1, "zz\n1-\n5-4 r-xp 0 0:0 0 x\n\n10-20 r-xp 0\n10-20 r-xp 0 0:0 0\n\u{fffd}");
        let mut maps = ProcMaps::new(dir.path());
        assert!(maps.note_process(1));
        for child in 2..MAX_PROCESSES as u32 + 10 {
            maps.note_fork(1, child);
        }
        assert!(maps.processes.len() <= MAX_PROCESSES);
        assert!(!maps.knows(1) && maps.knows(MAX_PROCESSES as u32));
        // Large ones: fewer are remembered.
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

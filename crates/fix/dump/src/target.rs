//! The kernel's data about a process: its state, threads and mappings.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ncpu_files::reader::{Source, Whose};
use ncpu_machine::process::{self, Fields};

use crate::Error;

/// The fields of /proc/PID/status that a dump needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The process ID, for a thread too.
    pub tgid: i32,
    /// The letter of its state, as in `S`.
    pub state: char,
    /// Its tracer; 0 for none.
    pub tracer: i32,
    /// Real user.
    pub uid: u32,
    /// Real group.
    pub gid: u32,
    /// 0 without seccomp, 1 strict, 2 with filters.
    pub seccomp: u32,
    /// Whether it has user memory; kernel threads have none.
    pub has_memory: bool,
    /// Whether it has a shadow stack, which would lack injected return addresses.
    pub shadow_stack: bool,
    /// Bytes of resident memory.
    pub resident: u64,
    /// Its numbers in the PID namespaces, the outermost first.
    pub numbers: Vec<i32>,
}

impl Status {
    /// Reads the status of a process or thread.
    ///
    /// # Errors
    /// The process does not exist.
    pub fn read(pid: i32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/status");
        match fs::read(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                Err(Error::NoProcess(pid))
            }
            Err(e) => Err(Error::file(path, e)),
        }
    }

    fn parse(text: &[u8]) -> Self {
        let fields = Fields(text);
        Self {
            tgid: fields.number("Tgid").unwrap_or(0),
            state: fields.get("State").and_then(|s| s.chars().next()).unwrap_or('?'),
            tracer: fields.number("TracerPid").unwrap_or(0),
            uid: fields.number("Uid").unwrap_or(0),
            gid: fields.number("Gid").unwrap_or(0),
            seccomp: fields.number("Seccomp").unwrap_or(0),
            has_memory: fields.get("VmSize").is_some(),
            shadow_stack: fields
                .get("x86_Thread_features")
                .is_some_and(|features| features.contains("shstk")),
            resident: fields.bytes("VmRSS").unwrap_or(0),
            numbers: fields.numbers("NSpid"),
        }
    }
}

/// The fields of /proc/PID/task/TID/stat for the notes of a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: Vec<u8>,
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) flags: u64,
    /// User, system, and the same of children, in clock ticks.
    pub(crate) times: [u64; 4],
    pub(crate) nice: i8,
}

impl Stat {
    pub(crate) fn read(pid: i32, tid: i32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/task/{tid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let stat = process::Stat::parse(text)?;
        Some(Self {
            name: stat.name_bytes().to_vec(),
            state: stat.state(),
            parent: stat.parent().unwrap_or(0) as i32,
            group: stat.group().unwrap_or(0),
            session: stat.session().unwrap_or(0),
            flags: stat.flags().unwrap_or(0),
            times: stat.times().unwrap_or_default(),
            nice: stat.nice().unwrap_or(0),
        })
    }
}

/// A mapping of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared with other processes that map the same file, as opposed to private.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Inode of the file; 0 for none.
    pub inode: u64,
    /// Name of the file, or as in `[heap]`.
    pub name: Vec<u8>,
    /// Page size in bytes.
    pub page: u64,
    /// Bytes of resident pages that belong to the process alone.
    pub anonymous: u64,
    /// The two-letter flags of smaps.
    pub flags: Vec<[u8; 2]>,
}

impl Mapping {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it is empty, which the kernel never reports.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// Whether smaps has a flag, as in `dd`.
    #[must_use]
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }

    /// Whether it maps a file; anonymous shared memory maps a deleted file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether its file was deleted, including memfd, System V and anonymous shared memory.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.name.ends_with(b" (deleted)")
    }

    /// Its name as a path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.name))
    }
}

/// The mappings of a process in order of address, with their flags (smaps). Their text has 700 bytes for each, and is read by another
/// process piece by piece.
///
/// # Errors
/// The process has ended, or may not be accessed.
pub fn mappings(pid: i32) -> Result<Vec<Mapping>, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/smaps"));
    let source = Source::of_proc(&path, Whose::TARGET).map_err(|e| unread(pid, &path, e))?;
    let (mut all, mut text, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let before = text.len();
        text.resize(before + PIECE, 0);
        let got = source.read_at(&mut text[before..], at).map_err(|e| unread(pid, &path, e))?;
        text.truncate(before + got);
        at += got as u64;
        // The last mapping may have more lines.
        let whole = if got == 0 { text.len() } else { last_head(&text) };
        append_mappings(&text[..whole], &mut all)?;
        text.drain(..whole);
        if got == 0 {
            return Ok(all);
        }
    }
}

/// Bytes of smaps that are read at once.
const PIECE: usize = 64 << 10;

/// The offset of the last line that begins a mapping; 0 if it is the first or may not be whole.
fn last_head(text: &[u8]) -> usize {
    let mut ends = text.iter().enumerate().rev().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    ends.find(|&at| text.get(at).is_some_and(is_head)).unwrap_or(0)
}

/// Whether a line with this first byte begins a mapping: an address, while figures begin with a capital letter.
fn is_head(first: &u8) -> bool {
    !first.is_ascii_uppercase()
}

/// The mappings without flags (maps), which takes microseconds where smaps takes milliseconds.
pub(crate) fn mappings_only(pid: i32) -> Result<Vec<Mapping>, Error> {
    parse_mappings(&mappings_text(pid)?)
}

/// The text of maps, to detect changes. Not by the reader, since the process stands still meanwhile.
pub(crate) fn mappings_text(pid: i32) -> Result<Vec<u8>, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    fs::read(&path).map_err(|e| unread(pid, &path, e))
}

fn unread(pid: i32, path: &Path, e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => Error::Gone(pid),
        Some(libc::EACCES | libc::EPERM) => Error::NotPermitted(pid),
        _ => Error::file(path, e),
    }
}

/// Parses the text of maps or smaps.
///
/// # Errors
/// A line that is neither a mapping nor one of its figures.
pub fn parse_mappings(text: &[u8]) -> Result<Vec<Mapping>, Error> {
    let mut all = Vec::new();
    append_mappings(text, &mut all)?;
    Ok(all)
}

fn append_mappings(text: &[u8], all: &mut Vec<Mapping>) -> Result<(), Error> {
    let mut heads = text.split(|&b| b == b'\n').filter(|l| l.first().is_some_and(is_head));
    if let Some(bad) = heads.find(|line| process::Mapping::parse(line).is_none()) {
        return Err(Error::Format(format!("not a line of maps: {:?}", String::from_utf8_lossy(bad))));
    }
    let page = ncpu_machine::page_size();
    let one = |(m, fields): (process::Mapping, Fields)| Mapping {
        start: m.start,
        end: m.end,
        read: m.read,
        write: m.write,
        execute: m.execute,
        shared: m.shared,
        offset: m.offset,
        inode: m.inode,
        name: process::Mapping::plain(m.name).into_owned(),
        page: fields.bytes("KernelPageSize").unwrap_or(page),
        anonymous: fields.bytes("Anonymous").unwrap_or(0),
        flags: fields
            .get("VmFlags")
            .unwrap_or("")
            .split(' ')
            .filter_map(|f| f.as_bytes().try_into().ok())
            .collect(),
    };
    all.extend(process::smaps(text).map(one));
    Ok(())
}

/// The threads of a process.
pub(crate) fn threads(pid: i32) -> Result<Vec<i32>, Error> {
    match process::threads(Path::new(&format!("/proc/{pid}"))) {
        tids if tids.is_empty() => Err(Error::Gone(pid)),
        tids => Ok(tids.into_iter().map(|tid| tid as i32).collect()),
    }
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let of = |tid: i32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    let lists: Vec<String> = threads(pid).unwrap_or_default().into_iter().map(of).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// The start of a process, in clock ticks since boot.
pub(crate) fn started(pid: i32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    process::Stat::parse(&text)?.start()
}

/// Whether a child of a process is the copy that a dump made at this time or later: its end raises no signal.
/// The end of every child that a program makes raises one.
pub(crate) fn is_copy(child: i32, parent: i32, since: u64) -> bool {
    let Ok(text) = fs::read(format!("/proc/{child}/stat")) else { return false };
    process::Stat::parse(&text).is_some_and(|stat| {
        stat.parent() == Some(parent as u32)
            && stat.exit_signal() == Some(0)
            && stat.start().is_some_and(|start| start >= since)
    })
}

/// Opens the file behind a link in a process's directory. By the reader: its file system may never answer.
///
/// # Errors
/// The link leads to no regular file, the file may not be read, or its file system does not answer in time.
pub(crate) fn opened(pid: i32, link: &str) -> io::Result<Source> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    Source::mapped(&directory.join(link), Whose::process(&directory, pid.unsigned_abs()))
}

/// Checks whether a process can be dumped at all.
///
/// # Errors
/// It cannot, with the reason.
pub fn check(pid: i32) -> Result<Status, Error> {
    let status = Status::read(pid)?;
    if pid == std::process::id() as i32 {
        return Err(Error::Myself);
    }
    if status.tgid != pid {
        return Err(Error::Thread { tid: pid, pid: status.tgid });
    }
    if matches!(status.state, 'Z' | 'X') {
        return Err(match threads(pid) {
            Ok(tids) if tids.len() > 1 => Error::FirstThread(pid),
            _ => Error::Zombie(pid),
        });
    }
    if !status.has_memory {
        return Err(Error::KernelThread(pid));
    }
    if status.tracer != 0 {
        return Err(Error::Traced { pid, tracer: status.tracer });
    }
    // The class of the executable's file is that of the process.
    let mut ident = [0; 5];
    let read = opened(pid, "exe").and_then(|file| file.read_exact_at(&mut ident, 0));
    match read {
        Ok(()) if ident[4] == 1 => Err(Error::Bits32(pid)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            Err(Error::NotPermitted(pid))
        }
        _ => Ok(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_parsed_with_their_flags() {
        let text = b"\
5581a000-5581b000 rw-p 00001000 fe:00 42                           /tmp/a b\\012c (deleted)
Size:                  4 kB
KernelPageSize:     2048 kB
Anonymous:             4 kB
VmFlags: rd wr mr dd
7ffc0000-7ffd0000 r-xs 00000000 00:00 0 
";
        let all = parse_mappings(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].name, b"/tmp/a b\nc (deleted)");
        assert_eq!((all[0].page, all[0].anonymous, all[0].offset), (2 << 20, 4096, 4096));
        assert!(all[0].has(b"dd") && !all[0].has(b"ht") && all[0].is_deleted());
        assert!(all[1].shared && all[1].execute && !all[1].write && all[1].name.is_empty());
        assert!(all[0].read && all[0].write && !all[0].execute && !all[0].shared && all[1].read);
        assert!(all[0].is_file() && !all[1].is_file() && !all[1].is_deleted());
        assert_eq!(
            (all[0].start, all[0].end, all[0].len(), all[0].inode),
            (0x5581_a000, 0x5581_b000, 4096, 42)
        );
        assert_eq!((all[1].page, all[1].anonymous, all[1].len()), (ncpu_machine::page_size(), 0, 0x1_0000));
        assert!(!all[1].is_empty() && Mapping::default().is_empty());
        assert_eq!(all[0].path(), Path::new("/tmp/a b\nc (deleted)"));
    }

    /// Wherever a piece of the text ends, all of a mapping's lines are parsed together.
    #[test]
    fn mappings_are_the_same_piece_by_piece() {
        let text = fs::read("/proc/self/smaps").unwrap();
        let text = &text[..text.len().min(20_000)];
        let whole = parse_mappings(&text[..last_head(text)]).unwrap();
        assert!(whole.len() > 10);
        for cut in 0..last_head(text) {
            let at = last_head(&text[..cut]);
            let mut all = Vec::new();
            append_mappings(&text[..at], &mut all).unwrap();
            append_mappings(&text[at..last_head(text)], &mut all).unwrap();
            assert!(all == whole, "{cut}");
        }
    }

    /// `/proc/self/maps` of a child that rests, with and without figures.
    #[test]
    fn children_are_found_with_what_they_map_and_when_they_began() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        while fs::read(format!("/proc/{pid}/comm")).unwrap() != b"sleep\n" {
            std::thread::yield_now();
        }
        // The kernel may leave a child out while another one ends.
        assert!((0..100).any(|_| children(own).contains(&pid)));
        let places = |all: &[Mapping]| all.iter().map(|m| (m.start, m.end)).collect::<Vec<_>>();
        // It may still load its libraries.
        let same = (0..1000).find_map(|_| {
            let before = mappings_text(pid).unwrap();
            let (plain, full) = (mappings_only(pid).unwrap(), mappings(pid).unwrap());
            (places(&plain) == places(&full) && mappings_text(pid).unwrap() == before)
                .then_some((plain, full, before))
        });
        let (plain, full, text) = same.expect("the same mappings");
        assert_eq!(plain.len(), String::from_utf8_lossy(&text).lines().count());
        assert!(
            full.iter().any(|m| m.anonymous > 0 && m.has(b"wr")) && plain.iter().all(|m| m.flags.is_empty())
        );
        let stat = String::from_utf8(fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap();
        let after = stat.rsplit_once(") ").unwrap().1;
        let since = after.split(' ').nth(19).unwrap().parse().unwrap();
        assert_eq!(started(pid), Some(since));
        assert!(!is_copy(pid, own, 0), "its end raises SIGCHLD");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((started(pid), is_copy(pid, own, 0)), (None, false));
        assert!(matches!(mappings(pid), Err(Error::Gone(gone)) if gone == pid));
    }

    #[test]
    fn a_child_whose_end_raises_no_signal_is_a_copy() {
        // SAFETY: as fork, without a signal at its end; the child makes no other calls.
        let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as i32;
        if child == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        let (own, since) = (std::process::id() as i32, started(child).unwrap());
        let found = [(own, since), (own, since + 1), (own + 1, since)].map(|(p, at)| is_copy(child, p, at));
        // SAFETY: ends it. `__WALL` waits for children of any signal.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
        }
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn foreign_lines_are_refused() {
        for text in ["rubbish", "10-10 rw-p 0 0:0 0", "20-10 rw-p 0 0:0 0", "10-20 rw 0 0:0 0", "-"] {
            assert!(parse_mappings(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_may_contain_anything() {
        let stat = Stat::parse(b"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 -5 1").unwrap();
        assert_eq!(stat.name, b"a) b (c");
        assert_eq!((stat.state, stat.parent, stat.times, stat.nice), (b'S', 1, [11, 12, 13, 14], -5));
        assert_eq!((stat.group, stat.session, stat.flags), (2, 3, 6));
    }

    #[test]
    fn those_without_memory_are_refused() {
        assert!(matches!(check(2), Err(Error::KernelThread(2))));
        assert!(matches!(check(std::process::id() as i32), Err(Error::Myself)));
        assert!(matches!(check(i32::MAX), Err(Error::NoProcess(_))));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while Status::read(child.id() as i32).unwrap().state != 'Z' {
            std::thread::yield_now();
        }
        assert!(matches!(check(child.id() as i32), Err(Error::Zombie(_))));
        child.wait().unwrap();
    }
}

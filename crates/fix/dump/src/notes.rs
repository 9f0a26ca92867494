//! The notes of an ELF core: threads, their registers, the process, its files.

use std::path::PathBuf;

use ncpu_files::reader::{Whose, proc_text};

use crate::arch;
use crate::target::{Mapping, Stat, Status};
use crate::trace::Thread;

pub(crate) const NT_PRSTATUS: u32 = 1;
const NT_PRFPREG: u32 = 2;
pub(crate) const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
pub(crate) const NT_SIGINFO: u32 = 0x5349_4749;
pub(crate) const NT_FILE: u32 = 0x4649_4c45;
/// The name of our own note: JSON text that describes how the dump was taken.
pub(crate) const OWN: &[u8] = b"NCPU";
/// Its type. Debuggers compare types before names, so this type is one that no debugger uses.
pub(crate) const NT_OWN: u32 = 0x4e43_5055;
/// The offset of `pr_reg` in `struct elf_prstatus`.
const REGISTERS: usize = 112;

/// Appends a note.
pub(crate) fn put(out: &mut Vec<u8>, name: &[u8], kind: u32, contents: &[u8]) {
    let pad = |out: &mut Vec<u8>| out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&(name.len() as u32 + 1).to_ne_bytes());
    out.extend_from_slice(&(contents.len() as u32).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(name);
    out.push(0);
    pad(out);
    out.extend_from_slice(contents);
    pad(out);
}

/// All notes of a process with these threads. `own` is the text of our own note.
pub(crate) fn notes(
    pid: i32,
    status: &Status,
    threads: &[Thread],
    mappings: &[Mapping],
    own: &str,
) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, OWN, NT_OWN, own.as_bytes());
    let process = Stat::read(pid, pid).unwrap_or_default();
    for (n, thread) in threads.iter().enumerate() {
        let stat = Stat::read(pid, thread.tid).unwrap_or_else(|_| process.clone());
        put(&mut out, b"CORE", NT_PRSTATUS, &prstatus(thread, &stat));
        if n == 0 {
            put(&mut out, b"CORE", NT_PRPSINFO, &prpsinfo(pid, status, &process));
            if let Ok(auxv) = std::fs::read(format!("/proc/{pid}/auxv")) {
                put(&mut out, b"CORE", NT_AUXV, &auxv);
            }
            if let Some(files) = files(mappings) {
                put(&mut out, b"CORE", NT_FILE, &files);
            }
        }
        if !thread.siginfo.is_empty() {
            put(&mut out, b"CORE", NT_SIGINFO, &thread.siginfo);
        }
        if let Some(floating) = arch::floating(&thread.sets) {
            put(&mut out, b"CORE", NT_PRFPREG, floating);
        }
        for (kind, bytes) in &thread.sets {
            let name: &[u8] = if *kind == NT_PRFPREG { b"CORE" } else { b"LINUX" };
            put(&mut out, name, *kind, bytes);
        }
    }
    out
}

/// `struct elf_prstatus`.
fn prstatus(thread: &Thread, stat: &Stat) -> Vec<u8> {
    let mut out = vec![0; REGISTERS + arch::GENERAL + 8];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &thread.signal.to_ne_bytes());
    put(12, &(thread.signal as i16).to_ne_bytes());
    put(24, &thread.mask.to_ne_bytes());
    for (n, number) in [thread.tid, stat.parent, stat.group, stat.session].into_iter().enumerate() {
        put(32 + 4 * n, &number.to_ne_bytes());
    }
    // SAFETY: no pointers.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    for (n, ticks) in stat.times.into_iter().enumerate() {
        put(48 + 16 * n, &(ticks / hertz).to_ne_bytes());
        put(56 + 16 * n, &(ticks % hertz * (1_000_000 / hertz)).to_ne_bytes());
    }
    put(REGISTERS, &thread.general.to_bytes());
    put(REGISTERS + arch::GENERAL, &1i32.to_ne_bytes());
    out
}

/// `struct elf_prpsinfo`.
fn prpsinfo(pid: i32, status: &Status, stat: &Stat) -> Vec<u8> {
    let mut out = vec![0; 136];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let number = b"RSDTZW".iter().position(|&state| state == stat.state).unwrap_or(1);
    put(0, &[number as u8, stat.state, u8::from(stat.state == b'Z'), stat.nice as u8]);
    put(8, &stat.flags.to_ne_bytes());
    put(16, &status.uid.to_ne_bytes());
    put(20, &status.gid.to_ne_bytes());
    for (n, number) in [pid, stat.parent, stat.group, stat.session].into_iter().enumerate() {
        put(24 + 4 * n, &number.to_ne_bytes());
    }
    put(40, &stat.name[..stat.name.len().min(15)]);
    put(56, &command(pid));
    out
}

/// The first bytes of a process's command line. A process may claim gigabytes for it (`PR_SET_MM_MAP`), or memory of a file whose
/// file system never answers.
fn command(pid: i32) -> Vec<u8> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let whose = Whose::process(&directory, pid.unsigned_abs());
    // A process that has ended has none.
    let mut words = proc_text(&directory.join("cmdline"), whose, 79).unwrap_or_default();
    words.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    words.trim_ascii_end().to_vec()
}

/// The mapped files: count, page size, then start, end and offset in pages of each, then their names.
fn files(mappings: &[Mapping]) -> Option<Vec<u8>> {
    let files: Vec<&Mapping> = mappings.iter().filter(|m| m.is_file()).collect();
    if files.is_empty() {
        return None;
    }
    let page = ncpu_machine::page_size();
    let words = [files.len() as u64, page].into_iter();
    let words = words.chain(files.iter().flat_map(|m| [m.start, m.end, m.offset / page]));
    let mut out: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    for file in files {
        out.extend_from_slice(&file.name);
        out.push(0);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
        bytes[offset..offset + N].try_into().unwrap()
    }

    fn int(bytes: &[u8], offset: usize) -> i32 {
        i32::from_ne_bytes(at(bytes, offset))
    }

    fn long(bytes: &[u8], offset: usize) -> u64 {
        u64::from_ne_bytes(at(bytes, offset))
    }

    /// A process with a different value in each field.
    fn stat() -> Stat {
        // SAFETY: no pointers.
        let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        Stat {
            name: b"a name that is too long".to_vec(),
            state: b'D',
            parent: 2,
            group: 3,
            session: 4,
            flags: 0x40_4040,
            times: [5 * hertz + hertz / 2, 6 * hertz, 7 * hertz, 8 * hertz + hertz / 4],
            nice: -5,
        }
    }

    fn thread() -> Thread {
        Thread {
            tid: 71,
            general: arch::General::known(0x40_1234, 0x7fff_0008),
            sets: Vec::new(),
            signal: libc::SIGSEGV,
            siginfo: Vec::new(),
            mask: 0x8000_0001,
            stopped: true,
        }
    }

    /// Names and offsets of <sys/procfs.h> on 64-bit machines.
    #[test]
    fn a_threads_status_is_as_c_has_it() {
        let out = prstatus(&thread(), &stat());
        let (si_signo, cursig, sighold, pid, utime, cstime, reg) = (0, 12, 24, 32, 48, 96, 112);
        assert_eq!(out.len(), reg + arch::GENERAL + 8);
        assert_eq!((int(&out, si_signo), i16::from_ne_bytes(at(&out, cursig))), (11, 11));
        assert_eq!(long(&out, sighold), 0x8000_0001);
        assert_eq!([0, 4, 8, 12].map(|n| int(&out, pid + n)), [71, 2, 3, 4]);
        assert_eq!(
            [0, 8, 16, 24].map(|n| long(&out, utime + n)),
            [5, 500_000, 6, 0],
            "seconds, microseconds"
        );
        assert_eq!([0, 8].map(|n| long(&out, cstime + n)), [8, 250_000]);
        let registers = arch::General::from_bytes(&out[reg..reg + arch::GENERAL]).unwrap();
        assert_eq!((registers.pc(), registers.sp()), (0x40_1234, 0x7fff_0008));
        assert_eq!(int(&out, reg + arch::GENERAL), 1, "floating point is valid");
        assert_eq!(out[4..12], [0; 8]);
    }

    #[test]
    fn a_processs_information_is_as_c_has_it() {
        let status = Status { uid: 1000, gid: 1001, ..Status::default() };
        let pid = std::process::id() as i32;
        let out = prpsinfo(pid, &status, &stat());
        assert_eq!(out.len(), 136);
        assert_eq!(out[..4], [2, b'D', 0, -5i8 as u8], "D is state 2 of RSDTZW, and not a zombie");
        assert_eq!(long(&out, 8), 0x40_4040);
        assert_eq!([16, 20, 24, 28, 32, 36].map(|n| int(&out, n)), [1000, 1001, pid, 2, 3, 4]);
        assert_eq!(&out[40..56], b"a name that is \0", "15 bytes and an end");
        let words: Vec<String> = std::env::args().collect();
        let words = words.join(" ");
        let arguments = out[56..].split(|&b| b == 0).next().unwrap();
        assert_eq!(arguments, &words.as_bytes()[..words.len().min(79)], "words with blanks between them");
        let zombie = prpsinfo(pid, &status, &Stat { state: b'Z', ..stat() });
        assert_eq!(zombie[..3], [4, b'Z', 1]);
        let unknown = prpsinfo(pid, &status, &Stat { state: b'?', ..stat() });
        assert_eq!(unknown[0], 1, "as sleeping");
    }

    #[test]
    fn files_are_counted_and_their_offsets_are_in_pages() {
        let page = ncpu_machine::page_size();
        let file = |start, offset, inode, name: &[u8]| Mapping {
            start,
            end: start + page,
            offset,
            inode,
            name: name.to_vec(),
            ..Mapping::default()
        };
        let mappings = [
            file(page, 0, 7, b"/bin/a"),
            file(9 * page, 0, 0, b"[heap]"),
            file(20 * page, 3 * page, 8, b"/lib/b"),
        ];
        let words = [2, page, page, 2 * page, 0, 20 * page, 21 * page, 3];
        let mut expected: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        expected.extend_from_slice(b"/bin/a\0/lib/b\0");
        assert_eq!(files(&mappings), Some(expected));
        assert_eq!(files(&mappings[1..2]), None);
    }

    #[test]
    fn a_note_is_padded_to_words() {
        let mut out = Vec::new();
        put(&mut out, b"NCPU", 9, b"12345");
        let words: Vec<u8> = [5u32, 5, 9].into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(out, [&words[..], b"NCPU\0\0\0\0", b"12345\0\0\0"].concat());
        put(&mut out, b"GNU", 1, b"abcd");
        assert_eq!(out.len(), 28 + 12 + 4 + 4);
    }

    #[test]
    fn each_thread_has_its_notes_and_the_process_its_own_once() {
        let pid = std::process::id() as i32;
        let second = Thread { tid: 72, siginfo: vec![7; 128], sets: vec![(0x202, vec![0; 576])], ..thread() };
        let status = Status::default();
        let out = notes(pid, &status, &[Thread { tid: pid, ..thread() }, second], &[], "{}");
        let (mut rest, mut kinds) = (&out[..], Vec::new());
        while !rest.is_empty() {
            let [name, size] = [0, 4].map(|n| int(rest, n) as usize);
            kinds.push((int(rest, 8) as u32, rest[12..12 + name - 1].to_vec()));
            rest = &rest[12 + name.next_multiple_of(4) + size.next_multiple_of(4)..];
        }
        let of = |kind| kinds.iter().filter(|(k, _)| *k == kind).count();
        assert_eq!(kinds[0], (NT_OWN, OWN.to_vec()));
        assert_eq!(
            (of(NT_PRSTATUS), of(NT_PRPSINFO), of(NT_AUXV), of(NT_SIGINFO), of(NT_FILE)),
            (2, 1, 1, 1, 0)
        );
        assert!(kinds.contains(&(0x202, b"LINUX".to_vec())), "{kinds:?}");
        assert_eq!(kinds[1].0, NT_PRSTATUS, "the first thread's status comes before all else");
    }

    #[test]
    fn a_command_line_of_terabytes_is_not_read_to_its_end() {
        const ARG_START: libc::c_int = 8;
        // SAFETY: plain system calls; the child makes no others.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let length = 1 << 40;
            let words = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, flags, -1, 0);
            assert_ne!(words, libc::MAP_FAILED);
            let mut ends = [0; 2];
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let set = libc::prctl(libc::PR_SET_MM, ARG_START, words, 0, 0) == 0;
                libc::write(ends[1], (&raw const set).cast(), 1);
                loop {
                    libc::pause();
                }
            }
            let mut set = false;
            assert_eq!(libc::read(ends[0], (&raw mut set).cast(), 1), 1);
            let found = set.then(|| command(child));
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            libc::munmap(words, length);
            match found {
                Some(words) => assert_eq!(words, b"", "zeros are blanks, which are trimmed"),
                None => eprintln!("skipped: only root may move a process's arguments"),
            }
        }
        let own = command(std::process::id() as i32);
        assert!(!own.is_empty() && own.len() <= 79, "{own:?}");
    }
}

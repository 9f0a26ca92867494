//! The notes of an ELF core: threads, their registers, the process, its files.

use crate::arch;
use crate::target::{Mapping, Stat, Status};
use crate::trace::Thread;

pub(crate) const NT_PRSTATUS: u32 = 1;
const NT_PRFPREG: u32 = 2;
pub(crate) const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
pub(crate) const NT_SIGINFO: u32 = 0x5349_4749;
pub(crate) const NT_FILE: u32 = 0x4649_4c45;
/// The name of our own note: JSON text that tells how the dump was taken.
pub(crate) const OWN: &[u8] = b"NCPU";
/// Its type. Debuggers look at types before names, so this is a type that no debugger uses.
pub(crate) const NT_OWN: u32 = 0x4e43_5055;
/// Where `pr_reg` begins in `struct elf_prstatus`.
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

/// All notes of a process whose threads stood as given. `own` is the text of our own note.
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
    // SAFETY: no arguments that could be wrong.
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
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<u8> = words.iter().map(|&b| if b == 0 { b' ' } else { b }).take(79).collect();
    put(56, words.trim_ascii_end());
    out
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

//! Chooses the mappings of a process that a core stores: by the kernel's own rules (`vma_dump_size`), and by
//! the user's exclusions.

use std::os::fd::AsRawFd;

use crate::Error;
use crate::memory::Memory;
use crate::pagemap::Ranges;
use crate::target::{self, Mapping};
use ncpu_machine::page_size;

/// A mapping, and the part of it that is stored.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) mapping: Mapping,
    /// Number of bytes stored, from its start.
    pub(crate) stored: u64,
    /// The ranges of it that contain data; `None` if the page map has them.
    pub(crate) ranges: Option<Ranges>,
    /// Why it is not stored, if that is worth mentioning.
    pub(crate) why: Option<&'static str>,
}

/// Bits of /proc/PID/coredump_filter.
const ANON_PRIVATE: u64 = 1 << 0;
const ANON_SHARED: u64 = 1 << 1;
const FILE_PRIVATE: u64 = 1 << 2;
const FILE_SHARED: u64 = 1 << 3;
const ELF_HEADERS: u64 = 1 << 4;
const HUGE_PRIVATE: u64 = 1 << 5;
const HUGE_SHARED: u64 = 1 << 6;
/// The kernel's default.
const DEFAULT: u64 = ANON_PRIVATE | ANON_SHARED | ELF_HEADERS | HUGE_PRIVATE;

/// Decides for each mapping.
///
/// # Errors
/// A pattern of `exclude` is invalid.
pub(crate) fn choose(
    pid: i32,
    mappings: &[Mapping],
    exclude: &[String],
    memory: &Memory,
) -> Result<Vec<Chosen>, Error> {
    let filter = std::fs::read_to_string(format!("/proc/{pid}/coredump_filter")).ok();
    let filter = filter.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(DEFAULT);
    let exclude: Vec<Pattern> = exclude.iter().map(|text| Pattern::parse(text)).collect::<Result<_, _>>()?;
    let shown = mappings.iter().filter(|m| m.name != b"[vsyscall]");
    Ok(shown
        .map(|mapping| {
            let excluded = exclude.iter().any(|pattern| pattern.matches(mapping));
            one(pid, mapping.clone(), filter, excluded, memory)
        })
        .collect())
}

fn one(pid: i32, mapping: Mapping, filter: u64, excluded: bool, memory: &Memory) -> Chosen {
    let page = page_size();
    let length = mapping.len();
    let whole = Some(vec![(mapping.start, mapping.end)]);
    let none = |mapping, why| Chosen { mapping, stored: 0, ranges: None, why };
    if excluded {
        return none(mapping, Some("excluded"));
    }
    if mapping.name == b"[vdso]" {
        return Chosen { mapping, stored: length, ranges: whole, why: None };
    }
    if mapping.has(b"io") || mapping.has(b"pf") {
        let why = mapping.is_file().then_some("memory of devices");
        return none(mapping, why);
    }
    if mapping.has(b"dd") {
        return none(mapping, Some("MADV_DONTDUMP"));
    }
    let wanted = |bit: u64| filter & bit != 0;
    if mapping.has(b"ht") {
        let bit = if mapping.shared { HUGE_SHARED } else { HUGE_PRIVATE };
        return if wanted(bit) {
            Chosen { mapping, stored: length, ranges: None, why: None }
        } else {
            none(mapping, Some("shared huge pages, by coredump_filter"))
        };
    }
    if mapping.shared {
        let anonymous = mapping.is_deleted() || mapping.name.starts_with(b"/SYSV");
        let bit = if anonymous { ANON_SHARED } else { FILE_SHARED };
        if !wanted(bit) {
            let why = if anonymous {
                "shared memory, by coredump_filter"
            } else {
                "shared files, by coredump_filter"
            };
            return none(mapping, Some(why));
        }
        // Pages that this process has not touched belong to it as well, and the file knows them. That does
        // not apply if the process handles its own faults: a reader of such a page waits for the process,
        // which may stand still.
        let own_faults = mapping.has(b"um") || mapping.has(b"ui");
        let ranges = if own_faults { None } else { data(pid, &mapping) };
        return Chosen { mapping, stored: length, ranges, why: None };
    }
    if !mapping.is_file() {
        return if wanted(ANON_PRIVATE) {
            Chosen { mapping, stored: length, ranges: None, why: None }
        } else {
            none(mapping, Some("private memory, by coredump_filter"))
        };
    }
    // A private mapping of a file counts as memory of the process once it has a private page.
    if (mapping.anonymous > 0 && wanted(ANON_PRIVATE)) || wanted(FILE_PRIVATE) {
        return Chosen { mapping, stored: length, ranges: whole, why: None };
    }
    let mut magic = [0; 4];
    if wanted(ELF_HEADERS)
        && mapping.offset == 0
        && mapping.read
        && memory.read_exact(mapping.start, &mut magic).is_ok()
        && magic == *b"\x7fELF"
    {
        let ranges = Some(vec![(mapping.start, mapping.start + page)]);
        return Chosen { mapping, stored: page, ranges, why: None };
    }
    none(mapping, None)
}

/// The parts of a shared mapping that its file contains; `None` if that cannot be determined, or if another process or machine
/// would have to answer.
fn data(pid: i32, mapping: &Mapping) -> Option<Ranges> {
    let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let file = target::opened(pid, &link).ok()?.local().ok()?;
    let end = mapping.offset + mapping.len();
    let seek = |from: u64, whence| {
        // SAFETY: plain numbers; no other code uses the offset of this descriptor.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as i64, whence) };
        u64::try_from(at).ok()
    };
    let mut out = Ranges::new();
    let mut at = mapping.offset;
    while at < end {
        // No more data: ENXIO.
        let Some(from) = seek(at, libc::SEEK_DATA).filter(|&from| from < end) else { break };
        let to = seek(from, libc::SEEK_HOLE)?.min(end);
        let page = page_size();
        out.push((
            mapping.start + (from - mapping.offset) / page * page,
            mapping.start + (to - mapping.offset).next_multiple_of(page),
        ));
        at = to.max(from + 1);
    }
    Some(out)
}

/// Lines about the mappings that were left out.
pub(crate) fn left_out(chosen: &[Chosen]) -> Vec<String> {
    let mut out: Vec<(&'static str, u64, u64)> = Vec::new();
    for chosen in chosen {
        let Some(why) = chosen.why else { continue };
        match out.iter_mut().find(|row| row.0 == why) {
            Some(row) => (row.1, row.2) = (row.1 + 1, row.2 + chosen.mapping.len()),
            None => out.push((why, 1, chosen.mapping.len())),
        }
    }
    let mapping = |n: u64| if n == 1 { "mapping" } else { "mappings" };
    out.into_iter()
        .map(|(why, n, bytes)| format!("left out: {n} {}, {} kB: {why}", mapping(n), bytes >> 10))
        .collect()
}

/// A mapping to leave out.
enum Pattern {
    Range(u64, u64),
    Name(Vec<u8>),
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, Error> {
        if let Some((start, end)) = text.split_once('-') {
            let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            if let (Some(start), Some(end)) = (number(start), number(end)) {
                if start >= end {
                    return Err(Error::Unsupported(format!("--exclude {text}: no addresses")));
                }
                return Ok(Self::Range(start, end));
            }
        }
        if text.is_empty() {
            return Err(Error::Unsupported("--exclude: expected a name or a range of addresses".into()));
        }
        Ok(Self::Name(text.as_bytes().to_vec()))
    }

    fn matches(&self, mapping: &Mapping) -> bool {
        match self {
            Self::Range(start, end) => mapping.start < *end && *start < mapping.end,
            Self::Name(pattern) => matches(pattern, &mapping.name),
        }
    }
}

/// `*` matches anything, `?` any byte.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // The last star, and the extent of its match.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, reached)) = star else { return false };
                star = Some((at, reached + 1));
                (p, n) = (at + 1, reached + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_addresses() {
        for (pattern, name, is) in [
            ("*secret*", "/run/secret.db", true),
            ("/run/?.db", "/run/a.db", true),
            ("/run/?.db", "/run/ab.db", false),
            ("[heap]", "[heap]", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
        let mapping = Mapping { start: 0x1000, end: 0x3000, ..Mapping::default() };
        assert!(Pattern::parse("0x2000-0x2001").unwrap().matches(&mapping));
        assert!(!Pattern::parse("3000-4000").unwrap().matches(&mapping));
        assert!(Pattern::parse("4000-3000").is_err());
        assert!(Pattern::parse("").is_err());
    }

    #[test]
    fn memory_of_devices_is_left_out_and_told_with_its_size() {
        // As in smaps: VM_IO and VM_PFNMAP for a GPU's registers and for a device's own memory.
        let device = |name: &str, flag: [u8; 2], kb: u64| Mapping {
            start: 0x7000_0000,
            end: 0x7000_0000 + (kb << 10),
            name: name.as_bytes().to_vec(),
            inode: 7,
            shared: true,
            flags: vec![*b"rd", flag],
            ..Mapping::default()
        };
        let mappings = [
            device("/dev/nvidia0", *b"io", 64),
            device("/dev/dri/renderD128", *b"pf", 16 << 10),
            device("/dev/dax0.0", *b"sh", 2 << 10),
        ];
        let us = std::process::id() as i32;
        let chosen = choose(us, &mappings, &[], &Memory::open(us).unwrap()).unwrap();
        assert!(chosen.iter().all(|chosen| chosen.stored == 0));
        assert_eq!(
            left_out(&chosen),
            [
                "left out: 2 mappings, 16448 kB: memory of devices",
                "left out: 1 mapping, 2048 kB: shared files, by coredump_filter"
            ]
        );
    }
}

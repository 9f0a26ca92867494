//! The contents of `/proc/PID`: [`Stat`], [`Fields`] of `status` and `io`, [`Mapping`]s of `maps` and
//! `smaps`.
//!
//! A process chooses its own name and the names of the files it maps. They may contain any byte but NUL:
//! blanks, parentheses, newlines, bytes that are not UTF-8. So the parsers take bytes, borrow from them, and
//! never fail as a whole because of one line. The crate `procfs-core` is not used: one mapped file with a
//! name that is not UTF-8 loses the whole of `maps`, and a name that begins with `/SYSV` and is shorter than
//! 13 bytes makes it panic.

mod fields;
mod mapping;
mod stat;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

pub use fields::Fields;
pub use mapping::{Mapping, mappings, smaps};
pub use stat::Stat;

/// The most bytes read of a file of `/proc/PID`: `vm.max_map_count` is 65,530 by default, and a line of
/// `maps` about 100 bytes.
const LONGEST: u64 = 256 << 20;

/// The bytes of a file of `/proc/PID`. If a process ends during the read, the bytes read before are returned.
///
/// # Errors
/// The file cannot be opened, or its first bytes cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path)?.take(LONGEST).read_to_end(&mut bytes) {
        Err(e) if bytes.is_empty() => Err(e),
        _ => Ok(bytes),
    }
}

/// Every process below `proc`, ascending.
///
/// # Errors
/// The directory cannot be listed.
pub fn pids(proc: &Path) -> io::Result<Vec<u32>> {
    numbers(proc)
}

/// The threads of the process with the directory `dir`, ascending; empty if the process has ended.
pub fn threads(dir: &Path) -> Vec<u32> {
    numbers(&dir.join("task")).unwrap_or_default()
}

fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name());
    let mut found: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

/// The name of a process or thread (`comm`), by its directory; `None` if it has ended.
pub fn name(dir: &Path) -> Option<String> {
    let name = read(&dir.join("comm")).ok()?;
    Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// The bytes of a path in which the kernel escaped some as `\` and three octal digits, as in `mountinfo` and
/// `numa_maps`.
pub fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        match tail.first_chunk::<3>().filter(|_| first == b'\\').and_then(octal) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    let add = |n: u16, c: &u8| (b'0'..=b'7').contains(c).then(|| n * 8 + u16::from(c - b'0'));
    digits.iter().try_fold(0, add).and_then(|n| u8::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read() {
        let dir = Path::new("/proc").join(std::process::id().to_string());
        let text = read(&dir.join("stat")).unwrap();
        let stat = Stat::parse(&text).unwrap();
        assert_eq!(stat.parent(), Some(std::os::unix::process::parent_id()));
        assert!(!stat.has_ended() && stat.start().is_some());
        assert_eq!(name(&dir), Some(stat.name()));
        assert_eq!(stat.threads(), Some(threads(&dir).len() as u64));
        assert!(pids("/proc".as_ref()).unwrap().contains(&std::process::id()));
        let text = read(&dir.join("status")).unwrap();
        let status = Fields(&text);
        assert_eq!(status.number("Tgid"), Some(std::process::id()));
        assert!(status.bytes("VmSize") >= status.bytes("VmRSS") && status.bytes("VmRSS") > Some(0));
        let text = read(&dir.join("maps")).unwrap();
        let here = this_process_is_read as fn() as usize as u64;
        let code = mappings(&text).find(|m| m.contains(here)).unwrap();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        assert!(code.execute && code.path() == exe, "{code:?}");
        let text = read(&dir.join("smaps")).unwrap();
        assert!(smaps(&text).any(|(m, fields)| m.contains(here) && fields.bytes("Rss") > Some(0)));
        assert!(read(&dir.join("task/1/stat")).is_err() && name("/proc/0".as_ref()).is_none());
    }

    #[test]
    fn escapes_are_octal_digits() {
        assert_eq!(unescape(b"a\\040b\\134\\0\\777\\101"), b"a b\\\\0\\777A");
    }
}

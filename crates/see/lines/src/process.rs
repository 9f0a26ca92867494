//! The programs and libraries a process has mapped, at the addresses it has them at.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::{Error, Options, Place, Report, Storage};

/// Analyses each file of which the process `pid` has code mapped. Addresses of variables are the process's.
///
/// `root` holds the `proc` to read (`/` on a live system).
///
/// # Errors
/// There is no such process, or its mappings may not be read.
pub fn process(root: &Path, pid: u32, options: &Options) -> Result<Vec<Report>, Error> {
    let gone = |source| Error::Process { pid, source };
    let maps = std::fs::read(root.join(format!("proc/{pid}/maps"))).map_err(gone)?;
    Ok(mapped(root, pid, &maps, options))
}

/// As [`process`], of a process that may have ended since its `/proc/PID/maps` was read.
pub fn mapped(root: &Path, pid: u32, maps: &[u8], options: &Options) -> Vec<Report> {
    let maps = String::from_utf8_lossy(maps);
    let mut reports = Vec::new();
    let mut seen = HashSet::new();
    for mapping in maps.lines().filter_map(Mapping::parse) {
        if !mapping.code || !mapping.path.starts_with('/') || !seen.insert(mapping.path.to_owned()) {
            continue;
        }
        let (path, data) = match open(root, pid, &mapping) {
            Ok(found) => found,
            Err(e) => {
                reports.push(not_read(mapping.path, &e.to_string()));
                continue;
            }
        };
        // Data files are mapped executable by some, too.
        if !data.starts_with(b"\x7fELF") {
            continue;
        }
        let elf = match crate::parse(&path, &data) {
            Ok(elf) => elf,
            Err(e) => {
                reports.push(not_read(mapping.path, &e.to_string()));
                continue;
            }
        };
        let mut report = crate::analyse(Path::new(mapping.path), &elf, options);
        match elf.bias(mapping.start, mapping.offset) {
            Some(bias) => move_by(&mut report, bias),
            None => report.notes.push("where it is loaded is not known: addresses are the file's".into()),
        }
        reports.push(report);
    }
    reports
}

/// A file of which nothing can be told but why.
fn not_read(object: &str, why: &str) -> Report {
    let notes = vec![format!("not read: {why}")];
    Report { object: object.into(), findings: Vec::new(), words: Vec::new(), notes, variables: 0, structs: 0 }
}

fn open(root: &Path, pid: u32, mapping: &Mapping) -> Result<(PathBuf, Vec<u8>), Error> {
    let dir = root.join(format!("proc/{pid}"));
    // A file that was replaced since can still be opened through its mapping.
    let path = match mapping.path.strip_suffix(" (deleted)") {
        Some(_) => dir.join("map_files").join(mapping.range),
        None => dir.join("root").join(&mapping.path[1..]),
    };
    let found = crate::read(&path).map(|data| (path, data));
    // A process that has ended has no root any more; its files are most likely to be found here.
    found.or_else(|e| {
        let path = root.join(&mapping.path[1..]);
        crate::read(&path).map(|data| (path, data)).map_err(|_| e)
    })
}

fn move_by(report: &mut Report, bias: u64) {
    report.words.iter_mut().for_each(|(w, _)| w.address = w.address.wrapping_add(bias));
    for finding in &mut report.findings {
        if let Place::Variables(Storage::Shared | Storage::PerCpu) = finding.place {
            finding.line = finding.line.wrapping_add(bias);
            finding.words.iter_mut().for_each(|w| w.address = w.address.wrapping_add(bias));
        }
    }
}

struct Mapping<'a> {
    range: &'a str,
    start: u64,
    offset: u64,
    code: bool,
    path: &'a str,
}

impl Mapping<'_> {
    fn parse(line: &str) -> Option<Mapping<'_>> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
            rest = after;
            (!word.is_empty()).then_some(word)
        };
        let range = word()?;
        let (start, _) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let code = word()?.contains('x');
        let offset = u64::from_str_radix(word()?, 16).ok()?;
        word()?;
        word()?;
        Some(Mapping { range, start, offset, code, path: rest.trim_start() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps() {
        let m = Mapping::parse("7f00-7f10 r-xp 00026000 fe:01 1234      /usr/lib/a b.so (deleted)").unwrap();
        assert_eq!((m.start, m.offset, m.code), (0x7f00, 0x26000, true));
        assert_eq!(m.path, "/usr/lib/a b.so (deleted)");
        assert!(!Mapping::parse("0-1 rw-p 0 0:0 0").unwrap().code);
        for bad in ["", "x", "1-2", "1-2 r", "z-2 rw-p 0 0:0 0 /x", "1-2 rw-p q 0:0 0 /x"] {
            assert!(Mapping::parse(bad).is_none(), "{bad}");
        }
    }
}

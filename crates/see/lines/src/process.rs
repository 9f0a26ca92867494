//! The programs and libraries a process has mapped, at the addresses it has them at.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ncpu_machine::process::{self, Mapping};

use crate::{Error, Options, Place, Report, Storage};

/// Analyses each file of which the process `pid` has code mapped. Addresses of variables are the process's.
///
/// `root` holds the `proc` to read (`/` on a live system).
///
/// # Errors
/// There is no such process, or its mappings may not be read.
pub fn process(root: &Path, pid: u32, options: &Options) -> Result<Vec<Report>, Error> {
    let gone = |source| Error::Process { pid, source };
    let maps = process::read(&root.join(format!("proc/{pid}/maps"))).map_err(gone)?;
    Ok(mapped(root, pid, &maps, options))
}

/// As [`process`], of a process that may have ended since its `/proc/PID/maps` was read.
pub fn mapped(root: &Path, pid: u32, maps: &[u8], options: &Options) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut seen = HashSet::new();
    for mapping in process::mappings(maps) {
        if !mapping.execute || !mapping.name.starts_with(b"/") || !seen.insert(mapping.name) {
            continue;
        }
        let name = mapping.text();
        let (path, data) = match open(root, pid, &mapping) {
            Ok(found) => found,
            Err(e) => {
                reports.push(not_read(&name, &e.to_string()));
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
                reports.push(not_read(&name, &e.to_string()));
                continue;
            }
        };
        let mut report = crate::analyse(Path::new(&*name), &elf, options);
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
    let plain = Mapping::plain(mapping.file_name());
    let below = Path::new(OsStr::from_bytes(plain.strip_prefix(b"/").unwrap_or(&plain)));
    let path = match mapping.is_deleted() {
        true => dir.join("map_files").join(mapping.link()),
        false => dir.join("root").join(below),
    };
    let found = crate::read(&path).map(|data| (path, data));
    // A process that has ended has no root any more; its files are most likely to be found here. Where a deleted one was, there
    // may be another by now.
    found.or_else(|e| match mapping.is_deleted() {
        true => Err(e),
        false => {
            let path = root.join(below);
            crate::read(&path).map(|data| (path, data)).map_err(|_| e)
        }
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

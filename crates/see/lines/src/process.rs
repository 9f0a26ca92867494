//! The programs and libraries that a process has mapped, at their addresses in the process.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ncpu_files::reader::{Source, Whose};
use ncpu_machine::process::{self, Mapping};

use crate::{Error, Options, Place, Report, Storage};

/// Maximum number of files that are read for one process.
const MAX_FILES: usize = 1024;
/// Maximum bytes of one file, which may belong to another user.
const LONGEST: u64 = 2 << 30;

/// Analyses each file from which the process `pid` has mapped code. Addresses of variables are those of the
/// process.
///
/// `root` holds the `proc` to read (`/` on a live system).
///
/// # Errors
/// The process does not exist, or its mappings cannot be read.
pub fn process(root: &Path, pid: u32, options: &Options) -> Result<Vec<Report>, Error> {
    let gone = |source| Error::Process { pid, source };
    let maps =
        ncpu_files::reader::process_text(&root.join(format!("proc/{pid}")), pid, "maps").map_err(gone)?;
    Ok(mapped(root, pid, &maps, options))
}

/// As [`process`], for a process that may have ended since its `/proc/PID/maps` was read.
pub fn mapped(root: &Path, pid: u32, maps: &[u8], options: &Options) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut seen = HashSet::new();
    let began = Instant::now();
    for mapping in process::mappings(maps) {
        if !mapping.execute || !mapping.name.starts_with(b"/") || !seen.insert(mapping.name) {
            continue;
        }
        let name = mapping.text();
        if seen.len() > MAX_FILES || began.elapsed() > options.longest.saturating_mul(2) {
            reports.push(not_read(&name, "the process maps too many files, or the others took too long"));
            break;
        }
        let (path, data) = match open(root, pid, &mapping) {
            Ok(found) => found,
            Err(e) => {
                reports.push(not_read(&name, &e.to_string()));
                continue;
            }
        };
        // Some programs map data files as executable.
        if !data.starts_with(b"\x7fELF") {
            continue;
        }
        let elf = match crate::parse(&path, &data, options) {
            Ok(elf) => elf,
            Err(e) => {
                reports.push(not_read(&name, &e.to_string()));
                continue;
            }
        };
        let mut report = crate::analyse(Path::new(&*name), &elf, options);
        match elf.bias(mapping.start, mapping.offset) {
            Some(bias) => move_by(&mut report, bias),
            None => report.notes.push("its load address is unknown: addresses are those of the file".into()),
        }
        reports.push(report);
    }
    reports
}

/// A file that was not read, with the reason.
fn not_read(object: &str, why: &str) -> Report {
    let notes = vec![format!("not read: {why}")];
    Report { object: object.into(), findings: Vec::new(), words: Vec::new(), notes, variables: 0, structs: 0 }
}

/// The file of a mapping, and a path to it: the mapped file, even if its user has since replaced it.
fn open(root: &Path, pid: u32, mapping: &Mapping) -> Result<(PathBuf, Vec<u8>), Error> {
    let dir = root.join(format!("proc/{pid}"));
    let whose = Whose::process(&dir, pid);
    let plain = Mapping::plain(mapping.file_name());
    let below = Path::new(OsStr::from_bytes(plain.strip_prefix(b"/").unwrap_or(&plain)));
    let link = dir.join("map_files").join(mapping.link());
    let is_it = |source: &Source| source.identity().1 == mapping.inode || source.has_other_numbers();
    let by_path = |root: PathBuf| {
        let source = Source::below(&root, below, true, whose)?;
        if !is_it(&source) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was replaced"));
        }
        Ok((root.join(below), source))
    };
    let found = match Source::mapped(&link, whose) {
        // Separate debug information is searched for beside the path.
        Ok(source) if !mapping.is_deleted() => Ok((dir.join("root").join(below), source)),
        Ok(source) => Ok((link, source)),
        Err(e) if mapping.is_deleted() => Err(e),
        // A process that has ended has no root; its files are most likely here.
        Err(_) => by_path(dir.join("root")).or_else(|e| by_path(root.into()).map_err(|_| e)),
    };
    let (path, source) = found.map_err(|source| Error::Io { path: root.join(below), source })?;
    if source.size() > LONGEST || !crate::is_sound(source.size(), source.on_disk()) {
        return Err(Error::TooLong(path));
    }
    let mut data = vec![0; source.size() as usize];
    let got = source.read_at(&mut data, 0).map_err(|source| Error::Io { path: path.clone(), source })?;
    data.truncate(got);
    Ok((path, data))
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

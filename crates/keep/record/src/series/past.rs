//! The existing recordings of a series, and their deletion.
//!
//! Only entries that certainly are recordings of this series are deleted: a real directory of this user in
//! the same file system, with a name of the series, a manifest with the same number, and no files except a
//! recording's own. It is examined and emptied through one descriptor, and links are never followed.
//! Everything else is left alone. The manifest goes last, so that an interrupted deletion is resumed.

use std::sync::Arc;

use ncpu_files::Dir;
use rustix::fs::FileType;

use super::Keep;
use super::clock::Now;
use crate::manifest::{MANIFEST, table_of, temporary};
use crate::write::{PARQUET, STREAM};
use crate::{Error, Manifest, Place, Result, utc};

/// Suffixes of a recording's name: readable, being written while the one before is finished, and being
/// deleted.
pub(super) const DONE: &str = ".ncpu";
pub(super) const PART: &str = ".part";
const GONE: &str = ".gone";

/// A recording's name: its number, and its start in readable form.
pub(super) fn name(number: u64, start: f64, end: &str) -> String {
    let time: String = utc(start).chars().filter(char::is_ascii_digit).collect();
    let time = time.split_at_checked(8).map_or("0".into(), |(day, clock)| format!("{day}T{clock}Z"));
    format!("{number:08}-{time}{end}")
}

/// The number and the suffix of a name; `None` if it does not belong to the series.
pub(super) fn parse(name: &str) -> Option<(u64, &'static str)> {
    let end = [DONE, PART, GONE].into_iter().find(|end| name.ends_with(end))?;
    let (number, time) = name.strip_suffix(end)?.split_once('-')?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let time = match time.strip_suffix('Z').and_then(|t| t.split_once('T')) {
        Some((day, clock)) => digits(day) && digits(clock),
        None => time == "0",
    };
    (digits(number) && number.len() >= 8 && time).then(|| Some((number.parse().ok()?, end)))?
}

/// Whether a directory of this name may belong to the series.
pub(super) fn is_of_series(name: &str) -> bool {
    parse(name).is_some()
}

/// Whether a file of this name belongs to a recording.
fn is_part(name: &str) -> bool {
    let whole = name.strip_suffix(".tmp").unwrap_or(name);
    whole == MANIFEST || table_of(whole, PARQUET).is_some() || table_of(name, STREAM).is_some()
}

/// A recording.
#[derive(Debug)]
struct One {
    name: String,
    place: Place,
    start: f64,
    bytes: u64,
    /// It cannot be deleted, which was reported.
    stuck: bool,
}

/// All recordings, by number.
#[derive(Debug)]
pub(super) struct Past {
    dir: Arc<Dir>,
    all: Vec<One>,
    last: u64,
}

impl Past {
    /// Reads the directory, and completes interrupted steps: missing names, deletions.
    pub fn take_up(dir: Arc<Dir>, say: &mut dyn FnMut(String)) -> Result<Past> {
        let mut past = Past { dir, all: Vec::new(), last: 0 };
        let names = past.dir.names().map_err(|e| Error::io(past.dir.path(), "list", e))?;
        for name in names {
            let Some((number, end)) = parse(&name) else { continue };
            // Also for entries that are left alone: no number is used twice.
            past.last = past.last.max(number);
            match (end, past.look(&name, number)) {
                (GONE, Err(_)) => past.clear(&name),
                (GONE, Ok(_)) => past.empty(&name, number).unwrap_or_else(&mut *say),
                (PART, Err(_)) => past.clear(&name),
                (PART, Ok(one)) => match past.show(number, one.start) {
                    Ok(()) => {}
                    Err(e) => say(format!("{name} keeps this name: {e}")),
                },
                (_, Ok(one)) => past.all.push(one),
                // It belongs to another program.
                (_, Err(_)) => {}
            }
        }
        past.all.sort_by_key(|one| one.place.number);
        Ok(past)
    }

    /// The highest number that was used.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Gives a recording its readable name.
    pub fn show(&mut self, number: u64, start: f64) -> std::io::Result<()> {
        let (part, done) = (name(number, start, PART), name(number, start, DONE));
        if self.dir.kind(&done)?.is_some() {
            return Err(std::io::Error::other(format!("{done} is taken")));
        }
        self.dir.rename(&part, &done)?;
        self.all.extend(self.look(&done, number).ok());
        self.last = self.last.max(number);
        Ok(())
    }

    /// Measures the last two again: one has just been finished.
    pub fn measure(&mut self) {
        for at in self.all.len().saturating_sub(2)..self.all.len() {
            if let Ok(now) = self.look(&self.all[at].name, self.all[at].place.number) {
                self.all[at].bytes = now.bytes;
            }
        }
    }

    /// Deletes the oldest recordings while they exceed the limits; never the last, which may be being
    /// written.
    pub fn prune(&mut self, keep: &Keep, now: &Now, say: &mut dyn FnMut(String)) {
        let mut sum: u64 = self.all.iter().map(|one| one.bytes).sum();
        let most = keep.bytes.map_or(u64::MAX, |bytes| bytes / 4 * 3);
        let mut at = 0;
        while let [one, next, ..] = &self.all[at..] {
            // It ended where the next began.
            let old = keep.age.is_some_and(|age| now.since(&next.place, next.start) > age.as_secs_f64());
            if !old && sum <= most {
                break;
            }
            sum = sum.saturating_sub(one.bytes);
            let done =
                if one.stuck { Err(None) } else { self.delete(&one.name, one.place.number).map_err(Some) };
            match done {
                Ok(()) => {
                    self.all.remove(at);
                }
                Err(why) => {
                    why.into_iter().for_each(&mut *say);
                    self.all[at].stuck = true;
                    at += 1;
                }
            }
        }
    }

    /// The data of a recording, if it belongs to this series.
    fn look(&self, name: &str, number: u64) -> Result<One, String> {
        let left = |why: String| format!("{} is left alone: {why}", self.dir.path().join(name).display());
        let dir = self.dir.open_in(name).map_err(|e| left(e.to_string()))?;
        if !dir.is_ours_beside(&self.dir).map_err(|e| left(e.to_string()))? {
            return Err(left("it belongs to another user, or is a separate file system".into()));
        }
        let (manifest, _) = Manifest::read_in(&dir).map_err(|e| left(e.to_string()))?;
        let Some(place) = manifest.series.filter(|place| place.number == number) else {
            return Err(left("its manifest lacks its number in a series".into()));
        };
        let mut bytes = 0;
        for file in dir.names().map_err(|e| left(e.to_string()))? {
            match dir.taken(&file) {
                Ok(Some(taken)) if is_part(&file) => bytes += taken,
                // It was finished meanwhile: its streams were removed.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && is_part(&file) => {}
                _ => return Err(left(format!("{file} in it does not belong to a recording"))),
            }
        }
        Ok(One { name: name.into(), place, start: manifest.created_unix, bytes, stuck: false })
    }

    fn delete(&self, name: &str, number: u64) -> Result<(), String> {
        self.look(name, number)?;
        let gone = format!("{}{GONE}", name.strip_suffix(DONE).unwrap_or(name));
        let failed = |e| format!("{} cannot be deleted: {e}", self.dir.path().join(name).display());
        self.dir.rename(name, &gone).map_err(failed)?;
        self.empty(&gone, number)
    }

    /// Deletes a recording that was renamed for it.
    fn empty(&self, gone: &str, number: u64) -> Result<(), String> {
        // Its name may have changed hands since it was examined.
        self.look(gone, number)?;
        let failed = |e| format!("{} cannot be deleted: {e}", self.dir.path().join(gone).display());
        let dir = self.dir.open_in(gone).map_err(failed)?;
        let names = dir.names().map_err(failed)?;
        for file in names.iter().filter(|n| *n != MANIFEST && is_part(n)) {
            dir.remove(file).map_err(failed)?;
        }
        dir.remove(MANIFEST).map_err(failed)?;
        self.dir.remove_dir(gone).map_err(failed)
    }

    /// Removes a directory without a manifest and without other files.
    fn clear(&self, name: &str) {
        let Ok(dir) = self.dir.open_in(name) else { return };
        let unfinished = temporary(MANIFEST);
        let regular = |n: &str| matches!(dir.kind(n), Ok(Some(FileType::RegularFile)));
        let ours = dir.is_ours_beside(&self.dir).unwrap_or(false);
        if ours && dir.names().is_ok_and(|names| names.iter().all(|n| *n == unfinished && regular(n))) {
            let _ = dir.remove(&unfinished);
            let _ = self.dir.remove_dir(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_others() {
        let named = name(17, 1_709_208_003.5, DONE);
        assert_eq!(named, "00000017-20240229T120003Z.ncpu");
        assert_eq!(parse(&named), Some((17, DONE)));
        assert_eq!(parse(&name(123_456_789, -1.0, PART)), Some((123_456_789, PART)));
        assert_eq!(parse(&name(1, f64::NAN, GONE)), Some((1, GONE)));
        for other in
            ["web.ncpu", "17-20240229T120003Z.ncpu", "00000017.ncpu", "00000017-x.ncpu", "00000017-0"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}

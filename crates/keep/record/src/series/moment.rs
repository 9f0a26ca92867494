//! Finds the recording of a series that contains a moment.
//!
//! Names and manifests contain the start of each, and reading a few rows gives its length. Entries that a
//! series would not delete are not read either: links, foreign names, manifests that are broken or have
//! another number.

use std::path::{Path, PathBuf};

use ncpu_files::Dir;

use super::past::{DONE, parse};
use crate::read::Opened;
use crate::{Error, Manifest, Place, Recording, Result, Selection};

/// Seconds between two recordings that are only rounding.
const ROUNDING: f64 = 1.0;

/// Tables with the length of a recording: of all of it, or of the part that was written.
const LENGTH: Selection = &[("summary", &["elapsed"]), ("cpu_time", &["t"])];

/// The recordings of a directory, for finding the one of a moment.
#[derive(Debug)]
pub struct Moments {
    dir: Dir,
    /// By number, because the clock may have been set.
    all: Vec<One>,
    /// Directories that are named like recordings but do not belong to this series.
    pub skipped: Vec<String>,
}

#[derive(Debug)]
struct One {
    name: String,
    place: Place,
    start: f64,
}

/// The data about a moment. Times are seconds since 1970.
#[derive(Debug)]
pub enum Moment {
    /// A recording contains it.
    Held(Box<Recording>),
    /// No recording contains it: the end of the one before, and the start of the one after.
    Not(Option<f64>, Option<f64>),
}

impl Moments {
    /// Reads the names and manifests in a directory.
    ///
    /// # Errors
    /// The directory does not exist, or may not be read.
    pub fn read(path: &Path) -> Result<Moments> {
        let failed = |action| move |e| Error::io(path, action, e);
        let dir = Dir::open(path).map_err(failed("open"))?;
        let mut moments = Moments { all: Vec::new(), skipped: Vec::new(), dir };
        for name in moments.dir.names().map_err(failed("list"))? {
            let Some((number, DONE)) = parse(&name) else { continue };
            match moments.open(&name) {
                Ok(Opened {
                    manifest: Manifest { series: Some(place), created_unix: start, .. }, ..
                }) if place.number == number && start.is_finite() && place.booted_s.is_finite() => {
                    moments.all.push(One { name, place, start });
                }
                _ => moments.skipped.push(name),
            }
        }
        moments.all.sort_by_key(|one| one.place.number);
        Ok(moments)
    }

    /// Whether the series has no recordings.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The start of the first and the end of the last, by the clock.
    pub fn span(&self) -> Option<(f64, f64)> {
        let first = self.all.iter().map(|one| one.start).reduce(f64::min)?;
        let last = self.all.iter().enumerate().max_by(|a, b| a.1.start.total_cmp(&b.1.start))?;
        Some((first, self.end(last.0)))
    }

    /// The recording that contains a moment; if the clock was set back and two do, the later one.
    ///
    /// # Errors
    /// The recording that contains it is damaged.
    pub fn at(&self, unix: f64) -> Result<Moment> {
        let (mut before, mut after) = (None::<f64>, None::<f64>);
        for (index, one) in self.all.iter().enumerate().rev() {
            if one.start > unix {
                after = Some(after.map_or(one.start, |after| after.min(one.start)));
                continue;
            }
            // Most ended before this moment by the start of the next one, and are not read.
            if let Some(most) = self.until_next(index).filter(|most| *most <= unix) {
                before = Some(before.map_or(most, |before| before.max(most)));
                continue;
            }
            let end = self.end(index);
            if unix < end {
                return Ok(Moment::Held(Box::new(self.open(&one.name)?.tables(None)?)));
            }
            before = Some(before.map_or(end, |before| before.max(end)));
        }
        Ok(Moment::Not(before, after))
    }

    /// The latest possible end of a recording: the start of the next one of the same boot, by the clock of
    /// its own start.
    fn until_next(&self, index: usize) -> Option<f64> {
        let [one, next] = self.all.get(index..index + 2)? else { return None };
        let same = !one.place.boot.is_empty() && one.place.boot == next.place.boot;
        same.then(|| one.start + (next.place.booted_s - one.place.booted_s).max(0.0))
    }

    /// The end of a recording. A complete one of unknown length lasts as long as possible. So does one with
    /// unreadable tables, so that a query for it reports the error.
    fn end(&self, index: usize) -> f64 {
        let one = &self.all[index];
        let next = self.until_next(index);
        let Ok(read) = self.open(&one.name).and_then(|opened| opened.tables(Some(LENGTH))) else {
            return next.unwrap_or(one.start);
        };
        let elapsed = read.tables.get("summary").and_then(|summary| summary.number(0, "elapsed"));
        let end = match elapsed.or_else(|| read.until()).filter(|length| length.is_finite()) {
            Some(length) => one.start + length.max(0.0),
            None if read.manifest.complete => next.unwrap_or(one.start),
            None => one.start,
        };
        // They follow one another without a gap, unless the watch was ended or the disk was full.
        next.filter(|next| end > *next || next - end < ROUNDING).unwrap_or(end)
    }

    fn open(&self, name: &str) -> Result<Opened> {
        let path: PathBuf = self.dir.path().join(name);
        Opened::in_dir(self.dir.open_in(name).map_err(|e| Error::io(&path, "open", e))?)
    }
}

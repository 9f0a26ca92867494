//! Which recording of a series holds a moment.
//!
//! Names and manifests tell when each began, and reading a few rows how long one is. What a series would not delete is not
//! read either: links, names of others, manifests that are broken or tell another number.

use std::path::{Path, PathBuf};

use ncpu_files::Dir;

use super::past::{DONE, parse};
use crate::read::Opened;
use crate::{Error, Manifest, Place, Recording, Result, Selection};

/// Seconds between two recordings that are nothing but rounding.
const ROUNDING: f64 = 1.0;

/// Tables that tell how long a recording is: whole, or as far as it was written.
const LENGTH: Selection = &[("summary", &["elapsed"]), ("cpu_time", &["t"])];

/// The recordings of a directory, to find the one of a moment.
#[derive(Debug)]
pub struct Moments {
    dir: Dir,
    /// By their numbers: the clock may have been set.
    all: Vec<One>,
    /// Directories that are named as recordings and are none of this series.
    pub skipped: Vec<String>,
}

#[derive(Debug)]
struct One {
    name: String,
    place: Place,
    start: f64,
}

/// What there is of a moment. Times are seconds since 1970.
#[derive(Debug)]
pub enum Moment {
    /// A recording holds it.
    Held(Box<Recording>),
    /// None does: when the one before it ended, and when the one after it began.
    Not(Option<f64>, Option<f64>),
}

impl Moments {
    /// Reads the names and manifests in a directory.
    ///
    /// # Errors
    /// There is no such directory, or it may not be read.
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

    /// Whether there is no recording.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// When the first began and the last ended, by the clock.
    pub fn span(&self) -> Option<(f64, f64)> {
        let first = self.all.iter().map(|one| one.start).reduce(f64::min)?;
        let last = self.all.iter().enumerate().max_by(|a, b| a.1.start.total_cmp(&b.1.start))?;
        Some((first, self.end(last.0)))
    }

    /// The recording that holds a moment; where the clock was set back and two do, the later one.
    ///
    /// # Errors
    /// The recording that holds it is damaged.
    pub fn at(&self, unix: f64) -> Result<Moment> {
        let (mut before, mut after) = (None::<f64>, None::<f64>);
        for (index, one) in self.all.iter().enumerate().rev() {
            if one.start > unix {
                after = Some(after.map_or(one.start, |after| after.min(one.start)));
                continue;
            }
            // Most are over by what the next one tells, and are not read.
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

    /// When a recording ended at the latest: when the next one of the same boot began, by the clock of its own beginning.
    fn until_next(&self, index: usize) -> Option<f64> {
        let [one, next] = self.all.get(index..index + 2)? else { return None };
        let same = !one.place.boot.is_empty() && one.place.boot == next.place.boot;
        same.then(|| one.start + (next.place.booted_s - one.place.booted_s).max(0.0))
    }

    /// When a recording ended. A whole one that does not tell lasts as long as it may have; so does one whose tables cannot
    /// be read, and then who asks for it is told what is wrong with it.
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

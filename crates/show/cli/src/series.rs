//! `ncpu watch --record DIR --rotate 10m`: one observation without an end, in recordings that follow one another.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_daemon::heap::{Trimmer, keep_small};
use ncpu_daemon::pace::Pace;
use ncpu_engine::engine::Config;
use ncpu_engine::observation::{Observation, Until};
use ncpu_observe_core::program::Target;
use ncpu_record::{Keep, Machine, Manifest, Series, Whole};
use ncpu_schema::Purpose;
use ncpu_table::Table;

use crate::observer::{Observer, go_ahead};
use crate::sink;
use crate::stop;
use crate::subject::Subject;

/// Recordings that follow one another.
#[derive(Args, Debug)]
pub struct SeriesArgs {
    /// Start a new recording in DIR every TIME, as in 10m, without a gap
    #[arg(long, value_name = "TIME", requires = "record", value_parser = time)]
    pub rotate: Option<Duration>,

    /// Delete recordings of DIR that ended more than TIME ago, as in 7d
    #[arg(long, value_name = "TIME", requires = "rotate", value_parser = time)]
    keep: Option<Duration>,

    /// Delete the oldest recordings of DIR so that all together take at most SIZE, as in 20G
    #[arg(long, value_name = "SIZE", requires = "rotate", value_parser = size)]
    max: Option<u64>,

    /// Write into each recording what the machine is, as in type=web; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", requires = "rotate", value_parser = label)]
    label: Vec<(String, String)>,
}

/// Continuous recording takes less: timer samples a second on each CPU, and seconds between rows of the tables over time.
pub const HZ: u32 = 19;
pub const INTERVAL: f64 = 5.0;

/// Seconds in each unit of time.
const UNITS: [(char, f64); 5] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0), ('w', 604_800.0)];

/// The least that `--max` may be: a recording of a few seconds fits into an eighth.
const LEAST: u64 = 16 << 20;

/// A length of time of a second or more, with its unit.
///
/// # Errors
/// It is none.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = "give a time of a second or more, as in 90s, 10m, 12h or 7d";
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or(wrong)?;
    let seconds = number.parse::<f64>().map_err(|_| wrong)? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|d| d.as_secs() >= 1).ok_or_else(|| wrong.into())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = ncpu_measure::populate::number(&text.to_ascii_lowercase());
    bytes
        .filter(|&n| n >= LEAST)
        .ok_or_else(|| "give 16M or more, as in 20G (K, M, G, T: powers of 1024)".into())
}

/// As `ncpu fleet` takes labels.
fn label(text: &str) -> Result<(String, String), String> {
    let key = |key: &str| {
        (1..=64).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    };
    match text.split_once('=') {
        Some((name, value)) if key(name) => Ok((name.into(), value.into())),
        Some((name, _)) => Err(format!("`{name}` cannot name a label: use 1 to 64 of a-z A-Z 0-9 _ - .")),
        None => Err("write KEY=VALUE, as in type=web".into()),
    }
}

/// Observes until the subject ends, its time is up or Ctrl-C.
///
/// # Errors
/// Nothing can be observed, or DIR cannot be written at the beginning. Later a disk that is full ends the recording at
/// hand, and each interval tries to begin another.
pub fn watch(
    args: &SeriesArgs,
    mut subject: Subject,
    config: impl FnOnce(Target) -> Config,
    interval: Duration,
    record: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let (rotate, dir) = args.rotate(record, interval)?.context("--rotate needs --record DIR")?;
    keep_small();
    let stop = stop::on_signals()?;
    ncpu_files::reader::end_with(&stop);
    let pace = Pace::keep(&stop, Vec::new());
    let mut log = Log::open(args, rotate, dir, subject.words.clone(), interval)?;
    // Its own sink takes nothing: what is observed goes to the series.
    let mut nowhere = sink::open(Purpose::Watch, subject.words.clone(), interval.as_secs_f64(), None)?;
    let observer =
        Observer::begin(Purpose::Watch, &config(subject.target.clone()), false, None, &mut nowhere)?;
    let Observer::Whole(mut observation) = observer else {
        anyhow::bail!(
            "--rotate needs root and Linux 5.15 or later: elsewhere there is one recording from beginning to end"
        );
    };
    log.begin(observation.when(0.0))?;
    go_ahead();
    subject.release()?;
    let deadline = subject.deadline();
    let mut heap = Trimmer::begin();
    loop {
        let turn = log.turns_at();
        let until = deadline.map_or(turn, |deadline| deadline.min(turn));
        let full = Cell::new(false);
        let ended = || stop.load(Ordering::Relaxed) || full.get();
        match observation.watch(subject.end(), Some(until), interval, &ended, &mut |t| log.take(t, &full)) {
            Ok(Until::Time) if deadline.is_none_or(|d| Instant::now() < d) => {}
            Ok(Until::Stopped) if full.get() && !stop.load(Ordering::Relaxed) => {}
            Ok(_) => break,
            // This interval is lost; what is observed goes on.
            Err(e) if e.is::<Broken>() => {}
            Err(e) => return Err(e),
        }
        log.turn(&mut observation, full.get())?;
        heap.look();
    }
    let mut notes = observation.finish(subject.ended(), &mut |t| log.take_last(t))?;
    notes.extend(pace.note());
    log.close(&notes)?;
    Ok(ExitCode::SUCCESS)
}

impl SeriesArgs {
    /// How long each recording is, and the directory, where there are to be any.
    ///
    /// # Errors
    /// Recordings would be shorter than an interval.
    pub fn rotate<'a>(
        &self,
        record: Option<&'a Path>,
        interval: Duration,
    ) -> anyhow::Result<Option<(Duration, &'a Path)>> {
        require!(self.rotate.is_none_or(|r| r >= interval), "--rotate is shorter than an interval");
        Ok(self.rotate.zip(record))
    }
}

/// The recording at hand cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the recording cannot be written")]
struct Broken;

/// Where the tables go.
pub struct Log {
    series: Series,
    dir: PathBuf,
    rotate: Duration,
    /// When the next recording is to begin.
    next: Instant,
    /// Of intervals that are recordings of their own: their common parts.
    whole: Whole,
    words: Vec<String>,
    labels: BTreeMap<String, String>,
    interval: Duration,
    /// When the recording at hand began, in seconds of the observation.
    since: f64,
    lost: Lost,
    written: u64,
}

/// Intervals that could not be written.
#[derive(Default)]
struct Lost {
    intervals: u64,
    why: String,
}

impl Lost {
    fn words(&self) -> Option<String> {
        (self.intervals > 0).then(|| format!("{} intervals were lost: {}", self.intervals, self.why))
    }
}

impl Log {
    /// Opens the directory; nothing is recorded yet.
    ///
    /// # Errors
    /// See [`Series::open`].
    pub fn open(
        args: &SeriesArgs,
        rotate: Duration,
        dir: &Path,
        words: Vec<String>,
        interval: Duration,
    ) -> anyhow::Result<Log> {
        let keep = Keep { age: args.keep, bytes: args.max };
        Ok(Log {
            series: Series::open(dir, keep, crate::out::mode()).context("--record")?,
            dir: dir.into(),
            rotate,
            next: Instant::now() + rotate,
            whole: Whole::default(),
            words,
            labels: args.label.iter().cloned().collect(),
            interval,
            since: 0.0,
            lost: Lost::default(),
            written: 0,
        })
    }

    /// Begins a recording of what is observed since then.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self, from: Instant) -> anyhow::Result<()> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let mut manifest =
            Manifest::new(Purpose::Watch, cpus, self.words.clone(), self.interval.as_secs_f64());
        Machine::here().put(&mut manifest);
        manifest.labels = self.labels.clone();
        manifest.notes.extend(self.lost.words().map(|words| format!("before this recording {words}")));
        // Writing took time meanwhile.
        self.series.begin(manifest, from.elapsed())?;
        self.lost = Lost::default();
        self.written += 1;
        Ok(())
    }

    /// Takes a table's new rows; returns whether the recording is full.
    fn take(&mut self, table: &Table, full: &Cell<bool>) -> anyhow::Result<()> {
        if !self.series.is_writing() {
            return Ok(());
        }
        if let Err(e) = self.series.append(&[table.less("t", self.since)?]) {
            self.fail(e);
            return Err(Broken.into());
        }
        full.set(full.get() || self.series.is_full());
        Ok(())
    }

    /// [`Log::take`] where another recording follows anyway, or none.
    fn take_last(&mut self, table: &Table) -> anyhow::Result<()> {
        self.take(table, &Cell::new(false)).or_else(|e| if e.is::<Broken>() { Ok(()) } else { Err(e) })
    }

    fn fail(&mut self, error: ncpu_record::Error) {
        self.lost.intervals += 1;
        if self.lost.why.is_empty() {
            self.lost.why = error.to_string();
            say!("ncpu: recording stopped, and begins again when it can: {error}");
        }
    }

    /// When the next recording is to begin. While nothing can be written, each interval tries to.
    fn turns_at(&self) -> Instant {
        if self.series.is_writing() { self.next } else { self.next.min(Instant::now() + self.interval) }
    }

    /// Ends a recording and begins the next; `early` where it is full before its time.
    fn turn(&mut self, observation: &mut Observation, early: bool) -> anyhow::Result<()> {
        self.since = observation.turn(&mut |t| self.take_last(t))?;
        self.begin_next(&observation.notes(), early, observation.when(self.since))
    }

    /// Takes the tables of an interval that is a recording of its own and began at `since`, in seconds of the observation,
    /// which was `from` on; before that ends the recording and begins the next when it is time.
    ///
    /// # Errors
    /// A table is not as the schema has it.
    pub fn interval(
        &mut self,
        tables: &[Table],
        since: f64,
        from: Instant,
        notes: &[String],
    ) -> anyhow::Result<()> {
        let full = self.series.is_full();
        // Each has an interval at least.
        let over = (full || Instant::now() >= self.next) && !self.whole.is_empty();
        if over || !self.series.is_writing() {
            self.put_whole()?;
            self.since = since;
            self.begin_next(notes, full, from)?;
        }
        let (whole, rows): (Vec<&Table>, Vec<&Table>) = tables.iter().partition(|t| Whole::takes(t.name()));
        for table in whole {
            self.whole.add(table)?;
        }
        rows.into_iter().try_for_each(|table| self.take_last(table))
    }

    /// Writes the common parts of all intervals of the recording.
    fn put_whole(&mut self) -> anyhow::Result<()> {
        let whole = std::mem::take(&mut self.whole);
        whole.into_tables().try_for_each(|table| self.take_last(&table))
    }

    fn begin_next(&mut self, notes: &[String], early: bool, from: Instant) -> anyhow::Result<()> {
        if early {
            self.next = Instant::now() + self.rotate;
        }
        while self.next <= Instant::now() {
            self.next += self.rotate;
        }
        self.end(notes);
        let failed = self.lost.intervals > 0;
        match self.begin(from) {
            Ok(()) if failed => say!("ncpu: recording again"),
            Ok(()) => {}
            Err(e) => match e.downcast() {
                Ok(e) => self.fail(e),
                Err(e) => return Err(e),
            },
        }
        self.series.take_messages().iter().for_each(|line| say!("ncpu: {line}"));
        Ok(())
    }

    fn end(&mut self, notes: &[String]) {
        self.series.end(|manifest| manifest.notes.extend_from_slice(notes));
    }

    /// Ends the last recording, waits until all are finished, and says where they are.
    ///
    /// # Errors
    /// Some intervals could not be written.
    pub fn close(mut self, notes: &[String]) -> anyhow::Result<()> {
        self.put_whole()?;
        self.end(notes);
        let (written, dir, lost) = (self.written, self.dir.display(), self.lost.words());
        self.series.close().iter().for_each(|line| say!("ncpu: {line}"));
        if let Some(lost) = lost {
            anyhow::bail!("{lost}");
        }
        let what = if written == 1 { "recording" } else { "recordings" };
        say!("ncpu: {written} {what} in {dir}; `ncpu report` prints one");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_labels() {
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "10", "m", "0s", "-1h", "1e99d", "nand", "10 min"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("20G"), Ok(20 << 30));
        assert!(size("1M").is_err() && size("x").is_err());
        assert_eq!(label("type=web=1"), Ok(("type".into(), "web=1".into())));
        assert!(label("type").is_err() && label("=x").is_err() && label("a b=x").is_err());
    }
}

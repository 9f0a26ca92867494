//! `ncpu watch --record DIR --rotate 10m`: one observation without an end, in recordings that follow one another.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ncpu_observe::engine::Config;
use ncpu_observe::observation::{Observation, Until};
use ncpu_observe::program::Target;
use ncpu_record::{Keep, Manifest, Series};
use ncpu_schema::Purpose;
use ncpu_table::Table;

use crate::observer::Observer;
use crate::sink::{Sink, cpu_model};
use crate::stop;
use crate::subject::Subject;

/// Recordings that follow one another.
#[derive(Args, Debug)]
pub struct SeriesArgs {
    /// Begin another recording in DIR after so long, as in 10m, without a gap
    #[arg(long, value_name = "TIME", requires = "record", value_parser = time)]
    pub rotate: Option<Duration>,

    /// Delete recordings of DIR that ended so long ago, as in 7d
    #[arg(long, value_name = "TIME", requires = "rotate", value_parser = time)]
    keep: Option<Duration>,

    /// Delete the oldest recordings of DIR so that all together take at most so much, as in 20G
    #[arg(long, value_name = "SIZE", requires = "rotate", value_parser = size)]
    max: Option<u64>,

    /// Write into each recording what the machine is, as in type=web; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", requires = "rotate", value_parser = label)]
    label: Vec<(String, String)>,
}

/// Seconds in each unit of time.
const UNITS: [(char, f64); 5] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0), ('w', 604_800.0)];

/// The least that `--max` may be: a recording of a few seconds fits into an eighth.
const LEAST: u64 = 16 << 20;

fn time(text: &str) -> Result<Duration, String> {
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
    let (rotate, dir) = args.rotate.zip(record).context("--rotate needs --record DIR")?;
    anyhow::ensure!(rotate >= interval, "--rotate is shorter than an interval");
    let stop = stop::on_signals()?;
    let series = Series::open(dir, Keep { age: args.keep, bytes: args.max }, crate::out::mode())
        .context("--record")?;
    // Its own sink takes nothing: what is observed goes to the series.
    let mut nowhere = Sink::open(Purpose::Watch, subject.words.clone(), interval.as_secs_f64(), None)?;
    let observer =
        Observer::begin(Purpose::Watch, &config(subject.target.clone()), false, None, &mut nowhere)?;
    let Observer::Whole(mut observation) = observer else {
        anyhow::bail!("--rotate needs root: without it there is one recording from beginning to end");
    };
    let mut log = Log {
        series,
        words: subject.words.clone(),
        labels: args.label.iter().cloned().collect(),
        interval,
        since: 0.0,
        lost: Lost::default(),
        written: 0,
    };
    log.begin()?;
    subject.release()?;
    let deadline = subject.deadline();
    let mut next = Instant::now() + rotate;
    loop {
        // While nothing can be written, each interval tries to.
        let turn = if log.series.is_writing() { next } else { next.min(Instant::now() + interval) };
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
        log.turn(&mut observation)?;
        if full.get() {
            next = Instant::now() + rotate;
        }
        while next <= Instant::now() {
            next += rotate;
        }
    }
    let notes = observation.finish(subject.ended(), &mut |t| log.take_last(t))?;
    log.end(&notes);
    let (written, dir) = (log.written, dir.display());
    let lost = log.lost.words();
    log.series.close().iter().for_each(|line| say!("ncpu: {line}"));
    if let Some(lost) = lost {
        anyhow::bail!("{lost}");
    }
    say!("ncpu: {written} recordings in {dir}; `ncpu report` prints one");
    Ok(ExitCode::SUCCESS)
}

/// The recording at hand cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the recording cannot be written")]
struct Broken;

/// Where the tables go.
struct Log {
    series: Series,
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
    fn begin(&mut self) -> anyhow::Result<()> {
        let cpus = ncpu_machine::online_cpus(Path::new("/")).map_or(1, |c| c.len()) as u64;
        let mut manifest =
            Manifest::new(Purpose::Watch, cpus, self.words.clone(), self.interval.as_secs_f64());
        manifest.cpu_model = cpu_model();
        manifest.labels = self.labels.clone();
        manifest.notes.extend(self.lost.words().map(|words| format!("before this recording {words}")));
        self.series.begin(manifest)?;
        self.lost = Lost::default();
        self.written += 1;
        Ok(())
    }

    /// Takes a table's new rows; tells whether the recording is full.
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

    /// Ends a recording and begins the next.
    fn turn(&mut self, observation: &mut Observation) -> anyhow::Result<()> {
        self.since = observation.turn(&mut |t| self.take_last(t))?;
        let notes = observation.notes();
        self.end(&notes);
        let failed = self.lost.intervals > 0;
        match self.begin() {
            Ok(()) if failed => say!("ncpu: recording again"),
            Ok(()) => {}
            Err(e) => match e.downcast() {
                Ok(e) => self.fail(e),
                Err(e) => return Err(e),
            },
        }
        self.series.told().iter().for_each(|line| say!("ncpu: {line}"));
        Ok(())
    }

    fn end(&mut self, notes: &[String]) {
        self.series.end(|manifest| manifest.notes.extend_from_slice(notes));
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

//! `ncpu report DIR --at 03:12`: a moment as people write it, and the recording that holds it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ncpu_record::{Moment, Moments, Recording};
use ncpu_table::safe;

use crate::series;

/// `--at`.
#[derive(Clone, Debug, PartialEq)]
pub enum At {
    /// So many seconds ago.
    Ago(f64),
    /// A time of day, the last one that has passed.
    Clock(Civil),
    /// A time of a day.
    Day(Civil),
}

/// A date and a time of day as they are written; the date is not used where only the time of day was given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Civil {
    year: i32,
    month: i32,
    day: i32,
    hour: i32,
    minute: i32,
    second: i32,
    utc: bool,
}

/// Reads what `--at` says.
///
/// # Errors
/// It is no time.
pub fn parse(text: &str) -> Result<At, String> {
    let wrong = || {
        String::from(
            "give a time as in 03:12, 2026-11-23T03:12, 2026-11-23T03:12:30Z (UTC), or -2h for two hours ago",
        )
    };
    if let Some(ago) = text.strip_prefix('-') {
        return series::time(ago).map(|ago| At::Ago(ago.as_secs_f64())).map_err(|_| wrong());
    }
    let (text, utc) = text.strip_suffix('Z').map_or((text, false), |text| (text, true));
    let (date, clock) = match text.split_once(['T', ' ']) {
        Some((date, clock)) => (Some(date), clock),
        None => (None, text),
    };
    let numbers = |text: &str, between: char, widths: &[usize]| -> Option<Vec<i32>> {
        let parts: Vec<&str> = text.split(between).collect();
        let digits =
            |part: &str, width: usize| part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        let fit =
            parts.len() <= widths.len() && parts.iter().zip(widths).all(|(part, width)| digits(part, *width));
        fit.then(|| parts.iter().filter_map(|part| part.parse().ok()).collect())
    };
    let clock = numbers(clock, ':', &[2, 2, 2]).filter(|clock| clock.len() >= 2).ok_or_else(wrong)?;
    let mut civil = Civil {
        hour: clock[0],
        minute: clock[1],
        second: clock.get(2).copied().unwrap_or(0),
        utc,
        ..Civil::default()
    };
    if civil.hour > 23 || civil.minute > 59 || civil.second > 59 {
        return Err(wrong());
    }
    let Some(date) = date else { return Ok(At::Clock(civil)) };
    let date = numbers(date, '-', &[4, 2, 2]).filter(|date| date.len() == 3).ok_or_else(wrong)?;
    (civil.year, civil.month, civil.day) = (date[0], date[1], date[2]);
    // Also of a day that no month has.
    civil.unix().map(|_| At::Day(civil)).ok_or_else(wrong)
}

impl Civil {
    /// Seconds since 1970; `None` where there is no such time, as in the hour that a clock skips in spring.
    fn unix(self) -> Option<f64> {
        let mut tm = tm();
        (tm.tm_year, tm.tm_mon, tm.tm_mday) = (self.year - 1900, self.month - 1, self.day);
        (tm.tm_hour, tm.tm_min, tm.tm_sec) = (self.hour, self.minute, self.second);
        // Whether it is summer time is for the system to know.
        tm.tm_isdst = -1;
        // SAFETY: both take a structure that is theirs for the call.
        let unix = unsafe { if self.utc { libc::timegm(&raw mut tm) } else { libc::mktime(&raw mut tm) } };
        let same = (tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min)
            == (self.year - 1900, self.month - 1, self.day, self.hour, self.minute);
        same.then_some(unix as f64)
    }

    /// The date and time of a moment.
    fn of(unix: f64, utc: bool) -> Civil {
        let (seconds, mut tm) = (unix.floor() as libc::time_t, tm());
        // SAFETY: it writes to a structure that is its own for the call. C libraries read the time zone when it is first needed.
        unsafe {
            if utc {
                libc::gmtime_r(&raw const seconds, &raw mut tm)
            } else {
                libc::localtime_r(&raw const seconds, &raw mut tm)
            };
        }
        Civil {
            year: tm.tm_year.saturating_add(1900),
            month: tm.tm_mon + 1,
            day: tm.tm_mday,
            hour: tm.tm_hour,
            minute: tm.tm_min,
            second: tm.tm_sec,
            utc,
        }
    }
}

fn tm() -> libc::tm {
    // SAFETY: numbers and a pointer that may be null.
    unsafe { std::mem::zeroed() }
}

/// A moment as the machine's clock shows it.
pub fn local(unix: f64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(unix, false);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

impl At {
    /// Seconds since 1970.
    fn unix(&self, now: f64) -> Option<f64> {
        match *self {
            At::Ago(seconds) => Some(now - seconds),
            At::Day(civil) => civil.unix(),
            // Of today or yesterday; the day before where yesterday's clock skipped it.
            At::Clock(clock) => (0..3).find_map(|days| {
                let Civil { year, month, day, .. } = Civil::of(now - 86_400.0 * f64::from(days), clock.utc);
                Civil { year, month, day, ..clock }.unix().filter(|unix| *unix <= now)
            }),
        }
    }
}

/// The recording of a directory that holds a moment.
///
/// # Errors
/// None does: the error lists the available times; or the directory or the recording cannot be read.
pub fn find(dir: &Path, at: &At) -> anyhow::Result<Recording> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    let unix = at.unix(now).context("--at: the clock skipped that time")?;
    let moments = Moments::read(dir)?;
    let name = || safe::os(dir);
    let Some((first, last)) = moments.span() else {
        anyhow::ensure!(
            ncpu_record::Manifest::read(dir).is_err(),
            "--at: {} is one recording: name the directory of all of them (`ncpu watch --record DIR --rotate`)",
            name()
        );
        anyhow::bail!("--at: {} holds no recordings of `ncpu watch --rotate`", name());
    };
    if !moments.skipped.is_empty() {
        say!("ncpu: {} is not a recording of this series: left out", moments.skipped.join(", "));
    }
    match moments.at(unix)? {
        Moment::Held(recording) => {
            say!("ncpu: {}, from {} on", recording.name, local(recording.manifest.created_unix));
            Ok(*recording)
        }
        Moment::Not(before, after) => {
            let before = before.map(|end| format!("the one before ended {}", local(end)));
            let after = after.map(|start| format!("the next began {}", local(start)));
            let beside: Vec<String> = before.into_iter().chain(after).collect();
            anyhow::bail!(
                "--at: no recording in {} holds {}: {}; there are recordings from {} to {}",
                name(),
                local(unix),
                beside.join(", "),
                local(first),
                local(last)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_write_them() {
        let unix = |text: &str, now: f64| parse(text).unwrap().unix(now);
        // 2026-11-23 10:00:00 UTC.
        let now = 1_795_428_000.0;
        assert_eq!(unix("2026-11-23T10:00:00Z", 0.0), Some(now));
        assert_eq!(unix("2026-11-23 09:59Z", 0.0), Some(now - 60.0));
        assert_eq!(unix("-2h", now), Some(now - 7200.0));
        assert_eq!(unix("-90s", now), Some(now - 90.0));
        assert_eq!(unix("03:12Z", now), Some(now - 6.0 * 3600.0 - 48.0 * 60.0));
        assert_eq!(unix("10:00Z", now), Some(now));
        // It is still to come today: yesterday's.
        assert_eq!(unix("10:00:01Z", now), Some(now + 1.0 - 86_400.0));
        for wrong in [
            "",
            "3:12",
            "24:00",
            "03:60",
            "03",
            "03:12:61",
            "2026-11-23",
            "2026-02-30T03:12",
            "2026-13-01T03:12Z",
            "-2",
            "2h",
            "--2h",
            "2026-11-23T03:12:30.5",
            "٠٣:١٢",
            "03:12ZZ",
            "2026-11-23T",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

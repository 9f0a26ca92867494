//! Times as users write them and as file names contain them, all in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// A period in microseconds since 1970: from its beginning up to, but not including, its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first microsecond.
    pub from: i64,
    /// The first microsecond after it.
    pub to: i64,
}

impl Period {
    /// All times.
    pub const ALL: Period = Period { from: i64::MIN, to: i64::MAX };

    /// `FROM..TO`, either of which may be missing, or one day. The end is included: a day up to its midnight,
    /// an hour up to its end. Leading parts of the end that equal the beginning may be left out.
    ///
    /// # Errors
    ///
    /// The text has another form, or the period ends before it begins.
    pub fn parse(text: &str) -> Result<Period> {
        let wrong = |why: &str| Error::Usage(format!("invalid period `{text}`: {why}"));
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        if from.is_empty() && to.is_empty() {
            return Err(wrong("expected a beginning or an end, as in 2026-11-10..12 or 2026-11-14.."));
        }
        let read = |text: &str| {
            moment(text).ok_or_else(|| wrong("expected times as 2026-11-10 or 2026-11-10T06:30"))
        };
        let begin = if from.is_empty() { i64::MIN } else { read(from)?.0 };
        let end = match to {
            "" => i64::MAX,
            // A shortened end gets the leading part of the beginning.
            _ if to.len() < from.len() && from.is_char_boundary(from.len() - to.len()) => {
                read(&format!("{}{to}", &from[..from.len() - to.len()]))?.1
            }
            _ => read(to)?.1,
        };
        if end <= begin {
            return Err(wrong("it ends before it begins"));
        }
        Ok(Period { from: begin, to: end })
    }

    /// Whether the periods are disjoint.
    pub fn apart(&self, other: &Period) -> bool {
        self.to <= other.from || other.to <= self.from
    }

    /// The dates that it may contain; `None` for an open beginning or end.
    pub fn dates(&self) -> (Option<String>, Option<String>) {
        let open = |t: i64| t == i64::MIN || t == i64::MAX;
        ((!open(self.from)).then(|| date(self.from)), (!open(self.to)).then(|| date(self.to - 1)))
    }
}

/// `7d`, `12h`, `30m` ago, or a date.
///
/// # Errors
///
/// The text has another form.
pub fn ago(text: &str, now: i64) -> Result<i64> {
    let unit = match text.chars().last() {
        Some('d') => DAY,
        Some('h') => 3600 * SECOND,
        Some('m') => 60 * SECOND,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|n| n.parse::<u32>().ok());
    match number.filter(|_| unit > 0) {
        Some(n) => Ok(now.saturating_sub(i64::from(n).saturating_mul(unit))),
        None => moment(text).map(|m| m.0).ok_or_else(|| {
            Error::Usage(format!("invalid time `{text}`; expected 30m, 12h, 7d, or a date as 2026-11-10"))
        }),
    }
}

/// Microseconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

/// `2026-11-10`, from microseconds since 1970.
pub fn date(us: i64) -> String {
    let (y, m, d) = civil(us.div_euclid(DAY));
    format!("{y:04}-{m:02}-{d:02}")
}

/// `2026-11-10 07:30`, from microseconds since 1970.
pub fn minute(us: i64) -> String {
    let minute = us.rem_euclid(DAY) / (60 * SECOND);
    format!("{} {:02}:{:02}", date(us), minute / 60, minute % 60)
}

/// `07`, from microseconds since 1970.
pub fn hour(us: i64) -> String {
    format!("{:02}", us.rem_euclid(DAY) / (3600 * SECOND))
}

/// The microsecond at which a moment begins, and the one after its end: the precision of the text determines
/// its length.
fn moment(text: &str) -> Option<(i64, i64)> {
    let (day, time) = text.split_once('T').map_or((text, None), |(d, t)| (d, Some(t.trim_end_matches('Z'))));
    let mut parts = day.splitn(3, '-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        (part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))
            .then(|| part.parse::<i64>().ok())?
    };
    let (y, m, d) = (number(4)?, number(2)?, number(2)?);
    let days = days(y, m, d);
    if civil(days) != (y, m, d) {
        return None;
    }
    let begin = days * DAY;
    let Some(time) = time else { return Some((begin, begin + DAY)) };
    let mut scale = 3600;
    let (mut at, mut most) = (0, 24);
    for part in time.split(':') {
        let n = part.parse::<i64>().ok().filter(|n| part.len() == 2 && (0..most).contains(n))?;
        if scale == 0 {
            return None;
        }
        at += n * scale;
        (scale, most) = (scale / 60, 60);
    }
    let length = match scale {
        60 => 3600,
        1 => 60,
        _ => 1,
    };
    Some((begin + at * SECOND, begin + (at + length) * SECOND))
}

/// Days from 1970 to a date of the Gregorian calendar (Howard Hinnant's algorithm, valid for any year).
fn days(y: i64, m: i64, d: i64) -> i64 {
    let y = if m <= 2 { y - 1 } else { y };
    let era = y.div_euclid(400);
    let of_era = y.rem_euclid(400);
    let of_year = (153 * (if m > 2 { m - 3 } else { m + 9 }) + 2) / 5 + d - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date for a number of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let y = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * y + y / 4 - y / 100);
    let m = (5 * of_year + 2) / 153;
    let d = of_year - (153 * m + 2) / 5 + 1;
    let m = if m < 10 { m + 3 } else { m - 9 };
    (y + era * 400 + i64::from(m <= 2), m, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_include_their_ends() {
        let p = Period::parse("2026-11-10..12").unwrap();
        assert_eq!((date(p.from), hour(p.from)), ("2026-11-10".into(), "00".into()));
        assert_eq!((date(p.to - 1), hour(p.to - 1)), ("2026-11-12".into(), "23".into()));
        assert_eq!(p, Period::parse("2026-11-10..2026-11-12").unwrap());
        let open = Period::parse("2026-11-14..").unwrap();
        assert!(open.to == i64::MAX && p.apart(&open) && open.apart(&p));
        assert_eq!(open.dates(), (Some("2026-11-14".into()), None));
        let hours = Period::parse("2026-11-10T06..09").unwrap();
        assert_eq!(hours.to - hours.from, 4 * 3600 * SECOND);
        assert_eq!(Period::parse("2026-11-10").unwrap().to - p.from, DAY);
        for wrong in
            ["", "..", "2026-11-12..10", "2026-02-30", "26-1-1", "2026-11-10T25", "x..y", "2026-11-10..é"]
        {
            assert!(Period::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_ago() {
        let now = Period::parse("2026-11-23").unwrap().from;
        assert_eq!(ago("7d", now).unwrap(), Period::parse("2026-11-16").unwrap().from);
        assert_eq!(ago("90m", now).unwrap(), now - 5400 * SECOND);
        assert_eq!(ago("2026-11-22", now).unwrap(), now - DAY);
        for wrong in ["d", "", "7w", "-1d", "7.5d", "é"] {
            assert!(ago(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates_of_all_centuries() {
        // From `date -u -d`.
        for (seconds, text) in [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (4_102_444_800, "2100-01-01")]
        {
            assert_eq!(date(seconds * SECOND), text);
        }
        assert_eq!((date(-1), hour(-1)), ("1969-12-31".into(), "23".into()));
    }
}

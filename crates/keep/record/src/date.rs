//! Dates in readable form.

/// Seconds since 1970 as `2025-01-31 12:00:59 UTC`; empty if out of range.
pub fn utc(unix: f64) -> String {
    if !(0.0..253_402_300_800.0).contains(&unix) {
        return String::new();
    }
    let seconds = unix as i64;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to civil date, with years that begin in March (Hinnant).
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From `date -u -d @N`.
        for (seconds, date) in [
            (0.0, "1970-01-01 00:00:00 UTC"),
            (951_827_696.75, "2000-02-29 12:34:56 UTC"),
            (951_868_800.0, "2000-03-01 00:00:00 UTC"),
            (1_794_268_799.0, "2026-11-09 23:59:59 UTC"),
            (4_107_542_399.0, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00:00 UTC"),
            (253_402_300_799.0, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds), date);
        }
        for none in [-1.0, 253_402_300_800.0, f64::NAN, f64::INFINITY] {
            assert_eq!(utc(none), "", "{none}");
        }
    }
}

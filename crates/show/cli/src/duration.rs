//! Durations on the command line: a number of seconds, or a number with a unit.

use std::time::Duration;

/// Units, the longest names first: `ms` ends in `s`.
const UNITS: [(&str, f64); 6] =
    [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Reads `0.5`, `500ms`, `5s`, `10m`, `12h` or `7d` as seconds.
///
/// # Errors
/// It is not a duration, or is negative.
pub fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)))
        .unwrap_or((text, 1.0));
    // `inf` and `nan` are floats too.
    let digits = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let seconds = number.parse::<f64>().ok().filter(|_| digits).map(|number| number * unit);
    seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok()).ok_or_else(|| {
        "expected a duration: seconds, or a number with ms, s, m, h or d, as in 0.5, 10s or 2m".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_units() {
        for (text, is) in
            [("5", 5.0), ("0.5", 0.5), ("5s", 5.0), ("100ms", 0.1), ("2m", 120.0), ("1.5h", 5400.0)]
        {
            assert_eq!(seconds(text), Ok(is), "{text}");
        }
        for wrong in ["", "s", "-1", "-1s", "five", "5 s", "nan", "inf", "1e400", "5x", "1e300d"] {
            assert!(seconds(wrong).is_err_and(|e| e.contains("expected a duration")), "{wrong}");
        }
    }
}

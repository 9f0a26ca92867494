//! Seconds for readers.

/// Seconds with two or three digits.
pub(crate) fn figure(seconds: f64) -> String {
    match seconds {
        s if s >= 99.95 => format!("{s:.0}"),
        s if s >= 9.995 => format!("{s:.1}"),
        s => format!("{s:.2}"),
    }
}

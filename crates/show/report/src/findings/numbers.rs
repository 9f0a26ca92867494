//! Counts and rates as sentences give them.

/// A count of events a second: below one, with the digits that tell it from none.
pub(super) fn rate_words(n: f64) -> String {
    if n > 0.0 && n < 0.95 {
        // Two digits that count, as far as anybody reads them.
        let decimals = (1.0 - n.log10().floor()).clamp(1.0, 6.0) as usize;
        return format!("{n:.decimals$}");
    }
    grouped(n)
}

/// A number with its thousands apart.
pub(super) fn grouped(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_less_than_once_a_second_is_not_said_to_happen_never() {
        assert_eq!(
            [0.0, 0.068, 0.5, 0.94, 0.96, 3.2, 4574.4].map(rate_words),
            ["0", "0.068", "0.50", "0.94", "1", "3", "4,574"]
        );
        assert_eq!(rate_words(1e-9), "0.000000");
    }
}

//! Text into markup: nothing a recording says is trusted.

use serde_json::Value;

/// Escapes text for element content and quoted attributes.
pub(crate) fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // A percent sign stays with its number.
            ' ' if chars.peek() == Some(&'%') && out.ends_with(|c: char| c.is_ascii_digit()) => {
                out.push('\u{a0}')
            }
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML knows no other control characters, and some characters turn or hide what stands around them.
            '\n' | '\t' => out.push(' '),
            c if ncpu_table::safe::is_unsafe(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON that can stand in a `<script>`: no `<` can end it, no U+2028 can end a line of it.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// Finite and not negative, as every duration and count is; anything else is nothing.
pub(super) fn sane(value: Option<f64>) -> f64 {
    value.filter(|v| v.is_finite() && *v > 0.0).unwrap_or(0.0)
}

/// `1,170,899`.
pub(super) fn count(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A figure of any size: `1,170,899`, `12.5`, `7.1143e-8`.
pub(crate) fn sized(x: f64) -> String {
    match x.abs() {
        size if size >= 1e5 => count(x),
        size if size > 0.0 && size < 1e-3 => {
            let text = format!("{x:.4e}");
            let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => ncpu_table::figure(x),
    }
}

/// Seconds with the digits that matter.
pub(super) fn seconds(s: f64) -> String {
    match s {
        s if s >= 1000.0 => count(s),
        s if s >= 100.0 => format!("{s:.1}"),
        s if s >= 10.0 => format!("{s:.2}"),
        s => format!("{s:.3}"),
    }
}

/// A share, 0–1, in per cent.
pub(super) fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p >= 0.095 || p == 0.0 { format!("{p:.1}\u{a0}%") } else { format!("{p:.2}\u{a0}%") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_record::utc;

    #[test]
    fn nothing_breaks_out() {
        assert_eq!(esc("<b a='\"'>&\u{1}\u{202e}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}\u{fffd}");
        let text = json(&Value::from("</script>\u{2028}&"));
        assert_eq!(text, "\"\\u003c/script\\u003e\\u2028\\u0026\"");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), "</script>\u{2028}&");
    }

    #[test]
    fn a_percent_sign_is_not_parted_from_its_number() {
        assert_eq!(esc("2.8 % of it, a % b"), "2.8\u{a0}% of it, a % b");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (count(0.0), count(999.0), count(1_170_899.0)),
            ("0".into(), "999".into(), "1,170,899".into())
        );
        assert_eq!(
            (seconds(0.0123), seconds(12.345), seconds(12345.6)),
            ("0.012".into(), "12.35".into(), "12,346".into())
        );
        assert_eq!(
            (percent(0.0), percent(0.0001), percent(0.123)),
            ("0.0\u{a0}%".into(), "0.01\u{a0}%".into(), "12.3\u{a0}%".into())
        );
        assert_eq!(sane(Some(f64::NAN)) + sane(Some(-1.0)) + sane(None), 0.0);
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(1_709_208_059.9), "2024-02-29 12:00:59 UTC");
        assert_eq!(utc(f64::NAN) + &utc(-1.0) + &utc(1e300), "");
    }
}

//! Makes foreign text safe for a terminal and a spreadsheet.
//!
//! Names of processes, files, locks and symbols, arguments of commands and notes of recordings come from the
//! observed program. Printed unchanged, they could move the cursor, set the window's title or reverse the
//! reading direction. [`line`] makes such a text one harmless line for use in a sentence; [`block`] is the
//! last guard before the terminal, for text of several lines that `ncpu` composed; [`cell`] is for
//! comma-separated values.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

/// Maximum characters of foreign text that are shown; the rest is only counted.
pub const LONGEST: usize = 4096;

/// Whether a character must not reach a terminal: controls (C0, DEL, C1), line and paragraph separators,
/// marks that change the reading direction, zero-width characters that hide or join others, and
/// noncharacters.
pub fn is_unsafe(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fdd0}'..='\u{fdef}'
            | '\u{e0000}'..='\u{e0fff}')
        || (c as u32) & 0xfffe == 0xfffe
}

/// Foreign text as one line. The characters of [`is_unsafe`] are escaped as in C (`\n`, `\x1b`, `\u202e`),
/// and text longer than [`LONGEST`] is cut.
pub fn line(text: &str) -> Cow<'_, str> {
    let cut = text.len() > LONGEST && text.chars().nth(LONGEST).is_some();
    if !cut && !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(LONGEST) + 16);
    text.chars().take(LONGEST).for_each(|c| push(&mut out, c));
    if cut {
        let _ = write!(out, "… ({} bytes)", text.len());
    }
    Cow::Owned(out)
}

/// As [`line`], with at most `most` characters and `...` for the rest.
pub fn cut(text: &str, most: usize) -> String {
    let safe = line(text);
    match safe.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &safe[..end]),
        None => safe.into_owned(),
    }
}

/// As [`line`], for bytes; those that are not UTF-8 become `\xff`.
pub fn bytes(text: &[u8]) -> String {
    let mut out = String::new();
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
        // The rest would be cut anyway.
        if out.len() > 4 * LONGEST + 4 {
            break;
        }
    }
    match line(&out) {
        Cow::Borrowed(_) => out,
        Cow::Owned(safe) => safe,
    }
}

/// As [`line`], for a path or an argument.
pub fn os(text: impl AsRef<OsStr>) -> String {
    bytes(text.as_ref().as_encoded_bytes())
}

/// Text of several lines with foreign parts: as [`line`], but line breaks stay and the text is not cut.
pub fn block(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c != '\n' && is_unsafe(c);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' { out.push(c) } else { push(&mut out, c) }
    }
    Cow::Owned(out)
}

/// A text cell of comma-separated values: as [`line`], but not cut. If a spreadsheet would take the cell for
/// a formula because it begins with `=`, `+`, `-` or `@`, an apostrophe precedes it.
pub fn cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !formula && !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    if formula {
        out.push('\'');
    }
    text.chars().for_each(|c| push(&mut out, c));
    Cow::Owned(out)
}

/// JSON with the characters of [`is_unsafe`] written as `\u….`. The values stay the same, since such
/// characters occur only in strings.
pub fn json(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c != '\n' && is_unsafe(c);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !bad(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

fn push(out: &mut String, c: char) {
    let _ = match c {
        c if !is_unsafe(c) => {
            out.push(c);
            Ok(())
        }
        '\n' => out.write_str("\\n"),
        '\t' => out.write_str("\\t"),
        '\r' => out.write_str("\\r"),
        c if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32),
        c => write!(out, "\\u{:04x}", c as u32),
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!((cut("锁锁锁", 2), cut("锁锁锁", 3)), ("锁锁...".into(), "锁锁锁".into()));
        assert_eq!(cut("a\nb", 3), "a\\n...");
    }

    #[test]
    fn escapes_are_shown_not_sent() {
        for (text, expected) in [
            ("make -j 16", "make -j 16"),
            ("\x1b]2;own\x07\x1b[31m", "\\x1b]2;own\\x07\\x1b[31m"),
            ("a\nncpu: all is well\r", "a\\nncpu: all is well\\r"),
            ("c1 \u{9b}31m del \x7f nul \0", "c1 \\x9b31m del \\x7f nul \\x00"),
            ("exe\u{202e}txt.sh \u{2066}\u{200b}\u{feff}", "exe\\u202etxt.sh \\u2066\\u200b\\ufeff"),
            ("tag \u{e0041} none \u{1ffff}", "tag \\ue0041 none \\u1ffff"),
            ("größe 漢字 λ", "größe 漢字 λ"),
        ] {
            assert_eq!(line(text), expected);
        }
        assert_eq!(bytes(b"caf\xe9 \x1b[m \xff"), "caf\\xe9 \\x1b[m \\xff");
        assert_eq!(os(std::path::Path::new("/tmp/\u{85}x")), "/tmp/\\x85x");
    }

    #[test]
    fn what_is_too_long_is_cut_and_counted() {
        let long = "x".repeat(1_000_000);
        let shown = line(&long);
        assert!(shown.chars().count() < LONGEST + 30 && shown.ends_with("… (1000000 bytes)"));
        assert!(bytes(&vec![0xff; 1 << 20]).len() < 8 * LONGEST);
        assert_eq!(line(&"é".repeat(LONGEST)), "é".repeat(LONGEST));
    }

    #[test]
    fn formulas_are_text() {
        for (text, expected) in [
            ("=1+1", "'=1+1"),
            ("+a", "'+a"),
            ("-5", "'-5"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\\t=1"),
            ("\r=1", "'\\r=1"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn json_keeps_its_values() {
        let text = "{\"a\":\"x\u{9b}y\u{202e}z\u{e0041}\"}\n";
        assert_eq!(json(text), "{\"a\":\"x\\u009by\\u202ez\\udb40\\udc41\"}\n");
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_left(text in "\\PC*|(.|\\n|\\pC){0,200}") {
            prop_assert!(!line(&text).chars().any(is_unsafe));
            prop_assert!(!cell(&text).chars().any(is_unsafe));
            prop_assert!(!block(&text).chars().any(|c| c != '\n' && is_unsafe(c)));
            prop_assert_eq!(block(&text).lines().count(), text.split('\n').count() - usize::from(text.ends_with('\n') || text.is_empty()));
        }

        #[test]
        fn bytes_of_any_kind(raw: Vec<u8>) {
            prop_assert!(!bytes(&raw).chars().any(is_unsafe));
        }
    }
}

//! Terminal columns of text: zero for combining marks, two for wide characters.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// A text of at most `width` columns: its start, with `…` for the rest.
pub fn start(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.into();
    }
    let room = width.saturating_sub(1);
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// A text of at most `width` columns: `…` and its end.
pub fn end(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.into();
    }
    let room = width.saturating_sub(1);
    let mut used = 0;
    let mut kept = text.len();
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        kept = at;
    }
    format!("…{}", &text[kept..])
}

/// Exactly `width` columns: [`start`] padded with blanks.
pub fn filled(text: &str, width: usize) -> String {
    let mut out = start(text, width);
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(&out))));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        assert_eq!((columns("锁锁锁锁"), columns("e\u{301}"), columns("abc")), (8, 1, 3));
        assert_eq!((start("锁锁锁锁", 5).as_str(), end("锁锁锁锁", 4).as_str()), ("锁锁…", "…锁"));
        assert_eq!((filled("锁锁锁锁", 6).as_str(), filled("锁", 4).as_str()), ("锁锁… ", "锁  "));
        assert_eq!(
            (start("abcd", 3).as_str(), end("abcd", 3).as_str(), start("ab", 0).as_str()),
            ("ab…", "…cd", "…")
        );
    }

    proptest! {
        #[test]
        fn no_text_takes_more(text in "\\PC{0,20}", width in 1usize..12) {
            prop_assert!(columns(&start(&text, width)) <= width);
            prop_assert!(columns(&end(&text, width)) <= width);
            prop_assert_eq!(columns(&filled(&text, width)), width);
        }
    }
}

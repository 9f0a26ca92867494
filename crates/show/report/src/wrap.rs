//! Lines of text that fit a width.

use ncpu_table::{safe, width};

/// Breaks a line at spaces and makes it safe for a terminal; `first` and `next` are put before the first and the following lines.
/// A percent sign stays with its number.
pub fn wrap(text: &str, room: usize, first: &str, next: &str) -> String {
    let mut out = String::new();
    let mut line = String::from(first);
    let mut empty = true;
    let text = safe::block(text);
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let sign =
            words.next_if(|next| next.starts_with('%') && word.ends_with(|c: char| c.is_ascii_digit()));
        let joined = sign.map(|sign| format!("{word} {sign}"));
        let word = joined.as_deref().unwrap_or(word);
        let length = width::columns(&line) + usize::from(!empty) + width::columns(word);
        if !empty && length > room {
            out.push_str(&line);
            out.push('\n');
            line = String::from(next);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(&line);
    out.push('\n');
    out
}

/// A text of at most `most` characters, cut in its middle. Numbers are left out whole: one that has lost digits is another number.
pub fn middle(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let n = chars.len();
    if n <= most {
        return text.to_string();
    }
    let keep = most.saturating_sub(1);
    let (mut head, mut tail) = (keep - keep / 2, n - keep / 2);
    let in_number = |at: usize| {
        let is_part = |at: usize| chars.get(at).is_some_and(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
        at > 0 && is_part(at - 1) && is_part(at)
    };
    while in_number(head) {
        head -= 1;
    }
    while in_number(tail) {
        tail += 1;
    }
    let [start, end]: [String; 2] = [&chars[..head], &chars[tail..]].map(|part| part.iter().collect());
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_is_not_parted_from_its_number() {
        assert_eq!(wrap("softirqs 16 %, calls", 11, "", "  "), "softirqs\n  16 %,\n  calls\n");
        assert_eq!(wrap("a of 16 (2.6 %)", 13, "", ""), "a of 16\n(2.6 %)\n");
        assert_eq!(wrap("format %s and %d", 9, "", ""), "format %s\nand %d\n");
    }
}

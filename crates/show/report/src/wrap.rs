//! Lines of text that fit a width.

use ncpu_table::{safe, width};

/// Breaks a line at spaces and makes it safe for a terminal; `first` and `next` are put before the first and the following lines.
pub fn wrap(text: &str, room: usize, first: &str, next: &str) -> String {
    let mut out = String::new();
    let mut line = String::from(first);
    let mut empty = true;
    for word in safe::block(text).split_whitespace() {
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

/// A text of at most `most` characters, cut in its middle.
pub fn middle(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_string();
    }
    let keep = most.saturating_sub(1);
    let (head, tail) = (keep - keep / 2, keep / 2);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(n - tail).collect();
    format!("{start}…{end}")
}

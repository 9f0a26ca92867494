//! libbpf's log. It holds the reason why the kernel rejected a program, and would interrupt `ncpu`'s own
//! output.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{ErrorExt, PrintLevel};

const LINES: usize = 8;

static LAST: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Keeps the last warnings instead of printing them.
pub fn keep() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned));
        let old = last.len().saturating_sub(LINES);
        last.drain(..old);
    })));
}

/// Adds the last warnings of libbpf to an error.
pub fn explain(error: libbpf_rs::Error) -> libbpf_rs::Error {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let words = last.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    if words.is_empty() { error } else { error.context(words) }
}

//! The undo journal, as the commands that change something use it.

use anyhow::Context;
use ncpu_remedy::journal::{self, Journal, Replayed};

/// Cleans up after commands that were killed, then begins the journal of this one.
///
/// # Errors
/// There can be no journal: then nothing may be changed.
pub fn begin() -> anyhow::Result<Journal> {
    let dir = journal::directory();
    for replayed in journal::replay(&dir)? {
        tell(&replayed, true);
    }
    let words: Vec<String> = std::env::args().collect();
    Journal::begin(&dir, &words).context("nothing was changed")
}

/// Says on standard error what was undone, and what could not be; whether all was.
pub fn tell(replayed: &Replayed, killed: bool) -> bool {
    if killed && !(replayed.undone.is_empty() && replayed.failed.is_empty()) {
        let command = replayed.command.join(" ");
        say!("ncpu: cleaned up after `{}`, which was killed:", shown(&command, 60));
        for words in &replayed.undone {
            say!("ncpu:   {}", shown(words, 200));
        }
    }
    for words in &replayed.failed {
        say!("ncpu: not undone: {}; `ncpu fix --undo` tries again", shown(words, 400));
    }
    replayed.failed.is_empty()
}

/// Foreign words made safe for a terminal, and not too many.
pub fn shown(text: &str, most: usize) -> String {
    let safe = ncpu_table::safe::line(text);
    let mut out: String = safe.chars().take(most).collect();
    if safe.chars().count() > most {
        out.push_str("...");
    }
    out
}

//! The undo journal, as the commands that change something use it.

use anyhow::Context;
use ncpu_remedy::journal::{self, Journal, Replayed};
use ncpu_table::safe;

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
    if killed && !(replayed.undone.is_empty() && (replayed.failed.is_empty() || replayed.command.is_empty()))
    {
        let command = replayed.command.join(" ");
        say!("ncpu: cleaned up after `{}`, which was killed:", safe::cut(&command, 60));
        for words in &replayed.undone {
            say!("ncpu:   {}", safe::cut(words, 200));
        }
    }
    for words in &replayed.failed {
        say!("ncpu: not undone: {}; `ncpu fix --undo` tries again", safe::cut(words, 400));
    }
    for words in &replayed.damaged {
        say!("ncpu: the undo journal is damaged: {}", safe::cut(words, 400));
    }
    replayed.failed.is_empty() && replayed.damaged.is_empty()
}

//! The undo journal, as the commands that change something use it.

use anyhow::Context;
use ncpu_remedy::journal::{self, Journal, Replayed};
use ncpu_remedy::setting::{self, Setting};
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
    Journal::begin(&dir, &words()).context("nothing was changed")
}

/// The words of this command.
fn words() -> Vec<String> {
    std::env::args().collect()
}

/// [`begin`], for settings that are tried on something that runs: one command at a time may, while it has the file open.
///
/// # Errors
/// Another does so, or there can be no journal.
pub fn begin_trials() -> anyhow::Result<(Journal, std::fs::File)> {
    let journal = begin()?;
    match journal::trials(&journal::directory(), &words()).context("nothing was changed") {
        Ok(alone) => Ok((journal, alone)),
        Err(why) => {
            tell(&journal.finish(), false);
            Err(why)
        }
    }
}

/// Leaves a setting in place, and says how to undo it.
///
/// # Errors
/// It cannot be set; what was set of it is put back.
pub fn leave(journal: &mut Journal, setting: &Setting) -> anyhow::Result<()> {
    let before = setting.before();
    let mut set = Vec::new();
    if let Err(why) = setting.set(journal, &mut set) {
        setting::restore(journal, &mut set)?;
        return Err(why.into());
    }
    setting::leave(journal, &mut set)?;
    for command in setting.undoing(&before) {
        say!("ncpu fix: kept; undo with: {}", safe::line(&command));
    }
    Ok(())
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

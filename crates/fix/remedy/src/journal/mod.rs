//! The undo journal: whatever a command changes outside of itself is written down before it is changed.
//!
//! Each running command has a file of its own in the journal's directory and holds a lock on it. A file that nobody
//! holds belongs to a command that was killed: [`replay`], which every command calls at its start and `ncpu fix
//! --undo` on request, undoes its entries, the last first, and removes it. Undoing is idempotent, so a replay that is
//! killed is begun again by the next.
//!
//! A file is lines of JSON: a header, then `{"id":1,"undo":{…}}` before each act and `{"done":1}` where an act needs no
//! undoing any more. A line is written by one `write`; a last line without a newline was cut short by a full disk, and
//! its act never happened, since the error came first.

mod undo;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

pub use undo::{Undo, chosen, start_of};

/// Why the journal cannot be kept. Without a journal nothing is changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory or a file of it.
    #[error("the undo journal {}: {source}; NCPU_STATE_DIR names another directory", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Someone else could write entries that we would carry out.
    #[error("the undo journal {} belongs to user {owner} or others may write to it: not used", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Header { boot: String, pid: u32, start: u64, command: Vec<String> },
    Will { id: u64, undo: Undo },
    Done { done: u64 },
}

/// The identity of an entry, by which it is marked as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64);

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    entries: Vec<(u64, Undo)>,
    next: u64,
}

/// The result of undoing one command's acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The command.
    pub command: Vec<String>,
    /// The acts undone.
    pub undone: Vec<String>,
    /// Acts that could not be undone, and why. They stay in the journal.
    pub failed: Vec<String>,
}

/// Where the journal is: `NCPU_STATE_DIR`, else /var/lib/ncpu for root and the user's state directory for others.
pub fn directory() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = var("NCPU_STATE_DIR") {
        return dir.join("undo");
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/ncpu/undo".into();
    }
    let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
    state
        .unwrap_or_else(|| std::env::temp_dir().join(format!("ncpu-{}", rustix::process::geteuid().as_raw())))
        .join("ncpu/undo")
}

/// Identifies the boot: after another one, only what is on disk is left to undo.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |s| s.trim().into())
}

/// Makes the directory, and holds the lock under which files of it are made and taken over.
fn lock(dir: &Path) -> Result<File, Error> {
    let error = |source| Error::File { path: dir.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(error)?;
    let meta = std::fs::metadata(dir).map_err(error)?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(Error::Foreign { path: dir.to_owned(), owner: meta.uid() });
    }
    let file =
        OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join("lock")).map_err(error)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| error(e.into()))?;
    Ok(file)
}

impl Journal {
    /// Begins the journal of this process.
    ///
    /// # Errors
    /// It cannot be written, or someone else could write to it.
    pub fn begin(dir: &Path, command: &[String]) -> Result<Journal, Error> {
        let _lock = lock(dir)?;
        let pid = std::process::id();
        // A process may begin several, and the number of one that was killed comes again.
        let free = (0..).map(|i| dir.join(format!("{pid}.{i}.jsonl"))).find(|p| !p.exists());
        let path = free.unwrap_or_else(|| dir.join(format!("{pid}.jsonl")));
        let error = |source| Error::File { path: path.clone(), source };
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path).map_err(error)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| error(e.into()))?;
        let mut journal = Journal { path, file, entries: Vec::new(), next: 1 };
        let start = start_of(pid).unwrap_or(0);
        let header = Line::Header { boot: boot_id(), pid, start, command: command.to_vec() };
        if let Err(e) = journal.write(&header) {
            // Nothing was done yet.
            let _ = std::fs::remove_file(&journal.path);
            return Err(e);
        }
        Ok(journal)
    }

    fn write(&mut self, line: &Line) -> Result<(), Error> {
        let error = |source| Error::File { path: self.path.clone(), source };
        let mut text = serde_json::to_string(line).map_err(|e| error(e.into()))?;
        text.push('\n');
        // All in one call: a killed process has written all of it or nothing.
        self.file.write_all(text.as_bytes()).map_err(error)
    }

    /// Notes how to undo what comes next. The act may only follow once this has returned.
    ///
    /// # Errors
    /// It cannot be written: the act must not follow.
    pub fn will(&mut self, undo: Undo) -> Result<Id, Error> {
        let id = self.next;
        self.next += 1;
        self.write(&Line::Will { id, undo: undo.clone() })?;
        self.entries.push((id, undo));
        Ok(Id(id))
    }

    /// The act is to stay, or was undone by other means.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn done(&mut self, id: Id) -> Result<(), Error> {
        self.entries.retain(|(i, _)| *i != id.0);
        self.write(&Line::Done { done: id.0 })
    }

    /// Undoes one act now.
    ///
    /// # Errors
    /// It cannot be undone; it stays in the journal, and is tried again at the end.
    pub fn undo_now(&mut self, id: Id) -> Result<(), String> {
        let Some(at) = self.entries.iter().position(|(i, _)| *i == id.0) else { return Ok(()) };
        self.entries[at].1.carry_out(true)?;
        self.done(id).map_err(|e| e.to_string())
    }

    /// Leaves everything as it was set, and ends the journal.
    ///
    /// # Errors
    /// Its file cannot be removed.
    pub fn keep(self) -> Result<(), Error> {
        std::fs::remove_file(&self.path).map_err(|source| Error::File { path: self.path.clone(), source })
    }

    /// Undoes all that is left, the last first, and removes the file if all is undone.
    pub fn finish(mut self) -> Replayed {
        let entries = std::mem::take(&mut self.entries);
        settle(&self.path, entries, true, Vec::new())
    }
}

/// Undoes entries, the last first. The file goes when nothing is left.
fn settle(path: &Path, entries: Vec<(u64, Undo)>, this_boot: bool, command: Vec<String>) -> Replayed {
    let mut replayed = Replayed { command, ..Replayed::default() };
    for (_, undo) in entries.iter().rev() {
        match undo.carry_out(this_boot) {
            Ok(true) => replayed.undone.push(undo.to_string()),
            Ok(false) => {}
            Err(why) => replayed.failed.push(format!("{undo}: {why}")),
        }
    }
    if replayed.failed.is_empty()
        && let Err(e) = std::fs::remove_file(path)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        replayed.failed.push(format!("removing {}: {e}", path.display()));
    }
    replayed
}

/// Undoes what commands that were killed had changed. An empty list is the usual answer.
///
/// # Errors
/// The journal cannot be read.
pub fn replay(dir: &Path) -> Result<Vec<Replayed>, Error> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut orphans = Vec::new();
    {
        let _lock = lock(dir)?;
        let error = |source| Error::File { path: dir.to_owned(), source };
        for entry in std::fs::read_dir(dir).map_err(error)? {
            let path = entry.map_err(error)?.path();
            if path.extension().is_none_or(|e| e != "jsonl") {
                continue;
            }
            let file = File::open(&path).map_err(|source| Error::File { path: path.clone(), source })?;
            if free(&file, &path) {
                orphans.push((path, file));
            }
        }
    }
    orphans.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Vec::new();
    for (path, mut file) in orphans {
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|source| Error::File { path: path.clone(), source })?;
        let (header, entries, bad) = parse(&text);
        let (boot, command) = header.unwrap_or_default();
        let mut replayed = settle(&path, entries, boot == boot_id(), command);
        if bad > 0 {
            replayed.failed.push(format!("{}: {bad} lines make no sense", path.display()));
        }
        all.push(replayed);
    }
    Ok(all)
}

/// Whether nobody holds a file; it is ours then. A child that a killed command had just forked holds it too, until it
/// has died of its parent's death: that is waited for.
fn free(file: &File, path: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let header = text.lines().next().and_then(|line| serde_json::from_str(line).ok());
        let dead = matches!(header, Some(Line::Header { pid, start, .. }) if !undo::lives(pid, start));
        if !dead || Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The header's boot and command, the entries still to be undone, and how many whole lines make no sense.
#[allow(clippy::type_complexity)] // taken apart at once by its callers
pub fn parse(text: &str) -> (Option<(String, Vec<String>)>, Vec<(u64, Undo)>, usize) {
    let (mut header, mut entries, mut bad) = (None, Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else { continue };
        match serde_json::from_str(line) {
            Ok(Line::Header { boot, command, .. }) => header = Some((boot, command)),
            Ok(Line::Will { id, undo }) => entries.push((id, undo)),
            Ok(Line::Done { done }) => entries.retain(|(id, _)| *id != done),
            Err(_) => bad += 1,
        }
    }
    (header, entries, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(path: &Path, old: &str, new: &str) -> Undo {
        Undo::Setting { path: path.into(), old: old.into(), new: new.into() }
    }

    #[test]
    fn what_was_set_is_put_back_the_last_first() {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("undo"), dir.path().join("setting"));
        std::fs::write(&file, "1\n").unwrap();
        let mut journal = Journal::begin(&state, &["test".into()]).unwrap();
        for (old, new) in [("1", "2"), ("2", "3")] {
            journal.will(setting(&file, old, new)).unwrap();
            std::fs::write(&file, new).unwrap();
        }
        // While its owner lives nobody else touches it.
        assert_eq!(replay(&state).unwrap(), []);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "3");
        drop(journal);
        let replayed = replay(&state).unwrap();
        assert_eq!((replayed[0].undone.len(), replayed[0].failed.len()), (2, 0), "{replayed:?}");
        assert_eq!(replayed[0].command, ["test"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "1");
        assert_eq!(replay(&state).unwrap(), []);
    }

    #[test]
    fn what_someone_else_has_changed_since_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("setting");
        std::fs::write(&file, "theirs").unwrap();
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        journal.will(setting(&file, "before", "ours")).unwrap();
        let replayed = journal.finish();
        assert_eq!((replayed.undone.len(), replayed.failed.len()), (0, 0), "{replayed:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
    }

    #[test]
    fn what_is_done_is_not_undone_and_a_line_cut_short_never_happened() {
        let dir = tempfile::tempdir().unwrap();
        let (state, kept, cut) = (dir.path().join("undo"), dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&kept, "new").unwrap();
        std::fs::write(&cut, "new").unwrap();
        let mut journal = Journal::begin(&state, &[]).unwrap();
        let id = journal.will(setting(&kept, "old", "new")).unwrap();
        journal.done(id).unwrap();
        let line = serde_json::to_string(&Line::Will { id: 9, undo: setting(&cut, "old", "new") }).unwrap();
        journal.file.write_all(line.as_bytes()).unwrap();
        drop(journal);
        assert!(replay(&state).unwrap()[0].failed.is_empty());
        for file in [kept, cut] {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "new");
        }
    }

    #[test]
    fn a_journal_that_others_can_write_to_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(Journal::begin(dir.path(), &[]), Err(Error::Foreign { .. })));
        assert!(matches!(replay(dir.path()), Err(Error::Foreign { .. })));
    }

    #[test]
    fn after_another_boot_only_what_is_on_disk_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("undo"), dir.path().join("setting"));
        let tree = dir.path().join(".ncpu-partition-x");
        std::fs::write(&file, "new").unwrap();
        std::fs::create_dir_all(tree.join("work/work")).unwrap();
        let mut journal = Journal::begin(&state, &[]).unwrap();
        journal.will(setting(&file, "old", "new")).unwrap();
        journal.will(Undo::Tree { path: tree.clone().into() }).unwrap();
        let path = journal.path.clone();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap().replace(&boot_id(), "another boot");
        std::fs::write(&path, text).unwrap();
        assert!(replay(&state).unwrap()[0].failed.is_empty());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(!tree.exists());
    }
}

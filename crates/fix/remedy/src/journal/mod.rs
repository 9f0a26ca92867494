//! The undo journal: whatever a command changes outside of itself is written down before it is changed.
//!
//! Each running command has a file of its own in the journal's directory and holds a lock on it. A file that nobody
//! holds belongs to a command that was killed: [`replay`], which every command calls at its start and `ncpu fix
//! --undo` on request, undoes its entries, the last first, and removes it. Undoing is idempotent, so a replay that is
//! killed is begun again by the next.
//!
//! A file is lines of JSON: a header, then `{"id":1,"undo":{…}}` before each act and `{"done":1}` where an act needs no
//! undoing any more. A line is written by one `write`; a last line without a newline was cut short by a full disk, and
//! its act never happened, since the error came first. A file with lines that make no sense, as a crash of the machine may leave it, is
//! undone as far as it can be read and then kept under another name. No file stands in the way of the others.

mod undo;

use std::fs::{File, OpenOptions};
use std::io::Write;
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
    /// Another command has changed the same thing. If both undid their changes, one would put back what the other had set.
    #[error("{}: `{command}` has changed it too and not undone it yet; try again when it has ended", path.display())]
    Busy {
        /// The file or control group.
        path: PathBuf,
        /// The other command.
        command: String,
    },
    /// Another command tries settings: it would take ours for those of before, and each is judged by what the other does.
    #[error("`{0}` tries settings on this machine; try again when it has ended")]
    Trying(String),
}

/// Bytes of a file that are read.
const MOST: u64 = 64 << 20;
/// The extension of a file that made no sense.
const DAMAGED: &str = "damaged";

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
    /// Files of the journal that make no sense, and where they are kept.
    pub damaged: Vec<String>,
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

/// Holds, until it is dropped, what one command at a time may: to try settings on something that runs.
///
/// # Errors
/// Another has it, or the directory cannot be written.
pub fn trials(dir: &Path, command: &[String]) -> Result<File, Error> {
    let _lock = lock(dir)?;
    let path = dir.join("trials");
    let error = |source| Error::File { path: path.clone(), source };
    let file =
        OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&path).map_err(error)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let words = ncpu_files::bounded(file, MOST).map_err(error)?;
            return Err(Error::Trying(String::from_utf8_lossy(&words).into_owned()));
        }
        Err(e) => return Err(error(e.into())),
    }
    file.set_len(0).and_then(|()| (&file).write_all(command.join(" ").as_bytes())).map_err(error)?;
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

    /// [`Journal::will`] for a file or control group that no other command may have changed meanwhile: `undo` looks at its state, which
    /// would else be what the other has set.
    ///
    /// # Errors
    /// Another command has changed it and not undone that yet; its state cannot be read, or the journal not written.
    pub fn will_alone(
        &mut self,
        target: &Path,
        undo: impl FnOnce() -> std::io::Result<Undo>,
    ) -> Result<Id, Error> {
        let dir = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let _lock = lock(&dir)?;
        for path in files(&dir)?.into_iter().filter(|path| *path != self.path) {
            // A file that cannot be read is complained about where it is undone.
            let (header, entries, _) = parse(&read(&path).unwrap_or_default());
            if entries.iter().any(|(_, other)| other.target().is_some_and(|other| other.path() == target)) {
                let command = header.map_or_else(String::new, |(_, command)| command.join(" "));
                return Err(Error::Busy { path: target.to_owned(), command });
            }
        }
        let undo = undo().map_err(|source| Error::File { path: target.to_owned(), source })?;
        self.will(undo)
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
        settle(&self.path, entries, true, Replayed::default())
    }
}

/// Undoes entries, the last first. The file goes when nothing is left; one that is damaged gets another name.
fn settle(path: &Path, entries: Vec<(u64, Undo)>, this_boot: bool, mut replayed: Replayed) -> Replayed {
    for (_, undo) in entries.iter().rev() {
        match undo.carry_out(this_boot) {
            Ok(true) => replayed.undone.push(undo.to_string()),
            Ok(false) => {}
            Err(why) => replayed.failed.push(format!("{undo}: {why}")),
        }
    }
    if !replayed.failed.is_empty() {
        return replayed;
    }
    let kept = path.with_extension(DAMAGED);
    let (gone, act) = match replayed.damaged.is_empty() {
        true => (std::fs::remove_file(path), "removing"),
        false => (std::fs::rename(path, &kept), "renaming"),
    };
    match gone {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            replayed.failed.push(format!("{act} {}: {e}", path.display()));
        }
        _ => {
            for damaged in &mut replayed.damaged {
                *damaged = format!("{damaged}; kept as {}", kept.display());
            }
        }
    }
    replayed
}

/// The files of the journal, the oldest names first.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let error = |source| Error::File { path: dir.to_owned(), source };
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

/// Opens a file of the journal; links, pipes and devices are refused.
fn open(path: &Path) -> std::io::Result<File> {
    let dir = ncpu_files::Dir::open(path.parent().unwrap_or(Path::new("/")))?;
    dir.open_file(path.file_name().unwrap_or_default())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    ncpu_files::bounded(open(path)?, MOST)
}

/// Undoes what commands that were killed had changed. An empty list is the usual answer.
///
/// # Errors
/// The journal's directory cannot be read. A file that cannot be is a failure in the list.
pub fn replay(dir: &Path) -> Result<Vec<Replayed>, Error> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut orphans = Vec::new();
    let mut all = Vec::new();
    let failure = |path: &Path, why: &std::io::Error| Replayed {
        failed: vec![format!("the file {} of the undo journal: {why}", path.display())],
        ..Replayed::default()
    };
    {
        let _lock = lock(dir)?;
        for path in files(dir)? {
            match open(&path) {
                Ok(file) if free(&file, &path) => orphans.push((path, file)),
                Ok(_) => {}
                Err(why) => all.push(failure(&path, &why)),
            }
        }
    }
    for (path, file) in orphans {
        let bytes = match ncpu_files::bounded(file, MOST) {
            Ok(bytes) => bytes,
            Err(why) => {
                all.push(failure(&path, &why));
                continue;
            }
        };
        let (header, entries, bad) = parse(&bytes);
        let headless = header.is_none() && !entries.is_empty();
        let (boot, command) = header.unwrap_or_default();
        let mut replayed = Replayed { command, ..Replayed::default() };
        if bad > 0 || headless {
            let lost = if headless { ", among them the first: only what is on disk was undone" } else { "" };
            let lines = bad.max(1);
            replayed.damaged.push(format!("{lines} lines of {} make no sense{lost}", path.display()));
        }
        all.push(settle(&path, entries, boot == boot_id(), replayed));
    }
    Ok(all)
}

/// Whether nobody holds a file; it is ours then. A child that a killed command had just forked holds it too, until it
/// has died of its parent's death: that is waited for.
fn free(file: &File, path: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let text = read(path).unwrap_or_default();
        let header = text.split(|b| *b == b'\n').next().and_then(|line| serde_json::from_slice(line).ok());
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
pub fn parse(text: &[u8]) -> (Option<(String, Vec<String>)>, Vec<(u64, Undo)>, usize) {
    let (mut header, mut entries, mut bad) = (None, Vec::new(), 0);
    for line in text.split_inclusive(|b| *b == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { continue };
        match serde_json::from_slice(line) {
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
    fn one_command_at_a_time_tries_settings() {
        let dir = tempfile::tempdir().unwrap();
        let command = |words: &str| words.split(' ').map(str::to_string).collect::<Vec<_>>();
        let first = trials(dir.path(), &command("a long command -p 5")).unwrap();
        let why = trials(dir.path(), &command("other")).unwrap_err();
        assert!(why.to_string().contains("`a long command -p 5` tries settings"), "{why}");
        drop(first);
        let second = trials(dir.path(), &command("other")).unwrap();
        let why = trials(dir.path(), &command("third")).unwrap_err();
        assert!(why.to_string().contains("`other` tries"), "{why}");
        drop(second);
        assert!(replay(dir.path()).unwrap().is_empty());
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

    /// Puts a file of a command that was killed into a journal: its header and lines.
    fn orphan(state: &Path, name: &str, lines: &[&[u8]]) -> PathBuf {
        let header = Line::Header { boot: boot_id(), pid: u32::MAX, start: 1, command: vec![name.into()] };
        let mut text = serde_json::to_vec(&header).unwrap();
        for line in lines {
            text.push(b'\n');
            text.extend(*line);
        }
        text.push(b'\n');
        let path = state.join(name).with_extension("jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// One file that is damaged, no text, a pipe or a link takes nothing from the others, and loses nothing of its own.
    #[test]
    fn a_damaged_file_does_not_stand_in_the_way_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (state, first, last) =
            (dir.path().join("undo"), dir.path().join("first"), dir.path().join("last"));
        std::fs::write(&first, "new").unwrap();
        std::fs::write(&last, "new").unwrap();
        drop(lock(&state).unwrap());
        let line =
            |path| serde_json::to_vec(&Line::Will { id: 1, undo: setting(path, "old", "new") }).unwrap();
        orphan(&state, "1", &[&line(&first), &[0, 0xff, 0xfe]]);
        rustix::fs::mkfifoat(rustix::fs::CWD, state.join("2.jsonl"), rustix::fs::Mode::from_raw_mode(0o600))
            .unwrap();
        std::os::unix::fs::symlink(&first, state.join("3.jsonl")).unwrap();
        File::create(state.join("4.jsonl")).unwrap().set_len(1 << 40).unwrap();
        std::fs::create_dir(state.join("5.jsonl")).unwrap();
        orphan(&state, "6", &[&line(&last)]);
        let all = replay(&state).unwrap();
        for file in [&first, &last] {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "old", "{all:?}");
        }
        assert_eq!(all.iter().filter(|one| !one.failed.is_empty()).count(), 4, "{all:?}");
        let damaged: Vec<&Replayed> = all.iter().filter(|one| !one.damaged.is_empty()).collect();
        assert_eq!((damaged.len(), damaged[0].command.join(" ")), (1, "1".into()));
        assert!(damaged[0].damaged[0].contains("kept as"), "{damaged:?}");
        assert!(state.join("1.damaged").exists() && !state.join("1.jsonl").exists());
        assert!(!state.join("6.jsonl").exists());
        // It is said once.
        assert!(replay(&state).unwrap().iter().all(|one| one.damaged.is_empty() && one.undone.is_empty()));
    }

    #[test]
    fn a_file_without_its_header_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("undo"), dir.path().join("setting"));
        std::fs::write(&file, "new").unwrap();
        drop(lock(&state).unwrap());
        let line = serde_json::to_string(&Line::Will { id: 1, undo: setting(&file, "old", "new") }).unwrap();
        std::fs::write(state.join("1.jsonl"), format!("\0\0\n{line}\n")).unwrap();
        let all = replay(&state).unwrap();
        assert!(all[0].damaged[0].contains("the first"), "{all:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(std::fs::read_to_string(state.join("1.damaged")).unwrap().contains(&line));
    }

    /// Of two commands that set the same, the second would put back what the first has set.
    #[test]
    fn a_setting_is_changed_by_one_command_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("undo"), dir.path().join("setting"));
        std::fs::write(&file, "1024").unwrap();
        let set = |journal: &mut Journal, new: &str| {
            let id = journal.will_alone(&file, || {
                let old = std::fs::read_to_string(&file)?;
                Ok(Undo::Setting { path: (&file).into(), old, new: new.into() })
            })?;
            std::fs::write(&file, new).unwrap();
            Ok::<Id, Error>(id)
        };
        let mut first = Journal::begin(&state, &["first".into()]).unwrap();
        let mut second = Journal::begin(&state, &["second".into()]).unwrap();
        set(&mut first, "256").unwrap();
        // A command may change its own setting again.
        set(&mut first, "128").unwrap();
        let why = set(&mut second, "64").unwrap_err().to_string();
        assert!(why.contains("`first`"), "{why}");
        let other = dir.path().join("other");
        std::fs::write(&other, "1").unwrap();
        let one = second.will_alone(&other, || Ok(setting(&other, "1", "2"))).unwrap();
        second.done(one).unwrap();
        first.finish();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1024");
        set(&mut second, "64").unwrap();
        second.finish();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1024");
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

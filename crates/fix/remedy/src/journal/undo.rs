//! Acts that can be undone.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ncpu_files::reader::process_text;
use ncpu_machine::process::{self, Stat};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::confine;
use crate::group;
use crate::overlay;
use crate::schedule::Schedule;
use crate::sys;

/// A path in the journal: text, or bytes if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl<P: AsRef<Path>> From<P> for Name {
    fn from(path: P) -> Name {
        let path = path.as_ref();
        match path.to_str() {
            Some(text) => Name::Text(text.into()),
            None => Name::Bytes(path.as_os_str().as_bytes().into()),
        }
    }
}

impl Name {
    /// The path.
    pub fn path(&self) -> PathBuf {
        match self {
            Name::Text(text) => text.into(),
            Name::Bytes(bytes) => OsString::from_vec(bytes.clone()).into(),
        }
    }
}

/// An act and how it is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Undo {
    /// A file of the kernel (sysctl, sysfs) that held `old` and is set to `new`. It is set back only where it still
    /// holds `new`.
    Setting {
        /// The file.
        path: Name,
        /// Its text before.
        old: String,
        /// The text written.
        new: String,
    },
    /// A directory tree of ours; its last name begins with `.ncpu-`.
    Tree {
        /// The directory.
        path: Name,
    },
    /// A control group of ours: its processes are killed, then it and the groups in it are removed.
    Cgroup {
        /// Its directory.
        path: Name,
    },
    /// A controller switched on for the children of a control group.
    Controller {
        /// `cgroup.subtree_control`.
        path: Name,
        /// As in `cpuset`.
        controller: String,
    },
    /// Processes that carry `NCPU_RUN=token` in their environment: they are killed.
    Marked {
        /// The token.
        token: String,
    },
    /// A process we stopped: it is continued.
    Stopped {
        /// The process.
        pid: u32,
        /// When it began, in clock ticks since boot: another process of the number is left alone.
        start: u64,
    },
    /// The CPUs of the threads of a process and of those it has forked.
    Affinity {
        /// The process.
        pid: u32,
        /// When it began.
        start: u64,
        /// The CPUs before, as a list.
        cpus: String,
        /// Those we may have given a thread; a thread with any others has chosen them itself since, and keeps them.
        ours: Vec<String>,
        /// Threads that had chosen theirs before.
        except: Vec<u32>,
    },
    /// How the threads of a process and of those it has forked are scheduled.
    Scheduled {
        /// The process.
        pid: u32,
        /// When it began.
        start: u64,
        /// As before.
        before: Schedule,
        /// As given. A thread that is scheduled otherwise has chosen that itself since, and keeps it.
        ours: Schedule,
        /// Threads that had chosen `ours` before.
        except: Vec<u32>,
    },
    /// The CPUs of the threads of a control group that could use `cpus` and now may use `ours`.
    Confined {
        /// Its directory.
        group: Name,
        /// The CPUs before, as a list.
        cpus: String,
        /// Those given. A thread with any others has chosen them itself since, and keeps them.
        ours: String,
        /// Threads that had chosen `ours` before.
        except: Vec<u32>,
    },
    /// Changes of a clone that are being taken over into the directory it was made of: finished, not taken back.
    Commit {
        /// The overlay's upper directory.
        upper: Name,
        /// The directory.
        lower: Name,
        /// Their inodes, by which they are known again.
        #[serde(default)]
        inodes: [u64; 2],
    },
}

impl std::fmt::Display for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Undo::Setting { path, old, .. } => write!(f, "set {} back to {old}", path.path().display()),
            Undo::Tree { path } => write!(f, "removed {}", path.path().display()),
            Undo::Cgroup { path } => write!(f, "removed the control group {}", path.path().display()),
            Undo::Controller { path, controller } => {
                write!(f, "switched {controller} off in {}", path.path().display())
            }
            Undo::Marked { token } => write!(f, "killed what was left of run {token}"),
            Undo::Stopped { pid, .. } => write!(f, "continued process {pid}"),
            Undo::Affinity { pid, cpus, .. } => write!(f, "gave process {pid} its CPUs {cpus} back"),
            Undo::Scheduled { pid, .. } => write!(f, "scheduled process {pid} as before"),
            Undo::Confined { group, cpus, .. } => {
                write!(f, "gave the threads of {} their CPUs {cpus} back", group.path().display())
            }
            Undo::Commit { lower, .. } => {
                write!(f, "finished taking changes over into {}", lower.path().display())
            }
        }
    }
}

/// Whether a process that began then still runs: a zombie does not.
pub(super) fn lives(pid: u32, start: u64) -> bool {
    let stat = process::read(format!("/proc/{pid}/stat").as_ref()).unwrap_or_default();
    Stat::parse(&stat).is_some_and(|stat| stat.start() == Some(start) && !stat.has_ended())
}

/// When a process or thread began, in clock ticks since boot; `None` if it is gone.
pub fn start_of(tid: u32) -> Option<u64> {
    Stat::parse(&process::read(format!("/proc/{tid}/stat").as_ref()).ok()?)?.start()
}

impl Undo {
    /// The file or group that one command at a time may change: a second would take the first one's value for that of before.
    pub(super) fn target(&self) -> Option<&Name> {
        match self {
            Undo::Setting { path, .. } => Some(path),
            Undo::Confined { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Undoes it; whether there was anything to undo.
    pub(super) fn carry_out(&self, this_boot: bool) -> Result<bool, String> {
        match self {
            Undo::Tree { path } => remove_tree(&path.path()),
            Undo::Commit { upper, lower, inodes } => {
                let (upper, lower) = (upper.path(), lower.path());
                if !upper.exists() {
                    return Ok(false);
                }
                overlay::commit(&upper, &lower, *inodes).map_err(|e| e.to_string())?;
                Ok(true)
            }
            // The rest went with the kernel it was set in.
            _ if !this_boot => Ok(false),
            Undo::Setting { path, old, new } => set_back(&path.path(), old, new),
            Undo::Cgroup { path } => group::remove(&path.path()).map_err(|e| e.to_string()),
            Undo::Controller { path, controller } => {
                // Refused where others use it by now; then it is theirs.
                Ok(std::fs::write(path.path(), format!("-{controller}")).is_ok())
            }
            Undo::Marked { token } => kill_marked(token),
            Undo::Stopped { pid, start } => {
                let Some(process) = same(*pid, *start) else { return Ok(false) };
                match rustix::process::kill_process(process, Signal::CONT) {
                    Ok(()) => Ok(true),
                    Err(rustix::io::Errno::SRCH) => Ok(false),
                    Err(e) => Err(e.to_string()),
                }
            }
            Undo::Affinity { pid, start, cpus, ours, except } => {
                let cpus = ncpu_machine::CpuSet::parse_list(cpus).map_err(|e| e.to_string())?;
                Ok(put_back((*pid, *start), except, |tid| {
                    let has_ours = sys::affinity(tid).is_ok_and(|set| ours.contains(&set.to_list()));
                    has_ours && sys::set_affinity(tid, &cpus).is_ok()
                }))
            }
            Undo::Scheduled { pid, start, before, ours, except } => {
                Ok(put_back((*pid, *start), except, |tid| {
                    Schedule::read(tid).is_ok_and(|now| now == Some(*ours)) && before.set(tid).is_ok()
                }))
            }
            Undo::Confined { group, cpus, ours, except } => {
                let set = |list: &str| ncpu_machine::CpuSet::parse_list(list).map_err(|e| e.to_string());
                Ok(confine::change(&group.path(), &set(ours)?, &set(cpus)?, except))
            }
        }
    }
}

/// The process, if it is still the one that was meant.
fn same(pid: u32, start: u64) -> Option<Pid> {
    (start_of(pid) == Some(start)).then(|| i32::try_from(pid).ok().and_then(Pid::from_raw)).flatten()
}

/// Changes the threads of a process and of its children, which began as their creator was, but those in `except`. Whether there were
/// any; threads that end meanwhile need nothing.
fn put_back((pid, start): (u32, u64), except: &[u32], mut change: impl FnMut(u32) -> bool) -> bool {
    let is_same = same(pid, start).is_some();
    is_same && confine::each_of(|| sys::threads_of_family(pid), |tid| !except.contains(&tid) && change(tid))
}

fn set_back(path: &Path, old: &str, new: &str) -> Result<bool, String> {
    let now = match std::fs::read_to_string(path) {
        Ok(now) => now,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e.to_string()),
    };
    // The kernel puts tabs between numbers.
    let same = |a: &str, b: &str| a.split_ascii_whitespace().eq(b.split_ascii_whitespace());
    if !same(chosen(&now), new) || same(old, new) {
        return Ok(false);
    }
    // Nothing is written of an empty text; a cpuset that is to be its parent's again wants a line.
    let text = if old.is_empty() { "\n" } else { old };
    std::fs::write(path, text).map_err(|e| e.to_string())?;
    Ok(true)
}

/// The value of a setting; of `always [madvise] never` the word in brackets.
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    inside.unwrap_or(text)
}

fn remove_tree(path: &Path) -> Result<bool, String> {
    let ours = path.file_name().is_some_and(|n| n.as_bytes().starts_with(b".ncpu-"));
    if !ours {
        return Err("not a directory that ncpu makes: left alone".into());
    }
    overlay::remove(path).map_err(|e| e.to_string())
}

/// Kills processes that carry the token, until none is left.
fn kill_marked(token: &str) -> Result<bool, String> {
    if token.is_empty() {
        return Ok(false);
    }
    let mark = format!("NCPU_RUN={token}");
    let own = std::process::id();
    let mut any = false;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let mut left = 0;
        for pid in sys::processes() {
            let Some(environment) = environment(pid) else { continue };
            if pid == own || !environment.split(|&b| b == 0).any(|v| v == mark.as_bytes()) {
                continue;
            }
            left += 1;
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // Gone already is as good.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        if left == 0 {
            return Ok(any);
        }
        any = true;
        if Instant::now() > until {
            return Err(format!("{left} processes do not end"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The environment a process began with; `None` for kernel threads, zombies and those of others.
fn environment(pid: u32) -> Option<Vec<u8>> {
    // In the middle of an `exec` it is empty for a moment.
    for _ in 0..20 {
        // By the reader: it may lie in memory of a file whose file system never answers.
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let text = process_text(&directory, pid, "environ").ok()?;
        if !text.is_empty() || std::fs::read_link(directory.join("exe")).is_err() {
            return Some(text);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_setting() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("1\n"), "1");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn only_trees_of_ours_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("data");
        std::fs::create_dir(&other).unwrap();
        assert!(Undo::Tree { path: (&other).into() }.carry_out(true).is_err());
        assert!(other.exists());
        assert_eq!(Undo::Tree { path: dir.path().join(".ncpu-x").into() }.carry_out(true), Ok(false));
    }

    #[test]
    fn another_process_of_the_number_is_left_alone() {
        let own = std::process::id();
        let start = start_of(own).unwrap();
        assert!(same(own, start).is_some());
        assert!(same(own, start + 1).is_none());
        assert_eq!(Undo::Stopped { pid: own, start: start + 1 }.carry_out(true), Ok(false));
    }

    #[test]
    fn marked_processes_are_killed() {
        let mut child =
            std::process::Command::new("sleep").arg("60").env("NCPU_RUN", "test-17").spawn().unwrap();
        // A zombie has no environment, so the loop ends although nobody has waited for it.
        assert_eq!(Undo::Marked { token: "test-17".into() }.carry_out(true), Ok(true));
        assert!(!child.wait().unwrap().success());
        assert_eq!(Undo::Marked { token: "test-17".into() }.carry_out(true), Ok(false));
    }

    #[test]
    fn names_survive_the_journal() {
        for name in ["/a b", "/ü"] {
            assert_eq!(Name::from(name).path(), Path::new(name));
        }
        let odd = PathBuf::from(OsString::from_vec(b"/\xff\n".into()));
        let text = serde_json::to_string(&Name::from(&odd)).unwrap();
        assert_eq!(serde_json::from_str::<Name>(&text).unwrap().path(), odd);
    }
}

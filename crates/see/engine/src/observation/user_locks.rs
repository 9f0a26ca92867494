//! Finds the programs and libraries whose locks have static tracepoints for their waits (libncpu's), and those with functions whose
//! calls are requests, and has them traced.
//!
//! A tracepoint is attached to a file, once, and from then on works in all processes that map it, those to come
//! included. So what is looked for is not processes but files not seen before: in the mappings of the program's
//! processes when the observation begins, when one begins a program that none began before (the kernel side tells
//! no others), a few times in the seconds after that, while its libraries are loaded, and now and then later, for
//! those opened at run time.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bpf_support::namespace;
use crate::engine::Engine;
use crate::program::{Target, processes};
use ncpu_files::reader::{Source, Whose};
use ncpu_symbols::{Sections, code_files, go_wait_reasons, goroutine_list};

/// How long after it was met a process is looked at, milliseconds.
const AFTER: [u64; 7] = [0, 2, 10, 50, 200, 1000, 4000];
/// Looks in a second: some 50 µs each.
const MAX_LOOKS: usize = 200;
/// Of these, looks at processes that were seen before.
const AGAIN: usize = 16;
/// A program whose processes were looked at in vain this many times is not looked at any more when it
/// begins.
const ENOUGH: u32 = 4 * AFTER.len() as u32;
/// Processes waiting for a look; more are met when the others are through.
const MAX_WAITING: usize = 4096;
/// Files remembered; then all are forgotten but for those that are attached to, and looked into again when they are met.
const MAX_FILES: usize = 1 << 15;

/// A program of Go.
struct Go {
    /// The reasons for which goroutines wait.
    reasons: Vec<String>,
    /// Where it has the list of its goroutines.
    list: Option<u64>,
}

/// Which files were looked into, and which processes are to be looked at.
#[derive(Default)]
pub(super) struct UserLocks {
    /// By device and inode.
    files: HashSet<(u64, u64)>,
    /// Those that are attached to, which must not be attached to twice.
    attached: HashSet<(u64, u64)>,
    /// Looks in vain at processes of a program, by its device and inode.
    vain: HashMap<(u64, u64), u32>,
    /// Programs of Go, by device and inode, and their processes.
    go: HashMap<(u64, u64), Arc<Go>>,
    goes: HashMap<u32, Arc<Go>>,
    waiting: Vec<(Instant, u32, usize)>,
    known: HashSet<u32>,
    /// The process of the last repeated look.
    last: u32,
    second: Option<Instant>,
    looks: usize,
    notes: Vec<String>,
}

impl UserLocks {
    /// Looks at the processes that are to be observed, but for those of this program, which may stand for one that
    /// has not begun yet.
    pub fn begin(target: &Target, engine: &mut Engine) -> UserLocks {
        let mut locks = UserLocks::default();
        let own = fs::metadata("/proc/self/exe").map(|m| (m.dev(), m.ino())).ok();
        for pid in first(target) {
            let runs = program(pid);
            if runs != own {
                locks.look_at(pid, runs, engine);
                locks.known.insert(pid);
            }
        }
        locks
    }

    /// A program that is about to begin, and what is preloaded into it.
    pub fn expect(&mut self, program: &Path, engine: &mut Engine) {
        for function in engine.functions() {
            if let Some(path) = function.file()
                && let Ok(source) = Source::open(path)
            {
                self.file(&source, OWN.as_ref(), path, false, engine);
            }
        }
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let preloaded = preloaded.to_string_lossy().into_owned();
        for file in in_path(program).into_iter().chain(preloaded.split([':', ' ']).map(PathBuf::from)) {
            if let Ok(source) = Source::open(&file) {
                self.file(&source, OWN.as_ref(), &file, true, engine);
            }
        }
    }

    /// A process has begun a program, or was met for the first time. Whether it ran one of Go before.
    pub fn began(&mut self, pid: u32, now: Instant) -> bool {
        self.waiting.retain(|w| w.1 != pid);
        if self.waiting.len() < MAX_WAITING {
            self.known.insert(pid);
            self.waiting.push((now, pid, 0));
        }
        self.goes.remove(&pid).is_some()
    }

    /// Takes the list of living processes. Some of the known ones are looked at again.
    pub fn living(&mut self, pids: &[u32], now: Instant) {
        for &pid in pids {
            if !self.known.contains(&pid) {
                self.began(pid, now);
            }
        }
        self.known.retain(|pid| pids.binary_search(pid).is_ok());
        let from = pids.partition_point(|&p| p <= self.last);
        let again = pids[from..].iter().chain(&pids[..from]).take(AGAIN.min(pids.len()));
        for &pid in again {
            self.last = pid;
            if !self.waiting.iter().any(|w| w.1 == pid) {
                self.waiting.push((now, pid, AFTER.len() - 1));
            }
        }
    }

    /// When the next process is to be looked at.
    pub fn next(&self) -> Option<Instant> {
        let second = self.second.filter(|_| self.looks >= MAX_LOOKS).map(|s| s + Duration::from_secs(1));
        self.waiting.iter().map(|w| w.0).min().map(|next| second.map_or(next, |s| next.max(s)))
    }

    /// Looks at the processes that are due.
    pub fn look(&mut self, engine: &mut Engine, now: Instant) {
        if self.second.is_none_or(|s| now.duration_since(s) >= Duration::from_secs(1)) {
            (self.second, self.looks) = (Some(now), 0);
        }
        let (due, later) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w: &(Instant, u32, usize)| w.0 <= now);
        self.waiting = later;
        let due: Vec<(Instant, u32, usize)> = due;
        for (at, pid, step) in due {
            if self.looks >= MAX_LOOKS {
                self.waiting.push((at, pid, step));
                continue;
            }
            self.looks += 1;
            let Some(program) = program(pid) else { continue };
            let vain = self.vain.get(&program).copied().unwrap_or(0);
            // Libraries that it opens later are found by the looks now and then.
            if vain >= ENOUGH && step + 1 < AFTER.len() {
                continue;
            }
            if self.look_at(pid, Some(program), engine) > 0 {
                self.vain.remove(&program);
            } else {
                if self.vain.len() >= MAX_FILES {
                    self.vain.clear();
                }
                *self.vain.entry(program).or_default() += 1;
            }
            if let (Some(this), Some(next)) = (AFTER.get(step), AFTER.get(step + 1)) {
                self.waiting.push((now + Duration::from_millis(next - this), pid, step + 1));
            }
        }
    }

    /// The reasons for which goroutines wait, by their numbers, if a process runs a program of Go, as far as it has been looked at.
    pub fn go_wait_reasons(&self, pid: u32) -> Option<&[String]> {
        self.goes.get(&pid).map(|go| &go.reasons[..])
    }

    /// Processes that run programs of Go, and where these have the lists of their goroutines.
    pub fn goroutine_lists(&self) -> Vec<(u32, u64)> {
        self.goes.iter().filter_map(|(pid, go)| Some((*pid, go.list?))).collect()
    }

    /// Files that could not be traced, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Looks into the files of a process and the program that it runs; how many were new.
    fn look_at(&mut self, pid: u32, runs: Option<(u64, u64)>, engine: &mut Engine) -> usize {
        let mut new = 0;
        if namespace::is_own() {
            return 0;
        }
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let whose = Whose::process(&dir, pid);
        for (identity, start, end) in code_files(pid) {
            if self.files.contains(&identity) || self.attached.contains(&identity) {
                continue;
            }
            if self.files.len() >= MAX_FILES {
                self.files.clear();
            }
            // Also of a file that has been deleted, or lies in another mount namespace.
            // If it has ended or unmapped it, whoever maps it next shows it again.
            let mapping = dir.join(format!("map_files/{start:x}-{end:x}"));
            let Ok(source) = Source::mapped(&mapping, whose) else { continue };
            if !source.may_read() {
                continue;
            }
            let program = runs == Some(source.identity());
            new += usize::from(source.parsed(|source| self.file(source, &dir, &mapping, program, engine)));
            // Where mappings tell another identity than files do (overlays, btrfs), both are known now.
            self.files.insert(identity);
        }
        if let Some(go) = runs.and_then(|program| self.go.get(&program)).cloned() {
            if self.goes.len() >= MAX_FILES {
                self.goes.clear();
            }
            if self.goes.insert(pid, go).is_none() {
                engine.tell_go(pid);
            }
        }
        new
    }

    /// Looks into a file; whether it was new.
    fn file(
        &mut self,
        file: &Source,
        process: &Path,
        mapping: &Path,
        program: bool,
        engine: &mut Engine,
    ) -> bool {
        let identity = file.identity();
        if self.attached.contains(&identity) || !self.files.insert(identity) {
            return false;
        }
        if program && Sections::read(file).is_some_and(|sections| sections.is_go()) {
            if self.go.len() >= MAX_FILES {
                self.go.clear();
            }
            let go = Go { reasons: go_wait_reasons(file), list: goroutine_list(file) };
            self.go.insert(identity, go.into());
        }
        let path = fs::read_link(mapping).unwrap_or_else(|_| mapping.into());
        match engine.trace_file(file, &path, process, program) {
            Ok(0) => {}
            Ok(_) => {
                self.attached.insert(identity);
            }
            Err(e) => {
                if self.notes.len() < 10 {
                    self.notes.push(format!("{}: {e}", path.display()));
                }
            }
        }
        true
    }
}

/// The directory in `/proc` of this process.
const OWN: &str = "/proc/self";

/// The program a process runs, by device and inode.
///
/// By the reader: its file system may never answer.
fn program(pid: u32) -> Option<(u64, u64)> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    Source::mapped(&dir.join("exe"), Whose::process(&dir, pid)).ok().map(|file| file.identity())
}

/// The file a shell would run.
fn in_path(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// The processes that an observation begins with: a process and what that started, those of a cgroup, or all.
fn first(target: &Target) -> Vec<u32> {
    match target {
        Target::Tree(root) => processes::tree(Path::new("/"), *root),
        _ => target.among(processes::all(Path::new("/"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_a_process_and_what_it_started() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let tree = first(&Target::Tree(std::process::id()));
        let all = first(&Target::All);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(tree.contains(&child.id()) && tree.contains(&std::process::id()), "{tree:?}");
        assert!(!tree.contains(&1));
        assert!(tree.iter().all(|p| *p == std::process::id() || all.contains(p)));
    }

    #[test]
    fn of_a_cgroup_only_its_processes_are_looked_at() {
        let Ok(root) = Target::cgroup("/") else { return eprintln!("skipped: no cgroup v2") };
        assert!(first(&root).contains(&std::process::id()), "everything is below the root");
        let none = Target::Cgroup { id: u64::MAX, level: 1 };
        assert_eq!(first(&none), Vec::<u32>::new());
    }

    #[test]
    fn a_new_process_is_looked_at_soon_and_an_old_one_now_and_then() {
        let mut locks = UserLocks::default();
        let now = Instant::now();
        locks.living(&[5, 7, 9], now);
        assert_eq!(locks.waiting.len(), 3);
        assert!(locks.waiting.iter().all(|w| w.2 == 0), "{:?}", locks.waiting);
        locks.waiting.clear();
        locks.began(9, now);
        locks.began(9, now);
        assert_eq!(locks.waiting, [(now, 9, 0)]);
        locks.living(&[7, 9], now);
        assert_eq!(locks.waiting, [(now, 9, 0), (now, 7, AFTER.len() - 1)]);
        assert!(!locks.known.contains(&5), "gone");
        assert_eq!(locks.next(), Some(now));
        (locks.second, locks.looks) = (Some(now), MAX_LOOKS);
        assert_eq!(locks.next(), Some(now + Duration::from_secs(1)), "enough for this second");
    }

    #[test]
    fn programs_are_looked_for_where_a_shell_does() {
        assert!(in_path(Path::new("sh")).is_some_and(|p| p.ends_with("sh") && p.is_absolute()));
        assert_eq!(in_path(Path::new("./sh")), Some("./sh".into()));
        assert_eq!(in_path(Path::new("no-such-program-anywhere")), None);
    }
}

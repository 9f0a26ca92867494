//! `ncpu fix --tenant` on control groups that the test makes. Truth is the tenant's own count of its work, the kernel's account of
//! CPU time and the files of the groups. Needs root, BPF and a hierarchy with weights; skips with a message otherwise.

mod common;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{err, out, root};
use ncpu_trials::{MOST, hold};

/// A control group of CPU time, removed again with its processes.
struct Group(PathBuf);

impl Group {
    fn make(name: &str) -> Option<Group> {
        for mount in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"] {
            let group = Path::new(mount).join(format!("ncpu-fix-{name}-{}", std::process::id()));
            if std::fs::create_dir(&group).is_ok() {
                let made = Group(group);
                if made.weight_file().exists() {
                    return Some(made);
                }
            }
        }
        eprintln!("skipped: no control group with a weight can be made");
        None
    }

    fn weight_file(&self) -> PathBuf {
        let old = self.0.join("cpu.shares");
        if old.exists() { old } else { self.0.join("cpu.weight") }
    }

    fn weight(&self) -> u64 {
        std::fs::read_to_string(self.weight_file()).unwrap().trim().parse().unwrap()
    }

    fn set_weight(&self, weight: u64) {
        std::fs::write(self.weight_file(), weight.to_string()).unwrap();
    }

    fn name(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }

    /// Starts a shell's loop in the group, on some CPUs. It counts its rounds in FILE.
    fn start(&self, script: &str, cpus: &str, file: &Path) -> Running {
        let procs = self.0.join("cgroup.procs");
        let mut command = Command::new("taskset");
        command.args(["-c", cpus, "sh", "-c", script]).arg(file).stdout(Stdio::null());
        // SAFETY: between fork and exec it writes a file by system calls alone; its path was made before.
        unsafe { command.pre_exec(move || std::fs::write(&procs, "0")) };
        Running(command.spawn().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..500 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            let left = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines().filter_map(|line| line.parse().ok()) {
                // SAFETY: a plain system call; they are processes of this test.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Computes; each round is a byte of the file.
const COUNT: &str =
    "exec >\"$0\"; while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; printf x; done";
const BUSY: &str = "while :; do :; done";

/// A tenant, and a neighbour of eight times its weight on the same CPU.
struct Pair {
    tenant: Group,
    neighbour: Group,
    state: tempfile::TempDir,
    work: tempfile::NamedTempFile,
    _running: [Running; 2],
    /// Each pair would be a neighbour of the other's tenant. The last to be dropped.
    _alone: MutexGuard<'static, ()>,
}

impl Pair {
    fn new(name: &str, cpus: [&str; 2]) -> Option<Pair> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !root() {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = Group::make(&format!("{name}-tenant"))?;
        let neighbour = Group::make(&format!("{name}-neighbour"))?;
        // The least of both, so that the rest of the machine has its CPUs.
        tenant.set_weight(neighbour.weight() / 8);
        let work = tempfile::NamedTempFile::new().unwrap();
        let running = [
            tenant.start(COUNT, cpus[0], work.path()),
            neighbour.start(BUSY, cpus[1], Path::new("/dev/null")),
        ];
        let state = tempfile::tempdir().unwrap();
        Some(Pair { tenant, neighbour, state, work, _running: running, _alone: alone })
    }

    fn weights(&self) -> [u64; 2] {
        [self.tenant.weight(), self.neighbour.weight()]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(["fix", "--tenant", &self.tenant.name(), "--by", "cgroup=1"]).args(args);
        command.env("NCPU_STATE_DIR", self.state.path()).stdin(Stdio::null());
        command
    }

    /// Starts it; nobody reads what it says.
    fn start_fix(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts it and waits until it has changed the weights; once more where it ends first, as on a machine that is too busy to measure.
    fn begun(&self, before: [u64; 2]) -> Child {
        let start = || self.start_fix(&["--try", "weight", "--most-loss", "100"]);
        let mut child = start();
        until("a setting", || {
            if child.try_wait().unwrap().is_some() {
                child = start();
            }
            self.weights() != before
        });
        child
    }

    fn fix(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn undo(&self) -> Output {
        let mut undo = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        undo.args(["fix", "--undo"]).env("NCPU_STATE_DIR", self.state.path()).output().unwrap()
    }

    /// Rounds of the tenant's work in a second, by its own count.
    fn speed(&self) -> f64 {
        let done = || self.work.as_file().metadata().unwrap().len() as f64;
        let (from, begin) = (done(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        (done() - from) / begin.elapsed().as_secs_f64()
    }
}

/// The rows of JSON lines.
fn rows(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn find<'a>(rows: &'a [serde_json::Value], words: &str) -> &'a serde_json::Value {
    let fits = |row: &&serde_json::Value| row["setting"].as_str().unwrap().contains(words);
    rows.iter().find(fits).unwrap_or_else(|| panic!("no {words}: {rows:?}"))
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < end, "{what} in five minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn signals_undo_a_setting() {
    let Some(pair) = Pair::new("signal", ["0", "0"]) else { return };
    let before = pair.weights();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut child = pair.begun(before);
        // SAFETY: a plain system call, with the number of a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal));
        assert_eq!(pair.weights(), before);
    }
}

#[test]
fn a_setting_of_a_killed_fix_is_undone_by_the_journal() {
    let Some(pair) = Pair::new("killed", ["0", "0"]) else { return };
    let before = pair.weights();
    let mut child = pair.begun(before);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(pair.weights(), before, "nobody has undone it");
    let said = pair.undo();
    assert!(said.status.success() && err(&said).contains("cleaned up"), "{}", err(&said));
    assert_eq!(pair.weights(), before);
}

/// The neighbour's threads leave the tenant's CPU and get it back, also those that nobody has started when the journal was written.
#[test]
fn cpus_of_a_killed_fix_are_given_back_to_all_threads_of_the_group() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return eprintln!("skipped: one CPU is all there are");
    }
    // The neighbour goes on as orphans, one after the other.
    let orphans = "(sh -c 'while :; do :; done' &) ; while :; do sh -c 'exec sleep 0.01'; done";
    let Some(pair) = Pair::new("cpus", ["0", "0,1"]) else { return };
    let _more = pair.neighbour.start(orphans, "0,1", Path::new("/dev/null"));
    let threads = || -> Vec<i32> {
        let text = std::fs::read_to_string(pair.neighbour.0.join("cgroup.procs")).unwrap();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let mask = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_string())
    };
    let masks = || threads().into_iter().filter_map(mask).collect::<std::collections::BTreeSet<_>>();
    until("both CPUs", || masks().contains("0-1"));
    let before = masks();
    let mut child = pair.start_fix(&["--try", "CPUs,cpuset", "--most-loss", "100"]);
    until("other CPUs", || !masks().contains("0-1"));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = pair.undo();
    assert!(said.status.success(), "{}", err(&said));
    assert_eq!(masks(), before);
}

#[test]
fn what_is_tried_is_listed_and_nothing_is_set() {
    let Some(pair) = Pair::new("list", ["0", "0"]) else { return };
    let before = pair.weights();
    let said = pair.fix(&["--list", "-o", "json"]);
    assert!(said.status.success(), "{}", err(&said));
    let rows = rows(&out(&said));
    // Those of other programs come behind.
    let own = |row: &serde_json::Value| row["neighbour"] == pair.neighbour.name().as_str();
    assert!(
        rows.iter().take_while(|row| own(row)).count() >= 3 && rows[0]["cause"] == "run queue",
        "{rows:?}"
    );
    assert_eq!(pair.weights(), before);
    let none = pair.fix(&["--try", "no-such-setting"]);
    assert!(none.status.success() && err(&none).contains("no setting of --try"), "{}", err(&none));
    let unknown = pair.fix(&["--tenant", "x"]);
    assert!(!unknown.status.success());
    let percent = pair.fix(&["--most-loss", "101"]);
    assert!(!percent.status.success() && err(&percent).contains("--most-loss 101"), "{}", err(&percent));
}

mod quiet {
    use super::*;

    #[test]
    fn a_setting_is_undone_at_once_when_the_neighbour_loses_too_much() {
        let Some(pair) = Pair::new("guard", ["0", "0"]) else { return };
        let before = pair.weights();
        hold(MOST, "a guard", || {
            let said = pair.fix(&["--rounds", "3", "--most-loss", "0", "--try", "weight", "-o", "json"]);
            assert!(said.status.success(), "{}", err(&said));
            assert_eq!(pair.weights(), before);
            let rows = rows(&out(&said));
            assert_eq!(rows.len(), 3, "{rows:?}");
            for row in &rows {
                assert_eq!(row["verdict"], "takes too much of the neighbour, undone at once", "{row}");
            }
        });
    }

    /// What `fix` reports is what the tenant's own count of its work says, without the setting and with it.
    #[test]
    fn a_kept_weight_gives_what_was_reported() {
        let Some(pair) = Pair::new("kept", ["0", "0"]) else { return };
        let before = pair.weights();
        hold(MOST, "a weight", || {
            pair.tenant.set_weight(before[0]);
            pair.neighbour.set_weight(before[1]);
            let slow = pair.speed();
            let own = pair.tenant.name();
            let said =
                pair.fix(&["--rounds", "3", "--try", &own, "--most-loss", "80", "--keep", "-o", "json"]);
            assert!(said.status.success(), "{}", err(&said));
            let rows = rows(&out(&said));
            let own = find(&rows, &own);
            assert_eq!(own["verdict"], "helps, kept", "{rows:?}");
            assert_eq!(pair.weights(), [8 * before[0], before[1]]);
            // A ninth and a half of a CPU.
            let (fast, reported) = (pair.speed(), own["speed"].as_f64().unwrap());
            let measured = fast / slow;
            assert!((2.5..6.5).contains(&measured), "{slow} and {fast} rounds a second");
            assert!((reported / measured - 1.0).abs() < 0.25, "{reported} reported, {measured} measured");
            let [neighbour, with] =
                ["neighbour", "neighbour_with"].map(|column| own[column].as_f64().unwrap());
            assert!(neighbour > 0.75 && (0.3..0.6).contains(&with), "{own}");
        });
    }
}

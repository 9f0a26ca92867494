//! A harness for tests that observe real processes; each uses a part of it.
#![allow(dead_code)]
// Each of them is a crate of its own, and none needs all.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ncpu_engine::engine::{Config, Probes};
use ncpu_engine::observation::Observation;
use ncpu_observe_core::program::Target;
use ncpu_observe_core::program::{Child, Ended};
use ncpu_table::Table;

/// One observation at a time: each is a workload to the others.
static ONE: Mutex<()> = Mutex::new(());

pub fn allowed() -> Option<MutexGuard<'static, ()>> {
    let guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
    if rustix::process::geteuid().is_root() && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some(guard);
    }
    eprintln!("skipped: observing needs root and BTF");
    None
}

/// This test's own executable, asked to play a part of its module `parts`.
pub fn part(name: &str) -> Vec<OsString> {
    let me = std::env::current_exe().unwrap();
    vec![
        me.into(),
        "--ignored".into(),
        "--exact".into(),
        format!("parts::{name}").into(),
        "--nocapture".into(),
    ]
}

/// `tests/c/NAME.c`, compiled with these flags. Kept for other tests and runs, by what it is made of.
pub fn c(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let of = Command::new("gcc").arg("--version").output().expect("gcc").stdout;
    let mut hasher = DefaultHasher::new();
    (of, std::fs::read(&source).expect("a source"), flags).hash(&mut hasher);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{:016x}", hasher.finish()));
    let program = dir.join(name);
    if program.exists() {
        return program;
    }
    std::fs::create_dir_all(&dir).expect("a directory");
    // Never seen half written.
    let made = tempfile::Builder::new().tempdir_in(&dir).expect("a directory");
    let to = made.path().join(name);
    let done = Command::new("gcc")
        .args(["-Wall", "-Werror", "-pthread", "-o"])
        .args([&to, &source])
        .args(flags)
        .output()
        .expect("gcc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::rename(to, &program).expect("one file system");
    program
}

/// A program in Go of `tests/programs`, a file or the directory of a module, built; `None` without Go.
pub fn go(name: &str, flags: &str) -> Option<PathBuf> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let (dir, what, modules) = match name.ends_with(".go") {
        true => (programs, name, "off"),
        false => (programs.join(name), ".", "on"),
    };
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let done = Command::new("go")
        .args(["build", flags, "-o"])
        .args([built.as_os_str(), what.as_ref()])
        .current_dir(dir)
        .env("GO111MODULE", modules)
        .env("GOFLAGS", if modules == "on" { "-mod=mod" } else { "" })
        .env("GOTOOLCHAIN", "local")
        .output();
    let Ok(done) = done else {
        eprintln!("skipped: no go");
        return None;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(built)
}

pub fn sh(script: &str) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), script.into()]
}

pub struct Seen {
    pub tables: Vec<Table>,
    pub ended: Ended,
    pub elapsed: f64,
    pub notes: Vec<String>,
}

impl Seen {
    pub fn rows<'a>(&'a self, table: &'a str) -> impl Iterator<Item = (&'a Table, usize)> + 'a {
        self.tables
            .iter()
            .filter(move |t| t.name() == table)
            .flat_map(|t| (0..t.num_rows()).map(move |r| (t, r)))
    }

    pub fn sum(&self, table: &str, column: &str) -> f64 {
        self.rows(table).filter_map(|(t, r)| t.number(r, column)).sum()
    }

    /// Seconds in stacks of a kind, `outermost;…;leaf`, of which something holds.
    pub fn seconds_in(&self, kind: &str, holds: impl Fn(&str) -> bool) -> f64 {
        let of = |(t, r): &(&Table, usize)| {
            t.text(*r, "kind") == Some(kind) && holds(t.text(*r, "stack").unwrap_or(""))
        };
        self.rows("stacks").filter(of).filter_map(|(t, r)| t.number(r, "seconds")).sum()
    }

    /// Seconds in stacks of a kind in which a frame begins so.
    pub fn seconds_below(&self, kind: &str, frame: &str) -> f64 {
        self.seconds_in(kind, |stack| stack.split(';').any(|f| f.starts_with(frame)))
    }

    /// All stacks with their seconds, for who must find out.
    pub fn stacks(&self) -> Vec<String> {
        let row = |(t, r): (&Table, usize)| {
            format!("{} {:?}", t.text(r, "stack").unwrap_or(""), t.number(r, "seconds"))
        };
        self.rows("stacks").map(row).collect()
    }
}

/// As `ncpu threads` observes: microstates, and nothing that explains them.
pub fn threads_alone(config: &mut Config) {
    config.micro = true;
    config.explain = false;
    config.sample_hz = None;
    config.irqs = false;
    config.tlb = false;
    config.stacks = false;
}

pub fn observe(argv: &[OsString], change: impl Fn(&mut Config)) -> Seen {
    observe_placed(argv, |_| {}, change)
}

/// Runs `place` with the process before the program starts.
pub fn observe_placed(argv: &[OsString], place: impl Fn(u32), change: impl Fn(&mut Config)) -> Seen {
    let mut child = Child::hold(argv).unwrap();
    place(child.pid());
    // Figures are held to the truth, whatever that costs.
    let mut config = Config { probes: Probes::All, ..Config::onion(Target::Tree(child.pid()), 499) };
    change(&mut config);
    let mut observation = Observation::begin(&config).unwrap();
    observation.expect(std::path::Path::new(&argv[0]));
    child.release().unwrap();
    observation.begun(child.pid());
    let mut tables = Vec::new();
    let mut take = |t: &Table| -> Result<(), std::convert::Infallible> {
        tables.push(t.clone());
        Ok(())
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    observation
        .watch(Some(child.pidfd()), Some(deadline), Duration::from_millis(200), &|| false, &mut take)
        .unwrap();
    let ended = child.wait(true).unwrap();
    let notes = observation.finish(Some(ended), &mut take).unwrap();
    // Seen when a test fails.
    notes.iter().for_each(|n| eprintln!("note: {n}"));
    let elapsed = tables.iter().find(|t| t.name() == "summary").and_then(|t| t.number(0, "elapsed")).unwrap();
    Seen { tables, ended, elapsed, notes }
}

/// The part of the requests with a latency of at most `us`, by the bins of table `lengths`.
pub fn part_within(seen: &Seen, us: f64) -> f64 {
    let (mut within, mut all) = (0.0, 0.0);
    for (t, r) in seen.rows("lengths").filter(|(t, r)| t.text(*r, "of") == Some("request")) {
        let of = |column: &str| t.number(r, column).expect("a number");
        all += of("count");
        if (of("from") + of("to")) / 2.0 <= us {
            within += of("count");
        }
    }
    within / all
}

//! Locks of interpreters and virtual machines, by the names their users know them by, held to what these say themselves of
//! the waiting. Needs root and BPF, and Python, Java and Go; says so and passes where there are none.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe};

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Whether a tool is there; says so if not.
fn have(tool: &str, version: &str) -> bool {
    let there = Command::new(tool).arg(version).output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("skipped: no {tool}");
    }
    there
}

/// Seconds waited for locks of a pattern, and the types they have; and for anything else that is a lock.
fn waited(seen: &Seen, pattern: &str) -> (f64, f64, Vec<String>) {
    let (mut of, mut others, mut types) = (0.0, 0.0, Vec::new());
    for (t, r) in seen.rows("user_locks") {
        let (kind, block) = (t.text(r, "type").unwrap_or(""), t.number(r, "block").unwrap_or(0.0));
        if t.text(r, "pattern") == Some(pattern) {
            assert!(t.text(r, "advice").is_some(), "{pattern} has an advice");
            of += block;
            types.push(kind.to_string());
        } else if !matches!(kind, "condition" | "unknown" | "semaphore") {
            others += block;
        }
    }
    types.sort();
    types.dedup();
    (of, others, types)
}

/// What a program writes into the file that is its last argument, in seconds, and what was seen of it.
fn run(argv: &[&str], scale: f64) -> (f64, Seen) {
    let out = to("out");
    let argv: Vec<OsString> = argv.iter().map(Into::into).chain([out.clone().into()]).collect();
    let seen = observe(&argv, |_| {});
    assert_eq!(seen.ended.status, 0, "{argv:?}");
    let text = std::fs::read_to_string(&out).expect("its output");
    std::fs::remove_file(out).expect("it was written");
    (text.trim().parse::<f64>().unwrap_or_else(|e| panic!("{text:?}: {e}")) * scale, seen)
}

fn rows(seen: &Seen) -> Vec<String> {
    let row = |(t, r): (&ncpu_table::Table, usize)| {
        let text = |c| t.text(r, c).unwrap_or("-").to_string();
        let block = t.number(r, "block").unwrap_or(0.0);
        format!("{} {} {block:.3} {} {}", text("type"), text("pattern"), text("caller"), text("stack"))
    };
    seen.rows("user_locks").map(row).collect()
}

#[test]
fn pythons_interpreter_lock_is_the_gil() {
    let Some(_one) = allowed() else { return };
    let python = "/usr/bin/python3";
    if !have(python, "--version") {
        return;
    }
    let seen = observe(&[python.into(), program("gil.py").into()], |_| {});
    assert_eq!(seen.ended.status, 0, "{python}");
    let (gil, others, types) = waited(&seen, "GIL");
    // All threads but the first do nothing but compute: whenever they sleep it is for that lock.
    let workers = |column: &str| -> f64 {
        let worker = |(t, r): &(&ncpu_table::Table, usize)| t.int(*r, "tid") != t.int(*r, "pid");
        seen.rows("threads").filter(worker).filter_map(|(t, r)| t.number(r, column)).sum()
    };
    let (lock, sleep) = (workers("LCK"), workers("SLP"));
    assert!(lock > 0.3, "{python}: {lock} {sleep}: {:#?}", rows(&seen));
    assert!(gil > 0.7 * (lock + sleep), "{python}: {gil} of {lock} + {sleep}: {:#?}", rows(&seen));
    assert!(others < 0.3 * gil && types.contains(&"lock".into()), "{python}: {others} {types:?}");
}

#[test]
fn a_java_monitor_is_a_lock_and_a_parked_thread_may_be_anything() {
    let Some(_one) = allowed() else { return };
    if !have("java", "-version") || !have("javac", "-version") {
        return;
    }
    let classes = to("classes");
    let source = program("Monitor.java");
    let done = Command::new("javac").arg("-d").arg(&classes).arg(source).status().expect("javac");
    assert!(done.success());
    let path = classes.to_str().expect("a name");
    let java = |what: &'static str| ["java", "-cp", path, "Monitor", what];
    let (truth, seen) = run(&java("monitor"), 1e-3);
    let (of, _, _) = waited(&seen, "Java monitor");
    // The JVM spins before it parks, and the first waits have no verdict.
    assert!(of > 0.7 * truth && of < 1.3 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    let (truth, seen) = run(&java("lock"), 1e-3);
    let (of, ..) = waited(&seen, "Java monitor");
    assert!(of < 0.1 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    let (of, others, _) = waited(&seen, "Java park");
    // Without a perf map the class that parks is not known.
    assert!(of + others > 0.7 * truth, "{of} + {others} of {truth}: {:#?}", rows(&seen));
    std::fs::remove_dir_all(classes).expect("they were compiled");
}

#[test]
fn goroutines_wait_for_locks_of_gos_own() {
    let Some(_one) = allowed() else { return };
    if !have("go", "version") {
        return;
    }
    let built = to("mutex-go");
    let done = Command::new("go")
        .args(["build", "-o"])
        .arg(&built)
        .arg(".")
        .current_dir(program("mutex"))
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .status()
        .expect("go");
    assert!(done.success());
    for (what, kind) in [("mutex", "sync.Mutex"), ("rwmutex", "sync.RWMutex")] {
        let (truth, seen) = run(&[built.to_str().expect("a name"), what], 1.0);
        let (of, ..) = waited(&seen, kind);
        assert!(of > 0.8 * truth && of < 1.2 * truth, "{what}: {of} of {truth}: {:#?}", rows(&seen));
        // Of the CPUs one works, and the others idle for the lock.
        let idle = seen.sum("idle_time", "ulock");
        let all: f64 = ["klock", "ulock", "io", "serial", "asleep", "runq"]
            .iter()
            .map(|c| seen.sum("idle_time", c))
            .sum();
        // Other programs may have had all CPUs.
        assert!(idle >= 0.5 * all - 0.1, "{what}: {idle} of {all}");
    }
    std::fs::remove_file(built).expect("it was built");
}

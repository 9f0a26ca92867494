//! Calls of a program's functions (`--request`), beside the program's own log of them. Needs root and BPF; says so and passes where
//! there are none.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, go, observe, part};

/// A program of `tests/c`, compiled.
fn compile(compiler: &str, source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{}", std::process::id()));
    let done = Command::new(compiler)
        .args(["-O2", "-Wall", "-pthread", "-o"])
        .arg(&to)
        .arg(here.join("tests/c").join(source))
        .output()
        .expect("a compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

fn follow(argv: &[OsString], function: &str) -> Seen {
    let seen = observe(argv, |config| config.functions = vec![function.parse().expect("a function")]);
    assert_eq!(seen.ended.status, 0);
    seen
}

/// The program's own log.
#[derive(Debug)]
struct Log {
    returned: f64,
    p50: f64,
    p99: f64,
    all: f64,
    burned: f64,
    slept: f64,
    waited: f64,
    left: f64,
    ended: f64,
}

fn calls(threads: u32, calls: u32) -> (Log, Seen) {
    let program = compile("gcc", "functions.c");
    let told = tempfile::NamedTempFile::new().expect("a file");
    let argv: [OsString; 4] =
        [program.clone().into(), threads.to_string().into(), calls.to_string().into(), told.path().into()];
    let seen = follow(&argv, "serve");
    std::fs::remove_file(program).expect("it was compiled");
    let text = std::fs::read_to_string(told.path()).expect("it was written");
    let figures: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [returned, p50, p99, all, burned, slept, waited, left, ended] = figures[..] else {
        panic!("{figures:?}")
    };
    (Log { returned, p50, p99, all, burned, slept, waited, left, ended }, seen)
}

/// Seconds of calls by what they went to.
fn parts(seen: &Seen) -> BTreeMap<String, f64> {
    let mut out = BTreeMap::new();
    for (t, r) in seen.rows("served_parts") {
        let doing = t.text(r, "doing").expect("an activity").to_owned();
        *out.entry(doing).or_default() += t.number(r, "seconds").expect("seconds");
    }
    out
}

fn note<'a>(seen: &'a Seen, holds: &str) -> Option<&'a String> {
    seen.notes.iter().find(|note| note.contains(holds))
}

#[test]
fn each_call_that_returns_is_counted_once() {
    let Some(_one) = allowed() else { return };
    let (log, seen) = calls(3, 100);
    assert_eq!((log.left, log.ended), (12.0, 3.0));
    assert_eq!(seen.sum("served", "count"), log.returned, "the outermost of each, to its end");
    let names: Vec<&str> = seen.rows("served").filter_map(|(t, r)| t.text(r, "request")).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == "calls of serve"), "{names:?}");
    let (all, parts) = (seen.sum("served", "seconds"), parts(&seen));
    let sum: f64 = parts.values().sum();
    assert!((sum - all).abs() < 1e-6 * all, "{sum} of {all}: {parts:?}");
    for doing in ["user code", "timer", "user lock"] {
        assert!(parts.get(doing).is_some_and(|ns| *ns > 0.0), "{doing}: {parts:?}");
    }
    assert!(seen.rows("slow_requests").count() > 0);
    assert!(
        note(&seen, "calls of functions of --request are not counted").is_some_and(|n| n.starts_with("12 "))
    );
}

#[test]
fn exceptions_pass_through_a_function_that_is_followed() {
    let Some(_one) = allowed() else { return };
    let program = compile("g++", "throws.cpp");
    for name in ["app::handle", "app::handle(int)"] {
        let seen = follow(&[program.clone().into()], name);
        assert_eq!(seen.sum("served", "count"), 150.0, "{name}");
    }
    std::fs::remove_file(program).expect("it was compiled");
}

#[test]
fn calls_end_where_they_jump_into_a_library() {
    let Some(_one) = allowed() else { return };
    let program = compile("gcc", "tail_call.c");
    let seen = follow(&[program.clone().into()], "serve");
    std::fs::remove_file(program).expect("it was compiled");
    assert_eq!(seen.sum("served", "count"), 200.0, "{:?}", seen.notes);
    assert!(note(&seen, "calls of serve may end by a jump into another file").is_some(), "{:?}", seen.notes);
    assert!(note(&seen, "are not counted: an exception").is_none(), "{:?}", seen.notes);
}

#[test]
fn functions_of_rust_are_followed_through_panics() {
    let Some(_one) = allowed() else { return };
    let seen = follow(&part("answers"), "functions::parts::answer");
    assert_eq!(seen.sum("served", "count"), 90.0, "{:?}", seen.notes);
}

#[test]
fn functions_of_libraries_are_named_with_them() {
    let Some(_one) = allowed() else { return };
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc is mapped");
    let name = format!("{libc}:clock_nanosleep");
    let seen = follow(&["/bin/sleep".into(), "0.01".into()], &name);
    assert_eq!(seen.sum("served", "count"), 1.0, "{:?}", seen.notes);
    let names: Vec<&str> = seen.rows("served").filter_map(|(t, r)| t.text(r, "request")).collect();
    assert!(names.iter().all(|shown| *shown == format!("calls of {name}")), "{names:?}");
}

#[test]
fn a_function_that_cannot_be_followed_has_a_note() {
    let Some(_one) = allowed() else { return };
    let seen = follow(&["/bin/true".into()], "no_such_function");
    assert!(note(&seen, "no calls of no_such_function").is_some(), "{:?}", seen.notes);
    let Some(program) = go("inlined.go", "-v") else { return };
    let seen = observe(&[program.clone().into()], |config| {
        config.functions = vec!["main.main".parse().expect("a function")];
    });
    std::fs::remove_file(program).expect("it was built");
    assert!(note(&seen, "goroutines move from thread to thread").is_some(), "{:?}", seen.notes);
    assert_eq!(seen.rows("served").count(), 0);
}

mod parts {
    /// Each tenth of its calls panics.
    #[inline(never)]
    fn answer(n: u32) -> u32 {
        assert!(std::hint::black_box(n) % 10 != 9, "each tenth");
        std::hint::black_box(n + 1)
    }

    #[test]
    #[ignore = "a part of another test"]
    fn answers() {
        std::panic::set_hook(Box::new(|_| {}));
        let panicked = (0..100).filter(|n| std::panic::catch_unwind(|| answer(*n)).is_err()).count();
        assert_eq!(panicked, 10);
    }
}

mod quiet {
    use common::part_within;
    use ncpu_trials::{MOST, hold};

    use super::*;

    #[test]
    fn times_and_parts_are_those_of_the_programs_own_log() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "calls of a function", || {
            let (log, seen) = calls(2, 500);
            let parts = parts(&seen);
            let part = |names: &[&str]| -> f64 { names.iter().filter_map(|name| parts.get(*name)).sum() };
            let [on, slept, waited] =
                [part(&["user code", "kernel code"]), part(&["timer"]), part(&["user lock"])];
            let all = seen.sum("served", "seconds");
            let line = format!(
                "{log:?}: {all:.4} s, {on:.4} on CPU, {slept:.4} asleep, {waited:.4} for the lock, {parts:?}"
            );
            eprintln!("{line}");
            for (seen, truth) in [(all, log.all), (on, log.burned), (slept, log.slept), (waited, log.waited)]
            {
                assert!((seen / truth - 1.0).abs() < 0.05, "{seen} of {truth}: {line}");
            }
            for (rank, us) in [(0.5, log.p50), (0.99, log.p99)] {
                assert!(
                    part_within(&seen, 0.95 * us) <= rank && part_within(&seen, 1.05 * us) >= rank,
                    "{rank}: {line}"
                );
            }
        });
    }
}

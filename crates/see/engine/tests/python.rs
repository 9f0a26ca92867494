//! Functions of Python by name, in programs whose functions' shares are given. Needs root and BPF, and Python 3.11 or
//! newer; skips with a message otherwise.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{allowed, observe};
use ncpu_trials::{MOST, hold};

/// The version of a Python whose frames are known.
fn version(python: &Path) -> Option<u32> {
    let told = Command::new(python).args(["-c", "import sys; print(*sys.version_info[:2])"]).output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().split_once(' ')?;
    minor.parse().ok().filter(|minor| major == "3" && (11..=15).contains(minor))
}

/// One Python of each version there is: the system's, and those that pyenv has.
fn pythons() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let pyenv = std::fs::read_dir(Path::new(&home).join(".pyenv/versions")).into_iter().flatten().flatten();
    let all = std::iter::once("/usr/bin/python3".into()).chain(pyenv.map(|v| v.path().join("bin/python3")));
    let mut found: Vec<(u32, PathBuf)> = all.filter_map(|p| Some((version(&p)?, p))).collect();
    found.dedup_by_key(|(version, _)| *version);
    if found.is_empty() {
        eprintln!("skipped: no Python from 3.11 to 3.15");
    }
    found.into_iter().map(|(_, path)| path).collect()
}

fn program() -> OsString {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/functions.py").into()
}

#[test]
fn a_program_that_loads_python_late_is_met() {
    let Some(_one) = allowed() else { return };
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("late-python-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/late_python.c");
    let done =
        Command::new("gcc").args(["-O2", "-Wall", "-Werror", "-o"]).arg(&to).arg(source).arg("-ldl").status();
    assert!(done.expect("gcc").success());
    let seen = observe(&[to.clone().into()], |_| {});
    std::fs::remove_file(to).expect("it was compiled");
    if seen.ended.status == 77 {
        eprintln!("skipped: no libpython3.11.so.1.0");
        return;
    }
    assert_eq!(seen.ended.status, 0);
    let found = seen.seconds_below("on-cpu", "late_burn (<string>:2)");
    assert!(found > 0.1, "{found} of 1 s: {:#?}", seen.stacks());
}

mod quiet {
    use super::*;

    #[test]
    fn functions_have_the_shares_that_are_given() {
        let Some(_one) = allowed() else { return };
        for python in pythons() {
            hold(MOST, &format!("{python:?}"), || {
                let seen = observe(&[python.clone().into(), program()], |_| {});
                assert_eq!(seen.ended.status, 0, "{python:?}");
                let stacks = || seen.stacks();
                // Shares of all of them, since a clock of CPU time may run slower than that of samples.
                let units = |frame: &str| seen.seconds_below("on-cpu", frame);
                let truth = [
                    ("plain (functions.py:", 2.0),
                    ("key (functions.py:", 1.0),
                    ("called_by_c (functions.py:", 1.0),
                    ("replacement (functions.py:", 1.0),
                    ("called_by_re (functions.py:", 1.0),
                    ("generator (functions.py:", 1.0),
                    ("deep (functions.py:", 1.0),
                    ("Shape.method (functions.py:", 1.0),
                    ("thread (functions.py:", 2.0),
                    ("forked (functions.py:", 1.0),
                    ("\u{fffd}[31mred\u{fffd}line:\u{fffd}\u{20ac}nnn", 1.0),
                ];
                // It takes a moment until a program is known to be one of Python.
                let all = units("burn (functions.py:") - units("settle (functions.py:");
                let of_all = 11.0;
                assert!(all > 0.8 * of_all * 0.15, "{python:?}: {all} s: {:#?}", stacks());
                for (frame, share) in truth {
                    let found = units(frame) / all * of_all;
                    println!("{python:?}: {frame}: {found:.2}, in truth {share}");
                    assert!((found - share).abs() < 0.35, "{python:?}: {frame}: {found} of {all} s");
                }
                // Callers come before their callees; callers without room are summed up as `[deeper]`.
                let order = "main (functions.py:";
                let called = |stack: &str| stack.find(order).zip(stack.find("plain (functions.py:"));
                let found =
                    seen.rows("stacks").filter_map(|(t, r)| called(t.text(r, "stack")?)).collect::<Vec<_>>();
                assert!(
                    !found.is_empty() && found.iter().all(|(main, plain)| main < plain),
                    "{python:?}: {found:?}"
                );
                let deepest = seen.seconds_below("on-cpu", "[deeper]");
                assert!((deepest / all * of_all - 1.0).abs() < 0.35, "{python:?}: {deepest} of {all} s");
                let asleep = seen.seconds_below("off-cpu", "nap (functions.py:");
                assert!(asleep > 0.29, "{python:?}: {asleep}: {:#?}", stacks());
                // No name contains control characters, which a terminal would obey.
                assert!(stacks().iter().all(|s| !s.chars().any(char::is_control)), "{:#?}", stacks());
                let path = |(t, r): (&ncpu_table::Table, usize)| t.text(r, "code").unwrap_or("").to_string();
                let codes: Vec<String> = seen.rows("critical_path").map(path).collect();
                let named = codes.iter().any(|code| code.starts_with("nap (functions.py:"));
                assert!(named, "{python:?}: {codes:#?}");
            });
        }
    }
}

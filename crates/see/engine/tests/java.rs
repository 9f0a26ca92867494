//! Functions of Java by name, in a program whose functions' shares are given: interpreted, and compiled by either
//! compiler of each installed Java, without any option that was given for it. Needs root and BPF, and a Java on x86-64;
//! skips with a message otherwise.
#![cfg(target_arch = "x86_64")]

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{allowed, observe};
use ncpu_trials::{MOST, hold};

/// The Java of the path, and those that Debian and others put where all of them are.
fn javas() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let all = all.map(|dir| dir.path().join("bin/java")).filter_map(|java| java.canonicalize().ok());
    let mut found: Vec<PathBuf> = all.collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        found.push("java".into());
    }
    found
}

/// One run of the program; `all_inlines`: where it has names for inlined functions at each instruction.
fn shares_are_those_given(argv: &[OsString], all_inlines: bool) {
    let seen = observe(argv, |_| {});
    assert_eq!(seen.ended.status, 0, "{argv:?}");
    let stacks = || seen.stacks();
    let units = |frame: &str| seen.seconds_below("on-cpu", frame);
    let truth = [
        ("Functions.plain", 2.0),
        ("Functions.deep", 1.0),
        ("Functions$Round.draw", 1.0),
        ("Functions.reflected", 1.0),
        ("Functions.key", 1.0),
        ("Functions.lambda$main$", 1.0),
        ("Functions.inlines", 2.0),
        ("Functions.thread", 2.0),
    ];
    // Compiled code describes its inlined functions where it can be stopped, and elsewhere only with an
    // option.
    let small = all_inlines.then_some(("Functions.small", 2.0));
    // It takes a moment until a program is known to be one of Java.
    let all = units("Functions.burn") + units("Functions.inlines") - units("Functions.settle");
    let of_all = 11.0;
    assert!(all > 0.8 * of_all * 0.1, "{argv:?}: {all} s: {:#?}", stacks());
    for (frame, share) in truth.into_iter().chain(small) {
        let found = units(frame) / all * of_all;
        println!("{argv:?}: {frame}: {found:.2}, in truth {share}");
        assert!((found - share).abs() < 0.4, "{argv:?}: {frame}: {found} of {all} s: {:#?}", stacks());
    }
    // Callers come before what they call, and 101 times what calls itself.
    let of_deep: Vec<(usize, bool)> = (seen.rows("stacks"))
        .filter(|(t, r)| t.text(*r, "kind") == Some("on-cpu"))
        .filter_map(|(t, r)| t.text(r, "stack").filter(|s| s.contains("Functions.deep")).map(String::from))
        .map(|s| (s.matches("Functions.deep").count(), s.find("Functions.main") < s.find("Functions.deep")))
        .collect();
    assert!(of_deep.iter().all(|(_, order)| *order), "{argv:?}: {of_deep:?}: {:#?}", stacks());
    assert!(of_deep.iter().any(|(count, _)| *count == 101), "{argv:?}: {of_deep:?}");
    let asleep = seen.seconds_below("off-cpu", "Functions.nap");
    assert!(asleep > 0.25 && asleep < 1.0, "{argv:?}: {asleep}: {:#?}", stacks());
    let sum = |name: &str| -> f64 {
        let of = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "event") == Some(name);
        seen.rows("events").filter(of).filter_map(|(t, r)| t.number(r, "count")).sum()
    };
    let (stacks, whole) = (sum("stacks unwound"), sum("stacks whole"));
    println!("{argv:?}: {whole} of {stacks} whole");
    assert!(stacks > 50.0 && whole > 0.9 * stacks, "{argv:?}: {whole} of {stacks}");
}

mod quiet {
    use super::*;

    #[test]
    fn functions_have_the_shares_that_are_given() {
        let Some(_one) = allowed() else { return };
        let there =
            |tool: &str| Command::new(tool).arg("-version").output().is_ok_and(|o| o.status.success());
        if !there("javac") {
            return eprintln!("skipped: no javac");
        }
        let classes =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("java-functions-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Functions.java");
        // The oldest Java that is looked at can run it, too.
        let done = Command::new("javac").args(["--release", "11", "-d"]).arg(&classes).arg(source).output();
        assert!(done.expect("javac").status.success());
        let options: [&[&str]; 5] = [
            &[],
            &["-Xint"],
            &["-XX:TieredStopAtLevel=1"],
            &["-XX:+PreserveFramePointer"],
            &["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"],
        ];
        for (java, options) in javas().iter().flat_map(|java| options.map(|options| (java, options))) {
            let argv: Vec<OsString> = std::iter::once(java.clone().into())
                .chain(options.iter().map(Into::into))
                .chain(["-cp".into(), classes.clone().into(), "Functions".into()])
                .collect();
            hold(MOST, &format!("{argv:?}"), || {
                shares_are_those_given(&argv, options.last() == Some(&"-XX:+DebugNonSafepoints"))
            });
        }
        std::fs::remove_dir_all(classes).expect("they were compiled");
    }
}

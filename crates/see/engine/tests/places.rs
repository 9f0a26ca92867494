//! Places of sleep that frame pointers do not distinguish. Needs root and BPF on x86-64; skips with a message
//! otherwise.
#![cfg(target_arch = "x86_64")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{allowed, observe};

#[test]
fn callers_at_the_same_depth_have_each_their_sleeps() {
    let Some(_one) = allowed() else { return };
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("places-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/places.c");
    let done = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-fomit-frame-pointer", "-o"])
        .arg(&to)
        .arg(source)
        .status();
    assert!(done.expect("gcc").success());
    let seen = observe(&[to.clone().into()], |_| {});
    std::fs::remove_file(to).expect("it was compiled");
    assert_eq!(seen.ended.status, 0);
    let [long, brief] = ["sleeps_long", "sleeps_briefly"]
        .map(|frame| seen.seconds_in("off-cpu", |stack| stack.split(';').any(|f| f == frame)));
    let stacks = seen.stacks();
    // Three quarters are the long sleeps', less where others have the CPUs and each sleep ends late. The first sleeps
    // may have no callers: how to unwind a program is read as it begins.
    assert!(long > 0.6 && brief > 0.2, "{long} {brief}: {stacks:#?}");
    assert!((0.55..0.85).contains(&(long / (long + brief))), "{long} {brief}: {stacks:#?}");
}

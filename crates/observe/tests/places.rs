//! Places of sleep that frame pointers do not tell apart. Needs root and BPF on x86-64; says so and passes where there are none.
#![cfg(target_arch = "x86_64")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Seen, allowed, observe};

fn within(seen: &Seen, frame: &str) -> f64 {
    let of = |(t, r): &(&ncpu_table::Table, usize)| {
        let stack = t.text(*r, "stack").unwrap_or("");
        t.text(*r, "kind") == Some("off-cpu") && stack.split(';').any(|f| f == frame)
    };
    seen.rows("stacks").filter(of).filter_map(|(t, r)| t.number(r, "seconds")).sum()
}

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
    let (long, brief) = (within(&seen, "sleeps_long"), within(&seen, "sleeps_briefly"));
    let stacks: Vec<_> =
        seen.rows("stacks").map(|(t, r)| (t.text(r, "stack"), t.number(r, "seconds"))).collect();
    // A sleep takes as long as it asks for at least; some are longer where the CPUs are others'.
    assert!(long > 1.1 && brief > 0.38, "{long} {brief}: {stacks:#?}");
    assert!(long < 0.85 * (long + brief) && long < 2.0, "{long} {brief}: {stacks:#?}");
}

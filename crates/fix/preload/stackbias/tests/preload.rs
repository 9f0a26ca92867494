//! A C program with and without the library: threads run as usual, at other offsets of their pages.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use std::collections::BTreeSet;

use programs::{out, text};

#[test]
fn stacks_begin_at_different_offsets() {
    let program = programs::compiled("stacks", "tests/c/stacks.c", &[]);
    let library = programs::library("libncpu_stackbias.so");
    let run = |preload: bool, span: &str| {
        let libraries = if preload { vec![library.as_path()] } else { vec![] };
        let span = [("NCPU_STACKBIAS_SPAN", span)];
        programs::with(&libraries, &span, 60).arg(&program).output().expect("timeout")
    };
    let offsets =
        |o: &std::process::Output| -> BTreeSet<u32> { out(o).lines().map(|l| l.parse().unwrap()).collect() };
    let (with, without, off) = (run(true, ""), run(false, ""), run(true, "0"));
    for each in [&with, &without, &off] {
        assert_eq!(text(&each.stderr), "exited 7\nsmall 0\nreturned 9\n");
    }
    // In a row, each thread gets the stack of the previous one: they all begin at the same offset.
    assert_eq!(offsets(&without).len(), 1);
    assert_eq!(offsets(&off).len(), 1);
    let lines: BTreeSet<u32> = offsets(&with).iter().map(|o| o / 64).collect();
    assert!(lines.len() >= 28, "{lines:?}");
}

//! A C program with and without the library: its results are the same, and its memory lies on huge pages.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use std::process::Output;

use programs::{out, text};

fn run(preload: bool) -> Output {
    let program = programs::compiled("memory", "tests/c/memory.c", &[]);
    let library = programs::library("libncpu_hugepages.so");
    let libraries = if preload { vec![library.as_path()] } else { vec![] };
    let tunables = [("GLIBC_TUNABLES", if preload { "glibc.malloc.hugetlb=1" } else { "" })];
    programs::with(&libraries, &tunables, 60).arg(program).output().expect("timeout")
}

/// The share of an object on huge pages, as the program read it of itself.
fn share(errors: &str, what: &str) -> f64 {
    let line = errors.lines().find(|l| l.starts_with(what)).unwrap_or_else(|| panic!("{what}: {errors}"));
    let mut numbers = line.split(' ').skip(1).map(|n| n.parse::<f64>().unwrap());
    numbers.next().unwrap() / numbers.next().unwrap().max(1.0)
}

#[test]
fn results_are_the_same_and_memory_is_huge() {
    let (with, without) = (run(true), run(false));
    assert_eq!(out(&with), out(&without), "{}", text(&with.stderr));
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.is_empty() || enabled.contains("[never]") {
        return eprintln!("skipped: this machine has no transparent huge pages");
    }
    let errors = text(&with.stderr);
    for (what, least) in [("mmap", 0.95), ("pieces", 0.95), ("heap", 0.85), ("stack", 0.6)] {
        assert!(share(&errors, what) >= least, "{what}: {errors}");
    }
    if enabled.contains("[madvise]") {
        assert_eq!(share(&text(&without.stderr), "mmap"), 0.0, "the program asks for none itself");
    }
}

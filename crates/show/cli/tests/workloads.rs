//! The programs that `make run` observes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn workloads() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../workloads")
}

fn output(program: &Path, args: &str) -> Output {
    Command::new(program).args(args.split_whitespace()).output().unwrap()
}

fn refused(program: &Path, args: &str, word: &str) {
    let out = output(program, args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{args}: {said}");
    assert!(said.contains(word), "{args}: {said}");
}

#[test]
fn the_torture_counts_in_all_three_ways() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fdtorture");
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(workloads().join("fdtorture.c"))
        .status()
        .unwrap();
    assert!(compiled.success());
    for (args, what) in [
        ("3 0.2", "3 threads, one descriptor table:"),
        ("--processes 3 0.2", "3 processes, a descriptor table each:"),
        ("--unshare 3 0.2", "3 threads, a descriptor table each:"),
    ] {
        let out = output(&program, args);
        assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
        let said = String::from_utf8(out.stdout).unwrap();
        let rate = said.strip_prefix(what).and_then(|s| s.split_whitespace().next()?.parse::<u64>().ok());
        assert!(rate.is_some_and(|r| r > 0), "{args}: {said}");
    }
    refused(&program, "4", "usage");
    refused(&program, "0 1", "WORKERS `0`");
    refused(&program, "4 soon", "SECONDS `soon`");
    refused(&program, "--fork 4 1", "`--fork`");
    refused(&program, "--unshare --processes 4 1", "one of");
}

#[test]
fn the_build_refuses_what_it_cannot_do() {
    let program = workloads().join("build.sh");
    refused(&program, "-j 0", "JOBS `0`");
    refused(&program, "-n many", "REPEAT `many`");
    refused(&program, "-c no-such-compiler", "no-such-compiler: not found");
    refused(&program, "-s /", "no libbpf");
    refused(&program, "twice", "`twice`");
}

#[test]
fn memory_is_given_back_in_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("munmap");
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(workloads().join("munmap.c"))
        .status()
        .unwrap();
    assert!(compiled.success());
    for (args, what) in [
        ("3 0.2", "3 threads, one address space: 1 page(s) mapped, touched and unmapped "),
        ("--processes --pages 4 3 0.2", "3 processes, an address space each: 4 page(s) mapped"),
        ("--madvise 3 0.2", "3 threads, one address space: 1 page(s) touched and given back "),
        ("--keep 3 0.2", "3 threads, one address space: 1 page(s) touched "),
    ] {
        let out = output(&program, args);
        assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
        let said = String::from_utf8(out.stdout).unwrap();
        let rate =
            said.trim().strip_suffix(" times/s").and_then(|s| s.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(said.starts_with(what) && rate.is_some_and(|r| r > 0), "{args}: {said}");
    }
    refused(&program, "4", "usage");
    refused(&program, "0 1", "WORKERS `0`");
    refused(&program, "--pages 0 4 1", "N `0`");
    refused(&program, "--keep --madvise 4 1", "one of");
    refused(&program, "--fork 4 1", "`--fork`");
}

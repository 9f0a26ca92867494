//! `ncpu memory` as it is run.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn ncpu(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.arg("memory").args(args);
    command
}

fn shown(output: &Output) -> (String, String) {
    assert!(output.status.success(), "{}", common::err(output));
    (common::out(output), common::err(output))
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: physical pages are shown to root only");
    }
    root
}

#[test]
fn the_summary_has_the_columns_of_memstat_and_adds_up() {
    let (out, _) = shown(&ncpu(&[]).output().unwrap());
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["Page", "Summary", "Pages", "MB", "%Tot"]);
    let total = lines.iter().position(|l| l.starts_with("Total")).unwrap();
    let pages = |line: &str| line[16..33].trim().parse::<u64>().unwrap();
    assert_eq!(lines[2..total].iter().map(|l| pages(l)).sum::<u64>(), pages(lines[total]));
}

#[test]
fn anyone_gets_an_estimate_and_is_told() {
    let mut command = ncpu(&[]);
    if rustix::process::geteuid().is_root() {
        command.uid(65534);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: nobody may not run {}: {e}", env!("CARGO_BIN_EXE_ncpu"));
            return;
        }
    };
    let (out, err) = shown(&output);
    assert!(err.contains("an estimate from /proc/meminfo: "), "{err}");
    assert!(out.contains("\nTotal ") && out.contains("\nFree "), "{out}");
}

#[test]
fn mistakes_are_told_before_the_look() {
    for (args, word) in [
        (&["-k", "nothing"][..], "its columns are time, node, class"),
        (&["--pfns", "9-1"], "invalid range of page frames"),
        (&["--walk", "-k", "pfn"], "cannot be used with"),
        (&["1", "0"], "0 reports"),
    ] {
        let output = ncpu(args).output().unwrap();
        assert!(!output.status.success() && common::err(&output).contains(word), "{}", common::err(&output));
    }
}

#[test]
fn reports_repeat_with_their_time_and_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("r.ncpu");
    let args = ["0.01", "3", "--source", "meminfo", "-o", "csv", "--record", at.to_str().unwrap()];
    let (out, _) = shown(&ncpu(&args).output().unwrap());
    let mut times: Vec<&str> = out.lines().skip(1).filter_map(|l| l.split(',').next()).collect();
    times.dedup();
    assert_eq!(times.len(), 3, "{out}");
    assert!(at.join("manifest.json").exists());
}

#[test]
fn pages_stream_in_every_format() {
    if !root() {
        return;
    }
    let iomem = std::fs::read_to_string("/proc/iomem").unwrap();
    let line = iomem.lines().rfind(|l| l.ends_with(": System RAM")).unwrap();
    let first = u64::from_str_radix(line.trim().split('-').next().unwrap(), 16).unwrap() / 4096;
    let range = format!("{first}-{}", first + 1000);
    let rows = |format| shown(&ncpu(&["--walk", "--pfns", &range, "-o", format]).output().unwrap()).0;
    assert_eq!(rows("csv").lines().count(), 1001);
    assert_eq!(rows("json").lines().count(), 1000);
    assert_eq!(rows("text").lines().count(), 1001);
    let output = ncpu(&["--walk", "--pfns", &range, "-o", "parquet"]).output().unwrap();
    assert!(output.stdout.starts_with(b"PAR1") && output.stdout.ends_with(b"PAR1"));
    let (out, _) = shown(&ncpu(&["--walk", "--top", "7", "-o", "csv"]).output().unwrap());
    assert_eq!(out.lines().count(), 8);
}

#[test]
fn the_largest_owners_come_first() {
    if !root() {
        return;
    }
    for by in ["process", "cgroup", "file"] {
        let output = ncpu(&["--by", by, "-o", "json"]).output().unwrap();
        let (out, _) = shown(&output);
        assert!(out.lines().count() >= 1, "--by {by} shows nothing");
    }
}

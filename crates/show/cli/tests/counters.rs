//! `ncpu counters` as a user meets it.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use common::{err, out};

fn ncpu(args: &[&str]) -> Output {
    common::ncpu(&[&["counters"], args].concat())
}

/// Whether a program may be counted here at all, with the kernel if `kernel`.
fn allowed(kernel: bool) -> bool {
    let o = ncpu(&["-e", if kernel { "context-switches" } else { "page-faults" }, "--", "true"]);
    if !o.status.success() {
        println!("skipped: {}", err(&o));
    }
    o.status.success()
}

fn hardware() -> bool {
    ["cpu", "cpu_core"]
        .iter()
        .any(|pmu| std::path::Path::new("/sys/bus/event_source/devices").join(pmu).exists())
}

#[test]
fn a_command_is_counted_and_its_status_passed_on() {
    if !allowed(false) {
        return;
    }
    let o = ncpu(&["-e", "page-faults,task-clock", "--", "sh", "-c", "echo hello; exit 7"]);
    assert_eq!((o.status.code(), out(&o).as_str()), (Some(7), "hello\n"));
    let said = err(&o);
    let faults = said.lines().find(|l| l.contains("page-faults")).unwrap();
    assert!(faults.split_whitespace().next().unwrap().parse::<u64>().unwrap() > 0, "{said}");
    assert!(said.contains("CPUs used") && said.contains("s elapsed"), "{said}");
    assert_eq!(ncpu(&["-e", "page-faults", "--", "no-such-program"]).status.code(), Some(127));
}

#[test]
fn formats_of_machines_go_to_stdout() {
    if !allowed(false) {
        return;
    }
    let o = ncpu(&["-e", "page-faults", "-o", "csv", "--", "true"]);
    let text = out(&o);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "event,count,unit,enabled,counted"));
    assert!(lines[1].starts_with("page-faults,") && lines[1].ends_with(",100.0"), "{text}");
}

#[test]
fn the_solaris_example() {
    if !allowed(true) {
        return;
    }
    // mpstat -k intr -A 4 -m 10 5, of counters.
    let o = ncpu(&["-e", "cs,page-faults", "-k", "cs", "-A", "4", "-m", "0.05", "2"]);
    let text = out(&o);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(text.lines().filter(|l| l.starts_with("band")).count(), 2, "{text}");
    assert!(text.contains("1/"), "{text}");
    let o = ncpu(&["-e", "cs", "--by", "node", "0.05", "1"]);
    assert!(out(&o).starts_with("node"), "{}{}", out(&o), err(&o));
    let o = ncpu(&["-e", "cs", "-o", "json", "0.05", "3"]);
    assert!(out(&o).lines().all(|l| l.starts_with("{\"time\":") && l.contains("\"cpu\":")), "{}", out(&o));
}

#[test]
fn a_process_and_its_end() {
    if !allowed(true) {
        return;
    }
    // It ends when we say so: after the first report.
    let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = cat.id().to_string();
    let mut counters = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["counters", "-e", "cs", "-o", "csv", "-p", &pid, "0.05"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(counters.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "event,count,unit,enabled,counted");
    assert!(lines.next().unwrap().unwrap().starts_with("cs,"));
    drop(cat.stdin.take());
    cat.wait().unwrap();
    // It sees the end and goes.
    assert!(lines.all(|l| l.unwrap().starts_with("cs,")));
    assert!(counters.wait().unwrap().success());
    let o = ncpu(&["-p", "4999999"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("there is no process 4999999"), "{}", err(&o));
}

#[test]
fn what_cannot_be_counted_is_told_in_one_line() {
    let o = ncpu(&["-e", "cycels"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("`cycels`: unknown event"), "{}", err(&o));
    assert_eq!(err(&o).lines().count(), 1);
    let o = ncpu(&["-c", "no/such/group"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cgroup no/such/group"), "{}", err(&o));
    for args in [&["-m"][..], &["0"], &["1", "0"], &["--core", "--tlb"], &["-p", "1", "--", "true"]] {
        assert!(!ncpu(args).status.success(), "{args:?}");
    }
    if hardware() || !allowed(true) {
        return;
    }
    let o = ncpu(&["-e", "cycles,cs,LLC-loads", "--", "true"]);
    assert!(o.status.success());
    assert!(err(&o).contains("ncpu: cycles, LLC-loads: this machine shows no hardware PMU"), "{}", err(&o));
    for view in ["--core", "--tlb", "--memory"] {
        let o = ncpu(&[view]);
        assert_eq!(o.status.code(), Some(1));
        assert!(err(&o).starts_with("ncpu: nothing to count: cycles"), "{}", err(&o));
    }
}

#[test]
fn the_list_of_this_machine_and_of_another() {
    let o = ncpu(&["--list"]);
    let text = out(&o);
    assert!(o.status.success() && text.contains("context-switches"), "{}", err(&o));
    assert_eq!(text.lines().any(|l| l.starts_with("cycles ")), hardware());
    assert_eq!(ncpu(&["--list", "no-such-*"]).status.code(), Some(1));

    let root = tempfile::tempdir().unwrap();
    let pmu = root.path().join("sys/bus/event_source/devices/cpu");
    for (file, text) in [("type", "4"), ("format/event", "config:0-7"), ("events/uops", "event=0x0e")] {
        ncpu_machine_trees::put(&pmu, file, text);
    }
    let o = ncpu(&["--list", "--root", root.path().to_str().unwrap()]);
    let text = out(&o);
    assert!(text.contains("cpu/uops/") && text.contains("event=0x0e"), "{text}");
    assert!(text.contains("LLC-load-misses") && text.contains("cpu/FIELD=N,.../  fields: event"), "{text}");
}

#[test]
fn a_recording_holds_the_counts() {
    if !allowed(false) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.ncpu");
    let path = path.to_str().unwrap();
    let o = ncpu(&["-e", "page-faults", "--record", path, "--", "true"]);
    assert!(o.status.success(), "{}", err(&o));
    let again = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["report", path, "--table", "counters"])
        .output()
        .unwrap();
    assert!(out(&again).contains("page-faults"), "{}{}", out(&again), err(&again));
}

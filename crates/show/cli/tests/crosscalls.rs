//! `ncpu crosscalls` as a user meets it.

mod common;

use std::process::{Command, Output};

use common::{err, ncpu, out, root};

fn hiding(tracepoints: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.args(args).env("COLUMNS", "100").env("NCPU_HIDE_TRACEPOINTS", tracepoints).output().unwrap()
}

#[test]
fn the_commands_status_is_passed_on_and_the_sums_are_told() {
    if !root() {
        return;
    }
    let o = ncpu(&["crosscalls", "--", "sh", "-c", "true & exit 3"]);
    assert_eq!(o.status.code(), Some(3), "{}", err(&o));
    assert!(err(&o).contains("calls/s"), "{}", err(&o));
    let o = ncpu(&["xcall", "--", "no-such-program"]);
    assert_eq!(o.status.code(), Some(127), "{}", err(&o));
    assert!(err(&o).contains("command not found"), "{}", err(&o));
}

#[test]
fn every_way_to_put_rows_together() {
    if !root() {
        return;
    }
    for (by, column) in [
        ("caller", "caller"),
        ("process", "process"),
        ("cpu", "CPU"),
        ("syscall", "call"),
        ("cause", "function"),
    ] {
        let o = ncpu(&["crosscalls", "--by", by, "-o", "csv", "0.3"]);
        assert!(o.status.success(), "{by}: {}", err(&o));
        let head = out(&o).lines().next().unwrap_or_default().to_string();
        assert!(head.split(',').any(|c| c == column), "{by}: {head}");
    }
    let o = ncpu(&["crosscalls", "-k", "calls", "--top", "1", "-o", "json", "0.3"]);
    assert!(o.status.success() && out(&o).lines().count() <= 1, "{}", out(&o));
}

#[test]
fn a_recording_holds_the_tables() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("x.ncpu");
    let o = ncpu(&["crosscalls", "--packages", "2", "--record", recording.to_str().unwrap(), "0.3"]);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(&["report", recording.to_str().unwrap(), "--table", "crosscall_summary", "-o", "json"]);
    assert!(out(&o).contains("\"packages\":"), "{}{}", out(&o), err(&o));
}

#[test]
fn a_missing_tracepoint_takes_its_columns_and_leaves_the_rest() {
    if !root() || !cfg!(target_arch = "x86_64") {
        return;
    }
    for (tracepoints, word) in [
        ("csd_queue_cpu", "which function a call runs"),
        ("ipi_send_cpu", "reschedules sent"),
        ("csd_queue_cpu,ipi_send_cpu", "targets of each call"),
        ("tlb_flush", "reasons of flushes"),
        ("call_function_single_entry", "time at receivers"),
    ] {
        let o = hiding(tracepoints, &["crosscalls", "0.2"]);
        assert!(o.status.success(), "{tracepoints}: {}", err(&o));
        assert!(out(&o).contains(word) && out(&o).contains("calls/s"), "{tracepoints}: {}", out(&o));
    }
    let o = hiding("csd_queue_cpu,ipi_send_cpu,tlb_flush", &["crosscalls", "0.2"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("ipi_send_cpu or tlb_flush"), "{}", err(&o));
}

#[test]
fn who_is_gone_and_what_makes_no_sense() {
    let o = ncpu(&["crosscalls", "-p", "4999999", "1"]);
    assert!(err(&o).contains("there is no process 4999999"), "{}", err(&o));
    let o = ncpu(&["crosscalls", "0"]);
    assert!(!o.status.success() && !err(&o).is_empty());
    let o = ncpu(&["crosscalls", "--packages", "0", "1"]);
    assert_eq!(o.status.code(), Some(2), "{}", err(&o));
    if !root() {
        return;
    }
    // A process that ends midway ends the observation, long before its time.
    let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
    let o = ncpu(&["crosscalls", "-p", &child.id().to_string(), "3600"]);
    child.wait().unwrap();
    assert!(o.status.success() && out(&o).contains("calls/s"), "{}{}", out(&o), err(&o));
}

#[test]
fn without_root_it_says_what_is_missing() {
    common::needs_root(&[&["crosscalls", "1"]]);
}

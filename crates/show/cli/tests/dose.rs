//! `ncpu dose`: its arguments, and whole ways through it. What its figures are worth is measured by benches/dose.sh, on a calm
//! machine; here no figure is looked at.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{err, ncpu, needs_root, out, root, unbroken};

#[test]
fn arguments_that_cannot_be_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let ran = ran.to_str().unwrap();
    for (arguments, words) in [
        (&["dose"][..], "required"),
        (&["dose", "-p", "1", "--", "touch", ran], "cannot be used with"),
        (&["dose", "--window", "5", "--", "touch", ran], "50..=500"),
        (&["dose", "--most-slowdown", "x", "--", "touch", ran], "expected a percentage"),
        (&["dose", "--table", "nosuch", "--", "touch", ran], "unknown table `nosuch`"),
        (&["dose", "-k", "nosuch", "--", "touch", ran], "no column `nosuch`"),
        (&["dose", "-p", "1", "--metric", "x(.)"], "--metric-url or --count"),
    ] {
        let o = ncpu(arguments);
        let said = unbroken(&err(&o));
        assert!(!o.status.success() && said.contains(words), "{arguments:?}: {said}");
        assert!(!Path::new(ran).exists(), "{arguments:?} ran the command");
    }
}

#[test]
fn without_rights_it_says_so() {
    needs_root(&[&["dose", "--", "true"]]);
}

#[test]
fn places_and_processes_that_are_not_there() {
    if !root() {
        return;
    }
    for (arguments, words) in [
        (&["dose", "-p", "4194303"][..], "there is no process 4194303"),
        (&["dose", "--place", "disk", "--", "sleep", "60"], "unknown place; expected one of lock:NAME"),
        (&["dose", "--place", "call:nosuch", "--", "sleep", "60"], "unknown system call `nosuch`"),
        (&["dose", "--place", "function:no_such_here", "--", "sleep", "60"], "no symbol `no_such_here`"),
        (&["dose", "--metric-url", "ftp://x/", "--", "sleep", "60"], "expected http://HOST:PORT/PATH#NAME"),
        (&["dose", "--metric-url", "file:///no/such", "--", "sleep", "60"], "--metric-url: /no/such"),
        (&["dose", "--", "no-such-command-here"], "command not found"),
        (&["dose", "--runs", "--", "false"], "the command fails as it is"),
    ] {
        let o = ncpu(arguments);
        let said = unbroken(&err(&o));
        assert!(!o.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_command_is_measured_by_its_calls() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("dose.ncpu");
    let record = record.to_str().unwrap();
    let copy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "status=none"];
    let arguments = [
        "dose",
        "--for",
        "4",
        "--place",
        "call:read",
        "--count",
        "write",
        "-o",
        "json",
        "--record",
        record,
        "--",
    ];
    let o = ncpu(&[&arguments[..], &copy[..]].concat());
    assert!(o.status.success(), "{}", err(&o));
    let rows: Vec<serde_json::Value> = out(&o).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0]["kind"].as_str(), rows[0]["name"].as_str()), (Some("system call"), Some("read")));
    let text = ncpu(&["report", record, "--table", "dose_program", "-o", "json"]);
    assert!(text.status.success(), "{}", err(&text));
    let program: serde_json::Value = serde_json::from_str(out(&text).trim()).unwrap();
    assert_eq!(program["metric"].as_str(), Some("write calls"));
}

#[test]
fn a_process_is_left_as_it_was() {
    if !root() {
        return;
    }
    let mut copier = Command::new("dd")
        .args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = copier.id().to_string();
    let o = ncpu(&["dose", "-p", &pid, "--for", "3", "--place", "call:write", "--count", "read"]);
    let affinity = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).map(str::trim).map(str::to_owned)
    };
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let after = affinity();
    let ended = copier.try_wait().unwrap();
    copier.kill().unwrap();
    copier.wait().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(ended, None, "the process runs on");
    assert!(own.contains(&format!("Cpus_allowed_list:\t{}\n", after.unwrap())));
    let said = out(&o);
    assert!(said.contains("read calls a second") && said.contains("system call write"), "{said}");
    assert!(said.contains("a running service is not confined"), "{said}");
}

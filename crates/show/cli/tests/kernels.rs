//! Kernels that cannot load the engine, which this one plays by hiding a feature: docs/kernels.md.

mod common;

use std::process::{Command, Output};

use common::{err, out, root};

/// Runs a command where the kernel has no BPF task storage.
fn on_old_kernel(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.args(args).env("COLUMNS", "140").env("NCPU_HIDE_FEATURES", "BPF_MAP_TYPE_TASK_STORAGE");
    command.output().unwrap()
}

/// All that it said, in a line.
fn said(o: &Output) -> String {
    format!("{} {}", out(o), err(o)).split_whitespace().collect::<Vec<_>>().join(" ")
}

const LACKS: &str = "has no BPF task storage, which came with Linux 5.11";

#[test]
fn what_observes_falls_back_and_says_so_in_one_line() {
    if !root() {
        return;
    }
    for args in [
        &["run", "--", "true"][..],
        &["watch", "0.3"],
        &["locks", "--", "true"],
        &["locks", "0.3"],
        &["threads", "0.2", "1"],
        &["crosscalls", "--", "true"],
        &["crosscalls", "0.2"],
    ] {
        let o = on_old_kernel(args);
        let said = said(&o);
        assert!(o.status.success(), "{args:?}: {said}");
        assert_eq!(said.matches(LACKS).count(), 1, "{args:?}: {said}");
        assert!(!said.contains("libbpf") && !said.contains("os error"), "{args:?}: {said}");
    }
}

#[test]
fn nothing_is_said_not_to_be_there_that_was_not_looked_for() {
    if !root() {
        return;
    }
    let said = said(&on_old_kernel(&["locks", "--", "true"]));
    assert!(!said.contains("was contended") && !said.contains("was waited for"), "{said}");
    let o = on_old_kernel(&["crosscalls", "0.2"]);
    let said = self::said(&o);
    assert!(said.contains("cross-calls/s received") && !said.contains("no cross-call was sent"), "{said}");
    // Unknown figures are empty, not 0.
    let o = on_old_kernel(&["crosscalls", "--by", "cpu", "-o", "csv", "0.2"]);
    let (text, received) =
        (out(&o), |line: &str| line.split(',').nth(6).is_some_and(|n| n.parse::<u64>().is_ok()));
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.split(',').nth(2) == Some("") && received(row)),
        "{text}"
    );
}

#[test]
fn the_layers_of_the_machine_sum_to_its_capacity() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("r.ncpu");
    let recording = recording.to_str().unwrap();
    let o = on_old_kernel(&["watch", "--record", recording, "0.5"]);
    assert!(o.status.success(), "{}", said(&o));
    let column = |table: &str, column: &str| -> Vec<f64> {
        let o = on_old_kernel(&["report", recording, "--table", table, "-o", "json"]);
        let key = format!("\"{column}\":");
        let value = |line: &str| line.split(&key).nth(1)?.split([',', '}']).next()?.parse().ok();
        out(&o).lines().filter_map(value).collect()
    };
    let layers: f64 = column("layers", "seconds").iter().sum();
    let (elapsed, cpus) = (column("summary", "elapsed"), column("summary", "cpus"));
    assert_eq!((elapsed.len(), cpus.len()), (1, 1));
    let capacity = elapsed[0] * cpus[0];
    assert!((layers - capacity).abs() < 0.02 * capacity, "{layers} of {capacity}");
}

#[test]
fn what_cannot_be_had_is_one_line() {
    if !root() {
        return;
    }
    let o = on_old_kernel(&["timers", "--who", "0.1"]);
    assert_eq!((o.status.code(), err(&o).lines().count()), (Some(1), 1), "{}", said(&o));
    assert!(said(&o).contains(LACKS), "{}", said(&o));
}

#[test]
fn samples_go_under_the_programs_own_name_from_its_first() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("r.ncpu");
    let recording = recording.to_str().unwrap();
    let shell =
        "for i in 1 2 3 4 5 6 7 8; do /bin/true; done; i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
    let o = on_old_kernel(&["run", "--record", recording, "--", "bash", "-c", shell]);
    assert!(o.status.success(), "{}", said(&o));
    let o = on_old_kernel(&["report", recording, "--table", "samples", "-o", "json"]);
    let own = out(&o);
    let own: Vec<&str> = own.lines().filter(|line| line.contains("\"at\":\"target\"")).collect();
    let named =
        |line: &&str| ["bash", "true"].iter().any(|name| line.contains(&format!("\"process\":\"{name}\"")));
    assert!(!own.is_empty() && own.iter().all(named), "{own:?}");
}

//! `ncpu bench memhammer` and `matrix`, as a user meets them.

mod common;

use common::{err, ncpu, out};

/// Operations of each row of `-o csv`.
fn ops(text: &str) -> Vec<u64> {
    let at = text.lines().next().unwrap().split(',').position(|c| c == "ops").unwrap();
    text.lines().skip(1).map(|l| l.rsplit(',').rev().nth(at).unwrap().parse().unwrap()).collect()
}

fn hammer(args: &[&str], own: &[&str]) -> std::process::Output {
    ncpu(&[&["bench", "memhammer"], args, &["--"], own].concat())
}

#[test]
fn every_worker_has_a_row() {
    for access in ["write", "read", "chase", "scan"] {
        let own = ["-p", "64", "-l", "3", "-a", access];
        let o = hammer(&["-T", "2", "-o", "csv"], &own);
        assert!(o.status.success(), "{}", err(&o));
        assert_eq!(ops(&out(&o)), [192, 192], "{access}");
        let o = hammer(&["-T", "2"], &own);
        assert!(out(&o).starts_with("2 workers\n"), "{}", out(&o));
        let rows = out(&o).lines().filter(|l| l.split_whitespace().nth(2) == Some("192")).count();
        assert_eq!(rows, 2, "{}", out(&o));
    }
}

#[test]
fn the_script_echoes_what_it_runs() {
    let o = hammer(&[], &["-p", "64", "-l", "1", "-w", "script"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).starts_with("One thread\n") && out(&o).contains(" socket"), "{}", out(&o));
    let o = hammer(&["-o", "csv"], &["-p", "64", "-l", "1", "-w", "all"]);
    // A worker on each CPU that may be used.
    assert_eq!(ops(&out(&o)).len(), std::thread::available_parallelism().unwrap().get(), "{}", out(&o));
    for (args, own, says) in
        [(&[][..], "some", "-w some: give one, same-core"), (&["-T", "2"], "all", "-w says how many workers")]
    {
        let o = hammer(args, &["-w", own]);
        assert_eq!(o.status.code(), Some(2));
        assert!(err(&o).contains(says), "{}", err(&o));
    }
}

#[test]
fn few_pages_are_told_to_fit_in_a_cache() {
    if ncpu_machine::Topology::read("/".as_ref()).unwrap().caches.is_empty() {
        return;
    }
    let o = hammer(&[], &["-p", "64", "-l", "1"]);
    assert!(err(&o).contains("give more PAGES to see memory"), "{}", err(&o));
}

#[test]
fn memory_and_places_that_are_not_there() {
    let few = &["-p", "64", "-l", "1"][..];
    for (args, own, says) in [
        (&["memhammer"][..], &["-p", "many"][..], "many"),
        (&["memhammer"], &["-p", "1", "-l", "1"], "give 2 pages"),
        (&["memhammer"], &["-p", "4000000000", "-l", "1"], "TiB are wanted, and"),
        (&["memhammer"], &["-a", "lick"], "-a lick: give write, read, chase or scan"),
        (&["memhammer"], &["-s", "3k"], "give 4k, thp, 2m or 1g"),
        (&["memhammer", "--mem", "node:999"], few, "node 999 has no memory; nodes with memory are"),
        (&["memhammer", "--place", "cpus:2000"], few, "CPUs 2000 are not all available to this process"),
        (&["memhammer", "--place", "node:99"], few, "node 99 has no CPUs to use"),
        (&["matrix"], &["-p", "4000000000"], "TiB are wanted, and"),
    ] {
        let o = ncpu(&[&["bench"], args, &["--"], own].concat());
        // A value that another machine would take is an error like others.
        let mistaken = own[0] != "-p" && args.len() == 1 || ["many", "give 2 pages"].contains(&says);
        assert_eq!(o.status.code(), Some(if mistaken { 2 } else { 1 }), "{args:?} {own:?}");
        assert!(err(&o).contains(says), "{args:?} {own:?}: {}", err(&o));
        assert!(out(&o).is_empty(), "{args:?}");
    }
}

#[test]
fn the_matrix_is_two_tables_for_people_and_one_for_programs() {
    let matrix = |args: &[&str]| ncpu(&[&["bench", "matrix"], args, &["--", "-p", "64", "-l", "1"]].concat());
    let o = matrix(&[]);
    assert!(o.status.success(), "{}", err(&o));
    let text = out(&o);
    assert!(text.contains("Latency, ns an access") && text.contains("Bandwidth, GB/s read"), "{text}");
    let o = matrix(&["-o", "csv"]);
    assert!(out(&o).starts_with("node,memory,latency,MB/s\n0,0,"), "{}", out(&o));
}

#[test]
fn a_cpuset_that_is_narrower_than_the_list() {
    // The test's own CPUs but the last are taken away.
    let cpus: Vec<u32> = ncpu_machine::online_cpus("/".as_ref()).unwrap().iter().collect();
    let [first, .., last] = cpus[..] else { return };
    let o = std::process::Command::new("taskset")
        .args(["-c", &first.to_string(), env!("CARGO_BIN_EXE_ncpu"), "bench", "memhammer"])
        .args(["--place", &format!("cpus:{last}"), "--", "-p", "64", "-l", "1"])
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(1));
    let says = format!("CPUs {last} are not all available to this process; expected CPUs of {first}");
    assert!(err(&o).contains(&says), "{}", err(&o));
}

//! `ncpu bench memhammer`, its scripts and its matrix, as a user meets them.

mod common;

use common::{err, ncpu, out};

/// Operations told by each line of the original's form.
fn ops(text: &str) -> Vec<u64> {
    text.lines().filter_map(|l| l.strip_prefix("Total ops ")?.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn every_worker_prints_the_originals_line() {
    for access in ["write", "read", "chase", "scan"] {
        let o = ncpu(&["bench", "memhammer", "64", "3", "-T", "2", "--access", access]);
        assert!(o.status.success(), "{}", err(&o));
        assert_eq!(ops(&out(&o)), [192, 192], "{access}");
        for line in out(&o).lines() {
            assert!(line.contains(" Avg nsec/op ") && line.contains(" gettimeofday usec "), "{line}");
        }
    }
}

#[test]
fn the_script_echoes_what_it_runs() {
    let o = ncpu(&["bench", "memhammer", "64", "1", "--preset", "script"]);
    assert!(o.status.success(), "{}", err(&o));
    let text = out(&o);
    assert!(text.starts_with("One thread\nTotal ops 64 "), "{text}");
    // The last one has a worker on each CPU that may be used.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let last = text.lines().rev().take_while(|l| l.starts_with("Total ops")).count();
    assert!(last >= 1 && text.contains(" socket"), "{cpus} CPUs: {text}");
    let o = ncpu(&["bench", "memhammer", "64", "1", "--preset", "some"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("--preset some: give one, same-core"), "{}", err(&o));
    let o = ncpu(&["bench", "memhammer", "64", "1", "--preset", "all", "-T", "2"]);
    assert_eq!(o.status.code(), Some(2), "a preset says how many threads");
}

#[test]
fn few_pages_are_told_to_fit_in_a_cache() {
    if ncpu_machine::Topology::read("/".as_ref()).unwrap().caches.is_empty() {
        return;
    }
    let o = ncpu(&["bench", "memhammer", "64", "1"]);
    assert!(err(&o).contains("give more PAGES to see memory"), "{}", err(&o));
}

#[test]
fn memory_and_places_that_are_not_there() {
    for (args, says) in [
        (&["memhammer"][..], "memhammer wants two numbers"),
        (&["memhammer", "64", "many"], "memhammer wants two numbers"),
        (&["memhammer", "1", "1"], "give 2 pages"),
        (&["memhammer", "4000000000", "1"], "TiB are wanted, and"),
        (&["memhammer", "64", "1", "--mem", "node:999"], "node 999 has no memory; nodes with memory are"),
        (&["memhammer", "64", "1", "--place", "cpus:2000"], "CPUs 2000 are not all there for us to use"),
        (&["memhammer", "64", "1", "--place", "node:99"], "node 99 has no CPUs to use"),
        (&["memhammer", "1", "2", "3", "--matrix"], "PAGES and LOOPS at most"),
        (&["memhammer", "--matrix", "4000000000"], "TiB are wanted, and"),
    ] {
        let o = ncpu(&[&["bench"], args].concat());
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        assert!(out(&o).is_empty(), "{args:?}");
    }
    let o = ncpu(&["bench", "memhammer", "64", "1", "--page", "3k"]);
    assert!(err(&o).contains("give 4k, thp, 2m or 1g"), "{}", err(&o));
}

#[test]
fn the_matrix_is_two_tables_for_people_and_one_for_programs() {
    let o = ncpu(&["bench", "memhammer", "--matrix", "64", "1"]);
    assert!(o.status.success(), "{}", err(&o));
    let text = out(&o);
    assert!(text.contains("Latency, ns an access") && text.contains("Bandwidth, GB/s read"), "{text}");
    let o = ncpu(&["bench", "memhammer", "--matrix", "64", "1", "-o", "csv"]);
    assert!(out(&o).starts_with("node,memory,latency,MB/s\n0,0,"), "{}", out(&o));
}

#[test]
fn a_cpuset_that_is_narrower_than_the_list() {
    // The test's own CPUs but the last are taken away.
    let cpus: Vec<u32> = ncpu_machine::online_cpus("/".as_ref()).unwrap().iter().collect();
    let [first, .., last] = cpus[..] else { return };
    let o = std::process::Command::new("taskset")
        .args(["-c", &first.to_string(), env!("CARGO_BIN_EXE_ncpu"), "bench", "memhammer", "64", "1"])
        .args(["--place", &format!("cpus:{last}")])
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(1));
    let says = format!("CPUs {last} are not all there for us to use; those are {first}");
    assert!(err(&o).contains(&says), "{}", err(&o));
}

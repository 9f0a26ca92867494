//! `ncpu populate` as a user meets it.

mod common;

use std::path::Path;

use common::{Nobody, err, ncpu, out};
use ncpu_record::Recording;

#[test]
fn a_row_for_the_plain_calls_and_for_each_number_of_threads() {
    let o = ncpu(&["populate", "12m", "--threads", "3,1,3", "--rounds", "2", "--no-lock"]);
    assert!(o.status.success(), "{}", err(&o));
    let text = out(&o);
    let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(words[0][..7], ["way", "threads", "create", "ms", "lock", "ms", "destroy"], "{text}");
    let rows: Vec<&[&str]> = words[1..4].iter().map(|w| &w[..2]).collect();
    assert_eq!(rows, [["calls", "1"], ["libncpu", "1"], ["libncpu", "3"]], "{text}");
    assert!(text.lines().all(|l| l.len() <= 100), "{text}");
    assert!(err(&o).contains("% on node ") || err(&o).is_empty(), "{}", err(&o));
    for (kind, page) in [("memfd", "4k"), ("sysv", "4k"), ("private", "4k")] {
        let args =
            ["populate", "5m", "--kind", kind, "--page", page, "--no-lock", "--rounds", "1", "-o", "csv"];
        let o = ncpu(&args);
        assert!(o.status.success(), "{kind}: {}", err(&o));
        assert!(out(&o).starts_with("way,threads,create,lock,destroy,total,"), "{}", out(&o));
        assert!(out(&o).lines().nth(1).is_some_and(|l| l.starts_with("calls,1,") && l.ends_with(",1")));
    }
}

#[test]
fn rounds_are_recorded_and_rows_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("a.ncpu");
    let args =
        ["populate", "8m", "--no-lock", "--threads", "1,2", "--rounds", "3", "-k", "threads", "--top", "1"];
    let o = ncpu(&[&args[..], &["-o", "json", "--record", dir.to_str().unwrap()]].concat());
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(out(&o).lines().count(), 1);
    assert!(out(&o).starts_with(r#"{"way":"libncpu","threads":2,"#), "{}", out(&o));
    let recording = Recording::open(&dir).unwrap();
    let rounds = &recording.tables["populate_rounds"];
    assert_eq!(rounds.num_rows(), 9);
    assert!(
        (0..9).all(|r| rounds.int(r, "bytes") == Some(8 << 20) && rounds.number(r, "destroy") > Some(0.0))
    );
    assert_eq!(recording.tables["populate"].num_rows(), 3);
}

#[test]
fn what_cannot_be_had_is_told_before_anything_is_touched() {
    for (args, says) in [
        (&["4000t", "--no-lock"][..], "are wanted, and"),
        (&["1g", "--page", "1g", "--kind", "posix"], "take memfd or sysv"),
        (&["999999g", "--page", "1g", "--no-lock"], "are free in the pool; reserve them: echo"),
        (&["1m", "--mem", "node:999", "--no-lock"], "node 999 has no memory"),
    ] {
        let o = ncpu(&[&["populate"], args].concat());
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        assert!(out(&o).is_empty());
    }
    for args in
        [&["x"][..], &["0"], &["1m", "--threads", "0"], &["1m", "--kind", "file"], &["1m", "--mem", "far"]]
    {
        let o = ncpu(&[&["populate"], args].concat());
        assert_eq!(o.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_may_be_locked_has_a_limit() {
    // As nobody, also where this is root, whom no limit holds.
    let nobody = Nobody::new();
    let ncpu = nobody.dir().join("ncpu");
    let script = "ulimit -l 64 && exec \"$0\" populate 1m";
    let o = nobody.program(Path::new("sh"), &["-c", script, ncpu.to_str().unwrap()]).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    let said = "64 KiB may be locked in memory (RLIMIT_MEMLOCK), and 1 MiB are wanted";
    assert!(err(&o).contains(said), "{}", err(&o));
}

#[test]
fn nothing_is_left_of_a_segment() {
    let name = |o: &std::process::Output| assert!(o.status.success(), "{}", err(o));
    let left = || {
        let shm = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        let posix = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let named = posix.filter(|f| f.file_name().to_string_lossy().starts_with("ncpu-populate.")).count();
        (shm.lines().count(), named)
    };
    let before = left();
    for kind in ["sysv", "posix"] {
        name(&ncpu(&["populate", "4m", "--kind", kind, "--no-lock", "--rounds", "1"]));
    }
    // Other tests have segments for a moment.
    let mut after = left();
    for _ in 0..100 {
        if after.0 <= before.0 && after.1 == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        after = left();
    }
    assert!(after.0 <= before.0 && after.1 == 0, "{before:?} {after:?}");
}

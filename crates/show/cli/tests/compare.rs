//! `ncpu bench --compare` and `--against`.

mod common;

use std::fs;

use common::{err, ncpu, out};

/// A cell of CSV, by the first cell of its row.
fn cell(csv: &str, row: &str, column: &str) -> String {
    let at = csv.lines().next().unwrap().split(',').position(|c| c == column).unwrap();
    csv.lines().find(|l| l.split(',').next() == Some(row)).unwrap().split(',').nth(at).unwrap().into()
}

const A: &str = "benchmark,prc,thr,time,low,high,rawmedian,notes\n\
                 same,1,1,10,9,11,10,\nslow,1,1,10,9.9,10.1,11,\nfast,1,2,10,9.9,10.1,10,\nbroken,1,1,,,,,needs root\ngone,1,1,1,1,1,1,\n";
const B: &str = "benchmark,prc,thr,time,low,high,rawmedian,notes\n\
                 same,1,1,10.5,9.5,11.5,10,\nslow,1,1,20,19,22,33,\nfast,1,2,5,4.9,5.1,5,\nbroken,1,1,3,3,3,3,\nnew,1,1,1,1,1,1,\n";

#[test]
fn two_saved_runs_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    fs::write(file("a.csv"), A).unwrap();
    fs::write(file("b.csv"), B).unwrap();
    let o = ncpu(&[
        "bench",
        "--compare",
        &file("a.csv"),
        &file("b.csv"),
        "--html",
        &file("c.html"),
        "--record",
        &file("c.ncpu"),
        "-o",
        "csv",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    let csv = out(&o);
    let rows = ["same", "slow", "fast", "broken", "gone", "new"];
    assert_eq!(
        rows.map(|r| cell(&csv, r, "verdict")),
        ["unknown", "unknown", "unknown", "", "", ""],
        "{csv}"
    );
    assert_eq!(rows.map(|r| cell(&csv, r, "low")).concat(), "", "{csv}");
    assert_eq!((cell(&csv, "slow", "ratio"), cell(&csv, "slow", "ratio_raw")), ("2.0".into(), "3.0".into()));
    assert_eq!(cell(&csv, "broken", "notes"), "A: needs root");
    assert_eq!(
        (cell(&csv, "gone", "notes"), cell(&csv, "new", "notes")),
        ("only in A".into(), "only in B".into())
    );
    let page = fs::read_to_string(file("c.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("slow: 2.000") && !page.contains(" src="), "{page}");
    let text = out(&ncpu(&["bench", "--compare", &file("a.csv"), &file("b.csv"), "-k", "ratio"]));
    assert!(text.contains("no difference in 0 of 0; no verdict on 3"), "{text}");
    assert!(text.contains("Note: runs of one build differ by more than a run shows"), "{text}");
    let rows: Vec<&str> =
        text.lines().skip(4).take(3).map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["slow", "same", "fast"]);
}

#[test]
fn several_runs_of_each_give_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, same: f64, slow: f64| {
        let path = dir.path().join(name);
        let rows = format!("same,1,1,{same},{same},{same},{same},\nslow,1,1,{slow},{slow},{slow},{slow},\n");
        fs::write(&path, format!("{}\n{rows}", A.lines().next().unwrap())).unwrap();
        path.to_str().unwrap().to_string()
    };
    // `same` differs by 3 % from run to run; each run is precise.
    let a = [run("a1", 10.0, 10.0), run("a2", 10.3, 10.1), run("a3", 9.9, 10.2)].join(",");
    let b = [run("b1", 10.4, 12.0), run("b2", 10.0, 12.1), run("b3", 10.2, 11.9)].join(",");
    let o = ncpu(&["bench", "--compare", &a, &b, "-o", "csv"]);
    assert!(o.status.success(), "{}", err(&o));
    let csv = out(&o);
    assert_eq!(["same", "slow"].map(|r| cell(&csv, r, "verdict")), ["same", "slower"], "{csv}");
    let low: f64 = cell(&csv, "slow", "low").parse().unwrap();
    assert!((1.1..1.19).contains(&low), "{csv}");
    assert!(!out(&ncpu(&["bench", "--compare", &a, &b])).contains("Note:"));
}

#[test]
fn a_recording_and_a_file_of_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("a.ncpu").to_str().unwrap().to_string();
    let o = ncpu(&["bench", "getpid", "-C", "5", "-D", "50", "--record", &kept, "-o", "json"]);
    assert!(o.status.success(), "{}", err(&o));
    let file = dir.path().join("b.json");
    fs::write(&file, &o.stdout).unwrap();
    let o = ncpu(&["bench", "--compare", &kept, file.to_str().unwrap(), "-o", "csv"]);
    assert!(o.status.success(), "{}", err(&o));
    // The file has seconds and the recording microseconds: the last digit may differ.
    let ratio: f64 = cell(&out(&o), "getpid", "ratio").parse().unwrap();
    assert!((ratio - 1.0).abs() < 1e-12, "{ratio}");
    assert_eq!(cell(&out(&o), "getpid", "verdict"), "unknown");
}

/// Another `ncpu bench NAME -o json`, that takes down when it was run and answers twice the time of the last.
fn fake(dir: &std::path::Path, name: &str, time: &str) -> String {
    let path = dir.join(name);
    let script = format!(
        "#!/bin/sh\necho {name} $2 >>{}/log\necho '{{\"benchmark\":\"'$2'\",\"prc\":1,\"thr\":1,\"time\":{time},\"low\":{time},\"high\":{time},\"rawmedian\":{time},\"notes\":\"\"}}'\n",
        dir.display()
    );
    ncpu_trials::script(&path, &script);
    path.to_str().unwrap().into()
}

#[test]
fn builds_take_turns_in_an_order_that_the_seed_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let other = fake(dir.path(), "other", "1000000");
    let words =
        ["bench", "getpid", "gettimeofday", "--against", &other, "--rounds", "6", "-C", "5", "-D", "40"];
    let run = |format| ncpu(&[&words[..], &["--seed", "3", "-o", format]].concat());
    let o = run("csv");
    assert!(o.status.success(), "{}", err(&o));
    let csv = out(&o);
    assert_eq!(
        (cell(&csv, "getpid", "B"), cell(&csv, "getpid", "pairs")),
        ("1000000.0".into(), "6".into()),
        "{csv}"
    );
    assert_eq!(cell(&csv, "getpid", "verdict"), "slower");
    let log = || fs::read_to_string(dir.path().join("log")).unwrap();
    let first = log();
    assert_eq!(first.lines().filter(|l| *l == "other getpid").count(), 6);
    fs::remove_file(dir.path().join("log")).unwrap();
    run("text");
    assert_eq!(log(), first);
    let o = ncpu(&["bench", "getpid", "--against", "false"]);
    assert!(
        o.status.code() == Some(1) && err(&o).contains("false bench getpid: exit status 1"),
        "{}",
        err(&o)
    );
    assert_eq!(ncpu(&["bench", "getpid", "--against", "/nowhere/ncpu"]).status.code(), Some(127));
    let o = ncpu(&["bench", "--against", &other]);
    assert!(o.status.code() == Some(2) && err(&o).contains("say which benchmarks"), "{}", err(&o));
}

#[test]
fn whole_commands_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let command = |word: &str| format!("echo {word} >>{}", log.display());
    let o = ncpu(&[
        "bench",
        "--command",
        &command("a"),
        "--against",
        &command("b"),
        "--rounds",
        "8",
        "--seed",
        "5",
        "-o",
        "csv",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(cell(&out(&o), "command", "pairs"), "8");
    let said = fs::read_to_string(&log).unwrap();
    let rounds: Vec<String> = said.lines().collect::<Vec<_>>().chunks(2).map(|r| r.concat()).collect();
    assert!(rounds.iter().all(|r| r == "ab" || r == "ba"), "each once in a round: {rounds:?}");
    assert!(rounds.contains(&"ab".into()) && rounds.contains(&"ba".into()), "in random order: {rounds:?}");
    let o = ncpu(&["bench", "--command", "true", "--against", "exit 3"]);
    assert!(o.status.code() == Some(127) || err(&o).contains("exit 3"), "{}", err(&o));
    let o = ncpu(&["bench", "--command", "true", "--against", "sh -c 'exit 3'"]);
    assert!(o.status.code() == Some(1) && err(&o).contains("exit status 3"), "{}", err(&o));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.csv").to_str().unwrap().to_string();
    fs::write(&file, "n,x\n1,2\n").unwrap();
    for (a, words) in [
        (file.as_str(), "no table of ncpu bench"),
        ("/nowhere/x", "/nowhere/x: No such file"),
        (dir.path().to_str().unwrap(), "manifest.json"),
    ] {
        let o = ncpu(&["bench", "--compare", a, &file]);
        assert!(o.status.code() == Some(1) && err(&o).contains(words), "{a}: {}", err(&o));
    }
    assert_eq!(ncpu(&["bench", "--compare", &file]).status.code(), Some(2));
    assert_eq!(ncpu(&["bench", "--command", "true"]).status.code(), Some(2), "--command needs --against");
}

//! `ncpu diff` on recordings made here: no privileges are needed to compare.

mod common;

use std::path::Path;

use common::{err, ncpu, out};
use ncpu_record::{Gather, Manifest, Throughput};
use ncpu_schema::{CpuState, Per, Purpose, StackKind, cpu_time, stacks};
use ncpu_table::Table;

/// A recording in which two CPUs spun so long in kernel locks, of ten seconds.
fn record(dir: &Path, name: &str, spin: f64) -> String {
    let throughput = Some(Throughput { metric: "ops".into(), per_second: 100.0 });
    record_of(dir, name, throughput, &[spent(spin)])
}

fn spent(spin: f64) -> Table {
    let mut rows = cpu_time::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| {
            Some(match state {
                CpuState::Program => 10.0 - spin / 2.0,
                CpuState::Spin => spin / 2.0,
                _ => 0.0,
            })
        });
        rows.push(cpu_time::Row { time: 10.0.into(), cpu: cpu.into(), spent, kernel: None });
    }
    rows.finish()
}

fn record_of(dir: &Path, name: &str, throughput: Option<Throughput>, tables: &[Table]) -> String {
    let mut manifest = Manifest::new(Purpose::Run, 2, vec!["db".into()], 1.0);
    manifest.throughput = throughput;
    let mut gather = Gather::new(manifest);
    tables.iter().for_each(|table| gather.append(table).unwrap());
    let path = dir.join(name);
    gather.finish().unwrap().save(&path).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn a_condition_fails_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str, spins: [f64; 3]| -> Vec<String> {
        spins.iter().enumerate().map(|(i, s)| record(dir.path(), &format!("{name}{i}.ncpu"), *s)).collect()
    };
    let (a, b) = (side("a", [1.0, 1.02, 0.98]), side("b", [3.0, 3.05, 2.95]));
    let run = |options: &[&str]| {
        let words = ["diff"].into_iter().chain(options.iter().copied()).chain(a.iter().map(String::as_str));
        let words: Vec<&str> = words.chain(["--"]).chain(b.iter().map(String::as_str)).collect();
        let ran = ncpu(&words);
        (ran.status.code(), out(&ran), err(&ran))
    };
    let (code, out, _) = run(&[]);
    assert_eq!(code, Some(0));
    assert!(
        out.contains("kernel lock spin") && out.contains("grew") && out.contains("a unit of work"),
        "{out}"
    );
    // 2 CPU-seconds more of 20.
    let (code, _, err) = run(&["--fail-if", "kernel lock spin > +5%"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("FAILED: kernel lock spin > +5%: kernel lock spin changed by +10.00 %"), "{err}");
    assert_eq!(run(&["--fail-if", "kernel lock spin > +15%"]).0, Some(0));
    assert_eq!(run(&["--fail-if", "nosuch > +5%"]).0, Some(2));
    let (_, json, _) = run(&["-o", "json"]);
    assert!(json.lines().any(|l| l.contains("\"kernel lock spin\"") && l.contains("\"grew\"")), "{json}");
    let page = dir.path().join("diff.html");
    run(&["--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().contains("kernel lock spin"));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let a = record(dir.path(), "a.ncpu", 1.0);
    let fails = |args: &[&str], words: &str| {
        let ran = ncpu(&[&["diff"], args].concat());
        assert!(!ran.status.success() && err(&ran).contains(words), "{}", err(&ran));
    };
    let missing = dir.path().join("missing.ncpu");
    fails(&[&a], "name both sides");
    fails(&[&a, missing.to_str().unwrap()], "missing.ncpu");
    fails(&[&a, "--", &a, "--work"], "put options before side A");
    fails(&["--fail-if", "spin", &a, &a], "invalid condition");
    fails(&["--work", "0", &a, &a], "--work 0");
    let text = out(&ncpu(&["diff", &a, &a]));
    assert!(text.contains("is on both sides") && text.contains("runs vary by more"), "{text}");
}

#[test]
fn a_metric_on_one_side_only_divides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let with = record(dir.path(), "with.ncpu", 1.0);
    let without = record_of(dir.path(), "without.ncpu", None, &[spent(1.0)]);
    for (a, b) in [(&with, &without), (&without, &with)] {
        let ran = ncpu(&["diff", a, b]);
        let text = out(&ran);
        assert!(ran.status.success() && text.contains("do not all tell the same throughput"), "{text}");
        assert!(text.contains("for each second") && !text.contains("a unit of work\n"), "{text}");
        let ran = ncpu(&["diff", "--fail-if", "throughput < -5%", a, b]);
        assert_eq!(ran.status.code(), Some(2), "{}", err(&ran));
    }
}

#[test]
fn recordings_of_other_versions_are_read_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let a = record(dir.path(), "a.ncpu", 1.0);
    let b = record(dir.path(), "b.ncpu", 3.0);
    let manifest = Path::new(&b).join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let set = |field: &str, value: u64| {
        let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
        all[field] = value.into();
        std::fs::write(&manifest, all.to_string()).unwrap();
        ncpu(&["diff", &a, &b])
    };
    // Columns and words come and go: what both have is compared.
    for schema in [1, 1000] {
        let ran = set("schema", schema);
        assert!(
            ran.status.success() && out(&ran).contains("kernel lock spin"),
            "{schema}: {}{}",
            err(&ran),
            out(&ran)
        );
    }
    let ran = set("format", 2);
    assert_eq!(ran.status.code(), Some(1));
    assert!(err(&ran).contains("b.ncpu") && err(&ran).contains("use a newer ncpu"), "{}", err(&ran));
}

#[test]
fn sides_without_a_table_in_common_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let a = record(dir.path(), "a.ncpu", 1.0);
    let b = record_of(dir.path(), "b.ncpu", None, &[]);
    for (a, b) in [(&a, &b), (&b, &a)] {
        let ran = ncpu(&["diff", a, b]);
        assert!(!ran.status.success() && err(&ran).contains("b.ncpu"), "{}{}", out(&ran), err(&ran));
    }
}

#[test]
fn a_hundred_thousand_stacks_a_side_are_compared() {
    const STACKS: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str, odd: usize| {
        let mut rows = stacks::Rows::new();
        for i in 0..STACKS {
            let (a, b, c) = (i % 100, i / 100 % 100, i / 10_000);
            rows.push(stacks::Row {
                kind: Some(StackKind::OnCpu),
                stack: format!("main;a{a};b{b};c{c};leaf{}", (i + odd) % 7).into(),
                seconds: Some(0.01),
                samples: Some(1),
                time: None,
                ..stacks::Row::default()
            });
        }
        record_of(dir.path(), name, None, &[spent(1.0), rows.finish()])
    };
    let (a, b) = (side("a.ncpu", 0), side("b.ncpu", 1));
    let page = dir.path().join("diff.html");
    let ran = ncpu(&["diff", "--html", page.to_str().unwrap(), &a, &b]);
    assert!(ran.status.success(), "{}", err(&ran));
    // What is too narrow to be seen is not drawn: a browser must open it.
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.len() < 20 << 20 && page.contains("a42"), "{} bytes", page.len());
}

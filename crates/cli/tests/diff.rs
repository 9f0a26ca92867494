//! `ncpu diff` on recordings made here: no privileges are needed to compare.

mod common;

use std::path::Path;

use common::{err, ncpu, out};
use ncpu_record::{Gather, Manifest, Throughput};
use ncpu_schema::{CpuState, Per, Purpose, cpu_time};

/// A recording in which two CPUs spun so long in kernel locks, of ten seconds.
fn record(dir: &Path, name: &str, spin: f64) -> String {
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
    let mut manifest = Manifest::new(Purpose::Run, 2, vec!["db".into()], 1.0);
    manifest.throughput = Some(Throughput { metric: "ops".into(), per_second: 100.0 });
    let mut gather = Gather::new(manifest);
    gather.append(&rows.finish()).unwrap();
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
    fails(&["--fail-if", "spin", &a, &a], "is no condition");
    fails(&["--work", "0", &a, &a], "--work 0");
    let text = out(&ncpu(&["diff", &a, &a]));
    assert!(text.contains("is on both sides") && text.contains("runs vary by more"), "{text}");
}

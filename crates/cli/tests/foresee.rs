//! `ncpu foresee` on models whose answer is known, and on what goes wrong.

mod common;

use std::fs;

use common::{err, ncpu, out};

/// Half of each unit is done under one lock: never more than twice the throughput of one.
const HALF: &str = r#"
name = "half"
unit = "ops"
work_ns = 10000
[[lock]]
name = "big"
kind = "qspin"
kernel = true
takes = 1
hold_ns = 10000
"#;

fn cells(csv: &str, column: &str) -> Vec<f64> {
    let at = csv.lines().next().unwrap().split(',').position(|c| c == column).unwrap();
    csv.lines().skip(1).map(|l| l.split(',').nth(at).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_lock_held_half_the_time_doubles_at_most_and_splitting_it_helps() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("half.toml");
    fs::write(&file, HALF).unwrap();
    let file = file.to_str().unwrap();
    let foresee = |more: &[&str]| {
        let args = ["foresee", "--model", file, "--on", "2x8", "--cpus", "1,4,16", "-o", "csv"];
        let o = ncpu(&[&args[..], more].concat());
        assert!(o.status.success(), "{}", err(&o));
        out(&o)
    };
    let plain = foresee(&[]);
    let x = cells(&plain, "throughput");
    assert!((x[0] / 50_000.0 - 1.0).abs() < 0.03, "{plain}");
    assert!(x[2] < 105_000.0 && x[2] > 80_000.0, "{plain}");
    assert!(plain.lines().last().unwrap().contains("kernel lock spin"), "{plain}");
    assert_eq!(plain, foresee(&[]), "the same seed gives the same table");
    let split = cells(&foresee(&["--fix", "lock big split 64"]), "throughput");
    assert!(split[2] > 4.0 * x[2], "{split:?}");
    let ranked = out(&ncpu(&[
        "foresee", "--model", file, "--on", "2x8", "--cpus", "16", "--rank", "--table", "fixes", "-o", "csv",
    ]));
    assert!(cells(&ranked, "gain")[0] > 4.0, "{ranked}");
}

#[test]
fn what_is_simulated_is_a_recording_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("half.toml");
    fs::write(&file, HALF).unwrap();
    let (rec, page) = (dir.path().join("sim.ncpu"), dir.path().join("page.html"));
    let (rec, page) = (rec.to_str().unwrap(), page.to_str().unwrap());
    let args =
        ["foresee", "--model", file.to_str().unwrap(), "--on", "4x4x2", "--record", rec, "--html", page];
    let o = ncpu(&args);
    assert!(o.status.success(), "{}", err(&o));
    let manifest = fs::read_to_string(format!("{rec}/manifest.json")).unwrap();
    assert!(manifest.contains("\"simulated\": true"), "{manifest}");
    let report = ncpu(&["report", rec]);
    assert!(report.status.success() && out(&report).contains("kernel lock spin"), "{}", err(&report));
    let layers = out(&ncpu(&["report", rec, "--table", "layers", "-o", "csv"]));
    let sum: f64 = cells(&layers, "seconds").iter().sum();
    let elapsed = cells(&out(&ncpu(&["report", rec, "--table", "summary", "-o", "csv"])), "elapsed")[0];
    assert!((sum / (32.0 * elapsed) - 1.0).abs() < 1e-6, "{layers}");
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("<section id=foresee>") && html.contains("32 CPUs: "), "no curve");
    let again = ncpu(&["foresee", rec, "--on", "2x2"]);
    assert!(err(&again).contains("a simulation itself"), "{}", err(&again));
}

#[test]
fn what_goes_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let good = write("good.toml", HALF);
    let syntax = write("syntax.toml", "name = \"x\"\nwork_ns = \n");
    let unknown = write("unknown.toml", "name = \"x\"\nwork_ns = 1\ncolour = 2\n");
    let kind = write("kind.toml", &HALF.replace("qspin", "magic"));
    let nothing = write("nothing.toml", "name = \"x\"\nwork_ns = 0\n");
    let minus = write("minus.toml", "name = \"x\"\nwork_ns = -4\n");
    let empty = dir.path().join("empty.ncpu");
    fs::create_dir(&empty).unwrap();
    for (args, expect) in [
        (vec!["--model", &good], "--on says on which machine"),
        (vec!["--on", "2x2"], "from what?"),
        (vec!["--model", &good, "--on", "0x4"], "at least one package"),
        (vec!["--model", &good, "--on", "1000x1000"], "1000000 CPUs are more than"),
        (vec!["--model", &good, "--on", "toaster"], "is no machine"),
        (vec!["--model", &good, "--on", "/nowhere/at/all"], "/nowhere/at/all"),
        (vec!["--model", &good, "--on", "2x2", "--cpus", "8"], "has 4 CPUs"),
        (vec!["--model", &good, "--on", "2x2", "--cpus", "one"], "is no number of CPUs"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "lock small removed"], "no lock `small`; it has big"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "lock big split many"], "`many`: give a number"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "pray"], "is no fix; there are: lock NAME removed"),
        (vec!["--model", &syntax, "--on", "2x2"], "line 2, column"),
        (vec!["--model", &unknown, "--on", "2x2"], "unknown field `colour`"),
        (vec!["--model", &kind, "--on", "2x2"], "kind `magic` is none of ticket"),
        (vec!["--model", &nothing, "--on", "2x2"], "takes no time"),
        (vec!["--model", &minus, "--on", "2x2"], "work_ns = -4"),
        (vec!["--model", "/nowhere.toml", "--on", "2x2"], "/nowhere.toml"),
        (vec![empty.to_str().unwrap(), "--on", "2x2"], "no manifest.json"),
        (vec!["/nowhere.ncpu", "--on", "2x2"], "/nowhere.ncpu"),
        (vec!["--check", &good], "unknown field"),
    ] {
        let o = ncpu(&[&["foresee"], &args[..]].concat());
        assert!(!o.status.success(), "{args:?}");
        assert!(err(&o).contains(expect), "{args:?}: {}", err(&o));
    }
}

#[test]
fn the_catalogue_is_listed() {
    let csv = out(&ncpu(&["foresee", "--machines", "-o", "csv"]));
    assert!(csv.lines().count() > 25 && csv.contains("epyc-7r13,2x8x6x2,192,"), "{csv}");
}

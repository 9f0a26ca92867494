//! `ncpu scale` on programs whose scaling is known, on figures from elsewhere, and on what goes wrong.

mod common;

use std::fs;
use std::process::{Command, Output};

use common::{err, ncpu, out, root};

/// A script that answers with the throughput of a law, so that no clock is asked.
const LAW: &str =
    r#"awk -v n={n} 'BEGIN { printf "n %d: %.6f ops/s\n", n, 1000*n/(1 + 0.05*(n-1) + 0.002*n*(n-1)) }'"#;

fn scale(options: &[&str], script: &str) -> Output {
    let args = [&["scale"], options, &["--", "sh", "-c", script]].concat();
    ncpu(&args)
}

/// A cell of CSV.
fn cell(csv: &str, row: usize, column: &str) -> String {
    let at = csv.lines().next().unwrap().split(',').position(|c| c == column).unwrap();
    csv.lines().nth(row + 1).unwrap().split(',').nth(at).unwrap().into()
}

fn number(csv: &str, row: usize, column: &str) -> f64 {
    cell(csv, row, column).parse().unwrap()
}

#[test]
fn a_known_law_is_found_from_a_programs_output() {
    let options =
        ["--cpus", "1,2,4,8,16,32", "--metric", r"([0-9.]+) ops/s", "--rounds", "3", "--place", "free"];
    let o = scale(&[&options[..], &["--table", "laws", "-o", "csv"]].concat(), LAW);
    assert!(o.status.success(), "{}", err(&o));
    let laws = out(&o);
    // Threads beyond the CPUs of the machine the test is on are fitted too where few points are left.
    if cell(&laws, 1, "fitted_to").is_empty() {
        assert!((number(&laws, 1, "sigma") - 0.05).abs() < 1e-4, "{laws}");
        assert!((number(&laws, 1, "kappa") - 0.002).abs() < 1e-5, "{laws}");
        assert!((number(&laws, 1, "peak") - 21.794).abs() < 0.1, "{laws}");
    }
    let text = out(&scale(&options, LAW));
    assert!(text.contains("USL: contention (sigma) 5 %") && text.contains("Peak: "), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(text.contains("· USL   / linear"), "{text}");
}

#[test]
fn rounds_are_in_an_order_that_the_seed_repeats() {
    let runs = |seed: &str| {
        let o = scale(
            &[
                "--cpus",
                "1-6",
                "--rounds",
                "2",
                "--seed",
                seed,
                "--metric",
                "n ([0-9]+)",
                "--table",
                "runs",
                "-o",
                "csv",
            ],
            LAW,
        );
        assert!(o.status.success(), "{}", err(&o));
        let csv = out(&o);
        (0..12).map(|r| cell(&csv, r, "N")).collect::<Vec<_>>()
    };
    let (first, again, other) = (runs("7"), runs("7"), runs("8"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let mut round = first[..6].to_vec();
    round.sort();
    assert_eq!(round, ["1", "2", "3", "4", "5", "6"], "each once in a round");
}

#[test]
fn a_point_that_fails_is_lost_and_the_rest_is_kept() {
    let script = format!("[ {{n}} = 4 ] && {{ echo no room >&2; exit 3; }}; {LAW}");
    let options = ["--cpus", "1,2,4,8", "--metric", "([0-9.]+) ops/s", "--rounds", "4"];
    let o = scale(&options, &script);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("N = 4 is lost: exit status 3: no room"), "{}", err(&o));
    assert!(out(&o).contains("USL: contention"), "{}", out(&o));
    let csv = out(&scale(&[&options[..], &["-o", "csv"]].concat(), &script));
    assert_eq!(
        (cell(&csv, 2, "runs"), cell(&csv, 2, "failed"), cell(&csv, 2, "throughput")),
        ("0".into(), "2".into(), "".into())
    );
    assert_eq!(cell(&csv, 3, "runs"), "4");
    // One run in four fails: the others count.
    let dir = tempfile::tempdir().unwrap();
    let once = format!("[ {{n}} = 2 ] && mkdir {}/x 2>/dev/null && exit 1; {LAW}", dir.path().display());
    let o = scale(&[&options[..], &["-o", "csv"]].concat(), &once);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!((cell(&out(&o), 1, "runs"), cell(&out(&o), 1, "failed")), ("3".into(), "1".into()));
}

#[test]
fn what_cannot_be_run_is_told() {
    let e = |args: &[&str]| {
        let o = ncpu(&[&["scale"], args].concat());
        (o.status.code().unwrap(), err(&o))
    };
    let (code, words) = e(&["--", "no-such-program-here"]);
    assert_eq!(code, 127);
    assert!(words.contains("no-such-program-here: command not found"), "{words}");
    let (code, words) = e(&["--cpus", "1,5000", "--", "true"]);
    assert!(code == 1 && words.contains("--cpus: 5000 CPUs of ") && words.contains("put {n}"), "{words}");
    let (code, words) = e(&["--place", "cpus:5000", "--", "true"]);
    assert!(code == 1 && words.contains("not all available to this process"), "{words}");
    let (code, words) = e(&["--metric", "no parentheses", "--", "true"]);
    assert!(code == 2 && words.contains("0 capture groups"), "{words}");
    let (code, words) = e(&["--cpus", "1", "--metric", "x(.)", "--", "echo", "nothing here"]);
    assert!(
        code == 1 && words.contains("N = 1 is lost: no match of --metric in its output: nothing here"),
        "{words}"
    );
    let (code, words) = e(&["--rounds", "0", "--", "true"]);
    assert!(code == 2 && words.contains("--rounds 0"), "{words}");
    assert_eq!(e(&[]).0, 2);
    let (code, words) = e(&["--table", "what", "--", "true"]);
    assert!(code == 2 && words.contains("expected one of: scale, laws, curves, runs, layers"), "{words}");
}

#[test]
fn elapsed_time_is_the_default_and_one_point_has_no_law() {
    let o = ncpu(&["scale", "--cpus", "1", "--rounds", "2", "--", "sleep", "0.05"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(
        out(&o).contains("throughput is runs/s") && out(&o).contains("1 point: no law can be fitted"),
        "{}",
        out(&o)
    );
    let csv = out(&ncpu(&["scale", "--cpus", "1", "--rounds", "1", "-o", "csv", "--", "sleep", "0.05"]));
    let x = number(&csv, 0, "throughput");
    assert!(x > 0.0 && x <= 20.0, "no run is shorter than its sleep: {x}");
}

#[test]
fn the_program_is_bound_to_so_many_cpus() {
    let first = ncpu_machine::Topology::read("/".as_ref()).unwrap().allowed.first().unwrap().to_string();
    let o = ncpu(&[
        "scale",
        "--cpus",
        "1",
        "--place",
        &format!("cpus:{first}"),
        "--rounds",
        "1",
        "--metric",
        "has ([0-9]+)",
        "-o",
        "csv",
        "--",
        "sh",
        "-c",
        "echo has $(nproc)",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!((number(&out(&o), 0, "throughput"), cell(&out(&o), 0, "CPUs")), (1.0, first));
}

#[test]
fn ctrl_c_keeps_what_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let began = dir.path().join("began");
    // The first round is quick; then a run that would not end.
    let script = format!(
        "[ -e {0}/$1 ] && {{ touch {1}; sleep 600; }}; touch {0}/$1; echo $1 ops/s",
        dir.path().display(),
        began.display()
    );
    let child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args([
            "scale",
            "--cpus",
            "1,2,3",
            "--rounds",
            "5",
            "--metric",
            "([0-9]+) ops/s",
            "-o",
            "csv",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .args(["sh", "{n}"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if began.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(began.exists());
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(130), "{}", err(&o));
    assert_eq!(
        (cell(&out(&o), 0, "runs"), cell(&out(&o), 2, "throughput")),
        ("1".into(), "3.0".into()),
        "{}",
        out(&o)
    );
}

#[test]
fn figures_from_elsewhere_and_pages() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    // SPEC SDM91 on a SPARCcenter 2000 (Gunther 2007); the R package usl has sigma 0.02773, kappa 1.044e-4, peak 96.52.
    let sdm91 = "# users, scripts an hour\nusers,scripts\n1,64.9\n18,995.9\n36,1652.4\n72,1853.2\n108,1828.9\n144,1775\n216,1702.2\n";
    fs::write(file("sdm91.csv"), sdm91).unwrap();
    let laws = out(&ncpu(&["scale", "--from", &file("sdm91.csv"), "--table", "laws", "-o", "csv"]));
    assert!(
        (number(&laws, 1, "sigma") - 0.02773).abs() < 5e-5 && (number(&laws, 1, "peak") - 96.52).abs() < 0.01,
        "{laws}"
    );
    let o = ncpu(&[
        "scale",
        "--from",
        &file("sdm91.csv"),
        "--svg",
        &file("x.svg"),
        "--html",
        &file("x.html"),
        "--record",
        &file("x.ncpu"),
    ]);
    assert!(o.status.success() && out(&o).contains("more only slows it down"), "{}{}", out(&o), err(&o));
    let (svg, html) =
        (fs::read_to_string(file("x.svg")).unwrap(), fs::read_to_string(file("x.html")).unwrap());
    assert!(svg.starts_with("<svg xmlns=") && svg.contains(">peak 96.5</text>"), "{svg}");
    assert!(
        html.contains("<svg class=scale")
            && html.contains("peak at N")
            && !html.contains(" src=")
            && !html.contains("href=\"http"),
        "no page of ours asks anybody"
    );
    let again = out(&ncpu(&["report", &file("x.ncpu"), "--table", "laws", "-o", "csv"]));
    assert!((number(&again, 1, "peak") - 96.52).abs() < 0.01, "{again}");
    let again = ncpu(&["report", &file("x.ncpu"), "--html", &file("again.html")]);
    assert!(out(&again).contains("more only slows it down"), "{}{}", out(&again), err(&again));
    assert_eq!(fs::read_to_string(file("again.html")).unwrap(), html);
    // Two machines in one file.
    fs::write(file("two.csv"), "cpus,A,B\n1,10,10\n2,19,15\n4,34,20\n8,60,\n16,90,24\n").unwrap();
    let o = ncpu(&["scale", "--from", &file("two.csv")]);
    assert!(
        out(&o).contains("\nA\n") && out(&o).contains("\nB\n") && out(&o).contains("● A   ▲ B"),
        "{}",
        out(&o)
    );
    for (text, words) in [
        ("n,x\n0,5\n", "row 1: n 0, x 5: give N of 1 or more"),
        ("n\n1\n", "only `n` is a column of numbers"),
        ("a,b\nx,y\n", "no column of numbers"),
        ("n,x\n1,10\n2,fast\n4,30\n", "row 2: `fast` in column `x` is not a number"),
        ("n,x,y\n1,10,1\n2,n/a,2\n", "row 2: `n/a` in column `x` is not a number"),
        ("", "it is empty"),
    ] {
        fs::write(file("bad.csv"), text).unwrap();
        let o = ncpu(&["scale", "--from", &file("bad.csv")]);
        assert!(o.status.code() == Some(1) && err(&o).contains(words), "{text:?}: {}", err(&o));
    }
}

#[test]
fn a_file_without_names_keeps_its_first_row_and_an_empty_cell_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.csv").to_str().unwrap().to_string();
    let scale = |text: &str, options: &[&str]| {
        fs::write(&file, text).unwrap();
        let o = ncpu(&[&["scale", "--from", &file], options].concat());
        assert!(o.status.success(), "{}", err(&o));
        out(&o)
    };
    let bare = "1,10\n2,19\n4,34\n8,60\n";
    let csv = scale(bare, &["-o", "csv"]);
    assert_eq!(
        (csv.lines().count(), number(&csv, 0, "N"), number(&csv, 0, "throughput")),
        (5, 1.0, 10.0),
        "{csv}"
    );
    assert_eq!(csv, scale(&format!("N,throughput\n{bare}"), &["-o", "csv"]), "names change nothing");
    assert!(!scale(bare, &[]).contains("throughput is 10"));
    // Blanks beside numbers.
    assert_eq!(number(&scale("n, x\n1, 10\n2, 19\n", &["-o", "csv"]), 1, "throughput"), 19.0);
    let hole = "n,x\n1,10\n2,\n4,34\n8,60\n16,90\n";
    let told = "`x` is empty in row 2: taken as no run";
    assert!(scale(hole, &[]).contains(&format!("Note: {told}")));
    assert!(scale(hole, &["--table", "laws", "-o", "json"]).contains(told));
}

#[test]
fn peeling_names_a_layer() {
    if !root() {
        return;
    }
    // One thread on one CPU and on two: that which it cannot use is what grows.
    let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let cpus = ncpu_machine::Topology::read("/".as_ref()).unwrap();
    if cpus.online.and(&cpus.allowed).len() < 2 {
        eprintln!("skipped: one CPU has nothing to grow");
        return;
    }
    let options = ["--cpus", "1,2", "--rounds", "1", "--peel"];
    let o = scale(&options, script);
    assert!(o.status.success(), "{}", err(&o));
    assert!(
        out(&o).contains("a unit of work takes from N = 1") | out(&o).contains("A unit of work takes")
            && out(&o).contains("N = 2"),
        "{}",
        out(&o)
    );
    let csv = out(&scale(&[&options[..], &["--table", "layers", "-o", "csv"]].concat(), script));
    let shares = |n: &str| {
        let rows = csv.lines().count() - 1;
        (0..rows).filter(|&r| cell(&csv, r, "N") == n).map(|r| number(&csv, r, "share")).sum::<f64>()
    };
    // Of the CPU it is bound to, not of the machine's; what threads of ncpu took there before is not the rest's.
    assert!((shares("1.0") - 100.0).abs() < 0.5 && (shares("2.0") - 100.0).abs() < 0.5, "{csv}");
}

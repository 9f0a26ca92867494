//! `ncpu foresee` on models whose answer is known, and on what goes wrong.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{err, ncpu, out, root, unbroken};
use ncpu_record::{Recording, Writer};

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
fn fixes_leave_fewer_cpus_and_others_are_tried_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("half.toml");
    fs::write(&file, HALF).unwrap();
    let foresee = |more: &[&str]| {
        let o = ncpu(&[&["foresee", "--model", file.to_str().unwrap(), "--on", "2x4x2"], more].concat());
        assert!(o.status.success(), "{}", err(&o));
        out(&o)
    };
    // Sixteen CPUs are asked for, and eight are left.
    let off = ["--cpus", "4,16", "--fix", "smt off"];
    assert_eq!(cells(&foresee(&[&off[..], &["-o", "csv"]].concat()), "CPUs"), [4.0, 8.0]);
    let said = unbroken(&foresee(&off));
    assert!(
        said.contains("--cpus 16: with one strand a core (`smt off`) 2x4x2 has 8 CPUs of its 16"),
        "{said}"
    );
    // What is tried is tried beside the fix that was made, and told over the curve that has it.
    let split = ["--cpus", "16", "--rank", "--fix", "lock big split 64", "-o", "csv"];
    let last = cells(&foresee(&split), "throughput")[0];
    let tried = foresee(&[&split[..], &["--table", "fixes"]].concat());
    let (gain, x) = (cells(&tried, "gain"), cells(&tried, "throughput"));
    assert!(gain[0] < 2.0, "{tried}");
    assert!(gain.iter().zip(&x).all(|(gain, x)| (x / gain / last - 1.0).abs() < 1e-9), "{last}: {tried}");
    for fix in ["ticket", "tas", "rwsem", "adaptive", "block", "numa", "mutex", "removed", "shorter 2"] {
        assert!(tried.contains(&format!("lock big {fix},")), "{fix}: {tried}");
    }
    assert!(tried.contains("smt off,") && !tried.contains("place") && !tried.contains("memory"), "{tried}");
    // On fewer CPUs than the machine has it matters which.
    let some = foresee(&["--cpus", "4", "--rank", "--table", "fixes", "-o", "csv"]);
    assert!(some.contains("place pack,") && some.contains("place fill,"), "{some}");
}

/// Blocks of a language in the manual.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/foresee.md");
    let text = fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

#[test]
fn the_files_of_the_manual_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = blocks("toml");
    let file = |name: &str, begins: &str| {
        let found: Vec<&String> = blocks.iter().filter(|b| b.starts_with(begins)).collect();
        assert_eq!(found.len(), 1, "{begins}: {blocks:?}");
        let path = dir.path().join(name);
        fs::write(&path, found[0]).unwrap();
        path.to_str().unwrap().to_string()
    };
    let model = file("model.toml", "# MODEL.toml");
    let machine = file("machine.toml", "# MACHINE.toml");
    let o = ncpu(&["foresee", "--model", &model, "--on", &machine, "--cpus", "8"]);
    assert!(o.status.success(), "{}", err(&o));
    // Each key there is stands in the example: a model as --to-model prints it has none besides.
    let printed = out(&ncpu(&["foresee", "--model", &model, "--to-model"]));
    let keys = |text: &str| -> std::collections::BTreeSet<String> {
        let of = |l: &str| Some(l.trim_start_matches('#').split_once(" = ")?.0.trim().to_string());
        text.lines().filter_map(of).collect()
    };
    let there = keys(&fs::read_to_string(&model).unwrap());
    let missing: Vec<String> = keys(&printed).difference(&there).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_cheapest_machine_that_meets_a_target_is_bought() {
    let dir = tempfile::tempdir().unwrap();
    let offers = blocks("toml").into_iter().find(|b| b.starts_with("# OFFERS.toml")).unwrap();
    let (file, model) = (dir.path().join("offers.toml"), dir.path().join("half.toml"));
    fs::write(&file, &offers).unwrap();
    fs::write(&model, HALF).unwrap();
    let (file, model) = (file.to_str().unwrap(), model.to_str().unwrap());
    let buy = |more: &[&str]| ncpu(&[&["foresee", "--model", model, "--buy", file], more].concat());
    // Half of the work is one at a time: 100,000 units a second at most, however many CPUs there are.
    let o = buy(&["--target", "20000"]);
    let said = unbroken(&out(&o));
    assert!(said.contains("Buy eight: 0.360 USD an hour"), "{said}{}", err(&o));
    assert!(said.contains("kernel lock spin takes most"), "{said}");
    let csv = out(&buy(&["--target", "20000", "-o", "csv"]));
    assert!(cells(&csv, "meets")[0] > 90.0 && cells(&csv, "price") == [0.36, 1.43], "{csv}");
    // The file's own target is as likely met as not.
    let said = unbroken(&out(&buy(&[])));
    assert!(said.contains("None of them meets the target"), "{said}");
    assert!(
        said.contains("Cheaper: with the fix \"lock big removed\"") || said.contains("split 64"),
        "{said}"
    );
    fs::write(dir.path().join("none.toml"), offers.replace("throughput = ", "# throughput = ")).unwrap();
    let none = dir.path().join("none.toml");
    let o = ncpu(&["foresee", "--model", model, "--buy", none.to_str().unwrap()]);
    assert!(!o.status.success() && err(&o).contains("no target"), "{}", err(&o));
    fs::write(&none, offers.replace("price = 0.36", "price = -1")).unwrap();
    let o = ncpu(&["foresee", "--model", model, "--buy", none.to_str().unwrap()]);
    assert!(!o.status.success() && err(&o).contains("price = -1: give a number above 0"), "{}", err(&o));
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
    assert!(err(&again).contains("this recording is a simulation"), "{}", err(&again));
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
    let among = write("among.toml", &format!("{HALF}[[line]]\nname = \"hot\"\nwrites = 1\namong = 0\n"));
    let copies = write("copies.toml", &format!("{HALF}copies = 4000000000\n"));
    let threads = write("threads.toml", &HALF.replacen("work_ns", "threads = 4000000000\nwork_ns", 1));
    let nobody = write("nobody.toml", &format!("{HALF}[recorded]\ncpus = 0\nthreads = 1\nthroughput = 1\n"));
    let machine = write("machine.toml", "name = \"m\"\nshape = \"2x4\"\nturbo = 3\nsource = \"here\"\n");
    let shapeless = write("shapeless.toml", "name = \"m\"\nshape = \n");
    // Two cores of which one has lost a strand.
    let tree = dir.path().join("tree");
    let shape = ncpu_machine_trees::generate::Shape { nodes: 1, cores: 2, threads: 2 };
    ncpu_machine_trees::generate::write(&tree, &shape).unwrap();
    let cpu = tree.join("sys/devices/system/cpu");
    fs::write(cpu.join("online"), "0-2\n").unwrap();
    fs::remove_dir_all(cpu.join("cpu3")).unwrap();
    let empty = dir.path().join("empty.ncpu");
    fs::create_dir(&empty).unwrap();
    for (args, expect) in [
        (vec!["--model", &good], "--on says on which machine"),
        (vec!["--on", "2x2"], "no recording and no model"),
        (vec!["--model", &good, "--on", "0x4"], "at least one package"),
        (vec!["--model", &good, "--on", "2x0x2"], "at least one package"),
        (vec!["--model", &good, "--on", "2x2x2x2x2"], "unknown machine"),
        (vec!["--model", &good, "--on", tree.to_str().unwrap()], "only machines whose parts are alike"),
        (
            vec!["--model", &good, "--on", &machine],
            "line 3, column 9: turbo = 3: give a number above 0, at most 1",
        ),
        (vec!["--model", &good, "--on", &shapeless], "line 2, column 9: "),
        (vec!["--model", &good, "--on", "/nowhere.toml"], "/nowhere.toml"),
        (vec!["--model", &good, "--on", "2x2", "--threads", "many"], "or `same`"),
        (
            vec!["--model", &good, "--on", "2x2", "--threads", "same"],
            "neither `threads` nor what was recorded",
        ),
        (vec!["--model", &good, "--on", "1000x1000"], "1000000 CPUs are more than"),
        (vec!["--model", &good, "--on", "toaster"], "unknown machine"),
        (vec!["--model", &good, "--on", "/nowhere/at/all"], "/nowhere/at/all"),
        (vec!["--model", &good, "--on", "2x2", "--cpus", "8"], "has 4 CPUs"),
        (vec!["--model", &good, "--on", "2x2", "--cpus", "one"], "is not a number of CPUs"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "lock small removed"], "no lock `small`; it has big"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "lock big split many"], "`many`: give a number"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "populate 8"], "has no class `fault`"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "line hot per-cpu"], "no line `hot`; it has none"),
        (
            vec!["--model", &good, "--on", "2x2", "--fix", "pray"],
            "unknown --fix 'pray'; expected one of: lock NAME removed",
        ),
        (vec!["--model", &syntax, "--on", "2x2"], "line 2, column 11: "),
        (vec!["--model", &unknown, "--on", "2x2"], "unknown field `colour`"),
        (
            vec!["--model", &kind, "--on", "2x2"],
            "line 7, column 8: unknown variant `magic`, expected one of `ticket`, `qspin`",
        ),
        (vec!["--model", &nothing, "--on", "2x2"], "line 2, column 11: a unit of work takes no time"),
        (
            vec!["--model", &minus, "--on", "2x2"],
            "line 2, column 11: work_ns = -4: give a number of 0 or more",
        ),
        (
            vec!["--model", &among, "--on", "2x2"],
            "line 14, column 9: line `hot`: among = 0: give a number of 1 to 65536",
        ),
        (
            vec!["--model", &copies, "--on", "2x2"],
            "line 11, column 10: lock `big`: copies = 4000000000: give",
        ),
        (
            vec!["--model", &threads, "--on", "2x2"],
            "line 4, column 11: threads = 4000000000: at most 1048576",
        ),
        (
            vec!["--model", &nobody, "--on", "2x2"],
            "line 12, column 8: recorded: cpus = 0: give a number of 1 to",
        ),
        (
            vec![
                "--model",
                &good,
                "--on",
                "2x2",
                "--fix",
                "lock big split 65536",
                "--fix",
                "lock big split 65536",
            ],
            "at most 65536 ways",
        ),
        (vec!["--model", &good, "--on", "2x2", "--throughput", "5"], "cannot be used with"),
        (vec!["--model", &good, "--on", "2x2", "--bound", "2"], "cannot be used with"),
        (vec!["--model", &good, "--on", "2x2x2", "--cpus", "16", "--fix", "smt off"], "2x2x2 has 8 CPUs"),
        // Fixes that would change nothing.
        (vec!["--model", &good, "--on", "2x2", "--fix", "memory local"], "put `memory_bytes`, bytes a unit"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "shootdowns batched 4"], "`ncpu crosscalls` beside"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "shootdowns per-package"], "has no TLB shootdowns"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "serial less 2"], "put `serial_ns` into it"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "sleep less 2"], "put `sleep_ns` into it"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "polls batched 2"], "neither pauses nor waits"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "ticks off"], "put `tick_ns` and `tick_hz` into it"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "accept balanced"], "put `uneven` into it"),
        (
            vec!["--model", &good, "--on", "2x2", "--fix", "huge-pages"],
            "has no class `fault`: put one into it",
        ),
        (vec!["--model", &good, "--on", "2x2", "--fix", "smt off"], "cores have one strand each"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "place spread"], "in that order already"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "lock big qspin"], "what it is already"),
        (vec!["--model", &good, "--on", "2x2", "--fix", "work less 1"], "`1`: give a number above 1"),
        (vec!["--model", "/nowhere.toml", "--on", "2x2"], "/nowhere.toml"),
        (vec![empty.to_str().unwrap(), "--on", "2x2"], "no manifest.json"),
        (vec!["/nowhere.ncpu", "--on", "2x2"], "/nowhere.ncpu"),
        (vec!["r.ncpu", "--on", "2x2", "--takes", "big"], "give NAME=N"),
        (vec!["r.ncpu", "--on", "2x2", "--takes", "big=often"], "`often`: give a number above 0"),
        (vec!["r.ncpu", "--on", "2x2", "--takes", "big=-2"], "`-2`: give a number above 0"),
        (vec!["--model", &good, "--on", "2x2", "--takes", "big=2"], "cannot be used with"),
    ] {
        let o = ncpu(&[&["foresee"], &args[..]].concat());
        assert!(!o.status.success(), "{args:?}");
        assert!(err(&o).contains(expect), "{args:?}: {}", err(&o));
    }
    for on in [&[][..], &["--on", "0x4"], &["--on", "1000x1000"]] {
        let o = ncpu(&[&["foresee", "--model", &good], on].concat());
        assert_eq!(o.status.code(), Some(2), "{on:?}: a mistake on the command line");
    }
    let o = ncpu(&["foresee", "--model", &good, "--on", "8"]);
    assert!(o.status.success() && out(&o).contains("1x8x1"), "{}{}", out(&o), err(&o));
}

/// A recording as if the program had been observed: what was simulated, without the word that says so.
fn observed(dir: &Path, model: &str) -> String {
    let (file, rec) = (dir.join("observed.toml"), dir.join("observed.ncpu"));
    fs::write(&file, model).unwrap();
    let (file, rec) = (file.to_str().unwrap(), rec.to_str().unwrap());
    let o = ncpu(&["foresee", "--model", file, "--on", "1x2", "--cpus", "2", "--record", rec]);
    assert!(o.status.success(), "{}", err(&o));
    change(rec, |manifest| {
        manifest.as_object_mut().unwrap().remove("simulated");
        manifest["kind"] = "run".into();
    });
    rec.into()
}

fn change(rec: &str, how: impl FnOnce(&mut serde_json::Value)) {
    let path = format!("{rec}/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    how(&mut manifest);
    fs::write(&path, manifest.to_string()).unwrap();
}

#[test]
fn recordings_that_lack_something_are_refused_or_say_so() {
    let foresee = |rec: &str| ncpu(&["foresee", rec, "--on", "2x2", "--cpus", "4"]);
    let dir = tempfile::tempdir().unwrap();
    let rec = observed(dir.path(), HALF);

    // Without a throughput; its lock is known.
    let o = foresee(&rec);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).contains("no throughput is known"), "{}", out(&o));
    let model = out(&ncpu(&["foresee", &rec, "--to-model"]));
    assert!(model.contains("name = \"big\""), "{model}");

    // Where its CPUs may have shared a core; then where they did not.
    let strands = || {
        let o = ncpu(&["foresee", &rec, "--on", "2x2x2", "--cpus", "4"]);
        assert!(o.status.success(), "{}", err(&o));
        unbroken(&out(&o)).contains("which of its 2 CPUs share a core")
    };
    assert!(strands());
    change(&rec, |m| m["shape"] = serde_json::json!({"packages": 1, "cores": 2, "strands": 1}));
    assert!(!strands());

    // The user knows of a lock that was not waited for.
    let o = ncpu(&["foresee", &rec, "--on", "2x2", "--takes", "small=2"]);
    assert!(!o.status.success() && err(&o).contains("no lock of that name was waited for"), "{}", err(&o));
    assert!(err(&o).contains("it has big"), "{}", err(&o));

    // Without locks.
    change(&rec, |m| drop(m["files"].as_object_mut().unwrap().remove("locks.parquet").unwrap()));
    fs::remove_file(format!("{rec}/locks.parquet")).unwrap();
    let o = foresee(&rec);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).contains("no table `locks`"), "{}", out(&o));
    let o = ncpu(&["foresee", &rec, "--on", "2x2", "--fix", "lock big removed"]);
    assert!(!o.status.success() && err(&o).contains("no lock `big`; it has none"), "{}", err(&o));

    // Of another version.
    let text = fs::read_to_string(format!("{rec}/manifest.json")).unwrap();
    change(&rec, |m| m["format"] = 99.into());
    let o = foresee(&rec);
    assert!(!o.status.success() && err(&o).contains("recording format 99 is newer"), "{}", err(&o));
    fs::write(format!("{rec}/manifest.json"), &text).unwrap();

    // Cut off after the first interval: what there is is used. And before it.
    let whole = Recording::open(Path::new(&rec)).unwrap();
    for (name, tables) in [("cut.ncpu", whole.tables.values().collect::<Vec<_>>()), ("none.ncpu", Vec::new())]
    {
        let cut = dir.path().join(name);
        let mut writer = Writer::create(&cut, whole.manifest.clone()).unwrap();
        for table in &tables {
            writer.append(table).unwrap();
        }
        drop(writer);
        let o = foresee(cut.to_str().unwrap());
        if tables.is_empty() {
            assert!(!o.status.success() && err(&o).contains("no table `cpu_time`"), "{}", err(&o));
            assert_eq!(err(&o).lines().count(), 1, "{}", err(&o));
        } else {
            assert!(o.status.success(), "{}", err(&o));
            assert!(out(&o).contains("the recording was cut off"), "{}", out(&o));
        }
    }

    // A file that is shorter than it was.
    let dir = tempfile::tempdir().unwrap();
    let rec = observed(dir.path(), HALF);
    let file = format!("{rec}/cpu_time.parquet");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let o = foresee(&rec);
    assert!(!o.status.success() && err(&o).contains("cpu_time.parquet is damaged"), "{}", err(&o));
}

#[test]
fn what_lies_beside_a_recording_is_taken_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rec = observed(dir.path(), HALF);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (csv, scale, lines) = (path("curve.csv"), path("scale.ncpu"), path("lines.ncpu"));
    fs::write(&csv, "n,x\n1,10\n2,18\n4,30\n").unwrap();
    let o = ncpu(&["scale", "--from", &csv, "--record", &scale]);
    assert!(o.status.success(), "{}", err(&o));
    // Nothing but itself: whatever shares lines in it are no locks of the recording.
    let o = ncpu(&["lines", env!("CARGO_BIN_EXE_ncpu"), "--record", &lines]);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(&["foresee", &rec, &lines, "--on", "2x2", "--cpus", "4"]);
    assert!(
        out(&o).contains("ncpu lines: no two locks that were waited for share a line"),
        "{}{}",
        out(&o),
        err(&o)
    );
    let o = ncpu(&["foresee", &rec, &scale, "--on", "2x2"]);
    assert!(!o.status.success() && err(&o).contains("does not tell layers at two CPU counts"), "{}", err(&o));
    let o = ncpu(&["foresee", &lines, "--on", "2x2"]);
    assert!(
        !o.status.success() && err(&o).contains("no recording of the program is among them"),
        "{}",
        err(&o)
    );
}

#[test]
fn a_recording_that_the_model_does_not_reproduce_is_the_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let rec = observed(dir.path(), HALF);
    let lines = |more: &[&str]| {
        let o = ncpu(&[&["foresee", &rec, "--on", "2x2", "--cpus", "4"], more].concat());
        assert!(o.status.success(), "{}", err(&o));
        out(&o)
    };
    let good = lines(&[]);
    assert!(good.contains("the recording's own machine") && !good.contains("NOT REPRODUCED"), "{good}");
    let model = out(&ncpu(&["foresee", &rec, "--to-model"]));
    let file = dir.path().join("edited.toml");
    let edited: String = model
        .lines()
        .map(|l| if l.starts_with("work_ns") { "work_ns = 40000.0\n".into() } else { format!("{l}\n") })
        .collect();
    fs::write(&file, edited).unwrap();
    let o = ncpu(&["foresee", "--model", file.to_str().unwrap(), "--on", "2x2", "--cpus", "4"]);
    assert!(out(&o).starts_with("NOT REPRODUCED: the recording's own machine"), "{}{}", out(&o), err(&o));
}

/// A program of these sources, compiled.
fn compiled(dir: &Path, source: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = dir.join(source.file_stem().unwrap());
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .output()
        .expect("cc");
    assert!(done.status.success(), "{}", err(&done));
    program.to_str().unwrap().into()
}

/// The first number behind the word.
fn behind(text: &str, word: &str) -> f64 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("no {word}: {text}"));
    let number = rest.trim_start_matches([' ', '=']).split(|c: char| c.is_whitespace() || c == ',').next();
    number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no number behind {word}: {text}"))
}

/// The lock of this name in a model.
fn lock<'a>(model: &'a str, name: &str) -> &'a str {
    let of = model.split("[[lock]]").find(|lock| lock.contains(&format!("name = \"{name}\"")));
    of.unwrap_or_else(|| panic!("no lock {name}: {model}"))
}

/// Before other programs, of which a machine under test may have many: what they take is not in a recording.
fn ahead_of_others(args: &[&str]) -> std::process::Output {
    Command::new("chrt").args(["-r", "1", env!("CARGO_BIN_EXE_ncpu")]).args(args).output().expect("chrt")
}

/// The program counts how often it takes its mutex, and times how long it holds it.
#[test]
fn a_mutex_that_its_program_counts_is_taken_as_often_as_the_program_says() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "tests/c/counted.c");
    let rec = dir.path().join("counted.ncpu");
    let rec = rec.to_str().unwrap();
    let o =
        ahead_of_others(&["run", "--record", rec, "--metric", "([0-9.]+) units/s", "--", &program, "2", "3"]);
    assert!(o.status.success(), "{}", err(&o));
    // "1994.0 units/s, 4.000 turns, 16885.9 ns held"
    let (turns, held) = (behind(&out(&o), "units/s,"), behind(&out(&o), " turns,"));
    assert_eq!(turns, 4.0, "{}", out(&o));
    let takes = ["--takes", "counted_lock=4"];
    let o = ncpu(&[&["foresee", rec, "--on", "1x2", "--cpus", "2"], &takes[..]].concat());
    assert!(o.status.success(), "{}", err(&o));
    let said = unbroken(&out(&o));
    assert!(said.contains("lock counted_lock: taken 4.000 times a unit by --takes"), "{}", out(&o));
    let model = out(&ncpu(&[&["foresee", rec, "--to-model"], &takes[..]].concat()));
    let lock = lock(&model, "counted_lock");
    println!("held for {held} ns by the program itself; {lock}{said}");
    // Whether the recorded machine is reproduced with it depends on what else ran there; it is said.
    assert_eq!(behind(lock, "takes") == 4.0, !said.contains("what the waits say is used"), "{said}");
    let share = behind(lock, "takes") * behind(lock, "hold_ns") / (turns * held);
    assert!((1.0 / 3.0..3.0).contains(&share), "{share}: {said}{lock}");
}

/// Each pair of dup2 and close takes the lock of the table of descriptors twice.
#[test]
fn counted_calls_tell_how_often_the_table_of_descriptors_is_locked() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "../../../workloads/fdtorture.c");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (run, calls) = (path("run.ncpu"), path("calls.ncpu"));
    let metric = ["--metric", "([0-9.]+) ops/s", "--", &program, "2", "2"];
    let o = ahead_of_others(&[&["run", "--record", &run], &metric[..]].concat());
    assert!(o.status.success(), "{}", err(&o));
    let events = "syscalls:sys_enter_dup2,syscalls:sys_enter_close";
    let o = ahead_of_others(&[&["counters", "-e", events, "--record", &calls], &metric[..]].concat());
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(&["foresee", &run, &calls, "--on", "1x2", "--cpus", "2"]);
    assert!(o.status.success(), "{}", err(&o));
    let said = unbroken(&out(&o));
    println!("{}", out(&o));
    assert!(said.contains("by the calls that take it"), "{}", out(&o));
    let takes = behind(&said, "lock files_struct.file_lock: taken");
    assert!((takes / 2.0 - 1.0).abs() < 0.15, "{takes}: {said}");
    // A recording that counts something else.
    let other = path("other.ncpu");
    let o = ncpu(&["counters", "-e", "page-faults", "--record", &other, "--", "true"]);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(&["foresee", &run, &other, "--on", "1x2"]);
    assert!(
        !o.status.success() && err(&o).contains("how often the program makes system calls"),
        "{}",
        err(&o)
    );
    let o = ncpu(&["counters", "-e", "page-faults", "--metric", "([0-9]+)", "1", "1"]);
    assert!(!o.status.success() && err(&o).contains("give -- CMD"), "{}", err(&o));
}

/// The second point takes minutes; the first is done at once.
#[test]
fn an_interrupt_gives_the_points_that_were_done() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("half.toml");
    fs::write(&file, HALF.replace("takes = 1", "takes = 0.001")).unwrap();
    for seconds in [1, 4, 16] {
        let child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
            .args(["foresee", "--model", file.to_str().unwrap(), "--on", "64x64x16", "--cpus", "1,65536"])
            .env("COLUMNS", "100")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        let o = child.wait_with_output().unwrap();
        if err(&o).contains("stopped before the first point was done") {
            continue;
        }
        assert_eq!(o.status.code(), Some(130), "{}{}", out(&o), err(&o));
        assert!(out(&o).contains("stopped early: 1 of 2 points were done"), "{}", out(&o));
        assert!(out(&o).contains("The onion of 1 CPUs"), "{}", out(&o));
        return;
    }
    panic!("no point was done in 16 seconds");
}

#[test]
fn fixes_do_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.toml");
    let x = |model: &str, fixes: &[&str]| {
        fs::write(&file, model).unwrap();
        let mut args =
            vec!["foresee", "--model", file.to_str().unwrap(), "--on", "1x8", "--cpus", "8", "-o", "csv"];
        for fix in fixes {
            args.extend(["--fix", fix]);
        }
        let o = ncpu(&args);
        assert!(o.status.success(), "{fixes:?}: {}", err(&o));
        cells(&out(&o), "throughput")[0]
    };
    // One thread that does nothing but fault, and seven CPUs that could help.
    let faults =
        "name = \"f\"\nthreads = 1\nwork_ns = 10000000\ncv = 0\n[[mix]]\nclass = \"fault\"\nweight = 1\n";
    let gain = x(faults, &["populate 8"]) / x(faults, &[]);
    assert!(gain > 5.0 && gain < 8.2, "populate: {gain}");
    // Clients that think ten times as long as they are served.
    let clients = "name = \"c\"\nthreads = 4\nwork_ns = 10000\nsleep_ns = 100000\n";
    let gain = x(clients, &["sleep less 4"]) / x(clients, &[]);
    assert!((gain / (110.0 / 35.0) - 1.0).abs() < 0.2, "sleep less 4: {gain}");
    // A counter that all write, and next to no other work.
    let counter = "name = \"l\"\nwork_ns = 50\ncv = 0\n[[line]]\nname = \"hot\"\nwrites = 1\n";
    let (shared, bounded, own) =
        (x(counter, &[]), x(counter, &["line hot bounded"]), x(counter, &["line hot per-cpu"]));
    assert!(bounded > 4.0 * shared && own >= 0.99 * bounded, "{shared} {bounded} {own}");
    // Ticks of eight CPUs, each a twentieth of one, on the first alone.
    let ticks = "name = \"t\"\nwork_ns = 100000\ntick_ns = 50000\ntick_hz = 1000\n";
    let gain = x(ticks, &["ticks off"]) / x(ticks, &[]);
    assert!((gain - 1.05).abs() < 0.02, "ticks off: {gain}");
    let gain = x(ticks, &["ticks on-one"]) / x(ticks, &[]);
    assert!((gain - 1.0).abs() < 0.02, "ticks on-one: {gain}");
    // As many sleeps of a sixteenth of the number cost a sixteenth of the switches.
    let polls = "name = \"p\"\nthreads = 64\nwork_ns = 2000\nsleep_ns = 5000\n";
    let gain = x(polls, &["polls batched 16"]) / x(polls, &[]);
    assert!(gain > 1.2, "polls batched: {gain}");
}

#[test]
fn the_catalogue_is_listed() {
    let csv = out(&ncpu(&["foresee", "--machines", "-o", "csv"]));
    assert!(csv.lines().count() > 25 && csv.contains("epyc-7r13,2x8x6x2,192,"), "{csv}");
}

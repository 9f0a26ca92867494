//! `ncpu power` on generated trees.

mod common;

use std::fs;
use std::path::Path;

use common::{err, ncpu, out};
use ncpu_machine_trees::put;

fn zone(root: &Path, id: &str, name: &str, energy: &str) {
    let dir = root.join("sys/class/powercap").join(id);
    put(&dir, "name", name);
    put(&dir, "energy_uj", energy);
    put(&dir, "max_energy_range_uj", "262143328850\n");
}

fn cell(csv: &str, row: usize, column: &str) -> f64 {
    let at = csv.lines().next().unwrap().split(',').position(|c| c == column).unwrap();
    csv.lines().nth(row + 1).unwrap().split(',').nth(at).unwrap().parse().unwrap()
}

#[test]
fn joules_of_a_command_and_over_the_counters_end() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    zone(dir.path(), "intel-rapl:0", "package-0\n", "262143000000\n");
    zone(dir.path(), "intel-rapl:0:0", "dram\n", "0\n");
    // The command is the machine: it moves the counters by 2.328850 J, over the end of the range, and 0.5 J.
    let zones = format!("{root}/sys/class/powercap");
    let command = format!(
        "echo 2000000 >{zones}/intel-rapl:0/energy_uj; echo 500000 >{zones}/intel-rapl:0:0/energy_uj; sleep 0.3; exit 5"
    );
    let o = ncpu(&[
        "power",
        "--root",
        root,
        "--seconds",
        "0.2",
        "--price",
        "0.3",
        "-o",
        "csv",
        "--",
        "sh",
        "-c",
        &command,
    ]);
    assert_eq!(o.status.code(), Some(5), "the command's own status: {}", err(&o));
    let csv = out(&o);
    assert!((cell(&csv, 0, "cmd_J") - 2.32885).abs() < 1e-9, "{csv}");
    assert!(
        (cell(&csv, 1, "cmd_J") - 0.5).abs() < 1e-9 && (cell(&csv, 2, "cmd_J") - 2.82885).abs() < 1e-9,
        "{csv}"
    );
    assert_eq!(cell(&csv, 0, "rest_W"), 0.0);
    let watts = cell(&csv, 2, "cmd_W");
    assert!((watts - cell(&csv, 2, "cmd_J") / cell(&csv, 2, "cmd_s")).abs() < 1e-9 * watts.abs(), "{csv}");
    assert!((cell(&csv, 2, "year_cost") - watts * 8.766 * 0.3).abs() < 1e-9 * watts, "{csv}");
}

#[test]
fn at_rest_only_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let hwmon = dir.path().join("sys/class/hwmon/hwmon3");
    put(&hwmon, "name", "power_meter\n");
    // The low-power home server's 37 W, once its power supply had been replaced.
    put(&hwmon, "power1_average", "37000000\n");
    let kept = dir.path().join("p.ncpu");
    let o = ncpu(&[
        "power",
        "--root",
        root,
        "--seconds",
        "0.3",
        "--price",
        "0.25",
        "--record",
        kept.to_str().unwrap(),
    ]);
    assert!(o.status.success(), "{}", err(&o));
    // Averages over time, which round: 37 or 37.00.
    let text = out(&o);
    for (line, meter) in text.lines().skip(1).zip([&["power_meter", "power1"][..], &["total"]]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.starts_with(meter), "{text}");
        let numbers: Vec<f64> = words.iter().filter_map(|w| w.parse().ok()).collect();
        let expected = [37.0, 324.34, 81.085];
        assert!(
            numbers.len() == 3 && numbers.iter().zip(expected).all(|(n, e)| (n - e).abs() < 0.01),
            "{text}"
        );
    }
    assert_eq!(text.lines().count(), 3, "{text}");
    let csv = out(&ncpu(&["report", kept.to_str().unwrap(), "-o", "csv"]));
    assert!(csv.lines().nth(1).unwrap().starts_with("power_meter power1,machine,hwmon,"), "{csv}");
    assert!((cell(&csv, 0, "rest_W") - 37.0).abs() < 1e-9, "{csv}");
}

#[test]
fn a_machine_without_meters_says_so_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let o = ncpu(&[
        "power",
        "--root",
        dir.path().to_str().unwrap(),
        "--",
        "touch",
        dir.path().join("ran").to_str().unwrap(),
    ]);
    assert_eq!(o.status.code(), Some(1));
    assert!(
        err(&o).starts_with("ncpu: this machine has no energy meter") && err(&o).lines().count() == 1,
        "{}",
        err(&o)
    );
    assert!(!dir.path().join("ran").exists(), "nothing is run that cannot be measured");
    for (args, words) in [
        (&["--price", "-1"][..], "--price"),
        (&["--seconds", "-1"], "--seconds"),
        (&["--seconds", "0"], "nothing to measure"),
    ] {
        let args: Vec<&str> = ["power"].into_iter().chain(args.iter().copied()).collect();
        let o = ncpu(&args);
        assert!(!o.status.success() && err(&o).contains(words), "{args:?}: {}", err(&o));
    }
    zone(dir.path(), "intel-rapl:0", "package-0", "1");
    let o =
        ncpu(&["power", "--root", dir.path().to_str().unwrap(), "--seconds", "0", "--", "no-such-program"]);
    assert_eq!(o.status.code(), Some(127), "{}", err(&o));
}

#[test]
fn joules_of_an_operation() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap().to_string();
    zone(dir.path(), "intel-rapl:0", "package-0\n", "0\n");
    // A machine that takes energy as time goes by, all the while that the benchmark runs.
    let file = dir.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    let done = std::sync::atomic::AtomicBool::new(false);
    let o = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (begin, new) = (std::time::Instant::now(), dir.path().join("new"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // 50 W, put in place at once, so that nobody reads half a number.
                fs::write(&new, format!("{}\n", begin.elapsed().as_micros() * 50)).unwrap();
                fs::rename(&new, &file).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let energy = format!("--energy={root}");
        let o = ncpu(&["bench", "getpid", "-C", "20", "-D", "400", &energy, "-o", "csv"]);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        o
    });
    assert!(o.status.success(), "{}", err(&o));
    let csv = out(&o);
    let column = |c| cell(&csv, 0, c);
    // The other thread may be kept from its CPU for a while, so the power is told loosely; its relation is exact.
    assert!(column("watts") > 5.0 && column("watts") < 500.0, "{csv}");
    assert!((column("J/op") / (column("watts") * column("time") * 1e-6) - 1.0).abs() < 1e-9, "{csv}");
    let o = ncpu(&["bench", "getpid", "-C", "5", "-D", "50", "--energy=/nowhere"]);
    assert!(
        o.status.success() && err(&o).starts_with("ncpu bench: --energy: this machine has no energy meter"),
        "{}",
        err(&o)
    );
    assert!(!out(&o).contains("J/op"), "{}", out(&o));
}

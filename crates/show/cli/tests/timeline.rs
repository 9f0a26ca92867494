//! A program of three phases is peeled as three onions. It says itself when each began.

mod common;

use std::path::Path;
use std::process::Command;

use common::{err, ncpu, out, root};
use ncpu_trials::{MOST, hold};

/// `phases.c`, which removes itself when dropped.
struct Phases(std::path::PathBuf);

impl Phases {
    fn compile(name: &str) -> Phases {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/phases.c");
        let done = Command::new("gcc")
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&to, &source])
            .output()
            .expect("gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Phases(to)
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// When each phase began and ended, as the program says.
fn truth(said: &str) -> Vec<(f64, f64)> {
    let times = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1).map(|w| w.parse::<f64>());
        Some((words.next()?.ok()?, words.next()?.ok()?))
    });
    times.collect()
}

#[test]
fn what_cannot_be_told_is_refused() {
    let o = ncpu(&["report", "x.ncpu", "--timeline", "-o", "json"]);
    assert!(!o.status.success());
    let o = ncpu(&["run", "--timeline", "-o", "json", "--", "true"]);
    assert!(!o.status.success() && err(&o).contains("--table timeline"), "{}", err(&o));
}

mod quiet {
    use super::*;

    #[test]
    fn three_phases_are_three_onions() {
        if !root() {
            return;
        }
        hold(MOST, "three phases", || {
            let dir = tempfile::tempdir().unwrap();
            let recording = dir.path().join("phases.ncpu");
            let recording = recording.to_str().unwrap();
            let program = Phases::compile("timeline");
            let program = program.0.to_str().unwrap();
            let o = ncpu(&["run", "--timeline", "--record", recording, "--", program, "1.5"]);
            assert!(o.status.success(), "{}", err(&o));
            let truth = truth(&out(&o));
            assert_eq!(truth.len(), 3, "{}", out(&o));
            let text = err(&o);

            // The same from the recording, as a table.
            let o = ncpu(&["report", recording, "--table", "phases", "-o", "json"]);
            let row = |line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"))
            };
            let said = out(&o);
            let rows: Vec<serde_json::Value> = said.lines().map(row).collect();
            let number = |row: &serde_json::Value, key: &str| row[key].as_f64().unwrap_or(f64::NAN);
            let share = |at: f64, layer: &str| -> f64 {
                let of = rows.iter().filter(|r| number(r, "from") <= at && at < number(r, "to"));
                of.filter(|r| r["layer"] == layer).map(|r| number(r, "share")).sum()
            };
            // The program begins a moment after the observation; a column is a tenth of a second, and CPUs have other work.
            let begins: Vec<f64> = rows.iter().map(|r| number(r, "from")).collect();
            for (from, _) in &truth[1..] {
                let nearest = begins.iter().map(|b| (b - from).abs()).fold(f64::INFINITY, f64::min);
                assert!(nearest < 0.4, "{from} of {begins:?}\n{text}");
            }
            let middle = |phase: usize| 0.5 * (truth[phase].0 + truth[phase].1);
            let faults = |phase: usize| share(middle(phase), "page faults and zeroing");
            assert!(faults(2) > 0.02 && faults(0) < 0.3 * faults(2) && faults(1) < 0.3 * faults(2), "{text}");
            let locks = |phase: usize| {
                ["user lock waiting", "system calls", "context switches"]
                    .iter()
                    .map(|l| share(middle(phase), l))
                    .sum::<f64>()
            };
            assert!(locks(1) > 0.05 && locks(0) < 0.5 * locks(1), "{text}");

            // In text each phase has an onion of its own, and the page has them too.
            assert!(text.contains("Over time: ") && text.contains("Phase 1 of "), "{text}");
            let chart = text.lines().skip_while(|l| !l.starts_with("Over time: "));
            assert!(chart.take_while(|l| !l.contains("->")).all(|l| l.chars().count() <= 100), "{text}");
            let page = dir.path().join("phases.html");
            let o = ncpu(&["report", recording, "--html", page.to_str().unwrap()]);
            assert!(o.status.success(), "{}", err(&o));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.contains("<b>Phase 1</b>") && page.contains("class=change"));
        });
    }
}

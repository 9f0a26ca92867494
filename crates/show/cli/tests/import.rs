//! `ncpu import`: a file of perf agrees with the program's own clocks, with rusage and with `perf report`.

mod common;

use std::process::Command;

use common::{err, ncpu, out, root};

/// Works by the clock of its CPU time, three parts to one, then sleeps ten times; prints what it did.
const BURN: &str = r#"
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long n;
static double now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec / 1e9; }
#define WORK(name, op) __attribute__((noinline)) void name(double s) { \
	double end = now(CLOCK_PROCESS_CPUTIME_ID) + s; \
	do for (int i = 0; i < 100000; i++) n op i; while (now(CLOCK_PROCESS_CPUTIME_ID) < end); }
WORK(three_parts, +=)
WORK(one_part, ^=)
int main(void)
{
	three_parts(1.2);
	one_part(0.4);
	double slept = now(CLOCK_MONOTONIC);
	for (int i = 0; i < 10; i++)
		usleep(30000);
	slept = now(CLOCK_MONOTONIC) - slept;
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	printf("%f %f\n", r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6, slept);
}
"#;

fn rows(recording: &str, table: &str) -> Vec<serde_json::Value> {
    let printed = ncpu(&["report", recording, "--table", table, "-o", "json"]);
    assert!(printed.status.success(), "{}", err(&printed));
    out(&printed).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_is_no_file_of_perf_is_named() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("text"), "no recording").unwrap();
    let refused = ncpu(&["import", &path("text"), "--record", &path("x.ncpu")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("text: not a file of perf record"), "{}", err(&refused));
    assert!(!place.path().join("x.ncpu").exists());
    let missing = ncpu(&["import", &path("none"), "--record", &path("x.ncpu")]);
    assert!(err(&missing).contains("reading") && err(&missing).contains("none"), "{}", err(&missing));
}

mod quiet {
    use super::*;

    #[test]
    fn a_file_of_perf_agrees_with_rusage_and_with_perf_report() {
        if !root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("burn.c"), BURN).unwrap();
        let built =
            Command::new("gcc").args(["-O1", "-g", "-o", &path("burn"), &path("burn.c")]).output().unwrap();
        assert!(built.status.success(), "{}", err(&built));
        // perf mounts tracefs for itself.
        let data = path("perf.data");
        let perf = |args: &[&str]| Command::new("unshare").args(["-m", "perf"]).args(args).output();
        let record = ["record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "--switch-events", "-o", &data];
        let burn = path("burn");
        let ran = match perf(&[&record[..], &["--", &burn]].concat()) {
            Ok(ran) if ran.status.success() => ran,
            _ => {
                eprintln!("skipped: perf record does not work here");
                return;
            }
        };
        let said = out(&ran);
        let said: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [used, slept] = said[..] else { panic!("{said:?}") };

        let recording = path("burn.ncpu");
        let imported = ncpu(&["import", &data, "--record", &recording]);
        assert!(imported.status.success(), "{}", err(&imported));
        let threads = rows(&recording, "threads");
        let thread = |key: &str| threads.iter().filter_map(|row| row[key].as_f64()).sum::<f64>();
        assert!((thread("cpu") - used).abs() < 0.05 * used, "{} of {used}", thread("cpu"));
        assert!((thread("off") - slept).abs() < 0.02 * slept, "{} of {slept}", thread("off"));
        assert!(thread("vcx") >= 10.0, "{threads:?}");

        // Each CPU-second is in one layer, and the program's are those of rusage.
        let layers = rows(&recording, "layers");
        let seconds = |names: &[&str]| -> f64 {
            let chosen = layers
                .iter()
                .filter(|row| names.is_empty() || names.contains(&row["layer"].as_str().unwrap()));
            chosen.map(|row| row["seconds"].as_f64().unwrap()).sum()
        };
        let summary = rows(&recording, "summary");
        let capacity = summary[0]["elapsed"].as_f64().unwrap() * summary[0]["cpus"].as_f64().unwrap();
        assert!((seconds(&[]) - capacity).abs() < 1e-6 * capacity, "{layers:?}");
        let program = seconds(&[]) - seconds(&["not accounted for"]);
        assert!((program - used).abs() < 0.05 * used, "{program} of {used}: {layers:?}");

        // Samples are those that perf counts itself, function by function.
        let perf_report = ["report", "-i", &data, "--stdio", "--no-children", "-g", "none", "-n"];
        let printed = out(&perf(&perf_report).unwrap());
        let samples = rows(&recording, "samples");
        for function in ["three_parts", "one_part"] {
            let line = printed.lines().find(|line| line.ends_with(&format!("[.] {function}"))).unwrap();
            let perf: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            let of = |row: &&serde_json::Value| row["class"] == "user" && row["detail"] == function;
            let own: f64 = samples.iter().filter(of).map(|row| row["samples"].as_f64().unwrap()).sum();
            assert_eq!(own, perf, "{function}: {samples:?}");
        }
        let onion = ncpu(&["report", &recording]);
        assert!(out(&onion).contains("perf observed the program alone"), "{}", out(&onion));
    }
}

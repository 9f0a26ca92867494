//! Bench cases and surveys by name, as a user meets them; a database that is interrupted leaves nothing.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{err, ncpu, out};

#[test]
fn the_list_has_cases_and_surveys_with_their_options() {
    let o = ncpu(&["bench"]);
    let text = out(&o);
    for name in ["dup2_close", "accept_reuseport", "shm_sysv", "lock_adaptive", "stream", "core-to-core"] {
        assert!(text.lines().any(|l| l.starts_with(name)), "{name}");
    }
    assert!(text.contains("-e ENGINES  which [postgres,sqlite]"), "{text}");
}

#[test]
fn a_pattern_runs_a_family() {
    let o = ncpu(&["bench", "counter_*", "-C", "2", "-D", "4", "-B", "10", "-o", "csv"]);
    assert!(o.status.success(), "{}", err(&o));
    let names: Vec<String> =
        out(&o).lines().skip(1).filter_map(|l| Some(l.split(',').next()?.into())).collect();
    assert_eq!(names, ["counter_atomic", "counter_sharded", "counter_thread", "counter_mutex"]);
}

#[test]
fn a_survey_is_run_alone_and_sorted_like_any_table() {
    let o = ncpu(&["bench", "getpid", "locks"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).contains("`locks` has a table of its own: run it alone"), "{}", err(&o));
    let quick = ["-C", "2", "-D", "4"];
    let o = ncpu(&[&["bench", "counters"][..], &quick, &["--", "-t", "1"]].concat());
    assert!(out(&o).starts_with("Million operations a second"), "{}", out(&o));
    let o =
        ncpu(&[&["bench", "counters", "-k", "ops", "--top", "1"][..], &quick, &["--", "-t", "1"]].concat());
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(out(&o).lines().count(), 2, "{}", out(&o));
    let o = ncpu(&["bench", "locks", "--", "-q"]);
    assert!(err(&o).contains("locks: -q: no option of this case"), "{}", err(&o));
}

#[test]
fn a_survey_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("r.ncpu");
    let o =
        ncpu(&["bench", "stream", "--record", recording.to_str().unwrap(), "--", "-s", "1000", "-n", "2"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(recording.join("stream.parquet").is_file(), "{}", err(&o));
    assert!(err(&o).contains("Solution Validates"), "{}", err(&o));
}

/// Processes that have `word` among their arguments.
fn processes(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|p| {
        let line = std::fs::read(p.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (line.contains(word) && !line.contains("ncpu bench")).then_some(line)
    })
    .collect()
}

#[test]
fn an_interrupted_database_leaves_no_process_and_no_file() {
    if !std::path::Path::new("/usr/lib/postgresql").is_dir() {
        eprintln!("skipped: no PostgreSQL");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The server is another user's where the test is root's.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let name = dir.path().to_str().unwrap();
    for signal in ["INT", "KILL"] {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ncpu"))
            .args(["bench", "logical-reads", "--", "-e", "postgres", "-n", "2", "-d", "600", "-s", "2m"])
            .env("TMPDIR", name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let patience = Duration::from_secs(90);
        let until = |what: &str, done: &mut dyn FnMut() -> bool| {
            let began = Instant::now();
            while !done() {
                assert!(began.elapsed() < patience, "{signal}: waited in vain for {what}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        // Three sessions: two that work, and one that waits for them.
        until("sessions", &mut || processes(name).iter().filter(|l| l.contains("psql")).count() >= 3);
        assert!(processes(name).iter().any(|l| l.contains("postgres")));
        let pid = bench.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        until("its end", &mut || bench.try_wait().unwrap().is_some());
        until("the end of its processes", &mut || processes(name).is_empty());
        if signal == "INT" {
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

/// As of every command that a signal ends.
#[test]
fn a_benchmark_that_is_interrupted_says_so_by_its_status() {
    for (names, rest) in [(["getpid"], &[][..]), (["counters"], &["--", "-t", "1"])] {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        bench.arg("bench").args(names).args(["--precision", "0.000001", "-D", "60000"]).args(rest);
        let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(700));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(bench.id() as i32).unwrap(),
            rustix::process::Signal::INT,
        )
        .unwrap();
        let o = bench.wait_with_output().unwrap();
        assert_eq!(o.status.code(), Some(130), "{names:?}: {}{}", out(&o), err(&o));
        assert!(names[0] != "getpid" || out(&o).contains("getpid"), "{}", out(&o));
    }
}

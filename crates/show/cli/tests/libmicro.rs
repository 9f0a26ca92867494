//! `ncpu bench` with libMicro's cases as a user meets them, in bad conditions, too.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{err, ncpu, out};

const NCPU: &str = env!("CARGO_BIN_EXE_ncpu");
/// Samples enough to see that a case works, and no more.
const QUICK: [&str; 4] = ["-D", "20", "-C", "3"];

fn bench(args: &[&str]) -> Output {
    ncpu(&[&["bench"], args, &QUICK].concat())
}

#[test]
fn the_list_names_cases_and_their_options() {
    let o = ncpu(&["bench"]);
    assert!(o.status.success(), "{}", err(&o));
    for line in
        ["cascade_mutex    hand over", "   -s   made to be shared", "   DIRECTORY...  the directories [/]"]
    {
        assert!(out(&o).contains(line), "{line}: {}", out(&o));
    }
}

#[test]
fn cases_and_their_standard_invocations_have_figures() {
    let o = bench(&["chdir", "c_mutex_10", "close_bad", "exit_10", "pipe_pmp1", "longjmp", "-o", "json"]);
    assert!(o.status.success(), "{}", err(&o));
    let text = out(&o);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines.iter().all(|l| l.contains(r#""errors":0"#) && !l.contains(r#""time":null"#)), "{lines:?}");
    assert!(lines[2].contains(r#""cnt_per_samp":32"#), "libMicro's batch: {}", lines[2]);
}

#[test]
fn options_that_make_no_sense_are_told() {
    for (args, says) in [
        (&["pipe", "--", "-m", "xx"][..], "-m xx: give one of st, mt, mp"),
        (&["poll", "--", "-n", "3"], "give an even number"),
        (&["read", "--", "-f", "/no/such/file"], "/no/such/file: No such file"),
        (&["chdir", "--", "/no/such/directory"], "/no/such/directory: No such file"),
        (&["mmap", "--", "-l", "0"], "give a length above 0"),
        (&["select", "--", "-n", "4096"], "below 1024 only"),
    ] {
        let o = ncpu(&[&["bench"], args].concat());
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        assert!(!o.status.success(), "{args:?}");
    }
}

#[test]
fn more_workers_than_cpus_are_told() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let o = bench(&["getpid", "-T", &(2 * cpus + 1).to_string(), "-o", "json"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).contains(&format!("{} workers take turns on {cpus} CPUs", 2 * cpus + 1)), "{}", out(&o));
}

#[test]
fn cpus_beyond_those_allowed_are_told() {
    // The command may use one CPU only, as in a cpuset; asked for is all there is.
    let mut command = Command::new("taskset");
    command.args(["-c", "0", NCPU, "bench", "getpid", "--place", "cpus:0-1"]);
    let o = command.output().unwrap();
    assert!(!o.status.success());
    assert!(
        err(&o).contains("CPUs 0-1 are not all available to this process; expected CPUs of 0"),
        "{}",
        err(&o)
    );
    let o = Command::new("taskset")
        .args(["-c", "0", NCPU, "bench", "getpid", "--place", "pack"])
        .args(QUICK)
        .output();
    assert!(o.unwrap().status.success());
}

/// Runs ncpu with a limit of descriptors that even root cannot raise.
fn with_descriptors(n: u64, args: &[&str]) -> Output {
    let mut command = Command::new(NCPU);
    command.arg("bench").args(args).args(QUICK);
    // SAFETY: system calls only, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            const CAP_SYS_RESOURCE: usize = 24;
            let limit = libc::rlimit { rlim_cur: n, rlim_max: n };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            // A process that may not do that lacks the capability too.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0);
            Ok(())
        });
    }
    command.output().unwrap()
}

#[test]
fn too_few_descriptors_are_told() {
    let o = with_descriptors(200, &["dup", "-B", "512"]);
    assert!(o.status.success(), "the machine lacks something, nothing failed: {}", err(&o));
    assert!(err(&o).contains("dup: skipped: needs 576 file descriptors"), "{}", err(&o));
    let o = with_descriptors(200, &["dup", "-B", "64", "-o", "json"]);
    assert!(o.status.success() && out(&o).contains(r#""errors":0"#), "{}{}", out(&o), err(&o));
}

#[test]
fn no_loopback_is_told() {
    let unshare = Command::new("unshare").args(["-n", "true"]).status();
    if !unshare.is_ok_and(|s| s.success()) {
        return eprintln!("skipped: a network namespace needs root");
    }
    let o = Command::new("unshare")
        .args(["-n", NCPU, "bench", "getpeername", "connection", "close_tcp"])
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", err(&o));
    for case in ["getpeername", "connection", "close_tcp"] {
        let line = format!("{case}: skipped: needs TCP over the loopback address 127.0.0.1");
        assert!(err(&o).contains(&line), "{}", err(&o));
    }
}

/// The child of a process that exists now, if there is one.
fn child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn ctrl_c_in_a_suite_keeps_what_is_done() {
    let mut command = Command::new(NCPU);
    command
        .args(["bench", "--suite", "libmicro", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    // Each case has a process of its own: when the third one is there, two are done.
    let (mut seen, patience) = (std::collections::BTreeSet::new(), Instant::now());
    while seen.len() < 3 && patience.elapsed() < Duration::from_secs(120) {
        seen.extend(child(running.id()));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen.len(), 3, "the suite does not get on");
    // SAFETY: our child, which nobody has waited for.
    assert_eq!(unsafe { libc::kill(running.id() as i32, libc::SIGINT) }, 0);
    let o = running.wait_with_output().unwrap();
    // 128 + SIGINT, as a shell.
    assert_eq!(o.status.code(), Some(130), "{}", err(&o));
    let text = out(&o);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() >= 2 && lines.len() < 100, "{} lines", lines.len());
    assert!(
        lines[0].contains(r#""benchmark":"getpid""#) && !lines[0].contains(r#""time":null"#),
        "{}",
        lines[0]
    );
}

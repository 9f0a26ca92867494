//! `ncpu timers` as a user meets it: what is counted is counted exactly, whatever the machine is busy with.

mod common;

use std::path::Path;
use std::process::Command;

use common::{err, ncpu, out, root};

use ncpu_record::Recording;
use ncpu_table::Table;
use ncpu_trials::{MOST, hold};

const NCPU: &str = env!("CARGO_BIN_EXE_ncpu");

/// What `ncpu timers ARGS` records.
fn recorded(args: &[&str], before: &[&str]) -> Recording {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("a.ncpu");
    let all = [&["timers"], before, &["--record", recording.to_str().unwrap()], args].concat();
    let o = ncpu(&all);
    assert!(o.status.success(), "{all:?}: {}", err(&o));
    Recording::open(&recording).unwrap()
}

/// The sum of a column over the rows of a handler.
fn sum(table: &Table, function: &str, column: &str) -> u64 {
    let rows = (0..table.num_rows()).filter(|&r| table.text(r, "function") == Some(function));
    rows.filter_map(|r| table.int(r, column)).sum()
}

#[test]
fn calls_are_measured_without_root() {
    let o = ncpu(&[
        "timers",
        "--calls",
        "poll",
        "--times",
        "2ms,1us",
        "--samples",
        "4",
        "--by",
        "time",
        "-o",
        "json",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    let lines: Vec<String> = out(&o).lines().map(String::from).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains(r#""time":"2 ms","asked":0.002"#), "{lines:?}");
    assert!(lines[1].contains(r#""time":"1 us","asked":0.001"#), "poll counts in ms: {lines:?}");
    assert!(lines.iter().all(|l| l.contains(r#""early":0,"samples":4"#)), "{lines:?}");
}

#[test]
fn text_tells_what_the_machine_runs_by() {
    let o = ncpu(&["timers", "--calls", "nanosleep", "--times", "1ms", "--samples", "3"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).starts_with("call "), "{}", out(&o));
    assert!(out(&o).contains("CONFIG_HZ=") && out(&o).contains("timer slack"), "{}", out(&o));
}

#[test]
fn mistakes_are_told() {
    for (args, says) in [
        (&["--calls", "port_getn"][..], "unknown call; expected one of: "),
        (&["--times", "9"], "give a number and a unit"),
        (&["--by", "function"], "add --who"),
        (&["5"], "--poll, --who and --cpus"),
        (&["--poll", "2", "0"], "positive number of seconds"),
        (&["--who", "-p", "4999999", "1"], "there is no process 4999999"),
        (&["--who", "0"], "positive number of seconds"),
    ] {
        let o = ncpu(&[&["timers"], args].concat());
        assert!(!o.status.success() && err(&o).contains(says), "{args:?}: {}", err(&o));
    }
}

#[test]
fn each_call_of_a_herd_arms_one_timer() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let herd = dir.path().join("herd.ncpu");
    let herd = herd.to_str().unwrap();
    let child = ["--", NCPU, "timers", "--poll", "10", "--times", "3ms", "--record", herd, "0.5"];
    let arms = &recorded(&child, &["--who"]).tables["timer_arms"];
    let herd = &Recording::open(Path::new(herd)).unwrap().tables["herd"];
    let (calls, starts) = (herd.int(0, "calls").unwrap(), sum(arms, "hrtimer_wakeup", "starts"));
    assert_eq!(herd.int(0, "early"), Some(0));
    // The thread that waits for the herd sleeps 0.1 s at a time.
    assert!(starts >= calls && starts <= calls + 200, "{starts} starts of {calls} calls");
}

#[test]
fn every_nanosecond_of_a_cpu_is_one_thing() {
    if !root() {
        return;
    }
    let doings = &recorded(&["0.5"], &["--cpus"]).tables["cpu_doings"];
    assert!(doings.num_rows() > 0);
    for row in 0..doings.num_rows() {
        let states = doings.columns().iter().filter(|c| c.kind == ncpu_table::Kind::Time);
        let sum: f64 = states.filter_map(|c| doings.number(row, &c.name)).sum();
        let elapsed = doings.number(row, "elapsed").unwrap();
        assert!((sum - elapsed).abs() < 0.001, "CPU {:?}: {sum} of {elapsed} s", doings.int(row, "CPU"));
    }
}

#[test]
fn a_kernel_without_a_tracepoint_costs_what_hangs_on_it() {
    if !root() {
        return;
    }
    let without = |hidden: &str, args: &[&str]| {
        let args = [&["timers"], args].concat();
        Command::new(NCPU).args(args).env("NCPU_HIDE_TRACEPOINTS", hidden).output().unwrap()
    };
    let o = without("timer_start", &["--who", "0.1"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(
        err(&o).contains("no timers of the timer wheel: the kernel has no tracepoint timer_start"),
        "{}",
        err(&o)
    );
    let o = without("timer_start,hrtimer_start", &["--who", "0.1"]);
    assert_eq!(o.status.code(), Some(1));
    assert_eq!(err(&o).lines().count(), 1, "{}", err(&o));
    let o = without("local_timer_entry", &["--cpus", "0.1"]);
    assert!(o.status.success() && err(&o).contains("of timer interrupts only the handlers"), "{}", err(&o));
    let o = without("hrtimer_expire_entry,softirq_exit", &["--cpus", "0.1"]);
    assert!(
        o.status.success() && err(&o).contains("no softirqs") && err(&o).contains("no ticks"),
        "{}",
        err(&o)
    );
}

#[test]
fn without_root_one_line_says_what_is_missing() {
    common::needs_root(&[&["timers", "--who", "1"], &["timers", "--cpus", "1"]]);
}

mod quiet {
    use super::*;

    #[test]
    fn each_timerfd_armed_is_a_start_of_that_process() {
        if !root() {
            return;
        }
        let child = ["--", NCPU, "timers", "--calls", "timerfd_settime", "--times", "1ms", "--samples", "30"];
        hold(MOST, "timerfd", || {
            let recording = recorded(&child, &["--who"]);
            let arms = &recording.tables["timer_arms"];
            // 30 with the timer slack there is and 30 without; each is awaited.
            assert_eq!(sum(arms, "timerfd_tmrproc", "starts"), 60);
            // Some kernels of sandboxes run no BPF program while a thread of process 1 is the current one, though the same
            // tracepoint writes to a trace then. A timer's end that falls there cannot be counted: one in a hundred, where that process works one hundredth of the time.
            let [expires, cancels] = ["expires", "cancels"].map(|end| sum(arms, "timerfd_tmrproc", end));
            assert!((57..=60).contains(&expires) && cancels == 0, "{expires} expiries and {cancels} cancels");
            let row =
                (0..arms.num_rows()).find(|&r| arms.text(r, "function") == Some("timerfd_tmrproc")).unwrap();
            assert_eq!(arms.text(row, "process"), Some("ncpu"));
            // Asked for was 1 ms; arming took some of it, and more where it was interrupted.
            let nearest = arms.number(row, "farthest").unwrap();
            assert!(nearest > 0.0 && nearest <= 0.001, "{nearest}");
            let callers = &recording.tables["timer_callers"];
            let caller =
                (0..callers.num_rows()).find(|&r| callers.text(r, "function") == Some("timerfd_tmrproc"));
            let caller = callers.text(caller.expect("the first stacks are all walked"), "caller").unwrap();
            assert!(caller.starts_with("timerfd_settime"), "{caller}");
        });
    }
}

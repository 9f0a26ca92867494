//! `ncpu colour` and `ncpu lines --sets`, on conflicts that were planted.

mod common;

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use common::{err, out};

/// Ends with the test, also with one that fails.
struct Planted(Child);

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program with planted conflicts, which tells one figure and stays.
fn planted(dir: &std::path::Path, before: &[&str]) -> (Planted, String) {
    let program = dir.join("stackwalk");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../workloads/stackwalk.c");
    let flags = ["-O2", "-g", "-pthread", "-o"];
    let done = Command::new("gcc").args(flags).arg(&program).arg(source).output().unwrap();
    assert!(done.status.success(), "{}", err(&done));
    let mut command = match before {
        [] => Command::new(&program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
    };
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    command.env("NCPU_PRELOAD_DIR", libraries);
    let mut child = command.args(["24", "1", "600"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Planted(child), line)
}

fn sets(child: &Planted, cache: &str) -> (String, String) {
    let pid = child.0.id().to_string();
    let args = ["lines", "-p", &pid, "--sets", cache, "-o", "csv"];
    let o = Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    (out(&o), err(&o))
}

/// How many of the planted words are in the row that has most of them.
fn words(table: &str) -> usize {
    table.lines().map(|row| row.matches("planted_").count()).max().unwrap_or(0)
}

/// How many stacks are in the row that has most of them.
fn stacks(table: &str) -> u64 {
    table.lines().skip(1).filter_map(|row| row.split(',').nth(4)?.parse().ok()).max().unwrap_or(0)
}

#[test]
fn planted_conflicts_are_named_and_stacks_that_are_spread_are_not() {
    let ways = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/ways_of_associativity");
    if !ways.is_ok_and(|w| (1..=16).contains(&w.trim().parse().unwrap_or(0))) {
        return eprintln!("skipped: this machine tells of no first level of 16 ways or less");
    }
    let dir = tempfile::tempdir().unwrap();
    let (child, told) = planted(dir.path(), &[]);
    assert!(told.contains("ns a node"), "{told}");
    let (table, notes) = sets(&child, "l1");
    // All 20 locks are in one set, and all 24 stacks; that of the main thread is elsewhere.
    assert_eq!(words(&table), 20, "{table}{notes}");
    assert!((24..=25).contains(&stacks(&table)), "{table}{notes}");
    assert!(notes.contains("ncpu preload stackbias"), "{notes}");
    // The hashed index takes physical addresses, which only root sees. It parts what the plain one does not.
    if rustix::process::geteuid().is_root() {
        let (table, notes) = sets(&child, "t2");
        assert!(words(&table) < 20, "{table}{notes}");
        assert!(notes.contains("4096 sets of 16 lines"), "{notes}");
    }
    drop(child);
    let ncpu = env!("CARGO_BIN_EXE_ncpu");
    let (child, told) = planted(dir.path(), &[ncpu, "preload", "stackbias", "--"]);
    assert!(told.contains("ns a node"), "{told}");
    let (table, notes) = sets(&child, "l1");
    assert_eq!(words(&table), 20, "{table}{notes}");
    // The main thread has no bias, and where its stack is changes from run to run: it may be beside one that has.
    assert!(stacks(&table) <= 2, "{table}{notes}");
}

#[test]
fn what_cannot_be_looked_at_is_told() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).output().unwrap();
    let o = run(&["lines", "-p", "4194304999", "--sets"]);
    assert!(!o.status.success() && err(&o).contains("4194304999"), "{}", err(&o));
    // One that ended, and one that its parent has not taken note of.
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = ended.id().to_string();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z") {
        std::thread::yield_now();
    }
    let zombie = run(&["lines", "-p", &pid, "--sets"]);
    assert!(!zombie.status.success() && err(&zombie).contains("zombie"), "{}", err(&zombie));
    ended.wait().unwrap();
    let gone = run(&["lines", "-p", &pid, "--sets"]);
    assert!(!gone.status.success() && err(&gone).contains(&pid), "{}", err(&gone));
    // The kernel's second process starts all its threads; a container has its own second.
    let kernel = std::fs::read_to_string("/proc/2/status").unwrap_or_default();
    if kernel.contains("kthreadd") && !kernel.contains("VmSize") {
        let o = run(&["lines", "-p", "2", "--sets"]);
        assert!(!o.status.success() && err(&o).contains("thread of the kernel"), "{}", err(&o));
    }
    let o = run(&["lines", "-p", "1", "--sets", "l7"]);
    assert!(err(&o).contains("give l1, l2 or t2"), "{}", err(&o));
    let o = run(&["lines", "--kernel", "--sets"]);
    assert_eq!(o.status.code(), Some(2), "{}", err(&o));
}

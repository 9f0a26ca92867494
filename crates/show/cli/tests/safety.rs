//! Files that others prepared, signals, and other users.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};

use common::{err, ncpu, out, reports, root};

#[test]
fn links_are_not_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "keep me").unwrap();
    let link = dir.path().join("page.html");
    symlink(&precious, &link).unwrap();
    let link = link.to_str().unwrap();
    for args in [
        &["topology", "--output", link][..],
        &["limits", "--sysctl", link],
        &["scale", "--from", "-", "--html", link],
        &["run", "--html", link, "--", "touch", "/nowhere"],
    ] {
        let o = ncpu(args);
        assert!(!o.status.success() && err(&o).contains("symbolic link"), "{args:?}: {}", err(&o));
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "keep me");
}

#[test]
fn a_report_goes_to_the_file_named_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    let name = file.to_str().unwrap();
    for (mode, expect) in [(None, 0o600), (Some("644"), 0o644)] {
        let mut args = vec!["topology", "-o", "json", "--output", name];
        args.extend(mode.into_iter().flat_map(|m| ["--mode", m]));
        let o = ncpu(&args);
        assert!(o.status.success() && out(&o).is_empty(), "{o:?}");
        assert!(std::fs::read_to_string(&file).unwrap().starts_with('{'));
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, expect);
    }
    let o = ncpu(&["cpus", "-k", "nonsense", "--output", name]);
    assert!(!o.status.success());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of what failed");
    for args in
        [&["topology", "--mode", "70"][..], &["topology", "--mode", "400"], &["topology", "--mode", "9"]]
    {
        assert!(!ncpu(args).status.success(), "{args:?}");
    }
    for args in
        [&["topology", "--output", "/nosuch/x"][..], &["run", "--html", "/nosuch/x", "--", "touch", name]]
    {
        let before = file.metadata().unwrap().mtime_nsec();
        let o = ncpu(args);
        assert!(!o.status.success() && err(&o).contains("/nosuch/x: No such file"), "{}", err(&o));
        assert_eq!(file.metadata().unwrap().mtime_nsec(), before, "the command was not run");
    }
}

#[test]
fn inputs_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("long.csv");
    let mut file = File::create(&long).unwrap();
    file.write_all(b"n,x\n").unwrap();
    file.set_len(1 << 32).unwrap();
    let line = dir.path().join("line.csv");
    std::fs::write(&line, vec![b'1'; 2 << 20]).unwrap();
    for (file, why) in [
        (long.to_str().unwrap(), "longer than"),
        (line.to_str().unwrap(), "line 1 is longer than"),
        ("/dev/zero", "a device"),
        ("/dev", "a directory"),
    ] {
        for args in [&["scale", "--from", file][..], &["locks", "--import", file, "--ncpu", "4"]] {
            let o = ncpu(args);
            assert!(!o.status.success() && err(&o).contains(why), "{args:?}: {}", err(&o));
        }
    }
}

#[test]
fn a_recording_of_pipes_and_devices_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let to = dir.path().join(name);
        let o = ncpu(&["topology", "--table", "cpus", "--record", to.to_str().unwrap()]);
        o.status.success().then_some(to)
    };
    // Commands without --record are tried with one that has it.
    let to = copy("a.ncpu").or_else(|| {
        let to = dir.path().join("a.ncpu");
        let o = ncpu(&["limits", "--record", to.to_str().unwrap()]);
        o.status.success().then_some(to)
    });
    let to = to.expect("a recording");
    assert_eq!(to.metadata().unwrap().mode() & 0o7777, 0o700);
    let table = std::fs::read_dir(&to)
        .unwrap()
        .map(|e| e.unwrap().path())
        .inspect(|path| assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600))
        .find(|path| path.extension().is_some_and(|e| e == "parquet"))
        .unwrap();
    let path = to.to_str().unwrap();
    assert!(ncpu(&["report", path]).status.success());
    std::fs::remove_file(&table).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &table, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let o = ncpu(&["report", path]);
    assert!(!o.status.success() && err(&o).contains("a pipe"), "{}", err(&o));
    for (target, why) in [("/dev/zero", "symbolic link"), ("/etc/passwd", "symbolic link")] {
        std::fs::remove_file(&table).unwrap();
        symlink(target, &table).unwrap();
        let o = ncpu(&["report", path]);
        assert!(!o.status.success() && err(&o).contains(why), "{}", err(&o));
    }
}

/// `ncpu run` of a shell script that has said "ready".
fn running(script: &str) -> Child {
    // A shell's job in the background ignores SIGINT, and so would all that it starts.
    let mut child = Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_ncpu"), "run", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn ended(mut child: Child) -> (i32, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code().unwrap(), said)
}

#[test]
fn signals_reach_the_command_and_its_end_is_awaited() {
    use rustix::process::Signal;
    if !root() {
        return;
    }
    for (name, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let child = running("echo ready; exec sleep 60");
        signal(&child, name);
        let (code, said) = ended(child);
        assert_eq!(code, status, "{said}");
        assert!(reports(&said) && said.contains(&format!("exit status {status}")), "{said}");
    }
    // What a command makes of a signal is its own business, and its status is ncpu's.
    let child = running("trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done");
    signal(&child, Signal::TERM);
    assert_eq!(ended(child).0, 7);
}

#[test]
fn a_command_that_heeds_no_signal_is_told_of() {
    use rustix::process::Signal;
    if !root() {
        return;
    }
    let child = running("trap '' INT; echo ready; i=0; while [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done");
    signal(&child, Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, Signal::INT);
    let (code, said) = ended(child);
    assert_eq!(code, 130, "{said}");
    let left = said.split("still runs, as process ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let pid: i32 = left.split_whitespace().next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert!(reports(&said), "{said}");
}

#[test]
fn a_command_runs_as_another_user() {
    if !root() {
        return;
    }
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let o = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["run", "--user", "nobody", "--", "sh", "-c", "id -un; id -G; exit 5"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(5), "{}", err(&o));
    assert!(out(&o).starts_with("nobody\n") && !out(&o).lines().any(|l| l == "0"), "{}", out(&o));
    let o = ncpu(&["run", "--user", "no-such-user", "--", "true"]);
    assert!(!o.status.success() && err(&o).contains("unknown user `no-such-user`"), "{}", err(&o));
}

#[test]
fn one_rule_for_standard_output() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    for command in ["run", "locks", "crosscalls", "lines", "counters"] {
        let script = ["--", "sh", "-c", "echo mine; sleep 0.3"];
        let o = ncpu(&[&[command], &script[..]].concat());
        assert_eq!(out(&o), "mine\n", "{command}: text for people leaves standard output to the command");
        assert!(!err(&o).is_empty(), "{command}");
        for options in [&["-o", "json"][..], &[]] {
            let args = [&[command, "--output", file.to_str().unwrap()], options, &script[..]].concat();
            let o = ncpu(&args);
            assert_eq!(out(&o), "mine\n", "{args:?}");
            assert!(o.status.success() && file.exists(), "{args:?}: {}", err(&o));
            std::fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let o = ncpu(&["bench", "getpid", "-T", "100000"]);
    assert!(!o.status.success() && err(&o).contains("has room for"), "{}", err(&o));
    assert_eq!(err(&o).lines().count(), 1, "{}", err(&o));
    let o = ncpu(&["run", "--htm"]);
    assert!(err(&o).contains("--html"), "{}", err(&o));
    if !root() {
        return;
    }
    let o = ncpu(&["run", "-k", "x", "--", "true"]);
    assert!(!o.status.success() && err(&o).contains("--table"), "{}", err(&o));
    // `cpus` has other sources for some of its columns.
    for (command, fails) in [("run -- true", true), ("locks 0.1", true), ("cpus 0.1 1", false)] {
        let few = format!("ulimit -n 20; {} {command}", env!("CARGO_BIN_EXE_ncpu"));
        let o = Command::new("sh").args(["-c", &few]).output().unwrap();
        assert!(o.status.success() != fails && err(&o).contains("ulimit -n"), "{command}: {}", err(&o));
        assert_eq!(err(&o).lines().count(), 1, "{command}: {}", err(&o));
    }
    // Each cause once.
    let o = ncpu(&["report", "/proc/1/root/nowhere"]);
    assert!(err(&o).matches("os error").count() <= 1, "{}", err(&o));
}

#[test]
fn seconds_and_count_mean_the_same_everywhere() {
    if !root() {
        return;
    }
    for command in ["locks", "threads", "crosscalls", "watch", "cpus"] {
        let o = ncpu(&[command, "0.2", "2"]);
        assert!(o.status.success(), "{command}: {}", err(&o));
        // Options go before them or after.
        if command != "watch" {
            let o = ncpu(&[command, "0.2", "1", "--top", "1"]);
            assert!(o.status.success(), "{command}: {}", err(&o));
        }
    }
    let o = ncpu(&["locks", "--by", "lock", "0.2", "2"]);
    assert_eq!(out(&o).matches("TOTAL CPU-util").count(), 2, "{}", out(&o));
    assert!(!ncpu(&["locks", "0.2", "0"]).status.success());
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let run = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(["topology", "--table", "objects", "--top", "2"]).env_remove("NO_COLOR");
        out(&command.env(name, value).output().unwrap())
    };
    assert!(!run("TERM", "xterm").contains('\x1b'), "a pipe is no terminal");
    assert!(run("CLICOLOR_FORCE", "1").starts_with("\x1b[1m"), "{}", run("CLICOLOR_FORCE", "1"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.args(["topology", "--table", "objects"]).env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
    assert!(!out(&command.output().unwrap()).contains('\x1b'));
    // The command line decides over both.
    let chosen = |when: &str, name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(["topology", "--table", "objects", "--color", when]).env(name, "1");
        out(&command.output().unwrap())
    };
    assert!(chosen("always", "NO_COLOR").starts_with("\x1b[1m"));
    assert!(!chosen("never", "CLICOLOR_FORCE").contains('\x1b'));
}

#[test]
fn eighty_columns_are_enough() {
    let run = |args: &[&str]| {
        out(&Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).env("COLUMNS", "80").output().unwrap())
    };
    let mut reports = vec![run(&["cpus", "0.2", "1"]), run(&["topology"]), run(&["limits"])];
    if root() {
        reports.extend([run(&["threads", "0.3", "1"]), run(&["locks", "0.3"]), run(&["memory"])]);
    }
    for report in reports {
        assert!(!report.is_empty());
        // A command that names a control group of this machine stays in one piece.
        for line in report.lines().filter(|line| !line.contains("/sys/fs/cgroup/")) {
            assert!(line.chars().count() <= 80, "{} characters: {line}", line.chars().count());
        }
    }
}

#[test]
fn a_job_of_a_script_is_ended_by_kill_int_and_its_command_ignores_it() {
    if !root() {
        return;
    }
    let script = |rest: &str| {
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!(r#"trap "" INT; exec "$0" {rest}"#), env!("CARGO_BIN_EXE_ncpu")]);
        sh
    };
    let mut child = script("watch -o csv").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("until Ctrl-C"), "{said}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&child, rustix::process::Signal::INT);
    let o = child.wait_with_output().unwrap();
    assert!(!o.stdout.is_empty());

    let o = script("run -- grep SigIgn /proc/self/status").output().unwrap();
    let mask = String::from_utf8_lossy(&o.stdout);
    let mask = u64::from_str_radix(mask.split_whitespace().last().unwrap(), 16).unwrap();
    assert_ne!(mask & (1 << 1), 0, "SIGINT is not ignored: {mask:x}");
}

#[test]
fn who_ends_an_observation_does_not_wait_behind_other_programs() {
    if !root() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    let mut watch =
        command.args(["watch", "-a"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("until Ctrl-C")));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&watch);
    let nice = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let before = nice();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut least = before;
    while watch.try_wait().unwrap().is_none() {
        least = least.min(nice());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(before <= -10 || least < before, "nice {before} before SIGTERM, and {least} after it");
}

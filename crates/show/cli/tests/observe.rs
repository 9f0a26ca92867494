//! The commands as a user meets them, bad conditions first.

mod common;

use std::path::Path;
use std::process::Command;

use common::{err, ncpu, out, reports, root, unbroken};

#[test]
fn the_commands_status_is_passed_on() {
    if !root() {
        return;
    }
    assert_eq!(ncpu(&["run", "--", "true"]).status.code(), Some(0));
    assert_eq!(ncpu(&["run", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(ncpu(&["run", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(ncpu(&["locks", "--", "sh", "-c", "exit 3"]).status.code(), Some(3));
}

#[test]
fn a_table_of_which_nothing_was_seen_is_empty_and_one_that_cannot_be_runs_nothing() {
    if !root() {
        return;
    }
    let o = ncpu(&["run", "--table", "limits_met", "-o", "csv", "--", "sh", "-c", "exit 3"]);
    assert_eq!((o.status.code(), out(&o).lines().count()), (Some(3), 1), "{}", err(&o));
    assert!(out(&o).starts_with("limit,") && err(&o).contains("nothing was seen"), "{}", err(&o));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("it ran");
    let o = ncpu(&["run", "--table", "lock", "--", "touch", file.to_str().unwrap()]);
    assert!(!o.status.success() && err(&o).contains("unknown table `lock`"), "{}", err(&o));
    assert!(!file.exists());
}

/// A program that sleeps uses no CPU; its life is shown all the same, in each form.
#[test]
fn what_threads_did_is_shown_where_no_cpu_was_used() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("sleeps.ncpu");
    let o = ncpu(&[
        "run",
        "--latency-of",
        "clock_nanosleep",
        "--record",
        record.to_str().unwrap(),
        "--",
        "sleep",
        "0.5",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    let text = err(&o);
    assert!(text.contains("threads: ") && text.contains("sleeping in clock_nanosleep"), "{text}");
    let report = |args: &[&str]| {
        let o = ncpu(&[&["report", record.to_str().unwrap()], args].concat());
        assert!(o.status.success(), "{args:?}: {}", err(&o));
        out(&o)
    };
    let rows = report(&["--table", "thread-time", "-o", "csv"]);
    let timer = rows.lines().find(|line| line.starts_with("sleep,main,timer,clock_nanosleep,"));
    assert!(timer.is_some(), "{rows}");
    // The call slept for half a second at least.
    let percentiles = report(&["--table", "percentiles", "-o", "csv"]);
    let call = percentiles.lines().find_map(|line| line.strip_prefix("system call,clock_nanosleep,"));
    let longest: f64 = call.and_then(|line| line.rsplit(',').next()?.parse().ok()).unwrap_or(0.0);
    assert!(longest >= 0.98 * 500_000.0, "{percentiles}");
    let page = dir.path().join("page.html");
    report(&["--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("time by role") && page.contains("clock_nanosleep"));
    let unknown = ncpu(&["run", "--latency-of", "no_such_call", "--", "true"]);
    assert!(!unknown.status.success() && err(&unknown).contains("unknown system call"), "{}", err(&unknown));
}

/// Programs of the kernel side go through all CPUs, and the verifier goes through them: what loads for two may not for 2048.
#[test]
fn the_tables_of_a_large_machine_load() {
    if !root() {
        return;
    }
    for cpus in ["2048", "8192"] {
        for args in [&["run", "--", "true"][..], &["locks", "--", "true"], &["crosscalls", "--", "true"]] {
            let o = Command::new(env!("CARGO_BIN_EXE_ncpu"))
                .args(args)
                .env("NCPU_CPU_PARTS", cpus)
                .output()
                .unwrap();
            assert!(o.status.success(), "{cpus} CPUs, {args:?}: {}", err(&o));
        }
    }
}

#[test]
fn a_command_that_is_not_there_is_told_as_a_shell_tells_it() {
    if !root() {
        return;
    }
    for verb in ["run", "locks"] {
        let o = ncpu(&[verb, "--", "no-such-program"]);
        assert_eq!(o.status.code(), Some(127), "{verb}");
        assert!(err(&o).contains("no-such-program: command not found"), "{}", err(&o));
    }
    assert_eq!(ncpu(&["run", "--", "/etc/passwd"]).status.code(), Some(126));
}

#[test]
fn a_process_or_cgroup_that_is_not_there() {
    let o = ncpu(&["watch", "-p", "4999999", "1"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("there is no process 4999999"), "{}", err(&o));
    let o = ncpu(&["watch", "-c", "no/such/group", "1"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cgroup") && err(&o).contains("no/such/group"), "{}", err(&o));
}

#[test]
fn numbers_that_make_no_sense() {
    for args in [
        &["watch", "0"][..],
        &["watch", "--interval", "0", "1"],
        &["threads", "0"],
        &["threads", "1", "0"],
        &["run", "-F", "0", "--", "true"],
        &["run"],
    ] {
        let o = ncpu(args);
        assert!(!o.status.success(), "{args:?}");
        assert!(!err(&o).is_empty(), "{args:?}");
    }
}

#[test]
fn without_root_it_says_what_is_missing() {
    common::needs_root(&[&["watch", "1"], &["threads", "1", "1"], &["locks", "1"]]);
}

#[test]
fn ctrl_c_still_reports() {
    if !root() {
        return;
    }
    // A shell's job in the background ignores the signal, and so would all that it starts.
    let child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ncpu"), "run", "--", "sleep", "30"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Observing has begun once the program runs.
    let runs = || {
        let o = Command::new("pgrep").args(["-x", "-P", &child.id().to_string(), "sleep"]).output().unwrap();
        o.status.success()
    };
    for _ in 0..300 {
        if runs() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(runs(), "the program has not started");
    // Less than half a second is reported as too short to say more.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let o = child.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(130));
    assert!(err(&o).contains("sleep 30 ·") && reports(&err(&o)), "{}", err(&o));
}

#[test]
fn the_last_run_is_reported_again_without_a_name() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let last = dir.path().join("last");
    let with = |last: &std::ffi::OsStr, args: &[&str]| {
        let ncpu = Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).env("NCPU_LAST", last).output();
        ncpu.unwrap()
    };
    let with_last = |args: &[&str]| with(last.as_os_str(), args);
    let none = with_last(&["report"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(err(&none).contains("no recording is named"), "{}", err(&none));
    for seconds in ["0.7", "0.8"] {
        let run = with_last(&["run", "--", "sleep", seconds]);
        assert!(err(&run).contains("more: ncpu report -v"), "{}", err(&run));
        // A cause that may be asked for is there.
        let why = with_last(&["why", "1"]);
        assert_eq!(err(&run).contains("· ncpu why N"), why.status.success(), "{}{}", err(&run), err(&why));
        let again = with_last(&["report"]);
        assert!(out(&again).contains(&format!("sleep {seconds} ·")), "{}{}", out(&again), err(&again));
    }
    // A layer of every observation, whatever else runs.
    let why = with_last(&["why", "ncpu itself"]);
    assert!(out(&why).contains("ncpu itself:"), "{}{}", out(&why), err(&why));
    // One that is recorded where the user says is not kept twice, and commands name it.
    let named = dir.path().join("a b.ncpu");
    let run = with_last(&["run", "--record", named.to_str().unwrap(), "--", "sleep", "0.9"]);
    assert!(unbroken(&err(&run)).contains(&format!("ncpu report -v '{}'", named.display())), "{}", err(&run));
    assert!(out(&with_last(&["report"])).contains("sleep 0.8 ·"));
    assert!(out(&with_last(&["report", named.to_str().unwrap()])).contains("sleep 0.9 ·"));
    // And where nothing is to be kept, nothing is promised.
    let run = with("".as_ref(), &["run", "--", "sleep", "0.6"]);
    assert!(!err(&run).contains("more:"), "{}", err(&run));
}

#[test]
fn a_recording_is_reported_again_with_the_same_figures() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("a.ncpu");
    let recording = recording.to_str().unwrap();
    let o = ncpu(&[
        "run",
        "--record",
        recording,
        "--interval",
        "0.2",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 0.5",
    ]);
    assert!(o.status.success(), "{}", err(&o));
    let again = ncpu(&["report", recording]);
    assert!(again.status.success(), "{}", err(&again));
    assert!(err(&o).contains(&out(&again)), "live:\n{}\nagain:\n{}", err(&o), out(&again));
    let json = ncpu(&["report", recording, "--table", "cpu_time", "-o", "json"]);
    assert!(out(&json).lines().count() >= 4, "{}", out(&json));
    let o = ncpu(&["report", recording, "--table", "nonsense"]);
    assert!(err(&o).contains("unknown table `nonsense`") && err(&o).contains("cpu_time"), "{}", err(&o));
    let o = ncpu(&["run", "--record", recording, "--", "true"]);
    assert!(
        !o.status.success() && err(&o).contains(recording),
        "an old recording is not written over: {}",
        err(&o)
    );

    // A damaged file is named.
    let file = Path::new(recording).join("cpu_time.parquet");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();
    let o = ncpu(&["report", recording]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("cpu_time.parquet"), "{}", err(&o));
}

#[test]
fn a_killed_recording_loses_its_last_interval_at_most() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("killed.ncpu");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args(["watch", "--interval", "0.2", "--record"])
        .arg(&recording)
        .spawn()
        .unwrap();
    // Several intervals, however slow the machine is.
    let stream = recording.join("idle_time.arrows");
    let started = std::time::Instant::now();
    let (mut length, mut grown) = (0, 0);
    while grown < 4 {
        let now = std::fs::metadata(&stream).map_or(0, |m| m.len());
        grown += u32::from(now > length);
        length = now;
        assert!(started.elapsed().as_secs() < 60, "no intervals are written to {}", stream.display());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let o = ncpu(&["report", recording.to_str().unwrap()]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(reports(&out(&o)), "{}", out(&o));
    let rows = ncpu(&["report", recording.to_str().unwrap(), "--table", "idle_time", "-o", "json"]);
    assert!(out(&rows).lines().count() >= 3, "{}", out(&rows));
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_report() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    }
    let recording = dir.path().join("full.ncpu");
    let o = ncpu(&["run", "--interval", "0.05", "--record", recording.to_str().unwrap(), "--", "sleep", "2"]);
    let _ = Command::new("umount").arg(dir.path()).status();
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("recording stopped") && reports(&err(&o)), "{}", err(&o));
}

#[test]
fn a_machine_without_tracefs_and_without_btf() {
    if !root() {
        return;
    }
    // In a mount namespace of its own: nothing over tracefs (tp_btf needs none), then over BTF.
    let script = format!(
        "mount -t tmpfs none /sys/kernel/tracing 2>/dev/null; {0} run -- true || exit 9; mount -t tmpfs none /sys/kernel/btf || exit 8; {0} run -- true",
        env!("CARGO_BIN_EXE_ncpu")
    );
    let o = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    if o.status.code() == Some(8) || err(&o).starts_with("unshare: ") {
        eprintln!("skipped: /sys/kernel/btf cannot be hidden here: {}", err(&o));
        return;
    }
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("this kernel has no BTF"), "{}", err(&o));
}

/// BPF programs read the machine's clock, and a process in a time namespace reads another.
#[test]
fn a_time_namespace_changes_no_figure() {
    if !root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("r.ncpu");
    let o = Command::new("unshare")
        .args(["--time", "--monotonic", "100000", env!("CARGO_BIN_EXE_ncpu"), "run", "--record"])
        .args([recording.as_os_str(), "--".as_ref(), "sleep".as_ref(), "1.5".as_ref()])
        .output()
        .unwrap();
    if err(&o).starts_with("unshare: ") {
        eprintln!("skipped: no time namespace here: {}", err(&o));
        return;
    }
    assert!(o.status.success(), "{}", err(&o));
    let layers = ncpu(&["report", recording.to_str().unwrap(), "--table", "layers", "-o", "csv"]);
    let share = out(&layers).lines().find_map(|line| {
        let mut cells = line.strip_prefix("ncpu itself,")?.split(',');
        cells.next()?.parse::<f64>().ok()
    });
    assert!(share.is_some_and(|share| share < 40.0), "ncpu has half of this machine: {}", out(&layers));
}

#[test]
fn a_machine_without_proc() {
    if !root() {
        return;
    }
    let script =
        format!("mount -t tmpfs none /proc || exit 8; exec {} run -- true", env!("CARGO_BIN_EXE_ncpu"));
    let o = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    if o.status.code() == Some(8) || err(&o).starts_with("unshare: ") {
        eprintln!("skipped: /proc cannot be hidden here: {}", err(&o));
        return;
    }
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("/proc is not mounted") && err(&o).lines().count() == 1, "{}", err(&o));
}

#[test]
fn a_missing_tracepoint_takes_its_layer_and_leaves_the_rest() {
    if !root() {
        return;
    }
    let without = |tracepoint: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(args).env("NCPU_HIDE_TRACEPOINTS", tracepoint).output().unwrap()
    };
    for (tracepoint, word) in [
        ("contention_begin", "no kernel locks"),
        ("tlb_flush", "no TLB shootdowns"),
        ("local_timer_entry", "no separate times for timer"),
    ] {
        let o = without(tracepoint, &["run", "--", "true"]);
        assert!(o.status.success(), "{tracepoint}: {}", err(&o));
        assert!(err(&o).contains(word) && reports(&err(&o)), "{tracepoint}: {}", err(&o));
    }
    let o = without("page_fault_user", &["threads", "0.2", "1"]);
    assert!(o.status.success() && err(&o).contains("no TRP"), "{}", err(&o));
    let o = without("sched_switch", &["run", "--", "true"]);
    assert!(!o.status.success() && err(&o).contains("sched_switch"), "{}", err(&o));
}

#[test]
fn lockutils_figures_from_the_document() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../keep/record/tests/data/lockstat/blog-kWP.txt");
    let o = ncpu(&["locks", "--import", file.to_str().unwrap(), "-n", "512"]);
    assert!(o.status.success(), "{}", err(&o));
    for figure in ["0.866", "0.004", "0.050", "0.920"] {
        assert!(out(&o).contains(figure), "{figure} in\n{}", out(&o));
    }
    let o = ncpu(&["locks", "--import", "/etc/passwd", "-n", "4"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("/etc/passwd:1:"), "{}", err(&o));
    let o = ncpu(&["locks", "--import", file.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2), "-n is needed");
}

#[test]
fn every_layer_is_in_the_json() {
    if !root() {
        return;
    }
    let o = ncpu(&["run", "-o", "json", "--", "sleep", "0.3"]);
    assert!(o.status.success());
    let shares: f64 = out(&o)
        .lines()
        .map(|l| {
            let at = l.find("\"share\":").unwrap() + 8;
            l[at..].split(',').next().unwrap().parse::<f64>().unwrap()
        })
        .sum();
    assert!((shares - 1.0).abs() < 0.01, "layers sum to {shares}:\n{}", out(&o));
}

#[test]
fn a_recording_of_a_killed_writer_says_that_it_is_incomplete() {
    use ncpu_record::{Manifest, Writer};
    use ncpu_schema::{CpuState, Per, Purpose, cpu_time};

    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.ncpu");
    let mut rows = cpu_time::Rows::new();
    for t in [1.0, 2.0] {
        let spent = Per::new(|state| Some(if state == CpuState::Program { 1.0 } else { 0.0 }));
        rows.push(cpu_time::Row { time: Some(t), cpu: Some(0), spent, kernel: None });
    }
    let mut writer = Writer::create(&cut, Manifest::new(Purpose::Run, 1, vec!["make".into()], 1.0)).unwrap();
    writer.append(&rows.finish()).unwrap();
    writer.flush().unwrap();
    // Killed: never finished.
    drop(writer);
    let (cut, page) = (cut.to_str().unwrap(), dir.path().join("x.html"));
    let told = "the recording is incomplete: its writer did not finish. It holds 2.0 s, until about ";
    let o = ncpu(&["report", cut, "--html", page.to_str().unwrap()]);
    let text = out(&o).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(o.status.success() && text.contains(told), "{text}{}", err(&o));
    assert!(std::fs::read_to_string(page).unwrap().contains(told));
    for table in [&[][..], &["--table", "cpu_time"]] {
        let o = ncpu(&[&["report", cut, "-o", "json"], table].concat());
        let rows = out(&o);
        assert!(rows.lines().count() >= 1 && rows.lines().all(|l| l.contains(told)), "{rows}");
        assert!(err(&o).contains(told), "{}", err(&o));
    }
    let o = ncpu(&["report", cut, "--table", "cpu_time"]);
    assert!(!out(&o).contains("incomplete") && err(&o).contains(told), "{}{}", out(&o), err(&o));
}

#[test]
fn processes_that_outlive_the_command_are_told() {
    if !root() {
        return;
    }
    // Only once it is `sleep`: until its exec the child is called `sh` as well.
    let leave =
        r#"sleep 5 >/dev/null 2>&1 & until read -r name < /proc/$!/comm && [ $name = sleep ]; do :; done"#;
    let o = ncpu(&["run", "--", "sh", "-c", leave]);
    let text = err(&o).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(o.status.success() && text.contains("a process of the program lives on (sleep "), "{text}");
    assert!(text.contains("`ncpu watch -p "), "{text}");
    let o = ncpu(&["run", "--", "sh", "-c", "sleep 0.1 & wait"]);
    assert!(!err(&o).contains("lives on"), "{}", err(&o));
}

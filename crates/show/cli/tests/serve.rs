//! `ncpu serve`: what is observed of this very machine arrives at those who ask, after all privileges are given up.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ends, Nobody, busy, err, ncpu, out, root};
use ncpu_record::Recording;
use ncpu_schema::{CpuState, cpu_time, summary};
use rustix::process::{Pid, Signal, kill_process};

/// The program that answers is another package's, and is to be beside `ncpu`. Where all packages are tested it was built with
/// them (`.ci/test` says so), and would be built here once more with other features of what it depends on.
fn built() {
    if std::env::var_os("NCPU_ALL_BUILT").is_some() {
        return;
    }
    let args = ["build", "--quiet", "--locked", "-p", "ncpu-serve", "--bin", "ncpu-serve"];
    assert!(Command::new(env!("CARGO")).args(args).status().unwrap().success());
}

fn get(port: &str, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (head.lines().next().unwrap().into(), bytes[end + 4..].to_vec())
}

fn text(port: &str, path: &str) -> String {
    let (status, body) = get(port, path);
    assert!(status.contains(" 200 "), "{path}: {status} {}", String::from_utf8_lossy(&body));
    String::from_utf8(body).unwrap()
}

/// Starts it on a free port, which is told.
fn started(args: &[&str]) -> (Ends, String, BufReader<ChildStderr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ncpu"))
        .args([&["serve", "--listen", "127.0.0.1:0"], args].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let port = line.split("http://127.0.0.1:").nth(1).unwrap_or_else(|| panic!("{line}"));
    let port = port.split(',').next().unwrap().to_owned();
    (Ends(child), port, said)
}

#[test]
fn who_asks_is_told_what_runs_here() {
    if !root() {
        return;
    }
    built();
    let place = tempfile::tempdir().unwrap();
    let busy = busy(place.path());
    let (mut serving, port, mut said) = started(&["--interval", "0.5", "-F", "499"]);

    // Nobody, with what an observer needs: CAP_DAC_READ_SEARCH, SYS_PTRACE, SYSLOG, PERFMON, BPF, CHECKPOINT_RESTORE.
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.0.id())).unwrap();
    let expect: u64 = [2, 19, 34, 38, 39, 40].iter().map(|bit| 1 << bit).sum();
    for line in
        [format!("CapEff:\t{expect:016x}"), format!("CapBnd:\t{expect:016x}"), "NoNewPrivs:\t1".into()]
    {
        assert!(status.lines().any(|l| l == line), "{line}: {status}");
    }
    assert!(!status.contains("Uid:\t0\t"), "{status}");

    // It begins now, when root was given up, and is root's own: its symbols are read all the same.
    let _busy = Ends(Command::new(&busy).arg("600").spawn().unwrap());
    let (status, profile) = get(&port, "/pprof/cpu?seconds=2");
    assert!(status.contains(" 200 "), "{status}: {}", String::from_utf8_lossy(&profile));
    let named = |line: &str| line.starts_with("busy;") && line.contains(";counts_and_counts");
    // The reader of symbols may be late where others take the CPUs; what is sampled afterwards has names.
    let begun = Instant::now();
    loop {
        let folded = text(&port, "/folded/cpu?from=-10");
        if folded.lines().any(named) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{folded}");
        std::thread::sleep(Duration::from_millis(500));
    }

    let layers: serde_json::Value =
        serde_json::from_str(&text(&port, "/api/v1/tables/layers?from=-10")).unwrap();
    let shares: f64 =
        layers["rows"].as_array().unwrap().iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 0.01, "{layers}");
    let path = "/api/v1/tables/threads?from=-10&k=CPU&top=50";
    let threads: serde_json::Value = serde_json::from_str(&text(&port, path)).unwrap();
    let busy = threads["rows"].as_array().unwrap().iter().find(|row| row["process"] == "busy");
    assert!(busy.unwrap_or_else(|| panic!("{threads}"))["cpu"].as_f64().unwrap() > 0.0);

    // Each CPU with its place, and what `ncpu cpus` tells of it, in counts and seconds.
    let cpus: serde_json::Value =
        serde_json::from_str(&text(&port, "/api/v1/tables/cpus?from=-10&each=0")).unwrap();
    let length = cpus["to"].as_f64().unwrap() - cpus["from"].as_f64().unwrap();
    assert_eq!(cpus["rows"].as_array().unwrap().len(), std::thread::available_parallelism().unwrap().get());
    for row in cpus["rows"].as_array().unwrap() {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
        let times: f64 = ["usr", "sys", "wt", "st", "idl"].into_iter().map(number).sum();
        // The kernel counts a CPU's time by ticks, and the counting begins and ends a little beside the observation.
        assert!(times > 0.5 * length && times < 1.2 * length + 1.0, "{times} of {length} s: {row}");
        assert!(number("intr") > 0.0 && number("csw") > 0.0 && row["syscl"].is_null(), "{row}");
        assert!(number("core") <= number("cpu") && number("package") >= 0.0, "{row}");
    }

    let metrics = text(&port, "/metrics");
    let sum = |name: &str| -> f64 {
        let of = metrics.lines().filter(|line| line.starts_with(name));
        of.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let capacity = sum("ncpu_capacity_cpu_seconds_total ");
    assert!((sum("ncpu_layer_cpu_seconds_total{") / capacity - 1.0).abs() < 0.01, "{metrics}");
    assert!(sum("ncpu_own_cpu_seconds_total{process=\"observer\"}") > 0.0);
    assert_eq!(sum("ncpu_lost_intervals_total "), 0.0);
    assert!(sum("ncpu_process_cpu_seconds_total{process=\"busy\"}") > 0.5, "{metrics}");
    let groups = sum("ncpu_cgroup_cpu_seconds_total{");
    assert!(groups > 0.5 || !std::path::Path::new("/sys/fs/cgroup").exists(), "{metrics}");
    assert!(groups < 1.2 * capacity, "groups are not counted twice: {metrics}");
    check(&metrics);

    let args =
        ["tool", "pprof", "-top", "-symbolize=none", &format!("http://127.0.0.1:{port}/pprof/cpu?seconds=1")];
    match Command::new("go").args(args).env("PPROF_TMPDIR", place.path()).output() {
        Ok(top) => assert!(top.status.success() && out(&top).contains("counts_and_counts"), "{}", err(&top)),
        Err(_) => eprintln!("skipped: no go tool pprof"),
    }

    kill_process(Pid::from_child(&serving.0), Signal::INT).unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err(), "the server ends too");
}

/// Prometheus's own opinion.
fn check(metrics: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped: no promtool (Debian's package prometheus has it)");
        return;
    };
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let told = promtool.wait_with_output().unwrap();
    assert!(told.status.success(), "{}{}", out(&told), err(&told));
}

#[test]
fn the_version_tells_what_the_build_has() {
    built();
    let line = |text: &str, name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    let o = ncpu(&["--version"]);
    assert!(o.status.success() && o.stderr.is_empty(), "{}", err(&o));
    let told = out(&o);
    for name in ["commit", "target", "features", "fleet"] {
        assert!(!line(&told, name).is_empty());
    }
    assert!(line(&told, "libraries").contains("libbpf"), "{told}");
    let server = std::path::Path::new(env!("CARGO_BIN_EXE_ncpu")).with_file_name("ncpu-serve");
    let serve = line(&told, "serve");
    let rest = serve.strip_prefix(&format!("{}, ", server.display())).unwrap_or_else(|| panic!("{told}"));
    assert!(rest.ends_with("with the page") || rest.contains("without the page"), "{told}");
    assert_eq!(out(&ncpu(&["-V"])).lines().count(), 1);
    // Without the other programs.
    let nobody = Nobody::new();
    let alone = Command::new(nobody.dir().join("ncpu"))
        .arg("--version")
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert!(line(&out(&alone), "serve").starts_with("no ncpu-serve"), "{}", out(&alone));
    assert!(line(&out(&alone), "fleet").starts_with("no ncpu-fleet"), "{}", out(&alone));
}

#[test]
fn what_cannot_be_served_is_told_in_a_line() {
    if !root() {
        return;
    }
    built();
    let line = |args: &[&str]| {
        let o = ncpu(&[&["serve"], args].concat());
        assert_eq!((o.status.code(), err(&o).lines().count()), (Some(1), 1), "{args:?}: {}", err(&o));
        err(&o)
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = line(&["--listen", &taken.local_addr().unwrap().to_string()]);
    assert!(told.contains("another program listens there"), "{told}");
    let told = line(&["--listen", "0.0.0.0:0"]);
    assert!(told.contains("--token-file"), "{told}");
    let told = line(&["--user", "nobody-of-this-name"]);
    assert!(told.contains("unknown user"), "{told}");
    let told = ncpu(&["serve", "--user", "root"]);
    assert_eq!((told.status.code(), err(&told).lines().count()), (Some(2), 1), "{}", err(&told));
    assert!(err(&told).contains("root would give up nothing"));
    assert!(line(&["-p", "4194305"]).contains("no process"));
    assert_eq!(ncpu(&["serve", "--tls-cert", "x"]).status.code(), Some(2));

    // Without the program that answers, and without root.
    let nobody = Nobody::new();
    let alone =
        Command::new(nobody.dir().join("ncpu")).arg("serve").env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(err(&alone).contains("needs the program"), "{}", err(&alone));
    let server = std::path::Path::new(env!("CARGO_BIN_EXE_ncpu")).with_file_name("ncpu-serve");
    let copied = Command::new("cp").arg(server).arg(nobody.dir()).status();
    assert!(copied.unwrap().success());
    let o = nobody.ncpu(&["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!((o.status.code(), err(&o).lines().count()), (Some(1), 1), "{}", err(&o));
    assert!(err(&o).contains("root"), "{}", err(&o));
}

#[test]
fn what_is_served_is_recorded_too() {
    if !root() {
        return;
    }
    built();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("always");
    let args =
        ["--record", dir.to_str().unwrap(), "--rotate", "1s", "--interval", "0.2", "--label", "type=test"];
    let (mut serving, port, mut said) = started(&args);
    let recordings = || {
        let all = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "ncpu")).collect();
        all.sort();
        all
    };
    let begun = Instant::now();
    while recordings().len() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", recordings());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(text(&port, "/metrics").contains("ncpu_lost_intervals_total 0"));
    kill_process(Pid::from_child(&serving.0), Signal::INT).unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("recordings in"), "{rest}");
    let mut before = 0.0;
    for (path, number) in recordings().iter().zip(1..) {
        Recording::verify(path).unwrap();
        let recording = Recording::open(path).unwrap();
        assert!(recording.manifest.complete && recording.manifest.labels["type"] == "test");
        assert_eq!(recording.manifest.series.as_ref().unwrap().number, number);
        assert!(recording.manifest.created_unix > before, "in their order");
        before = recording.manifest.created_unix;
        // Intervals that are put together are as long as their recording, and all its CPU time is in them.
        let summary = summary::Reader::need(&recording).unwrap();
        assert_eq!(summary.rows().count(), 1);
        let elapsed = summary.elapsed.get(0).unwrap();
        let cpu_time = cpu_time::Reader::need(&recording).unwrap();
        assert!((cpu_time.time.max().unwrap() - elapsed).abs() < 1e-6);
        let capacity = recording.manifest.cpus as f64 * elapsed;
        let sum: f64 = CpuState::ALL.into_iter().map(|state| cpu_time.spent.sum(state)).sum();
        assert!((sum - capacity).abs() < 0.01 * capacity, "{sum} of {capacity}");
    }

    // A directory of root's is not for the user who is to write to it, nor one of other things.
    std::fs::create_dir(place.path().join("roots")).unwrap();
    let roots = place.path().join("roots");
    let o =
        ncpu(&["serve", "--listen", "127.0.0.1:0", "--record", roots.to_str().unwrap(), "--rotate", "1s"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("must own the directory") && err(&o).contains("--record"), "{}", err(&o));
    assert_eq!(ncpu(&["serve", "--record", "x"]).status.code(), Some(2), "--rotate is missing");
}

#[test]
fn a_server_that_dies_ends_the_observation() {
    if !root() {
        return;
    }
    built();
    let (mut serving, _, mut said) = started(&["--interval", "0.1"]);
    let children = format!("/proc/{0}/task/{0}/children", serving.0.id());
    // Its other child reads files.
    let server = std::fs::read_to_string(children).unwrap().split_whitespace().find_map(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "ncpu-serve").then(|| pid.parse::<i32>().unwrap())
    });
    kill_process(Pid::from_raw(server.unwrap()).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = serving.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(1));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("ncpu-serve has ended"), "{rest}");
}

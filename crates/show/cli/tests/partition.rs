//! `ncpu partition` as a user meets it, and what is left of it when it is killed.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{err, out};

/// A directory for data and one for the journal.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::fs::write(dir.path().join("data/a"), "a\n").unwrap();
        std::fs::write(dir.path().join("data/b"), vec![7; 1 << 20]).unwrap();
        Place { dir }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(args).env("COLUMNS", "140").env("NCPU_STATE_DIR", self.dir.path().join("state"));
        command
    }

    fn ncpu(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What is left besides the data: clones, journal entries.
    fn left(&self) -> Vec<String> {
        let names = |dir: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        };
        let mut left = names(self.dir.path());
        left.retain(|n| n.starts_with(".ncpu"));
        left.extend(names(&self.dir.path().join("state/undo")).into_iter().filter(|n| n != "lock"));
        left
    }
}

fn root() -> bool {
    let yes = rustix::process::geteuid().is_root();
    if !yes {
        eprintln!("skipped: needs root");
    }
    yes
}

#[test]
fn each_instance_has_its_number_its_cpus_and_its_clone() {
    if !root() {
        return;
    }
    let place = Place::new();
    let data = place.data();
    let script = "cat a; echo {i} of {n} port {5432+i} $NAME $NCPU_CPUS >> a; rm b; cat a; ls";
    let o = place
        .command(&[
            "partition",
            "1",
            "--env",
            "NAME=x{i}",
            "--clone",
            data.to_str().unwrap(),
            "sh",
            "-c",
            script,
        ])
        .current_dir(&data)
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", err(&o));
    let cpus = out(&o);
    assert!(cpus.starts_with("a\na\n0 of 1 port 5432 x0 "), "{cpus}");
    assert!(err(&o).contains("instance  cpus"), "{}", err(&o));
    assert!(err(&o).contains("ready in"), "{}", err(&o));
    // The data are as they were, and the clone is gone.
    assert_eq!(std::fs::read_to_string(data.join("a")).unwrap(), "a\n");
    assert!(data.join("b").exists());
    assert_eq!(place.left(), [""; 0]);
    let o = place.ncpu(&[
        "partition",
        "1",
        "--clone",
        data.to_str().unwrap(),
        "--table",
        "data",
        "-o",
        "json",
        "sh",
        "-c",
        &format!("echo x >> {}/a; rm {0}/b", data.display()),
    ]);
    let text = out(&o);
    assert!(text.contains(r#""files":1,"#) && text.contains(r#""removed":1"#), "{text}{}", err(&o));
}

#[test]
fn changes_are_kept_or_taken_over() {
    if !root() {
        return;
    }
    let place = Place::new();
    let data = place.data();
    let clone = data.to_str().unwrap();
    let script = format!("echo {{i}} > {clone}/new; rm {clone}/b");
    let o = place.ncpu(&["partition", "1", "--clone", clone, "--commit", "0", "sh", "-c", &script]);
    assert!(o.status.success(), "{}", err(&o));
    assert_eq!(std::fs::read_to_string(data.join("new")).unwrap(), "0\n");
    assert!(!data.join("b").exists());
    assert_eq!(place.left(), [""; 0]);
    let o = place.ncpu(&["partition", "1", "--clone", clone, "--keep", "sh", "-c", &script]);
    assert!(err(&o).contains("clones kept in"), "{}", err(&o));
    assert_eq!(place.left().len(), 1);
}

#[test]
fn statuses_signals_and_restarts() {
    let place = Place::new();
    let o = place.ncpu(&["partition", "1", "-o", "csv", "sh", "-c", "exit 3"]);
    assert_eq!(o.status.code(), Some(3), "{}", err(&o));
    assert!(out(&o).lines().nth(1).unwrap().contains(",3,0,"), "{}", out(&o));
    // Fails twice, then goes well.
    let count = place.dir.path().join("count");
    let script = format!("echo x >> {0}; test $(wc -l < {0}) = 3", count.display());
    let o = place.ncpu(&["partition", "1", "--restart", "-o", "csv", "--", "sh", "-c", &script]);
    assert_eq!(o.status.code(), Some(0), "{}", err(&o));
    assert!(out(&o).lines().nth(1).unwrap().contains(",0,2,"), "{}", out(&o));
    // SIGTERM is passed on; a trap's status is told.
    let ready = place.dir.path().join("ready");
    let script = format!("trap 'exit 9' TERM; touch {}; while :; do sleep 0.01; done", ready.display());
    let mut child = place
        .command(&["partition", "1", "-o", "csv", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(text.lines().nth(1).unwrap().contains(",9,0,"), "{text}");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn one_instance_and_several_are_compared_in_turn() {
    let place = Place::new();
    let args =
        ["partition", "1", "--metric", "did ([0-9]+)", "--rounds", "2", "--table", "compare", "-o", "json"];
    let o = place.ncpu(&[&args[..], &["sh", "-c", "echo did 5"]].concat());
    assert!(o.status.success(), "{}", err(&o));
    let lines: Vec<String> = out(&o).lines().map(Into::into).collect();
    assert_eq!(lines.len(), 2, "{}", out(&o));
    assert!(lines[1].contains(r#""throughput":5"#) && lines[1].contains(r#""x":1"#), "{}", out(&o));
    let o =
        place.ncpu(&["partition", "1", "--metric", "did ([0-9]+)", "--rounds", "1", "sh", "-c", "echo no"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains("instance 0 of 1: no match of --metric"), "{}", err(&o));
}

#[test]
fn what_cannot_be_is_told() {
    let place = Place::new();
    let missing = place.dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let data = place.data();
    let at = format!("{}:{missing}", data.display());
    for (args, code, says) in [
        (&["65000", "true"][..], 1, "65000 instances, but"),
        (&["1", "--clone", missing, "true"], 1, "No such file"),
        (&["1", "--clone", &at, "true"], 1, "make it, for instance 0"),
        (&["1", "--clone", data.to_str().unwrap(), "--commit", "1", "true"], 1, "there are instances 0 to 0"),
        (&["1", "--env", "=x", "true"], 1, "give NAME=VALUE"),
        (&["1", "--by", "socket", "true"], 2, "give node, cache or cores=K"),
        (&["1", "no-such-command-x"], 127, "command not found"),
        (&["1", "/"], 126, "/: "),
    ] {
        let o = place.ncpu(&[&["partition"], args].concat());
        assert_eq!(o.status.code(), Some(code), "{args:?}: {}", err(&o));
        assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
        assert_eq!(place.left(), [""; 0], "{args:?}");
    }
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let place = Place::new();
    // A file system of one page, so that not even the journal's header fits once it is full.
    let script = format!(
        "mount -t tmpfs -o size=4k,mode=700 small {state} && head -c 4096 /dev/zero > {state}/x && exec {ncpu} partition 1 --clone {data} true",
        state = place.dir.path().join("state").display(),
        ncpu = env!("CARGO_BIN_EXE_ncpu"),
        data = place.data().display()
    );
    std::fs::create_dir(place.dir.path().join("state")).unwrap();
    let o = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("NCPU_STATE_DIR", place.dir.path().join("state"))
        .output()
        .unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", err(&o));
    assert!(err(&o).contains("nothing was changed") && err(&o).contains("No space left"), "{}", err(&o));
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn without_root_clones_and_masks_still_work() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !root() {
        return;
    }
    let dir = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o777)).tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let ncpu = dir.path().join("ncpu");
    ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), &ncpu);
    let run = |args: &[&str]| {
        let mut command = Command::new(&ncpu);
        command.args(args).env("NCPU_STATE_DIR", dir.path().join("state")).current_dir(dir.path());
        command.uid(65534).gid(65534).output().unwrap()
    };
    let o = run(&["partition", "1", "sh", "-c", "mkdir data; echo a > data/a; id -u"]);
    assert!(o.status.success(), "{}", err(&o));
    assert!(out(&o).starts_with("65534\n") && err(&o).contains("no cpuset ("), "{}{}", out(&o), err(&o));
    let o = run(&["partition", "1", "--clone", "data", "sh", "-c", "echo b >> data/a; cat data/a; id -u"]);
    if err(&o).contains("making namespaces") {
        return eprintln!("skipped: no user namespaces here");
    }
    assert!(out(&o).starts_with("a\nb\n65534\n"), "{}{}", out(&o), err(&o));
    assert_eq!(std::fs::read_to_string(dir.path().join("data/a")).unwrap(), "a\n");
}

/// Control groups of ours anywhere.
fn groups() -> Vec<PathBuf> {
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with("ncpu-") {
                    found.push(entry.path());
                } else {
                    todo.push(entry.path());
                }
            }
        }
    }
    found
}

#[test]
fn killed_at_any_moment_it_leaves_nothing_that_undo_does_not_clean() {
    if !root() {
        return;
    }
    let place = Place::new();
    let data = place.data();
    // Found again in the command lines of all processes.
    let mark = format!("{}.25", 100_000 + std::process::id());
    let script = format!("sh -c 'sleep {mark}' & sleep {mark}");
    let begin = || {
        place
            .command(&[
                "partition",
                "1",
                "--isolate",
                "ipc,pid",
                "--clone",
                data.to_str().unwrap(),
                "sh",
                "-c",
                &script,
            ])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    // How long it takes to have something to undo, on this machine and beside what runs on it now.
    let mut whole = begin();
    let began = std::time::Instant::now();
    while place.left().is_empty() && whole.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(100));
    }
    let begins = began.elapsed().as_micros() as u64;
    whole.kill().unwrap();
    whole.wait().unwrap();
    assert!(place.ncpu(&["fix", "--undo"]).status.success());
    let mut early = 0;
    for i in 0..110u64 {
        let mut child = begin();
        let pid = child.id();
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..(i + 1) * (begins / 18).max(500))));
        child.kill().unwrap();
        child.wait().unwrap();
        early += u64::from(place.left().is_empty());
        let o = place.ncpu(&["fix", "--undo"]);
        assert!(o.status.success(), "round {i}: {}", err(&o));
        assert_eq!(place.left(), [""; 0], "round {i}: {}", err(&o));
        let own = format!("ncpu-{pid}-");
        let left: Vec<_> = groups().into_iter().filter(|g| g.to_string_lossy().contains(&own)).collect();
        assert!(left.is_empty(), "round {i}: {left:?}");
        let living = living(&mark);
        assert!(living.is_empty(), "round {i}: {living:?}: {}", err(&o));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(place.dir.path().to_str().unwrap()), "round {i}: {mounts}");
    }
    // Most were killed with something to undo, else this shows nothing.
    assert!(early < 90, "{early} of 110 were killed before they did anything");
    assert_eq!(std::fs::read_to_string(data.join("a")).unwrap(), "a\n");
}

/// Processes with these words in their command line, without zombies.
fn living(mark: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|e| std::fs::read_to_string(e.path().join("cmdline")).ok());
    lines.filter(|l| l.contains(&format!("sleep\0{mark}"))).collect()
}

#[test]
fn isolated_servers_do_not_share_a_data_directory() {
    let place = Place::new();
    let data = place.data();
    let mark = place.dir.path().join("started");
    let script = format!("echo x >> {}", mark.display());
    for isolate in ["pid,ipc", "pid", "ipc", "net"] {
        let o = place.ncpu(&[
            "partition",
            "2",
            "--share",
            "--isolate",
            isolate,
            "sh",
            "-c",
            &script,
            data.to_str().unwrap(),
        ]);
        assert!(!o.status.success() && err(&o).contains("--clone"), "{isolate}: {}", err(&o));
        assert_eq!(err(&o).lines().count(), 1, "{}", err(&o));
    }
    assert!(!mark.exists(), "an instance was started");
    assert_eq!(place.left(), [""; 0]);
}

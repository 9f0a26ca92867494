//! `ncpu fix -p` on a process that the test starts. Truth is the kernel's account of its CPUs, and of its CPU time. Needs root and BPF;
//! skips with a message otherwise.

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{err, out, root};
use ncpu_machine::CpuSet;
use ncpu_remedy::journal::trials;
use ncpu_remedy::sys;
use ncpu_trials::{MOST, hold};

/// Two threads that make system calls for ever, on one CPU.
struct Service {
    child: Child,
    dir: tempfile::TempDir,
    cpu: CpuSet,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start() -> Option<Service> {
        if !root() {
            return None;
        }
        let online = ncpu_machine::online_cpus(Path::new("/")).unwrap();
        let Some(first) = online.iter().next().filter(|_| online.len() > 1) else {
            eprintln!("skipped: one CPU");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("twins");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../workloads/twins.c");
        let built = Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
        assert!(built.unwrap().success());
        let mut command = Command::new(program);
        let child = command.args(["calls", "2", "600"]).stdout(Stdio::null()).spawn().unwrap();
        let cpu: CpuSet = [first].into_iter().collect();
        let service = Service { child, dir, cpu };
        let threads = || sys::threads(service.child.id());
        service.until("its threads", || threads().len() == 3);
        for tid in threads() {
            sys::set_affinity(tid, &service.cpu).unwrap();
        }
        Some(service)
    }

    fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether all its threads may use one CPU only.
    fn is_confined(&self) -> bool {
        sys::threads(self.child.id()).into_iter().all(|tid| sys::affinity(tid).unwrap() == self.cpu)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
        command.args(["fix", "-p", &self.child.id().to_string()]).args(args);
        command.env("NCPU_STATE_DIR", self.dir.path().join("state"));
        command
    }

    fn fix(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

fn fix(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ncpu")).arg("fix").args(args).output().unwrap()
}

#[test]
fn arguments_that_cannot_be_are_said() {
    let own = std::process::id().to_string();
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let other = sleeper.id().to_string();
    let mut zombie = Command::new("true").spawn().unwrap();
    let ended = zombie.id().to_string();
    let stat = || std::fs::read_to_string(format!("/proc/{ended}/stat")).unwrap();
    while !stat().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let cases = [
        (&["-p", &own, "--metric", "x"][..], 2, "--metric-url or --count"),
        (&["-p", &own, "--", "true"], 2, "cannot be used with"),
        (&["--metric-url", "file:///x", "--", "true"], 2, "cannot be used with"),
        (&["-p", &own], 2, "has started this ncpu"),
        (&["-p", "4194304"], 1, "there is no process 4194304"),
        (&["-p", &ended], 1, "has ended (zombie)"),
        (&["-p", &other, "--try", "no-such-setting"], 1, "no such setting"),
    ];
    for (args, code, says) in cases {
        let said = fix(args);
        assert_eq!(said.status.code(), Some(code), "{args:?}: {}", err(&said));
        assert!(err(&said).contains(says), "{args:?}: {}", err(&said));
    }
    zombie.wait().unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn what_a_killed_one_has_set_is_undone() {
    let Some(service) = Service::start() else { return };
    let listed = service.fix(&["--list"]);
    assert!(out(&listed).contains("all CPUs of the machine"), "{}{}", out(&listed), err(&listed));
    let said = service.dir.path().join("said");
    let file = || std::fs::File::create(&said).unwrap();
    let mut command = service.command(&["--try", "CPUs", "--rounds", "100"]);
    let mut killed = command.stdout(Stdio::null()).stderr(file()).spawn().unwrap();
    service.until("the setting", || {
        let ended = killed.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(&said).unwrap());
        !service.is_confined()
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let undone = service.command(&["--list"]).args(["-o", "json"]).output().unwrap();
    assert!(undone.status.success(), "{}", err(&undone));
    let mut undo = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    let undo = undo.args(["fix", "--undo"]).env("NCPU_STATE_DIR", service.dir.path().join("state"));
    assert!(undo.status().unwrap().success());
    assert!(service.is_confined());
}

#[test]
fn one_at_a_time_tries_settings() {
    let Some(service) = Service::start() else { return };
    let other = trials(&service.dir.path().join("state/undo"), &["another".into()]).unwrap();
    let refused = service.fix(&["--try", "batch", "--rounds", "2"]);
    assert_eq!(refused.status.code(), Some(1), "{}{}", out(&refused), err(&refused));
    assert!(err(&refused).contains("`another` tries settings on this machine"), "{}", err(&refused));
    drop(other);
    let tried = service.fix(&["--try", "batch", "--rounds", "2"]);
    assert!(tried.status.success() && out(&tried).contains("batch"), "{}{}", out(&tried), err(&tried));
}

/// Speeds, with nothing beside.
mod quiet {
    use super::*;

    #[test]
    fn all_cpus_help_a_process_that_has_one() {
        let Some(service) = Service::start() else { return };
        hold(MOST, "a process on one CPU", || {
            let said = service.fix(&["--try", "CPUs", "--rounds", "3", "-o", "json"]);
            assert!(said.status.success(), "{}", err(&said));
            let text = out(&said);
            let row: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
            // Two threads that share nothing.
            let speed = row["speed"].as_f64().unwrap();
            assert!((1.6..2.3).contains(&speed), "{text}");
            assert_eq!(row["verdict"], "helps, undone", "{text}");
            assert!(service.is_confined());
        });
        let said = service.fix(&["--try", "CPUs", "--rounds", "3", "--keep"]);
        assert!(said.status.success(), "{}", err(&said));
        // Where others took the CPUs meanwhile it may not be certain.
        let kept = out(&said).contains("helps, kept");
        assert_eq!(service.is_confined(), !kept, "{}{}", out(&said), err(&said));
        assert_eq!(err(&said).contains("undo with: taskset -apc"), kept, "{}", err(&said));
    }
}

//! Behind whom a program's threads stand on run queues, held to the kernel's own account of how long they stood there
//! (/proc/PID/schedstat), and what gives others the right to go first. Needs root and BPF; says so and passes where there
//! are none.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{Seen, allowed, observe_placed};

/// A program that uses a CPU until it is dropped.
struct Hog {
    script: PathBuf,
    child: Child,
}

impl Hog {
    fn start(nice: i32) -> Hog {
        let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hog-{}", std::process::id()));
        std::fs::write(&script, "#!/bin/sh\nwhile :; do :; done\n").expect("a script");
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("its permissions");
        let child = Command::new("nice").args(["-n", &nice.to_string()]).arg(&script).spawn().expect("nice");
        on_first_cpu(child.id());
        Hog { script, child }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.script);
    }
}

fn on_first_cpu(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(pid, &first).expect("an affinity");
}

/// What the kernel says: seconds that the shell stood on run queues, and that the hog ran meanwhile.
struct Truth {
    stood: f64,
    hog_ran: f64,
}

/// A shell that runs for 0.8 s beside the hog.
fn observe_busy(hog: &Hog) -> (Seen, Truth) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stood-{}", std::process::id()));
    let script = format!(
        "now() {{ read t rest < /proc/uptime; t=${{t%.*}}${{t#*.}}; }}; hog=/proc/{}/schedstat; read ran rest < $hog; \
         read on before rest < /proc/$$/schedstat; \
         now; end=$((t + 80)); while [ $t -lt $end ]; do now; done; \
         read on stood rest < /proc/$$/schedstat; read after rest < $hog; echo $((stood - before)) $((after - ran)) > {}",
        hog.child.id(),
        out.display()
    );
    let seen = observe_placed(&["sh".into(), "-c".into(), script.into()], on_first_cpu, |_| {});
    assert_eq!(seen.ended.status, 0);
    let said = std::fs::read_to_string(&out).expect("what the shell says");
    let _ = std::fs::remove_file(&out);
    let mut seconds = said.split_whitespace().map(|ns| ns.parse::<f64>().expect("a number") / 1e9);
    let truth =
        Truth { stood: seconds.next().expect("a number"), hog_ran: seconds.next().expect("a number") };
    (seen, truth)
}

/// Where a CPU switches very often, what it ran a while ago is not known any more.
fn within(seen: f64, unknown: f64, truth: f64) -> bool {
    seen <= 1.1 * truth + 0.02 && seen + unknown >= 0.9 * truth - 0.02
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.1 * b + 0.02
}

/// Seconds behind the hog, behind anything, and behind what is not known; and what is said of why.
fn behind(seen: &Seen) -> (f64, f64, f64, Option<String>) {
    let (mut hog, mut all, mut unknown, mut cause) = (0.0, 0.0, 0.0, None);
    for (t, r) in seen.rows("queued") {
        let seconds = t.number(r, "seconds").expect("seconds");
        all += seconds;
        if t.text(r, "at").is_none() {
            unknown += seconds;
        }
        if t.text(r, "process").is_some_and(|p| p.starts_with("hog-")) {
            assert_eq!(t.text(r, "at"), Some("other"));
            hog += seconds;
            cause = cause.or(t.text(r, "cause").map(str::to_string));
        }
    }
    (hog, all, unknown, cause)
}

#[test]
fn who_stands_behind_a_hog_is_told_so_and_why() {
    let Some(_one) = allowed() else { return };
    let running = Hog::start(-10);
    let (seen, truth) = observe_busy(&running);
    drop(running);
    let (hog, all, unknown, cause) = behind(&seen);
    assert!(truth.stood > 0.1 && near(all, truth.stood), "{all} s, {} by the kernel's account", truth.stood);
    // Whenever it ran there, the shell stood behind it.
    assert!(within(hog, unknown, truth.hog_ran), "{hog} s behind the hog, which ran for {}", truth.hog_ran);
    let cause = cause.expect("a cause");
    assert!(cause.starts_with("nice ") && cause.contains(", and the program's is "), "{cause}");
    let bound: Vec<_> =
        seen.rows("bound").map(|(t, r)| (t.text(r, "cpus").map(str::to_string), t.text(r, "by"))).collect();
    if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
        assert_eq!(bound.first(), Some(&(Some("0".into()), Some("affinity"))), "{bound:?}");
    }
}

/// A cgroup with so many times the usual weight, of either version; removed again.
struct Heavy {
    group: PathBuf,
    file: &'static str,
}

impl Heavy {
    fn make() -> Option<Heavy> {
        for (mount, file, weight) in
            [("/sys/fs/cgroup/cpu", "cpu.shares", "8192"), ("/sys/fs/cgroup", "cpu.weight", "800")]
        {
            let group = Path::new(mount).join(format!("ncpu-test-heavy-{}", std::process::id()));
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let made = Heavy { group, file };
            if std::fs::write(made.group.join(file), weight).is_ok() {
                return Some(made);
            }
        }
        eprintln!("skipped: no cgroup with a limit of cpu can be made");
        None
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        for _ in 0..500 {
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn a_control_group_of_more_weight_is_named() {
    let Some(_one) = allowed() else { return };
    let Some(heavy) = Heavy::make() else { return };
    let hog = Hog::start(0);
    std::fs::write(heavy.group.join("cgroup.procs"), hog.child.id().to_string()).expect("a group");
    let (seen, truth) = observe_busy(&hog);
    let (behind, _, unknown, cause) = behind(&seen);
    drop(hog);
    assert!(
        within(behind, unknown, truth.hog_ran),
        "{behind} s behind the hog, which ran for {}",
        truth.hog_ran
    );
    let cause = cause.expect("a cause");
    let named = format!("{}/{}", heavy.group.display(), heavy.file);
    assert!(cause.starts_with(&format!("{named} is 8")), "{cause}");
}

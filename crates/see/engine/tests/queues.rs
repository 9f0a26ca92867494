//! The threads ahead of a program's threads on run queues, compared with the kernel's own account of the queueing time
//! (/proc/PID/schedstat), and the rights by which others go first. Needs root and BPF; skips with a message otherwise.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{Seen, allowed, observe_placed};
use ncpu_trials::{MOST, hold};

/// A program that uses a CPU until it is dropped.
struct Hog {
    script: PathBuf,
    child: Child,
}

impl Hog {
    fn start(nice: i32) -> Hog {
        let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hog-{}", std::process::id()));
        ncpu_trials::script(&script, "#!/bin/sh\nwhile :; do :; done\n");
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

/// The kernel's account: seconds that the shell stood on run queues, and that the hog ran meanwhile.
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

/// A cgroup with a multiple of the usual weight, of either version; removed again.
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

/// The file in which a part says something to the test, which is its parent.
fn note(what: &str, test: u32) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("queues-{what}-{test}"))
}

/// The number that a part has said.
fn truth(what: &str) -> f64 {
    let note = note(what, std::process::id());
    let text = std::fs::read_to_string(&note).expect("what it says");
    std::fs::remove_file(note).expect("it was written");
    text.parse().expect("a number")
}

#[test]
fn threads_that_bind_themselves_are_told_with_their_cpus() {
    let Some(_one) = allowed() else { return };
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return eprintln!("skipped: one CPU is all there are");
    }
    let seen = common::observe(&common::part("three_on_one_cpu"), |_| {});
    assert_eq!(seen.ended.status, 0);
    let rows: Vec<_> = seen
        .rows("bound")
        .map(|(t, r)| {
            let queued = t.number(r, "queued").expect("seconds");
            (t.text(r, "cpus").unwrap_or("").to_string(), t.text(r, "by"), t.int(r, "threads"), queued)
        })
        .collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.0 == "1"), "{rows:?}");
    assert!(rows.iter().all(|row| row.1 == Some("affinity")), "{rows:?}");
    assert_eq!(rows.iter().filter_map(|row| row.2).max(), Some(3), "{rows:?}");
    let (queued, stood) = (rows.iter().map(|row| row.3).sum::<f64>(), truth("bind"));
    assert!(near(queued, stood), "{queued} s, {stood} by the kernel's account");
}

mod quiet {
    use super::*;

    #[test]
    fn a_cpu_that_wakes_for_a_thread_is_no_full_queue() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "ping-pong", || {
            let seen = common::observe(&common::part("ping_pong"), |_| {});
            assert_eq!(seen.ended.status, 0);
            let stood = truth("ping_pong");
            let (queue, waking) = (seen.sum("idle_time", "runq"), seen.sum("idle_time", "wake-up"));
            let idle = seen.sum("cpu_time", "idle");
            // Idle time beside threads that were runnable is no more than these were: from their waking on, which is before the
            // kernel puts them on a queue, where its own count of what they stood begins.
            let lat = seen.sum("threads", "LAT");
            assert!(lat >= 0.9 * stood - 0.02, "LAT {lat}, {stood} s on queues");
            assert!(
                queue + waking <= 1.1 * lat + 0.02,
                "{queue} + {waking} of {lat} s, {stood} s of them on queues"
            );
            let events = |event: &str| -> f64 {
                let of = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "event") == Some(event);
                seen.rows("events").filter(of).filter_map(|(t, r)| t.number(r, "count")).sum()
            };
            let latency = events("wake-up latency, us") / 1e6;
            assert!(latency <= 1.1 * lat + 0.02, "{latency} of {lat} s");
            if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
                assert!(
                    events("wake-ups of idle CPUs") > 1000.0 && waking > 0.0,
                    "{waking} s of {idle} idle"
                );
                // The rest of LAT, such as the way from a waking to a queue, is not parted from queues.
                assert!(queue <= 1.1 * (lat - waking) + 0.02, "{queue} beside {waking} s of {lat} s");
            }
        });
    }
}

/// Parts that this test plays when it observes itself.
mod parts {
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    fn bind(cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).expect("an affinity");
    }

    /// Seconds that a thread stood on run queues.
    fn stood_by(schedstat: &std::path::Path) -> f64 {
        let text = std::fs::read_to_string(schedstat).expect("schedstat");
        text.split_whitespace().nth(1).and_then(|ns| ns.parse::<f64>().ok()).expect("ns") / 1e9
    }

    /// Seconds that the calling thread did.
    fn stood() -> f64 {
        stood_by("/proc/thread-self/schedstat".as_ref())
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn ping_pong() {
        let ([mut from_a, mut from_b], [mut to_b, mut to_a]) = {
            let ((a, b), (c, d)) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
            ([a, c], [b, d])
        };
        let end = Instant::now() + Duration::from_millis(1500);
        let other = std::thread::spawn(move || {
            let last = std::thread::available_parallelism().map_or(1, usize::from).min(2) - 1;
            bind(last);
            let mut byte = [0];
            while from_a.read(&mut byte).is_ok_and(|n| n == 1) && to_a.write_all(&byte).is_ok() {}
            stood()
        });
        bind(0);
        let mut byte = [0];
        while Instant::now() < end {
            to_b.write_all(&byte).expect("the other reads");
            from_b.read_exact(&mut byte).expect("the other writes");
        }
        drop(to_b);
        // The other has ended then; the test's first thread is there still.
        let other = other.join().expect("it only echoes");
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
        let all = other + tasks.flatten().map(|task| stood_by(&task.path().join("schedstat"))).sum::<f64>();
        std::fs::write(super::note("ping_pong", std::os::unix::process::parent_id()), all.to_string())
            .expect("a file");
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn three_on_one_cpu() {
        let end = Instant::now() + Duration::from_millis(1500);
        let work = move || {
            bind(1);
            while Instant::now() < end {
                std::hint::black_box((0..10_000).sum::<u64>());
            }
            stood()
        };
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(work)).collect();
        let all: f64 = threads.into_iter().map(|thread| thread.join().expect("it only computes")).sum();
        std::fs::write(super::note("bind", std::os::unix::process::parent_id()), all.to_string())
            .expect("a file");
    }
}

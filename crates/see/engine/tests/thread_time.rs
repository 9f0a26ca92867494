//! Threads' time: what the lives of threads went to, compared with the truth for programs that do little but one thing.
//! Needs root and BPF; skips with a message otherwise.

mod common;

use std::collections::BTreeMap;

use common::{Seen, allowed, c, observe};
use ncpu_engine::engine::Config;

/// Thread-seconds by role, activity and object.
type Lives = BTreeMap<(String, String, String), f64>;

fn lives(seen: &Seen) -> Lives {
    let mut out = Lives::new();
    for (t, r) in seen.rows("thread_time") {
        let text = |column: &str| t.text(r, column).unwrap_or_default().to_owned();
        let seconds = t.number(r, "seconds").expect("seconds");
        assert!(seconds >= 0.0, "{} {} {seconds}", text("role"), text("doing"));
        *out.entry((text("role"), text("doing"), text("what"))).or_default() += seconds;
    }
    out
}

/// Thread-seconds of a role in one of these activities.
fn of(lives: &Lives, role: &str, doing: &[&str]) -> f64 {
    let is = |d: &str| doing.contains(&d);
    lives.iter().filter(|((r, d, _), _)| r == role && is(d)).map(|(_, seconds)| seconds).sum()
}

/// Lets a program of `lives.c` wait, and holds what is seen of it to what it did.
fn waits(change: impl Fn(&mut Config)) -> Seen {
    const LEAST: f64 = 0.6;
    let program = c("lives", &["-O2"]);
    let seen = observe(&[program.into(), "wait".into(), LEAST.to_string().into()], change);
    assert_eq!(seen.ended.status, 0);
    let all = lives(&seen);
    // Each of these slept for longer than that: the program saw it asleep first. On a busy machine it may take long until user
    // space has looked at a stack, which shows the purpose of a futex.
    for (role, doing, threads) in [
        ("w-#", &["file lock"][..], 2.0),
        ("m-#", &["user lock", "another thread"], 1.0),
        ("pool-#", &["waiting for work", "another thread"], 3.0),
        ("piper", &["pipe"], 1.0),
        ("holder", &["pipe"], 1.0),
        ("socket", &["socket"], 1.0),
        ("parent", &["child"], 1.0),
        ("semaphore", &["semaphore"], 1.0),
        ("main", &["timer"], 1.0),
        ("signal", &["events"], 1.0),
        ("vforker", &["child"], 1.0),
        // Not every kernel lets programs serve faults.
        ("faulter", &["page fault"], 1.0),
    ] {
        if role == "faulter" && !all.keys().any(|(r, ..)| r == role) {
            eprintln!("skipped: no userfaultfd");
            continue;
        }
        let seconds = of(&all, role, doing);
        assert!(seconds >= threads * LEAST, "{role}: {doing:?} {seconds:.3} s: {all:#?}");
    }
    // Where user space came too late to look, they have no names; never wrong ones.
    let names = |role: &str, doing: &str| -> Vec<&str> {
        let of = all.keys().filter(|(r, d, what)| r == role && d == doing && !what.is_empty());
        of.map(|(.., what)| what.as_str()).collect()
    };
    let files = names("w-#", "file lock");
    let right = |name: &&str| name.starts_with("/tmp/ncpu-lives-") || name.starts_with("file ");
    assert!(files.iter().all(right), "{files:?}");
    let mutexes = names("m-#", "user lock");
    assert!(mutexes.iter().all(|name| *name == "held_mutex" || name.starts_with("0x")), "{mutexes:?}");
    // Lives are those of table `threads`, which the microstates sum to.
    let columns = ["CPU", "TFL", "DFL", "LCK", "SLP", "LAT"];
    let lived: f64 = columns.iter().map(|column| seen.sum("threads", column)).sum();
    let sum: f64 = all.values().sum();
    // The process was there before it was observed.
    assert!(sum <= lived + 1e-6 && sum > lived - 1.0, "{sum:.6} of {lived:.6}");
    seen
}

/// Threads that ended most of the waits for a file lock.
fn holders(seen: &Seen) -> Vec<&str> {
    let waits = seen.rows("thread_time").filter(|(t, r)| t.text(*r, "doing") == Some("file lock"));
    waits.filter_map(|(t, r)| t.text(r, "holder")).collect()
}

#[test]
fn each_wait_is_what_it_is_for() {
    let Some(_one) = allowed() else { return };
    let seen = waits(|_| {});
    // It let go of the first; the second was let go by that. On a busy machine a wake-up may be missed; nobody else is blamed.
    let holders = holders(&seen);
    assert!(holders.iter().all(|holder| ["holder", "w-1", "w-2"].contains(holder)), "{holders:?}");
}

#[test]
fn each_wait_is_what_it_is_for_where_not_all_switches_are_followed() {
    let Some(_one) = allowed() else { return };
    waits(|config| {
        config.probes = ncpu_engine::engine::Probes::Auto;
        config.switch_windows = Some([5, 100].map(std::time::Duration::from_millis));
    });
}

mod quiet {
    use ncpu_trials::{MOST, hold};

    use super::*;

    /// Threads that compete for CPUs, beside what the kernel says of them.
    fn near_the_kernel() {
        let program = c("lives", &["-O2"]);
        let told = tempfile::NamedTempFile::new().expect("a file");
        let seen = observe(&[program.into(), "work".into(), "3".into(), told.path().into()], |_| {});
        assert_eq!(seen.ended.status, 0);
        let told = std::fs::read_to_string(told.path()).expect("it was written");
        let told: Vec<f64> = told.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let [ran, queued, user, system] = told[..] else { panic!("{told:?}") };
        let all = lives(&seen);
        let role = all.keys().map(|(role, ..)| role).find(|role| *role != "main").expect("workers").clone();
        let [usr, sys, runq] =
            ["user code", "kernel code", "waiting for a CPU"].map(|doing| of(&all, &role, &[doing]));
        let line = format!(
            "on CPU {:.3} of {ran:.3}, queued {runq:.3} of {queued:.3}, user {usr:.3} of {user:.3}, kernel {sys:.3} of {system:.3}",
            usr + sys
        );
        eprintln!("{line}");
        // The kernel leaves interrupts out of what threads ran, and counts them as neither; so do 1 % of the capacity.
        assert!((usr + sys - ran).abs() < 0.02 * ran && (runq - queued).abs() < 0.02 * queued, "{line}");
        assert!((usr / (usr + sys) - user / (user + system)).abs() < 0.01, "{line}");
        // The threads that read what the kernel says have their end before them.
        assert!(runq + usr + sys > 0.99 * (ran + queued), "{line}");
    }

    #[test]
    fn time_on_cpu_and_queues_is_what_the_kernel_counts() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "lives", near_the_kernel);
    }
}

//! Observes real processes of known behaviour. Needs root and BPF; skips with a message otherwise.

mod common;

use std::time::{Duration, Instant};

use common::{Seen, allowed, observe, observe_placed, part, sh};
use ncpu_engine::engine::Config;
use ncpu_engine::observation::Observation;
use ncpu_observe_core::program::Target;
use ncpu_table::Table;
use ncpu_trials::{MOST, hold};

const PLACES: [&str; 8] = ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];

fn assert_sums_to_capacity(seen: &Seen) {
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus: usize = cpus
        .trim()
        .split(',')
        .map(|p| match p.split_once('-') {
            Some((a, b)) => b.parse::<usize>().unwrap() - a.parse::<usize>().unwrap() + 1,
            None => 1,
        })
        .sum();
    let capacity = cpus as f64 * seen.elapsed;
    let sum: f64 = PLACES.iter().map(|p| seen.sum("cpu_time", p)).sum();
    assert!((0.99..1.0005).contains(&(sum / capacity)), "{sum} CPU-s of a capacity of {capacity}");
    let why: f64 = ["runq", "wake-up", "klock", "ulock", "io", "serial", "asleep"]
        .iter()
        .map(|c| seen.sum("idle_time", c))
        .sum();
    let idle = seen.sum("cpu_time", "idle");
    // From a timer, whose ticks come late on a busy machine: readers use the proportions only.
    assert!((why - idle).abs() < 0.1 * capacity + 0.05, "idle {idle}, explained {why} of {capacity}");
}

/// A cgroup of the CPU controller that is removed again: version 1, or version 2 where the root hands
/// the controller down.
struct Limited(std::path::PathBuf, &'static str);

impl Limited {
    /// One that may use 1 ms in 100.
    fn make() -> Option<Limited> {
        Limited::of("cpu", &[("cpu.cfs_quota_us", "1000"), ("cpu.max", "1000 100000")])
    }

    /// One of a controller, by the file of either version.
    fn of(controller: &str, files: &[(&'static str, &str); 2]) -> Option<Limited> {
        let own = format!("/sys/fs/cgroup/{controller}");
        for (mount, (limit, value)) in [own.as_str(), "/sys/fs/cgroup"].into_iter().zip(files) {
            let name = format!("ncpu-test-{controller}-{}", std::process::id());
            let group = std::path::Path::new(mount).join(name);
            if std::fs::create_dir(&group).is_err() {
                continue;
            }
            let made = Limited(group, limit);
            if std::fs::write(made.0.join(limit), value).is_ok() {
                return Some(made);
            }
        }
        eprintln!("skipped: no cgroup with a limit of {controller} can be made");
        None
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The kernel may take a moment to let go of the last process.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_cgroups_cpu_limit_is_told_with_what_it_held_back() {
    let Some(_one) = allowed() else { return };
    let Some(group) = Limited::make() else { return };
    // Runs until its group was throttled three times.
    let stat = group.0.join("cpu.stat");
    let script = format!(
        "n=0; while [ $n -lt 3 ]; do while read k v; do [ $k = nr_throttled ] && n=$v; done < {}; done",
        stat.display()
    );
    let place = |pid: u32| std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).unwrap();
    let seen = observe_placed(&sh(&script), place, |_| {});
    let name = format!("/{}", group.0.file_name().unwrap().to_string_lossy());
    let rows: Vec<_> =
        seen.rows("throttling").filter(|(t, r)| t.text(*r, "cgroup") == Some(name.as_str())).collect();
    let sum = |column: &str| rows.iter().filter_map(|(t, r)| t.number(*r, column)).sum::<f64>();
    assert!(sum("throttled") >= 3.0 && sum("periods") >= 3.0 && sum("held") > 0.0, "{}", rows.len());
    let (t, r) = rows[0];
    assert_eq!((t.text(r, "limit"), t.number(r, "allowed")), (Some(group.1), Some(0.01)));
    assert!(t.text(r, "lift").unwrap().ends_with(&format!("{name}/{}", group.1)));
    // That is not time in which it waited for a CPU that others had.
    let doing = |what: &str| -> f64 {
        let of = seen.rows("thread_time").filter(|(t, r)| t.text(*r, "doing") == Some(what));
        of.filter_map(|(t, r)| t.number(r, "seconds")).sum()
    };
    let (quota, queued) = (doing("quota"), doing("waiting for a CPU"));
    assert!(quota > 0.8 * sum("held") && quota > queued, "{quota} of {} s, queued {queued}", sum("held"));
}

#[test]
fn forks_that_a_cgroup_refused_are_told() {
    let Some(_one) = allowed() else { return };
    let Some(group) = Limited::of("pids", &[("pids.max", "6"), ("pids.max", "6")]) else { return };
    let place = |pid: u32| std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).unwrap();
    // The shell that cannot fork ends; one sleeps on, so that the group is looked at while it is full.
    let forks = "(for i in 1 2 3 4 5 6 7 8; do sleep 1 & done) 2>/dev/null; wait; sleep 0.5";
    let seen = observe_placed(&sh(forks), place, |_| {});
    let name = format!("/{}", group.0.file_name().unwrap().to_string_lossy());
    let found: Vec<_> =
        seen.rows("limits_met").filter(|(t, r)| t.text(*r, "of") == Some(name.as_str())).collect();
    let [(t, r)] = found[..] else { panic!("{} rows", found.len()) };
    assert_eq!((t.text(r, "limit"), t.int(r, "allowed")), (Some("pids.max"), Some(6)));
    assert!(t.int(r, "refused").unwrap() >= 1, "{t:?}");
    assert!(t.text(r, "lift").unwrap().ends_with(&format!("{name}/pids.max")), "{t:?}");
}

#[test]
fn a_process_near_its_limit_of_open_files_is_told() {
    let Some(_one) = allowed() else { return };
    if std::fs::metadata("/proc/self/fd").map_or(0, |m| m.len()) == 0 {
        return eprintln!("skipped: this kernel does not tell the number of open files (Linux 6.2 does)");
    }
    let seen = observe(&part("hold_files"), |_| {});
    let found: Vec<_> =
        seen.rows("limits_met").filter(|(t, r)| t.text(*r, "limit") == Some("RLIMIT_NOFILE")).collect();
    let [(t, r)] = found[..] else { panic!("{} rows", found.len()) };
    assert_eq!((t.int(r, "allowed"), t.int(r, "refused")), (Some(64), Some(0)), "{t:?}");
    // The number it was to get and did not may count as well, for a moment.
    assert!((58..=65).contains(&t.int(r, "used").unwrap()), "{t:?}");
}

#[test]
fn sleeps_with_a_timeout_are_counted_with_what_was_asked_for() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("herd"), |_| {});
    let of = |call: &'static str| {
        let rows: Vec<_> = seen.rows("sleepers").filter(|(t, r)| t.text(*r, "call") == Some(call)).collect();
        let sum = |column: &str| rows.iter().filter_map(|(t, r)| t.number(*r, column)).sum::<f64>();
        let most = rows.iter().filter_map(|(t, r)| t.number(*r, "threads")).fold(0.0, f64::max);
        (sum("count"), most, sum("asked") / sum("count").max(1.0), sum("slept"))
    };
    // A wake-up may come before the thread has left its CPU, so some calls do not sleep.
    let (count, threads, asked, slept) = of("poll");
    assert!((1000.0..=2000.0).contains(&count) && threads == 100.0, "{count} by {threads}");
    assert!((asked - 0.010).abs() < 1e-6 && slept > 0.0, "{asked} {slept}");
    let (count, _, asked, _) = of("clock_nanosleep");
    assert!(count >= 1.0 && (asked - 0.003).abs() < 0.002, "{count} {asked}");
    let (count, _, asked, _) = of("epoll_wait");
    assert!(count >= 1.0 && (asked - 0.007).abs() < 1e-6, "{count} {asked}");
    let (count, _, asked, _) = of("pselect6");
    assert!(count >= 1.0 && asked > 0.0 && asked <= 0.004 + 1e-6, "{count} {asked}");
    // Of what sleeps for ever nothing is asked.
    assert_eq!(of("wait4").0, 0.0);
}

#[test]
fn a_sleep_of_no_time_is_a_sleep() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("sleep_for_nothing"), |_| {});
    let truth: f64 = said("for_nothing").parse().expect("switches");
    let rows = seen.rows("sleepers").filter(|(t, r)| t.text(*r, "call") == Some("clock_nanosleep"));
    let count: f64 = rows.filter_map(|(t, r)| t.number(r, "count")).sum();
    // A timer may end the sleep before the thread has left its CPU, and of frequent sleeps one in 64 is followed.
    assert!(truth >= 100.0 && (0.3..3.0).contains(&(count / truth)), "{count} of {truth}");
}

#[test]
fn threads_that_alternate_between_calls_are_counted_once_each() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("alternate"), |_| {});
    for call in ["clock_nanosleep", "poll"] {
        let of = |column: &'static str| {
            let rows = seen.rows("sleepers").filter(|(t, r)| t.text(*r, "call") == Some(call));
            rows.filter_map(|(t, r)| t.number(r, column)).collect::<Vec<_>>()
        };
        let (threads, count) = (of("threads"), of("count").iter().sum::<f64>());
        assert!(count >= 100.0, "{call}: {count}");
        // The first thread of the test's harness may sleep too. Each interval has them; the last is a part of one.
        let whole = &threads[..threads.len() - 1];
        assert!(!whole.is_empty() && whole.iter().all(|n| (2.0..=3.0).contains(n)), "{call}: {threads:?}");
    }
}

#[test]
fn faults_on_behalf_of_a_call_are_counted_and_what_is_not_measured_is_null() {
    let Some(_one) = allowed() else { return };
    for micro in [false, true] {
        let seen = observe(&part("populate"), |c| {
            c.micro = micro;
            c.sample_hz = None;
        });
        let of = |column: &str| -> f64 {
            let of = seen.rows("threads").filter(|(t, r)| t.text(*r, "thread") == Some("populator"));
            of.filter_map(|(t, r)| t.number(r, column)).sum()
        };
        let (pages, faults) = (parts::PAGES as f64, of("minf"));
        // By touch and by call, 20,000 each; the thread's stack and the like are a few more.
        assert!((2.0 * pages..2.02 * pages).contains(&faults), "micro {micro}: {faults}");
        let known = |column: &str| seen.rows("threads").all(|(t, r)| t.number(r, column).is_some());
        let unknown = |column: &str| seen.rows("threads").all(|(t, r)| t.number(r, column).is_none());
        for column in ["CPU", "LCK", "SLP", "LAT", "VCX", "minf", "SIG"] {
            assert!(known(column), "{column}");
        }
        for column in ["USR", "SYS", "SCL"] {
            assert!(if micro { known(column) } else { unknown(column) }, "micro {micro}: {column}");
        }
        let on_cpu: f64 = seen.sum("threads", "CPU");
        assert!(on_cpu > 0.0 && on_cpu < 1.1 * (seen.ended.user + seen.ended.system) + 0.02, "{on_cpu}");
    }
}

/// The file in which a part says something to the test, which is its parent.
fn note(of: &str, test: u32) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{of}-{test}"))
}

/// The note that a part has left.
fn said(of: &str) -> String {
    let note = note(of, std::process::id());
    let text = std::fs::read_to_string(&note).unwrap();
    std::fs::remove_file(note).unwrap();
    text
}

#[test]
fn every_cpu_second_is_in_one_place() {
    let Some(_one) = allowed() else { return };
    for argv in
        [sh("sleep 0.7"), sh("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"), part("contend_fds")]
    {
        let seen = observe(&argv, |_| {});
        assert_sums_to_capacity(&seen);
    }
}

#[test]
fn no_cpu_second_is_counted_twice_however_short_the_run() {
    let Some(_one) = allowed() else { return };
    for _ in 0..10 {
        let seen = observe(&sh("exit 0"), |_| {});
        let mut at = std::collections::BTreeMap::<u64, f64>::new();
        for (t, r) in seen.rows("cpu_time") {
            *at.entry(t.int(r, "CPU").unwrap()).or_default() +=
                PLACES.iter().map(|p| t.number(r, p).unwrap()).sum::<f64>();
        }
        for (cpu, sum) in at {
            // An interrupt while a program charges may charge the same few microseconds.
            assert!(sum <= seen.elapsed * 1.01 + 1e-4, "CPU {cpu}: {sum} of {} s", seen.elapsed);
        }
    }
}

#[test]
fn the_programs_time_is_what_its_rusage_says() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&sh("i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done"), |_| {});
    let used = seen.ended.user + seen.ended.system;
    // Interrupts are in the kernel's figure and not in ours.
    let ours = seen.sum("cpu_time", "target") + seen.sum("cpu_time", "spin");
    let irq = seen.sum("cpu_time", "hardirq") + seen.sum("cpu_time", "softirq");
    assert!(
        ours <= used * 1.02 + 0.02 && ours + irq >= used * 0.97 - 0.02,
        "ours {ours} + {irq}, rusage {used}"
    );
    let user = seen.rows("samples").filter(|(t, r)| t.text(*r, "class") == Some("user")).count();
    assert!(user > 0, "a loop in a shell is user code");
}

#[test]
fn microstates_are_exact_and_sum_to_the_threads_time() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("sleep_and_burn"), |c| {
        c.micro = true;
        c.sample_hz = None;
    });
    // The account leaves out what the hypervisor gave to others; a clock does not.
    let stolen = seen.sum("summary", "steal");
    let states = ["USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT"];
    let of = |thread: &str, state: &str| -> f64 {
        seen.rows("threads")
            .filter(|(t, r)| t.text(*r, "thread") == Some(thread))
            .filter_map(|(t, r)| t.number(r, state))
            .sum()
    };
    let burnt: f64 = ["USR", "SYS", "TRP"].iter().map(|s| of("burner", s)).sum();
    let schedstat = said("burner");
    let cpu_ns: f64 = schedstat.split(' ').next().unwrap().parse().unwrap();
    let account = cpu_ns / 1e9;
    let beside = 0.02 + 0.03 * burnt;
    assert!(
        account - beside < burnt && burnt < account + beside + stolen,
        "ours {burnt}, schedstat {account}, stolen {stolen}"
    );
    assert!(of("sleeper", "SLP") > 0.25, "asleep for 0.3 s: {}", of("sleeper", "SLP"));
    assert!(of("sleeper", "LCK") < 0.05);
    let calls: f64 = of("caller", "SCL");
    assert!((5000.0..5200.0).contains(&calls), "5000 system calls and a few: {calls}");
    let lock = of("locker", "LCK");
    assert!(lock > 0.15, "blocked 0.2 s behind a mutex: {lock}");
    for thread in ["burner", "sleeper", "caller", "locker"] {
        let sum: f64 = states.iter().map(|s| of(thread, s)).sum();
        assert!(sum > 0.0 && sum < seen.elapsed * 1.01, "{thread}: {sum} of {}", seen.elapsed);
    }
}

#[test]
fn a_zombie_is_told_once() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("zombie"), |c| c.micro = true);
    let used: f64 = ["USR", "SYS", "TRP"]
        .iter()
        .map(|s| {
            let dead = seen.rows("threads").filter(|(t, r)| t.text(*r, "thread") == Some("zombie"));
            dead.filter_map(|(t, r)| t.number(r, s)).sum::<f64>()
        })
        .sum();
    let spent = said("zombie");
    let spent = spent.parse::<f64>().unwrap() / 1e9;
    assert!(used > 0.9 * spent && used < 1.5 * spent, "ours {used}, its own clock {spent}");
}

#[test]
fn a_contended_mutex_is_a_user_lock() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("contend_mutex"), |_| {});
    let waits: f64 = seen
        .rows("user_locks")
        .filter(|(t, r)| t.text(*r, "type") == Some("lock"))
        .filter_map(|(t, r)| t.number(r, "count"))
        .sum();
    assert!(waits > 10.0, "{waits} waits");
    let holders = seen.rows("user_locks").filter(|(t, r)| t.text(*r, "holder").is_some()).count();
    assert!(holders > 0, "some threads woke the waiters");
}

#[test]
fn the_lock_table_is_emptied_while_it_is_observed() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("many_futexes"), |_| {});
    // Each wait is for another futex: more than the table has rows.
    let full: Vec<_> = seen
        .rows("drops")
        .filter(|(t, r)| t.text(*r, "what").is_some_and(|w| w.contains("lock table full")))
        .collect();
    assert!(full.is_empty(), "{} kinds of drops", full.len());
    let waits = seen.sum("user_locks", "count");
    assert!(waits > 0.95 * f64::from(parts::FUTEXES), "{waits} of {}", parts::FUTEXES);
}

#[test]
fn ten_thousand_short_processes_are_all_counted() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("fork_much"), |c| c.stacks = false);
    assert_eq!(seen.ended.status, 0);
    let children = seen
        .rows("threads")
        .filter(|(t, r)| t.int(*r, "pid") == t.int(*r, "tid") && t.text(*r, "process").is_some())
        .map(|(t, r)| t.int(r, "pid").unwrap())
        .collect::<std::collections::HashSet<_>>()
        .len();
    let drops: Vec<_> = seen.rows("drops").map(|(t, r)| (t.text(r, "what"), t.number(r, "count"))).collect();
    assert!(children >= 10_000, "{children} processes seen; dropped: {drops:?}");
}

#[test]
fn a_watched_process_that_ends_ends_the_watch() {
    let Some(_one) = allowed() else { return };
    let mut child = std::process::Command::new("sleep").arg("0.3").spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut observation = Observation::begin(&Config::onion(Target::Tree(child.id()), 99)).unwrap();
    let mut take = |_: &Table| -> Result<(), std::convert::Infallible> { Ok(()) };
    use std::os::fd::AsFd;
    let until = observation.watch(
        Some(pidfd.as_fd()),
        Some(Instant::now() + Duration::from_secs(20)),
        Duration::from_millis(100),
        &|| false,
        &mut take,
    );
    assert_eq!(until.unwrap(), ncpu_engine::observation::Until::Ended);
    observation.finish(None, &mut take).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_program_that_was_computing_already_is_in_user_mode() {
    let Some(_one) = allowed() else { return };
    let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    // It computes once its time grows; `sh` reads the loop before.
    let ran = || std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap();
    while ran().split(' ').next().and_then(|ns| ns.parse().ok()).is_none_or(|ns: u64| ns < 50_000_000) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut config = Config::onion(Target::Tree(child.id()), 99);
    config.micro = true;
    let mut observation = Observation::begin(&config).unwrap();
    let (mut user, mut system, mut life, mut elapsed) = (0.0, 0.0, 0.0, 0.0);
    let mut take = |table: &Table| -> Result<(), std::convert::Infallible> {
        if table.name() == "threads" {
            for row in 0..table.num_rows() {
                let of = |state: &str| table.number(row, state).unwrap_or(0.0);
                user += of("USR");
                system += of("SYS");
                life += ["USR", "SYS", "TRP", "TFL", "DFL", "LCK", "SLP", "LAT", "NCPU"]
                    .map(of)
                    .iter()
                    .sum::<f64>();
            }
        }
        if table.name() == "summary" {
            elapsed = table.number(0, "elapsed").unwrap();
        }
        Ok(())
    };
    let watched = observation.watch(
        None,
        Some(Instant::now() + Duration::from_secs(1)),
        Duration::from_millis(200),
        &|| false,
        &mut take,
    );
    watched.unwrap();
    observation.finish(None, &mut take).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(user > 0.0 && system < 0.05 * user, "user {user} s, system {system} s");
    // It lived all the time, and not before.
    assert!((life - elapsed).abs() < 0.01 * elapsed, "{life} s of {elapsed}");
}

/// The programs under observation: each is run by this executable.
mod quiet {
    use super::*;

    #[test]
    fn a_contended_kernel_lock_is_named_with_its_callers() {
        let Some(_one) = allowed() else { return };
        if std::thread::available_parallelism().unwrap().get() < 2 {
            eprintln!("skipped: one CPU contends for nothing");
            return;
        }
        let contended = |seen: &Seen| -> f64 {
            seen.rows("locks")
                .filter(|(t, r)| t.text(*r, "lock").is_some_and(|l| l.contains("file_lock")))
                .filter_map(|(t, r)| t.number(r, "count"))
                .sum()
        };
        hold(MOST, "a kernel lock", || {
            let seen = observe(&part("contend_fds"), |_| {});
            assert!(
                contended(&seen) > 100.0,
                "locks: {:?}",
                seen.rows("locks").filter_map(|(t, r)| t.text(r, "lock")).collect::<Vec<_>>()
            );
            let callers: Vec<&str> = seen
                .rows("lock_callers")
                .filter(|(t, r)| t.text(*r, "lock").is_some_and(|l| l.contains("file_lock")))
                .filter_map(|(t, r)| t.text(r, "caller"))
                .collect();
            assert!(
                callers.iter().any(|c| c.contains("dup") || c.contains("close") || c.contains("fd")),
                "{callers:?}"
            );
            // Each spin is a part of the time in which some CPU was made to spin; a lock's is scaled from timed waits.
            let spun = seen.sum("locks", "spin");
            let at = seen.sum("cpu_time", "spin");
            assert!(spun > 0.0 && (spun - at).abs() < 0.3 * spun + 0.02, "by lock {spun}, by CPU {at}");
        });
    }
}

mod parts {
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::process::parent_id;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    fn dup2_close(from: RawFd, to: RawFd) {
        // SAFETY: numbers far above any descriptor in use; the copy is closed at once.
        unsafe {
            libc::dup2(from, to);
            libc::close(to);
        }
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn hold_files() {
        // SAFETY: the limit is a live local; the descriptors are this process's, which ends with them.
        unsafe {
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
            while libc::dup(0) >= 0 {}
        }
        std::thread::sleep(Duration::from_secs(1));
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn herd() {
        let sleeper = || {
            for _ in 0..20 {
                // SAFETY: no descriptors, only a time.
                unsafe { libc::poll(std::ptr::null_mut(), 0, 10) };
            }
        };
        std::thread::scope(|scope| (0..100).for_each(|_| drop(scope.spawn(sleeper))));
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_millis(3));
            // SAFETY: an epoll set of no descriptors, and times and events that are live locals.
            unsafe {
                let set = libc::epoll_create1(0);
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                libc::syscall(libc::SYS_epoll_wait, set, &raw mut event, 1, 7);
                libc::close(set);
                let time = libc::timespec { tv_sec: 0, tv_nsec: 4_000_000 };
                let none = std::ptr::null_mut::<libc::fd_set>();
                libc::pselect(0, none, none, none, &raw const time, std::ptr::null());
            }
        }
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn contend_fds() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let until = Instant::now() + Duration::from_millis(600);
        std::thread::scope(|s| {
            for i in 0..4 {
                let from = null.as_raw_fd();
                s.spawn(move || {
                    while Instant::now() < until {
                        (0..100).for_each(|_| dup2_close(from, 500 + i));
                    }
                });
            }
        });
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn contend_mutex() {
        let lock = Mutex::new(0u64);
        let until = Instant::now() + Duration::from_millis(600);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while Instant::now() < until {
                        let mut n = lock.lock().unwrap();
                        let hold = Instant::now() + Duration::from_micros(300);
                        while Instant::now() < hold {
                            *n += 1;
                        }
                    }
                });
            }
        });
        assert!(*lock.lock().unwrap() > 0);
    }

    /// Pages that `populate` faults in by touch, and again by call.
    pub const PAGES: usize = 20_000;

    #[test]
    #[ignore = "a part played under observation"]
    fn populate() {
        let work = || {
            // SAFETY: a new private mapping, touched within its bounds, then given back.
            unsafe {
                let len = PAGES * 4096;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let at =
                    libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                libc::madvise(at, len, libc::MADV_NOHUGEPAGE);
                (0..PAGES).for_each(|page| at.cast::<u8>().add(page * 4096).write_volatile(1));
                libc::madvise(at, len, libc::MADV_DONTNEED);
                assert_eq!(libc::madvise(at, len, libc::MADV_POPULATE_WRITE), 0);
                libc::munmap(at, len);
            }
        };
        std::thread::Builder::new().name("populator".into()).spawn(work).unwrap().join().unwrap();
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn alternate() {
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..200 {
                        std::thread::sleep(Duration::from_millis(1));
                        // SAFETY: no descriptors, so the pointer is not used.
                        unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
                    }
                });
            }
        });
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn sleep_for_nothing() {
        let switches = || {
            // SAFETY: an all-zero rusage is valid, and the call fills it.
            let (usage, failed) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                let failed = libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
                (usage, failed)
            };
            assert_eq!(failed, 0);
            usage.ru_nvcsw
        };
        let before = switches();
        for (flags, clock, tv_sec) in
            [(0, libc::CLOCK_REALTIME, 0), (libc::TIMER_ABSTIME, libc::CLOCK_MONOTONIC, 1)]
        {
            for _ in 0..2000 {
                let time = libc::timespec { tv_sec, tv_nsec: 0 };
                // SAFETY: a whole timespec, and no room for what is left.
                unsafe { libc::clock_nanosleep(clock, flags, &time, std::ptr::null_mut()) };
            }
        }
        let told = (switches() - before).to_string();
        std::fs::write(super::note("for_nothing", parent_id()), told).unwrap();
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn sleep_and_burn() {
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone();
        let guard = held.lock().unwrap();
        let threads = [
            named("burner").spawn(|| {
                let until = Instant::now() + Duration::from_millis(400);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
                std::fs::write(super::note("burner", parent_id()), stat).unwrap();
            }),
            named("sleeper").spawn(|| std::thread::sleep(Duration::from_millis(300))),
            named("caller").spawn(|| {
                for _ in 0..5000 {
                    // SAFETY: a call without arguments.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
            }),
            named("locker").spawn(move || drop(lock.lock().unwrap())),
        ];
        std::thread::sleep(Duration::from_millis(200));
        drop(guard);
        for t in threads {
            t.unwrap().join().unwrap();
        }
    }

    /// Several tables are made while nobody has asked how the child ended.
    #[test]
    #[ignore = "a part played under observation"]
    fn zombie() {
        let told = super::note("zombie", parent_id());
        let told = std::ffi::CString::new(told.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the child makes system calls only, and ends by one.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_NAME, c"zombie".as_ptr());
                let mut used: libc::timespec = std::mem::zeroed();
                while used.tv_nsec < 100_000_000 && used.tv_sec == 0 {
                    // The overhead of tracing its calls is not reported as the thread's time.
                    for i in 0..100_000 {
                        std::hint::black_box(i);
                    }
                    libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used);
                }
                let file = libc::open(told.as_ptr(), libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY, 0o600);
                let ns = used.tv_sec * 1_000_000_000 + used.tv_nsec;
                let mut digits = [0u8; 24];
                let n = libc::snprintf(digits.as_mut_ptr().cast(), digits.len(), c"%ld".as_ptr(), ns);
                libc::write(file, digits.as_ptr().cast(), n as usize);
                libc::_exit(0);
            }
            assert!(child > 0);
            std::thread::sleep(Duration::from_millis(700));
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }

    pub const FUTEXES: u32 = 60_000;

    #[test]
    #[ignore = "a part played under observation"]
    fn many_futexes() {
        const THREADS: usize = 4;
        let words = vec![0u32; FUTEXES as usize];
        std::thread::scope(|s| {
            for words in words.chunks(FUTEXES as usize / THREADS) {
                s.spawn(move || {
                    for (i, word) in words.iter().enumerate() {
                        // Over several intervals.
                        if i % 100 == 0 {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        // As short as can be, but asleep.
                        let time = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
                        // SAFETY: a word and a time that live.
                        unsafe {
                            libc::syscall(
                                libc::SYS_futex,
                                std::ptr::from_ref(word),
                                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                                0,
                                &raw const time,
                            )
                        };
                    }
                });
            }
        });
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn fork_much() {
        for _ in 0..10_000 {
            // SAFETY: the child only exits.
            unsafe {
                match libc::fork() {
                    0 => libc::_exit(0),
                    -1 => panic!("fork: {}", std::io::Error::last_os_error()),
                    pid => {
                        let mut status = 0;
                        libc::waitpid(pid, &raw mut status, 0);
                    }
                }
            }
        }
    }
}

//! Locks of interpreters and virtual machines, by the names their users know them by, compared with the waiting time
//! that these runtimes report themselves. Needs root and BPF, and Python, Java and Go; skips with a message otherwise.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe};
use ncpu_trials::{MOST, hold};

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Whether a tool is there; says so if not.
fn have(tool: &str, version: &str) -> bool {
    let there = Command::new(tool).arg(version).output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("skipped: no {tool}");
    }
    there
}

/// Seconds waited for locks of a pattern, and the types they have; and for anything else that is a lock.
fn waited(seen: &Seen, pattern: &str) -> (f64, f64, Vec<String>) {
    let (mut of, mut others, mut types) = (0.0, 0.0, Vec::new());
    for (t, r) in seen.rows("user_locks") {
        let (kind, block) = (t.text(r, "type").unwrap_or(""), t.number(r, "block").unwrap_or(0.0));
        if t.text(r, "pattern") == Some(pattern) {
            assert!(t.text(r, "advice").is_some(), "{pattern} has an advice");
            of += block;
            types.push(kind.to_string());
        } else if !matches!(kind, "condition" | "unknown" | "semaphore") {
            others += block;
        }
    }
    types.sort();
    types.dedup();
    (of, others, types)
}

/// The seconds that a program writes into the file that is its last argument, and the observation of the
/// run.
fn run(argv: &[&str], scale: f64) -> (f64, Seen) {
    let out = to("out");
    let argv: Vec<OsString> = argv.iter().map(Into::into).chain([out.clone().into()]).collect();
    let seen = observe(&argv, |_| {});
    assert_eq!(seen.ended.status, 0, "{argv:?}");
    let text = std::fs::read_to_string(&out).expect("its output");
    std::fs::remove_file(out).expect("it was written");
    (text.trim().parse::<f64>().unwrap_or_else(|e| panic!("{text:?}: {e}")) * scale, seen)
}

fn rows(seen: &Seen) -> Vec<String> {
    let row = |(t, r): (&ncpu_table::Table, usize)| {
        let text = |c| t.text(r, c).unwrap_or("-").to_string();
        let block = t.number(r, "block").unwrap_or(0.0);
        let lock = [text("type"), text("pattern"), text("lock")].join(" ");
        format!("{lock} {block:.3} {} {}", text("caller"), text("stack"))
    };
    seen.rows("user_locks").map(row).collect()
}

#[test]
fn pythons_interpreter_lock_is_the_gil() {
    let Some(_one) = allowed() else { return };
    let python = "/usr/bin/python3";
    if !have(python, "--version") {
        return;
    }
    let seen = observe(&[python.into(), program("gil.py").into()], |_| {});
    assert_eq!(seen.ended.status, 0, "{python}");
    let (gil, others, types) = waited(&seen, "GIL");
    // All threads but the first do nothing but compute: whenever they sleep it is for that lock.
    let workers = |column: &str| -> f64 {
        let worker = |(t, r): &(&ncpu_table::Table, usize)| t.int(*r, "tid") != t.int(*r, "pid");
        seen.rows("threads").filter(worker).filter_map(|(t, r)| t.number(r, column)).sum()
    };
    let (lock, sleep) = (workers("LCK"), workers("SLP"));
    assert!(lock > 0.3, "{python}: {lock} {sleep}: {:#?}", rows(&seen));
    assert!(gil > 0.7 * (lock + sleep), "{python}: {gil} of {lock} + {sleep}: {:#?}", rows(&seen));
    assert!(others < 0.3 * gil && types.contains(&"lock".into()), "{python}: {others} {types:?}");
}

#[test]
fn a_java_monitor_is_a_lock_and_so_is_one_of_its_library() {
    let Some(_one) = allowed() else { return };
    if !have("java", "-version") || !have("javac", "-version") {
        return;
    }
    let classes = to("classes");
    let source = program("Monitor.java");
    let done = Command::new("javac").arg("-d").arg(&classes).arg(source).status().expect("javac");
    assert!(done.success());
    let path = classes.to_str().expect("a name");
    let java = |what: &'static str| ["java", "-cp", path, "Monitor", what];
    let (truth, seen) = run(&java("monitor"), 1e-3);
    let (of, _, _) = waited(&seen, "Java monitor");
    // The JVM spins before it parks, and the first waits have no verdict.
    assert!(of > 0.7 * truth && of < 1.3 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    let (truth, seen) = run(&java("lock"), 1e-3);
    let (of, ..) = waited(&seen, "Java monitor");
    assert!(of < 0.1 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    let (of, ..) = waited(&seen, "java.util.concurrent lock");
    assert!(of > 0.7 * truth && of < 1.3 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    let callers: Vec<String> =
        rows(&seen).into_iter().filter(|r| r.contains("java.util.concurrent lock")).collect();
    assert!(callers.iter().all(|r| r.contains("Monitor.lambda$main$")), "{callers:#?}");
    std::fs::remove_dir_all(classes).expect("they were compiled");
}

#[test]
fn threads_of_nodes_pool_wait_for_work() {
    let Some(_one) = allowed() else { return };
    if !have("node", "--version") {
        return;
    }
    let (_, seen) = run(&["node", program("pool.js").to_str().expect("a name")], 1.0);
    let (mut idle, mut locks) = (0.0, 0.0);
    for (t, r) in seen.rows("user_locks") {
        let block = t.number(r, "block").unwrap_or(0.0);
        if t.text(r, "type") == Some("lock") {
            locks += block;
        } else if t.text(r, "stack").is_some_and(|s| s.split(';').any(|f| f == "uv_cond_wait")) {
            idle += block;
        }
    }
    println!("libuv condition: {idle:.2} thread-s, locks {locks:.2}");
    // Four threads have nothing to do for a second but for the start, in which a few share what OpenSSL sets up.
    assert!(idle > 2.5 && locks < 0.2 * idle, "{idle} and {locks}: {:#?}", rows(&seen));
    // While they have, what they do is on the path, by the function of the pool's user.
    let stack = |(t, r): (&ncpu_table::Table, usize)| t.text(r, "stack").unwrap_or("").to_string();
    let worked = seen.rows("stacks").map(stack).any(|s| s.contains("PBKDF2") || s.contains("pbkdf2"));
    assert!(worked, "the pool's work is named");
}

/// Held to what threads that do nothing else say of themselves: how long they were off CPU and on no run queue.
fn held_to(truth: f64, seen: &Seen, pattern: &str) {
    let (of, others, types) = waited(seen, pattern);
    println!("{pattern}: {of:.2} of {truth:.2} thread-s, others {others:.2}");
    // The first waits have no verdict, and one that is woken ends before it runs.
    assert!(of > 0.7 * truth - 0.1 && of < 1.3 * truth + 0.1, "{of} of {truth}: {:#?}", rows(seen));
    assert!(others < 0.2 * of + 0.1, "{others} and {of}: {:#?}", rows(seen));
    // Where nothing waited, nothing was tried.
    assert!(truth < 0.1 || types == ["lock"], "{types:?}");
}

#[test]
fn allocators_locks_are_theirs() {
    let Some(_one) = allowed() else { return };
    let built = to("allocators");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/allocators.c");
    let done = Command::new("gcc")
        .args(["-O1", "-fno-builtin", "-pthread", "-Wall", "-Werror", "-o"])
        .args([&built, &source])
        .status();
    assert!(done.expect("gcc").success());
    let program = built.to_str().expect("a name");
    let libraries = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let cases = [
        ("glibc arena", None, "MALLOC_ARENA_MAX=1", &["moves"][..]),
        ("jemalloc mutex", Some("libjemalloc.so.2"), "MALLOC_CONF=narenas:1,tcache:false", &[]),
        (
            "tcmalloc central list",
            Some("libtcmalloc_minimal.so.4"),
            "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=524288",
            &[],
        ),
    ];
    for (pattern, library, setting, args) in cases {
        let library = library.map(|name| libraries.join(name));
        if let Some(library) = library.as_ref().filter(|l| !l.exists()) {
            eprintln!("skipped: no {}", library.display());
            continue;
        }
        let preload = format!("LD_PRELOAD={}", library.unwrap_or_default().display());
        let argv = [&["env", &preload, setting, program], args].concat();
        let (truth, seen) = run(&argv, 1.0);
        held_to(truth, &seen, pattern);
    }
    std::fs::remove_file(built).expect("it was compiled");
}

#[test]
fn locks_of_rust_have_their_kind() {
    let Some(_one) = allowed() else { return };
    for (part, pattern) in [
        ("std_mutex", "Rust Mutex"),
        ("std_rwlock", "Rust RwLock"),
        ("parking_lot_mutex", "parking_lot mutex"),
        ("parking_lot_rwlock", "parking_lot RwLock"),
    ] {
        let seen = observe(&common::part(part), |_| {});
        assert_eq!(seen.ended.status, 0, "{part}");
        let out = to(part);
        let truth = std::fs::read_to_string(&out).expect("its output");
        std::fs::remove_file(out).expect("it was written");
        held_to(truth.trim().parse().expect("seconds"), &seen, pattern);
    }
    // Idle workers wait for no lock.
    let seen = observe(&common::part("rust_channel"), |_| {});
    assert_eq!(seen.ended.status, 0);
    let lock = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "type") == Some("lock");
    let locks: f64 = seen.rows("user_locks").filter(lock).filter_map(|(t, r)| t.number(r, "block")).sum();
    assert!(locks < 0.05, "{locks}: {:#?}", rows(&seen));
}

/// Programs that tests observe: this executable, asked for one of them.
mod parts {
    use std::sync::{Barrier, Mutex, RwLock, mpsc};
    use std::time::{Duration, Instant};

    fn on_cpu() -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    }

    /// Four threads that hold a lock for a millisecond each; writes how long they waited, for the test that began it.
    fn contend(name: &str, locked: impl Fn(&dyn Fn()) + Sync) {
        let all = Barrier::new(4);
        let work = || {
            all.wait();
            let queued = || -> f64 {
                let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
                told.split_whitespace().nth(1).and_then(|ns| ns.parse::<f64>().ok()).expect("ns") / 1e9
            };
            let (began, cpu, stood) = (Instant::now(), on_cpu(), queued());
            while began.elapsed() < Duration::from_secs(1) {
                locked(&|| {
                    let from = on_cpu();
                    while on_cpu() - from < Duration::from_millis(1) {}
                });
            }
            began.elapsed().as_secs_f64() - (on_cpu() - cpu).as_secs_f64() - (queued() - stood)
        };
        let waited: f64 = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4).map(|_| s.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().expect("it works")).sum()
        });
        let parent = std::os::unix::process::parent_id();
        let to = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{parent}"));
        std::fs::write(to, waited.to_string()).expect("written");
    }

    #[test]
    #[ignore = "a program to be observed"]
    fn std_mutex() {
        let lock = Mutex::new(());
        contend("std_mutex", |work| {
            let _held = lock.lock().expect("no panic");
            work();
        });
    }

    #[test]
    #[ignore = "a program to be observed"]
    fn std_rwlock() {
        let lock = RwLock::new(());
        contend("std_rwlock", |work| {
            drop(lock.read().expect("no panic"));
            let _held = lock.write().expect("no panic");
            work();
        });
    }

    #[test]
    #[ignore = "a program to be observed"]
    fn parking_lot_mutex() {
        let lock = parking_lot::Mutex::new(());
        contend("parking_lot_mutex", |work| {
            let _held = lock.lock();
            work();
        });
    }

    #[test]
    #[ignore = "a program to be observed"]
    fn parking_lot_rwlock() {
        let lock = parking_lot::RwLock::new(());
        contend("parking_lot_rwlock", |work| {
            drop(lock.read());
            let _held = lock.write();
            work();
        });
    }

    #[test]
    #[ignore = "a program to be observed"]
    fn rust_channel() {
        let (give, take) = mpsc::channel::<u32>();
        let worker = std::thread::spawn(move || take.iter().sum::<u32>());
        for n in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            give.send(n).expect("it works");
        }
        drop(give);
        assert_eq!(worker.join().expect("it works"), 45);
    }
}

/// A directory that a server's user may use; removed with what is in it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Held to `Innodb_row_lock_time`, in which are also the waits of sessions that have been woken and stand on a run queue.
#[test]
fn rows_of_innodb_are_locks() {
    let Some(_one) = allowed() else { return };
    if !have("mariadbd", "--version") {
        return;
    }
    let dir = Scratch(std::env::temp_dir().join(format!("ncpu-maria-{}", std::process::id())));
    std::fs::create_dir(&dir.0).expect("a directory");
    let data = format!("--datadir={}", dir.0.join("db").display());
    let done = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--user=root", "--skip-test-db", "--auth-root-authentication-method=normal"])
        .arg(data)
        .output()
        .expect("mariadb-install-db");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let script = program("mariadb.sh");
    let argv = ["sh", script.to_str().expect("a name"), dir.0.to_str().expect("a name")];
    let (truth, seen) = run(&argv, 1e-3);
    let (of, others, types) = waited(&seen, "InnoDB row lock");
    println!("InnoDB row lock: {of:.2} of {truth:.2} thread-s, others {others:.2}");
    assert!(truth > 1.0, "{truth}");
    assert!(of > 0.6 * truth && of < 1.2 * truth, "{of} of {truth}: {:#?}", rows(&seen));
    assert!(others < 0.3 * of && types == ["lock"], "{others} {types:?}: {:#?}", rows(&seen));
}

/// Where initdb, pgbench and the others are.
fn postgres() -> Option<PathBuf> {
    let has = |dir: &PathBuf| ["initdb", "postgres", "psql", "pgbench"].iter().all(|p| dir.join(p).is_file());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = versions.map(|v| v.path().join("bin")).chain(std::env::split_paths(&path)).find(has);
    if found.is_none() {
        eprintln!("skipped: no PostgreSQL");
    }
    found
}

#[test]
fn postgres_s_locks_have_the_names_that_it_gives_them() {
    let Some(_one) = allowed() else { return };
    let Some(bin) = postgres() else { return };
    // Its socket's name has to be short, and it refuses to be root's.
    let dir = Scratch(std::env::temp_dir().join(format!("ncpu-pg-{}", std::process::id())));
    std::fs::create_dir(&dir.0).expect("a directory");
    let nobody = 65534;
    std::os::unix::fs::chown(&dir.0, Some(nobody), Some(nobody)).expect("given away");
    let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let done = Command::new(as_nobody[0])
        .args(&as_nobody[1..])
        .arg(bin.join("initdb"))
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
        .arg(dir.0.join("data"))
        .output()
        .expect("initdb");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for (what, locks) in [("hot", &["transactionid", "tuple"][..]), ("own", &["WALWrite"])] {
        let mut argv: Vec<OsString> = as_nobody.iter().map(Into::into).collect();
        argv.extend(["sh".into(), program("postgres.sh").into(), bin.clone().into()]);
        argv.extend([dir.0.clone().into(), what.into()]);
        // On a machine that has other things to do the server may be gone before its memory is read.
        let told = (0..3).map(|_| wait_events(&argv, &dir.0.join("truth"), locks));
        let (named, others, truth, seen) =
            told.into_iter().find(|(named, _, truth, _)| *named > 0.25 * truth).expect(what);
        println!("{what}: {named:.2} of {truth:.2}, others {others:.2} thread-s");
        // Sessions say so as well while they have been woken and wait for a CPU.
        assert!(named < 1.3 * truth + 0.5, "{what}: {named} of {truth}: {:#?}", rows(&seen));
        assert!(named > 1.5 * others, "{what}: {named} and {others}: {:#?}", rows(&seen));
    }
}

/// Seconds waited for locks with one of the names, and for others; and what PostgreSQL said of the former.
fn wait_events(argv: &[OsString], truth: &Path, names: &[&str]) -> (f64, f64, f64, Seen) {
    let seen = observe(argv, |_| {});
    assert_eq!(seen.ended.status, 0, "{argv:?}");
    let truth = std::fs::read_to_string(truth).expect("what it said itself");
    // Sessions that waited at each of ten looks, over two seconds.
    let of = truth.lines().filter(|l| l.split_once('|').is_some_and(|(_, name)| names.contains(&name)));
    let truth = of.count() as f64 * 0.2;
    let (mut named, mut others) = (0.0, 0.0);
    for (t, r) in seen.rows("user_locks").filter(|(t, r)| t.text(*r, "type") == Some("lock")) {
        let block = t.number(r, "block").unwrap_or(0.0);
        let lock = t.text(r, "lock").unwrap_or("");
        if !names.contains(&lock) {
            // Before it was found out where they say it, they have no names.
            others += if lock.starts_with("0x") || lock == "epoll_wait" { 0.0 } else { block };
            continue;
        }
        named += block;
        let pattern = if names.contains(&"WALWrite") { "LWLock" } else { "PostgreSQL lock" };
        assert_eq!(t.text(r, "pattern"), Some(pattern));
        assert!(t.text(r, "advice").is_some(), "{names:?}");
    }
    (named, others, truth, seen)
}

mod quiet {
    use super::*;

    #[test]
    fn goroutines_wait_for_locks_of_gos_own() {
        let Some(_one) = allowed() else { return };
        // A program without symbols has the table that Go's own tracebacks need.
        for (how, what, kind) in [
            ("-ldflags=", "mutex", "sync.Mutex"),
            ("-ldflags=", "rwmutex", "sync.RWMutex"),
            ("-ldflags=-s -w", "mutex", "sync.Mutex"),
        ] {
            let Some(built) = common::go("mutex", how) else { return };
            hold(MOST, &format!("{what} {how}"), || {
                let (truth, seen) = run(&[built.to_str().expect("a name"), what], 1.0);
                let (of, ..) = waited(&seen, kind);
                println!("{what} {how}: {of:.2} of {truth:.2} s");
                assert!(
                    of > 0.8 * truth && of < 1.2 * truth,
                    "{what} {how}: {of} of {truth}: {:#?}",
                    rows(&seen)
                );
                // Of the CPUs one works, and the others idle for the lock.
                let idle = seen.sum("idle_time", "ulock");
                let all: f64 = ["klock", "ulock", "io", "serial", "asleep", "runq", "wake-up"]
                    .iter()
                    .map(|c| seen.sum("idle_time", c))
                    .sum();
                assert!(all > 0.1 && idle >= 0.5 * all, "{what} {how}: {idle} of {all}");
            });
            std::fs::remove_file(built).expect("it was built");
        }
    }
}

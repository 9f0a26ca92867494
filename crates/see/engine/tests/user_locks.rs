//! Locks of libncpu in real programs: statically linked, in a shared library, opened at run time, begun late. Needs
//! root and BPF; skips with a message otherwise.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe, part, sh};

/// Sums over the rows of locks of a type.
#[derive(Debug, Default)]
struct Waits {
    count: f64,
    spin: f64,
    block: f64,
    names: Vec<String>,
    callers: Vec<String>,
    holders: usize,
    stacks: Vec<String>,
}

fn waits(seen: &Seen, kind: &str) -> Waits {
    let mut out = Waits::default();
    for (t, r) in seen.rows("user_locks").filter(|(t, r)| t.text(*r, "type") == Some(kind)) {
        out.count += t.number(r, "count").unwrap();
        out.spin += t.number(r, "spin").unwrap_or(0.0);
        out.block += t.number(r, "block").unwrap();
        out.names.push(t.text(r, "lock").unwrap().into());
        out.callers.extend(t.text(r, "caller").map(str::to_string));
        out.stacks.extend(t.text(r, "stack").map(str::to_string));
        out.holders += usize::from(t.text(r, "holder").is_some());
    }
    out
}

#[test]
fn locks_of_a_rust_program_tell_of_spin_and_block() {
    let Some(_one) = allowed() else { return };
    let seen = observe(&part("contend_all"), |_| {});
    assert_eq!(seen.ended.status, 0);
    for kind in ["mutex", "queue lock", "rwlock:R", "rwlock:W"] {
        let w = waits(&seen, kind);
        assert!(w.count > 5.0, "{kind}: {w:?}");
        assert!(w.spin > 0.0 && w.block > 0.0, "{kind}: {w:?}");
        // Of six threads, and never do all of them wait.
        assert!(w.spin + w.block < 6.0 * seen.elapsed, "{kind}: {w:?}");
    }
    let w = waits(&seen, "mutex");
    assert!(w.names.iter().all(|n| n.contains("MUTEX")), "the rwlock's mutex is a part of it: {w:?}");
    assert!(w.holders > 0, "some threads woke the waiters: {w:?}");
    assert!(waits(&seen, "queue lock").names.iter().any(|n| n.contains("QUEUE")), "by name");
    // Futexes that they sleep on are not counted a second time, but for threads that slept when their tracepoints were attached: of
    // six, at most once each.
    for kind in ["lock", "unknown"] {
        let rows = seen.rows("user_locks").filter(|(t, r)| t.text(*r, "type") == Some(kind));
        let again = rows.filter(|(t, r)| {
            let name = t.text(*r, "lock").unwrap();
            name.contains("MUTEX") || name.contains("QUEUE")
        });
        let count: f64 = again.map(|(t, r)| t.number(r, "count").unwrap()).sum();
        assert!(count <= 6.0, "{kind}: {count} waits; {:?}", waits(&seen, kind));
    }
    // A thread asleep for such a lock is in microstate LCK, and the CPU it leaves idle in a user lock's wait.
    assert!(seen.sum("threads", "LCK") > 0.0);
}

#[test]
fn programs_nobody_asked_for_get_no_breakpoints() {
    let Some(_one) = allowed() else { return };
    for asked in [false, true] {
        let seen = observe(&part("contend_all"), |config| {
            config.target = ncpu_observe_core::program::Target::All;
            config.user_locks_of_all = asked;
        });
        let w = waits(&seen, "mutex");
        assert_eq!(w.count > 0.0, asked, "{w:?}");
    }
}

#[test]
fn a_program_that_begins_late_is_traced() {
    let Some(_one) = allowed() else { return };
    let me = part("contend_all").join(std::ffi::OsStr::new(" "));
    // So long that a busy observer finds it.
    let command = format!("sleep 0.3; CONTEND_TURNS=1000 {} >/dev/null & wait", me.to_string_lossy());
    let seen = observe(&sh(&command), |_| {});
    let w = waits(&seen, "mutex");
    assert!(w.count > 5.0, "{w:?}");
}

/// `locks.c`, with the library within or beside it; what it prints is not looked at.
fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = Command::new("gcc")
        .args([
            "-O1",
            "-fno-omit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-Wall",
            "-Werror",
            "-pthread",
            "-I",
        ])
        .arg(here.join("../../fix/libncpu-c/include"))
        .arg("-o")
        .arg(&to)
        .arg(here.join("tests/c/locks.c"))
        .args(flags)
        .output()
        .expect("gcc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// The directory that has libncpu.a and libncpu.so: the one of this test.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("own path").parent().expect("a directory").to_path_buf()
}

#[test]
fn locks_of_c_programs_are_named_with_their_callers() {
    let Some(_one) = allowed() else { return };
    let built = libraries();
    let dir = built.to_str().expect("a name");
    let fixed = compile("locks-static", &[&format!("{dir}/libncpu.a")]);
    let shared = compile("locks-shared", &["-L", dir, "-lncpu", &format!("-Wl,-rpath,{dir}")]);
    let opened = compile("locks-opened", &["-DOPEN", "-ldl"]);
    // Programs that link it ask for the name it is installed by.
    let soname = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libncpu.so.0");
    std::fs::copy(built.join("libncpu.so"), &soname).expect("a copy");
    let tmp = env!("CARGO_TARGET_TMPDIR");
    for (program, library) in [(&fixed, ""), (&shared, ""), (&opened, soname.to_str().expect("a name"))] {
        let command = format!("LD_LIBRARY_PATH={tmp} {} {library}", program.display());
        let seen = observe(&sh(&command), |_| {});
        assert_eq!(seen.ended.status, 0, "{command}");
        let w = waits(&seen, "mutex");
        assert!(w.count > 5.0 && w.spin > 0.0 && w.block > 0.0, "{command}: {w:?}");
        assert!(w.names.iter().any(|n| n.contains("global_lock")), "{command}: {w:?}");
        // The library has no frame pointers, so its caller may be skipped, but not the caller's.
        let known = |f: &String| f.contains("take_it") || f.contains("worker");
        assert!(w.stacks.iter().any(known), "{command}: {w:?}");
        assert!(w.callers.iter().any(known), "{command}: {w:?}");
    }
}

/// Parts that this test plays when it observes itself.
mod parts {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    use libncpu::{McsMutex, Mutex, RwLock};

    static MUTEX: Mutex<u64> = Mutex::new(0);
    static QUEUE: McsMutex<u64> = McsMutex::new(0);

    /// Asleep: so the others meet a lock that is taken, however little of the CPUs they get.
    fn hold(n: &mut u64) {
        std::thread::sleep(Duration::from_micros(200));
        *n += 1;
    }

    #[test]
    #[ignore = "a part played under observation"]
    fn contend_all() {
        let rwlock = RwLock::new(0u64).unwrap();
        let turns = std::env::var("CONTEND_TURNS").map_or(200, |n| n.parse().unwrap());
        let left = AtomicU32::new(4);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..turns {
                        hold(&mut MUTEX.lock());
                        QUEUE.with(hold);
                        hold(&mut rwlock.write());
                    }
                    left.fetch_sub(1, Relaxed);
                });
            }
            // A thread that reads all the time meets the writers.
            for _ in 0..2 {
                s.spawn(|| while *rwlock.read() < u64::MAX && left.load(Relaxed) > 0 {});
            }
        });
        assert_eq!(*MUTEX.lock(), 4 * turns);
    }
}

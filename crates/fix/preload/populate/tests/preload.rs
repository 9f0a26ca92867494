//! C programs with and without the library: their results are the same.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::Output;

use programs::{found, out, text};

fn library() -> PathBuf {
    programs::library("libncpu_populate.so")
}

fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    programs::compiled(&format!("{name}-{}", flags.len()), &format!("tests/c/{name}.c"), flags)
}

fn run(program: &Path, arguments: &[&str], preload: &[&Path], environment: &[(&str, &str)]) -> Output {
    programs::with(preload, environment, 300).arg(program).args(arguments).output().expect("timeout")
}

/// A low threshold, so that tests need little memory, and the number of helpers of a larger machine.
const SMALL: [(&str, &str); 2] = [("NCPU_POPULATE_MIN", "4m"), ("NCPU_POPULATE_HELPERS", "5")];

/// Thousands of faults that helpers took, as the program reports; a few are its own, between its two
/// readings.
fn helped(done: &Output) -> u64 {
    let errors = text(&done.stderr);
    errors
        .lines()
        .find_map(|line| line.strip_prefix("helped ")?.parse::<u64>().ok())
        .unwrap_or_else(|| panic!("{errors}"))
        / 1000
}

fn two_cpus() -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    if !two {
        eprintln!("skipped: helpers need a second CPU");
    }
    two
}

/// Both outputs, line by line.
#[track_caller]
fn same(with: &Output, without: &Output) {
    let (with_text, without_text) = (text(&with.stdout), out(without));
    for (number, (with, without)) in with_text.lines().zip(without_text.lines()).enumerate() {
        assert_eq!(with, without, "line {}", number + 1);
    }
    assert_eq!(with_text.lines().count(), without_text.lines().count());
    out(with);
}

#[test]
fn results_are_those_of_the_kernel() {
    let program = compiled("results", &[]);
    let without = run(&program, &[], &[], &[]);
    let with = run(&program, &[], &[&library()], &SMALL);
    same(&with, &without);
    assert_eq!(helped(&without), 0);
    if two_cpus() {
        assert!(helped(&with) > 0, "{}", text(&with.stderr));
    }
    // Only large segments by default; and none if switched off.
    let large = run(&program, &[], &[&library()], &[]);
    same(&large, &without);
    assert_eq!(helped(&large), 0);
    let off =
        run(&program, &[], &[&library()], &[("NCPU_POPULATE_HELPERS", "0"), ("NCPU_POPULATE_MIN", "1")]);
    same(&off, &without);
    assert_eq!(helped(&off), 0);
}

#[test]
fn what_is_no_number_is_told_and_not_used() {
    let program = compiled("results", &[]);
    let with =
        run(&program, &[], &[&library()], &[("NCPU_POPULATE_MIN", "4q"), ("NCPU_POPULATE_HELPERS", "-1")]);
    out(&with);
    let errors = text(&with.stderr);
    for words in ["NCPU_POPULATE_MIN=4q: not a number", "NCPU_POPULATE_HELPERS=-1: not a number"] {
        assert!(errors.contains(words), "{errors}");
    }
    assert_eq!(helped(&with), 0, "64m, not 4");
}

#[test]
fn without_threads_or_calls_that_helpers_need() {
    let (program, wrapper) = (compiled("results", &[]), compiled("without", &[]));
    let program = program.to_str().expect("UTF-8");
    for denied in [
        vec![(libc::SYS_clone, libc::EAGAIN)],
        vec![(libc::SYS_madvise, libc::EPERM)],
        vec![(libc::SYS_mincore, libc::ENOSYS), (libc::SYS_rt_sigpending, libc::EPERM)],
        vec![(libc::SYS_get_mempolicy, libc::ENOSYS), (libc::SYS_ioctl, libc::ENOTTY)],
        vec![(libc::SYS_sched_getaffinity, libc::EPERM), (libc::SYS_rt_sigprocmask, libc::EPERM)],
    ] {
        let words: Vec<String> = denied.iter().map(|(call, error)| format!("{call}={error}")).collect();
        let words = words.join(",");
        // The program itself is affected too: fork is a clone, and it calls mincore.
        let plain = run(&wrapper, &[&words, program], &[], &[]);
        let with = run(&wrapper, &[&words, program], &[&library()], &SMALL);
        same(&with, &plain);
    }
}

#[test]
fn signals_forks_and_cancellation() {
    let program = compiled("signals", &[]);
    let done = run(&program, &[], &[&library()], &SMALL);
    assert_eq!(out(&done), "ok\n");
}

#[test]
fn a_sandbox_that_kills() {
    let program = compiled("sandbox", &[]);
    for how in ["prctl", "seccomp"] {
        for preload in [vec![], vec![library()]] {
            let preload: Vec<&Path> = preload.iter().map(PathBuf::as_path).collect();
            let done = run(&program, &[how], &preload, &SMALL);
            assert_eq!(out(&done), "ok\n", "{how}");
        }
    }
}

#[test]
fn allocators_with_their_locks_held() {
    let program = compiled("heap", &[]);
    out(&run(&program, &[], &[&library()], &SMALL));
    let Some(jemalloc) = found("libjemalloc.so.2") else { return };
    // Freed at once, so that the program unmaps.
    let mut environment = SMALL.to_vec();
    environment.push(("MALLOC_CONF", "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0"));
    for order in [[&jemalloc, &library()], [&library(), &jemalloc]] {
        let done = run(&program, &[], &order.map(|path| path.as_path()), &environment);
        assert_eq!(out(&done), "ok\n");
    }
}

#[test]
fn programs_built_with_the_address_sanitizer() {
    let flags = ["-fsanitize=address"];
    let Some(asan) = found("libasan.so") else { return };
    for name in ["heap", "signals", "results"] {
        let program = compiled(name, &flags);
        // The sanitizer must be loaded first.
        let environment = [SMALL[0], SMALL[1], ("ASAN_OPTIONS", "detect_leaks=0")];
        let with = run(&program, &[], &[&asan, &library()], &environment);
        let without = run(&program, &[], &[&asan], &environment);
        if name == "results" {
            same(&with, &without);
        } else {
            assert_eq!(out(&with), "ok\n", "{name}");
        }
    }
}

//! `libncpu_getenv.so` in programs: results compared with glibc's, readers beside writers, early calls, fork,
//! dlopen, other allocators and sanitizers.
//!
//! `NCPU_GETENV_SECONDS=600` sets the length of the torture test.

#[path = "../../support/tests/programs/mod.rs"]
mod programs;

use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use programs::{all, found, out, text};

fn library() -> PathBuf {
    programs::library("libncpu_getenv.so")
}

/// Compiles a source of tests/c or of workloads.
fn compiled(test: &str, source: &str, flags: &[&str]) -> PathBuf {
    programs::compiled(test, source, &[flags, &["-ldl"]].concat())
}

/// Runs to the end, with a limit of 20 minutes: no test waits for another event.
fn ran(program: &Path, args: &[&str], preload: &[&Path], input: &str) -> Output {
    let mut command = programs::with(preload, &[], 1200);
    command.arg(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("timeout");
    // A program that ends without reading its input is judged by its exit status.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Whether the C library is a glibc with the faulty readers that this library replaces.
fn old_glibc() -> bool {
    // SAFETY: a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().unwrap();
    let mut parts = version.split('.').filter_map(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) < (Some(2), Some(41))
}

fn call() -> impl Strategy<Value = String> {
    let name = || "A|AB|ABC|B|C|LONG_NAME";
    let odd = "~||A=B|=|=x|A";
    let value = || "[=a-z0-9]{0,10}";
    prop_oneof![
        12 => (name(), value(), "[01]").prop_map(|(n, v, o)| format!("setenv\t{n}\t{v}\t{o}")),
        2 => (odd, value(), "[01]").prop_map(|(n, v, o)| format!("setenv\t{n}\t{v}\t{o}")),
        6 => (name(), value()).prop_map(|(n, v)| format!("putenv\t{n}={v}")),
        2 => prop_oneof![name(), "", "=", "=x"].prop_map(|s| format!("putenv\t{s}")),
        3 => (0..9u8, value()).prop_map(|(i, v)| format!("change\t{i}\t{v}")),
        8 => name().prop_map(|n| format!("unsetenv\t{n}")),
        1 => odd.prop_map(|n| format!("unsetenv\t{n}")),
        1 => Just("clearenv".to_owned()),
        2 => prop::collection::vec((name(), value()), 0..8).prop_map(|entries| {
            entries.iter().fold("own".to_owned(), |list, (n, v)| format!("{list}\t{n}={v}"))
        }),
        1 => Just("back".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("cut".to_owned()),
    ]
}

#[test]
fn results_are_those_of_glibc() {
    let (calls, library) = (compiled("calls", "tests/c/calls.c", &[]), library());
    let cases = if std::env::var_os("NCPU_GETENV_SECONDS").is_some() { 5000 } else { 150 };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(sequence in prop::collection::vec(call(), 1..60))| {
        let input = sequence.join("\n") + "\n";
        let (plain, ours) = (ran(&calls, &[], &[], &input), ran(&calls, &[], &[&library], &input));
        prop_assert!(plain.status.success(), "{}", all(&plain));
        prop_assert!(ours.status.success(), "{}", all(&ours));
        prop_assert_eq!(out(&plain), out(&ours));
    });
}

#[test]
fn a_slow_reader_reads_nothing_that_is_gone() {
    let (program, library) = (compiled("slow_reader", "tests/c/slow_reader.c", &[]), library());
    for (what, under_glibc) in [
        ("grow", "memory that was freed\n"),
        ("shift", "(not found)\n"),
        ("clear", "memory that was freed\n"),
    ] {
        let ours = ran(&program, &[what], &[&library], "");
        assert_eq!(out(&ours), "right\n", "{what}: {}", all(&ours));
        if old_glibc() {
            let plain = ran(&program, &[what], &[], "");
            assert_eq!(text(&plain.stdout), under_glibc, "{what}: {}", all(&plain));
        }
    }
}

/// The value of `NCPU_GETENV_SECONDS` [default: a short time].
fn seconds() -> String {
    std::env::var("NCPU_GETENV_SECONDS").unwrap_or_else(|_| "2".into())
}

fn survives(program: &Path, seconds: &str, preload: &[&Path]) {
    for [readers, writers] in [["4", "1"], ["2", "3"], ["24", "8"]] {
        let done = ran(program, &[readers, writers, seconds], preload, "");
        assert!(done.status.success() && out(&done).contains(" 0 wrong"), "{}", all(&done));
    }
}

#[test]
fn readers_beside_writers() {
    let program = compiled("envtorture", "../../../../workloads/envtorture.c", &[]);
    survives(&program, &seconds(), &[&library()]);
}

/// The same under glibc: one of many attempts fails, usually the first.
#[test]
fn the_torture_is_one_under_glibc() {
    if !old_glibc() {
        println!("skipped: this glibc does not free what readers read");
        return;
    }
    let program = compiled("envtorture-glibc", "../../../../workloads/envtorture.c", &[]);
    let failed = (0..100).any(|_| !ran(&program, &["4", "2", "1"], &[], "").status.success());
    assert!(failed, "100 seconds of torture without a wrong answer");
}

#[test]
fn constructors_threads_forks_and_opened_libraries() {
    let program = compiled("early", "tests/c/early.c", &[]);
    let other = compiled("libearly.so", "tests/c/early.c", &["-DLIBRARY", "-shared", "-fPIC"]);
    let ours = library();
    for preload in [[ours.as_path(), &other], [&other, &ours]] {
        let started = ran(&program, &["-"], &preload, "");
        assert_eq!(out(&started), "ok\n", "{}", all(&started));
    }
    let opened = ran(&program, &[other.to_str().unwrap()], &[&ours], "");
    assert_eq!(out(&opened), "ok\n", "{}", all(&opened));
}

#[test]
fn with_another_allocator() {
    let program = compiled("envtorture-jemalloc", "../../../../workloads/envtorture.c", &[]);
    let (ours, jemalloc) = (library(), found("libjemalloc.so.2").expect("jemalloc"));
    for preload in [[ours.as_path(), &jemalloc], [&jemalloc, &ours]] {
        survives(&program, "0.3", &preload);
    }
    // It reads its options from the environment at its first call, which may be before any constructor.
    let started = Command::new("true")
        .env("LD_PRELOAD", format!("{}:{}", ours.display(), jemalloc.display()))
        .env("MALLOC_CONF", "no_such_option:1")
        .output()
        .unwrap();
    assert!(all(&started).contains("no_such_option"), "{}", all(&started));
}

/// The address sanitizer, with its leak detector, which must find nothing.
#[test]
fn under_the_address_sanitizer() {
    let asan = found("libasan.so").expect("sanitizer");
    let program =
        compiled("envtorture-asan", "../../../../workloads/envtorture.c", &["-fsanitize=address,undefined"]);
    survives(&program, "0.3", &[&asan, &library()]);
    let early = compiled("early-asan", "tests/c/early.c", &["-fsanitize=address"]);
    let other = compiled("libearly-asan.so", "tests/c/early.c", &["-DLIBRARY", "-shared", "-fPIC"]);
    let started = ran(&early, &["-"], &[&asan, &library(), &other], "");
    assert_eq!(out(&started), "ok\n", "{}", all(&started));
}

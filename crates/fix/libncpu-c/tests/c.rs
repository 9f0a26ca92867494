//! The C programs of tests/c against include/ncpu.h and the library, shared and static.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with libncpu.a and libncpu.so: the parent of this test's directory.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    exe.parent().expect("a directory").to_path_buf()
}

fn ran(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

/// Runs `make install-lib` into a directory of this test; returns its prefix.
fn install(test: &str) -> PathBuf {
    let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    ran(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh"))
        .arg(libraries())
        .arg("")
        .arg(&to));
    to
}

/// Compiles a program against the shared and the static library, as a user would, and runs both.
fn run(test: &str, source: &str) -> [String; 2] {
    let prefix = install(test);
    [false, true].map(|fixed| {
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", "ncpu"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        if fixed {
            flags.arg("--static");
        }
        let mut flags = ran(&mut flags);
        if fixed {
            flags = flags.replace("-lncpu", "-l:libncpu.a");
        }
        let program = prefix.join(if fixed { "static" } else { "shared" });
        ran(Command::new("gcc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(format!("-DNCPU_DEBUG={}", u8::from(cfg!(debug_assertions))))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
            .args(flags.split_whitespace())
            .args(std::env::var("LIBNCPU_CFLAGS").unwrap_or_default().split_whitespace()));
        ran(Command::new("timeout").arg("300").arg(&program).env("LD_LIBRARY_PATH", prefix.join("lib")))
    })
}

/// Installed in a path with a blank, a program is compiled with the output of pkg-config, as words of a
/// shell; also with static libraries only.
#[test]
fn prefix_with_blanks() {
    let prefix = install("with blanks & more");
    for fixed in ["", "--static"] {
        let program = prefix.join(format!("program{fixed}"));
        ran(Command::new("sh")
            .args([
                "-c",
                r#"eval "gcc -pthread ${3#-} \"\$1\" $(pkg-config --cflags --libs $3 ncpu) -o \"\$2\"""#,
                "sh",
            ])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/c/quota.c"))
            .arg(&program)
            .arg(fixed)
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
        let out = ran(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
        assert!(out.ends_with(" 0 in use\n"), "{out}");
    }
}

/// Programs under the thread sanitizer, which would report accesses under the locks as races without help.
#[test]
fn thread_sanitizer() {
    let prefix = install("tsan");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compile = |source: &str, more: &[&str]| {
        let program = prefix.join(format!("{source}{}", more.len()));
        ran(Command::new("gcc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-fsanitize=thread"])
            .args(more)
            .arg("-o")
            .arg(&program)
            .arg(root.join(format!("tests/c/{source}.c")))
            .arg(format!("-DNCPU_DEBUG={}", u8::from(cfg!(debug_assertions))))
            .arg("-I")
            .arg(prefix.join("include"))
            .arg("-L")
            .arg(prefix.join("lib"))
            .arg("-lncpu"));
        // Its shadow memory does not fit every layout that the kernel may choose.
        let mut run = Command::new("setarch");
        run.args(["-R", "timeout", "300"]).arg(&program).env("LD_LIBRARY_PATH", prefix.join("lib"));
        run
    };
    assert_eq!(ran(&mut compile("conditions", &[])), "ok\n");
    // Without the header it reports false races, which shows that the header has an effect.
    let without = compile("conditions", &["-DNCPU_TSAN_H"]).output().expect("setarch");
    assert!(String::from_utf8_lossy(&without.stderr).contains("data race"), "{without:?}");
}

#[test]
fn mutex() {
    assert_eq!(run("mutex", "tests/c/mutex.c"), ["ok\n"; 2]);
}

#[test]
fn fork() {
    assert_eq!(run("fork", "tests/c/fork.c"), ["ok\n"; 2]);
}

#[test]
fn conditions() {
    assert_eq!(run("conditions", "tests/c/conditions.c"), ["ok\n"; 2]);
}

#[test]
fn others() {
    assert_eq!(run("others", "tests/c/others.c"), ["ok\n"; 2]);
}

#[test]
fn populate() {
    assert_eq!(run("populate", "tests/c/populate.c"), ["ok\n"; 2]);
}

#[test]
fn timer() {
    assert_eq!(run("timer", "tests/c/timer.c"), ["ok\n"; 2]);
}

#[test]
fn thread() {
    assert_eq!(run("thread", "tests/c/thread.c"), ["ok\n"; 2]);
}

#[test]
fn robust() {
    assert_eq!(run("robust", "tests/c/robust.c"), ["ok\n"; 2]);
}

#[test]
fn misuse() {
    assert_eq!(run("misuse", "tests/c/misuse.c"), ["ok\n"; 2]);
}

#[test]
fn copy() {
    assert_eq!(run("copy", "tests/c/copy.c"), ["ok\n"; 2]);
}

#[test]
fn env() {
    assert_eq!(run("env", "tests/c/env.c"), ["ok\n"; 2]);
}

#[test]
fn vmem() {
    assert_eq!(run("vmem", "tests/c/vmem.c"), ["ok\n"; 2]);
}

#[test]
fn ports() {
    let out = "16384 ports, 16384 free, 16384 side by side\n";
    assert_eq!(run("ports", "examples/c/ports.c"), [out; 2]);
}

#[test]
fn example() {
    for out in run("example", "examples/c/quota.c") {
        let numbers: Vec<u64> = out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [granted, refused, used] = numbers[..] else { panic!("{out}") };
        assert_eq!((granted + refused, used), (80_000, 0), "{out}");
        assert!(granted > 0, "{out}");
    }
}

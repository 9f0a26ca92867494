//! The C programs of tests/c against include/ncpu.h and the library, shared and static.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory that has libncpu.a and libncpu.so: the one above this test's.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    exe.parent().expect("a directory").to_path_buf()
}

fn compile(name: &str, library: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", library.len()));
    let done = Command::new("gcc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(root.join("include"))
        .arg("-o")
        .arg(&out)
        .arg(root.join(format!("tests/c/{name}.c")))
        .args(library)
        .output()
        .expect("gcc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    out
}

fn run(name: &str) {
    let directory = libraries();
    let path = directory.display().to_string();
    let archive = format!("{path}/libncpu.a");
    // The archive holds Rust's standard library, which needs these.
    let fixed = compile(name, &[&archive, "-lm", "-ldl", "-lgcc_s"]);
    let shared = compile(name, &["-L", &path, "-lncpu"]);
    for program in [fixed, shared] {
        let done = Command::new("timeout")
            .arg("300")
            .arg(&program)
            .env("LD_LIBRARY_PATH", &directory)
            .output()
            .expect("timeout");
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success() && out == "ok\n", "{}: {}\n{out}{err}", program.display(), done.status);
    }
}

#[test]
fn mutex() {
    run("mutex");
}

#[test]
fn others() {
    run("others");
}

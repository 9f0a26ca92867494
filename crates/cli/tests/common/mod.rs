//! What the tests of commands share; each uses a part of it.
#![allow(dead_code)]
// Each of them is a crate of its own, and none needs all.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `ncpu`, 100 columns wide.
pub fn ncpu(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ncpu")).args(args).env("COLUMNS", "100").output().unwrap()
}

pub fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

pub fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// Whether the kernel can be observed; says so where it cannot.
pub fn root() -> bool {
    let yes = rustix::process::geteuid().is_root() && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !yes {
        eprintln!("skipped: observing needs root and BTF");
    }
    yes
}

/// Whoever may not observe is told so in one line.
pub fn needs_root(commands: &[&[&str]]) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    if !root() {
        return;
    }
    // The binary must be readable by nobody.
    let everyone = PermissionsExt::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(everyone).tempdir().unwrap();
    let copy = dir.path().join("ncpu");
    std::fs::copy(env!("CARGO_BIN_EXE_ncpu"), &copy).unwrap();
    for args in commands {
        let o = Command::new(&copy).args(*args).uid(65534).gid(65534).output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert_eq!(err(&o).lines().count(), 1, "{args:?}: one clear line: {}", err(&o));
        assert!(err(&o).contains("needs root"), "{args:?}: {}", err(&o));
    }
}

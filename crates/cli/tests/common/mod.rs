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

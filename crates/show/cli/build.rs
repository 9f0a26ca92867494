//! Tells the program which commit it was built from, for what and with which features, for `ncpu --version`, and has it linked
//! to be small.

use std::path::Path;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The version of the C library that is linked to, if it is glibc.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Not for development: each commit would build the program anew. And not of a repository that only happens to be
    // around an unpacked archive.
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let ours = release && git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = if ours { git(&["rev-parse", "--short=12", "HEAD"]) } else { None };
    if let Some(log) = ours.then(|| git(&["rev-parse", "--git-path", "logs/HEAD"])).flatten()
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rustc-env=NCPU_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let var = |name| std::env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=NCPU_TARGET={}", var("TARGET"));
    let features: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.to_str()?.strip_prefix("CARGO_FEATURE_").map(str::to_ascii_lowercase))
        .filter(|name| name != "default")
        .collect();
    let features = if features.is_empty() { "none".into() } else { features.join(", ") };
    println!("cargo::rustc-env=NCPU_FEATURES={features}");
    // 40,000 addresses that the loader adds its own to take 24 bytes each, or packed a thirtieth of it; glibc unpacks
    // them since 2.36, and the linkers that come with such a one pack them.
    if release && var("TARGET") == var("HOST") && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

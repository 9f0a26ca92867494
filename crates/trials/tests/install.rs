//! `install.sh` installs an archive, refuses one that was changed, and takes away what it installed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory that goes with its test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("ncpu-install-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sh(dir: &Path, script: &str) -> String {
    let o = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(o.status.success(), "{script}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).unwrap().trim().to_owned()
}

/// An archive of the shape that packages/tarball makes, whose ncpu is a script, with its checksum beside it.
fn archive(dir: &Path) -> PathBuf {
    let name = format!("ncpu-9.9.9-{}-linux", sh(dir, "uname -m"));
    let of = |path: &str| dir.join(&name).join(path);
    for path in [
        "bin/ncpu",
        "bin/ncpu-serve",
        "lib/ncpu/libncpu_locks.so",
        "share/man/man1/ncpu.1",
        "share/completions/ncpu.bash",
        "share/completions/ncpu.zsh",
        "share/completions/ncpu.fish",
        "README.md",
        "LICENSE",
        "docs/README.md",
        "workloads/fdtorture.c",
    ] {
        fs::create_dir_all(of(path).parent().unwrap()).unwrap();
        fs::write(of(path), "#!/bin/sh\necho ncpu 9.9.9\n").unwrap();
    }
    fs::set_permissions(of("bin/ncpu"), fs::Permissions::from_mode(0o755)).unwrap();
    sh(dir, &format!("tar -czf {name}.tar.gz {name}; rm -r {name}; sha256sum {name}.tar.gz >SHA256SUMS"));
    dir.join(format!("{name}.tar.gz"))
}

fn install(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../install.sh");
    Command::new("sh").arg(script).args(arguments).output().unwrap()
}

fn errors(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// The files below a directory.
fn files(dir: &Path) -> usize {
    sh(dir, "find . -type f | wc -l").parse().unwrap()
}

#[test]
fn what_it_installs_it_takes_away() {
    let dir = Dir::new("whole");
    let archive = archive(&dir.0);
    let prefix = dir.0.join("prefix");
    fs::create_dir(&prefix).unwrap();
    fs::write(prefix.join("others"), "stays").unwrap();
    let prefix_is = ["--prefix", prefix.to_str().unwrap()];
    // The second time it replaces the first.
    for _ in 0..2 {
        let o = install(&[&prefix_is[..], &[archive.to_str().unwrap()]].concat());
        assert!(o.status.success(), "{}", errors(&o));
        assert!(String::from_utf8_lossy(&o.stdout).contains("ncpu 9.9.9 is in"), "{o:?}");
    }
    assert_eq!(
        sh(&prefix, "bin/ncpu; stat -c %a bin/ncpu lib/ncpu/libncpu_locks.so"),
        "ncpu 9.9.9\n755\n644"
    );
    assert!(prefix.join("share/doc/ncpu/docs/README.md").exists());
    // Eleven files of the archive, the list of them, and the one that was there.
    assert_eq!(files(&prefix), 13);
    let o = install(&[&prefix_is[..], &["--uninstall"]].concat());
    assert!(o.status.success(), "{}", errors(&o));
    assert_eq!(files(&prefix), 1);
    assert!(!prefix.join("lib/ncpu").exists());
    assert!(!install(&[&prefix_is[..], &["--uninstall"]].concat()).status.success());
}

#[test]
fn an_archive_that_was_changed_is_refused() {
    let dir = Dir::new("changed");
    let archive = archive(&dir.0);
    let prefix = dir.0.join("prefix");
    let arguments = ["--prefix", prefix.to_str().unwrap(), archive.to_str().unwrap()];
    let mut bytes = fs::read(&archive).unwrap();
    bytes.push(0);
    fs::write(&archive, bytes).unwrap();
    let o = install(&arguments);
    assert!(!o.status.success() && errors(&o).contains("another checksum"), "{}", errors(&o));
    assert!(!prefix.join("bin").exists());
    // Without a list of checksums it is the user's own archive, unless a signature was asked for.
    fs::remove_file(dir.0.join("SHA256SUMS")).unwrap();
    let o = install(&[&["--key", "/dev/null"], &arguments[..]].concat());
    assert!(!o.status.success() && errors(&o).contains("no SHA256SUMS"), "{}", errors(&o));
    let o = install(&["--prefix", prefix.to_str().unwrap(), "/nowhere/ncpu.tar.gz"]);
    assert!(!o.status.success() && errors(&o).contains("cannot read"), "{}", errors(&o));
    assert_eq!(install(&["--nonsense"]).status.code(), Some(2));
}

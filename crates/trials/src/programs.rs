//! Programs that a test writes and then runs.
//!
//! Where the test's own process writes them, a child that another thread starts meanwhile holds the file open for
//! writing until its exec, and running the program fails with ETXTBSY. So a process of its own writes them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program with its permissions. Panics where it cannot.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("cp").arg("--preserve=mode").arg("--").args([from, to]).status();
    assert!(copied.expect("cp").success(), "{} cannot be copied to {}", from.display(), to.display());
}

/// Writes a script that anybody may run. Panics where it cannot.
pub fn script(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    let mut shell = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    shell.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("sh reads");
    assert!(shell.wait().expect("sh").success(), "{} cannot be written", path.display());
}

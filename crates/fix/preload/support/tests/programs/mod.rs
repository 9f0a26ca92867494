//! C programs with and without a preload library: shared code of the libraries' tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A preload library by its file name: cargo builds it beside the test.
pub fn library(file: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let library = exe.parent().expect("a directory").join(file);
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Compiles a source, named relative to the crate's directory. Tests may need the same program at once: each
/// compiles its own, and the last one stays.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_PKG_NAME"));
    std::fs::create_dir_all(&directory).expect("directory");
    let to = directory.join(name);
    let mine = directory.join(format!("{name}.{:?}", std::thread::current().id()));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&mine)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(flags);
    let done = gcc.output().expect("gcc");
    assert!(done.status.success(), "{gcc:?}\n{}", text(&done.stderr));
    std::fs::rename(&mine, &to).expect("rename");
    to
}

/// A command that runs a program, its first argument, with these libraries and variables, for at most
/// `seconds` seconds.
pub fn with(preload: &[&Path], environment: &[(&str, &str)], seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    // `env` sets them, so that `timeout` itself does not get them.
    command.arg(seconds.to_string()).arg("env");
    if !preload.is_empty() {
        let list: Vec<_> = preload.iter().map(|path| path.to_str().expect("UTF-8")).collect();
        command.arg(format!("LD_PRELOAD={}", list.join(":")));
    }
    command.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
    command
}

/// Another library by its file name, in gcc's search path. Not all tests need one.
#[allow(dead_code)]
pub fn found(file: &str) -> Option<PathBuf> {
    let gcc = Command::new("gcc").arg(format!("-print-file-name={file}")).output().expect("gcc");
    let path = PathBuf::from(text(&gcc.stdout).trim());
    // gcc prints the bare name if it finds no such file.
    if !path.is_absolute() {
        eprintln!("no {file}: .ci/tools installs what tests need");
        return None;
    }
    Some(path)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit status and both outputs, for messages.
pub fn all(done: &Output) -> String {
    format!("{}\n{}{}", done.status, text(&done.stdout), text(&done.stderr))
}

/// The output of a program that succeeded.
#[track_caller]
pub fn out(done: &Output) -> String {
    assert!(done.status.success(), "{}", all(done));
    text(&done.stdout)
}

//! `ncpu preload` as a user meets it: programs that it takes hold of, and those that it cannot.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{err, out};

/// Says which library has getenv, and LD_PRELOAD; ends with the status that is asked for.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    Dl_info info = {0};
    dladdr((void *)getenv, &info);
    const char *name = info.dli_fname ? info.dli_fname : "none", *slash = strrchr(name, '/');
    printf("%s %s %s\n", slash ? slash + 1 : name, getenv("LD_PRELOAD"), argv[0]);
    return argc > 1 ? atoi(argv[1]) : 0;
}
"#;

/// Where cargo puts the libraries that it builds for this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// A directory on the disk that programs are built on: /tmp may be mounted without set-user-ID.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn compiled(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, to) = (dir.join("program.c"), dir.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let gcc =
        Command::new("gcc").args(["-O1", "-w", "-o"]).arg(&to).arg(&source).args(flags).output().unwrap();
    assert!(gcc.status.success(), "{}", err(&gcc));
    to
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    command.arg("preload").args(args).env("NCPU_PRELOAD_DIR", libraries()).env("COLUMNS", "100");
    command.env_remove("LD_PRELOAD");
    command
}

fn preload(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Not started, because of ncpu, which says so.
fn refused(args: &[&str], status: i32, words: &[&str]) {
    let o = preload(args);
    assert_eq!((o.status.code(), out(&o)), (Some(status), String::new()), "{args:?}: {}", err(&o));
    assert!(err(&o).starts_with("ncpu preload: "), "{}", err(&o));
    for word in words {
        assert!(err(&o).contains(word), "{args:?}: {word:?} is not in: {}", err(&o));
    }
    assert_eq!(err(&o).lines().count(), 1, "{}", err(&o));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn takes_hold_and_passes_on_status_arguments_and_what_was_preloaded() {
    let dir = dir();
    let program = compiled(dir.path(), "program", &["-ldl"]);
    let library = libraries().join("libncpu_getenv.so");
    let (library, name) = (path(&library), path(&program));
    let o = preload(&["getenv", "--", name, "7"]);
    assert_eq!(
        (out(&o), o.status.code()),
        (format!("libncpu_getenv.so {library} {name}\n"), Some(7)),
        "{}",
        err(&o)
    );
    assert_eq!(err(&o), "");
    // Options after the command are the command's.
    let o = preload(&["getenv", name, "--anyway"]);
    assert_eq!(out(&o), format!("libncpu_getenv.so {library} {name}\n"));
    let o = command(&["getenv", "--", name]).env("LD_PRELOAD", "libm.so.6").output().unwrap();
    assert_eq!(out(&o), format!("libncpu_getenv.so {library}:libm.so.6 {name}\n"), "{}", err(&o));
    // Within another it is there once, and through PATH and a script.
    let script = dir.path().join("script");
    ncpu_trials::script(&script, &format!("#!/bin/sh\nexec program 3\n{}", env!("CARGO_BIN_EXE_ncpu")));
    let inner = env!("CARGO_BIN_EXE_ncpu");
    let search = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let o = command(&["getenv", "--", inner, "preload", "getenv", "script"])
        .env("PATH", search)
        .output()
        .unwrap();
    assert_eq!(
        (out(&o), o.status.code()),
        (format!("libncpu_getenv.so {library} program\n"), Some(3)),
        "{}",
        err(&o)
    );
}

#[test]
fn a_signal_that_ends_the_command_ends_it() {
    let o = preload(&["getenv", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(o.status.signal(), Some(9));
}

#[test]
fn static_programs_are_refused_unless_told_otherwise() {
    let dir = dir();
    for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
        let program = compiled(dir.path(), name, &[flag]);
        let program = path(&program);
        refused(&["getenv", "--", program], 125, &[program, "is statically linked", "--anyway"]);
        let o = preload(&["--anyway", "getenv", "--", program, "9"]);
        assert_eq!(o.status.code(), Some(9), "{}", err(&o));
        assert!(err(&o).contains("getenv cannot take hold"), "{}", err(&o));
    }
    // As an interpreter of scripts.
    let interpreter = compiled(dir.path(), "interpreter", &["-static"]);
    let script = dir.path().join("script");
    ncpu_trials::script(&script, &format!("#!{}\n", interpreter.display()));
    refused(
        &["getenv", path(&script)],
        125,
        &["interpreter, which interprets", "script, is statically linked"],
    );
}

#[test]
fn programs_of_other_processors_and_c_libraries_are_refused() {
    let dir = dir();
    let musl = compiled(dir.path(), "musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    refused(&["getenv", path(&musl)], 125, &["uses musl", "made for glibc"]);
    let other = compiled(dir.path(), "other", &[]);
    let mut bytes = std::fs::read(&other).unwrap();
    // e_machine, in this machine's own order of bytes.
    let number: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    bytes[18..20].copy_from_slice(&number.to_ne_bytes());
    std::fs::write(&other, &bytes).unwrap();
    let (theirs, ours) =
        if cfg!(target_arch = "aarch64") { ("x86-64", "AArch64") } else { ("AArch64", "x86-64") };
    refused(&["getenv", path(&other)], 125, &[&format!("is for {theirs}, and the libraries for {ours}")]);
    // Cut off in its headers: not run, and no panic.
    std::fs::write(&other, &bytes[..40]).unwrap();
    refused(&["getenv", path(&other)], 126, &["damaged ELF file"]);
}

#[test]
fn privileged_programs_are_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: giving a program to another user needs root");
        return;
    }
    const NOBODY: u32 = 65534;
    let dir = dir();
    let program = compiled(dir.path(), "program", &["-ldl"]);
    let mode = |mode| std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    mode(0o4755);
    refused(&["getenv", path(&program)], 125, &["is set-user-ID (user 65534)", "ignores LD_PRELOAD"]);
    mode(0o2755);
    refused(&["getenv", path(&program)], 125, &["is set-group-ID (group 65534)"]);
    // Set-user-ID to who runs it gives nothing: it takes hold, as the dynamic linker's doing shows.
    std::os::unix::fs::chown(&program, Some(0), Some(0)).unwrap();
    mode(0o6755);
    let o = preload(&["getenv", path(&program)]);
    assert!(out(&o).starts_with("libncpu_getenv.so "), "{}{}", out(&o), err(&o));

    // File capabilities: cap_net_raw, permitted and effective, revision 2. For root they are nothing new.
    mode(0o755);
    let mut value = [0u8; 20];
    value[..4].copy_from_slice(&0x0200_0001u32.to_le_bytes());
    value[4..8].copy_from_slice(&(1u32 << 13).to_le_bytes());
    let set = rustix::fs::setxattr(&program, "security.capability", &value, rustix::fs::XattrFlags::empty());
    if let Err(error) = set {
        eprintln!("skipped: file capabilities: {error}");
        return;
    }
    let o = preload(&["getenv", path(&program)]);
    assert!(out(&o).starts_with("libncpu_getenv.so "), "{}{}", out(&o), err(&o));
    // What a user may reach.
    let public = tempfile::tempdir().unwrap();
    let reachable =
        |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    reachable(public.path(), 0o755);
    let ncpu = public.path().join("ncpu");
    ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), &ncpu);
    std::fs::copy(libraries().join("libncpu_getenv.so"), public.path().join("libncpu_getenv.so")).unwrap();
    let theirs = public.path().join("program");
    ncpu_trials::copy_program(&program, &theirs);
    rustix::fs::setxattr(&theirs, "security.capability", &value, rustix::fs::XattrFlags::empty()).unwrap();
    [&ncpu, &theirs].iter().for_each(|path| reachable(path, 0o755));
    let o = Command::new(&ncpu)
        .args(["preload", "getenv"])
        .arg(&theirs)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    // Where the disk ignores capabilities the library does take hold.
    let ignored = out(&o).starts_with("libncpu_getenv.so ");
    assert!(ignored || err(&o).contains("has file capabilities"), "{}{}", out(&o), err(&o));
}

#[test]
fn what_is_not_there_is_told() {
    let dir = dir();
    let program = compiled(dir.path(), "program", &["-ldl"]);
    let program = path(&program);
    refused(&["nonsense", program], 125, &["no libncpu_nonsense.so in ", "expected one of: ", "getenv"]);
    refused(&["../getenv", program], 125, &["invalid library name `../getenv`"]);
    refused(&["getenv,,", program], 125, &["invalid library name ``"]);
    refused(&["getenv", "no_such_command"], 127, &["no_such_command: command not found"]);
    refused(&["getenv", "/etc/passwd"], 126, &["/etc/passwd: Permission denied"]);
    refused(&["getenv", "/etc"], 126, &["/etc: not a regular file"]);
    let spaced = dir.path().join("a b");
    std::fs::create_dir(&spaced).unwrap();
    std::fs::copy(libraries().join("libncpu_getenv.so"), spaced.join("libncpu_getenv.so")).unwrap();
    let o = command(&["getenv", program]).env("NCPU_PRELOAD_DIR", &spaced).output().unwrap();
    assert_eq!(o.status.code(), Some(125));
    assert!(err(&o).contains("cannot hold a path with a space"), "{}", err(&o));
    std::fs::write(spaced.join("libncpu_text.so"), "text").unwrap();
    let o = command(&["text", program]).env("NCPU_PRELOAD_DIR", &spaced).output().unwrap();
    assert_eq!(o.status.code(), Some(125));
    assert!(err(&o).contains("libncpu_text.so: not a shared library"), "{}", err(&o));
    let o = preload(&[]);
    assert_eq!(o.status.code(), Some(2), "{}", err(&o));
    assert!(err(&o).contains("<NAMES>"), "{}", err(&o));
}

#[test]
fn libraries_are_found_where_they_are_installed() {
    let dir = dir();
    let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib/ncpu"));
    [&bin, &lib].iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
    std::fs::hard_link(env!("CARGO_BIN_EXE_ncpu"), bin.join("ncpu")).unwrap();
    let run = |args: &[&str]| {
        let mut ncpu = Command::new(bin.join("ncpu"));
        ncpu.arg("preload").args(args).env_remove("NCPU_PRELOAD_DIR").env_remove("LD_PRELOAD");
        ncpu.output().unwrap()
    };
    let o = run(&["--list"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(err(&o).contains(path(&lib)) && err(&o).contains("NCPU_PRELOAD_DIR"), "{}", err(&o));
    let installed = lib.join("libncpu_getenv.so");
    std::fs::copy(libraries().join("libncpu_getenv.so"), &installed).unwrap();
    let o = run(&["getenv", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(out(&o), format!("{}\n", installed.display()), "{}", err(&o));
    let o = run(&["--list", "-o", "json"]);
    let row = format!(
        "{{\"name\":\"getenv\",\"for\":\"getenv without locks, safe beside setenv\",\"path\":\"{}\",\"ncpu_schema\":{}}}\n",
        installed.display(),
        ncpu_schema::VERSION
    );
    assert_eq!(out(&o), row);
    let o = run(&["--list"]);
    assert!(out(&o).contains("getenv") && out(&o).contains("safe beside setenv"), "{}", out(&o));
}

#[test]
fn with_the_address_sanitizer() {
    let dir = dir();
    let program = compiled(dir.path(), "program", &["-fsanitize=address", "-ldl"]);
    let o = preload(&["getenv", path(&program), "4"]);
    assert_eq!(o.status.code(), Some(4), "{}{}", out(&o), err(&o));
    assert!(out(&o).starts_with("libncpu_getenv.so libasan.so."), "{}", out(&o));
}

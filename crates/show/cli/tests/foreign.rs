//! Names and words of others never reach the terminal as they are.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{err, out};
use ncpu_record::{Manifest, Writer};
use ncpu_table::{Column, Table, safe};

/// Sets the title, turns text red, fakes a line, turns the direction, and C1's own escape.
const EVIL: &str = "\x1b]2;own\x07\x1b[31m\nncpu: all is well\u{202e}\u{9b}32m";

fn clean(args: &[&str], output: &Output) {
    for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{args:?}: {stream}: {e}"));
        assert!(!text.chars().any(|c| c != '\n' && safe::is_unsafe(c)), "{args:?}: {stream}: {text:?}");
        assert!(!text.lines().any(|l| l.starts_with("ncpu: all is well")), "{args:?}: {stream}: {text}");
    }
}

fn ncpu(args: &[&str]) -> Output {
    let output = common::ncpu(args);
    clean(args, &output);
    output
}

/// A recording whose every word was chosen to deceive.
fn forged(dir: &Path) -> String {
    let path = dir.join("forged.ncpu");
    let mut manifest = Manifest::new(ncpu_schema::Purpose::Run, 2, vec![EVIL.into(), EVIL.into()], 1.0);
    manifest.host = EVIL.into();
    manifest.kernel = EVIL.into();
    manifest.cpu_model = EVIL.into();
    manifest.notes = vec![EVIL.into()];
    let mut writer = Writer::create(&path, manifest).unwrap();
    let mut locks = Table::builder("locks", &[Column::text("lock", EVIL), Column::text(EVIL, "a name")]);
    locks.row().text(EVIL).text(EVIL);
    writer.append(&locks.finish()).unwrap();
    writer.finish().unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn a_forged_recording() {
    let dir = tempfile::tempdir().unwrap();
    let path = forged(dir.path());
    for args in [
        &["report", &path][..],
        &["report", &path, "--table", "locks"],
        &["report", &path, "--table", "locks", "-o", "csv"],
        &["report", &path, "--table", "locks", "-o", "json"],
        &["report", &path, "--table", EVIL],
        &["report", &path, "--table", "locks", "-k", EVIL],
    ] {
        ncpu(args);
    }
    let shown = ncpu(&["report", &path, "--table", "locks"]);
    // Each of two wide columns has half of the width.
    let name = "\\x1b]2;own\\x07\\x1b[31m\\nncpu: all is well\\u202e\\";
    assert_eq!(out(&shown).matches(name).count(), 3, "{shown:?}");
    let whole = ncpu(&["report", &path, "--table", "locks", "-o", "csv"]);
    assert!(out(&whole).contains(&format!("{name}x9b32m")), "{whole:?}");
}

#[test]
fn arguments_repeated_in_errors() {
    for args in [
        &[EVIL][..],
        &["run", "--", EVIL],
        &["report", EVIL],
        &["cpus", "-k", EVIL],
        &["cpus", "--columns", EVIL],
        &["scale", "--from", EVIL],
        &["locks", "--import", EVIL],
        &["topology", "--root", EVIL],
        &["bench", EVIL],
        &["counters", "-e", EVIL, "1"],
        &["watch", "-c", EVIL, "1"],
    ] {
        let output = ncpu(args);
        assert!(!output.status.success(), "{args:?}");
        assert!(!err(&output).is_empty(), "{args:?}");
    }
}

#[test]
fn a_process_with_an_evil_name() {
    if !common::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join(EVIL.replace('/', ":"));
    ncpu_trials::copy_program("/bin/sleep", &name);
    let name = name.to_str().unwrap();
    let said = ncpu(&["run", "-v", "--", name, "0.2"]);
    assert!(err(&said).contains("\\x1b]2;own"), "{}", err(&said));
    let mut other = Command::new(name).arg("30").stdout(Stdio::null()).spawn().unwrap();
    let pid = other.id().to_string();
    for args in [
        &["threads", "-p", &pid, "0.2", "1"][..],
        &["watch", "-p", &pid, "0.2"],
        &["watch", "-a", "0.2", "--table", "threads"],
        &["watch", "-a", "0.2", "--table", "threads", "-o", "csv"],
        &["locks", "0.2"],
        &["memory", "--by", "process"],
    ] {
        let output = ncpu(args);
        assert!(output.status.success(), "{args:?}: {}", err(&output));
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

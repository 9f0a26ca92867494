//! `ncpu fleet` hands its work to a program of its own, which may be missing.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::{err, out};

/// `ncpu` in a directory of its own, away from `ncpu-fleet`.
struct Alone(tempfile::TempDir);

impl Alone {
    fn new() -> Alone {
        let place = tempfile::tempdir().unwrap();
        ncpu_trials::copy_program(env!("CARGO_BIN_EXE_ncpu"), place.path().join("ncpu"));
        Alone(place)
    }

    fn run(&self, args: &[&str]) -> Output {
        let empty = self.0.path().join("empty");
        fs::create_dir_all(&empty).unwrap();
        let mut ncpu = Command::new(self.0.path().join("ncpu"));
        ncpu.args(args).env("PATH", empty).env("COLUMNS", "100").output().unwrap()
    }

    fn program(&self, text: &str, mode: u32) {
        let path = self.0.path().join("ncpu-fleet");
        ncpu_trials::script(&path, text);
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
}

#[test]
fn the_program_is_missing_or_cannot_be_run() {
    let alone = Alone::new();
    let line = |args: &[&str]| {
        let o = alone.run(args);
        assert_eq!((o.status.code(), err(&o).lines().count()), (Some(1), 1), "{args:?}: {}", err(&o));
        err(&o)
    };
    for args in [&["fleet", "onion", "/x"][..], &["fleet", "add", "/x", "/y"], &["fleet", "engine", "which"]]
    {
        let said = line(args);
        assert!(
            said.contains("needs the program ncpu-fleet, which is neither beside ncpu nor in PATH"),
            "{said}"
        );
    }
    alone.program("#!/bin/sh\n", 0o600);
    assert!(line(&["fleet", "onion", "/x"]).contains("ncpu-fleet cannot be run"));
    // Help and wrong arguments need no other program.
    let help = alone.run(&["fleet", "regress", "--help"]);
    assert!(help.status.success() && out(&help).contains("--before"), "{}", err(&help));
    let wrong = alone.run(&["fleet", "onion"]);
    assert!(wrong.status.code() == Some(2) && err(&wrong).contains("ROOT"), "{}", err(&wrong));
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let alone = Alone::new();
    alone.program("#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n", 0o700);
    let o = alone.run(&["fleet", "onion", "/a b", "--where", "label:type = 'web'", "--by", "kernel"]);
    assert_eq!(out(&o), "<onion></a b><--where><label:type = 'web'><--by><kernel>");
    assert_eq!(o.status.code(), Some(7), "its status is ours");
}

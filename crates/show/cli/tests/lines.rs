//! `ncpu lines` as a user meets it: of a program that it starts, and of machines with and without counters
//! that sample accesses.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{err, ncpu, out};

/// A program whose threads write two counters of one line for a moment, then ends with status 3.
fn program(dir: &Path) -> PathBuf {
    let source = dir.join("two.c");
    std::fs::write(
        &source,
        "#include <pthread.h>\n#include <stdatomic.h>\n#include <stdio.h>\n\
         struct pair { atomic_long here_count, there_count; };\n_Alignas(64) struct pair both;\n\
         static void *add(void *to) { for (int i = 0; i < 1000000; i++) ++*(atomic_long *)to; return 0; }\n\
         int main(void) {\n  pthread_t a, b;\n  pthread_create(&a, 0, add, &both.here_count);\n\
         pthread_create(&b, 0, add, &both.there_count);\n  pthread_join(a, 0); pthread_join(b, 0);\n\
         puts(\"done\"); return 3; }\n",
    )
    .unwrap();
    let program = dir.join("two");
    let cc =
        Command::new("cc").args(["-O1", "-g", "-pthread", "-o"]).args([&program, &source]).status().unwrap();
    assert!(cc.success());
    program
}

/// A machine of Intel's, as far as sysfs tells.
fn intel() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let pmu = root.path().join("sys/bus/event_source/devices/cpu");
    // A type that no kernel has given out, so that opening the event fails wherever this runs.
    for (file, text) in [
        ("type", "2147418112"),
        ("format/event", "config:0-7"),
        ("format/umask", "config:8-15"),
        ("format/ldlat", "config1:0-15"),
        ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
    ] {
        ncpu_machine_trees::put(&pmu, file, text);
    }
    root
}

fn samples_here() -> bool {
    let sources = ncpu_machine::events::Sources::read("/".as_ref()).unwrap();
    sources.access_events().is_ok()
}

#[test]
fn a_command_that_ends_at_once_is_told_by_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("at_once.c"), dir.path().join("at_once"));
    // Two locks beside each other, and an end before anybody could look at its mappings.
    std::fs::write(
        &source,
        "#include <pthread.h>\nstruct pair { pthread_spinlock_t here_lock, there_lock; };\n\
         _Alignas(64) struct pair both;\nint main(void) { _exit(5); }\n",
    )
    .unwrap();
    let cc = Command::new("cc")
        .args(["-O1", "-g", "-w", "-static", "-o"])
        .args([&program, &source])
        .status()
        .unwrap();
    assert!(cc.success());
    for _ in 0..10 {
        let o = ncpu(&["lines", "--", program.to_str().unwrap()]);
        let said = err(&o);
        assert_eq!(o.status.code(), Some(5), "{said}");
        assert!(said.contains("here_lock"), "{said}");
    }
}

#[test]
fn a_command_is_run_and_its_lines_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let o = ncpu(&["lines", "--match", "here_count", "--", program.to_str().unwrap()]);
    let said = err(&o);
    assert_eq!(o.status.code(), Some(3), "its status is the command's: {said}");
    assert_eq!(out(&o), "done\n", "stdout is the command's");
    assert!(
        said.contains("here_count") && said.contains("there_count") && said.contains("two.c:4"),
        "{said}"
    );
    if samples_here() {
        return;
    }
    // Nothing is sampled, or watched with debug registers.
    let said = err(&ncpu(&["lines", "--seconds", "0", "--", program.to_str().unwrap()]));
    let lines: Vec<&str> = said.lines().filter(|l| l.contains("not how often the line moves")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("this machine has no counters that sample it (no mem-loads"), "{said}");
    for table in ["lines", "offsets", "accesses"] {
        let o = ncpu(&["lines", "--seconds", "0", "--table", table, "--", program.to_str().unwrap()]);
        assert_eq!(o.status.code(), Some(1));
        assert!(err(&o).contains("nothing was sampled"), "{}", err(&o));
    }
    let o = ncpu(&[
        "lines",
        "--table",
        "words",
        "-o",
        "csv",
        "--match",
        "here_count",
        "--",
        program.to_str().unwrap(),
    ]);
    assert!(out(&o).contains(",there_count,"), "{}", out(&o));
}

#[test]
fn a_machine_that_samples_says_how_to_and_a_refusal_costs_only_the_samples() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let root = intel();
    let root = root.path().to_str().unwrap();
    let o = ncpu(&["lines", "--root", root, program.to_str().unwrap()]);
    assert!(o.status.success());
    assert!(err(&o).contains("this machine samples that with -p PID or -- CMD"), "{}", err(&o));
    assert!(out(&o).contains("here_count"), "{}", out(&o));
    let o = ncpu(&["lines", "--root", root, "--", program.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(3), "{}", err(&o));
    assert!(
        err(&o).contains("not how often the line moves: opening event cpu/mem-loads,ldlat=30/"),
        "{}",
        err(&o)
    );
    let o = ncpu(&["lines", "--root", root, "--seconds", "0", "--", program.to_str().unwrap()]);
    assert!(!err(&o).contains("opening event"), "{}", err(&o));
}

#[test]
fn what_cannot_be_looked_at_is_told() {
    for (args, code, word) in [
        (&["lines"][..], 2, "required"),
        (&["lines", "-p", "4194305"], 1, "process 4194305"),
        (&["lines", "--", "no-such-program"], 127, "command not found"),
        (&["lines", "--seconds", "x", "--", "true"], 2, "expected a duration"),
        (&["lines", "--seconds=-1", "--", "true"], 2, "seconds"),
        (&["lines", "/etc/passwd"], 1, "not an ELF file"),
    ] {
        let o = ncpu(args);
        assert_eq!(o.status.code(), Some(code), "{args:?}: {}", err(&o));
        assert!(err(&o).contains(word), "{args:?}: {}", err(&o));
    }
}

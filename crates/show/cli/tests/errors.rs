//! Errors come before a run, in one style, and name the remedy.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{err, out};

fn ncpu(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ncpu")).args(arguments).env_remove("COLUMNS").output().unwrap()
}

/// The output of `ncpu` under a limit of the shell.
fn under(limit: &str, arguments: &str) -> Output {
    let script = format!("ulimit {limit}; exec {} {arguments}", env!("CARGO_BIN_EXE_ncpu"));
    Command::new("bash").args(["-c", &script]).output().unwrap()
}

#[test]
fn a_mistaken_command_finds_its_neighbour() {
    for (given, meant) in
        [("rnu", "run"), ("wtach", "watch"), ("nmua", "numa"), ("theads", "threads"), ("lcoks", "locks")]
    {
        let o = ncpu(&[given]);
        assert_eq!(o.status.code(), Some(2));
        assert!(err(&o).contains(&format!("a similar subcommand exists: '{meant}'")), "{}", err(&o));
    }
    assert!(!err(&ncpu(&["xyzzy"])).contains("similar"), "{}", err(&ncpu(&["xyzzy"])));
}

#[test]
fn errors_have_one_style() {
    for arguments in [
        &["rnu"][..],
        &["watch", "--no-such-option"],
        &["run"],
        &["report", "/nosuch"],
        &["run", "-k", "x", "--", "true"],
        &["dump", "--info", "/nosuch"],
        &["cpus", "x"],
    ] {
        let o = ncpu(arguments);
        assert!(!o.status.success() && err(&o).starts_with("ncpu: "), "{arguments:?}: {}", err(&o));
    }
}

#[test]
fn durations_have_units_or_are_seconds() {
    for arguments in [
        &["watch", "5x"][..],
        &["threads", "five"],
        &["cpus", "-5s"],
        &["power", "--seconds", "5x"],
        &["fix", "--for", "x", "--", "true"],
        &["lines", "--seconds", "x", "--", "true"],
        &["place", "balance", "--for", "x", "--", "true"],
        &["partition", "2", "--grace", "x", "--", "true"],
    ] {
        let o = ncpu(arguments);
        assert_eq!(o.status.code(), Some(2), "{arguments:?}: {}", err(&o));
        let said = err(&o);
        assert!(
            said.contains("expected a duration") || said.contains("unexpected argument '-5"),
            "{arguments:?}: {said}"
        );
    }
    let o = ncpu(&["cpus", "10ms", "1"]);
    assert!(o.status.success(), "{}", err(&o));
    let o = ncpu(&["memory", "--source", "meminfo", "10ms", "2"]);
    assert!(o.status.success(), "{}", err(&o));
}

#[test]
fn numbers_are_refused_in_plain_words() {
    for (arguments, says) in [
        (&["watch", "-p", "abc", "1"][..], "expected a whole number"),
        (&["run", "-F", "", "--", "true"], "expected a whole number"),
        (&["run", "-F", "99999999999999999999", "--", "true"], "the number is too large"),
        (&["power", "--price", "abc"], "expected a number"),
    ] {
        let o = ncpu(arguments);
        assert_eq!(o.status.code(), Some(2), "{arguments:?}: {}", err(&o));
        assert!(err(&o).contains(says), "{arguments:?}: {}", err(&o));
    }
    let o = Command::new("sh")
        .args(["-c", &format!("{} explain >/dev/full", env!("CARGO_BIN_EXE_ncpu"))])
        .output();
    let o = o.unwrap();
    assert!(o.status.code() == Some(1) && err(&o).contains("writing output: No space left"), "{}", err(&o));
}

#[test]
fn mistakes_on_the_command_line_have_one_status() {
    for (arguments, says) in [
        // Some are seen by clap, others by the commands.
        (&["bench", "-T", "0", "getpid"][..], "expected 1 or more"),
        (&["bench", "-P", "0", "getpid"], "expected 1 or more"),
        (&["bench", "-B", "0", "getpid"], "0 is not in 1.."),
        (&["bench", "no-such"], "unknown benchmark"),
        (&["bench", "--suite", "none"], "unknown suite"),
        (&["bench", "getpid", "--", "-q"], "no option of this case"),
        (&["bench", "memhammer", "--", "-a", "lick"], "give write, read, chase or scan"),
        (&["foresee", "--machines", "foo"], "cannot be used with"),
        (&["foresee", "--fix", "no fix", "--on", "2x2", "x"], "unknown --fix"),
        (&["watch", "0"], "give a positive number of seconds"),
        (&["watch", "1", "0"], "0 reports"),
        (&["cpus", "1", "0"], "0 reports"),
        (&["threads", "1", "0"], "0 reports"),
        (&["threads", "0"], "an interval of 0 s"),
        (&["memory", "1", "0"], "0 reports"),
        (&["numa", "1", "0"], "0 reports"),
        (&["counters", "1", "0"], "0 reports"),
        (&["power", "--price", "-1"], "the price of a kWh"),
        (&["scale", "--rounds", "0", "--", "true"], "--rounds 0"),
        (&["scale", "--cpus", "x", "--", "true"], "give counts as in"),
        (&["fix", "--least", "-1", "--", "true"], "--least -1"),
        (&["place", "nopolicy", "--", "true"], "nopolicy: give"),
        (&["report", "--table", "nosuch"], "unknown table"),
        (&["cpus", "-k", "nosuch", "1", "1"], "no column"),
        (&["cpus", "--top", "0", "1", "1"], "must be at least 1"),
        (&["diff", "a"], "name both sides"),
        (&["timers", "--calls", "nosuch"], "unknown call"),
        (&["topology", "--psrinfo", "-o", "csv"], "layouts of text"),
    ] {
        let o = ncpu(arguments);
        assert!(
            o.status.code() == Some(2) && err(&o).contains(says),
            "{arguments:?}: {:?} {}",
            o.status,
            err(&o)
        );
        assert!(out(&o).is_empty(), "{arguments:?}: {}", out(&o));
    }
    // A value that another machine would take is an error like others.
    for arguments in [&["scale", "--cpus", "4999", "--", "true"][..], &["watch", "-p", "4999999", "1"]] {
        let o = ncpu(arguments);
        assert_eq!(o.status.code(), Some(1), "{arguments:?}: {}", err(&o));
    }
}

#[test]
fn a_mistaken_column_is_an_error_before_the_run() {
    let place = tempfile::tempdir().unwrap();
    let ran = place.path().join("ran");
    let ran = ran.to_str().unwrap();
    for arguments in [
        &["run", "--table", "locks", "-k", "nosuch", "--", "touch", ran][..],
        &["run", "--table", "layers", "-k", "nosuch", "--", "touch", ran],
        &["locks", "-k", "nosuch", "--", "touch", ran],
        &["timers", "--who", "-k", "nosuch", "--", "touch", ran],
        &["crosscalls", "-k", "nosuch", "--", "touch", ran],
        &["lines", "-k", "nosuch", "--", "touch", ran],
        &["partition", "2", "--share", "-k", "nosuch", "--", "touch", ran],
        &["threads", "-k", "nosuch", "600", "1"],
        &["numa", "-k", "nosuch", "600", "1"],
        &["watch", "--table", "threads", "-k", "nosuch", "600"],
    ] {
        let o = ncpu(arguments);
        assert!(
            !o.status.success() && err(&o).contains("has no column `nosuch`"),
            "{arguments:?}: {}",
            err(&o)
        );
        assert!(!Path::new(ran).exists(), "{arguments:?} ran the command");
    }
}

#[test]
fn help_names_the_options_of_its_command() {
    let help = out(&ncpu(&["run", "--help"]));
    assert!(!help.contains("--rotate") && !help.contains("--config"), "{help}");
    assert!(out(&ncpu(&["watch", "--help"])).contains("--config FILE"));
    // It is taken all the same.
    let o = ncpu(&["--config", "/nosuch", "watch", "1"]);
    assert!(err(&o).contains("/nosuch: No such file"), "{}", err(&o));
}

#[test]
fn a_mount_is_announced_once_it_is_there() {
    let place = tempfile::tempdir().unwrap();
    let dump = place.path().join("x");
    std::fs::write(&dump, "no dump").unwrap();
    let o = ncpu(&["dump", "--mount", dump.to_str().unwrap(), "/nosuch"]);
    assert!(!o.status.success() && !err(&o).contains("until it is unmounted"), "{}", err(&o));
}

#[test]
fn installing_says_that_it_needs_root() {
    for option in ["--install", "--uninstall"] {
        let o = common::Nobody::new().ncpu(&["dump", option]).output().unwrap();
        assert!(err(&o).contains(&format!("{option} needs root")), "{}", err(&o));
    }
}

#[test]
fn a_small_stack_is_enough() {
    for arguments in ["--help", "run --help", "topology", "run -k nosuch -- true", "locks --by nothing"] {
        let o = under("-s 64", arguments);
        assert!(o.status.code().is_some_and(|code| code < 101), "{arguments}: {:?} {}", o.status, err(&o));
    }
    // The command has the user's limit.
    let o = under("-s 64", "partition 1 -- bash -c 'ulimit -s'");
    assert!(out(&o).starts_with("64\n"), "{}{}", out(&o), err(&o));
}

#[test]
fn the_end_of_a_file_s_limit_is_an_error_with_words() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.csv");
    let o = under("-f 1", &format!("foresee --machines -o csv --output {}", path.display()));
    let said = err(&o);
    assert!(
        o.status.code() == Some(1) && said.starts_with("ncpu: ") && said.contains("File too large"),
        "{:?} {said}",
        o.status
    );
}

/// `make static` builds programs without shared libraries for other machines; those of this machine stay as they were.
#[test]
fn static_programs_do_not_replace_shared_ones() {
    if !Command::new("make").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no make");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::copy(root.join("Makefile"), place.path().join("Makefile")).unwrap();
    let cargo = "#!/bin/sh\nmkdir -p target/release\ncase \"$*\" in *crt-static*) echo static >target/release/ncpu;; \
                 *) touch target/release/libncpu_x.so;; esac\n";
    std::fs::write(place.path().join("cargo"), cargo).unwrap();
    for before in [Some("shared\n"), None] {
        let built = place.path().join("target/release/ncpu");
        let _ = std::fs::remove_file(&built);
        if let Some(text) = before {
            std::fs::create_dir_all(built.parent().unwrap()).unwrap();
            std::fs::write(&built, text).unwrap();
        }
        // Tools are there: `tools` is made by nothing here.
        let mut make = Command::new("make");
        make.current_dir(place.path()).args(["static-guest", "CARGO=sh cargo", "-o", "tools"]);
        let o = make.output().unwrap();
        assert!(o.status.success(), "{}{}", out(&o), err(&o));
        assert_eq!(std::fs::read_to_string(&built).ok().as_deref(), before);
        assert_eq!(std::fs::read_to_string(place.path().join("target/static/ncpu")).unwrap(), "static\n");
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    for arguments in ["topology", "--help", "explain files-made", "completions bash", ""] {
        let closed = Command::new("bash")
            .args(["-c", &format!("exec {} {arguments} >&-", env!("CARGO_BIN_EXE_ncpu"))])
            .output()
            .unwrap();
        assert_eq!(closed.status.code(), Some(1), "{arguments}: {}", err(&closed));
        assert!(err(&closed).contains("standard output is closed"), "{arguments}: {}", err(&closed));
    }
    // Output to /dev/null succeeds.
    let mut null = Command::new(env!("CARGO_BIN_EXE_ncpu"));
    assert!(null.arg("topology").stdout(std::process::Stdio::null()).status().unwrap().success());
}

#[test]
fn an_error_names_the_limit_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("topology");
    let o = under("-f 0", &format!("topology --output {}", file.display()));
    assert!(
        !o.status.success() && err(&o).contains("; files are limited to 0 kB (ulimit -f)"),
        "{}",
        err(&o)
    );
}

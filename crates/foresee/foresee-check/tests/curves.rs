//! `foresee-check curves`: exit status and messages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn curves(args: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foresee-check")).arg("curves").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn published_families_fail_where_a_claim_does_not_hold() {
    let dir = tempfile::tempdir().unwrap();
    // Curves whose first points say the opposite of the last.
    let curve = "[[1, 100], [2, 200], [4, 400], [8, 800], [16, 1], [32, 1]]";
    let families = [
        "altix page faults",
        "cna",
        "concurrent maps",
        "folly locks",
        "folly rwlocks",
        "icelake page faults",
        "litl",
        "mctop",
        "postgres",
        "rwsem",
        "stream",
        "tlb",
    ];
    for (i, family) in families.iter().enumerate() {
        let set = format!("family = \"{family}\"\nmachine = \"1x32\"\n[points]\nc = {curve}\n");
        fs::write(dir.path().join(format!("{i}.toml")), set).unwrap();
    }
    let o = curves(&[dir.path()]);
    assert_eq!(o.status.code(), Some(1), "{}{}", text(&o.stdout), text(&o.stderr));
    assert!(text(&o.stderr).contains("not met: mean error at 4 times, %: "), "{}", text(&o.stderr));
    assert!(text(&o.stdout).contains("altix page faults"), "{}", text(&o.stdout));
    // Nothing is claimed about some of them.
    fs::remove_file(dir.path().join("0.toml")).unwrap();
    let o = curves(&[dir.path()]);
    assert!(o.status.success() && o.stderr.is_empty(), "{}", text(&o.stderr));
}

#[test]
fn the_set_of_the_manual_is_read() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/foresee.md");
    let manual = fs::read_to_string(manual).unwrap();
    let (_, rest) = manual.split_once("```toml\n# SET.toml").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set.toml");
    fs::write(&set, rest.split_once("```").unwrap().0.split_once('\n').unwrap().1).unwrap();
    let o = curves(&[&set, Path::new("--data"), dir.path()]);
    assert!(o.status.success(), "{}", text(&o.stderr));
}

#[test]
fn a_file_that_is_not_a_set_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.toml");
    fs::write(&model, "name = \"x\"\nwork_ns = 1\n").unwrap();
    let o = curves(&[&model]);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("unknown field"), "{}", text(&o.stderr));
}

//! A lock that ncpu does not know: what it says of it, and what it says where its user's patterns name it. Needs root and BPF;
//! says so and passes where there are none.

mod common;

use std::path::Path;
use std::process::Command;

use common::{err, ncpu, out, root, unbroken};
use ncpu_trials::{MOST, hold};

/// `door.c`, which removes itself when dropped.
struct Door(std::path::PathBuf);

impl Door {
    fn compile(name: &str, how: &[&str]) -> Door {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/door.c");
        let done = Command::new("gcc")
            .args(["-O1", "-Wall", "-Werror", "-pthread"])
            .args(how)
            .arg("-o")
            .args([&to, &source])
            .output()
            .expect("gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Door(to)
    }

    /// What a command says of it, without its line breaks.
    fn seen_by(&self, args: &[&str]) -> String {
        let o = ncpu(&[args, &["--", self.0.to_str().unwrap()]].concat());
        assert!(o.status.success(), "{args:?}: {}", err(&o));
        unbroken(&err(&o))
    }

    /// The layers of a run. CPUs idle, for one thread at a time passes the door.
    fn layers(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let o = ncpu(&[&["run", "-o", "json"], args, &["--", self.0.to_str().unwrap()]].concat());
        assert!(o.status.success(), "{args:?}: {}", err(&o));
        out(&o).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn layer<'a>(layers: &'a [serde_json::Value], name: &str) -> Option<&'a serde_json::Value> {
    layers.iter().find(|row| row["layer"] == name)
}

/// Per cent of capacity.
fn share(layers: &[serde_json::Value], name: &str) -> Option<f64> {
    layer(layers, name)?["share"].as_f64()
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_bad_file_of_patterns_is_told_by_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("patterns");
    std::fs::write(&file, "lock \"the door\"\n  ab\n").unwrap();
    let name = file.to_str().unwrap();
    for verb in ["run", "watch", "locks"] {
        let rest = if verb == "watch" { &["1"][..] } else { &["--", "true"] };
        let o = ncpu(&[&[verb, "--patterns", name], rest].concat());
        assert_eq!(o.status.code(), Some(1), "{verb}: {}", err(&o));
        assert!(err(&o).contains("patterns") && err(&o).contains("line 2"), "{verb}: {}", err(&o));
        assert!(err(&o).contains("`ab` is too short"), "{verb}: {}", err(&o));
        let missing = dir.path().join("none");
        let o = ncpu(&[&[verb, "--patterns", missing.to_str().unwrap()], rest].concat());
        assert!(!o.status.success() && err(&o).contains("none"), "{verb}: {}", err(&o));
    }
}

mod quiet {
    use super::*;

    #[test]
    fn a_lock_that_nobody_knows_is_told_as_that() {
        if !root() {
            return;
        }
        let door = Door::compile("door-stripped", &["-static", "-s"]);
        hold(MOST, "an unknown lock", || {
            let layers = door.layers(&[]);
            let serial = layer(&layers, "serial phases").unwrap_or_else(|| panic!("{layers:?}"));
            let evidence = serial["evidence"].as_array().unwrap();
            let unknown = evidence.iter().find(|e| e["kind"] == "unknown-futexes");
            let unknown = unknown.unwrap_or_else(|| panic!("{evidence:?}"));
            assert!(unknown["asleep"].as_f64().is_some_and(|seconds| seconds > 0.0), "{unknown}");
            let words =
                "thread-s in futexes of unknown kind, perhaps a lock: `ncpu locks --futexes` shows them";
            assert!(unknown["words"].as_str().is_some_and(|w| w.ends_with(words)), "{unknown}");
            let advice = &serial["advice"][0];
            assert!(advice["id"] == "unknown-futexes" && advice["change"] == "program", "{advice}");
            assert_eq!(advice["command"], "ncpu locks --futexes -s 10");
            let words =
                "threads wait in futexes of unknown kind: see where with `ncpu locks --futexes -s 10`";
            assert!(advice["words"].as_str().is_some_and(|w| w.starts_with(words)), "{advice}");
            // Nothing says that it is one.
            assert!(share(&layers, "user lock waiting").is_none_or(|share| share < 2.0), "{layers:?}");
        });
        let futexes = door.seen_by(&["locks", "--user", "--futexes"]);
        assert!(futexes.contains(" unknown "), "{futexes}");
        // They may as well be idle workers.
        let locks = door.seen_by(&["locks", "--user"]);
        assert!(locks.contains("no user lock was waited for"), "{locks}");
    }

    #[test]
    fn a_user_s_patterns_name_a_lock() {
        if !root() {
            return;
        }
        let door = Door::compile("door", &[]);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("patterns");
        std::fs::write(&file, "lock \"the door\"\n  advice: build another door\n  pass_the_door\n").unwrap();
        let file = file.to_str().unwrap();
        hold(MOST, "a lock of the user's patterns", || {
            let layers = door.layers(&["--patterns", file]);
            let lock = layer(&layers, "user lock waiting").unwrap_or_else(|| panic!("{layers:?}"));
            let (evidence, advice) = (&lock["evidence"][0], &lock["advice"][0]);
            assert!(evidence["kind"] == "user-lock" && evidence["pattern"] == "the door", "{evidence}");
            assert!(evidence["words"].as_str().is_some_and(|w| w.starts_with("the door")), "{evidence}");
            assert!(advice["id"] == "lock-pattern" && advice["command"].is_null(), "{advice}");
            assert_eq!(advice["words"], "the door: build another door");
            let serial = layer(&layers, "serial phases").map(|row| row["evidence"].to_string());
            assert!(serial.is_none_or(|told| !told.contains("unknown kind")), "{layers:?}");
        });
        let locks = door.seen_by(&["locks", "--user", "--patterns", file]);
        assert!(locks.contains("the door") && locks.contains(" lock "), "{locks}");
        assert!(!door.seen_by(&["locks", "--user"]).contains("the door"));
    }
}

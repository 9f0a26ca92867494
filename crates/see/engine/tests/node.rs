//! Functions of JavaScript by name, in a program whose functions' shares are given, and which needs no option of Node's for that.
//! Needs root and BPF, and Node; skips with a message otherwise.

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use common::{allowed, observe};
use ncpu_trials::{MOST, hold};

fn has_node() -> bool {
    let found = Command::new("node").arg("--version").output().is_ok_and(|told| told.status.success());
    if !found {
        eprintln!("skipped: no node");
    }
    found
}

mod quiet {
    use super::*;

    #[test]
    fn functions_have_the_shares_that_are_given() {
        let Some(_one) = allowed() else { return };
        if !has_node() {
            return;
        }
        let program: OsString =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/functions.js").into();
        let lines = std::fs::read_to_string(&program).expect("the program");
        let line = |text: &str| 1 + lines.lines().position(|l| l.contains(text)).expect("a line of it");
        let truth = [
            ("plain", "function plain", 2.0),
            ("method", "method() {", 1.0),
            ("arrow", "const arrow", 1.0),
            ("compare", "function compare", 1.0),
            ("produce", "function* produce", 1.0),
            ("later", "async function later", 1.0),
            ("inThread", "function inThread", 2.0),
        ];
        // As a program runs; in the interpreter alone; and without what makes the best code.
        for option in ["--no-warnings", "--jitless", "--no-opt"] {
            hold(MOST, option, || {
                let seen = observe(&["node".into(), option.into(), program.clone()], |_| {});
                assert_eq!(seen.ended.status, 0, "{option}");
                let units = |frame: &str| seen.seconds_below("on-cpu", frame);
                let burn = format!("burn (functions.js:{})", line("function burn"));
                let settle = format!("settle (functions.js:{})", line("function settle"));
                let all = units(&burn) - units(&settle);
                let of_all = 10.0;
                assert!(all > 0.8 * of_all * 0.15, "{option}: {all} s: {:#?}", seen.stacks());
                for (name, text, share) in truth {
                    let frame = format!("{name} (functions.js:{})", line(text));
                    let found = units(&frame) / all * of_all;
                    println!("{option}: {frame}: {found:.2}, in truth {share}");
                    assert!(
                        (found - share).abs() < 0.35,
                        "{option}: {frame}: {found} of {all} s: {:#?}",
                        seen.stacks()
                    );
                }
                // Callers come before their callees.
                let called =
                    |stack: &str| stack.find("main (functions.js:").zip(stack.find("plain (functions.js:"));
                let found: Vec<_> =
                    seen.rows("stacks").filter_map(|(t, r)| called(t.text(r, "stack")?)).collect();
                assert!(
                    !found.is_empty() && found.iter().all(|(main, plain)| main < plain),
                    "{option}: {found:?}"
                );
                let asleep = seen.seconds_below("off-cpu", "nap (functions.js:");
                assert!(asleep > 0.29, "{option}: {asleep}: {:#?}", seen.stacks());
                assert!(
                    seen.stacks().iter().all(|s| !s.chars().any(char::is_control)),
                    "{:#?}",
                    seen.stacks()
                );
            });
        }
    }
}

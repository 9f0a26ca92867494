//! Any text as /etc/ncpu.toml, for commands with options like those of `ncpu watch`, `serve` and `top`.
#![no_main]

use std::sync::LazyLock;

use clap::{Arg, Command};
use libfuzzer_sys::fuzz_target;

// By path: the crate it is part of has BPF programs, which fuzzing does not need.
#[path = "../../crates/show/cli/src/config.rs"]
#[allow(dead_code)]
mod config;

static COMMAND: LazyLock<Command> = LazyLock::new(|| {
    let text = |name: &'static str| Arg::new(name).long(name);
    let number = |name: &'static str| text(name).value_parser(clap::value_parser!(f64));
    let freq = || text("hz").long("freq").short('F').value_parser(clap::value_parser!(u32).range(1..=10_000));
    let length = |name: &'static str| {
        text(name).value_parser(|text: &str| match text.ends_with(['d', 'h', 'G']) {
            true => Ok(text.len()),
            false => Err("give a time"),
        })
    };
    let series = || [length("keep"), length("max"), text("label").action(clap::ArgAction::Append)];
    let serve = ["listen", "token-file", "tls-cert", "tls-key", "user", "history", "mode"].map(text);
    Command::new("ncpu")
        .subcommand(Command::new("watch").args([number("interval"), freq()]).args(series()))
        .subcommand(Command::new("serve").args([number("interval"), freq()]).args(series()).args(serve))
        .subcommand(
            Command::new("top").arg(Arg::new("interval").value_parser(clap::value_parser!(f64))).arg(freq()),
        )
});

fuzz_target!(|text: &str| {
    match config::read(text, &COMMAND) {
        Ok(all) => {
            for (command, given) in all {
                let command = COMMAND.find_subcommand(command).expect("a command that there is");
                for (argument, values) in given {
                    assert!(command.get_arguments().any(|known| *known.get_id() == *argument), "{argument}");
                    assert!(argument == "label" || values.len() == 1);
                }
            }
        }
        Err((at, _)) => {
            let (line, column) = ncpu_table::place(text, at.map_or(0, |at| at.start));
            assert!(line <= text.split('\n').count() && column <= text.chars().count() + 1);
        }
    }
});

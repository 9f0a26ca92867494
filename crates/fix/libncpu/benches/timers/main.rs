//! Lateness of timers, and a million at once: `cargo bench -p libncpu --bench timers -- --help`.
//!
//! `--bench primitives -- --group timers` measures the cost of arming and cancelling.

use std::time::Duration;

mod lateness;
mod many;

const HELP: &str = "\
Usage: cargo bench -p libncpu --bench timers -- [OPTIONS]

  --after 1,10,100,1000,10000  microseconds from arming to expiry
  --samples 2000               expiries of each; fewer where they would take more than --time
  --time 2000                  the most milliseconds a row takes for each subject, over all rounds
  --rounds 4                   parts that the samples are taken in, interleaved over the subjects
  --timers 1000000             timers armed at once
  --over 3                     seconds over which these expire
  --only lateness              or: many
";

/// The measurements to make.
struct Options {
    after: Vec<Duration>,
    samples: usize,
    time: Duration,
    rounds: usize,
    timers: usize,
    over: Duration,
}

fn wrong(why: &str) -> ! {
    eprintln!("timers: {why}\n\n{HELP}");
    std::process::exit(2)
}

fn number(option: &str, value: &str) -> u64 {
    match value.parse() {
        Ok(n) if n > 0 => n,
        _ => wrong(&format!("{option}: {value:?} is not a number above 0")),
    }
}

fn main() {
    let (mut after, mut only) = (vec![1, 10, 100, 1_000, 10_000], None);
    let (mut samples, mut time, mut rounds, mut timers, mut over) = (2_000, 2_000, 4, 1_000_000, 3);
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| wrong(&format!("{option} needs a value")));
        match option.as_str() {
            "--after" => after = value().split(',').map(|n| number(&option, n)).collect(),
            "--samples" => samples = number(&option, &value()),
            "--time" => time = number(&option, &value()),
            "--rounds" => rounds = number(&option, &value()),
            "--timers" => timers = number(&option, &value()),
            "--over" => over = number(&option, &value()),
            "--only" => only = Some(value()),
            // Cargo adds it.
            "--bench" => {}
            "--help" | "-h" => return print!("{HELP}"),
            _ => wrong(&format!("unknown option {option}")),
        }
    }
    if only.as_ref().is_some_and(|only| only != "lateness" && only != "many") {
        wrong("--only must be lateness or many");
    }
    let options = Options {
        after: after.into_iter().map(Duration::from_micros).collect(),
        samples: samples as usize,
        time: Duration::from_millis(time),
        rounds: rounds as usize,
        timers: timers as usize,
        over: Duration::from_secs(over),
    };
    let wants = |what| only.as_deref().is_none_or(|only| only == what);
    if wants("lateness") {
        lateness::table(&options);
    }
    if wants("many") {
        many::table(&options);
    }
}

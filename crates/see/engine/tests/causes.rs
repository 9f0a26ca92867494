//! User code by cause, and locks that system calls take, in programs that measure both themselves. Skipped without root and BPF.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::{Seen, allowed, c, observe};
use ncpu_trials::{MOST, hold};

fn to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("causes-{}-{name}", std::process::id()))
}

/// Runs a program observed; the numbers that it writes into its last argument's file, and the tables.
fn run(name: &str, args: &[&str]) -> (Vec<f64>, Seen) {
    // The same loop takes up to a third longer where it lies across more lines of code, and the truth is a comparison of two.
    let (program, out) = (c(name, &["-O2", "-falign-loops=64", "-falign-functions=64"]), to("out"));
    let mut argv = vec![program.into_os_string()];
    argv.extend(args.iter().map(Into::into));
    argv.push(out.clone().into());
    let seen = observe(&argv, |_| {});
    assert_eq!(seen.ended.status, 0, "{argv:?}");
    let text = std::fs::read_to_string(&out).expect("its output");
    std::fs::remove_file(out).expect("it was made");
    (text.split_whitespace().map(|n| n.parse().expect("seconds")).collect(), seen)
}

/// Timer samples of the program in a class whose detail holds.
fn samples(seen: &Seen, class: &str, detail: impl Fn(&str) -> bool) -> f64 {
    let of = |(t, r): &(&ncpu_table::Table, usize)| {
        t.text(*r, "at") == Some("target")
            && t.text(*r, "class") == Some(class)
            && detail(t.text(*r, "detail").unwrap_or(""))
    };
    seen.rows("samples").filter(of).filter_map(|(t, r)| t.number(r, "samples")).sum()
}

#[test]
fn user_code_spins_where_it_pauses_whatever_it_is_called() {
    let Some(_one) = allowed() else { return };
    let (truth, seen) = run("spins", &["pause", "2"]);
    let (spins, work) = (samples(&seen, "spin", |f| f == "turn"), samples(&seen, "user", |_| true));
    let (part, of) = (spins / (spins + work), truth[1] / (truth[0] + truth[1]));
    println!("spinning {part:.3} of the time, truth {of:.3}");
    assert!((part - of).abs() < 0.1, "{part} {of}");
    assert!(samples(&seen, "user", |f| f == "turn") < 0.1 * spins, "the whole loop");
    // The thread that works is what the other waits for.
    let path = |(t, r): &(&ncpu_table::Table, usize)| {
        t.text(*r, "reason") == Some("ulock or serial")
            && t.text(*r, "code").is_some_and(|code| code.starts_with("update_stats_locked"))
    };
    let idle: f64 = seen.rows("critical_path").filter(path).filter_map(|(t, r)| t.number(r, "idle")).sum();
    assert!(idle > 0.1 * truth[1] && idle < 1.2 * truth[1], "{idle} of {}", truth[1]);

    let (_, seen) = run("spins", &["names", "1"]);
    for class in ["spin", "user spin", "wait spin"] {
        assert_eq!(samples(&seen, class, |_| true), 0.0, "{class}");
    }
    assert!(samples(&seen, "user", |f| f == "update_stats_locked") > 50.0);
}

#[test]
fn locks_of_system_calls_have_their_name_and_time() {
    let Some(_one) = allowed() else { return };
    for (kind, ty, begins) in
        [("flock", "lock", ""), ("fcntl", "lock", ""), ("sem", "semaphore", "semaphore set ")]
    {
        let path = to("a lock's file");
        let (truth, seen) = run("call_locks", &[kind, path.to_str().expect("a path"), "1.5"]);
        let rows: Vec<_> = seen
            .rows("user_locks")
            .filter(|(t, r)| t.text(*r, "type") == Some(ty))
            .map(|(t, r)| (t.text(r, "lock").unwrap_or("").to_string(), t.number(r, "block").unwrap_or(0.0)))
            .collect();
        let waited: f64 = rows.iter().map(|(_, block)| block).sum();
        println!("{kind}: {waited:.2} of {:.2} s", truth[0]);
        assert!(truth[0] > 0.5, "they wait for each other: {truth:?}");
        assert!(
            waited > 0.5 * truth[0] && waited < 1.1 * truth[0],
            "{kind}: {waited} of {truth:?}: {rows:?}"
        );
        let named = |lock: &str| match begins {
            "" => lock == path.to_str().expect("a path"),
            begins => lock.starts_with(begins),
        };
        assert!(rows.iter().all(|(lock, _)| named(lock)), "{rows:?}");
        let _ = std::fs::remove_file(path);
    }
}

/// The part of user time in these functions that has one of these causes.
fn part_of(seen: &Seen, functions: &[&str], causes: &[&str]) -> f64 {
    let rows = || {
        seen.rows("user_causes").filter(|(t, r)| {
            t.text(*r, "function").is_some_and(|f| functions.contains(&f.split('.').next().unwrap_or(f)))
        })
    };
    let samples = |of: &dyn Fn(&str) -> bool| -> f64 {
        let of = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "cause").is_some_and(of);
        rows().filter(of).filter_map(|(t, r)| t.number(r, "samples")).sum()
    };
    let all = samples(&|_| true);
    assert!(all >= 100.0, "{all} samples in {functions:?}");
    samples(&|cause| causes.contains(&cause)) / all
}

/// The instruction of these functions that has most of a cause's samples, and the part that table `instructions` has of the functions'
/// samples.
fn hottest(seen: &Seen, functions: &[&str], cause: &str) -> (String, f64) {
    let is_one = |(t, r): &(&ncpu_table::Table, usize)| {
        t.text(*r, "function").is_some_and(|f| functions.contains(&f.split('.').next().unwrap_or(f)))
    };
    let sum = |name: &str| -> f64 {
        seen.rows(name).filter(is_one).filter_map(|(t, r)| t.number(r, "samples")).sum()
    };
    let of_cause = seen
        .rows("instructions")
        .filter(is_one)
        .filter(|(t, r)| t.text(*r, "cause") == Some(cause))
        .filter_map(|(t, r)| Some((t.number(r, "samples")?, t.text(r, "text").unwrap_or("").to_string())));
    let most = of_cause.max_by(|a, b| a.0.total_cmp(&b.0)).expect("an instruction of this cause");
    (most.1, sum("instructions") / sum("user_causes"))
}

/// Its process is gone when its samples are divided.
#[test]
#[cfg(target_arch = "x86_64")]
fn code_made_at_run_time_is_read_while_its_process_lives() {
    let Some(_one) = allowed() else { return };
    let (truth, seen) = run("made", &["1.5"]);
    let atomic = part_of(&seen, &["[anon]"], &["atomic operations", "shared lines"]);
    println!("{:.0} % of {:.2} s in the atomic instruction", 100.0 * atomic, truth[0]);
    // Two further instructions take a fifth of the loop at most.
    assert!(atomic > 0.6, "{atomic}");
    let cause = if part_of(&seen, &["[anon]"], &["shared lines"]) > 0.3 {
        "shared lines"
    } else {
        "atomic operations"
    };
    let (text, part) = hottest(&seen, &["[anon]"], cause);
    assert!(text.starts_with("lock ") && (0.5..1.001).contains(&part), "{text} {part}");
}

mod quiet {
    use super::*;

    /// Points of a hundred that a share may be off.
    const OFF: f64 = 0.1;

    #[test]
    fn loops_are_divided_as_timing_their_parts_alone_divides_them() {
        let Some(_one) = allowed() else { return };
        let (memory, long, atomic) = ("waiting for memory", "long operations", "atomic operations");
        // The instruction that takes the time is known from the program's source.
        for (how, function, cause, instruction, off) in [
            ("chase", "chase_alone", memory, Some("mov ("), OFF),
            ("chase40", "chase_and_40", memory, Some("mov ("), OFF),
            ("divide60", "divide_and_60", long, Some("div "), OFF),
            // The sums behind a division end with it, and some samples fall on them.
            ("apart", "divide_apart", long, Some("div "), 2.0 * OFF),
            ("atomic10", "atomic_and_10", atomic, Some("lock "), OFF),
            ("arithmetic", "only_60", memory, None, OFF),
        ] {
            hold(MOST, how, || {
                let (truth, seen) = run("parts", &[how, "1.2"]);
                let part = part_of(&seen, &[function], &[cause]);
                println!("{how}: {cause} {part:.3}, truth {:.3}", truth[0]);
                assert!((part - truth[0]).abs() < off, "{how}: {part} of {}", truth[0]);
                let computing = part_of(&seen, &[function], &["computing"]);
                assert!((computing - (1.0 - truth[0])).abs() < off, "{how}: {computing}, {}", truth[0]);
                let Some(instruction) = instruction.filter(|_| cfg!(target_arch = "x86_64")) else { return };
                let (text, part) = hottest(&seen, &[function], cause);
                assert!(text.starts_with(instruction), "{how}: {text}");
                assert!((0.98..1.001).contains(&part), "{how}: {part} of the samples");
            });
        }
    }

    #[test]
    fn shared_lines_have_the_time_that_they_take_and_their_variables_names() {
        let Some(_one) = allowed() else { return };
        if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
            println!("skipped: one CPU");
            return;
        }
        for (how, variable, sharing) in
            [("false", Some("counters"), "false"), ("atomic", Some("references"), "true"), ("own", None, "")]
        {
            hold(MOST, how, || {
                let (truth, seen) = run("sharing", &[how, "1.2"]);
                let part = part_of(&seen, &["shared", "work"], &["shared lines"]);
                let lines: BTreeSet<(String, String)> = seen
                    .rows("data")
                    .filter(|(t, r)| t.text(*r, "cause") == Some("shared lines"))
                    .map(|(t, r)| (t.text(r, "object"), t.text(r, "sharing")))
                    .map(|(object, sharing)| (object.unwrap_or("").into(), sharing.unwrap_or("").into()))
                    .collect();
                println!("{how}: {part:.3}, truth {:.3}: {lines:?}", truth[0]);
                let Some(variable) = variable else {
                    assert!(part == 0.0 && lines.is_empty(), "{how}: {part}, {lines:?}");
                    return;
                };
                assert!(truth[0] > 0.1, "its threads run at the same time: {truth:?}");
                assert!((part - truth[0]).abs() < 1.5 * OFF, "{how}: {part} of {}", truth[0]);
                assert_eq!(lines, [(variable.to_string(), sharing.to_string())].into(), "{how}");
            });
        }
    }
}

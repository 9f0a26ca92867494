//! How long those waited that were first in a lock's queue, held to how long the program says that it holds the lock: what
//! is left of that time. Needs root and BPF; says so and passes where there are none.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe};

fn to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// What was seen of `held.c`, and for how many microseconds it held its lock by its own account.
fn held(kind: &str) -> (Seen, f64) {
    let (program, out) = (to("held"), to("held-us"));
    let done = Command::new("gcc")
        .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/held.c"))
        .output()
        .expect("gcc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let seen = observe(&[program.clone().into(), kind.into(), out.clone().into()], |_| {});
    assert_eq!(seen.ended.status, 0, "{kind}");
    let text = std::fs::read_to_string(&out).expect("its output");
    for file in [program, out] {
        std::fs::remove_file(file).expect("it was made");
    }
    (seen, text.trim().parse().expect("a number"))
}

/// A bin of waits: from and to in microseconds, and how many.
type Bin = (f64, f64, f64);

/// Waits of the first for the lock of a type that most of them are for, shortest first.
fn most_waited(seen: &Seen, kind: &str, of_process: bool) -> (String, Vec<Bin>) {
    let mut locks = std::collections::BTreeMap::<String, Vec<Bin>>::new();
    for (t, r) in seen.rows("first_waits") {
        let number = |c| t.number(r, c).expect("a number");
        if t.text(r, "type") == Some(kind) && t.int(r, "pid").is_some() == of_process {
            assert_eq!(t.int(r, "ahead"), Some(0));
            let bin = (number("from"), number("to"), number("count"));
            locks.entry(t.text(r, "lock").expect("a name").into()).or_default().push(bin);
        }
    }
    let all = |bins: &[Bin]| bins.iter().map(|b| b.2).sum::<f64>();
    let most = locks.into_iter().max_by(|a, b| all(&a.1).total_cmp(&all(&b.1)));
    let (name, mut bins) = most.expect("somebody waited");
    bins.sort_by(|a, b| a.0.total_cmp(&b.0));
    (name, bins)
}

/// What the waits tell, as `ncpu_foresee::first` finds it: one over the density where it is highest.
fn told(bins: &[Bin]) -> f64 {
    let all: f64 = bins.iter().map(|b| b.2).sum();
    let mut densest = 0f64;
    // One bin for each length, whatever the intervals.
    let mut sums: Vec<Bin> = Vec::new();
    for bin in bins {
        match sums.last_mut() {
            Some(last) if last.0 == bin.0 => last.2 += bin.2,
            _ => sums.push(*bin),
        }
    }
    for i in 0..sums.len() {
        let mut inside = 0.0;
        for last in &sums[i..] {
            inside += last.2;
            if inside >= (0.12 * all).max(100f64.min(all / 3.0)) {
                densest = densest.max(inside / (last.1 - sums[i].0));
                break;
            }
        }
    }
    all / densest
}

#[test]
fn waits_of_the_first_for_a_mutex_of_the_program_last_for_what_is_left() {
    let Some(_one) = allowed() else { return };
    let (seen, truth) = held("mutex");
    let (_, bins) = most_waited(&seen, "lock", true);
    let n: f64 = bins.iter().map(|b| b.2).sum();
    assert!(n >= 100.0, "{n} waits");
    let told = told(&bins);
    if truth > 600.0 {
        // Who waits comes when the holder does, once others leave them a CPU, and not at any moment.
        eprintln!("skipped: held for {truth} us instead of 400, for others used the CPUs");
        return;
    }
    println!("held for {truth:.1} us; waits of the first say {told:.1}");
    assert!((0.4..2.5).contains(&(told / truth)), "{told} us for {truth}");
    // Hardly anybody waits for longer than it is held.
    let within: f64 = bins.iter().filter(|b| b.0 < 2.0 * truth).map(|b| b.2).sum();
    assert!(within > 0.8 * n, "{within} of {n}: {bins:?}");
    // Two threads: whoever waits is first, but for who was woken and did not get it. It counts where the other waited last.
    let all: f64 = seen
        .rows("user_locks")
        .filter(|(t, r)| t.text(*r, "type") == Some("lock"))
        .map(|(t, r)| t.number(r, "wakes").unwrap())
        .sum();
    assert!(n <= all && n > 0.15 * all, "{n} of {all}");
}

#[test]
fn waits_of_the_first_for_a_mutex_of_the_kernel_last_for_what_is_left() {
    let Some(_one) = allowed() else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: on one CPU nobody waits");
        return;
    }
    let (seen, truth) = held("file");
    let (name, bins) = most_waited(&seen, "mutex", false);
    let n: f64 = bins.iter().map(|b| b.2).sum();
    if n < 100.0 {
        eprintln!("skipped: {n} waits, for others used the CPUs");
        return;
    }
    let told = told(&bins);
    println!("{name} held for {truth:.1} us; waits of the first say {told:.1}");
    // Reads of two threads disturb one another, and whoever holds it may lose its CPU.
    assert!((0.3..3.0).contains(&(told / truth)), "{n}: {told} us for {truth}");
    // Whoever comes while the one that was woken has no CPU yet is not first.
    let all: f64 = seen
        .rows("locks")
        .filter(|(t, r)| t.text(*r, "lock") == Some(&name))
        .map(|(t, r)| t.number(r, "count").unwrap())
        .sum();
    assert!(n <= all && n > 0.1 * all, "{n} of {all}");
}

//! Waits of first waiters in a lock's queue, compared with the hold time that the program itself measures: they last
//! for the residual hold time. Needs root and BPF; skips with a message otherwise.

mod common;

use std::path::{Path, PathBuf};

use common::{Seen, allowed, c, observe};
use ncpu_trials::{MOST, hold};

fn to(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// The observation of `held.c`, and the microseconds for which it held its lock by its own account.
fn held(kind: &str) -> (Seen, f64) {
    let (program, out) = (c("held", &["-O2"]), to("held-us"));
    let seen = observe(&[program.into(), kind.into(), out.clone().into()], |_| {});
    assert_eq!(seen.ended.status, 0, "{kind}");
    let text = std::fs::read_to_string(&out).expect("its output");
    std::fs::remove_file(out).expect("it was made");
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
    let (name, mut bins) = most.expect("a lock with waiters");
    bins.sort_by(|a, b| a.0.total_cmp(&b.0));
    (name, bins)
}

/// The bin of the wait that a part of all waits is shorter than.
fn quantile(bins: &[Bin], part: f64) -> Bin {
    let mut left = part * bins.iter().map(|b| b.2).sum::<f64>();
    *bins.iter().find(|b| (left -= b.2, left).1 <= 0.0).expect("waits")
}

/// A waiter that comes at any moment of a hold time T waits for up to T, in the median for T/2, and until it runs
/// again, which takes `late` us at most in the median. The median of N such waits has a standard error of T/2/sqrt(N).
fn half_of(truth: f64, late: f64, bins: &[Bin]) {
    let n: f64 = bins.iter().map(|b| b.2).sum();
    let (least, most, _) = quantile(bins, 0.5);
    let error = 3.0 * 0.5 * truth / n.sqrt();
    println!("held for {truth:.1} us; the median of {n} waits of the first is {least:.1} to {most:.1} us");
    let half = 0.5 * truth;
    assert!(most + error > half, "{least} to {most} +- {error} us of {half}: {bins:?}");
    assert!(least - error < half + late, "{least} to {most} +- {error} us of {half}: {bins:?}");
}

mod quiet {
    use super::*;

    #[test]
    fn waits_of_the_first_for_a_mutex_of_the_program_last_for_what_is_left() {
        let Some(_one) = allowed() else { return };
        hold(MOST, "a mutex of the program", || {
            let (seen, truth) = held("mutex");
            let (_, bins) = most_waited(&seen, "lock", true);
            let n: f64 = bins.iter().map(|b| b.2).sum();
            assert!(n >= 100.0, "{n} waits");
            half_of(truth, 30.0, &bins);
            // Hardly anybody waits for longer than it is held.
            let within: f64 = bins.iter().filter(|b| b.0 < 2.0 * truth).map(|b| b.2).sum();
            assert!(within > 0.8 * n, "{within} of {n}: {bins:?}");
            // Two threads: every waiter is first, except one that was woken and did not get the lock. A wait counts
            // where the other thread waited last.
            let all: f64 = seen
                .rows("user_locks")
                .filter(|(t, r)| t.text(*r, "type") == Some("lock"))
                .map(|(t, r)| t.number(r, "wakes").unwrap())
                .sum();
            assert!(n <= all && n > 0.15 * all, "{n} of {all}");
        });
    }

    #[test]
    fn waits_of_the_first_for_a_mutex_of_the_kernel_last_for_what_is_left() {
        let Some(_one) = allowed() else { return };
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            eprintln!("skipped: on one CPU nobody waits");
            return;
        }
        hold(MOST, "a mutex of the kernel", || {
            let (seen, truth) = held("file");
            let (name, bins) = most_waited(&seen, "mutex", false);
            let n: f64 = bins.iter().map(|b| b.2).sum();
            assert!(n >= 100.0, "{n} waits");
            // Reads of two threads disturb one another.
            half_of(truth, 2.5, &bins);
            // A thread that comes while the woken one has no CPU yet is not first.
            let all: f64 = seen
                .rows("locks")
                .filter(|(t, r)| t.text(*r, "lock") == Some(&name))
                .map(|(t, r)| t.number(r, "count").unwrap())
                .sum();
            assert!(n <= all && n > 0.1 * all, "{n} of {all}");
        });
    }
}

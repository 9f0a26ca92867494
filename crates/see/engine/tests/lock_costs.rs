//! The cost of a lock beside the time that threads wait for it, in a C program with clocks of its own: the calls made for the
//! lock, and the time that its waiters stand on run queues. Needs root and BPF; otherwise it prints so and passes.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Seen, allowed, observe};
use ncpu_trials::{MOST, hold};

/// `lock_costs.c`, compiled for a test.
struct Program(PathBuf);

impl Program {
    fn compile(what: &str) -> Program {
        let to =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lock-costs-{what}-{}", std::process::id()));
        let done = Command::new("gcc")
            .args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&to)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/lock_costs.c"))
            .output()
            .expect("gcc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Program(to)
    }

    fn observe(&self, args: &[&str]) -> Seen {
        let argv: Vec<_> =
            std::iter::once(self.0.clone().into()).chain(args.iter().map(|a| a.into())).collect();
        let seen = observe(&argv, |_| {});
        assert_eq!(seen.ended.status, 0, "{args:?}");
        seen
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.1 * b + 0.005
}

/// Seconds of a reason in table `runnable`.
fn stood(seen: &Seen, reason: &str, column: &str) -> f64 {
    let of = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "reason") == Some(reason);
    seen.rows("runnable").filter(of).filter_map(|(t, r)| t.number(r, column)).sum()
}

#[test]
fn a_call_belongs_to_the_futex_that_it_is_for() {
    let Some(_one) = allowed() else { return };
    let seen = Program::compile("calls").observe(&["calls"]);
    let (mut samples, mut without) = (BTreeMap::new(), 0);
    for (t, r) in seen.rows("stacks").filter(|(t, r)| t.text(*r, "kind") == Some("on-cpu")) {
        let n = t.int(r, "samples").expect("samples");
        let in_call = t.text(r, "stack").is_some_and(|s| s.contains("do_futex"));
        match t.text(r, "lock") {
            Some(lock) => *samples.entry(lock.to_string()).or_insert(0) += n,
            None if in_call => without += n,
            None => (),
        }
    }
    let of = |lock: &str| samples.get(lock).copied().unwrap_or(0) as f64;
    let (often, seldom) = (of("often"), of("seldom"));
    assert_eq!((samples.len(), without), (2, 0), "{samples:?}");
    assert!(often + seldom > 50.0, "{samples:?}");
    // Three of four, within the error of the number of samples.
    let (share, error) = (often / (often + seldom), 4.0 * (0.75 * 0.25 / (often + seldom)).sqrt());
    assert!((share - 0.75).abs() < error + 0.02, "{samples:?}");
}

#[test]
fn threads_that_a_lock_had_put_to_sleep_stand_on_run_queues_for_it() {
    let Some(_one) = allowed() else { return };
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return eprintln!("skipped: one CPU is all there are");
    }
    let program = Program::compile("convoy");
    let said = program.0.with_extension("said");
    let seen = program.observe(&["convoy", said.to_str().expect("a path")]);
    let truth = std::fs::read_to_string(&said).expect("what it says");
    std::fs::remove_file(said).expect("it was written");
    let truth: Vec<f64> = truth.split_whitespace().map(|ns| ns.parse::<f64>().expect("ns") / 1e9).collect();
    let [in_read, in_lock] = truth[..] else { panic!("{truth:?}") };

    let of_lock = |column: &str| -> f64 {
        let of = |(t, r): &(&ncpu_table::Table, usize)| t.text(*r, "lock") == Some("convoy_lock");
        seen.rows("user_locks").filter(of).filter_map(|(t, r)| t.number(r, column)).sum()
    };
    let by_reason = |reason: &str| stood(&seen, reason, "queued") + stood(&seen, reason, "waking");
    assert!(in_lock > 0.01, "the lock's waiter stood behind nobody: {truth:?}");
    let (queued, woke) = (of_lock("queued"), of_lock("waking"));
    assert!(near(queued + woke, in_lock), "{queued} + {woke} s, {in_lock} by the kernel's account");
    assert!(woke <= 0.1 * in_lock + 0.005, "that CPU never idles: {woke}");
    // The first waits may be over before anybody has judged them: they are sleeps until then.
    let from_locks = by_reason("user lock");
    assert!((0.7 * in_lock..1.1 * in_lock + 0.005).contains(&from_locks), "{from_locks} s, {in_lock}");
    assert!(by_reason("asleep") >= 0.9 * in_read - 0.005, "{} s, {in_read}", by_reason("asleep"));
    // The hogs take turns on one CPU for all of the time.
    assert!(by_reason("preempted") > 1.0 * seen.elapsed, "{} s", by_reason("preempted"));
    let all: f64 =
        ["new", "preempted", "kernel lock", "user lock", "I/O", "asleep"].map(by_reason).iter().sum();
    let (beside, idle) = (seen.sum("runnable", "idle"), seen.sum("idle_time", "runq"));
    assert!((beside - idle).abs() < 1e-6, "{beside} s of idle CPUs by reason, {idle} in all");
    let lat = seen.sum("threads", "LAT");
    assert!(near(all, lat), "{all} s by reason, LAT {lat}");
}

#[test]
fn threads_that_wait_in_conditions_of_their_own_at_one_place_are_a_pool() {
    let Some(_one) = allowed() else { return };
    let seen = Program::compile("pool").observe(&["pool"]);
    let mut of: BTreeMap<(String, String), [f64; 4]> = BTreeMap::new();
    for (t, r) in seen.rows("user_locks") {
        let Some(place) = t.text(r, "caller").filter(|caller| *caller == "await_work") else { continue };
        let number = |column: &str| t.number(r, column).expect("a number");
        let sums = of.entry((place.into(), t.text(r, "type").unwrap_or("").into())).or_default();
        sums[0] += number("count");
        sums[1] += number("block");
        sums[2] = sums[2].max(number("threads"));
        sums[3] = sums[3].max(number("futexes"));
    }
    let pool = of.get(&("await_work".to_string(), "condition".to_string())).copied();
    let Some([count, block, threads, futexes]) = pool else { panic!("{of:?}") };
    // The first waits may be over before anybody has judged them.
    assert!((500.0..=650.0).contains(&count), "{of:?}");
    // All the time but for that on run queues, behind whatever else runs.
    assert!((2.0..=6.0).contains(&(block / seen.elapsed)), "six threads wait in {} s: {of:?}", seen.elapsed);
    assert!((5.0..=6.0).contains(&threads), "{of:?}");
    assert!((6.0..=12.0).contains(&futexes), "a condition of glibc has two words: {of:?}");
}

mod quiet {
    use super::*;

    #[test]
    fn threads_that_take_turns_on_cpus_of_their_own_stand_behind_nobody() {
        let Some(_one) = allowed() else { return };
        if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
            return eprintln!("skipped: one CPU is all there are");
        }
        let program = Program::compile("turns");
        hold(MOST, "turns", || {
            let seen = program.observe(&["turns"]);
            let (queued, waking) = (stood(&seen, "asleep", "queued"), stood(&seen, "asleep", "waking"));
            let others: f64 = seen.rows("queued").filter_map(|(t, r)| t.number(r, "seconds")).sum();
            assert!(waking > 0.005, "{waking} s until CPUs had woken");
            assert!(
                queued <= 0.1 * waking + 1.2 * others + 0.02,
                "{queued} s queued, {waking} until CPUs had woken, {others} behind others"
            );
            assert!(seen.sum("idle_time", "runq") <= queued + 0.02, "{queued}");
        });
    }
}

//! Probes keep to their budget: in programs in which each hit would cost them their speed they thin out or go, and say so; in
//! others they are exact. Needs root and BPF, and Go for one test; skips with a line otherwise.

mod common;

use common::{Seen, allowed, go, observe, part, threads_alone};
use ncpu_engine::engine::{Config, Probes};

fn auto(config: &mut Config) {
    config.probes = Probes::Auto;
}

fn calls(config: &mut Config) {
    auto(config);
    threads_alone(config);
}

/// Sum of a column over rows of user locks of a type.
fn of(seen: &Seen, kind: &str, column: &str) -> f64 {
    let rows = seen.rows("user_locks").filter(|(t, r)| t.text(*r, "type") == Some(kind));
    rows.filter_map(|(t, r)| t.number(r, column)).sum()
}

fn noted(seen: &Seen, words: &str) -> bool {
    seen.notes.iter().any(|note| note.contains(words))
}

#[test]
fn goroutines_that_park_all_the_time_are_counted_in_windows() {
    let Some(_one) = allowed() else { return };
    let Some(program) = go("parked", "-ldflags=") else { return };
    let run = |what: &str, probes| {
        let seen = observe(&[program.clone().into(), what.into()], |config| config.probes = probes);
        assert_eq!(seen.ended.status, 0);
        seen
    };
    let hot = run("hot", Probes::Auto);
    let (count, counted) = (of(&hot, "sync.Mutex", "count"), of(&hot, "sync.Mutex", "counted"));
    assert!(noted(&hot, "in short windows") && noted(&hot, "scaled"), "{:#?}", hot.notes);
    // By how much depends on when the first window closed.
    assert!(count > 1.1 * counted && counted > 100.0, "{count} of {counted}");
    assert!(of(&hot, "sync.Mutex", "error") > 0.0);
    // At any moment seven of eight wait. Waits that began before a window are not seen, so the time is too short; the note
    // says so.
    let waited = of(&hot, "sync.Mutex", "block");
    assert!(waited > 0.0 && waited < 14.0 * hot.elapsed, "{waited} s of {} s", hot.elapsed);
    assert!(noted(&hot, "at least"), "{:#?}", hot.notes);
    // And layers sum to the capacity.
    let cpus = hot.rows("summary").next().and_then(|(t, r)| t.number(r, "cpus")).expect("CPUs");
    let states = ["idle", "target", "other", "ncpu", "spin", "hardirq", "softirq", "tlb"];
    let states: f64 = states.iter().map(|state| hot.sum("cpu_time", state)).sum();
    assert!((states / (cpus * hot.elapsed) - 1.0).abs() < 0.001, "{states} of {cpus} x {}", hot.elapsed);

    let all = run("hot", Probes::All);
    assert!(!noted(&all, "in short windows"), "{:#?}", all.notes);
    assert_eq!(of(&all, "sync.Mutex", "count"), of(&all, "sync.Mutex", "counted"));

    let cold = run("cold", Probes::Auto);
    assert!(!noted(&cold, "in short windows"), "{:#?}", cold.notes);
    let count = of(&cold, "sync.Mutex", "count");
    assert!(count > 50.0 && count == of(&cold, "sync.Mutex", "counted"), "{count}");
    assert_eq!(of(&cold, "sync.Mutex", "error"), 0.0);

    let off = run("hot", Probes::Off);
    assert!(noted(&off, "--probes off") && of(&off, "sync.Mutex", "count") == 0.0, "{:#?}", off.notes);
    std::fs::remove_file(program).expect("it was built");
}

#[test]
fn probes_on_libncpus_locks_go_where_they_are_hit_all_the_time() {
    let Some(_one) = allowed() else { return };
    let hot = observe(&part("try_all_the_time"), auto);
    assert_eq!(hot.ended.status, 0);
    assert!(noted(&hot, "locks of libncpu: probes were hit") && noted(&hot, "detached"), "{:#?}", hot.notes);
    let all = observe(&part("try_all_the_time"), |_| {});
    assert!(!noted(&all, "detached"), "{:#?}", all.notes);
    let [some, every] = [&hot, &all].map(|seen| of(seen, "mutex", "count"));
    assert!(some > 100.0 && every > 5.0 * some, "{some} before they went, {every} in all");
    let cold = observe(&part("try_now_and_then"), auto);
    assert!(!noted(&cold, "detached"), "{:#?}", cold.notes);
    assert!(of(&cold, "mutex", "count") >= 50.0, "exact");
}

#[test]
fn calls_that_are_too_many_to_trace_are_sampled() {
    let Some(_one) = allowed() else { return };
    let hot = observe(&part("call_all_the_time"), calls);
    assert_eq!(hot.ended.status, 0);
    assert!(noted(&hot, "too many to trace"), "{:#?}", hot.notes);
    let sum = |seen: &Seen, column: &str| seen.sum("threads", column);
    let parts = sum(&hot, "USR") + sum(&hot, "SYS") + sum(&hot, "TRP") + sum(&hot, "NCPU");
    let cpu = sum(&hot, "CPU");
    assert!(
        cpu > 0.2 && (parts / cpu - 1.0).abs() < 0.001,
        "the parts of the time on CPU are it: {parts} of {cpu}"
    );
    let error = sum(&hot, "error");
    assert!(error > 0.0, "and how uncertain they are");
    // The kernel's own split is by its 250 ticks a second.
    let (user, told) = (sum(&hot, "USR") / cpu, hot.ended.user / (hot.ended.user + hot.ended.system));
    assert!((user - told).abs() < 0.15, "{user} and {told}");
    let cold = observe(&part("call_now_and_then"), calls);
    assert!(!noted(&cold, "too many to trace"), "{:#?}", cold.notes);
    assert!(sum(&cold, "SCL") >= 100.0 && sum(&cold, "error") == 0.0);
    let all = observe(&part("call_all_the_time"), |config| {
        calls(config);
        config.probes = Probes::All;
    });
    assert!(sum(&all, "SCL") > 100_000.0 && sum(&all, "error") == 0.0, "each was traced");
}

mod parts {
    use std::time::{Duration, Instant};

    use libncpu::Mutex;

    static TAKEN: Mutex<u32> = Mutex::new(0);

    /// Finds the lock taken, and gives up at once.
    fn try_it(every: Duration, times: u32) {
        let _held = TAKEN.lock();
        let tries = std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(1);
            for _ in 0..times {
                assert!(TAKEN.try_lock_for(Duration::ZERO).is_none());
                if !every.is_zero() {
                    std::thread::sleep(every);
                }
                if Instant::now() > end {
                    return;
                }
            }
        });
        tries.join().unwrap();
    }

    #[test]
    #[ignore = "a part of another test"]
    fn try_all_the_time() {
        try_it(Duration::ZERO, u32::MAX);
    }

    #[test]
    #[ignore = "a part of another test"]
    fn try_now_and_then() {
        try_it(Duration::from_millis(10), 60);
    }

    #[test]
    #[ignore = "a part of another test"]
    fn call_all_the_time() {
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            for _ in 0..1000 {
                std::hint::black_box(std::os::unix::process::parent_id());
            }
        }
    }

    #[test]
    #[ignore = "a part of another test"]
    fn call_now_and_then() {
        for _ in 0..100 {
            std::hint::black_box(std::os::unix::process::parent_id());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

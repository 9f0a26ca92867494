//! Why a thread sleeps in a futex, in C programs that report it themselves: a futex is a lock only if the waiter's
//! stack says so, also at the first and only wait. Needs root and BPF; skips with a message otherwise.

mod common;

use std::collections::BTreeMap;

use common::{Seen, allowed, c, observe};

/// The observation of one part: seconds asleep for a lock and for anything else, and the types of its futexes with
/// the seconds blocked in each.
#[derive(Debug)]
struct Waits {
    lock: f64,
    sleep: f64,
    /// CPUs that were idle for a user lock, seconds.
    idle_for_lock: f64,
    types: Vec<(String, f64)>,
    /// Threads that ended waits for locks, with the seconds of those.
    holders: BTreeMap<String, f64>,
}

impl Waits {
    fn of(part: &str) -> Waits {
        Waits::compiled(part, &[])
    }

    fn compiled(part: &str, how: &[&str]) -> Waits {
        // As any program is compiled: without frame pointers.
        let program = c("waits", &[&["-O2"], how].concat());
        let seen: Seen = observe(&[program.into(), part.into()], |_| {});
        assert_eq!(seen.ended.status, 0, "{part}");
        let types = seen.rows("user_locks").map(|(t, r)| {
            (t.text(r, "type").expect("a type").to_string(), t.number(r, "block").expect("seconds"))
        });
        let mut holders = BTreeMap::new();
        for (t, r) in seen.rows("user_locks").filter(|(t, r)| t.text(*r, "type") == Some("lock")) {
            let Some(holder) = t.text(r, "holder") else { continue };
            *holders.entry(holder.to_string()).or_default() += t.number(r, "block").expect("seconds");
        }
        Waits {
            holders,
            lock: seen.sum("threads", "LCK"),
            sleep: seen.sum("threads", "SLP"),
            idle_for_lock: seen.sum("idle_time", "ulock"),
            types: types.collect(),
        }
    }

    fn blocked(&self, kind: &str) -> f64 {
        self.types.iter().filter(|(t, _)| t == kind).map(|(_, s)| s).sum()
    }
}

#[test]
fn who_waits_for_another_to_come_or_to_send_work_waits_for_no_lock() {
    let Some(_one) = allowed() else { return };
    // The word that each waits at passes through the values by which mutexes are guessed.
    for part in ["barrier", "condition", "queue"] {
        let w = Waits::of(part);
        // Eight waits of 0.15 s. The condition's mutex may be waited for a moment.
        assert!(w.sleep > 0.9 && w.lock < 0.15 && w.idle_for_lock < 0.15, "{part}: {w:?}");
        assert!(w.blocked("lock") < 0.15, "{part}: {w:?}");
        let kind = if part == "queue" { "semaphore" } else { "condition" };
        assert!(w.blocked(kind) > 0.9, "{part}: {w:?}");
    }
}

#[test]
fn a_mutex_and_a_semaphore_that_stands_for_one_are_locks() {
    let Some(_one) = allowed() else { return };
    for part in ["mutex", "semaphore"] {
        let w = Waits::of(part);
        // Twenty times each holds it 0.03 s while the other waits; of a semaphore the first few are no lock yet.
        assert!(w.lock > 0.5, "{part}: {w:?}");
    }
}

#[test]
fn a_condition_that_stands_for_a_lock_is_one_that_was_held_by_who_posts_it() {
    let Some(_one) = allowed() else { return };
    let w = Waits::of("condition_lock");
    // Sixty times each holds it 0.02 s while the other waits; the first few are no lock yet.
    assert!(w.lock > 0.3, "{w:?}");
    let told: f64 = w.holders.values().sum();
    assert!(told > 0.8 * w.lock && w.holders.keys().all(|h| h.starts_with("waits")), "{w:?}");
}

/// No name on the stack says what is waited for.
#[test]
fn a_lock_of_a_stripped_program_is_unknown_and_no_lock() {
    let Some(_one) = allowed() else { return };
    for part in ["mutex", "condition"] {
        let w = Waits::compiled(part, &["-static", "-s"]);
        assert!(w.blocked("unknown") > 0.5, "{part}: {w:?}");
        assert!(w.types.iter().all(|(kind, _)| kind == "unknown"), "{part}: {w:?}");
        assert!(w.lock < 0.05 && w.idle_for_lock < 0.05, "{part}: {w:?}");
    }
}

#[test]
fn memory_of_a_mutex_that_becomes_a_queue_is_no_lock_any_more() {
    let Some(_one) = allowed() else { return };
    let w = Waits::of("reused");
    // Ten times each holds the mutex for 0.03 s; then twenty waits of 0.15 s for jobs. How many of those pass before a
    // stack is looked at again depends on what else the machine does. Never looked at again, none would be a semaphore.
    assert!(w.lock > 0.0 && w.blocked("semaphore") > 0.05, "{w:?}");
}

#[test]
fn a_wait_in_progress_is_charged_as_what_it_turns_out_to_be() {
    let Some(_one) = allowed() else { return };
    let w = Waits::of("phases");
    // One wait at a barrier for 1.8 s, one for a mutex for 1.2 s: neither kind had been seen before.
    assert!((1.1..1.5).contains(&w.lock), "{w:?}");
    assert!(w.sleep > 1.6, "{w:?}");
    assert!(w.idle_for_lock < 1.4, "{w:?}");
}

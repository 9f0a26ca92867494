//! Locks by what waiting for them took.

use ncpu_record::Recording;

use crate::model::LockPart;

/// Locks whose waits are less than this share of the program's time tell nothing.
const LEAST: f64 = 0.001;
/// The most locks that are modelled.
const MOST: usize = 8;

/// How a kind of lock of a recording is simulated.
fn kind(of: &str, kernel: bool) -> &'static str {
    match of {
        "mutex" | "rwsem" | "rwlock" | "percpu-rwsem" | "rt_mutex" => "mutex",
        // Its waiters sleep at once.
        "lock" if !kernel => "block",
        _ if kernel => "qspin",
        _ => "mutex",
    }
}

/// How often each was taken is not recorded, only how often somebody had to wait: with R threads running, a share rho of
/// the time held and A acquisitions, A rho (R-1)/R wait, and rho = A S / elapsed.
pub(super) fn locks(
    recording: &Recording,
    elapsed: f64,
    running: f64,
    units: f64,
    threads: u32,
    notes: &mut Vec<String>,
) -> Vec<LockPart> {
    let mut found = Vec::new();
    for (name, kernel) in [("locks", true), ("user_locks", false)] {
        let Some(table) = recording.tables.get(name).and_then(|t| t.group_by(&["lock", "type"]).ok()) else {
            continue;
        };
        for row in 0..table.num_rows() {
            let number = |c: &str| table.number(row, c).unwrap_or(0.0);
            let kind = table.text(row, "type").unwrap_or_default();
            if !kernel && !["lock", "mutex", "queue lock", "rwlock"].contains(&kind) {
                continue;
            }
            let lock = table.text(row, "lock").unwrap_or_default().to_string();
            // Each CPU has its own: more CPUs have more of them.
            if kernel && lock.starts_with("rq(") {
                continue;
            }
            found.push((lock, kind.to_string(), kernel, number("count"), number("spin") + number("block")));
        }
    }
    found.sort_by(|a, b| b.4.total_cmp(&a.4));
    let total = found.len();
    found.retain(|f| f.3 >= 20.0 && f.4 > LEAST * elapsed);
    found.truncate(MOST);
    if found.is_empty() {
        notes.push(
            match total {
                0 => "no lock was waited for, so none is in the model: on more CPUs one may be; ",
                _ => "no lock was waited for enough to be modelled; ",
            }
            .to_string()
                + "record with more threads or more CPUs, or write locks into a model (--to-model)",
        );
    }
    let running = running.min(f64::from(threads)).max(1.05);
    found
        .into_iter()
        .map(|(name, of, kernel, count, wait)| {
            let hold = wait / count;
            let takes = (count * elapsed * running / (hold * (running - 1.0))).sqrt();
            // It cannot be held for longer than there was.
            let takes = takes.max(count).min(0.9 * elapsed / hold.max(1e-12)).max(count);
            LockPart {
                name,
                kind: kind(&of, kernel).into(),
                kernel,
                takes: takes / units,
                hold_ns: hold * 1e9,
                cv: 0.5,
                reads: 0.0,
                copies: 1,
                waiter_ns: 20.0,
            }
        })
        .collect()
}

/// How often somebody waited for each lock of a model a second, and for how long, ns.
pub(super) fn waits(recording: &Recording, locks: &[LockPart], elapsed: f64) -> Vec<(f64, f64)> {
    let of = |lock: &LockPart| {
        let (mut count, mut wait) = (0.0, 0.0);
        if let Some(t) = recording.tables.get(if lock.kernel { "locks" } else { "user_locks" }) {
            for r in (0..t.num_rows()).filter(|&r| t.text(r, "lock") == Some(&lock.name)) {
                count += t.number(r, "count").unwrap_or(0.0);
                wait += t.number(r, "spin").unwrap_or(0.0) + t.number(r, "block").unwrap_or(0.0);
            }
        }
        (count / elapsed, wait / count.max(1.0) * 1e9)
    };
    locks.iter().map(of).collect()
}

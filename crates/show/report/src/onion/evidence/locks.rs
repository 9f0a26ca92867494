//! Locks: which ones threads wait for, and which threads wait.

use ncpu_schema::{Layer, lock_callers, locks, sleeps};
use ncpu_table::Table;

use super::{Context, listed};
use crate::locks::is_user_lock;
use crate::onion::SMALL;

/// The callers of a lock from walked contentions, `spin` or `block` deciding. Readers and writers
/// differ by the type.
fn callers(context: &Context<'_>, lock: &str, ty: &str, by: &str) -> String {
    use lock_callers::col;
    let Some(ranked) = context.ranked(lock_callers::NAME, &[col::lock, col::ty, col::caller], by) else {
        return String::new();
    };
    let of: Vec<(String, f64)> = (0..ranked.num_rows())
        .filter(|&r| ranked.text(r, col::lock) == Some(lock) && ranked.text(r, col::ty) == Some(ty))
        .filter_map(|r| Some((ranked.text(r, col::caller)?.to_string(), ranked.number(r, by)?)))
        .collect();
    let total: f64 = of.iter().map(|(_, s)| s).sum();
    if total <= 0.0 {
        return String::new();
    }
    let top: Vec<_> = of.into_iter().take(2).map(|(c, s)| (c, s / total)).collect();
    format!(" from {}", listed(&top))
}

pub(super) fn kernel_locks(context: &Context<'_>, by: &str) -> Vec<String> {
    let Some(ranked) = context.ranked(locks::NAME, &[locks::col::lock, locks::col::ty], by) else {
        return Vec::new();
    };
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, by)).sum();
    (0..ranked.num_rows().min(3))
        .filter_map(|r| {
            let (lock, s) = (ranked.text(r, locks::col::lock)?, ranked.number(r, by)?);
            let ty = ranked.text(r, locks::col::ty)?;
            if s <= 0.01 * total {
                return None;
            }
            let n = ranked.int(r, locks::col::count)?.max(1);
            Some(format!(
                "{lock} ({ty}) {:.0} %: {n} waits, {:.1} us {by} each{}",
                100.0 * s / total,
                s * 1e6 / n as f64,
                callers(context, lock, ty, by)
            ))
        })
        .collect()
}

/// Whether a row of table `user_locks` is of a lock: a semaphore that is one has that type.
fn is_held(kind: &str) -> bool {
    is_user_lock(kind) && kind != "semaphore"
}

/// The locks waited for, by where they are waited for: a server's locks may be thousands of words.
pub(super) fn user_locks(context: &Context<'_>) -> Vec<String> {
    const KEYS: [&str; 7] = ["lock", "holder", "type", "process", "caller", "pattern", "advice"];
    // A recording of an older version has no patterns.
    let named = context.table("user_locks").is_some_and(|t| t.columns().iter().any(|c| c.name == "pattern"));
    let keys = &KEYS[..if named { 7 } else { 5 }];
    let (place, lock) = (&keys[2..], [&["lock"][..], &keys[2..]].concat());
    let mut out = Vec::new();
    let ranked = |keys: &[&str]| context.ranked("user_locks", keys, "block");
    if let (Some(places), Some(single), Some(held)) = (ranked(place), ranked(&lock), ranked(keys)) {
        // Locks with tracepoints also report how long their waiters spun.
        let wait =
            |t: &Table, r: usize| t.number(r, "block").unwrap_or(0.0) + t.number(r, "spin").unwrap_or(0.0);
        let alike = |keys: &[&str], a: &Table, i: usize, b: &Table, j: usize| {
            keys.iter().all(|c| a.text(i, c) == b.text(j, c))
        };
        // The row that has most of the wait, if that is more than half of it.
        let most = |t: &Table, rows: &[usize], of: f64| {
            let top = rows.iter().copied().max_by(|&a, &b| wait(t, a).total_cmp(&wait(t, b)));
            top.filter(|&r| wait(t, r) > 0.5 * of)
        };
        let mut rows: Vec<usize> = (0..places.num_rows()).collect();
        rows.sort_by(|&a, &b| wait(&places, b).total_cmp(&wait(&places, a)));
        for r in rows {
            let text = |c: &str| places.text(r, c);
            let Some(kind) = text("type").filter(|k| is_held(k)) else { continue };
            let (n, s) = (places.int(r, "count").unwrap_or(0), places.number(r, "block").unwrap_or(0.0));
            let spun = match places.number(r, "spin").unwrap_or(0.0) {
                spin if spin > 0.0 => format!(" asleep, {spin:.3} spinning"),
                _ => String::new(),
            };
            let of: Vec<usize> =
                (0..single.num_rows()).filter(|&q| alike(place, &single, q, &places, r)).collect();
            let top = match of[..] {
                [one] => Some(one),
                _ => most(&single, &of, wait(&places, r)),
            };
            // What has an advice of its own is known to its users by name, and its address is not.
            let pattern = if named { text("pattern").filter(|_| text("advice").is_some()) } else { None };
            let which = match top {
                Some(q) if pattern.is_some() => {
                    let lock = single.text(q, "lock").filter(|l| !l.starts_with("0x") && Some(*l) != pattern);
                    match lock {
                        Some(lock) => format!("{} {lock}", pattern.unwrap_or_default()),
                        None => pattern.unwrap_or_default().to_string(),
                    }
                }
                None if pattern.is_some() => format!("{} ({})", pattern.unwrap_or_default(), of.len()),
                Some(q) => format!("{kind} {}", single.text(q, "lock").unwrap_or("?")),
                None if kind.ends_with('x') => format!("{} {kind}es", of.len()),
                None => format!("{} {kind}s", of.len()),
            };
            // Its waits may have been ended by many.
            let holder = top.and_then(|q| {
                let of: Vec<usize> =
                    (0..held.num_rows()).filter(|&h| alike(&lock, &held, h, &single, q)).collect();
                let most = most(&held, &of, wait(&single, q))?;
                // Whoever held it is told by a library, which does not see who wakes.
                let how = if held.int(most, "wakes").is_some() { "woken" } else { "held" };
                Some(format!(", {how} mostly by {}", held.text(most, "holder")?))
            });
            let caller = text("caller").filter(|c| !c.starts_with('[')).map(|c| format!(" in {c}"));
            out.push(format!(
                "{which} of {}{}: {n} waits, {s:.3} thread-s{spun}{}",
                text("process").unwrap_or("?"),
                caller.unwrap_or_default(),
                holder.unwrap_or_default()
            ));
            if out.len() == 2 {
                break;
            }
        }
    }
    out.extend(super::spinning(context, Layer::UserLock));
    out
}

/// What helps with the user lock that most of the waiting is for, where that is known.
pub(in crate::onion) fn top_advice(context: &Context<'_>) -> Option<String> {
    context.table("user_locks")?.columns().iter().find(|c| c.name == "advice")?;
    let ranked = context.ranked("user_locks", &["type", "pattern", "advice"], "block")?;
    let waited = |r: usize| ranked.number(r, "block").unwrap_or(0.0);
    let rows = || (0..ranked.num_rows()).filter(|&r| ranked.text(r, "type").is_some_and(is_held));
    let total: f64 = rows().map(waited).sum();
    let top = rows().next().filter(|&r| waited(r) >= 0.5 * total && total > 0.0)?;
    Some(format!("{}: {}", ranked.text(top, "pattern")?, ranked.text(top, "advice")?))
}

/// Thread-seconds in futexes whose kind nobody knows, where they are a part of all waiting that matters: of a program without
/// symbols no stack tells a lock from work that is waited for.
pub(in crate::onion) fn unjudged(context: &Context<'_>) -> Option<f64> {
    let ranked = context.ranked("user_locks", &["type"], "block")?;
    let block = |r: usize| ranked.number(r, "block").unwrap_or(0.0);
    let unknown: f64 =
        (0..ranked.num_rows()).filter(|&r| ranked.text(r, "type") == Some("unknown")).map(block).sum();
    let futexes: f64 = (0..ranked.num_rows()).map(block).sum();
    let asleep = sleeps::Reader::open(context.recording).ok().flatten();
    let asleep: f64 = asleep.map_or(0.0, |t| t.rows().filter_map(|r| t.seconds.get(r)).sum());
    (unknown >= 0.1 * futexes.max(asleep) && unknown >= 0.05 * context.elapsed).then_some(unknown)
}

/// [`unjudged`] in a line.
pub(super) fn unjudged_told(context: &Context<'_>) -> Option<String> {
    unjudged(context).map(|s| {
        format!(
            "{s:.2} thread-s in futexes of unknown kind, perhaps a lock: `ncpu locks --futexes` shows them"
        )
    })
}

/// What to do about threads that waited for what may be a lock or work to come, where the pattern says how to tell: parked
/// threads of Java. They wait for half of the time or more.
pub(in crate::onion) fn parked(context: &Context<'_>) -> Option<String> {
    context.table("user_locks")?.columns().iter().find(|c| c.name == "advice")?;
    let ranked = context.ranked("user_locks", &["type", "pattern", "advice"], "block")?;
    let advised =
        |r: &usize| ranked.text(*r, "type") == Some("condition") && ranked.text(*r, "advice").is_some();
    let row = (0..ranked.num_rows()).find(advised)?;
    let long = ranked.number(row, "block").unwrap_or(0.0) > 0.5 * context.elapsed;
    long.then(|| Some(format!("{}: {}", ranked.text(row, "pattern")?, ranked.text(row, "advice")?))).flatten()
}

/// The kernel lock that costs most by `spin` or `block`, if that is enough to matter.
pub(in crate::onion) fn top_lock(context: &Context<'_>, by: &str) -> Option<String> {
    let ranked = context.ranked(locks::NAME, &[locks::col::lock], by)?;
    let costs = (ranked.num_rows() > 0).then(|| ranked.number(0, by)).flatten()?;
    (costs >= SMALL * context.capacity)
        .then(|| ranked.text(0, locks::col::lock).map(str::to_string))
        .flatten()
}

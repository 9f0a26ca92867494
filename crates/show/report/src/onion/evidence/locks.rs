//! Locks: which ones threads wait for, and which threads wait.

use std::fmt;

use ncpu_schema::{Layer, lock_callers, locks, sleeps, user_locks};
use ncpu_table::Table;

use super::kinds::{
    Evidence, KernelLock, LockFunctions, LockSamples, Part, Seconds, Share, ThreadSeconds, UnknownFutexes,
    UserLock,
};
use super::{Context, listed};
use crate::locks::{errors, is_user_lock};
use crate::onion::SMALL;

/// The callers of a lock from walked contentions, `spin` or `block` deciding. Readers and writers
/// differ by the type.
fn callers(context: &Context<'_>, lock: &str, ty: &str, by: &str) -> Vec<Part> {
    use lock_callers::col;
    let Some(ranked) = context.ranked(lock_callers::NAME, &[col::lock, col::ty, col::caller], by) else {
        return Vec::new();
    };
    let of: Vec<(String, f64)> = (0..ranked.num_rows())
        .filter(|&r| ranked.text(r, col::lock) == Some(lock) && ranked.text(r, col::ty) == Some(ty))
        .filter_map(|r| Some((ranked.text(r, col::caller)?.to_string(), ranked.number(r, by)?)))
        .collect();
    let total: f64 = of.iter().map(|(_, s)| s).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    of.into_iter().take(2).map(|(name, s)| Part { name, share: Share(s / total) }).collect()
}

/// The three that cost most by `spin` or `block`.
pub(super) fn kernel_locks(context: &Context<'_>, by: &str) -> Vec<KernelLock> {
    let Some(ranked) = context.ranked(locks::NAME, &[locks::col::lock, locks::col::ty], by) else {
        return Vec::new();
    };
    let errors = errors(context.recording).unwrap_or_default();
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, by)).sum();
    (0..ranked.num_rows().min(3))
        .filter_map(|r| {
            let (lock, s) = (ranked.text(r, locks::col::lock)?, ranked.number(r, by)?);
            let ty = ranked.text(r, locks::col::ty)?;
            if s <= 0.01 * total {
                return None;
            }
            let waits = ranked.int(r, locks::col::count)?.max(1);
            let key = vec![lock.to_string(), ty.to_string()];
            Some(KernelLock {
                lock: lock.into(),
                lock_type: ty.into(),
                wait: by.into(),
                share: Share(s / total),
                waits,
                error: errors.get(&key).map_or(0, |error| error.round() as u64),
                each: Seconds(s / waits as f64),
                callers: callers(context, lock, ty, by),
            })
        })
        .collect()
}

impl fmt::Display for KernelLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelLock { lock, lock_type, wait, share, waits, error, each, callers } = self;
        let (share, each) = (share.percent(), 1e6 * each.0);
        write!(f, "{lock} ({lock_type}) {share:.0} %: {waits}")?;
        if *error > 0 {
            write!(f, " +- {error}")?;
        }
        write!(f, " waits, {each:.1} us {wait} each")?;
        if callers.is_empty() { Ok(()) } else { write!(f, " from {}", listed(callers)) }
    }
}

impl fmt::Display for LockSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockSamples { traced, untraced, functions } = self;
        write!(
            f,
            "second estimate: {traced} samples inside traced waits, {untraced} in slow paths outside of those"
        )?;
        if functions.is_empty() { Ok(()) } else { write!(f, ", from {}", listed(functions)) }
    }
}

impl fmt::Display for LockFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waited for in {}", listed(&self.functions))
    }
}

/// Whether a row of table `user_locks` is of a lock: a semaphore that is one has that type.
fn is_held(kind: &str) -> bool {
    is_user_lock(kind) && kind != "semaphore"
}

/// The locks waited for, by where they are waited for: a server's locks may be thousands of words.
pub(super) fn locks_of_programs(context: &Context<'_>) -> Vec<Evidence> {
    use user_locks::col;
    const KEYS: [&str; 7] =
        [col::lock, col::holder, col::ty, col::process, col::caller, col::pattern, col::advice];
    // A recording of an older version has no patterns.
    let named =
        context.table(user_locks::NAME).is_some_and(|t| t.columns().iter().any(|c| c.name == col::pattern));
    let keys = &KEYS[..if named { 7 } else { 5 }];
    let (place, lock) = (&keys[2..], [&[col::lock][..], &keys[2..]].concat());
    let mut out = Vec::new();
    let ranked = |keys: &[&str]| context.ranked(user_locks::NAME, keys, col::block);
    if let (Some(places), Some(single), Some(held)) = (ranked(place), ranked(&lock), ranked(keys)) {
        // Locks with tracepoints also report how long their waiters spun.
        let wait = |t: &Table, r: usize| {
            t.number(r, col::block).unwrap_or(0.0) + t.number(r, col::spin).unwrap_or(0.0)
        };
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
            let Some(kind) = text(col::ty).filter(|k| is_held(k)) else { continue };
            let of: Vec<usize> =
                (0..single.num_rows()).filter(|&q| alike(place, &single, q, &places, r)).collect();
            let top = match of[..] {
                [one] => Some(one),
                _ => most(&single, &of, wait(&places, r)),
            };
            // A lock with an advice of its own is known to its users by name, and not by its address.
            let pattern =
                if named { text(col::pattern).filter(|_| text(col::advice).is_some()) } else { None };
            // Its waits may have been ended by many.
            let (holder, waker) = top
                .and_then(|q| {
                    let of: Vec<usize> =
                        (0..held.num_rows()).filter(|&h| alike(&lock, &held, h, &single, q)).collect();
                    let most = most(&held, &of, wait(&single, q))?;
                    // A library reports the holder and does not see the waker.
                    let thread = held.text(most, col::holder)?.to_string();
                    Some(if held.int(most, col::wakes).is_some() {
                        (None, Some(thread))
                    } else {
                        (Some(thread), None)
                    })
                })
                .unwrap_or_default();
            out.push(
                UserLock {
                    lock: top.map(|q| single.text(q, col::lock).unwrap_or("?").into()),
                    locks: of.len() as u64,
                    lock_type: kind.into(),
                    pattern: pattern.map(str::to_string),
                    process: text(col::process).unwrap_or("?").into(),
                    caller: text(col::caller).filter(|c| !c.starts_with('[')).map(str::to_string),
                    waits: places.int(r, col::count).unwrap_or(0),
                    asleep: ThreadSeconds(places.number(r, col::block).unwrap_or(0.0)),
                    spinning: ThreadSeconds(places.number(r, col::spin).unwrap_or(0.0)),
                    holder,
                    waker,
                }
                .into(),
            );
            if out.len() == 2 {
                break;
            }
        }
    }
    out.extend(super::spinning(context, Layer::UserLock).map(Evidence::from));
    out
}

impl UserLock {
    /// The lock's name, or the number of locks.
    fn named(&self) -> String {
        let UserLock { lock, locks, lock_type, pattern, .. } = self;
        match (pattern, lock) {
            (Some(pattern), Some(lock)) if !lock.starts_with("0x") && lock != pattern => {
                format!("{pattern} {lock}")
            }
            (Some(pattern), Some(_)) => pattern.clone(),
            (Some(pattern), None) => format!("{pattern} ({locks})"),
            (None, Some(lock)) => format!("{lock_type} {lock}"),
            (None, None) if lock_type.ends_with('x') => format!("{locks} {lock_type}es"),
            (None, None) => format!("{locks} {lock_type}s"),
        }
    }
}

impl fmt::Display for UserLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.named(), self.process)?;
        if let Some(caller) = &self.caller {
            write!(f, " in {caller}")?;
        }
        write!(f, ": {} waits, {:.3} thread-s", self.waits, self.asleep.0)?;
        if self.spinning.0 > 0.0 {
            write!(f, " asleep, {:.3} spinning", self.spinning.0)?;
        }
        match (&self.holder, &self.waker) {
            (Some(thread), _) => write!(f, ", held mostly by {thread}"),
            (None, Some(thread)) => write!(f, ", woken mostly by {thread}"),
            (None, None) => Ok(()),
        }
    }
}

/// The pattern of the user lock that most of the waiting is for, and its remedy, where that is known.
pub(in crate::onion) fn top_advice(context: &Context<'_>) -> Option<(String, String)> {
    use user_locks::col;
    context.table(user_locks::NAME)?.columns().iter().find(|c| c.name == col::advice)?;
    let ranked = context.ranked(user_locks::NAME, &[col::ty, col::pattern, col::advice], col::block)?;
    let waited = |r: usize| ranked.number(r, col::block).unwrap_or(0.0);
    let rows = || (0..ranked.num_rows()).filter(|&r| ranked.text(r, col::ty).is_some_and(is_held));
    let total: f64 = rows().map(waited).sum();
    let top = rows().next().filter(|&r| waited(r) >= 0.5 * total && total > 0.0)?;
    Some((ranked.text(top, col::pattern)?.into(), ranked.text(top, col::advice)?.into()))
}

/// Thread-seconds in futexes whose kind nobody knows, where they are a part of all waiting that matters: of a program without
/// symbols no stack tells a lock from work that is waited for.
pub(in crate::onion) fn unjudged(context: &Context<'_>) -> Option<f64> {
    use user_locks::col;
    let ranked = context.ranked(user_locks::NAME, &[col::ty], col::block)?;
    let block = |r: usize| ranked.number(r, col::block).unwrap_or(0.0);
    let unknown: f64 =
        (0..ranked.num_rows()).filter(|&r| ranked.text(r, col::ty) == Some("unknown")).map(block).sum();
    let futexes: f64 = (0..ranked.num_rows()).map(block).sum();
    let asleep = sleeps::Reader::open(context.recording).ok().flatten();
    let asleep: f64 = asleep.map_or(0.0, |t| t.rows().filter_map(|r| t.seconds.get(r)).sum());
    (unknown >= 0.1 * futexes.max(asleep) && unknown >= 0.05 * context.elapsed).then_some(unknown)
}

/// [`unjudged`] as evidence.
pub(super) fn unknown_futexes(context: &Context<'_>) -> Option<UnknownFutexes> {
    unjudged(context).map(|s| UnknownFutexes { asleep: ThreadSeconds(s) })
}

impl fmt::Display for UnknownFutexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.asleep.0;
        write!(
            f,
            "{s:.2} thread-s in futexes of unknown kind, perhaps a lock: `ncpu locks --futexes` shows them"
        )
    }
}

/// The pattern and its remedy for threads that waited for what may be a lock or work to come, where the pattern says how to
/// find out: parked threads of Java. They wait for half of the time or more.
pub(in crate::onion) fn parked(context: &Context<'_>) -> Option<(String, String)> {
    use user_locks::col;
    context.table(user_locks::NAME)?.columns().iter().find(|c| c.name == col::advice)?;
    let ranked = context.ranked(user_locks::NAME, &[col::ty, col::pattern, col::advice], col::block)?;
    let advised =
        |r: &usize| ranked.text(*r, col::ty) == Some("condition") && ranked.text(*r, col::advice).is_some();
    let row = (0..ranked.num_rows()).find(advised)?;
    let long = ranked.number(row, col::block).unwrap_or(0.0) > 0.5 * context.elapsed;
    long.then(|| Some((ranked.text(row, col::pattern)?.into(), ranked.text(row, col::advice)?.into())))
        .flatten()
}

/// The kernel lock that costs most by `spin` or `block`, if that is enough to matter.
pub(in crate::onion) fn top_lock(context: &Context<'_>, by: &str) -> Option<String> {
    let ranked = context.ranked(locks::NAME, &[locks::col::lock], by)?;
    let costs = (ranked.num_rows() > 0).then(|| ranked.number(0, by)).flatten()?;
    (costs >= SMALL * context.capacity)
        .then(|| ranked.text(0, locks::col::lock).map(str::to_string))
        .flatten()
}

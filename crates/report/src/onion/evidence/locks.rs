//! Locks: which are waited for, and by whom.

use super::{Context, listed, shares, told};
use crate::locks::is_user_lock;

/// The callers of a lock from walked contentions, `spin` or `block` deciding.
fn callers(context: &Context<'_>, lock: &str, by: &str) -> String {
    let Some(ranked) = context.ranked("lock_callers", &["lock", "caller"], by) else { return String::new() };
    let of: Vec<(String, f64)> = (0..ranked.num_rows())
        .filter(|&r| ranked.text(r, "lock") == Some(lock))
        .filter_map(|r| Some((ranked.text(r, "caller")?.to_string(), ranked.number(r, by)?)))
        .collect();
    let total: f64 = of.iter().map(|(_, s)| s).sum();
    if total <= 0.0 {
        return String::new();
    }
    let top: Vec<_> = of.into_iter().take(2).map(|(c, s)| (c, s / total)).collect();
    format!(" from {}", listed(&top))
}

pub(super) fn kernel_locks(context: &Context<'_>, by: &str) -> Vec<String> {
    let Some(ranked) = context.ranked("locks", &["lock", "type"], by) else { return Vec::new() };
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, by)).sum();
    (0..ranked.num_rows().min(3))
        .filter_map(|r| {
            let (lock, s) = (ranked.text(r, "lock")?, ranked.number(r, by)?);
            if s <= 0.01 * total {
                return None;
            }
            let n = ranked.int(r, "count")?.max(1);
            Some(format!(
                "{lock} ({}) {:.0} %: {n} waits, {:.1} us {by} each{}",
                ranked.text(r, "type")?,
                100.0 * s / total,
                s * 1e6 / n as f64,
                callers(context, lock, by)
            ))
        })
        .collect()
}

/// The locks waited for, by where they are waited for: a server's locks may be thousands of words.
pub(super) fn user_locks(context: &Context<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let places = context.ranked("user_locks", &["type", "process", "caller"], "block");
    let single = context.ranked("user_locks", &["lock", "type", "process", "caller", "holder"], "block");
    if let (Some(places), Some(single)) = (places, single) {
        // Those that tell of it have spun as well.
        let spin = |r: usize| places.number(r, "spin").unwrap_or(0.0);
        let wait = |r: usize| places.number(r, "block").unwrap_or(0.0) + spin(r);
        let mut rows: Vec<usize> = (0..places.num_rows()).collect();
        rows.sort_by(|&a, &b| wait(b).total_cmp(&wait(a)));
        for r in rows {
            let text = |c: &str| places.text(r, c);
            let Some(kind) = text("type").filter(|k| is_user_lock(k)) else { continue };
            let (n, s) = (places.int(r, "count").unwrap_or(0), places.number(r, "block").unwrap_or(0.0));
            let spun = match spin(r) {
                spin if spin > 0.0 => format!(" asleep, {spin:.3} spinning"),
                _ => String::new(),
            };
            let of: Vec<usize> = (0..single.num_rows())
                .filter(|&q| ["type", "process", "caller"].iter().all(|c| single.text(q, c) == text(c)))
                .collect();
            let top = of.first().filter(|&&q| single.number(q, "block").unwrap_or(0.0) > 0.5 * s);
            let which = match top {
                Some(&q) => format!("{kind} {}", single.text(q, "lock").unwrap_or("?")),
                None => format!("{} {kind}s", of.len()),
            };
            let holder =
                top.and_then(|&q| single.text(q, "holder")).map(|h| format!(", woken mostly by {h}"));
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
    out.extend(told(
        "spinning in ",
        &shares(context, |at, c| at == "target" && c == "user spin", "detail", 2),
    ));
    out
}

/// The kernel lock that costs most by `spin` or `block`.
pub(in crate::onion) fn top_lock(context: &Context<'_>, by: &str) -> Option<String> {
    let ranked = context.ranked("locks", &["lock"], by)?;
    (ranked.num_rows() > 0).then(|| ranked.text(0, "lock").map(str::to_string)).flatten()
}

//! Figures that do not fit into the table of cross-calls, in words.

use ncpu_record::Recording;

use super::{Sums, capacity, exact, number, saved, senders_known};
use crate::wrap::wrap;

/// [`lines`] wrapped to a width, with the notes of the recording and what was dropped.
pub fn footer(recording: &Recording, width: usize) -> String {
    let mut all = lines(recording);
    all.extend(recording.manifest.notes.iter().chain(&recording.notes).map(|note| format!("note: {note}")));
    if let Some(drops) = recording.tables.get("drops") {
        let dropped =
            (0..drops.num_rows()).filter_map(|r| Some((drops.int(r, "count")?, drops.text(r, "what")?)));
        all.extend(
            dropped
                .map(|(n, what)| format!("note: dropped: {n} {what}; figures that rest on them are too low")),
        );
    }
    all.iter().map(|line| wrap(line, width.clamp(60, 140), "", "  ")).collect()
}

/// Figures that do not fit into the table, a line each: the sum at both ends, the number of targets of the
/// calls, why TLBs were flushed, what one message a package would send, and the second estimate of waiting.
pub fn lines(recording: &Recording) -> Vec<String> {
    let mut out = Vec::new();
    let capacity = capacity(recording);
    let elapsed = number(recording, "elapsed").max(f64::MIN_POSITIVE);
    if !senders_known(recording) {
        let received = total(recording, "crosscalls_received", "received");
        return vec![format!("{:.0} cross-calls/s received, from any sender", received / elapsed)];
    }
    // Kernels before 6.5 tell targets at most.
    let timed = recording
        .tables
        .get("crosscalls")
        .is_some_and(|t| (0..t.num_rows()).any(|row| t.number(row, "wait").is_some()));
    let mut all = Sums::default();
    exact(recording).iter().for_each(|(_, s)| all.add(s));
    let answering = total(recording, "crosscalls_received", "seconds");
    let percent = |s: f64| format!("{s:.3} CPU-s ({:.2} % of capacity)", 100.0 * s / capacity);
    let waiting = if timed { format!("senders waited {}, ", percent(all.wait)) } else { String::new() };
    out.push(format!(
        "{:.0} calls/s; {waiting}all receivers answered for {}",
        all.calls / elapsed,
        percent(answering)
    ));
    out.extend(fanout(recording));
    out.extend(flushes(recording));
    if let Some(times) = saved(all.placed, all.packages) {
        let (cpus, packages) = (number(recording, "cpus"), number(recording, "packages"));
        let every = saved(cpus, packages)
            .map_or_else(String::new, |t| format!("; {t:.1} times for a call to all {cpus:.0} CPUs"));
        out.push(format!(
            "one message a package ({packages:.0}): {:.0} instead of {:.0}, {times:.1} times fewer{every}",
            all.packages, all.placed
        ));
    }
    let (hz, samples, waiting) =
        (number(recording, "hz"), number(recording, "samples"), number(recording, "waiting"));
    if hz > 0.0 {
        out.push(format!(
            "second estimate, by sampling: senders waited {:.3} +- {:.3} CPU-s",
            waiting / hz,
            samples * ncpu_schema::chance::half_width(waiting as u64, samples as u64) / hz
        ));
    }
    out
}

fn total(recording: &Recording, table: &str, column: &str) -> f64 {
    let Some(t) = recording.tables.get(table) else { return 0.0 };
    (0..t.num_rows()).filter_map(|r| t.number(r, column)).sum()
}

/// `fan-out of TLB shootdowns: 0 78 %, 1 22 %`, a line for each cause that ever has more or less than one
/// target; where the kernel does not report targets, the mean of what was received.
fn fanout(recording: &Recording) -> Vec<String> {
    if let Some(t) =
        recording.tables.get("crosscall_fanout").and_then(|t| t.group_by(&["cause", "from", "to"]).ok())
    {
        let mut causes: Vec<&str> = (0..t.num_rows()).filter_map(|r| t.text(r, "cause")).collect();
        causes.sort_unstable();
        causes.dedup();
        return causes
            .into_iter()
            .filter_map(|cause| {
                let mut rows: Vec<(u64, u64, f64)> = (0..t.num_rows())
                    .filter(|&r| t.text(r, "cause") == Some(cause))
                    .filter_map(|r| Some((t.int(r, "from")?, t.int(r, "to")?, t.number(r, "calls")?)))
                    .filter(|(.., n)| *n > 0.0)
                    .collect();
                rows.sort_by_key(|(from, ..)| *from);
                let sum: f64 = rows.iter().map(|(.., n)| n).sum();
                if rows.iter().all(|(from, ..)| *from == 1) {
                    return None;
                }
                let parts: Vec<String> = rows
                    .iter()
                    .map(|(from, to, n)| {
                        let range = if from == to { from.to_string() } else { format!("{from}-{to}") };
                        format!("{range}: {:.1} %", 100.0 * n / sum)
                    })
                    .collect();
                Some(format!("targets of a {cause}: {}", parts.join(", ")))
            })
            .collect();
    }
    let Some(t) = recording.tables.get("crosscalls_received") else { return Vec::new() };
    let of = |column: &str| -> f64 {
        (0..t.num_rows())
            .filter(|&r| t.text(r, "cause") == Some("TLB shootdown"))
            .filter_map(|r| t.number(r, column))
            .sum()
    };
    let (received, sent) = (of("received"), of("sent"));
    if sent > 0.0 {
        vec![format!(
            "targets of a TLB shootdown: {:.2} on average ({received:.0} received of {sent:.0} sent on all CPUs)",
            received / sent
        )]
    } else {
        Vec::new()
    }
}

fn flushes(recording: &Recording) -> Option<String> {
    let t = recording.tables.get("tlb_flushes")?.group_by(&["reason"]).ok()?;
    let mut rows: Vec<usize> = (0..t.num_rows()).collect();
    rows.sort_by_key(|&r| std::cmp::Reverse(t.int(r, "flushes")));
    let parts: Vec<String> = rows
        .into_iter()
        .filter_map(|r| {
            let (n, whole) = (t.int(r, "flushes")?, t.int(r, "whole")?);
            let paged = n.saturating_sub(whole);
            let pages = match (paged, t.number(r, "pages")?) {
                (1.., p) if p > 0.0 => format!(", {:.0} pages each", p / paged as f64),
                _ => String::new(),
            };
            let whole = if whole > 0 { format!(", {whole} of everything") } else { String::new() };
            Some(format!(
                "{} {n}{}",
                t.text(r, "reason")?,
                if pages.is_empty() && whole.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", format!("{pages}{whole}").trim_start_matches(", "))
                }
            ))
        })
        .collect();
    Some(format!("TLB flushes on all CPUs: {}", parts.join("; ")))
}

//! Differential flame graphs: where a frame is wide now, and red or blue by how much it grew or shrank.

use std::collections::BTreeMap;

use ncpu_record::Recording;

use super::Diff;
use crate::html::{self, frames, graph, text_of, texts};

/// Stacks of one side, by kind: seconds per unit of work, the mean of its recordings.
pub(super) type Stacks = BTreeMap<String, html::Stacks>;

const KINDS: [(&str, &str); 3] =
    [("on-cpu", "On CPU"), ("spin", "Spinning in kernel locks"), ("off-cpu", "Off CPU")];

/// Reads them.
pub(super) fn stacks(recordings: &[Recording], work: &[f64]) -> Stacks {
    let mut out = Stacks::new();
    for (recording, work) in recordings.iter().zip(work) {
        let Some(t) = recording.tables.get("stacks") else { continue };
        for r in 0..t.num_rows() {
            let (Some(kind), Some(stack), Some(s)) =
                (t.text(r, "kind"), t.text(r, "stack"), t.number(r, "seconds"))
            else {
                continue;
            };
            if s.is_finite() && s > 0.0 {
                *out.entry(kind.into()).or_default().entry(frames(stack)).or_default() +=
                    s / work / recordings.len() as f64;
            }
        }
    }
    out
}

/// Both directions of each kind: what is new is only in B's graph, what is gone only in A's.
pub(super) fn graphs(diff: &Diff) -> String {
    let mut out = String::new();
    let empty = BTreeMap::new();
    for (kind, title) in KINDS {
        let [a, b] = [0, 1].map(|s| diff.stacks[s].get(kind).unwrap_or(&empty));
        let Some((both, narrow)) = texts([a, b]) else { continue };
        let ids = ["A", "B"].map(|letter| format!("stacks-{kind}-{letter}"));
        for (letter, now, before, sign) in [("B", 1, 0, 1), ("A", 0, 1, -1)] {
            if both[now].is_empty() {
                continue;
            }
            let lead = format!(
                "Red frames grew from A to B, blue ones shrank. Frames below {narrow} % are not drawn."
            );
            let data = format!("data-now={} data-before={} data-sign={sign}", ids[now], ids[before]);
            graph(
                &mut out,
                &format!("{kind}-{letter}"),
                &format!("{title}, width of {letter}"),
                &lead,
                &data,
                "",
            );
        }
        for (i, letter) in [" of A", " of B"].into_iter().enumerate() {
            out.push_str(&text_of(&ids[i], letter, &both[i]));
        }
    }
    if out.is_empty() {
        out.push_str("<p class=none>The recordings hold no stacks.</p>");
    }
    out
}

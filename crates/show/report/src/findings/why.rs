//! Why a cause or a layer is there: evidence, stacks, and what was ruled out.

use std::fmt::Write;

use ncpu_schema::Layer;
use ncpu_table::safe;

use super::{Finding, Findings, LISTED, figure, made_of};
use crate::onion::Onion;
use crate::wrap::wrap;

/// A cause in full; `n` counts from 1.
pub fn cause(findings: &Findings, onion: &Onion, n: usize, width: usize) -> Option<String> {
    let found = findings.list.get(n.checked_sub(1)?)?;
    let mut out = format!("{n} {}\n", safe::line(&found.title));
    out += &wrap(&found.sentence, width, "  ", "  ");
    let mut line = |label: &str, text: &str| {
        out += &wrap(&safe::line(text), width, &format!("  {label:<10} "), "             ");
    };
    let (seconds, share) = (figure(found.seconds), 100.0 * found.share);
    line("costs", &format!("{seconds} ± {} CPU-s, {share:.1} % of the capacity", figure(found.error)));
    if let Some(waited) = found.waited {
        line("waited", &format!("{} thread-s", figure(waited)));
    }
    for evidence in &found.lines {
        line(evidence.label, &evidence.text);
    }
    line("made of", &made_of(found).join(", "));
    for part in &found.parts {
        line("", &format!("{} CPU-s of {}: {}", figure(part.seconds), part.layer.name(), part.what));
    }
    if let Some(advice) = &found.advice {
        line("do", &advice.words);
    }
    line("entry", &format!("{} (its grounds: ncpu explain {})", found.id, found.id));
    if !found.stacks.is_empty() {
        out += "  stacks (CPU-s; innermost function first)\n";
        for (stack, seconds) in &found.stacks {
            out += &wrap(&safe::line(stack), width, &format!("    {:>5} ", figure(*seconds)), "            ");
        }
    }
    out += &ruled_out(findings, onion, Some(found), width);
    Some(out)
}

/// A layer: what it consists of, and the causes that it went to.
pub fn layer(findings: &Findings, onion: &Onion, layer: Layer, width: usize) -> Option<String> {
    let row = onion.rows.iter().find(|row| row.layer == layer)?;
    let mut out = format!(
        "{}: {} ± {} CPU-s, {:.1} % of the capacity\n",
        layer.name(),
        figure(row.seconds),
        figure(row.error),
        100.0 * row.share
    );
    out += &wrap(layer.meaning(), width, "  ", "  ");
    for evidence in row.lines() {
        out += &wrap(&evidence, width, "  ", "    ");
    }
    for (n, seconds) in findings.of_layer(layer) {
        let title = safe::line(&findings.list[n - 1].title).into_owned();
        out += &wrap(&format!("{} CPU-s → {n} {title}", figure(seconds)), width, "  ", "    ");
    }
    let _ = writeln!(out, "  {} CPU-s belong to no listed cause", figure(findings.left(layer)));
    if !row.advice.is_empty() {
        out += &wrap(&row.remedy(), width, "  if it is not one of those: ", "    ");
    }
    out += &ruled_out(findings, onion, None, width);
    Some(out)
}

/// Causes that are not listed, each with the reason.
fn ruled_out(findings: &Findings, onion: &Onion, of: Option<&Finding>, width: usize) -> String {
    let mut out = String::new();
    for other in &findings.others {
        let why = if other.asked > 2.0 * other.seconds && of.is_some_and(|of| of.seconds > other.seconds) {
            format!(
                "of {} CPU-s that fit it, a more particular cause has all but {}",
                figure(other.asked),
                figure(other.seconds)
            )
        } else if other.seconds < LISTED * onion.capacity {
            format!("{} CPU-s, below 2 % of the capacity", figure(other.seconds))
        } else if other.seconds <= other.error {
            format!("{} CPU-s, within its error of {}", figure(other.seconds), figure(other.error))
        } else {
            format!("{} CPU-s: five others are larger", figure(other.seconds))
        };
        out += &wrap(&format!("{}: {why}", safe::line(&other.title)), width, "    ", "      ");
    }
    if out.is_empty() {
        "  ruled out: nothing else was claimed\n".into()
    } else {
        format!("  ruled out\n{out}")
    }
}

//! The answer for a terminal.

use ncpu_record::Recording;
use ncpu_table::render_text;

use super::{Answer, Fixed};
use crate::onion::Onion;
use crate::wrap::wrap;

/// Fixes with a gain, a row each; the others in a line or two. A gain below the share `scatter` is within the
/// simulation's own scatter.
pub(super) fn ranked(all: &[Fixed], scatter: f64, width: usize, text: usize) -> String {
    let gives = |f: &&Fixed| f.gain > 1.0 + scatter;
    let (better, rest): (Vec<&Fixed>, Vec<&Fixed>) = all.iter().partition(gives);
    let mut out = String::new();
    if !better.is_empty() {
        out += &render_text(&super::short(&super::fixes(better)), width);
    }
    let (same, worse): (Vec<&Fixed>, Vec<&Fixed>) =
        rest.iter().partition(|f| f.gain >= 1.0 / (1.0 + scatter));
    if !same.is_empty() {
        let names: Vec<&str> = same.iter().map(|f| f.fix.as_str()).collect();
        out += &wrap(&format!("less than {:.0} %: {}", 100.0 * scatter, names.join(", ")), text, "", "  ");
    }
    if !worse.is_empty() {
        let names: Vec<String> = worse.iter().map(|f| format!("{} (x{:.2})", f.fix, f.gain)).collect();
        out += &wrap(&format!("slower: {}", names.join(", ")), text, "", "  ");
    }
    out
}

/// The whole answer, `width` columns wide.
///
/// # Errors
/// The simulated recording holds no observation.
pub fn render(answer: &Answer, recording: &Recording, width: usize) -> Result<String, ncpu_schema::Error> {
    let text = width.min(120);
    // The warning comes first, for readers who read nothing else.
    let mut out = match &answer.reproduced {
        Some((false, words)) => wrap(words, text, "", "  "),
        _ => String::new(),
    };
    out += &wrap(
        &format!("{} on {}: throughput is {} a second", answer.name, answer.machine, answer.unit),
        text,
        "",
        "  ",
    );
    if !answer.fixes.is_empty() {
        out += &wrap(&format!("with: {}", answer.fixes.join("; ")), text, "", "  ");
    }
    out.push('\n');
    let tables = answer.tables();
    if let Some(points) = tables.first() {
        out += &render_text(&super::short(points), width);
    }
    out.push('\n');
    for line in answer.lines() {
        out += &wrap(&line, text, "", "  ");
    }
    if let (false, Some(last)) = (answer.ranked.is_empty(), answer.points.last()) {
        let also = if answer.fixes.is_empty() { "" } else { ", beside those that were made" };
        out += &format!("\nWhat each fix would give at {} CPUs{also}:\n", last.cpus);
        out += &ranked(&answer.ranked, answer.scatter, width, text);
    }
    if let Some(last) = answer.points.last() {
        out += &format!("\nThe onion of {} CPUs:\n\n", last.cpus);
        let mut onion = Onion::peel(recording)?;
        onion.notes.clear();
        out += &crate::onion::render(&onion, width);
    }
    let told = |note: &String| matches!(&answer.reproduced, Some((false, words)) if words == note);
    for note in answer.notes.iter().filter(|n| !told(n)) {
        out += &wrap(&format!("note: {note}"), text, "", "      ");
    }
    Ok(out)
}

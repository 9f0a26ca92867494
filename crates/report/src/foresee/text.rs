//! The answer for a terminal.

use ncpu_record::Recording;
use ncpu_table::render_text;

use super::Answer;
use crate::onion::Onion;
use crate::wrap::wrap;

/// The whole answer, `width` columns wide.
///
/// # Errors
/// The simulated recording holds no observation.
pub fn render(answer: &Answer, recording: &Recording, width: usize) -> Result<String, ncpu_schema::Error> {
    let text = width.min(120);
    // Whoever reads nothing else is to read this.
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
        out += &render_text(points, width);
    }
    out.push('\n');
    for line in answer.lines() {
        out += &wrap(&line, text, "", "  ");
    }
    if let (Some(fixes), Some(last)) = (tables.get(1), answer.points.last()) {
        out += &format!("\nWhat each fix would give at {} CPUs:\n", last.cpus);
        out += &render_text(fixes, width);
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

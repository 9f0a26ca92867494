//! The onion for the terminal.

use std::fmt::Write;

use ncpu_table::safe;

use super::{Onion, Row, SMALL};
use crate::wrap::wrap;

const BAR: usize = 20;

/// Renders the onion at most `width` columns wide (evidence and advice are wrapped, never cut).
pub fn render(onion: &Onion, width: usize) -> String {
    let width = width.clamp(60, 140);
    let mut out = match onion.short {
        true => times(onion, width),
        false => render_part(onion, width, &headline(onion)),
    };
    for note in &onion.notes {
        out.push_str(&wrap(&format!("note: {note}"), width, "", "      "));
    }
    out
}

/// Where the time went of an observation that was too short for more.
fn times(onion: &Onion, width: usize) -> String {
    let mut out = wrap(&headline(onion), width, "", "  ");
    let mut rows: Vec<&Row> = onion.rows.iter().filter(|row| row.seconds >= 5e-5).collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let told: Vec<String> =
        rows.iter().map(|row| format!("{} {:.1}", row.layer.name(), 1e3 * row.seconds)).collect();
    let line = format!(
        "CPU-milliseconds, of {:.1} on {} CPUs: {}",
        1e3 * onion.capacity,
        onion.cpus,
        told.join(", ")
    );
    out.push_str(&wrap(&line, width, "", "  "));
    out
}

/// [`render`] of a part of an observation, under this title and without notes.
pub fn render_part(onion: &Onion, width: usize, title: &str) -> String {
    let width = width.clamp(60, 140);
    let mut out = String::new();
    out.push_str(&wrap(title, width, "", "  "));
    let _ = writeln!(
        out,
        "Capacity: {} CPUs x {:.2} s = {:.2} CPU-seconds\n",
        onion.cpus, onion.elapsed, onion.capacity
    );
    // Layers that stand for several have long names.
    let names = onion.rows.iter().filter(|r| r.share >= SMALL || !r.layer.recoverable());
    let name = names.map(|r| r.layer.name().len()).fold(24, usize::max);
    let _ =
        writeln!(out, "{:>7}  {:>9} {:>7}  {:<name$} {:<BAR$}  gain", "share", "CPU-s", "+-", "layer", "");
    let (could, rest): (Vec<&Row>, Vec<&Row>) = onion.rows.iter().partition(|r| r.layer.recoverable());
    let (large, small): (Vec<&Row>, Vec<&Row>) = could.into_iter().partition(|r| r.share >= SMALL);
    for (title, rows) in [("could come back:", large), ("the rest:", rest)] {
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{title}");
        for row in rows {
            layer(&mut out, row, width, name);
        }
        if title.starts_with("could") && !small.is_empty() {
            let total: f64 = small.iter().map(|r| r.share).sum();
            let names: Vec<String> =
                small.iter().map(|r| format!("{} {:.2} %", r.layer.name(), r.share * 100.0)).collect();
            let line = format!("small, {:.2} % together: {}", total * 100.0, names.join(", "));
            out.push_str(&wrap(&line, width, "                           ", "                             "));
        }
    }
    out
}

/// As `time` in zsh tells it: user, system, CPU and elapsed.
fn headline(onion: &Onion) -> String {
    let mut line = match onion.command.as_str() {
        "" => "the machine".to_string(),
        command => safe::line(command).into_owned(),
    };
    if line.chars().count() > 60 {
        line = line.chars().take(57).chain("...".chars()).collect();
    }
    let _ = write!(line, ": {:.2} s elapsed", onion.elapsed);
    if let Some((user, system)) = onion.used {
        let _ = write!(line, ", {user:.2} s user, {system:.2} s system");
        if onion.elapsed > 0.0 {
            let _ = write!(line, ", {:.0} % CPU", 100.0 * (user + system) / onion.elapsed);
        }
    }
    match onion.status {
        Some(0) | None => {}
        Some(status) => {
            let _ = write!(line, ", exit status {status}");
        }
    }
    line
}

fn layer(out: &mut String, row: &Row, width: usize, name: usize) {
    let filled = ((row.share * BAR as f64).round() as usize).min(BAR);
    let bar: String = "#".repeat(filled) + &".".repeat(BAR - filled);
    let error = if row.error > 0.0005 { format!("{:.2}", row.error) } else { String::new() };
    let _ = writeln!(
        out,
        "{:>5.1} %  {:>9.3} {error:>7}  {:<name$} {bar}  {}",
        row.share * 100.0,
        row.seconds,
        row.layer.name(),
        gain(row),
    );
    trim_end(out);
    if row.share < SMALL {
        return;
    }
    for line in row.lines() {
        out.push_str(&wrap(&line, width, "                           ", "                             "));
    }
    if !row.advice.is_empty() {
        out.push_str(&wrap(
            &row.remedy(),
            width,
            "                        -> ",
            "                           ",
        ));
    }
}

/// The factor by which the program would do more in the same time if the layer's capacity went to its work.
fn gain(row: &Row) -> String {
    if row.layer.recoverable() && row.share >= SMALL { format!("x{:.2}", row.gain()) } else { String::new() }
}

fn trim_end(out: &mut String) {
    let end = out.trim_end().len();
    out.truncate(end);
    out.push('\n');
}

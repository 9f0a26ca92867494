//! The comparison for the terminal.

use std::fmt::Write;

use ncpu_table::{Unit, figure, width};

use super::{Diff, Entry, Per, Section, Verdict};
use crate::wrap::wrap;

/// Rows of a section at most.
const ROWS: usize = 8;
/// A change below this share of the capacity or of its section is not worth a row.
const LEAST: f64 = 0.002;

/// Renders it at most `width` columns wide.
pub fn render(diff: &Diff, width: usize) -> String {
    let width = width.clamp(72, 140);
    let mut out = String::new();
    for (letter, (name, n)) in ["A", "B"].iter().zip(diff.names.iter().zip(diff.counts)) {
        let many = if n == 1 { "1 recording".to_string() } else { format!("{n} recordings") };
        out.push_str(&wrap(&format!("{letter}: {name} ({many})"), width, "", "   "));
    }
    for difference in &diff.differences {
        out.push_str(&wrap(&format!("not alike: {difference}"), width, "", "           "));
    }
    out.push_str(&wrap(&rate(diff), width, "", "  "));
    let same: Vec<&str> = Section::ALL
        .into_iter()
        .filter(|section| !of_section(&mut out, diff, *section, width))
        .map(Section::name)
        .collect();
    if !same.is_empty() {
        out.push('\n');
        out.push_str(&wrap(&format!("no change worth a row: {}", same.join(", ")), width, "", "  "));
    }
    for note in &diff.notes {
        out.push_str(&wrap(&format!("note: {note}"), width, "", "      "));
    }
    out
}

fn rate(diff: &Diff) -> String {
    let c = diff.rate;
    let ratio = c.b / c.a.max(f64::MIN_POSITIVE);
    let words = match diff.per {
        Per::Work => "units of work a second",
        Per::Run => "runs a second",
        Per::Second => return "Figures are for each second observed.".into(),
    };
    let proven = match (diff.is_unproven(), c.is_told_apart()) {
        (true, _) => "",
        (false, true) => ", more than runs vary by",
        (false, false) => ", within what runs vary by",
    };
    format!("Throughput: {} -> {} {words}, x{ratio:.3}{proven}", figure(rounded(c.a)), figure(rounded(c.b)))
}

/// To four significant digits.
fn rounded(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powf(3.0 - x.abs().log10().floor());
    (x * scale).round() / scale
}

/// A power of ten that makes the largest figure readable, and the unit's name then.
fn scale(section: Section, most: f64) -> (f64, &'static str) {
    let seconds = |names: [&'static str; 4]| match most {
        m if m >= 0.1 => (1.0, names[0]),
        m if m >= 1e-4 => (1e3, names[1]),
        m if m >= 1e-7 => (1e6, names[2]),
        _ => (1e9, names[3]),
    };
    match section.unit() {
        Unit::CpuSeconds => seconds(["CPU-s", "CPU-ms", "CPU-us", "CPU-ns"]),
        Unit::Seconds => seconds(["thread-s", "thread-ms", "thread-us", "thread-ns"]),
        Unit::Bytes => (1.0 / f64::from(1 << 20), "MiB"),
        _ => (1.0, "events"),
    }
}

/// Writes the rows of a section; false if no figure changed enough for a row.
fn of_section(out: &mut String, diff: &Diff, section: Section, width: usize) -> bool {
    let entries: Vec<&Entry> = diff.section(section).collect();
    let most = entries.iter().map(|e| e.change.a.max(e.change.b)).fold(0.0, f64::max);
    if most <= 0.0 {
        return true;
    }
    let whole = match section.unit() {
        Unit::CpuSeconds => diff.capacity[0].max(diff.capacity[1]),
        _ => most,
    };
    let counts = |e: &&Entry| match section.unit() {
        Unit::Figure => {
            e.verdict != Verdict::Same && (e.change.b - e.change.a).abs() > 0.02 * e.change.a.max(e.change.b)
        }
        _ => e.change.by().abs() >= LEAST * whole,
    };
    let shown: Vec<&Entry> = entries.iter().copied().filter(counts).take(ROWS).collect();
    let rest = entries.len() - shown.len();
    let (factor, unit) = scale(section, most);
    let per = if section.per_work() { format!(" {}", diff.per.words()) } else { String::new() };
    if shown.is_empty() {
        return false;
    }
    let name = name_width(diff, width);
    let _ = writeln!(out, "\n{}, {unit}{per}", section.name());
    let _ = writeln!(out, "  {:name$} {:>9} {:>9} {:>10} {:>8}", "", "A", "B", "change", "+-");
    for e in shown {
        row(out, e, factor, name);
    }
    if rest > 0 {
        let _ = writeln!(out, "  {rest} more of little or no change");
    }
    true
}

/// The width left for names beside the figures, and beside the verdict where there can be one.
fn name_width(diff: &Diff, width: usize) -> usize {
    width.saturating_sub(if diff.is_unproven() { 50 } else { 60 }).clamp(18, 60)
}

fn row(out: &mut String, e: &Entry, factor: f64, room: usize) {
    let c = e.change;
    let digits = |x: f64| match x.abs() * factor {
        s if s >= 10_000.0 => format!("{:.0}", x * factor),
        s if s >= 100.0 => format!("{:.1}", x * factor),
        _ => format!("{:.3}", x * factor),
    };
    let name = width::filled(&e.name, room);
    let ratio = match (c.a > 0.0, c.b > 0.0) {
        (true, true) => format!("x{:.2}", c.b / c.a),
        (false, _) => "new".into(),
        (_, false) => "gone".into(),
    };
    let word = match e.verdict {
        Verdict::Grew | Verdict::Shrank => e.verdict.word(),
        Verdict::Same if c.is_told_apart() => "small",
        Verdict::Same => "by chance",
        Verdict::Unproven => "",
    };
    let line = format!(
        "  {name} {:>9} {:>9} {:>10} {:>8}  {ratio:<6} {word}",
        digits(c.a),
        digits(c.b),
        format!("{}{}", if c.by() >= 0.0 { "+" } else { "" }, digits(c.by())),
        if c.half > 0.0 { digits(c.half) } else { String::new() },
    );
    out.push_str(line.trim_end());
    out.push('\n');
}

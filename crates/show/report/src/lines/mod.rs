//! Words that share a cache line: a block for each finding, the worst first; and where accesses were sampled,
//! the lines that moved.

mod moving;

use std::fmt::Write;

use ncpu_schema::{Place, findings, objects, words};
use ncpu_table::width;

pub use moving::{Moving, moving, moving_text};

/// The text for people, of `findings` (maybe only some of its rows), `words` and `objects`; `all` is how many findings there were before some were left out. No line is
/// longer than `width`.
pub fn text(
    findings: &findings::Reader<'_>,
    words: &words::Reader<'_>,
    objects: &objects::Reader<'_>,
    all: usize,
    width: usize,
) -> String {
    let width = width.clamp(40, 160);
    let mut out = heading(objects, width);
    if findings.is_empty() {
        out += "found no locks, atomics or counters that share a line\n";
        return out;
    }
    let several = objects.len() > 1;
    // The most important action first, before the rows scroll it away.
    let first = what_to_do(findings, 0);
    if !first.is_empty() {
        out += &fitted(&format!("first: {first}"), width, 7);
    }
    for row in findings.rows() {
        out.push('\n');
        out += &finding(findings, row, several, width);
        out += &members(words, findings.finding.get(row).unwrap_or(0), width);
        let fix = what_to_do(findings, row);
        if !fix.is_empty() {
            out += &fitted(&format!("     -> {fix}"), width, 8);
        }
    }
    let left = all.saturating_sub(findings.len());
    if left > 0 {
        let _ = writeln!(out, "\n{left} more: --top N shows more, --match NAME those that name something");
    }
    out
}

fn heading(objects: &objects::Reader<'_>, width: usize) -> String {
    let of = match objects.len() {
        1 => objects.object.get(0).unwrap_or("").to_owned(),
        n => format!("{n} files"),
    };
    let line = objects.line.get(0).unwrap_or(0);
    let (variables, structs) = (objects.variables.sum(), objects.structs.sum());
    fitted(&format!("{of}: {variables} variables and {structs} structs, lines of {line} bytes"), width, 2)
}

/// The first line of a block: what shares which line.
fn finding(t: &findings::Reader<'_>, row: usize, several: bool, width: usize) -> String {
    let number = t.finding.get(row).unwrap_or(0);
    let (name, line) = (t.name.get(row).unwrap_or(""), t.line.get(row).unwrap_or(""));
    let place = match t.place.get(row) {
        Some(Place::Struct) => format!("struct {name}, line at +{line}"),
        Some(Place::Variables) | None => format!("{name} {line}"),
        Some(other) => format!("{name} {line}, {}", other.name()),
    };
    let mut text = format!("{number:>3}. {}: {place}", t.sharing.get(row).unwrap_or(""));
    if let (Some(stride), Some(elements)) = (t.stride.get(row), t.elements.get(row)) {
        let _ = write!(text, ", {elements} elements of {stride} B");
    } else {
        let (words, hot) = (t.words.get(row).unwrap_or(0), t.hot.get(row).unwrap_or(0));
        let _ = write!(text, ", {words} words, {hot} hot");
    }
    if t.place.get(row) == Some(Place::Struct)
        && let Some(source) = t.source.get(row)
    {
        let _ = write!(text, "  {source}");
    }
    if several {
        let _ = write!(text, "  {}", t.object.get(row).unwrap_or("").rsplit('/').next().unwrap_or(""));
    }
    fitted(&text, width, 5)
}

/// The words of a finding: offset in the line, size, kind, name, type, source.
fn members(words: &words::Reader<'_>, finding: u64, width: usize) -> String {
    let rows: Vec<usize> = words.rows().filter(|&r| words.finding.get(r) == Some(finding)).collect();
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|&r| {
            let text = |cell: Option<&str>| shown(cell.unwrap_or(""));
            let offset = words.offset.get(r).map_or("..".into(), |o| format!("+{o}"));
            let size = format!("{} B", words.size.get(r).unwrap_or(0));
            let [kind, name] = [words.kind.get(r), words.name.get(r)].map(text);
            [offset, size, kind, name, text(words.ty.get(r)), text(words.source.get(r))]
        })
        .collect();
    let wide = |c: usize| cells.iter().map(|row| width::columns(&row[c])).max().unwrap_or(0);
    let mut widths = [wide(0), wide(1), wide(2), wide(3), wide(4), wide(5)];
    // Types give way first, then sources, then names.
    for (c, least) in [(4, 8), (5, 12), (3, 16)] {
        let line: usize = 5 + widths.iter().sum::<usize>() + 2 * 5;
        widths[c] = widths[c].saturating_sub(line.saturating_sub(width)).max(widths[c].min(least));
    }
    let mut out = String::new();
    for row in &cells {
        let mut text = format!("     {:>1$}", row[0], widths[0]);
        let _ = write!(text, "  {:>1$}", row[1], widths[1]);
        for c in 2..6 {
            // The end of a path tells more than its start.
            let cell = if c == 5 || row[c].contains("::") {
                width::end(&row[c], widths[c])
            } else {
                width::start(&row[c], widths[c])
            };
            if widths[c] > 0 {
                let _ = write!(text, "  {}", width::filled(&cell, widths[c]));
            }
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn what_to_do(t: &findings::Reader<'_>, row: usize) -> String {
    let Some(fix) = t.fix.get(row).filter(|fix| !fix.is_empty()) else { return String::new() };
    let cost = t.cost.get(row).unwrap_or(0);
    let each = if t.place.get(row) == Some(Place::Struct) { " in each object" } else { "" };
    format!("{}, {} more{each}", shown(fix), bytes(cost))
}

fn bytes(n: u64) -> String {
    match n {
        0..10_240 => format!("{n} bytes"),
        _ => ncpu_table::size::words(n),
    }
}

/// No control character of a forged symbol reaches the terminal.
fn shown(text: &str) -> String {
    ncpu_table::safe::line(text).into_owned()
}

/// A paragraph, broken between words; lines after the first are indented.
fn fitted(text: &str, width: usize, indent: usize) -> String {
    let text = shown(text);
    let mut out = String::new();
    let mut line = text.chars().take_while(|c| *c == ' ').collect::<String>();
    for word in text.split_whitespace() {
        let used = width::columns(&line);
        let fresh = line.trim().is_empty();
        if !fresh && used + 1 + width::columns(word) > width {
            out += &line;
            out.push('\n');
            line = format!("{}{word}", " ".repeat(indent));
        } else {
            if !fresh {
                line.push(' ');
            }
            line += word;
        }
    }
    out + &line + "\n"
}

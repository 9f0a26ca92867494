//! Words that share a cache line: a block for each finding, the worst first; and where accesses were sampled,
//! the lines that moved.

mod moving;

use std::fmt::Write;

use ncpu_table::Table;

pub use moving::{Moving, moving, moving_text};

/// The text for people, of tables as `ncpu-lines` makes them: `findings` (maybe only some of its rows),
/// `words` and `objects`; `all` is how many findings there were before some were left out. No line is
/// longer than `width`.
pub fn text(findings: &Table, words: &Table, objects: &Table, all: usize, width: usize) -> String {
    let width = width.clamp(40, 160);
    let mut out = heading(objects, width);
    if findings.num_rows() == 0 {
        out += "found no locks, atomics or counters that share a line\n";
        return out;
    }
    let several = objects.num_rows() > 1;
    // What to do first, before the rows scroll it away.
    let first = what_to_do(findings, 0);
    if !first.is_empty() {
        out += &fitted(&format!("first: {first}"), width, 7);
    }
    for row in 0..findings.num_rows() {
        out.push('\n');
        out += &finding(findings, row, several, width);
        out += &members(words, findings.int(row, "finding").unwrap_or(0), width);
        let fix = what_to_do(findings, row);
        if !fix.is_empty() {
            out += &fitted(&format!("     -> {fix}"), width, 8);
        }
    }
    let left = all.saturating_sub(findings.num_rows());
    if left > 0 {
        let _ = writeln!(out, "\n{left} more: --top N shows more, --match NAME those that name something");
    }
    out
}

fn heading(objects: &Table, width: usize) -> String {
    let sum = |column| (0..objects.num_rows()).filter_map(|r| objects.int(r, column)).sum::<u64>();
    let of = match objects.num_rows() {
        1 => objects.text(0, "object").unwrap_or("").to_owned(),
        n => format!("{n} files"),
    };
    let line = objects.int(0, "line").unwrap_or(0);
    let (variables, structs) = (sum("variables"), sum("structs"));
    fitted(&format!("{of}: {variables} variables and {structs} structs, lines of {line} bytes"), width, 2)
}

/// The first line of a block: what shares which line.
fn finding(t: &Table, row: usize, several: bool, width: usize) -> String {
    let cell = |column| t.text(row, column).unwrap_or("");
    let number = t.int(row, "finding").unwrap_or(0);
    let (name, line, sharing) = (cell("name"), cell("line"), cell("sharing"));
    let place = match cell("in") {
        "struct" => format!("struct {name}, line at +{line}"),
        "variables" => format!("{name} {line}"),
        other => format!("{name} {line}, {other}"),
    };
    let mut text = format!("{number:>3}. {sharing}: {place}");
    if let (Some(stride), Some(elements)) = (t.int(row, "stride"), t.int(row, "elements")) {
        let _ = write!(text, ", {elements} elements of {stride} B");
    } else {
        let _ = write!(
            text,
            ", {} words, {} hot",
            t.int(row, "words").unwrap_or(0),
            t.int(row, "hot").unwrap_or(0)
        );
    }
    if cell("in") == "struct"
        && let Some(source) = t.text(row, "source")
    {
        let _ = write!(text, "  {source}");
    }
    if several {
        let _ = write!(text, "  {}", cell("object").rsplit('/').next().unwrap_or(""));
    }
    fitted(&text, width, 5)
}

/// The words of a finding: offset in the line, size, kind, name, type, source.
fn members(words: &Table, finding: u64, width: usize) -> String {
    let rows: Vec<usize> =
        (0..words.num_rows()).filter(|&r| words.int(r, "finding") == Some(finding)).collect();
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|&r| {
            let text = |column| shown(words.text(r, column).unwrap_or(""));
            let offset = words.int(r, "offset").map_or("..".into(), |o| format!("+{o}"));
            let size = format!("{} B", words.int(r, "size").unwrap_or(0));
            [offset, size, text("kind"), text("name"), text("type"), text("source")]
        })
        .collect();
    let wide = |c: usize| cells.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
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
                end(&row[c], widths[c])
            } else {
                start(&row[c], widths[c])
            };
            if widths[c] > 0 {
                let _ = write!(text, "  {cell:<0$}", widths[c]);
            }
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn what_to_do(t: &Table, row: usize) -> String {
    let Some(fix) = t.text(row, "fix").filter(|fix| !fix.is_empty()) else { return String::new() };
    let cost = t.int(row, "cost").unwrap_or(0);
    let each = if t.text(row, "in") == Some("struct") { " in each object" } else { "" };
    format!("{}, {} more{each}", shown(fix), bytes(cost))
}

fn bytes(n: u64) -> String {
    match n {
        0..10_240 => format!("{n} bytes"),
        10_240..10_485_760 => format!("{} KiB", n >> 10),
        _ => format!("{} MiB", n >> 20),
    }
}

/// No control character of a forged symbol reaches the terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn start(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn end(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.into();
    }
    ['…'].into_iter().chain(text.chars().skip(count + 1 - width.max(1))).collect()
}

/// A paragraph, broken between words; lines after the first are indented.
fn fitted(text: &str, width: usize, indent: usize) -> String {
    let text = shown(text);
    let mut out = String::new();
    let mut line = text.chars().take_while(|c| *c == ' ').collect::<String>();
    for word in text.split_whitespace() {
        let used = line.chars().count();
        let fresh = line.trim().is_empty();
        if !fresh && used + 1 + word.chars().count() > width {
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

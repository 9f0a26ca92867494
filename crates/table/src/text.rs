//! Aligned text that fits the terminal.

use std::fmt::Write;

use arrow_array::{Array, Float64Array, StringArray, UInt64Array};

use crate::{Column, Kind, Table, Type, Unit};

/// The least a text column is squeezed to before the line is let run over.
const MIN_TEXT: usize = 8;

/// Renders a table as aligned text, at most `width` columns wide where its text columns can be
/// shortened that far; a shortened cell ends in `…`. Numbers are never cut; where names would be cut
/// beyond recognition, columns of means and peaks, last first, give way.
pub fn render(table: &Table, width: usize) -> String {
    let names = |t: &Table| t.columns().iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    let mut shown = table.clone();
    while least_width(&shown) > width {
        let gives_way = |c: &Column| matches!(c.kind, Kind::Mean | Kind::Peak);
        let Some(at) = shown.columns().iter().rposition(gives_way) else { break };
        let mut rest = names(&shown);
        rest.remove(at);
        match shown.project(&rest.iter().map(String::as_str).collect::<Vec<_>>()) {
            Ok(fewer) => shown = fewer,
            Err(_) => break,
        }
    }
    render_all(&shown, width)
}

/// The narrowest a table can be with names still to be recognised.
fn least_width(table: &Table) -> usize {
    const LEGIBLE: usize = 22;
    let wide = |c: usize, column: &Column| {
        let cells = format_column(table, c);
        let full = cells.iter().map(|s| chars(s)).chain([chars(&head(column))]).max().unwrap_or(0);
        if column.ty == Type::Text { full.min(LEGIBLE) } else { full }
    };
    let cells: usize = table.columns().iter().enumerate().map(|(c, column)| wide(c, column)).sum();
    cells + 2 * table.columns().len().saturating_sub(1)
}

fn render_all(table: &Table, width: usize) -> String {
    let columns = table.columns();
    let heads: Vec<String> = columns.iter().map(head).collect();
    let cells: Vec<Vec<String>> = (0..columns.len()).map(|c| format_column(table, c)).collect();
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|c| cells[c].iter().map(|s| chars(s)).chain([chars(&heads[c])]).max().unwrap_or(0))
        .collect();
    squeeze(&mut widths, columns, width);

    let mut out = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for (c, column) in columns.iter().enumerate() {
            let cell = shorten(&cell(c), widths[c]);
            let fill = " ".repeat(widths[c] - chars(&cell));
            let gap = if c == 0 { "" } else { "  " };
            let _ = match column.ty {
                Type::Text => write!(text, "{gap}{cell}{fill}"),
                Type::Int | Type::Float => write!(text, "{gap}{fill}{cell}"),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&|c| heads[c].clone());
    (0..table.num_rows()).for_each(|row| line(&|c| cells[c][row].clone()));
    out
}

/// The name with its unit where the name does not tell it: `elapsed s`, `usr %`.
fn head(column: &Column) -> String {
    let symbol = column.unit.symbol();
    match column.unit {
        Unit::None | Unit::Share | Unit::Figure => column.name.clone(),
        _ if column.name.ends_with(symbol) => column.name.clone(),
        Unit::PerSecond => format!("{}/s", column.name),
        _ => format!("{} {symbol}", column.name),
    }
}

fn chars(s: &str) -> usize {
    s.chars().count()
}

fn shorten(s: &str, width: usize) -> String {
    if chars(s) <= width {
        return s.into();
    }
    s.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Takes the excess from the widest text column until the line fits or nothing is left to take.
fn squeeze(widths: &mut [usize], columns: &[Column], width: usize) {
    loop {
        let line: usize = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        if line <= width {
            return;
        }
        let widest = (0..widths.len()).filter(|&c| columns[c].ty == Type::Text).max_by_key(|&c| widths[c]);
        match widest {
            Some(c) if widths[c] > MIN_TEXT => {
                // Level with the next widest first, so that two long columns share the loss.
                let next = (0..widths.len())
                    .filter(|&d| d != c && columns[d].ty == Type::Text && widths[d] < widths[c])
                    .map(|d| widths[d])
                    .max()
                    .unwrap_or(MIN_TEXT)
                    .max(MIN_TEXT);
                widths[c] -= (line - width).min((widths[c] - next).max(1));
            }
            _ => return,
        }
    }
}

fn format_column(table: &Table, at: usize) -> Vec<String> {
    let column = &table.columns()[at];
    let array = table.batch().column(at);
    let any = array.as_any();
    let ints = any.downcast_ref::<UInt64Array>();
    let floats = any.downcast_ref::<Float64Array>();
    let texts = any.downcast_ref::<StringArray>();
    (0..table.num_rows())
        .map(|row| {
            if array.is_null(row) {
                return "-".into();
            }
            match (ints, floats, texts) {
                (Some(a), _, _) if column.unit == Unit::Bytes && column.kind != Kind::Key => {
                    bytes(a.value(row) as f64)
                }
                (Some(a), _, _) => a.value(row).to_string(),
                (_, Some(a), _) if column.unit == Unit::Bytes => bytes(a.value(row)),
                (_, Some(a), _) if column.unit == Unit::Figure => figure(a.value(row)),
                (_, Some(a), _) => format!("{:.*}", column.unit.decimals(), a.value(row)),
                // A control character in a name (a thread may call itself anything) must not
                // reach the terminal.
                (_, _, Some(a)) => {
                    a.value(row).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
                }
                _ => String::new(),
            }
        })
        .collect()
}

/// Binary multiples as `lgrpinfo` writes them: 128G, 3.9G, 774M.
fn bytes(n: f64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let mut n = n;
    let mut u = 0;
    while n >= 1024.0 && u + 1 < UNITS.len() {
        n /= 1024.0;
        u += 1;
    }
    if u > 0 && n < 10.0 { format!("{n:.1}{}", UNITS[u]) } else { format!("{n:.0}{}", UNITS[u]) }
}

/// Five significant digits: 0.0001044, 1.5, 12341.
pub fn figure(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let decimals = (4 - x.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{x:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> Table {
        let mut b = Table::builder(
            "locks",
            &[
                Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity"),
                Column::text("Lock", "name of the lock"),
                Column::text("Caller", "who asked for it"),
                Column::float("spin", Unit::Seconds, Kind::Time, "time spun"),
                Column::int("size", Unit::Bytes, Kind::Gauge, "size"),
            ],
        );
        b.row().float(0.866).text("pcf").text("page_create_wait").float(1.5).int(128 << 30);
        b.row()
            .float(0.004)
            .text("files_struct.file_lock with a long name")
            .text("x\x1b[2J")
            .float(0.25)
            .int(4198);
        b.row().null().text("mmap_lock");
        b.finish()
    }

    #[test]
    fn figures_have_the_digits_that_matter() {
        let told = [1.044e-4, 1.5, 12341.4, 0.0, f64::INFINITY, -0.25, 1e9].map(figure);
        assert_eq!(told, ["0.0001044", "1.5", "12341", "0", "inf", "-0.25", "1000000000"]);
    }

    #[test]
    fn aligned_and_fitted() {
        insta::assert_snapshot!(render(&locks(), 200), @r"
        CPU-util  Lock                                     Caller            spin s  size B
           0.866  pcf                                      page_create_wait   1.500    128G
           0.004  files_struct.file_lock with a long name  x?[2J              0.250    4.1K
               -  mmap_lock                                -                      -       -
        ");
        let mut many = Table::builder(
            "locks",
            &[
                Column::text("lock", "name"),
                Column::float("spin", Unit::Seconds, Kind::Time, "time"),
                Column::float("mean", Unit::Microseconds, Kind::Mean, "mean"),
                Column::float("max", Unit::Microseconds, Kind::Peak, "peak"),
            ],
        );
        many.row().text("files_struct.file_lock").float(1.0).float(2.0).float(3.0);
        let many = many.finish();
        assert!(render(&many, 80).contains("max us"));
        let head = render(&many, 42).lines().next().unwrap().to_string();
        assert!(head.contains("mean us") && !head.contains("max us"), "{head}");
        assert!(render(&many, 30).contains("files_struct.file_lock"), "the name stays whole");
        let narrow = render(&locks(), 60);
        assert!(narrow.lines().all(|l| l.chars().count() <= 60), "{narrow}");
        assert!(narrow.contains('…'));
    }
}

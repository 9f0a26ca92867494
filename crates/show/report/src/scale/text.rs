//! The report for a terminal.

use ncpu_table::{Column, Kind, Table, Unit, render_text};

use super::{Scale, layers, plot};
use crate::wrap::wrap;

/// Columns of the points, the least needed last: those give way where the terminal is narrow.
const COLUMNS: [&str; 14] = [
    "series",
    "N",
    "CPUs",
    "runs",
    "failed",
    "throughput",
    "+-",
    "speedup",
    "efficiency",
    "USL",
    "Amdahl",
    "off",
    "contention",
    "coherency",
];

/// The whole report, `width` columns wide; `points` is the table `scale` as the reader wants it sorted and cut.
pub fn render(scale: &Scale, points: &Table, width: usize) -> String {
    let text_width = width.min(120);
    let mut out = String::new();
    let line = |words: &str| wrap(words, text_width, "", "  ");
    let empty = |column: &str| {
        (0..points.num_rows()).all(|r| match column {
            "series" | "CPUs" | "notes" => points.text(r, column).unwrap_or("").is_empty(),
            "failed" => points.int(r, column).unwrap_or(0) == 0,
            _ => points.number(r, column).is_none(),
        })
    };
    // Bands of rows have columns of their own: all are shown.
    let shown = if points.index("band").is_ok() {
        points.clone()
    } else {
        let mut columns: Vec<&str> =
            COLUMNS.into_iter().chain(["notes"]).filter(|c| points.index(c).is_ok() && !empty(c)).collect();
        if columns.contains(&"USL") {
            columns.retain(|c| *c != "Amdahl");
        }
        // A narrow terminal gets fewer columns; those repeated elsewhere are dropped first.
        for gone in ["runs", "CPUs", "+-", "contention", "coherency", "off"] {
            if table_width(&points.project(&columns).unwrap_or_else(|_| points.clone())) <= width {
                break;
            }
            columns.retain(|c| *c != gone);
        }
        points.project(&columns).unwrap_or_else(|_| points.clone())
    };
    out += &line(&match scale.metric.as_str() {
        "throughput" | "" => scale.command.clone(),
        metric => format!("{}: throughput is {metric}", scale.command),
    });
    out.push('\n');
    out += &render_text(&shown, width);
    out.push('\n');
    for series in &scale.series {
        let many = scale.series.len() > 1;
        if many {
            out += &format!("{}\n", series.name);
        }
        for words in series.lines() {
            out += &line(&words);
        }
    }
    if let Some(table) = &scale.layers {
        out.push('\n');
        out += &growing(table, width, text_width);
    }
    out.push('\n');
    out += &plot::text(scale, width);
    if !scale.notes.is_empty() {
        out.push('\n');
        for note in &scale.notes {
            out += &line(&format!("Note: {note}"));
        }
    }
    out
}

fn table_width(table: &Table) -> usize {
    render_text(table, usize::MAX).lines().map(|l| l.chars().count()).max().unwrap_or(0)
}

/// The layers that grow, a column for each N.
fn growing(table: &Table, width: usize, text_width: usize) -> String {
    const MOST: usize = 8;
    let (ns, all) = layers::by_growth(table);
    let mut out = wrap(&layers::verdict(&ns, &all), text_width, "", "  ");
    out += "CPU time for a unit of work by layer; that of the program's layers at the smallest N is 100:\n";
    // Always the first and the last, and those between if they fit.
    let room = (width.saturating_sub(42) / 9).clamp(2, 12);
    let step = ns.len().saturating_sub(1).div_ceil(room - 1).max(1);
    let mut at: Vec<usize> = (0..ns.len()).step_by(step).collect();
    if at.last() != Some(&(ns.len() - 1)) {
        at.push(ns.len() - 1);
    }
    let mut columns = vec![Column::text("layer", "where capacity went")];
    columns.extend(at.iter().map(|&i| {
        Column::float(&format!("N = {}", ns[i]), Unit::None, Kind::Gauge, "cost of a unit of work")
    }));
    columns.push(Column::float("growth", Unit::None, Kind::Gauge, "last less first"));
    let mut rows = Table::builder("layers", &columns);
    for layer in all.iter().filter(|l| l.costs.iter().any(|c| *c >= 0.5)).take(MOST) {
        let row = at.iter().fold(rows.row().text(&layer.name), |row, &i| row.float(layer.costs[i]));
        row.float(layers::growth(layer));
    }
    out + &render_text(&rows.finish(), width)
}

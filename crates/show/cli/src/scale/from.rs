//! Figures measured elsewhere.

use std::path::Path;

use anyhow::Context;
use ncpu_measure::scaling::{Curve, Point};
use ncpu_table::{Table, Type};

/// Reads curves from a file: its first column of numbers is N, each further one a curve. Rows of the same N are runs of
/// it; an empty cell is a run that was not made, and a note with the curve says so.
///
/// # Errors
/// The file cannot be read, or holds no two columns of numbers, or an N below 1, or words among numbers.
pub fn read(path: &Path) -> anyhow::Result<Vec<(Curve, Option<String>)>> {
    let table = Table::read(path)?;
    let path = path.display();
    let mut numbers = Vec::new();
    for column in table.columns() {
        if let Some(cells) = cells(&table, &column.name, column.ty).with_context(|| path.to_string())? {
            numbers.push((column.name.as_str(), cells));
        }
    }
    let [(n, at), curves @ ..] = numbers.as_slice() else {
        anyhow::bail!("{path}: no column of numbers; give N and throughput")
    };
    if curves.is_empty() {
        anyhow::bail!("{path}: only `{n}` is a column of numbers; give N and throughput");
    }
    let mut out = Vec::new();
    for (name, cells) in curves {
        let mut points: Vec<Point> = Vec::new();
        let mut empty = Vec::new();
        for (row, (at, x)) in at.iter().zip(cells).enumerate() {
            let row = row + 1;
            let Some(x) = *x else {
                empty.push(row.to_string());
                continue;
            };
            let at = at.with_context(|| format!("{path}, row {row}: no {n}"))?;
            if !(at >= 1.0 && at.is_finite() && x > 0.0 && x.is_finite()) {
                anyhow::bail!(
                    "{path}, row {row}: {n} {at}, {name} {x}: give N of 1 or more and a throughput above 0"
                );
            }
            match points.iter_mut().find(|p| p.n == at) {
                Some(point) => point.samples.push(x),
                None => points.push(Point { n: at, samples: vec![x], ..Point::default() }),
            }
        }
        if points.is_empty() {
            anyhow::bail!("{path}: `{name}` has no figure");
        }
        let note = (!empty.is_empty()).then(|| {
            let rows = if empty.len() == 1 { "row" } else { "rows" };
            format!("`{name}` is empty in {rows} {}: taken as no run", empty.join(", "))
        });
        points.sort_by(|a, b| a.n.total_cmp(&b.n));
        // Of a file without names the position is all there is to tell curves apart by.
        let unnamed = name.starts_with("column ");
        let (name, metric) = match curves.len() {
            1 if unnamed => (String::new(), "throughput".into()),
            1 => (String::new(), name.to_string()),
            _ => (name.to_string(), "throughput".into()),
        };
        out.push((Curve { name, metric, points, machine: None }, note));
    }
    Ok(out)
}

/// The cells of a column of numbers; `None` for a column of words.
///
/// # Errors
/// Some of its cells are numbers and others are not.
fn cells(table: &Table, name: &str, ty: Type) -> anyhow::Result<Option<Vec<Option<f64>>>> {
    let rows = 0..table.num_rows();
    if ty != Type::Text {
        return Ok(Some(rows.map(|r| table.number(r, name)).collect()));
    }
    // Blanks beside a number make a text of it.
    let texts: Vec<&str> = rows.map(|r| table.text(r, name).unwrap_or_default().trim()).collect();
    let parsed: Vec<Option<f64>> = texts.iter().map(|t| t.parse().ok()).collect();
    if parsed.iter().all(Option::is_none) {
        return Ok(None);
    }
    match texts.iter().zip(&parsed).position(|(t, x)| x.is_none() && !t.is_empty()) {
        Some(row) => {
            anyhow::bail!("row {}: `{}` in column `{name}` is not a number", row + 1, texts[row])
        }
        None => Ok(Some(parsed)),
    }
}

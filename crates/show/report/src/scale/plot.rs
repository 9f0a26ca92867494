//! A plot of characters.

use super::{Scale, Series};
use ncpu_table::figure;

/// Marks of measured points, by series.
const MARKS: [char; 6] = ['●', '▲', '■', '◆', '○', '△'];

/// Ticks at round numbers, five or so, from 0 to at least `top`.
pub(super) fn ticks(top: f64) -> Vec<f64> {
    let rough = (top / 5.0).max(f64::MIN_POSITIVE);
    let unit = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|m| m * unit)
        .into_iter()
        .find(|s| *s >= rough * 0.999)
        .unwrap_or(rough);
    (0..=(top / step).ceil() as usize).map(|i| i as f64 * step).collect()
}

/// The largest N drawn, and the highest throughput.
pub(super) fn extent(scale: &Scale) -> (f64, f64) {
    let n = scale.series.iter().flat_map(|s| {
        s.points.iter().map(|p| p.n).chain(s.laws.iter().flat_map(|l| l.line.iter().map(|l| l.n)))
    });
    let x = scale.series.iter().flat_map(|s| {
        s.points.iter().map(|p| p.x.2).chain(s.laws.iter().flat_map(|l| l.line.iter().map(|l| l.x)))
    });
    (n.fold(1.0, f64::max), x.fold(0.0, f64::max))
}

/// The slope of linear scaling: the throughput of one.
pub(super) fn one(series: &Series) -> Option<f64> {
    series.points.iter().find(|p| p.speedup > 0.0).map(|p| p.x.0 / p.speedup)
}

/// Throughput over N, `width` columns wide: what was measured, the law (`·`), linear scaling (`/`).
pub(super) fn text(scale: &Scale, width: usize) -> String {
    let (to, top) = extent(scale);
    let top = *ticks(top).last().unwrap_or(&1.0);
    if top <= 0.0 {
        return String::new();
    }
    let rows = 16usize;
    let labels: Vec<(usize, String)> =
        ticks(top).iter().map(|t| (((1.0 - t / top) * rows as f64).round() as usize, figure(*t))).collect();
    let margin = labels.iter().map(|l| l.1.chars().count()).max().unwrap_or(0) + 1;
    let columns = width.clamp(40, 100).saturating_sub(margin + 2).max(20);
    let mut cells = vec![vec![' '; columns]; rows + 1];
    let mut put = |n: f64, x: f64, mark: char| {
        let column = (n / to * (columns - 1) as f64).round();
        let row = ((1.0 - x / top) * rows as f64).round();
        if (0.0..columns as f64).contains(&column) && (0.0..=rows as f64).contains(&row) {
            cells[row as usize][column as usize] = mark;
        }
    };
    let at = |i: usize| to * i as f64 / (columns - 1) as f64;
    for series in &scale.series {
        if let Some(one) = one(series) {
            (0..columns).for_each(|i| put(at(i), one * at(i), '/'));
        }
    }
    for series in &scale.series {
        let Some(law) = series.laws.last() else { continue };
        for pair in law.line.windows(2) {
            // Steps finer than a column and a row, so that the line has no gaps.
            for i in 0..8 {
                let f = f64::from(i) / 8.0;
                put(pair[0].n + f * (pair[1].n - pair[0].n), pair[0].x + f * (pair[1].x - pair[0].x), '·');
            }
        }
    }
    for (i, series) in scale.series.iter().enumerate() {
        for p in &series.points {
            put(p.n, p.x.0, MARKS[i % MARKS.len()]);
        }
    }
    let mut out = format!("{:margin$}{}\n", "", scale.metric);
    for (r, row) in cells.iter().enumerate() {
        let label = labels.iter().find(|l| l.0 == r).map_or("", |l| &l.1);
        let line: String = row.iter().collect();
        out += &format!("{label:>w$} │{}\n", line.trim_end(), w = margin - 1);
    }
    out += &format!("{:>w$} └{}\n", "", "─".repeat(columns), w = margin - 1);
    let mut axis = vec![' '; columns + 4];
    for t in ticks(to).into_iter().filter(|t| *t <= to) {
        let text: Vec<char> = figure(t).chars().collect();
        let column = (t / to * (columns - 1) as f64).round() as usize;
        let from = column.saturating_sub(text.len() / 2);
        for (i, c) in text.into_iter().enumerate() {
            if let Some(cell) = axis.get_mut(from + i) {
                *cell = c;
            }
        }
    }
    let axis: String = axis.into_iter().collect();
    out += &format!("{:margin$} {}  N\n", "", axis.trim_end());
    let mut key: Vec<String> = scale
        .series
        .iter()
        .enumerate()
        .map(|(i, s)| {
            format!("{} {}", MARKS[i % MARKS.len()], if s.name.is_empty() { "measured" } else { &s.name })
        })
        .collect();
    if let Some(law) = scale.series.iter().find_map(|s| s.laws.last()) {
        key.push(format!("· {}", if law.name == "USL" { "USL" } else { "Amdahl's law" }));
    }
    key.push("/ linear".into());
    out + &format!("{:margin$} {}\n", "", key.join("   "))
}

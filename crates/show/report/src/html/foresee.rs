//! The curve of a forecast, for the HTML page.

use std::fmt::Write;

use ncpu_table::{Table, figure};

use super::table_of;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;

/// Writes the section of a page: throughput over CPUs with the band, both axes logarithmic; then the tables.
pub(crate) fn section(out: &mut String, points: &Table, fixes: Option<&Table>) {
    let number = |r: usize, c: &str| points.number(r, c).filter(|x| *x > 0.0 && x.is_finite());
    let rows: Vec<[f64; 4]> = (0..points.num_rows())
        .filter_map(|r| {
            Some([number(r, "CPUs")?, number(r, "throughput")?, number(r, "low")?, number(r, "high")?])
        })
        .collect();
    out.push_str(
        "<section id=foresee><h2>Predicted</h2><p class=lead>Throughput over CPUs, both axes logarithmic. The shade is the 90 % \
         band; the dashed line is what the first point would give if each further CPU did as much.</p>",
    );
    if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
        let (x0, x1) = (first[0].log2(), last[0].log2().max(first[0].log2() + 1.0));
        let lowest = rows.iter().map(|r| r[2]).fold(f64::INFINITY, f64::min);
        let ticks = ticks(lowest, rows.iter().map(|r| r[3]).fold(lowest, f64::max));
        let end_of = |tick: Option<&f64>| tick.map_or(0.0, |v| v.log2());
        let (least, most) = (end_of(ticks.first()), end_of(ticks.last()));
        let x = |n: f64| LEFT + (n.log2() - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
        let y = |v: f64| HEIGHT - BOTTOM - (v.log2() - least) / (most - least) * (HEIGHT - TOP - BOTTOM);
        let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            let mut d = String::new();
            for (i, (n, v)) in points.enumerate() {
                let _ = write!(d, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, x(n), y(v));
            }
            d
        };
        let _ = write!(
            out,
            "<div style=\"overflow-x:auto\"><svg class=foresee viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"Predicted throughput \
             over CPUs\" style=\"display:block;margin-bottom:.5rem;width:100%;min-width:27rem;max-width:46rem;font:13px system-ui,sans-serif;fill:currentColor\">"
        );
        for v in ticks {
            let _ = write!(
                out,
                "<line x1={LEFT} x2={:.1} y1={1:.1} y2={1:.1} stroke=currentColor stroke-opacity=.15 /><text x={2:.1} y={3:.1} \
                 text-anchor=end fill-opacity=.75>{4}</text>",
                WIDTH - RIGHT,
                y(v),
                LEFT - 6.0,
                y(v) + 4.0,
                short(v)
            );
        }
        for r in &rows {
            let _ = write!(
                out,
                "<text x={:.1} y={:.1} text-anchor=middle fill-opacity=.75>{}</text>",
                x(r[0]),
                HEIGHT - BOTTOM + 18.0,
                r[0]
            );
        }
        let one = first[1] / first[0];
        let end = last[0].min(most.exp2() / one);
        let _ = write!(
            out,
            "<path fill=none stroke=currentColor stroke-opacity=.5 stroke-dasharray=\"4 4\" d=\"{}\" />",
            path(&mut [(first[0], first[1]), (end, one * end)].into_iter())
        );
        let up = rows.iter().map(|r| (r[0], r[3]));
        let down = rows.iter().rev().map(|r| (r[0], r[2]));
        let _ = write!(out, "<path fill=\"#2f7ed8\" fill-opacity=.2 d=\"{}Z\" />", path(&mut up.chain(down)));
        let _ = write!(
            out,
            "<path fill=none stroke=\"#2f7ed8\" stroke-width=2 d=\"{}\" />",
            path(&mut rows.iter().map(|r| (r[0], r[1])))
        );
        for r in &rows {
            let _ = write!(
                out,
                "<circle cx={:.1} cy={:.1} r=4 fill=\"#2f7ed8\"><title>{} CPUs: {} ({}–{})</title></circle>",
                x(r[0]),
                y(r[1]),
                r[0],
                figure(r[1]),
                figure(r[2]),
                figure(r[3])
            );
        }
        let _ = write!(
            out,
            "<text x={:.1} y={:.1} text-anchor=middle fill-opacity=.75>CPUs</text></svg></div>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0
        );
    }
    table_of(out, points, "foresee");
    if let Some(fixes) = fixes {
        out.push_str("<h3>What each fix would give</h3>");
        table_of(out, fixes, "fixes");
    }
    out.push_str("</section>");
}

/// Lines of the grid that hold two figures between them: powers of ten, and twice and five times them where few would do.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (decades / 8.0).ceil().max(1.0) as i32;
    let powers = (low.log10().floor() as i32 - every..).step_by(every as usize);
    let mut out = Vec::new();
    for v in powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))) {
        if v <= low {
            out.clear();
        }
        out.push(v);
        if v >= high && out.len() > 1 {
            break;
        }
    }
    out
}

/// A figure beside an axis: `5 M` instead of `5000000`.
fn short(x: f64) -> String {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    // Four digits need no unit.
    match units.into_iter().find(|(_, size)| x >= *size && x >= 1e4) {
        Some((unit, size)) => format!("{} {unit}", figure(x / size)),
        None => figure(x),
    }
}

#[cfg(test)]
mod tests {
    use super::{short, ticks};

    #[test]
    fn figures_beside_an_axis_are_short() {
        let written = [0.5, 5000.0, 20_000.0, 5e6, 2e11, 1e15].map(short);
        assert_eq!(written, ["0.5", "5000", "20 k", "5 M", "200 G", "1000 T"]);
    }

    #[test]
    fn the_grid_holds_what_is_drawn() {
        assert_eq!(ticks(83_730.0, 15_425_228.0), [5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7]);
        assert_eq!(ticks(900.0, 1e6), [100.0, 1e3, 1e4, 1e5, 1e6]);
        for (low, high) in [(1.0, 1.0), (0.03, 0.031), (1e-6, 1e12), (7.0, 7e4)] {
            let found = ticks(low, high);
            assert!(found[0] <= low && found[found.len() - 1] >= high, "{found:?}");
            assert!((2..=10).contains(&found.len()), "{found:?}");
        }
    }
}

//! The curve of what was foretold, for the HTML page.

use std::fmt::Write;

use ncpu_table::{Table, figure};

use super::{esc, table_of};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;

/// Writes the section of a page: throughput over CPUs, both in powers, with the band; then the tables.
pub(crate) fn section(out: &mut String, points: &Table, fixes: Option<&Table>) {
    let number = |r: usize, c: &str| points.number(r, c).filter(|x| *x > 0.0);
    let rows: Vec<[f64; 4]> = (0..points.num_rows())
        .filter_map(|r| {
            Some([number(r, "CPUs")?, number(r, "throughput")?, number(r, "low")?, number(r, "high")?])
        })
        .collect();
    out.push_str(
        "<section id=foresee><h2>Foretold</h2><p class=lead>Throughput over CPUs, both axes in powers of two; the shade is the 90 % \
         band, the dashes what as many times the first point would be.</p>",
    );
    if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
        let (x0, x1) = (first[0].log2(), last[0].log2().max(first[0].log2() + 1.0));
        let least = rows.iter().map(|r| r[2]).fold(f64::INFINITY, f64::min).log2().floor();
        let most = rows.iter().map(|r| r[3]).fold(0.0, f64::max).log2().ceil().max(least + 1.0);
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
            "<svg class=foresee viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"Throughput foretold over CPUs\" \
             style=\"max-width:100%;height:auto;font:13px system-ui,sans-serif;fill:currentColor\">"
        );
        let _ = write!(out, "<text x={LEFT} y=20 font-weight=600>Throughput over CPUs</text>");
        // At most eight lines of the grid.
        let step = ((most - least) / 8.0).ceil().max(1.0);
        let mut power = least;
        while power <= most {
            let v = power.exp2();
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
            power += step;
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
            "<text x={:.1} y={:.1} text-anchor=middle fill-opacity=.75>{}</text></svg>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            esc("CPUs")
        );
    }
    table_of(out, points, "foresee");
    if let Some(fixes) = fixes {
        out.push_str("<h3>What each fix would give</h3>");
        table_of(out, fixes, "fixes");
    }
    out.push_str("</section>");
}

/// A figure beside an axis, which has room for seven characters: `4.19 M` instead of `4194304`.
fn short(x: f64) -> String {
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    // Four digits need no unit.
    match units.into_iter().find(|(_, size)| x >= *size && x >= 1e4) {
        Some((unit, size)) => {
            let scaled = x / size;
            let decimals = (2 - scaled.log10().floor() as i32).max(0) as usize;
            format!("{scaled:.decimals$} {unit}")
        }
        None => figure(x),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn figures_beside_an_axis_are_short() {
        let written = [0.5, 8192.0, 65536.0, 4_194_304.0, 274_877_906_944.0, 8e15].map(short);
        assert_eq!(written, ["0.5", "8192", "65.5 k", "4.19 M", "275 G", "8000 T"]);
        assert!((-3..50).all(|power| short(f64::from(power).exp2()).len() <= 9));
    }
}

//! Two runs beside each other: text and page of the table `compare`.

use std::fmt::Write;

use ncpu_table::{Table, figure};

use crate::html::{self, Figure, Section};

/// The verdict on the rows, in a sentence.
pub fn verdict(table: &Table) -> String {
    let count =
        |word: &str| (0..table.num_rows()).filter(|&r| table.text(r, "verdict") == Some(word)).count();
    let (slower, faster, same) = (count("slower"), count("faster"), count("same"));
    let compared = slower + faster + same;
    let logs: Vec<f64> =
        (0..table.num_rows()).filter_map(|r| table.number(r, "ratio")).map(f64::ln).collect();
    if logs.is_empty() {
        return "Nothing could be compared.".into();
    }
    let unknown = match count("unknown") {
        0 => String::new(),
        n => format!("; no verdict on {n}"),
    };
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    let chance = if compared >= 10 {
        format!("; of {compared} alike, {:.0} would seem to differ by chance", 0.05 * compared as f64)
    } else {
        String::new()
    };
    format!(
        "B is slower in {slower}, faster in {faster}, no difference in {same} of {compared}{unknown}; geometric mean of B/A {mean:.3}{chance}."
    )
}

/// The page; `a` and `b` say what they are.
pub fn html(table: &Table, a: &str, b: &str, notes: &[String]) -> String {
    let count =
        |word: &str| (0..table.num_rows()).filter(|&r| table.text(r, "verdict") == Some(word)).count();
    let figures = [
        Figure::new("slower", count("slower").to_string(), "interval of B/A above 1".into()),
        Figure::new("faster", count("faster").to_string(), "interval below 1".into()),
        Figure::new("same", count("same").to_string(), "1 is within the interval".into()),
    ];
    let mut rows = String::new();
    html::table_of(&mut rows, table, "compare");
    let sections = [
        Section {
            id: "ratios",
            title: "Ratios",
            lead: "B over A with the 95 % confidence interval; right of 1 is slower. Grey intervals hold 1; a ratio \
                   without one comes from a single run.",
            body: forest(table),
        },
        Section {
            id: "rows",
            title: "Figures",
            lead: "Times are medians without outliers and disturbed samples; raw ones are of all.",
            body: rows,
        },
    ];
    let mut all = vec![format!("A: {a}"), format!("B: {b}"), verdict(table)];
    all.extend(notes.iter().cloned());
    html::plain(&format!("ncpu bench: {a} and {b}"), &format!("{a} → {b}"), &figures, &all, &sections)
}

/// Intervals one below the other, on a scale of logarithms.
fn forest(table: &Table) -> String {
    const LEFT: f64 = 210.0;
    const WIDTH: f64 = 1000.0;
    const ROW: f64 = 22.0;
    let rows: Vec<(String, [f64; 3], &str)> = (0..table.num_rows())
        .filter_map(|r| {
            let n = |c: &str| table.number(r, c).filter(|x| *x > 0.0 && x.is_finite());
            let colour = match table.text(r, "verdict") {
                Some("slower") => "var(--kspin)",
                Some("faster") => "var(--faults)",
                _ => "var(--others)",
            };
            let ratio = n("ratio")?;
            let interval = [n("low").unwrap_or(ratio), ratio, n("high").unwrap_or(ratio)];
            Some((table.text(r, "benchmark")?.to_string(), interval, colour))
        })
        .collect();
    if rows.is_empty() {
        return "<p class=none>Nothing could be compared.</p>".into();
    }
    let most = rows.iter().flat_map(|r| r.1).map(|x| x.ln().abs()).fold(0.05, f64::max) * 1.05;
    let x = |ratio: f64| LEFT + (ratio.ln() / most + 1.0) / 2.0 * (WIDTH - LEFT - 20.0);
    let height = ROW * rows.len() as f64 + 40.0;
    let mut out = format!(
        "<svg width={WIDTH} height={height} viewBox=\"0 0 {WIDTH} {height}\" style=\"max-width:100%;height:auto;font:13px system-ui,sans-serif\" \
         role=img aria-label=\"Ratios of B to A with intervals\" fill=currentColor>"
    );
    let bottom = height - 30.0;
    for tick in [-most / 1.05, -most / 2.1, 0.0, most / 2.1, most / 1.05].map(f64::exp) {
        let _ = write!(
            out,
            "<line stroke=\"var(--line)\" x1={0:.1} x2={0:.1} y1=0 y2={bottom} /><text x={0:.1} y={1} text-anchor=middle>{2}</text>",
            x(tick),
            height - 12.0,
            figure((tick * 1000.0).round() / 1000.0)
        );
    }
    for (i, (name, [low, ratio, high], colour)) in rows.iter().enumerate() {
        let y = ROW * (i as f64 + 0.7);
        let short: String = name.chars().take(28).collect();
        let _ = write!(
            out,
            "<g><title>{0}: {ratio:.3} ({low:.3}–{high:.3})</title><text x=0 y={1:.1}>{2}</text>\
             <line stroke=\"{colour}\" stroke-width=2.5 x1={3:.1} x2={4:.1} y1={5:.1} y2={5:.1} />\
             <circle fill=\"{colour}\" cx={6:.1} cy={5:.1} r=4.5 /></g>",
            html::esc(name),
            y + 4.0,
            html::esc(&short),
            x(*low),
            x(*high),
            y,
            x(*ratio)
        );
    }
    out + "</svg>"
}

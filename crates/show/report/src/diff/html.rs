//! The comparison as one self-contained page.

use std::fmt::Write;

use ncpu_table::{Select, figure};

use super::{Diff, Section, Verdict, flame};
use crate::html::{self, Figure, Section as PageSection, esc, layer_class, sized};

/// The page.
pub fn page(diff: &Diff) -> String {
    let count = |v: Verdict| diff.entries.iter().filter(|e| e.verdict == v).count();
    let ratio = diff.rate.b / diff.rate.a.max(f64::MIN_POSITIVE);
    let mut figures = vec![Figure::new(
        "throughput",
        format!("x{}", figure((ratio * 1000.0).round() / 1000.0)),
        "B over A".into(),
    )];
    if diff.is_unproven() {
        figures.push(Figure::new("unproven", "1 + 1".into(), "recordings: runs vary".into()));
    } else {
        figures.push(Figure::new(
            "grew",
            count(Verdict::Grew).to_string(),
            "beyond what runs vary by".into(),
        ));
        figures.push(Figure::new(
            "shrank",
            count(Verdict::Shrank).to_string(),
            "beyond what runs vary by".into(),
        ));
    }
    let mut notes: Vec<String> = ["A", "B"]
        .iter()
        .zip(diff.names.iter().zip(diff.counts))
        .map(|(letter, (name, n))| format!("{letter}: {name} ({n} recordings)"))
        .collect();
    notes.extend(diff.differences.iter().map(|d| format!("not alike: {d}")));
    notes.extend(diff.notes.iter().cloned());
    let mut rows = String::new();
    let table = diff.table();
    html::table_of(&mut rows, &Select::default().apply(table.clone()).unwrap_or(table), "diff");
    let sections = [
        PageSection {
            id: "layers",
            title: "Layers",
            lead: "CPU-seconds of A (pale) and B, for the same unit of work.",
            body: bars(diff),
        },
        PageSection {
            id: "figures",
            title: "Figures",
            lead: "Largest change of each section first; low and high are the ends of the change's 95 % interval.",
            body: rows,
        },
        PageSection {
            id: "flames",
            title: "Flame graphs",
            lead: "Callers are above, callees below. Click or Enter zooms, Escape zooms out, arrow keys walk.",
            body: flame::graphs(diff),
        },
    ];
    let title = format!("{} → {}", diff.names[0], diff.names[1]);
    html::plain(&format!("ncpu diff: {title}"), &title, &figures, &notes, &sections)
}

/// Two bars a layer.
fn bars(diff: &Diff) -> String {
    const LEFT: f64 = 190.0;
    const WIDTH: f64 = 1000.0;
    const ROW: f64 = 34.0;
    let entries: Vec<_> = diff.section(Section::Layers).collect();
    let most = entries.iter().map(|e| e.change.a.max(e.change.b)).fold(f64::MIN_POSITIVE, f64::max);
    let height = ROW * entries.len() as f64 + 6.0;
    let mut out = format!(
        "<svg width={WIDTH} height={height} viewBox=\"0 0 {WIDTH} {height}\" style=\"max-width:100%;height:auto;font:13px \
         system-ui,sans-serif\" role=img aria-label=\"Layers of A and B\" fill=currentColor>"
    );
    let room = WIDTH - LEFT - 170.0;
    for (i, e) in entries.iter().enumerate() {
        let y = ROW * i as f64;
        let (a, b) = (room * e.change.a / most, room * e.change.b / most);
        let word = match e.verdict {
            Verdict::Grew | Verdict::Shrank => e.verdict.word(),
            Verdict::Same | Verdict::Unproven => "",
        };
        let _ = write!(
            out,
            "<g class={class}><title>{name}: {va} -&gt; {vb} CPU-s {per}</title><text x=0 y={ty:.1}>{name}</text>\
             <rect fill=\"var(--c)\" opacity=0.4 x={LEFT} y={y0:.1} width={a:.1} height=11 />\
             <rect fill=\"var(--c)\" x={LEFT} y={y1:.1} width={b:.1} height=11 />\
             <text x={tx:.1} y={ty:.1}>{by:+.1} % {word}</text></g>",
            class = layer_class(&e.name),
            name = esc(&e.name),
            va = sized(e.change.a),
            vb = sized(e.change.b),
            per = diff.per.words(),
            ty = y + 18.0,
            y0 = y + 4.0,
            y1 = y + 16.0,
            tx = LEFT + a.max(b) + 8.0,
            by = 100.0 * e.change.by() / diff.capacity[0].max(f64::MIN_POSITIVE),
        );
    }
    out + "</svg>"
}

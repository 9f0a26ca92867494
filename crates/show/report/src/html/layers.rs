//! The onion: the capacity waterfall, a bar for each layer that begins where the last one ended.

use std::fmt::Write;

use super::markup::{esc, percent, seconds};
use crate::onion::{Onion, Row};

/// Recoverable layers of this share begin open, and the largest always.
const OPEN: f64 = 0.05;

pub(super) fn section(out: &mut String, onion: &Onion) {
    out.push_str(
        "<section id=layers><h2>Where capacity went</h2>\
         <p class=lead>Every CPU-second of CPUs × elapsed lies in one layer. Solid bars could come back, \
         largest first; hatched bars are the rest. Each bar begins where the one above ends. \
         Open a layer for its evidence and remedy.</p>",
    );
    scaled(out, onion);
    out.push_str("</section>");
}

/// The layers below a scale.
pub(super) fn scaled(out: &mut String, onion: &Onion) {
    if onion.rows.is_empty() {
        out.push_str("<p class=none>The observation has no length: nothing to divide.</p>");
        return;
    }
    out.push_str(
        "<div class=scale aria-hidden=true><span>0</span><span>25</span><span>50</span><span>75</span>\
         <span>100 %</span></div>",
    );
    waterfall(out, onion, true);
}

/// The layers of an onion; with `open`, the largest are open.
pub(super) fn waterfall(out: &mut String, onion: &Onion, open: bool) {
    let mut from = 0.0;
    for (recoverable, title) in [(true, "Could come back"), (false, "The rest")] {
        let rows: Vec<&Row> = onion.rows.iter().filter(|r| r.layer.recoverable() == recoverable).collect();
        if rows.is_empty() {
            continue;
        }
        let (share, cpu): (f64, f64) = rows.iter().fold((0.0, 0.0), |(a, b), r| (a + r.share, b + r.seconds));
        let _ = write!(
            out,
            "<h3>{title} <small>{} of capacity, {} CPU-s</small></h3><div class=waterfall>",
            percent(share),
            seconds(cpu)
        );
        for (i, row) in rows.into_iter().enumerate() {
            let opened = open && recoverable && (i == 0 || row.share >= OPEN);
            layer(out, row, from, onion.capacity, opened);
            from += row.share;
        }
        out.push_str("</div>");
    }
}

fn layer(out: &mut String, row: &Row, from: f64, capacity: f64, open: bool) {
    let error = if row.error > 0.0005 { format!("± {}", seconds(row.error)) } else { String::new() };
    let told = !row.evidence.is_empty() || !row.advice.is_empty();
    let open = if told && open { " open" } else { "" };
    let place = |s: f64| (s * 100.0).clamp(0.0, 100.0);
    let _ = write!(
        out,
        "<details class=layer data-layer=\"{0}\" data-share={1}{open}><summary><span class=name>{0}<small>{2}</small></span>\
         <span class=share>{3}</span><span class=cpu>{4} CPU-s <small>{error}</small></span>\
         <span class=bar><i class=\"l-{5}{6}\" style=\"left:{7:.3}%;width:{8:.3}%\"></i>",
        esc(row.layer.name()),
        row.share,
        esc(row.layer.meaning()),
        percent(row.share),
        seconds(row.seconds),
        row.layer.colour(),
        if row.layer.recoverable() { "" } else { " rest" },
        place(from),
        place(row.share).min(100.0 - place(from)),
    );
    if row.error > 0.0005 && capacity > 0.0 {
        let (end, e) = (from + row.share, row.error / capacity);
        let (left, right) = (place(end - e), place(end + e));
        let _ = write!(out, "<b style=\"left:{left:.3}%;width:{:.3}%\"></b>", right - left);
    }
    out.push_str("</span></summary><div class=why>");
    if !row.evidence.is_empty() {
        out.push_str("<ul>");
        for line in row.lines() {
            let _ = write!(out, "<li>{}</li>", esc(&line));
        }
        out.push_str("</ul>");
    }
    if !row.advice.is_empty() {
        let _ = write!(out, "<p class=advice><strong>Remedy:</strong> {}</p>", esc(&row.remedy()));
    }
    if !told {
        out.push_str("<p>No more is known of it.</p>");
    }
    out.push_str("</div></details>");
}

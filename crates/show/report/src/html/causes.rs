//! The causes, from all layers together: the first section of the page.

use std::fmt::Write;

use super::markup::{esc, percent, seconds};
use crate::findings::{Finding, Findings, made_of, rest, sentence};
use crate::onion::Onion;

pub(super) fn section(out: &mut String, onion: &Onion, findings: &Findings) {
    out.push_str("<section id=causes><h2>What is wrong</h2>");
    list(out, onion, findings);
    out.push_str("</section>");
}

/// The causes, largest first, below the sentence that says what is wrong.
pub(super) fn list(out: &mut String, onion: &Onion, findings: &Findings) {
    if onion.short || onion.rows.is_empty() {
        out.push_str("<p class=none>The observation is too short to say.</p>");
        return;
    }
    let _ = write!(out, "<p class=verdict>{}</p>", esc(&sentence(onion, findings)));
    if findings.list.is_empty() {
        return;
    }
    out.push_str("<ol class=causes>");
    for (i, found) in findings.list.iter().enumerate() {
        cause(out, i + 1, found);
    }
    let _ = write!(out, "</ol><p class=rest-of>The rest: {}.</p>", esc(&rest(findings, onion)));
}

fn cause(out: &mut String, n: usize, found: &Finding) {
    let _ = write!(
        out,
        "<li class=cause data-cause=\"{}\"><div class=head><span class=name>{n} {}</span><span class=share>{}</span>\
         <span class=cpu>{} CPU-s <small>± {}</small></span><span class=gain>{} <small>if removed</small></span></div>\
         <div class=made aria-hidden=true>",
        esc(&found.id),
        esc(&found.title),
        percent(found.share),
        seconds(found.seconds),
        seconds(found.error),
        found.gain_words()
    );
    for part in &found.parts {
        let _ = write!(
            out,
            "<i class=\"l-{}\" style=\"width:{:.3}%\" title=\"{}: {} CPU-s\"></i>",
            part.layer.colour(),
            (100.0 * found.share * part.seconds / found.seconds.max(f64::MIN_POSITIVE)).clamp(0.0, 100.0),
            esc(part.layer.name()),
            seconds(part.seconds)
        );
    }
    out.push_str("</div><dl>");
    let mut line = |label: &str, text: &str| {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", esc(label), esc(text));
    };
    for evidence in &found.lines {
        line(evidence.label, &evidence.text);
    }
    line("made of", &made_of(found).join(", "));
    out.push_str("</dl>");
    if let Some(advice) = &found.advice {
        let _ = write!(out, "<p class=advice><strong>Remedy:</strong> {}</p>", esc(&advice.words));
    }
    out.push_str("</li>");
}

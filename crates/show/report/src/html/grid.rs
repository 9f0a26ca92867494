//! A sortable table of the page.

use std::fmt::Write;

use super::markup::esc;

/// Rows shown before "show all".
const SHOWN: usize = 10;
/// Rows that a page carries; the recording has them all.
const MOST: usize = 300;

/// A column: its head and what it means.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub name: &'a str,
    pub meaning: &'a str,
    pub number: bool,
}

pub(super) const fn word(name: &'static str, meaning: &'static str) -> Head<'static> {
    Head { name, meaning, number: false }
}

pub(super) const fn number(name: &'static str, meaning: &'static str) -> Head<'static> {
    Head { name, meaning, number: true }
}

pub(super) enum Cell {
    /// Untrusted text.
    Text(String),
    /// Untrusted text of several words, which may be broken into lines.
    Words(String),
    /// A number, and how it is shown.
    Number(f64, String),
    /// Markup made here, and the number it sorts by.
    Markup(f64, String),
}

/// A table with rows already sorted by column `by`, largest first; no column is marked if `by` is not the
/// number of a column.
pub(super) fn table(out: &mut String, name: &str, heads: &[Head<'_>], by: usize, rows: Vec<Vec<Cell>>) {
    let total = rows.len();
    let _ = write!(
        out,
        "<div class=table>{1}<div class=scroll role=region tabindex=0 aria-label=\"{0}\"><table class=\"grid{2}\"><thead><tr>",
        esc(name),
        if total > SHOWN {
            "<div class=tools><input type=search class=filter placeholder=Filter aria-label=\"Filter rows by words\"></div>"
        } else {
            ""
        },
        if total > SHOWN { " folded" } else { "" }
    );
    for (i, head) in heads.iter().enumerate() {
        let _ = write!(
            out,
            "<th scope=col{}{}><button type=button title=\"{}\">{}</button></th>",
            if head.number { " class=n" } else { "" },
            if i == by { " aria-sort=descending" } else { "" },
            esc(head.meaning),
            esc(head.name)
        );
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows.into_iter().take(MOST) {
        out.push_str("<tr>");
        for cell in row {
            let _ = match cell {
                Cell::Text(text) => write!(out, "<td>{}</td>", esc(&text)),
                Cell::Words(text) => write!(out, "<td class=w>{}</td>", esc(&text)),
                Cell::Number(v, shown) => {
                    write!(out, "<td class=n data-v=\"{}\">{}</td>", round(v), esc(&shown))
                }
                Cell::Markup(v, markup) => write!(out, "<td data-v=\"{}\">{markup}</td>", round(v)),
            };
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if total > SHOWN {
        let _ = write!(
            out,
            "<button type=button class=all aria-expanded=false>Show all {}</button>",
            total.min(MOST)
        );
    }
    if total > MOST {
        let _ =
            write!(out, "<p class=lead>The first {MOST} of {total} rows; the recording has them all.</p>");
    }
    out.push_str("</div>");
}

/// Enough digits to sort by.
fn round(v: f64) -> f64 {
    (v * 1e9).round() / 1e9
}

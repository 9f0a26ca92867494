//! A page of plots and tables: the style of the onion's page without its sections.

use std::fmt::Write;

use ncpu_table::{Kind, Table, Type, Unit, figure, objects};

use super::grid::{Cell, Head, table};
use super::markup::{count, esc, sized};
use super::{foot, head};
use crate::onion::Layer;

/// A figure at the head of a page.
pub(crate) struct Figure {
    name: &'static str,
    value: String,
    beside: String,
}

impl Figure {
    /// A value and what is to be known beside it.
    pub(crate) fn new(name: &'static str, value: String, beside: String) -> Figure {
        Figure { name, value, beside }
    }
}

/// A section; `body` is markup.
pub(crate) struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub lead: &'static str,
    pub body: String,
}

/// The page.
pub(crate) fn plain(
    title: &str,
    what: &str,
    figures: &[Figure],
    notes: &[String],
    sections: &[Section],
) -> String {
    let mut out = String::with_capacity(1 << 17);
    head(&mut out, title);
    out.push_str("<header><nav aria-label=Sections>");
    for s in sections {
        let _ = write!(out, "<a href=\"#{}\">{}</a>", s.id, esc(s.title));
    }
    let _ = write!(
        out,
        "<button type=button id=theme hidden>Dark</button></nav><h1><code>{}</code></h1><dl class=figures>",
        esc(what)
    );
    for f in figures {
        let _ = write!(
            out,
            "<div><dt>{}</dt><dd>{} <small>{}</small></dd></div>",
            esc(f.name),
            esc(&f.value),
            esc(&f.beside)
        );
    }
    out.push_str("</dl>");
    super::notes(&mut out, notes);
    out.push_str("</header><main>");
    for s in sections {
        let _ = write!(
            out,
            "<section id={}><h2>{}</h2><p class=lead>{}</p>{}</section>",
            s.id,
            esc(s.title),
            esc(s.lead),
            s.body
        );
    }
    out.push_str("</main>");
    foot(&mut out, "", &serde_json::Value::Null);
    out
}

/// A table of the page, columns without any value left out.
pub(crate) fn table_of(out: &mut String, t: &Table, name: &str) {
    let known = |c: &str| {
        (0..t.num_rows()).any(|r| t.number(r, c).is_some() || t.text(r, c).is_some_and(|s| !s.is_empty()))
    };
    let columns: Vec<_> = t.columns().iter().filter(|c| known(&c.name)).collect();
    let names: Vec<String> = columns
        .iter()
        .map(|c| match c.unit {
            Unit::None | Unit::Share | Unit::Figure | Unit::Objects => c.name.clone(),
            _ => format!("{} {}", c.name, c.unit.symbol()),
        })
        .collect();
    let heads: Vec<Head<'_>> = columns
        .iter()
        .zip(&names)
        .map(|(c, name)| Head { name, meaning: &c.meaning, number: c.ty != Type::Text })
        .collect();
    let rows = (0..t.num_rows()).map(|r| {
        let cells =
            columns.iter().enumerate().map(|(i, c)| match (t.number(r, &c.name), t.text(r, &c.name)) {
                (Some(x), _) if c.ty == Type::Int => {
                    Cell::Number(x, if c.kind == Kind::Key { figure(x) } else { count(x) })
                }
                (Some(x), _) if c.unit == Unit::Figure => Cell::Number(x, sized(x)),
                (Some(x), _) => Cell::Number(x, format!("{x:.*}", c.unit.decimals())),
                (_, Some(s)) if c.unit == Unit::Objects => Cell::Words(objects::words(s).into_owned()),
                (_, Some(s)) if i == 0 => Cell::Text(s.into()),
                (_, Some(s)) => Cell::Words(s.into()),
                _ if c.ty == Type::Text => Cell::Text(String::new()),
                _ => Cell::Number(f64::MIN, "–".into()),
            });
        cells.collect()
    });
    table(out, name, &heads, usize::MAX, rows.collect());
}

/// The class that gives a layer of this name its colour.
pub(crate) fn layer_class(name: &str) -> String {
    format!("l-{}", Layer::of_name(name).unwrap_or(Layer::Unseen).colour())
}

/// The same markup with every attribute quoted, as XML wants it.
pub(crate) fn quoted(markup: &str) -> String {
    let mut out = String::with_capacity(markup.len() * 5 / 4);
    let mut rest = markup;
    while let Some(open) = rest.find('<') {
        out.push_str(&rest[..open]);
        let Some(close) = rest[open..].find('>') else { break };
        let (tag, after) = rest[open..].split_at(close + 1);
        let mut chars = tag.chars().peekable();
        let mut inside = false;
        while let Some(c) = chars.next() {
            inside ^= c == '"';
            out.push(c);
            if c == '=' && !inside && chars.peek() != Some(&'"') {
                out.push('"');
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != '>') {
                    out.push(c);
                }
                out.push('"');
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

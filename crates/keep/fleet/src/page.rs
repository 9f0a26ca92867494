//! One self-contained page of a fleet: layers by group, a grid and a table of machines, and each machine's recordings.
//!
//! The page loads nothing: style, script and data are in it, and its content security policy blocks every
//! other script, whatever the name of a host.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ncpu_schema::Layer;
use ncpu_table::{Column, Table, Unit, safe};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ask::{self, Asked, Question};
use crate::{Result, labels, when};

/// Its first rule contains the colours of layers, which are the same on all pages.
const COLOURS: &str = include_str!("../web/page.css");
const STYLE: &str = include_str!("../web/fleet.css");
const SCRIPT: &str = include_str!("../web/fleet.js");

/// Layers by their place in [`Layer::ALL`], and microseconds.
type Sums = BTreeMap<usize, u64>;

/// The page.
///
/// # Errors
/// As [`Asked::ask`].
pub fn page(asked: &mut Asked, question: &Question) -> Result<String> {
    let groups = question.by.len();
    let mut by = question.by.clone();
    by.extend(ask::by(&["machine".into()])?);
    let whole = Question { by, top: None, ..question.clone() };
    let raw = asked.ask("layers", include_str!("../sql/onion.sql"), &whole)?;
    let mut of_group: BTreeMap<Vec<String>, (Sums, BTreeMap<String, Sums>)> = BTreeMap::new();
    for r in 0..raw.num_rows() {
        let (Some(layer), Some(us)) = (layer_of(&raw, r), raw.int(r, "us")) else { continue };
        let cell = |i: usize| raw.text(r, &whole.by[i].name).unwrap_or("").to_string();
        let group: Vec<String> = (0..groups).map(cell).collect();
        let (sums, machines) = of_group.entry(group).or_default();
        *sums.entry(layer).or_default() += us;
        *machines.entry(cell(groups)).or_default().entry(layer).or_default() += us;
    }
    let plain = Question { by: Vec::new(), top: None, ..question.clone() };
    let about = asked.ask("machines", include_str!("../sql/machines.sql"), &plain)?;
    let latest = asked.ask("latest", include_str!("../sql/latest.sql"), &plain)?;
    let rows: BTreeMap<&str, usize> =
        (0..about.num_rows()).filter_map(|r| Some((about.text(r, "machine")?, r))).collect();
    let recordings = recordings(&latest);

    let (mut shown_groups, mut shown_machines) = (Vec::new(), Vec::new());
    for (at, (group, (sums, machines))) in of_group.iter().enumerate() {
        let name = match group.join(" · ") {
            name if name.trim_matches([' ', '·']).is_empty() => "the fleet".into(),
            name => name,
        };
        shown_groups.push(json!({"name": shown(&name), "machines": machines.len(), "shares": shares(sums)}));
        for (machine, sums) in machines {
            let row = rows.get(machine.as_str()).copied();
            let text = |column: &str| row.and_then(|r| about.text(r, column)).unwrap_or("");
            let number = |column: &str| row.and_then(|r| about.int(r, column)).unwrap_or(0);
            shown_machines.push(json!({
                "host": shown(text("host")), "group": at, "kernel": shown(text("kernel")),
                "cpu_model": shown(text("cpu_model")), "cpus": number("cpus"),
                "labels": shown(&labels::decoded(text("labels").trim_matches(';'))),
                "recordings": number("recordings"), "last": time(number("last_us")), "shares": shares(sums),
                "last_recordings": recordings.get(machine).cloned().unwrap_or_default(),
            }));
        }
    }
    let layers: Vec<Value> = Layer::ALL
        .iter()
        .map(|l| json!({"name": l.name(), "recoverable": l.recoverable(), "colour": l.colour()}))
        .collect();
    let machines = shown_machines.len();
    let data = json!({"layers": layers, "groups": shown_groups, "machines": shown_machines});
    Ok(whole_page(asked, machines, &data))
}

/// A page of one answer.
pub fn of_table(asked: &Asked, table: &Table) -> String {
    let numbers: Vec<bool> = table.columns().iter().map(|c| c.ty != ncpu_table::Type::Text).collect();
    let class = |number: bool| if number { " class=n" } else { "" };
    // Shares and times have a bar whose length is relative to the column's largest value.
    let has_bar = |unit| matches!(unit, Unit::Percent | Unit::Share | Unit::CpuSeconds | Unit::Seconds);
    let most = |column: &Column| {
        let cells = (0..table.num_rows()).filter_map(|r| table.number(r, &column.name));
        has_bar(column.unit).then(|| cells.map(f64::abs).fold(0.0, f64::max)).filter(|most| *most > 0.0)
    };
    let most: Vec<Option<f64>> = table.columns().iter().map(most).collect();
    let mut rows = String::new();
    for r in 0..table.num_rows() {
        rows += "<tr>";
        for ((column, &number), most) in table.columns().iter().zip(&numbers).zip(&most) {
            let text = table.text(r, &column.name).map(String::from);
            let cell = text.or_else(|| Some(ncpu_table::figure(table.number(r, &column.name)?)));
            let part = most.and_then(|most| Some(100.0 * table.number(r, &column.name)?.abs() / most));
            let class = match part {
                Some(part) => format!(" class=\"n bar\" style=--part:{part:.1}%"),
                None => class(number).into(),
            };
            rows += &format!("<td{class}>{}</td>", escaped(cell.as_deref().unwrap_or("-")));
        }
        rows += "</tr>";
    }
    let head = table.columns().iter().zip(&numbers).map(|(column, &number)| {
        let unit = column.unit.symbol();
        let unit = if unit.is_empty() { String::new() } else { format!(" <small>{}</small>", escaped(unit)) };
        let (name, meaning) = (escaped(&column.name), escaped(&column.meaning));
        format!("<th{} title=\"{meaning}\">{name}{unit}</th>", class(number))
    });
    let head: String = head.collect();
    let name = escaped(table.name());
    framed(
        asked,
        &format!("{}: {name}", escaped(asked.root())),
        &format!("{} rows", table.num_rows()),
        &format!(
            "<h2>{name}</h2><div class=wide tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        ),
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        "",
    )
}

fn whole_page(asked: &Asked, machines: usize, data: &Value) -> String {
    let script = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
    // JSON that can stand in a script: it contains no `<` that could end it.
    let data: String = data
        .to_string()
        .chars()
        .map(|c| match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => format!("\\u{:04x}", c as u32),
            c => c.to_string(),
        })
        .collect();
    framed(
        asked,
        &escaped(asked.root()),
        &format!("{machines} machines; every CPU-second in exactly one layer"),
        "<h2>Layers by group</h2><div class=cards id=groups></div>\
         <h2>Machines</h2><div class=tools><label>Share of <select id=layer></select></label>\
         <span class=scale id=scale></span></div><div class=heat id=cells></div>\
         <h2>A machine</h2><section id=machine></section>\
         <h2>All machines</h2><div class=wide tabindex=0><table><thead><tr id=head></tr></thead><tbody id=rows></tbody></table></div>",
        &format!(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; img-src data:; base-uri 'none'; \
             form-action 'none'"
        ),
        &format!("<script type=application/json id=data>{data}</script><script>{SCRIPT}</script>"),
    )
}

/// The frame of all pages. Title, subtitle, content and scripts are HTML.
fn framed(asked: &Asked, title: &str, subtitle: &str, content: &str, policy: &str, scripts: &str) -> String {
    let notes: String = asked.notes.iter().map(|n| format!("<p class=dim>{}</p>", escaped(n))).collect();
    let colours = COLOURS.split_once('}').map_or("", |(rule, _)| rule);
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"{policy}\">\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><meta name=referrer content=no-referrer>\
         <link rel=icon href=\"data:,\"><title>ncpu: {title}</title><style>{colours}}}{STYLE}</style></head><body>\
         <header><h1>{title}</h1><p class=where>{subtitle}</p>{notes}</header>\
         <main>{content}</main><footer>ncpu {}</footer>{scripts}</body></html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn layer_of(table: &Table, row: usize) -> Option<usize> {
    let name = table.text(row, "layer")?;
    Layer::ALL.iter().position(|l| l.name() == name)
}

/// The last recordings of each machine.
fn recordings(latest: &Table) -> BTreeMap<String, Vec<Value>> {
    let mut out: BTreeMap<String, Vec<(String, u64, String, Sums)>> = BTreeMap::new();
    for r in 0..latest.num_rows() {
        let text = |column: &str| latest.text(r, column).unwrap_or("").to_string();
        let (Some(layer), Some(us)) = (layer_of(latest, r), latest.int(r, "us")) else { continue };
        let of = out.entry(text("machine")).or_default();
        if of.last().is_none_or(|(id, ..)| *id != text("id")) {
            of.push((text("id"), latest.int(r, "at_us").unwrap_or(0), text("source"), Sums::new()));
        }
        if let Some((.., sums)) = of.last_mut() {
            *sums.entry(layer).or_default() += us;
        }
    }
    let value = |(_, at, source, sums): &(String, u64, String, Sums)| json!({"at": time(*at), "source": shown(source), "shares": shares(sums)});
    out.iter().map(|(machine, list)| (machine.clone(), list.iter().map(value).collect())).collect()
}

/// Layers with their shares, without empty ones; four digits are more than a screen shows.
fn shares(sums: &Sums) -> Value {
    let whole: u64 = sums.values().sum();
    let share = |us: u64| (us as f64 / whole.max(1) as f64 * 1e5).round() / 1e5;
    sums.iter().filter(|(_, us)| share(**us) > 0.0).map(|(l, us)| json!([l, share(*us)])).collect()
}

fn time(us: u64) -> String {
    let second = us / 1_000_000 % 86_400;
    format!("{} {:02}:{:02}", when::date(us as i64), second / 3600, second / 60 % 60)
}

fn shown(text: &str) -> String {
    safe::line(text).into_owned()
}

fn escaped(text: &str) -> String {
    let text = safe::line(text);
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

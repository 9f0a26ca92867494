//! One self-contained page of an observation.
//!
//! The page asks for nothing from anywhere: styles, script and data are in it, and its content
//! security policy lets no other script run, whatever a process may have called itself.
//!
//! The page of `ncpu serve` shares this code: the onion with its evidence and notes is the answer to `/onion`, which that page inserts and
//! marks with the change against another time. `web/shared` has flame graphs, the order and filter of tables, and colours in plain
//! JavaScript with types in its comments: the TypeScript of the page imports it, and the report holds it with `web/page.js` as one
//! script, so reports need no Node to be built. Rows of tables differ: those of the report are markup, at most 300, and work without
//! scripts; the page has only those in sight.

mod causes;
mod flame;
pub(crate) mod foresee;
mod grid;
mod layers;
mod markup;
mod plain;
mod requests;
mod tables;
mod tenants;
#[cfg(test)]
mod tests;
mod threads;
mod time;

use std::fmt::Write;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ncpu_record::Recording;
use sha2::{Digest, Sha256};

use crate::findings::Findings;
use crate::onion::Onion;
use markup::{json, percent, seconds};
use ncpu_record::utc;

pub(crate) use flame::{Stacks, frames, graph, text_of, texts};
pub(crate) use markup::{esc, sized};
pub(crate) use plain::{Figure, Section, layer_class, plain, quoted, table_of};

const STYLE: &str = include_str!("../../web/page.css");

/// The page's script and the modules that it imports, as one module.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let modules = concat!(
        include_str!("../../web/basics.js"),
        include_str!("../../web/table.js"),
        include_str!("../../web/flame.js"),
        include_str!("../../web/page.js")
    );
    let lines = modules.lines().filter(|line| !line.starts_with("import "));
    lines.map(|line| line.strip_prefix("export ").unwrap_or(line).to_owned() + "\n").collect()
});

const SECTIONS: [(&str, &str); 10] = [
    ("causes", "What is wrong"),
    ("layers", "Layers"),
    ("tenants", "Tenants"),
    ("time", "Over time"),
    ("locks", "Kernel locks"),
    ("user-locks", "User locks"),
    ("requests", "Requests"),
    ("threads", "Threads"),
    ("calls", "System calls"),
    ("flames", "Flame graphs"),
];

/// The page.
///
/// # Errors
/// As [`crate::onion::Onion::peel`].
pub fn page(recording: &Recording) -> Result<String, ncpu_schema::Error> {
    let onion = Onion::peel(recording)?;
    let mut out = String::with_capacity(1 << 19);
    let command = if onion.command.is_empty() { "the machine" } else { &onion.command };
    head(&mut out, &format!("ncpu: {command}"));
    header(&mut out, recording, &onion, command);
    out.push_str("<main>");
    if let Some(points) = recording.tables.get("foresee") {
        foresee::section(&mut out, points, recording.tables.get("fixes"));
    }
    causes::section(&mut out, &onion, &Findings::of(recording)?);
    notes(&mut out, &onion.notes);
    layers::section(&mut out, &onion);
    tenants::section(&mut out, recording)?;
    let data = match has(recording, "time") {
        true => time::section(&mut out, recording)?,
        false => serde_json::Value::Null,
    };
    tables::locks(&mut out, recording, &onion);
    tables::user_locks(&mut out, recording);
    requests::section(&mut out, recording)?;
    threads::section(&mut out, recording);
    tables::calls(&mut out, recording, &onion);
    flame::section(&mut out, recording);
    out.push_str("</main>");
    foot(&mut out, &recording.manifest.ncpu_version, &data);
    Ok(out)
}

/// Whether a page of the recording has a section. A simulation is one interval, in which nothing changes.
fn has(recording: &Recording, section: &str) -> bool {
    match section {
        "time" => !recording.manifest.simulated,
        "requests" => recording.tables.contains_key("served"),
        "tenants" => recording.tables.contains_key("tenant_losses"),
        _ => true,
    }
}

/// Everything up to the body.
fn head(out: &mut String, title: &str) {
    let script = BASE64_STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'\">\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta name=color-scheme content=\"light dark\"><meta name=referrer content=no-referrer>\
         <link rel=icon href=\"data:,\"><title>{}</title><style>{STYLE}</style></head><body>",
        esc(title)
    );
}

/// The version that recorded it, the script and its data.
fn foot(out: &mut String, recorded_by: &str, data: &serde_json::Value) {
    let by = if recorded_by.is_empty() {
        String::new()
    } else {
        format!("; recorded by ncpu {}", esc(recorded_by))
    };
    let _ = write!(
        out,
        "<footer>ncpu {}{by}</footer>\
         <script type=application/json id=data>{}</script><script type=module>{}</script></body></html>",
        env!("CARGO_PKG_VERSION"),
        json(data),
        *SCRIPT
    );
}

/// The onion alone, with its evidence and notes, for a page that shows other things beside it.
///
/// # Errors
/// As [`crate::onion::Onion::peel`].
pub fn onion(recording: &Recording) -> Result<String, ncpu_schema::Error> {
    let onion = Onion::peel(recording)?;
    let mut out = String::new();
    causes::list(&mut out, &onion, &Findings::of(recording)?);
    layers::scaled(&mut out, &onion);
    notes(&mut out, &onion.notes);
    Ok(out)
}

fn notes(out: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    out.push_str("<aside class=notes aria-label=Notes><strong>Notes</strong><ul>");
    for note in notes {
        let _ = write!(out, "<li>{}</li>", esc(note));
    }
    out.push_str("</ul></aside>");
}

fn header(out: &mut String, recording: &Recording, onion: &Onion, command: &str) {
    out.push_str("<header><nav aria-label=Sections>");
    let foretold = recording.tables.contains_key("foresee").then_some(("foresee", "Foretold"));
    for (id, name) in foretold.into_iter().chain(SECTIONS).filter(|s| has(recording, s.0)) {
        let _ = write!(out, "<a href=\"#{id}\">{name}</a>");
    }
    let _ = write!(
        out,
        "<button type=button id=theme hidden>Dark</button></nav><h1><code>{}</code></h1><p class=where>",
        esc(command)
    );
    let m = &recording.manifest;
    let words = [
        m.host.clone(),
        if m.kernel.is_empty() { String::new() } else { format!("Linux {}", m.kernel) },
        m.cpu_model.clone(),
        utc(m.created_unix),
        match onion.status {
            Some(0) | None => String::new(),
            Some(status) => format!("exit status {status}"),
        },
    ];
    let words: Vec<String> = words.iter().filter(|w| !w.is_empty()).map(|w| esc(w)).collect();
    let _ = write!(out, "{}</p><dl class=figures>", words.join(" · "));

    let back: f64 = onion.rows.iter().filter(|r| r.layer.recoverable()).map(|r| r.share).sum();
    let mut figures = vec![("could come back", percent(back), "of capacity".to_string())];
    figures.push(("elapsed", seconds(onion.elapsed), "s".into()));
    match onion.used {
        Some((user, system)) => {
            let cpu = 100.0 * (user + system) / onion.elapsed.max(f64::MIN_POSITIVE);
            figures.push(("user", seconds(user), "s".into()));
            figures.push(("system", seconds(system), "s".into()));
            figures.push(("CPU", format!("{cpu:.0} %"), format!("of {}00 %", onion.cpus)));
        }
        None if m.simulated => {}
        None => figures.push(("user and system", "–".into(), "known of commands run".into())),
    }
    figures.push((
        "capacity",
        seconds(onion.capacity),
        format!("CPU-s = {} CPUs × {} s", onion.cpus, seconds(onion.elapsed)),
    ));
    for (name, value, unit) in figures {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>");
    }
    out.push_str("</dl></header>");
}

//! `/api/v1`: tables as Arrow, JSON or comma-separated values, for any time that is held.

use arrow_ipc::writer::StreamWriter;
use ncpu_report::findings::Findings;
use ncpu_report::onion::Onion;
use ncpu_report::tenants::{Naming, Tenancy};
use ncpu_schema::{Definition, Layer};
use ncpu_table::{Column, Format, Printer, Select, Table};
use serde_json::{Value, json};

use crate::fail::Fail;
use crate::merge;
use crate::query::{Query, Wrong, preferred};
use crate::reply::{ARROW, JSON, LINES, Reply};
use crate::state::State;

const CSV: &str = "text/csv";

/// Rows of layers over time at most.
const MOST_BANDS: f64 = 10_000.0;

/// Tables whose rows are of an interval each, unless sums are asked for.
const OVER_TIME: [&str; 6] = ["cpu_time", "idle_time", "events", "throttling", "cgroup_cpu", "bandwidth"];

/// Parameters of a table's request.
pub const PARAMETERS: [&str; 10] = ["from", "to", "k", "A", "m", "filter", "top", "each", "rows", "by"];

/// Which of the types that a table has is wanted.
///
/// # Errors
/// None of them.
pub fn form(accept: Option<&str>) -> Result<&'static str, Fail> {
    const FORMS: [&str; 4] = [JSON, LINES, ARROW, CSV];
    preferred(accept, &FORMS).ok_or_else(|| Fail::NotAcceptable(format!("there are {}", FORMS.join(", "))))
}

/// A table.
///
/// # Errors
/// There is none of that name, or nothing is held of that time.
pub fn table(state: &State, name: &str, query: &Query, form: &'static str) -> Result<Reply, Fail> {
    let extent = state.extent().ok_or_else(Fail::nothing_yet)?;
    let (from, to) = query.time(extent.to)?;
    let rows = query.number("rows", 1.0, MOST_BANDS)?.unwrap_or(1000.0) as usize;
    let (table, from, to, notes) = if name == "bands" {
        (state.bands(from, to, rows), from, to, Vec::new())
    } else {
        let intervals = state.between(from, to);
        let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else {
            return Err(Fail::not_held(from, to, &extent));
        };
        let (from, to) = (first.head.start, last.head.end);
        let table = match name {
            "layers" => {
                let merged = state.merged(&intervals)?;
                Findings::of(&merged)?.layers(&Onion::peel(&merged)?)
            }
            name @ ("tenants" | "ledger") => {
                let naming =
                    Naming::at(query.text("by").unwrap_or("tenant")).map_err(|e| Fail::Bad(Wrong(e)))?;
                let tenancy = Tenancy::of(&state.merged(&intervals)?, &naming)?.unwrap_or_default();
                if name == "tenants" { tenancy.table() } else { tenancy.ledger() }
            }
            "causes" => Findings::of(&state.merged(&intervals)?)?.table(),
            name => {
                let each = match query.text("each") {
                    Some(text) => text != "0",
                    None => OVER_TIME.contains(&name),
                };
                let table = match each {
                    // Seconds since 1970 instead of since the first interval.
                    true => {
                        let table = merge::some(&state.about, &intervals, &|table| table == name)?
                            .tables
                            .remove(name);
                        table.map(|table| table.less("t", -from)).transpose()?
                    }
                    false => merge::sums(&state.about, &intervals, name)?,
                };
                let declared = || ncpu_schema::definition(name).map(|d| d.builder().finish());
                table
                    .or_else(declared)
                    .ok_or_else(|| Fail::NotFound("there is no such table: see /api/v1/tables".into()))?
            }
        };
        (table, from, to, last.head.notes.clone())
    };
    // The filter applies to the rows that would be shown, which may be bands.
    let select = query.select()?;
    let first = Select { top: select.top, ..Select::default() };
    let select = Select { top: None, ..select };
    let words = query.text("filter").unwrap_or("");
    let filtered = |table: Table| if words.is_empty() { Ok(table) } else { table.with_words(words) };
    let table =
        select.apply(table).and_then(filtered).and_then(|table| first.apply(table)).map_err(|e| match e {
            e @ (ncpu_table::Error::NoColumn { .. }
            | ncpu_table::Error::BandsWithoutSort(_)
            | ncpu_table::Error::MeanWithoutBands
            | ncpu_table::Error::Zero(_)) => Fail::Bad(Wrong(e.to_string())),
            e => e.into(),
        })?;
    encoded(&table, form, json!({ "table": table.name(), "from": from, "to": to, "notes": notes }))
}

fn encoded(table: &Table, form: &'static str, about: Value) -> Result<Reply, Fail> {
    let mut out = Vec::new();
    match form {
        ARROW => {
            let mut stream =
                StreamWriter::try_new(&mut out, &table.batch().schema()).map_err(ncpu_table::Error::from)?;
            stream.write(table.batch()).and_then(|()| stream.finish()).map_err(ncpu_table::Error::from)?;
        }
        CSV => print(table, Format::Csv, &mut out)?,
        LINES => print(table, Format::Json, &mut out)?,
        _ => {
            let mut lines = Vec::new();
            print(table, Format::Json, &mut lines)?;
            // Its description, and its rows, which are written already.
            let about = about.to_string();
            out.extend_from_slice(about.trim_end_matches('}').as_bytes());
            out.extend_from_slice(b",\"rows\":[");
            let mut rows = lines.split(|&b| b == b'\n').filter(|line| !line.is_empty());
            out.extend_from_slice(rows.next().unwrap_or_default());
            for row in rows {
                out.extend_from_slice(b",\n");
                out.extend_from_slice(row);
            }
            out.extend_from_slice(b"]}\n");
        }
    }
    Ok(Reply::new(form, out))
}

fn print(table: &Table, format: Format, out: &mut Vec<u8>) -> Result<(), ncpu_table::Error> {
    let mut printer = Printer::new(out, format, 80);
    printer.table(table)?;
    printer.finish()
}

/// The tables that there may be: names, meanings, columns.
pub fn list(state: &State) -> Reply {
    let held: Vec<String> = state
        .last()
        .map_or_else(Vec::new, |held| held.head.tables.iter().map(|(name, _)| name.clone()).collect());
    let of_schema = ncpu_schema::tables().filter(|d| held.iter().any(|name| name == d.name));
    let mut tables: Vec<Value> = of_schema.map(described).collect();
    let own = |name: &str, meaning: &str, columns: Value| json!({ "name": name, "meaning": meaning, "columns": columns });
    tables.push(own(
        "causes",
        "Causes in the chosen time, from all layers together.",
        columns(&Findings::columns()),
    ));
    tables.push(own(
        "layers",
        "The onion: layers of the time that is asked for, with evidence and advice.",
        json!([]),
    ));
    tables.extend([&ncpu_schema::tenants::TABLE, &ncpu_schema::ledger::TABLE].map(described));
    let bands = state.bands(0.0, 0.0, 1);
    tables.push(own("bands", "Layers over time, of the last 86,400 intervals.", columns(bands.columns())));
    let layers = Layer::ALL.iter().map(|layer| json!({ "name": layer.name(), "colour": layer.colour() }));
    Reply::new(JSON, format!("{}\n", json!({ "tables": tables, "layers": layers.collect::<Value>() })))
}

fn described(table: &Definition) -> Value {
    json!({ "name": table.name, "meaning": table.meaning, "columns": columns(&(table.columns)()) })
}

fn columns(columns: &[Column]) -> Value {
    let one = |c: &Column| {
        let unit = c.unit.of_json().symbol();
        json!({ "name": c.name, "key": c.key(), "kind": c.kind.word(), "unit": unit, "meaning": c.meaning })
    };
    columns.iter().map(one).collect()
}

/// The observation, and the history.
pub fn status(state: &State) -> Reply {
    let about = &state.about;
    let held = state.extent().map(|held| {
        json!({
            "from": held.from, "to": held.to, "bands_from": held.bands_from,
            "intervals": held.intervals, "bytes": held.bytes,
        })
    });
    let last = state.last();
    let status = json!({
        "version": about.ncpu_version, "host": about.host, "kernel": about.kernel, "cpu_model": about.cpu_model,
        "cpus": about.cpus, "observed": about.command.join(" "), "began": about.created_unix,
        "interval": about.interval_s, "held": held,
        "lost": last.as_ref().map_or(0, |last| last.head.lost),
        "notes": last.as_ref().map_or(&[][..], |last| &last.head.notes),
    });
    Reply::new(JSON, format!("{status}\n"))
}

//! A Delta log beside the parts (the Delta protocol, version 1 of reader and 2 of writer): engines that read
//! the log see a compaction as a whole or not at all, and need not list directories.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_table::Type;
use serde_json::{Value, json};

use crate::parts::{self, Part};
use crate::store::{Hold, Store};
use crate::tables::Kept;
use crate::{Error, Result, compact, when};

/// The most attempts when other processes write the log first.
const TRIES: usize = 50;

/// Files of a table, according to the log.
struct Logged {
    version: Option<u64>,
    files: BTreeSet<String>,
}

/// Updates the log of every table to the existing parts; returns the number of new entries.
///
/// # Errors
/// The fleet cannot be read or written.
pub fn update(store: &dyn Store) -> Result<usize> {
    let _held = compact::not_compacted(store, Hold::Add)?;
    Kept::ALL.iter().map(|table| update_table(store, *table)).sum()
}

fn update_table(store: &dyn Store, table: Kept) -> Result<usize> {
    for _ in 0..TRIES {
        let logged = logged(store, table)?;
        let parts: BTreeMap<String, Part> =
            parts::list(store, table, None)?.into_iter().map(|p| (below(table, &p.name), p)).collect();
        let now = when::now() / 1000;
        let mut actions = Vec::new();
        for (path, part) in parts.iter().filter(|(path, _)| !logged.files.contains(*path)) {
            actions.push(json!({"add": {
                "path": path,
                "partitionValues": {"date": part.span.date(), "hour": part.span.hour()},
                "size": part.bytes, "modificationTime": now, "dataChange": true,
            }}));
        }
        for path in logged.files.iter().filter(|path| !parts.contains_key(*path)) {
            actions.push(json!({"remove": {"path": path, "deletionTimestamp": now, "dataChange": true}}));
        }
        if actions.is_empty() {
            return Ok(0);
        }
        let count = actions.len();
        let version = logged.version.map_or(0, |v| v + 1);
        if version == 0 {
            actions.splice(0..0, begin(table, now)?);
        }
        let text: String = actions.iter().map(|a| format!("{a}\n")).collect();
        let name = format!("{}/_delta_log/{version:020}.json", table.name());
        if store.put_new(&name, text.as_bytes())? {
            return Ok(count);
        }
    }
    Err(Error::Fleet(format!("{}: other processes keep writing the Delta log", store.root())))
}

/// Whether a table has a log.
///
/// # Errors
/// The fleet cannot be listed.
pub fn kept(store: &dyn Store) -> Result<bool> {
    Ok(!store.list(&format!("{}/_delta_log", Kept::Recordings.name()))?.is_empty())
}

/// Whether a log exists and lists exactly the existing parts.
///
/// # Errors
/// The fleet cannot be read, or the log is not up to date.
pub fn current(store: &dyn Store, table: Kept, parts: &[Part]) -> Result<bool> {
    let logged = logged(store, table)?;
    if logged.version.is_none() {
        return Ok(false);
    }
    let there: BTreeSet<String> = parts.iter().map(|p| below(table, &p.name)).collect();
    if there != logged.files {
        return Err(Error::Fleet(format!(
            "the Delta log of {} is not up to date; `ncpu fleet delta {0}` updates it",
            store.root()
        )));
    }
    Ok(true)
}

fn below(table: Kept, name: &str) -> String {
    name.strip_prefix(table.name()).map_or(name, |n| n.trim_start_matches('/')).to_string()
}

fn logged(store: &dyn Store, table: Kept) -> Result<Logged> {
    let mut logged = Logged { version: None, files: BTreeSet::new() };
    let directory = format!("{}/_delta_log", table.name());
    let mut entries = store.list(&directory)?;
    entries.sort();
    for entry in entries {
        let Some(stem) = entry.name.rsplit('/').next().and_then(|n| n.strip_suffix(".json")) else {
            continue;
        };
        let Ok(version) = stem.parse::<u64>() else { continue };
        let bytes = store.get(&entry.name)?.unwrap_or_default();
        for line in String::from_utf8_lossy(&bytes).lines().filter(|l| !l.trim().is_empty()) {
            let action: Value = serde_json::from_str(line)
                .map_err(|e| Error::Fleet(format!("{}/{} is damaged: {e}", store.root(), entry.name)))?;
            let path = |kind: &str| Some(action.get(kind)?.get("path")?.as_str()?.to_string());
            logged.files.extend(path("add"));
            if let Some(path) = path("remove") {
                logged.files.remove(&path);
            }
        }
        logged.version = Some(logged.version.map_or(version, |v| v.max(version)));
    }
    Ok(logged)
}

/// The first entry of a log.
fn begin(table: Kept, now: i64) -> Result<[Value; 2]> {
    let field = |name: &str, ty: &str| json!({"name": name, "type": ty, "nullable": true, "metadata": {}});
    let mut fields: Vec<Value> = table
        .columns()
        .iter()
        .map(|c| match c.ty {
            Type::Text => field(&c.name, "string"),
            Type::Int => field(&c.name, "long"),
            Type::Float => field(&c.name, "double"),
        })
        .collect();
    fields.extend([field("date", "string"), field("hour", "string")]);
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let id: String = std::iter::repeat_with(|| fastrand::char('a'..='f')).take(32).collect();
    let id = format!("{}-{}-4{}-8{}-{}", &id[..8], &id[8..12], &id[12..15], &id[15..18], &id[18..30]);
    Ok([
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {
            "id": id, "name": table.name(), "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": ["date", "hour"], "configuration": {}, "createdTime": now,
        }}),
    ])
}

//! A recording without its times: what each kind of thing came to, in whole microseconds.
//!
//! Sums of whole numbers are the same in any order, so every engine gives the same digits however it divides the work.

use std::collections::BTreeMap;
use std::path::Path;

use ncpu_record::{Manifest, Recording, Selection};
use ncpu_schema::{
    CpuState, Division, IdleReason, Layer, SampleClass, Strange, cpu_time, events, locks, samples, user_locks,
};
use ncpu_table::{Builder, Column, Row, Table};
use sha2::{Digest, Sha256};

use crate::tables::Kept;
use crate::{Error, Result};

/// What is rolled up of a recording. `counters` are the events of recordings of old.
pub const READ: Selection = &[
    ("cpu_time", &[]),
    ("idle_time", &[]),
    ("samples", &["at", "class", "detail", "samples"]),
    ("events", &["event", "count"]),
    ("counters", &[]),
    ("locks", &["lock", "type", "count", "spin", "block", "max"]),
    ("user_locks", &["lock", "type", "process", "caller", "count", "spin", "block", "max"]),
    ("summary", &["elapsed", "steal"]),
];

/// What all rows of a recording have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Key {
    /// The recording.
    pub id: String,
    /// The machine.
    pub machine: String,
    /// Its name at the time.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u64,
    /// Start, microseconds since 1970.
    pub at_us: i64,
    /// Labels as a row has them.
    pub labels: String,
}

/// Time, count and longest wait of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wait {
    waits: u64,
    spin_us: u64,
    block_us: u64,
    max_us: u64,
}

/// Bytes of a text that each row of a recording has.
const LONGEST: usize = 4096;

/// A recording, rolled up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rolled {
    /// What its rows have in common.
    pub key: Key,
    /// Layer, microseconds, variance in ms².
    pub layers: Vec<(&'static str, u64, f64)>,
    locks: BTreeMap<(String, String), Wait>,
    user_locks: BTreeMap<(String, String, String), Wait>,
    calls: BTreeMap<(String, String), (u64, u64)>,
    events: BTreeMap<String, u64>,
    about: About,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct About {
    kind: String,
    version: String,
    schema: u64,
    view: String,
    command: String,
    source: String,
    elapsed_us: u64,
    capacity_us: u64,
    has_locks: bool,
    has_user_locks: bool,
    notes: u64,
}

/// The first half of a SHA-256, which names a recording by its manifest: that holds the checksum of every file.
pub fn id(manifest: &[u8]) -> String {
    Sha256::digest(manifest).iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// When a recording began, in microseconds since 1970.
///
/// # Errors
/// That is in no year of four digits, by which directories are named.
pub fn begin(manifest: &Manifest) -> Result<i64, String> {
    let at = manifest.created_unix * 1e6;
    match (0.0..253_402_300_800e6).contains(&at) {
        true => Ok(at as i64),
        false => {
            Err(format!("its manifest says that it began {:e} seconds after 1970", manifest.created_unix))
        }
    }
}

/// Rolls a recording up; `labels` are those of its machine.
///
/// # Errors
/// It has no layers, or a table is not what the schema says.
pub fn roll(mut recording: Recording, id: &str, labels: String, source: &Path) -> Result<Rolled> {
    let bad = |why: String| Error::Recording { path: source.into(), why };
    if !recording.tables.contains_key("cpu_time") {
        let kind = recording.purpose().name();
        return Err(bad(format!(
            "a recording of {kind} has no layers: add those of ncpu run and ncpu watch"
        )));
    }
    let strange = known_words(&mut recording).map_err(|e| bad(e.to_string()))?;
    let schema = |e: ncpu_schema::Error| bad(e.to_string());
    let division = Division::beside(&recording, strange).map_err(schema)?;
    let m = &recording.manifest;
    let at_us = begin(m).map_err(bad)?;
    let machine = m.machine.clone().unwrap_or_else(|| format!("host:{}", m.host));
    // Each of its rows repeats them.
    for (what, text) in [
        ("host name", &m.host),
        ("machine", &machine),
        ("kernel release", &m.kernel),
        ("CPU model", &m.cpu_model),
        ("labels", &labels),
    ] {
        if text.len() > LONGEST {
            return Err(bad(format!("its {what} has {} bytes, more than {LONGEST}", text.len())));
        }
    }
    let mut rolled = Rolled {
        key: Key {
            id: id.into(),
            machine,
            host: m.host.clone(),
            kernel: m.kernel.clone(),
            cpu_model: m.cpu_model.clone(),
            cpus: m.cpus,
            at_us,
            labels,
        },
        ..Rolled::default()
    };
    // A row for each layer, so that a sum over a fleet's rows of a layer has the capacity of all recordings beside it.
    for layer in Layer::ALL {
        let of_layer = division.layers.iter().filter(|(other, ..)| *other == layer);
        let (time, variance) = of_layer.fold((0, 0.0), |sum, (_, seconds, error)| {
            let ms = (error * 1e3).round();
            (sum.0 + us(*seconds), sum.1 + ms * ms)
        });
        rolled.layers.push((layer.name(), time, variance));
    }
    rolled.layers.sort_by_key(|(name, ..)| *name);
    let capacity_us: u64 = rolled.layers.iter().map(|(_, us, _)| us).sum();
    if capacity_us == 0 {
        return Err(bad("it is of no length".into()));
    }
    if let Some(table) = locks::Reader::open(&recording).map_err(schema)? {
        for row in table.rows() {
            let key = (text(table.lock.get(row).map(of_all_cpus)), text(table.ty.get(row)));
            rolled.locks.entry(key).or_default().add(Wait {
                waits: table.count.get(row).unwrap_or(0),
                spin_us: table.spin.get(row).map_or(0, us),
                block_us: table.block.get(row).map_or(0, us),
                max_us: table.max.get(row).map_or(0, whole),
            });
        }
        rolled.about.has_locks = true;
    }
    if let Some(table) = user_locks::Reader::open(&recording).map_err(schema)? {
        for row in table.rows() {
            let lock = table.lock.get(row).unwrap_or("");
            // An address means nothing in another process.
            let lock = match lock.starts_with("0x") {
                true => table.caller.get(row).unwrap_or("(no name)"),
                false => lock,
            };
            let key = (text(Some(lock)), text(table.ty.get(row)), text(table.process.get(row)));
            rolled.user_locks.entry(key).or_default().add(Wait {
                waits: table.count.get(row).unwrap_or(0),
                spin_us: table.spin.get(row).map_or(0, us),
                block_us: table.block.get(row).map_or(0, us),
                max_us: table.max.get(row).map_or(0, whole),
            });
        }
        rolled.about.has_user_locks = true;
    }
    if let Some(table) = samples::Reader::open(&recording).map_err(schema)? {
        let one = division.running * 1e6 / division.samples.max(1) as f64;
        for row in table.rows().filter(|&r| table.at.get(r) == Some(CpuState::Program)) {
            let Some(class) = table.class.get(row) else { continue };
            let n = table.samples.get(row).unwrap_or(0);
            let cell = rolled.calls.entry((class.name().into(), text(table.detail.get(row)))).or_default();
            cell.0 += n;
            cell.1 = whole(cell.0 as f64 * one);
        }
    }
    if let Some(table) = events::Reader::open(&recording).map_err(schema)? {
        for row in table.rows() {
            if let (Some(event), Some(n)) = (table.event.get(row), table.count.get(row)) {
                let sum = rolled.events.entry(event.name().into()).or_default();
                *sum = sum.saturating_add(n);
            }
        }
    }
    rolled.about = About {
        kind: recording.purpose().name().into(),
        version: m.ncpu_version.clone(),
        schema: m.schema.into(),
        view: m.view.map_or("", |v| v.name()).into(),
        command: text(Some(&m.command.join(" "))).chars().take(200).collect(),
        source: source.display().to_string(),
        elapsed_us: us(division.elapsed),
        capacity_us,
        notes: (m.notes.len() + recording.notes.len() + recording.recovered.len()) as u64,
        ..rolled.about
    };
    Ok(rolled)
}

impl Wait {
    fn add(&mut self, more: Wait) {
        self.waits = self.waits.saturating_add(more.waits);
        self.spin_us = self.spin_us.saturating_add(more.spin_us);
        self.block_us = self.block_us.saturating_add(more.block_us);
        self.max_us = self.max_us.max(more.max_us);
    }
}

impl Rolled {
    /// Begins a row with what all have in common.
    fn begin<'a>(&self, of: Kept, out: &'a mut Builder) -> Row<'a> {
        let k = &self.key;
        let row = out
            .row()
            .text(&k.id)
            .text(&k.machine)
            .text(&k.host)
            .text(&k.kernel)
            .text(&k.cpu_model)
            .int(k.cpus)
            .int(k.at_us.unsigned_abs())
            .text(&k.labels);
        if of == Kept::Recordings { row } else { row.int(self.about.capacity_us) }
    }

    /// Its rows of a table.
    pub fn rows(&self, of: Kept, out: &mut Builder) {
        match of {
            Kept::Layers => self.layers.iter().for_each(|(layer, us, variance)| {
                self.begin(of, out).text(layer).int(*us).float(*variance);
            }),
            Kept::Locks => self.locks.iter().for_each(|((lock, ty), w)| {
                self.begin(of, out)
                    .text(lock)
                    .text(ty)
                    .int(w.waits)
                    .int(w.spin_us)
                    .int(w.block_us)
                    .int(w.max_us);
            }),
            Kept::UserLocks => self.user_locks.iter().for_each(|((lock, ty, process), w)| {
                self.begin(of, out)
                    .text(lock)
                    .text(ty)
                    .text(process)
                    .int(w.waits)
                    .int(w.spin_us)
                    .int(w.block_us)
                    .int(w.max_us);
            }),
            Kept::Calls => self.calls.iter().for_each(|((class, detail), (samples, us))| {
                self.begin(of, out).text(class).text(detail).int(*samples).int(*us);
            }),
            Kept::Events => self.events.iter().for_each(|(event, n)| {
                self.begin(of, out).text(event).int(*n);
            }),
            Kept::Recordings => {
                let a = &self.about;
                let where_seen = |seen: bool| if seen { a.capacity_us } else { 0 };
                self.begin(of, out)
                    .text(&a.kind)
                    .text(&a.version)
                    .int(a.schema)
                    .text(&a.view)
                    .text(&a.command)
                    .text(&a.source)
                    .int(a.elapsed_us)
                    .int(a.capacity_us)
                    .int(where_seen(a.has_locks))
                    .int(where_seen(a.has_user_locks))
                    .int(where_seen(!self.calls.is_empty()))
                    .int(a.notes);
            }
        }
    }
}

/// Takes columns and rows out that newer words name, so that the rest can be read; tells how much that was. In a
/// recording of this schema or an older one an unknown word is an error, as everywhere.
fn known_words(recording: &mut Recording) -> ncpu_table::Result<Strange> {
    let mut strange = Strange::default();
    if recording.manifest.schema <= ncpu_schema::VERSION {
        return Ok(strange);
    }
    let keep = |table: &Table, declared: Vec<Column>| {
        let known = |c: &&Column| declared.iter().any(|d| d.name == c.name);
        let names: Vec<String> = table.columns().iter().filter(known).map(|c| c.name.clone()).collect();
        table.project(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // CPU states that are not known are missing from the sum of the layers, and so in "not accounted for".
    if let Some(table) = recording.tables.get("cpu_time") {
        let table = keep(table, cpu_time::columns())?;
        recording.tables.insert("cpu_time".into(), table);
    }
    if let Some(table) = recording.tables.get("idle_time") {
        let reasons = IdleReason::ALL.iter().map(|r| r.name());
        let known: Vec<&str> = reasons.chain(["t"]).collect();
        for column in table.columns().iter().filter(|c| !known.contains(&c.name.as_str())) {
            strange.idle += (0..table.num_rows()).filter_map(|r| table.number(r, &column.name)).sum::<f64>();
        }
        let table = keep(table, ncpu_schema::idle_time::columns())?;
        recording.tables.insert("idle_time".into(), table);
    }
    if let Some(table) = recording.tables.get("samples") {
        let (mut rows, mut unknown) = (samples::Rows::new(), 0);
        for r in 0..table.num_rows() {
            let at = table.text(r, "at").map(CpuState::of_name);
            let class = table.text(r, "class").map(SampleClass::of_name);
            let n = table.int(r, "samples");
            match (at, class) {
                (Some(Ok(at)), Some(Ok(class))) => rows.push(samples::Row {
                    at: Some(at),
                    class: Some(class),
                    detail: table.text(r, "detail").into(),
                    process: table.text(r, "process").into(),
                    samples: n,
                    time: None,
                }),
                (Some(Ok(CpuState::Program)), _) => unknown += n.unwrap_or(0),
                _ => {}
            }
        }
        strange.samples = unknown;
        recording.tables.insert("samples".into(), rows.finish());
    }
    if let Some(table) = recording.tables.get("events") {
        let mut rows = events::Rows::new();
        for r in 0..table.num_rows() {
            if let Some(Ok(event)) = table.text(r, "event").map(ncpu_schema::Counter::of_name) {
                rows.push(events::Row {
                    time: table.number(r, "t"),
                    event: Some(event),
                    count: table.int(r, "count"),
                });
            }
        }
        recording.tables.insert("events".into(), rows.finish());
    }
    Ok(strange)
}

fn us(seconds: f64) -> u64 {
    whole(seconds * 1e6)
}

/// To the nearest whole number; what is no number, or below 0, is 0. A century of a thousand CPUs fits easily.
fn whole(x: f64) -> u64 {
    if x.is_finite() && x > 0.0 { x.round().min(9e18) as u64 } else { 0 }
}

/// The name of a lock that each CPU has, without its CPU: machines differ in how many they have.
fn of_all_cpus(name: &str) -> &str {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once("(CPU ") {
        Some((lock, rest)) if rest.strip_suffix(')').is_some_and(number) => lock.trim_end(),
        _ => name,
    }
}

/// Names as engines take them: without NUL, which some end a text at.
fn text(name: Option<&str>) -> String {
    name.unwrap_or("").replace('\0', "\u{fffd}")
}

/// Layers that could come back, as a list of texts in SQL.
pub fn recoverable() -> String {
    let names = Layer::ALL.iter().filter(|l| l.recoverable()).map(|l| format!("'{}'", l.name()));
    names.collect::<Vec<_>>().join(", ")
}

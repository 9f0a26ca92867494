//! Rolls up a recording without its times: the sum of each kind, in whole microseconds.
//!
//! Whole numbers have the same sum in any order, so every engine gives the same digits however it divides the
//! work.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ncpu_machine::tenant::{self, By, Tenant};
use ncpu_record::{Manifest, Recording, Selection, tenants};
use ncpu_schema::{
    CpuState, Division, IdleReason, Layer, SampleClass, Strange, cpu_time, events, fleet, locks, samples,
    tenant_losses, user_locks,
};
use ncpu_table::{Column, Table};
use sha2::{Digest, Sha256};

use crate::tables::Kept;
use crate::{Error, Result};

/// The tables that are read of a recording. `counters` are the events of old recordings.
pub const READ: Selection = &[
    ("cpu_time", &[]),
    ("idle_time", &[]),
    ("samples", &["at", "class", "detail", "samples"]),
    ("events", &["event", "count"]),
    ("counters", &[]),
    ("locks", &["lock", "type", "count", "spin", "block", "max"]),
    ("user_locks", &["lock", "type", "process", "caller", "count", "spin", "block", "max"]),
    ("lengths", &["of", "name", "process", "from", "to", "count"]),
    ("tenant_names", &[]),
    ("tenant_losses", &["victim", "culprit", "cause", "lock", "threads", "cpus", "count"]),
    ("summary", &["elapsed", "steal"]),
];

/// The common columns of a recording's rows.
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
    /// Labels, in the form of a row.
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

/// Victim, culprit, cause, and lock or device.
type Lost = (String, String, String, String);

/// Time that a tenant lost to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Loss {
    threads_us: u64,
    cpus_us: u64,
    times: u64,
}

/// The most losses of a recording with rows of their own.
const LOSSES: usize = 1000;

/// The most bytes of a text that each row of a recording repeats.
const LONGEST: usize = 4096;

/// A recording, rolled up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rolled {
    /// The common columns of its rows.
    pub key: Key,
    /// Layer, microseconds, variance in ms².
    pub layers: Vec<(&'static str, u64, f64)>,
    locks: BTreeMap<(String, String), Wait>,
    user_locks: BTreeMap<(String, String, String), Wait>,
    calls: BTreeMap<(String, String), (u64, u64)>,
    events: BTreeMap<String, u64>,
    /// By kind, name and process, and by bin in ns.
    lengths: BTreeMap<(String, String, String, u64, u64), u64>,
    ledger: BTreeMap<Lost, Loss>,
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

/// The first half of a SHA-256, which identifies a recording by its manifest: that contains the checksum of
/// every file.
pub fn id(manifest: &[u8]) -> String {
    Sha256::digest(manifest).iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// When a recording began, in microseconds since 1970.
///
/// # Errors
/// The year does not have four digits, which the names of directories need.
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
/// It has no layers, or a table does not match the schema.
pub fn roll(mut recording: Recording, id: &str, labels: String, source: &Path) -> Result<Rolled> {
    let bad = |why: String| Error::Recording { path: source.into(), why };
    if !recording.tables.contains_key("cpu_time") {
        let kind = recording.purpose().name();
        return Err(bad(format!(
            "a recording of {kind} has no layers; add recordings of ncpu run or ncpu watch"
        )));
    }
    let strange = known_words(&mut recording).map_err(|e| bad(e.to_string()))?;
    let schema = |e: ncpu_schema::Error| bad(e.to_string());
    let division = Division::beside(&recording, strange).map_err(schema)?;
    let m = &recording.manifest;
    let at_us = begin(m).map_err(bad)?;
    let machine = m.machine.clone().unwrap_or_else(|| format!("host:{}", m.host));
    // Each of its rows repeats these texts.
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
    rolled.layers = layers(&division);
    let capacity_us: u64 = rolled.layers.iter().map(|(_, us, _)| us).sum();
    if capacity_us == 0 {
        return Err(bad("its length is 0".into()));
    }
    rolled.add_locks(&recording).map_err(schema)?;
    rolled.add_calls(&recording, &division).map_err(schema)?;
    rolled.add_lengths(&recording);
    rolled.add_losses(&recording).map_err(schema)?;
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

/// A row for each layer, even an empty one, so that a sum over a fleet's rows of a layer includes the
/// capacity of all recordings.
fn layers(division: &Division) -> Vec<(&'static str, u64, f64)> {
    let mut layers = Layer::ALL.map(|layer| {
        let of_layer = division.layers.iter().filter(|(other, ..)| *other == layer);
        let (time, variance) = of_layer.fold((0, 0.0), |sum, (_, seconds, error)| {
            let ms = (error * 1e3).round();
            (sum.0 + us(*seconds), sum.1 + ms * ms)
        });
        (layer.name(), time, variance)
    });
    layers.sort_by_key(|(name, ..)| *name);
    layers.into()
}

impl Rolled {
    /// Locks of the kernel and of programs.
    fn add_locks(&mut self, recording: &Recording) -> Result<(), ncpu_schema::Error> {
        if let Some(table) = locks::Reader::open(recording)? {
            for row in table.rows() {
                let key = (text(table.lock.get(row).map(of_all_cpus)), text(table.ty.get(row)));
                let (spin, block) = (table.spin.get(row), table.block.get(row));
                let wait = Wait::from_seconds(table.count.get(row), spin, block, table.max.get(row));
                self.locks.entry(key).or_default().add(wait);
            }
            self.about.has_locks = true;
        }
        if let Some(table) = user_locks::Reader::open(recording)? {
            for row in table.rows() {
                let lock = table.lock.get(row).unwrap_or("");
                // An address is meaningless in another process.
                let lock = match lock.starts_with("0x") {
                    true => table.caller.get(row).unwrap_or("(no name)"),
                    false => lock,
                };
                let key = (text(Some(lock)), text(table.ty.get(row)), text(table.process.get(row)));
                let (spin, block) = (table.spin.get(row), table.block.get(row));
                let wait = Wait::from_seconds(table.count.get(row), spin, block, table.max.get(row));
                self.user_locks.entry(key).or_default().add(wait);
            }
            self.about.has_user_locks = true;
        }
        Ok(())
    }

    /// Counts of lengths, bin by bin, including kinds of newer versions.
    fn add_lengths(&mut self, recording: &Recording) {
        let Some(table) = recording.tables.get(ncpu_schema::lengths::NAME) else { return };
        for row in 0..table.num_rows() {
            let bin = table.number(row, "from").zip(table.number(row, "to"));
            let (Some(of), Some((from, to))) = (table.text(row, "of"), bin) else { continue };
            let name = table.text(row, "name").unwrap_or("");
            // An address is meaningless in another process.
            let name = if name.starts_with("0x") { "(no name)" } else { name };
            let [from, to] = [from, to].map(|us| whole(us * 1e3));
            let key = (text(Some(of)), text(Some(name)), text(table.text(row, "process")), from, to);
            let sum = self.lengths.entry(key).or_default();
            *sum = sum.saturating_add(table.int(row, "count").unwrap_or(0));
        }
    }

    /// Losses of tenants, by their names, including causes of newer versions. The smallest are combined in
    /// one row for each cause.
    fn add_losses(&mut self, recording: &Recording) -> Result<(), ncpu_schema::Error> {
        let Some(table) = recording.tables.get(tenant_losses::NAME) else { return Ok(()) };
        let Some(tenants) = tenants::read(recording)? else { return Ok(()) };
        let name = |(id, tenant): (u64, Tenant)| {
            let name = if id < tenants::FIRST { tenant.program.clone() } else { tenant.name(By::Tenant) };
            (id, text(Some(&name)))
        };
        let names: HashMap<u64, String> = tenants.into_iter().map(name).collect();
        let named = |id: u64| names.get(&id).map_or(tenant::OTHERS, String::as_str).to_string();
        let mut losses: BTreeMap<Lost, Loss> = BTreeMap::new();
        for row in 0..table.num_rows() {
            let Some(victim) = table.int(row, "victim") else { continue };
            let lock = table.text(row, "lock").map(of_all_cpus);
            let lock = if lock.is_some_and(|lock| lock.starts_with("0x")) { Some("(no name)") } else { lock };
            let culprit = table.int(row, "culprit").map(named).unwrap_or_default();
            let sum = losses
                .entry((named(victim), culprit, text(table.text(row, "cause")), text(lock)))
                .or_default();
            sum.add(Loss {
                threads_us: table.number(row, "threads").map_or(0, us),
                cpus_us: table.number(row, "cpus").map_or(0, us),
                times: table.int(row, "count").unwrap_or(0),
            });
        }
        let mut sorted: Vec<(Lost, Loss)> = losses.into_iter().collect();
        sorted.sort_by(|a, b| b.1.threads_us.cmp(&a.1.threads_us).then_with(|| a.0.cmp(&b.0)));
        let other = || tenant::OTHERS.to_string();
        for (i, (lost, loss)) in sorted.into_iter().enumerate() {
            let key = if i < LOSSES { lost } else { (other(), other(), lost.2, String::new()) };
            self.ledger.entry(key).or_default().add(loss);
        }
        Ok(())
    }

    /// Samples of the program on CPU, and events.
    fn add_calls(&mut self, recording: &Recording, division: &Division) -> Result<(), ncpu_schema::Error> {
        if let Some(table) = samples::Reader::open(recording)? {
            let one = division.running * 1e6 / division.samples.max(1) as f64;
            for row in table.rows().filter(|&r| table.at.get(r) == Some(CpuState::Program)) {
                let Some(class) = table.class.get(row) else { continue };
                let n = table.samples.get(row).unwrap_or(0);
                let cell = self.calls.entry((class.name().into(), text(table.detail.get(row)))).or_default();
                cell.0 = cell.0.saturating_add(n);
                cell.1 = whole(cell.0 as f64 * one);
            }
        }
        if let Some(table) = events::Reader::open(recording)? {
            for row in table.rows() {
                if let (Some(event), Some(n)) = (table.event.get(row), table.count.get(row)) {
                    let sum = self.events.entry(event.name().into()).or_default();
                    *sum = sum.saturating_add(n);
                }
            }
        }
        Ok(())
    }
}

impl Loss {
    fn add(&mut self, more: Loss) {
        self.threads_us = self.threads_us.saturating_add(more.threads_us);
        self.cpus_us = self.cpus_us.saturating_add(more.cpus_us);
        self.times = self.times.saturating_add(more.times);
    }
}

impl Wait {
    /// From seconds, and a longest wait in microseconds.
    fn from_seconds(waits: Option<u64>, spin: Option<f64>, block: Option<f64>, max: Option<f64>) -> Wait {
        Wait {
            waits: waits.unwrap_or(0),
            spin_us: spin.map_or(0, us),
            block_us: block.map_or(0, us),
            max_us: max.map_or(0, whole),
        }
    }

    fn add(&mut self, more: Wait) {
        self.waits = self.waits.saturating_add(more.waits);
        self.spin_us = self.spin_us.saturating_add(more.spin_us);
        self.block_us = self.block_us.saturating_add(more.block_us);
        self.max_us = self.max_us.max(more.max_us);
    }
}

/// A table of recordings: the rows of `$items` of each `$r`, which begin with the common columns of the
/// recording's rows.
macro_rules! table {
    ($table:ident of $recordings:ident, $r:ident: $item:pat in $items:expr => {
        $($field:ident: $cell:expr),+ $(,)?
    }) => {{
        let mut out = fleet::$table::Rows::new();
        for $r in $recordings {
            let key = &$r.key;
            for $item in $items {
                out.push(fleet::$table::Row {
                    id: (&key.id).into(),
                    machine: (&key.machine).into(),
                    host: (&key.host).into(),
                    kernel: (&key.kernel).into(),
                    cpu_model: (&key.cpu_model).into(),
                    cpus: Some(key.cpus),
                    at_us: Some(key.at_us.unsigned_abs()),
                    labels: (&key.labels).into(),
                    capacity_us: Some($r.about.capacity_us),
                    $($field: $cell.into(),)+
                });
            }
        }
        out.finish()
    }};
}

/// The rows of recordings in a table.
pub fn table<'a>(of: Kept, recordings: impl Iterator<Item = &'a Rolled>) -> Table {
    match of {
        Kept::Layers => table!(layers of recordings, r: (layer, us, variance) in &r.layers => {
            layer: *layer, us: *us, variance: *variance
        }),
        Kept::Locks => table!(locks of recordings, r: ((lock, ty), w) in &r.locks => {
            lock: lock, ty: ty, waits: w.waits, spin_us: w.spin_us, block_us: w.block_us, max_us: w.max_us
        }),
        Kept::UserLocks => table!(user_locks of recordings, r: ((lock, ty, process), w) in &r.user_locks => {
            lock: lock, ty: ty, process: process,
            waits: w.waits, spin_us: w.spin_us, block_us: w.block_us, max_us: w.max_us
        }),
        Kept::Calls => table!(calls of recordings, r: ((class, detail), (samples, us)) in &r.calls => {
            class: class, detail: detail, samples: *samples, us: *us
        }),
        Kept::Events => {
            table!(events of recordings, r: (event, n) in &r.events => { event: event, events: *n })
        }
        Kept::Lengths => {
            table!(lengths of recordings, r: ((of, name, process, from, to), n) in &r.lengths => {
                of: of, name: name, process: process, from_ns: *from, to_ns: *to, lengths: *n
            })
        }
        Kept::Ledger => {
            table!(ledger of recordings, r: ((victim, culprit, cause, lock), loss) in &r.ledger => {
                victim: victim, culprit: culprit, cause: cause, lock: lock, threads_us: loss.threads_us,
                cpus_us: loss.cpus_us, times: loss.times
            })
        }
        Kept::Recordings => table!(recordings of recordings, r: about in [&r.about] => {
            kind: &about.kind,
            version: &about.version,
            schema_version: about.schema,
            view: &about.view,
            command: &about.command,
            source: &about.source,
            elapsed_us: about.elapsed_us,
            lock_capacity_us: if about.has_locks { about.capacity_us } else { 0 },
            user_lock_capacity_us: if about.has_user_locks { about.capacity_us } else { 0 },
            call_capacity_us: if r.calls.is_empty() { 0 } else { about.capacity_us },
            notes: about.notes,
        }),
    }
}

/// Removes columns and rows with words of a newer schema, so that the rest can be read; returns how much was removed.
/// In a recording of this schema or an older one an unknown word is an error, as everywhere.
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
    // Unknown CPU states are missing from the sum of the layers, and so they are in "not accounted for".
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

/// Rounds to the nearest whole number; NaN and negative numbers are 0. A century of a thousand CPUs fits
/// easily.
fn whole(x: f64) -> u64 {
    if x.is_finite() && x > 0.0 { x.round().min(9e18) as u64 } else { 0 }
}

/// The name of a per-CPU lock without its CPU: machines have different numbers of them.
fn of_all_cpus(name: &str) -> &str {
    let number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once("(CPU ") {
        Some((lock, rest)) if rest.strip_suffix(')').is_some_and(number) => lock.trim_end(),
        _ => name,
    }
}

/// Names that engines accept: without NUL, at which some end a text.
fn text(name: Option<&str>) -> String {
    name.unwrap_or("").replace('\0', "\u{fffd}")
}

/// Recoverable layers, as a list of texts in SQL.
pub fn recoverable() -> String {
    let names = Layer::ALL.iter().filter(|l| l.recoverable()).map(|l| format!("'{}'", l.name()));
    names.collect::<Vec<_>>().join(", ")
}

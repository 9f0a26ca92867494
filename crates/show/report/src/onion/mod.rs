//! The onion: every CPU-second of an observation in exactly one layer, ranked by what could come
//! back.
//!
//! Exact times (from `sched_switch`, the lock and the interrupt tracepoints) are never estimated again.
//! Time that tracepoints cannot divide is split by timer samples: the code that a thread on CPU was
//! executing, and the reasons of idle CPUs by the leader's timer; each such figure carries its sampling
//! error.

mod advice;
mod case;
pub(crate) mod evidence;
#[cfg(test)]
mod tests;
mod text;
mod within;

use ncpu_record::Recording;
use ncpu_schema::{Division, Error, cpu_time, drops, samples, summary};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::causes::{self, Advice, Causes, Change};

pub use evidence::Evidence;
pub use ncpu_schema::Layer;
pub use text::{render, render_part};
pub use within::{during, within};

/// Layers below this share of capacity are printed together in one line. No advice is given for what chance could explain.
pub(crate) const SMALL: f64 = 0.005;

/// Seconds below which an observation says too little for shares and advice: a few switches and samples.
const SHORT: f64 = 0.1;

/// CPU-seconds of a layer, and the half-width of their 95 % interval.
pub(crate) type Seconds = (Layer, f64, f64);

/// One row of the onion.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which layer.
    pub layer: Layer,
    /// CPU-seconds.
    pub seconds: f64,
    /// Share of capacity, 0–1.
    pub share: f64,
    /// Half-width of the 95 % interval in CPU-seconds; 0 where the figure is exact.
    pub error: f64,
    /// Its parts, largest first.
    pub evidence: Vec<Evidence>,
    /// The remedies: most often one, none where none is known.
    pub advice: Vec<Advice>,
}

impl Row {
    /// The factor by which the program could do more in the same time if this layer were gone and its
    /// capacity did the same as the rest: 1 / (1 − share). This is Amdahl's law, so an upper bound:
    /// removing one layer often uncovers the next.
    pub fn gain(&self) -> f64 {
        1.0 / (1.0 - self.share).max(1e-3)
    }

    /// The evidence in words, a line each.
    pub fn lines(&self) -> Vec<String> {
        self.evidence.iter().map(ToString::to_string).collect()
    }

    /// The remedies in words, in one line; empty without remedies.
    pub fn remedy(&self) -> String {
        self.advice.iter().map(|advice| advice.words.as_str()).collect::<Vec<_>>().join("; ")
    }

    /// [`Row::remedy`] with only the remedies that need this change.
    pub fn remedy_by(&self, change: Change) -> String {
        let words = self.advice.iter().filter(|advice| advice.change == change).map(|advice| &*advice.words);
        words.collect::<Vec<_>>().join("; ")
    }

    /// The remedies as a list of JSON objects.
    pub fn advice_json(&self) -> String {
        serde_json::to_string(&self.advice).unwrap_or_default()
    }

    /// The evidence as a list of JSON objects.
    pub fn evidence_json(&self) -> String {
        // Keys are words and values names and figures, which all have a form in JSON.
        serde_json::to_string(&self.evidence).unwrap_or_default()
    }
}

/// The whole onion.
#[derive(Clone, Debug)]
pub struct Onion {
    /// The command, as the user wrote it.
    pub command: String,
    /// Seconds.
    pub elapsed: f64,
    /// User and system seconds of the command, as `time` tells them; `None` when watching.
    pub used: Option<(f64, f64)>,
    /// Exit status of the command.
    pub status: Option<u64>,
    /// CPUs.
    pub cpus: u64,
    /// CPU-seconds: CPUs × elapsed.
    pub capacity: f64,
    /// The layers: recoverable ones first, each part largest first; layers of nothing left out.
    pub rows: Vec<Row>,
    /// Whether it was too short for shares and advice.
    pub short: bool,
    /// Notes for the reader: missing, dropped, or sampled data.
    pub notes: Vec<String>,
}

impl Onion {
    /// Peels a recording (or a live run gathered in memory).
    ///
    /// # Errors
    /// The recording has no table `cpu_time`, or a table is not what the schema says: a column is missing or
    /// has another type, or a state, class or reason is unknown.
    pub fn peel(recording: &Recording) -> Result<Onion, Error> {
        Onion::peel_with(recording, causes::current())
    }

    /// [`Onion::peel`] by a rule book.
    ///
    /// # Errors
    /// As [`Onion::peel`].
    pub fn peel_with(recording: &Recording, causes: &Causes) -> Result<Onion, Error> {
        let (context, layers) = Onion::context(recording, causes)?;
        let summary = summary::Reader::open(recording)?;
        let summed = |of: fn(&summary::Reader<'_>) -> Option<f64>| summary.as_ref().and_then(of);
        let evidence::Context { elapsed, cpus, capacity, total, .. } = context;
        let short = context.is_short();
        let mut rows: Vec<Row> = layers
            .into_iter()
            .map(|(layer, s, error)| Row {
                layer,
                seconds: s,
                share: if capacity > 0.0 { s / capacity } else { 0.0 },
                error,
                evidence: evidence::of(layer, &context),
                advice: match !short && s - error >= SMALL * capacity {
                    true => advice::of(layer, &context),
                    false => Vec::new(),
                },
            })
            .collect();
        rows.sort_by(|a, b| {
            (b.layer.recoverable(), b.seconds)
                .partial_cmp(&(a.layer.recoverable(), a.seconds))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut notes = notes(recording, total)?;
        if short {
            notes.insert(
                0,
                format!(
                    "too short to say what to change: {:.0} ms, {total} samples; repeat it for a second or more, or observe what it is a part of",
                    1e3 * elapsed
                ),
            );
        }
        // Where other programs took the CPUs, nothing was idle and no layer shows it.
        if !rows.iter().any(|r| r.layer == Layer::RunQueue && r.share >= 0.01) {
            let held = |t: &&evidence::kinds::Throttled| t.held.0 > 0.05 * elapsed;
            notes.extend(
                evidence::throttled(&context).iter().filter(held).map(|t| {
                    format!("the program was {}, for which no CPU stood idle; lift it: {}", t, t.lift)
                }),
            );
        }
        notes.extend(evidence::limits_met(&context));
        Ok(Onion {
            command: recording.manifest.command.join(" "),
            elapsed,
            used: summed(|s| s.user.get(0)).zip(summed(|s| s.system.get(0))),
            status: summary.as_ref().and_then(|s| s.status.get(0)),
            cpus,
            capacity,
            rows,
            short,
            notes,
        })
    }

    /// The recording and the layers, from which evidence is gathered.
    ///
    /// # Errors
    /// As [`Onion::peel`].
    pub(crate) fn context<'a>(
        recording: &'a Recording,
        causes: &'a Causes,
    ) -> Result<(evidence::Context<'a>, Vec<Seconds>), Error> {
        cpu_time::Reader::need(recording)?;
        ncpu_schema::check(recording)?;
        let Division { elapsed, cpus, capacity, running, samples: total, layers } = Division::of(recording)?;
        let samples = samples::Reader::open(recording)?;
        let context =
            evidence::Context { recording, causes, samples, elapsed, cpus, capacity, running, total };
        Ok((context, layers))
    }

    /// The columns of [`Onion::table`].
    pub fn columns() -> Vec<Column> {
        vec![
            Column::text("layer", "where capacity went"),
            Column::float("share", Unit::Percent, Kind::Share, "share of capacity"),
            Column::float("seconds", Unit::CpuSeconds, Kind::Time, "CPU-seconds"),
            Column::float(
                "error",
                Unit::CpuSeconds,
                Kind::Gauge,
                "half-width of the 95 % interval; 0 is exact",
            ),
            Column::text("recoverable", "whether it could come back"),
            Column::float(
                "gain",
                Unit::None,
                Kind::Gauge,
                "throughput without it over throughput with it, at most",
            ),
            Column::objects("evidence", "what it consists of"),
            Column::objects("advice", "the remedies"),
            Column::objects(
                "causes",
                "the causes that its seconds went to, by number and id of table causes",
            ),
        ]
    }

    /// The layers as a table, without causes.
    pub fn table(&self) -> Table {
        self.table_with(|_| "[]".into())
    }

    /// The layers as a table, each with the causes that it went to: a list of objects.
    pub(crate) fn table_with(&self, causes: impl Fn(Layer) -> String) -> Table {
        let mut out = Table::builder("layers", &Onion::columns());
        for row in &self.rows {
            out.row()
                .text(row.layer.name())
                .float(row.share * 100.0)
                .float(row.seconds)
                .float(row.error)
                .text(if row.layer.recoverable() { "yes" } else { "no" })
                .float_opt(row.layer.recoverable().then(|| row.gain()))
                .text(row.evidence_json())
                .text(row.advice_json())
                .text(causes(row.layer));
        }
        out.finish()
    }

    /// CPU-seconds in a layer.
    pub fn seconds(&self, layer: Layer) -> f64 {
        self.rows.iter().find(|r| r.layer == layer).map_or(0.0, |r| r.seconds)
    }
}

fn notes(recording: &Recording, samples: u64) -> Result<Vec<String>, Error> {
    let mut notes: Vec<String> = crate::incomplete::words(recording).into_iter().collect();
    notes.extend(recording.manifest.notes.iter().cloned());
    notes.extend(recording.notes.iter().cloned());
    if let Some(drops) = drops::Reader::open(recording)? {
        for row in drops.rows() {
            if let (Some(what), Some(n)) = (drops.what.get(row), drops.count.get(row)) {
                notes.push(format!("dropped: {n} {what}; figures that rest on them are too low"));
            }
        }
    }
    let short = summary::Reader::open(recording)?.and_then(|s| s.elapsed.get(0)).is_some_and(|s| s < SHORT);
    if !short && (1..300).contains(&samples) {
        notes
            .push(format!("only {samples} samples: run longer, or sample faster with -F, for a finer split"));
    }
    Ok(notes)
}

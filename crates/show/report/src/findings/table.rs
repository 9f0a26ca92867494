//! The causes as a table.

use serde_json::json;

use ncpu_table::{Column, Kind, Table, Unit};

use super::{Findings, figure};
use crate::onion::Onion;

impl Findings {
    /// The columns of [`Findings::table`].
    pub fn columns() -> Vec<Column> {
        vec![
            Column::text("cause", "the id of its entry in the rule book"),
            Column::text("kind", "what it is: lock, calls, serial-code …"),
            Column::text("title", "a few words"),
            Column::text("sentence", "what is wrong"),
            Column::float("share", Unit::Percent, Kind::Share, "share of capacity, all layers together"),
            Column::float("seconds", Unit::CpuSeconds, Kind::Time, "CPU-seconds, all layers together"),
            Column::float("error", Unit::CpuSeconds, Kind::Gauge, "half-width of the 95 % interval"),
            Column::float("waited", Unit::Seconds, Kind::Time, "thread-seconds waited for it"),
            Column::float(
                "gain_low",
                Unit::None,
                Kind::Gauge,
                "throughput without it over throughput with it, at least",
            ),
            Column::float(
                "gain_high",
                Unit::None,
                Kind::Gauge,
                "the same, at most; null where the remedy may spare more than the cause's own time",
            ),
            Column::objects("parts", "seconds by layer and by what they went to"),
            Column::objects("evidence", "where it is, how often"),
            Column::objects("advice", "the remedy"),
            Column::text("key", "what stays the same from run to run"),
        ]
    }

    /// The layers as a table, each with the causes that it went to.
    pub fn layers(&self, onion: &Onion) -> Table {
        onion.table_with(|layer| {
            let of = self.of_layer(layer).into_iter().map(|(n, seconds)| {
                let found = &self.list[n - 1];
                let words = format!("{} to {n} {}", figure(seconds), found.title);
                json!({ "number": n, "cause": found.id, "seconds": seconds, "words": words })
            });
            serde_json::Value::from(of.collect::<Vec<_>>()).to_string()
        })
    }

    /// The listed causes as a table.
    pub fn table(&self) -> Table {
        let mut out = Table::builder("causes", &Findings::columns());
        for found in &self.list {
            let parts: Vec<_> = found.parts.iter().map(|part| {
                let words = format!("{} {}", part.what, figure(part.seconds));
                json!({ "layer": part.layer.name(), "what": part.what, "seconds": part.seconds, "words": words })
            }).collect();
            let lines: Vec<_> = found.lines.iter().map(|line| {
                json!({ "label": line.label, "text": line.text, "words": format!("{} {}", line.label, line.text) })
            }).collect();
            out.row()
                .text(&found.id)
                .text(found.kind.word())
                .text(&found.title)
                .text(&found.sentence)
                .float(found.share * 100.0)
                .float(found.seconds)
                .float(found.error)
                .float_opt(found.waited)
                .float(found.gain.0)
                .float_opt(found.gain_at_most())
                .text(serde_json::Value::from(parts).to_string())
                .text(serde_json::Value::from(lines).to_string())
                // Keys are words and values texts, which all have a form in JSON.
                .text(serde_json::to_string(found.advice.as_slice()).unwrap_or_default())
                .text(&found.key);
        }
        out.finish()
    }
}

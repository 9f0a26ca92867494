//! Sends the stacks of the intervals to a collector of OpenTelemetry.
//!
//! A thread of its own does it, which holds nothing but the message at hand: intervals come into the history whatever the collector does,
//! and what has left the history before the collector was ready is not sent.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ncpu_http::{Authorities, Collector};
use ncpu_report::export;
use ncpu_table::safe;

use crate::metrics::Outcome;
use crate::state::State;

/// How often it is looked whether enough intervals have come.
const LOOK: Duration = Duration::from_millis(200);
/// Time that a collector may take for a message, with all tries.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends profiles.
pub struct Sender {
    collector: Collector,
    every: f64,
}

impl Sender {
    /// Sends `every` seconds at a time to the collector at an address. A file has the authorities of its certificate [default: the system's].
    ///
    /// # Errors
    /// The address is invalid, or the file has no authorities.
    pub fn to(url: &str, ca: Option<&Path>, every: f64) -> anyhow::Result<Sender> {
        let collector = Collector::at(url, PATIENCE).context("--otlp")?;
        let authorities = ca.map(Authorities::of_file).transpose();
        let authorities = authorities.map_err(|why| anyhow::anyhow!("--otlp-ca {why}"))?;
        Ok(Sender { collector: collector.certified_by(authorities), every })
    }

    /// Sends for ever.
    pub fn run(&self, state: &State) {
        // The end of what was sent, or given up.
        let mut until: Option<f64> = None;
        let mut failing = false;
        loop {
            std::thread::sleep(LOOK);
            let Some(extent) = state.extent() else { continue };
            let from = *until.get_or_insert(extent.from);
            // The clock was set back.
            if extent.to < from {
                until = Some(extent.to);
                continue;
            }
            // Ends of intervals are rounded.
            if extent.to - from < self.every - 1e-3 {
                continue;
            }
            until = Some(extent.to);
            let result = self.send(state, from, extent.to);
            let outcome = match &result {
                Ok(0) => Outcome::Sent,
                Ok(_) => Outcome::Partial,
                Err(_) => Outcome::Failed,
            };
            state.sent(outcome);
            // A line when it begins to fail and when it works again, and no line each time.
            match (&result, failing) {
                (Err(why), false) => {
                    let why = safe::cut(why, 400);
                    eprintln!("ncpu-serve: profiles are not taken by {}: {why}", self.collector.url());
                }
                (Ok(_), true) => eprintln!("ncpu-serve: {} takes profiles again", self.collector.url()),
                _ => {}
            }
            failing = result.is_err();
        }
    }

    /// Sends the intervals that begin at or after `from` and end at `to` at the latest: each goes once. How many profiles were refused.
    fn send(&self, state: &State, from: f64, to: f64) -> Result<u64, String> {
        let half = 1e-3;
        let intervals: Vec<_> = state.between(from + half, to - half);
        if intervals.is_empty() {
            return Ok(0);
        }
        let recording = state.merged(&intervals).map_err(|e| e.to_string())?;
        drop(intervals);
        if !recording.tables.contains_key("stacks") {
            return Ok(0);
        }
        let message = export::otlp(&recording).map_err(|e| e.to_string())?;
        drop(recording);
        self.collector.send(&message, &|| false).map(|sent| sent.rejected)
    }
}

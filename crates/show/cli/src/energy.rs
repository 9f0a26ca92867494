//! `ncpu bench --energy`: joules of an operation.

use std::path::Path;

use ncpu_machine::power::{self, Meter, Metering};
use ncpu_measure::{Failure, Outcome};
use ncpu_table::{Column, Kind, Table, Unit};

/// Columns for the table of benchmarks.
pub const COLUMNS: [&str; 2] = ["watts", "J/op"];

/// The machine's energy beside each benchmark. Meters are read before and after it, by no thread meanwhile, since the
/// runner forks: so only those are used that count.
pub struct Joules {
    meters: Vec<Meter>,
    rows: Vec<Option<(f64, f64)>>,
}

impl Joules {
    /// The meters below a root; a line says if none exist, and the benchmarks go on without power figures.
    pub fn begin(root: &Path) -> Option<Joules> {
        let meters = match power::find(root) {
            Ok(meters) => meters.into_iter().filter(Meter::counts).collect::<Vec<_>>(),
            Err(e) => {
                say!("ncpu bench: --energy: {e}");
                return None;
            }
        };
        if meters.is_empty() {
            say!(
                "ncpu bench: --energy: this machine's meters tell power, but count no energy; see `ncpu power`"
            );
            return None;
        }
        Some(Joules { meters, rows: Vec::new() })
    }

    /// Runs a benchmark with this number of workers.
    pub fn during(
        &mut self,
        workers: usize,
        run: impl FnOnce() -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let metering = Metering::begin(&self.meters);
        let outcome = run();
        let energies = metering.end();
        // If the part of no meter is known, the first meter.
        let energy = power::total(&self.meters, &energies).map(|t| t.0).or(energies.first().cloned());
        // Calibration and warm-up do the same as the samples, so the mean power is that of an operation.
        self.rows.push(outcome.as_ref().ok().zip(energy).map(|(outcome, energy)| {
            let seconds = outcome.summary().median * 1e-9;
            (energy.watts(), energy.watts() * seconds / workers as f64)
        }));
        outcome
    }

    /// The table with the two columns, before the notes.
    ///
    /// # Errors
    /// A benchmark was run past [`Joules::during`].
    pub fn add(&self, table: &Table) -> ncpu_table::Result<Table> {
        let column = |name, meaning| Column::float(name, Unit::Figure, Kind::Gauge, meaning);
        let of = |second: bool| -> Vec<Option<f64>> {
            self.rows.iter().map(|r| r.map(|r| if second { r.1 } else { r.0 })).collect()
        };
        let watts = column(COLUMNS[0], "mean power of the machine while it ran, at rest too");
        let joules =
            column(COLUMNS[1], "that power for the time of an operation, shared out among the workers");
        table.with_numbers(watts, &of(false), "notes")?.with_numbers(joules, &of(true), "notes")
    }
}

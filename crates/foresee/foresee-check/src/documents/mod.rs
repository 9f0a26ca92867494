//! Measurements from the literature that the simulator is compared with: those before a change or on fewer CPUs are
//! given, those after it or on more are predicted.

mod calls;
mod dump;
mod locks;
mod memory;
mod whole;

use ncpu_table::{Column, Kind, Table, Unit};

use ncpu_foresee::machines;
use ncpu_foresee::program::{Activity, Class, Op, Program};

/// A measurement and what the simulator says of it.
struct Row {
    what: &'static str,
    unit: &'static str,
    measured: f64,
    foretold: f64,
    free: &'static str,
}

/// No parameter was free.
const NONE: &str = "none";

fn row(what: &'static str, unit: &'static str, measured: f64, foretold: f64, free: &'static str) -> Row {
    Row { what, unit, measured, foretold, free }
}

/// A program of threads that all do the same.
fn one_class(threads: u32, bound: bool, ops: Vec<Op>) -> Program {
    Program {
        classes: vec![Class { name: "t".into(), threads, bound, ops }],
        activities: vec![Activity::new("user", "")],
        ..Program::default()
    }
}

fn rows() -> Result<Vec<Row>, machines::Error> {
    let mut all = calls::rows()?;
    all.extend(memory::rows());
    all.extend(dump::rows());
    all.extend(locks::rows()?);
    all.extend(whole::rows()?);
    Ok(all)
}

/// Every measurement and what the simulator says of it.
///
/// # Errors
/// The catalogue lacks a machine.
pub fn table() -> Result<Table, machines::Error> {
    let figure = |name: &str, meaning: &str| Column::float(name, Unit::Figure, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "documents",
        &[
            Column::text("what", "what was measured"),
            Column::text("unit", "in what"),
            figure("measured", "as published"),
            figure("foretold", "by the simulator"),
            figure("ratio", "foretold over measured"),
            Column::text("free", "parameters that were free, and what they were taken from"),
        ],
    );
    for r in rows()? {
        out.row()
            .text(r.what)
            .text(r.unit)
            .float(r.measured)
            .float(r.foretold)
            .float(r.foretold / r.measured)
            .text(r.free);
    }
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_without_free_parameters_are_met() {
        for row in calls::rows().unwrap().into_iter().filter(|r| r.free == NONE) {
            let ratio = row.foretold / row.measured;
            let at_most = row.unit.contains("at most");
            assert!(ratio < 1.05 && (at_most || ratio > 0.95), "{}: {ratio}", row.what);
        }
    }

    #[test]
    fn a_second_measurement_of_the_same_machine_is_met() {
        // Parameters from one row of a machine predict the next: memory on a bus, and pages made by helpers.
        for row in memory::rows() {
            let near = ["E5320, 4", "SUMA, 2", "SUMA, 8", "T4-2, 16 helpers, create"];
            if near.iter().any(|n| row.what.contains(n)) {
                let ratio = row.foretold / row.measured;
                assert!((0.9..1.1).contains(&ratio), "{}: {ratio}", row.what);
            }
        }
    }

    #[test]
    fn latency_under_load_follows_from_bandwidth() {
        let all = memory::rows();
        let loaded: Vec<&Row> = all.iter().filter(|r| r.what.starts_with("memory latency")).collect();
        assert_eq!(loaded.len(), 7);
        for row in loaded {
            let ratio = row.foretold / row.measured;
            assert!((0.9..1.3).contains(&ratio), "{}: {ratio}", row.what);
        }
    }

    #[test]
    fn what_waiters_cost_follows_from_line_transfers() {
        for row in locks::spinlocks().unwrap() {
            let ratio = row.foretold / row.measured;
            assert!((0.75..1.35).contains(&ratio), "{}: {ratio}", row.what);
        }
    }
}

//! Results of other commands for the program and its machine: cross-calls, line transfers, growth with CPUs, and lines
//! that words share.

use ncpu_record::Recording;
use ncpu_table::Table;

use super::{Counted, Growth, NamedLock, Words};
use crate::hardware::Hardware;
use crate::model::Model;

/// Results of other commands beside a recording of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Its shootdowns, by `ncpu crosscalls`.
    pub calls: Option<Calls>,
    /// Line transfers of the machine, by `ncpu bench core-to-core`.
    pub transfer: Option<Transfers>,
    /// Growth with the CPUs, by `ncpu scale --peel`.
    pub growth: Option<Growth>,
    /// Words that share lines, by `ncpu lines`.
    pub words: Option<Words>,
    /// Its system calls, by `ncpu counters`.
    pub counted: Option<Counted>,
    /// Its locks, as the causes of its recording name them.
    pub locks: Option<Vec<NamedLock>>,
    /// How often a unit of work takes a lock, by name, where the user knows it.
    pub takes: Vec<(String, f64)>,
}

/// TLB shootdowns of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calls {
    /// A second.
    pub rate: f64,
    /// Units of work a second meanwhile, if the program reported them.
    pub throughput: Option<f64>,
    /// CPUs that one interrupts, on average.
    pub targets: f64,
    /// How long each of them is at it, ns, where that was seen.
    pub handle_ns: Option<f64>,
}

/// Medians of line transfers by how the two CPUs lie, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfers {
    /// Strands of a core.
    pub same_core: Option<f64>,
    /// Cores of a package.
    pub same_package: Option<f64>,
    /// Nodes of a package.
    pub other_node: Option<f64>,
    /// Packages.
    pub other_package: Option<f64>,
}

const SHOOTDOWN: &str = "TLB shootdown";

fn rows<'a>(table: &'a Table, column: &'a str, is: &'a str) -> impl Iterator<Item = usize> + 'a {
    (0..table.num_rows()).filter(move |&r| table.text(r, column) == Some(is))
}

impl Beside {
    /// Takes what a recording has; whether it has anything.
    pub fn add(&mut self, recording: &Recording) -> bool {
        let calls = Calls::of(recording);
        let transfer = recording.tables.get("core-to-core").and_then(Transfers::of);
        let (growth, words) = (Growth::of(recording), Words::of(recording));
        let counted = Counted::of(recording);
        let any =
            calls.is_some() || transfer.is_some() || growth.is_some() || words.is_some() || counted.is_some();
        self.calls = calls.or(self.calls);
        self.transfer = transfer.or(self.transfer);
        self.growth = growth.or(self.growth.take());
        self.words = words.or(self.words.take());
        self.counted = counted.or(self.counted.take());
        any
    }
}

impl Calls {
    fn of(recording: &Recording) -> Option<Calls> {
        let table = recording.tables.get("crosscalls")?;
        let elapsed = recording.tables.get("crosscall_summary")?.number(0, "elapsed").filter(|s| *s > 0.0)?;
        let all = |column: &str| -> f64 {
            rows(table, "cause", SHOOTDOWN).filter_map(|r| table.number(r, column)).sum()
        };
        let calls = all("calls");
        let handled = recording.tables.get("crosscalls_received").map_or((0.0, 0.0), |t| {
            let all = |column: &str| -> f64 {
                rows(t, "cause", SHOOTDOWN).filter_map(|r| t.number(r, column)).sum()
            };
            (all("seconds"), all("received"))
        });
        Some(Calls {
            rate: calls / elapsed,
            throughput: recording.manifest.throughput.as_ref().map(|t| t.per_second),
            targets: all("targets") / calls.max(1.0),
            handle_ns: (handled.0 > 0.0 && handled.1 >= 100.0).then(|| handled.0 / handled.1 * 1e9),
        })
    }

    /// Puts them into a model of the program with `throughput` units a second and `running` threads on CPU; `unit`: the
    /// program itself reported these units.
    pub(super) fn put(
        &self,
        model: &mut Model,
        (throughput, unit): (f64, bool),
        running: f64,
        notes: &mut Vec<String>,
    ) {
        model.shootdowns = self.rate / self.throughput.filter(|_| unit).unwrap_or(throughput);
        // CPUs that a shootdown could reach: those that run another thread of the program.
        let others = (running - 1.0).max(0.2);
        model.shootdown_misses = (1.0 - self.targets / others).clamp(0.0, 0.95);
        model.shootdown_handle_ns = self.handle_ns.unwrap_or(0.0);
        if self.throughput.is_none() {
            notes.push(
                "the recording of cross-calls has no throughput: that of the other recording is assumed; record it with --metric"
                    .into(),
            );
        }
    }
}

impl Transfers {
    fn of(table: &Table) -> Option<Transfers> {
        let median = |relation: &str| {
            let mut all: Vec<f64> =
                rows(table, "notes", relation).filter_map(|r| table.number(r, "latency")).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let found = Transfers {
            same_core: median("same core"),
            same_package: median("same package"),
            other_node: median("other node"),
            other_package: median("other package"),
        };
        (found != Transfers::default()).then_some(found)
    }

    /// Gives a machine those distances that were measured.
    pub fn put(&self, hardware: &mut Hardware) {
        let t = &mut hardware.transfer;
        let set = |to: &mut f64, x: Option<f64>| *to = x.unwrap_or(*to);
        set(&mut t.sibling, self.same_core);
        set(&mut t.cluster, self.same_package);
        set(&mut t.package, self.other_node.or(self.same_package));
        set(&mut t.remote, self.other_package);
        t.hop = t.remote / 2.0;
    }
}

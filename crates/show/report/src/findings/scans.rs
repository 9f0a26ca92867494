//! Databases that read a whole table to find few of its rows, for want of an index.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place};
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of capacity, and of the process's time on CPU, from which scans are claimed.
const LEAST: f64 = 0.05;
const OF_PROCESS: f64 = 0.3;

/// The part of a scan's samples in which rows are fetched one after another.
const FETCHES: f64 = 0.01;

/// The part of the database's samples from which it does something with what it reads: it sorts, sums, stores or sends.
const USES: f64 = 0.03;

/// A database by the functions in its stacks.
struct Database {
    name: &'static str,
    /// It carries out a statement.
    runs: &'static str,
    /// It scans: below `runs`, with nothing else of a plan in between.
    scans: &'static [&'static str],
    between: &'static [&'static str],
    /// It goes on to the next row of a table.
    fetches: &'static [&'static str],
    /// Beginnings of functions by which it uses rows, or finds them by an index.
    uses: &'static [&'static str],
}

const DATABASES: [Database; 2] = [
    Database {
        name: "SQLite",
        runs: "sqlite3_step",
        scans: &["sqlite3VdbeExec"],
        between: &["sqlite3Step"],
        fetches: &["sqlite3BtreeNext", "btreeNext"],
        uses: &[
            "sqlite3VdbeSorter",
            "sqlite3BtreeInsert",
            "sqlite3BtreeDelete",
            "sqlite3BtreeIndexMoveto",
            "sqlite3BtreeTableMoveto",
            "sqlite3BtreeMovetoUnpacked",
            "sqlite3_value_",
            "sqlite3_result_",
            "sqlite3_aggregate_context",
            "sqlite3_column_",
            "sumStep",
            "countStep",
            "minmaxStep",
            "likeFunc",
            "patternCompare",
        ],
    },
    Database {
        name: "PostgreSQL",
        runs: "standard_ExecutorRun",
        scans: &["ExecScan", "ExecSeqScan", "ExecSeqScanWithQual"],
        between: &["ExecutePlan", "ExecProcNode", "ExecProcNodeFirst", "ExecSeqScan"],
        fetches: &["heap_getnextslot", "heapgettup_pagemode", "heapgettup"],
        uses: &[
            "printtup",
            "pq_",
            "index_getnext",
            "IndexNext",
            "IndexOnlyNext",
            "BitmapHeapNext",
            "tuplestore_",
            "textlike",
        ],
    },
];

impl Database {
    /// Whether it scans in a sample: `None` where it does not run at all.
    fn scans(&self, sample: &Sampled<'_>) -> Option<bool> {
        let runs = sample.user.iter().position(|f| *f == self.runs)?;
        let mut inner = sample.user[..runs]
            .iter()
            .rev()
            .skip_while(|f| self.between.contains(f) && !self.scans.contains(f));
        Some(inner.next().is_some_and(|f| self.scans.contains(f)))
    }
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    DATABASES.iter().flat_map(|database| of_database(view, database)).collect()
}

#[derive(Default)]
struct Scans {
    samples: Vec<usize>,
    runs: f64,
    seconds: f64,
    fetches: f64,
    uses: f64,
}

fn of_database(view: &View<'_>, database: &Database) -> Vec<Claim> {
    let mut of: HashMap<&str, Scans> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let uses = sample.user.iter().any(|f| database.uses.iter().any(|start| f.starts_with(start)));
        let scans = database.scans(sample);
        // Rows are taken from SQLite beside the call that finds them.
        if scans.is_none() && !uses {
            continue;
        }
        let sum = of.entry(sample.process).or_default();
        sum.runs += sample.seconds;
        sum.uses += if uses { sample.seconds } else { 0.0 };
        if scans == Some(true) {
            sum.samples.push(at);
            sum.seconds += sample.seconds;
            let fetches = sample.user.iter().any(|f| database.fetches.contains(f));
            sum.fetches += if fetches { sample.seconds } else { 0.0 };
        }
    }
    of.retain(|process, sum| {
        sum.seconds >= LEAST * view.capacity()
            && sum.seconds >= OF_PROCESS * view.on_cpu(process)
            && sum.fetches >= FETCHES * sum.seconds
            && sum.uses <= USES * sum.runs
    });
    of.into_iter().map(|(process, sum)| claim(view, database, process, &sum)).collect()
}

fn claim(view: &View<'_>, database: &Database, process: &str, sum: &Scans) -> Claim {
    let mut places = Most::default();
    let within = |frame: &str| frame == database.runs || frame.starts_with("sqlite3_");
    for &at in &sum.samples {
        let sample = &view.samples[at];
        places.add(&Place::beyond(&sample.user, within).words(), sample.seconds);
    }
    // A server's own functions do not say which program asks.
    let (words, place) = match database.name {
        "PostgreSQL" => (String::new(), process.to_string()),
        _ => places.place(process),
    };
    let mut claim = Claim::new(Kind::Runtime, [When::TableScan], database.name)
        .with("database", database.name)
        .with("process", process)
        .with("place", place);
    claim.key = format!("table scans {process}");
    for &at in &sum.samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "reading rows");
    }
    claim.line("called in", words);
    claim
}

//! Findings as tables.

use ncpu_table::{Column, Kind as Is, Table, Unit};

use crate::{Finding, Place, Report, Storage};

/// What was found, the worst first; a finding has a number, which its words bear.
#[derive(Clone, Debug)]
pub struct Tables {
    /// A row for each finding.
    pub findings: Table,
    /// A row for each word of each finding.
    pub words: Table,
    /// A row for each file.
    pub objects: Table,
}

/// Puts reports together. Without `all`, lines are left out where a lock lies beside the data it may well
/// guard, and where nothing tells that more than one CPU writes. `only` keeps what names it.
pub fn tables(reports: &[Report], line: u64, all: bool, only: Option<&str>) -> Tables {
    let mut ranked: Vec<(&Report, &Finding)> = reports
        .iter()
        .flat_map(|r| r.findings.iter().map(move |f| (r, f)))
        .filter(|(_, f)| (all || f.is_likely()) && only.is_none_or(|name| f.names(name)))
        .collect();
    ranked.sort_by(|(_, a), (_, b)| a.rank().cmp(&b.rank()));
    let mut findings = Table::builder("findings", &finding_columns());
    let mut words = Table::builder("words", &word_columns());
    for (number, (report, finding)) in (1..).zip(ranked) {
        let row = findings
            .row()
            .int(number)
            .text(finding.sharing.word())
            .text(place(finding.place))
            .text(if finding.name.is_empty() { finding.section() } else { &finding.name })
            .text(format!("{:#x}", finding.line))
            .int(finding.words.len() as u64)
            .int(finding.hot);
        row.int_opt(finding.array.map(|a| a.0))
            .int_opt(finding.array.map(|a| a.1))
            .int(finding.cost)
            .text(&finding.fix)
            .text_opt(finding.decl.as_ref().map(ToString::to_string))
            .text(&report.object);
        for word in &finding.words {
            words
                .row()
                .int(number)
                .text(format!("{:#x}", word.address))
                .int_opt(word.address.checked_sub(finding.line))
                .int(word.size)
                .text(word.kind.word())
                .text(&word.name)
                .text_opt(word.ty.as_ref())
                .text_opt(word.section.as_ref())
                .text_opt(word.decl.as_ref().map(ToString::to_string));
        }
    }
    let mut objects = Table::builder(
        "objects",
        &[
            Column::text("object", "the file, or kernel"),
            Column::int("line", Unit::Bytes, Is::Gauge, "size of a cache line"),
            Column::count("variables", "writable variables looked at"),
            Column::count("structs", "structs looked at"),
        ],
    );
    for report in reports {
        objects.row().text(&report.object).int(line).int(report.variables as u64).int(report.structs as u64);
    }
    Tables { findings: findings.finish(), words: words.finish(), objects: objects.finish() }
}

/// The words of all variables, by which addresses are named: see [`crate::Options::words`].
pub fn variables(reports: &[Report]) -> Table {
    let mut out = Table::builder(
        "variables",
        &[
            Column::text("address", "address"),
            Column::int("size", Unit::Bytes, Is::Gauge, "size"),
            Column::text("name", "variable and members"),
            Column::int("stride", Unit::Bytes, Is::Gauge, "of an array: from one element to the next"),
        ],
    );
    for (word, stride) in reports.iter().flat_map(|r| &r.words) {
        out.row().text(format!("{:#x}", word.address)).int(word.size).text(&word.name).int_opt(*stride);
    }
    out.finish()
}

fn finding_columns() -> [Column; 13] {
    [
        Column::id("finding", "rank: 1 is what to look at first"),
        Column::text(
            "sharing",
            "what shares the line: locks, lock-array, lock+counters, counters, counter-array, lock+reads, lock+data, data",
        ),
        Column::text("in", "variables, per-CPU or thread-local variables, or a struct"),
        Column::text("name", "the struct or the array, else the section"),
        Column::text("line", "address of the line, or its offset in the struct"),
        Column::count("words", "words in the line"),
        Column::count("hot", "locks, atomics and counters among them"),
        Column::int("stride", Unit::Bytes, Is::Gauge, "of an array: from one element to the next"),
        Column::int("elements", Unit::None, Is::Gauge, "of an array: how many"),
        Column::int(
            "cost",
            Unit::Bytes,
            Is::Count,
            "padding that parts the hot words; of a struct in each object",
        ),
        Column::text("fix", "how to write it"),
        Column::text("source", "where the source declares it"),
        Column::text("object", "the file, or kernel"),
    ]
}

fn word_columns() -> [Column; 9] {
    [
        Column::id("finding", "rank of the finding it belongs to"),
        Column::text("address", "address, or offset in the struct"),
        Column::int("offset", Unit::Bytes, Is::Gauge, "in the line; none where it begins before"),
        Column::int("size", Unit::Bytes, Is::Gauge, "size"),
        Column::text("kind", "lock, atomic, counter, data, read-mostly"),
        Column::text("name", "variable and members"),
        Column::text("type", "its type, where known"),
        Column::text("section", "its section"),
        Column::text("source", "where the source declares it"),
    ]
}

fn place(place: Place) -> &'static str {
    match place {
        Place::Variables(Storage::Shared) => "variables",
        Place::Variables(Storage::PerCpu) => "per-CPU",
        Place::Variables(Storage::ThreadLocal) => "thread-local",
        Place::Struct => "struct",
    }
}

impl Finding {
    fn section(&self) -> &str {
        self.words.first().and_then(|w| w.section.as_deref()).unwrap_or("")
    }

    fn names(&self, name: &str) -> bool {
        let in_words = || self.words.iter().any(|w| w.name.contains(name));
        self.name.contains(name) || in_words()
    }
}

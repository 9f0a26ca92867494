//! Findings as tables.

use ncpu_schema::{findings, objects, variables, words};
use ncpu_table::Table;

use crate::{Finding, Place, Report, Storage};

/// The findings, the worst first. Each finding has a number, which its words refer to.
#[derive(Clone, Debug)]
pub struct Tables {
    /// A row for each finding.
    pub findings: Table,
    /// A row for each word of each finding.
    pub words: Table,
    /// A row for each file.
    pub objects: Table,
}

/// Combines reports, of which the first is the program's: its findings come first, as libraries are seldom the user's to change. Without `all`, lines are omitted if a lock lies beside data that it may guard, or if
/// there is no sign of writes from several CPUs. `only` selects the entries with this name.
pub fn tables(reports: &[Report], line: u64, all: bool, only: Option<&str>) -> Tables {
    let mut ranked: Vec<(bool, &Report, &Finding)> = (0..)
        .zip(reports)
        .flat_map(|(i, r)| r.findings.iter().map(move |f| (i > 0, r, f)))
        .filter(|(.., f)| (all || f.is_likely()) && only.is_none_or(|name| f.names(name)))
        .collect();
    ranked.sort_by(|(library, _, a), (other, _, b)| library.cmp(other).then(a.rank().cmp(&b.rank())));
    let (mut findings, mut words) = (findings::Rows::new(), words::Rows::new());
    for (number, (_, report, finding)) in (1..).zip(ranked) {
        let name = if finding.name.is_empty() { finding.section() } else { &finding.name };
        findings.push(findings::Row {
            finding: Some(number),
            sharing: finding.sharing.word().into(),
            place: Some(place(finding.place)),
            name: name.into(),
            line: format!("{:#x}", finding.line).into(),
            words: Some(finding.words.len() as u64),
            hot: Some(finding.hot),
            stride: finding.array.map(|a| a.0),
            elements: finding.array.map(|a| a.1),
            cost: Some(finding.cost),
            fix: (&finding.fix).into(),
            source: finding.decl.as_ref().map(ToString::to_string).into(),
            object: (&report.object).into(),
        });
        for word in &finding.words {
            words.push(words::Row {
                finding: Some(number),
                address: format!("{:#x}", word.address).into(),
                offset: word.address.checked_sub(finding.line),
                size: Some(word.size),
                kind: word.kind.word().into(),
                name: (&word.name).into(),
                ty: word.ty.as_deref().into(),
                section: word.section.as_deref().into(),
                source: word.decl.as_ref().map(ToString::to_string).into(),
            });
        }
    }
    let mut objects = objects::Rows::new();
    for report in reports {
        objects.push(objects::Row {
            object: (&report.object).into(),
            line: Some(line),
            variables: Some(report.variables as u64),
            structs: Some(report.structs as u64),
        });
    }
    Tables { findings: findings.finish(), words: words.finish(), objects: objects.finish() }
}

/// The words of all variables, for naming addresses: see [`crate::Options::words`].
pub fn variables(reports: &[Report]) -> Table {
    let mut out = variables::Rows::new();
    for (word, stride) in reports.iter().flat_map(|r| &r.words) {
        out.push(variables::Row {
            address: format!("{:#x}", word.address).into(),
            size: Some(word.size),
            name: (&word.name).into(),
            stride: *stride,
        });
    }
    out.finish()
}

fn place(place: Place) -> ncpu_schema::Place {
    match place {
        Place::Variables(Storage::Shared) => ncpu_schema::Place::Variables,
        Place::Variables(Storage::PerCpu) => ncpu_schema::Place::PerCpu,
        Place::Variables(Storage::ThreadLocal) => ncpu_schema::Place::ThreadLocal,
        Place::Struct => ncpu_schema::Place::Struct,
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

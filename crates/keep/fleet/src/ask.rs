//! Questions: one SQL text for each, in `sql/`, with placeholders for the selected recordings.
//!
//! Both engines accept these texts unchanged, and give the same digits: sums are of whole numbers, which have
//! the same sum in any order, and shares are quotients of such sums. No name needs quotes, which the engines
//! write differently.

use std::collections::BTreeSet;

use ncpu_fleet_args::Scope;
use ncpu_table::{Column, Table};

use crate::engine::{self, Engine, Kind};
use crate::parts;
use crate::store::{self, Hold, Store};
use crate::tables::Kept;
use crate::when::Period;
use crate::{Error, Result, compact, copies, delta, labels, rollup, when};

/// The number of rows if no number is given.
const ALL: u64 = 1_000_000_000;

/// The key of groups: a column of every table, or a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Its name for the user.
    pub name: String,
    sql: String,
    day: bool,
    label: Option<String>,
}

/// Reads `--by`.
///
/// # Errors
/// The column is unknown.
pub fn by(columns: &[String]) -> Result<Vec<By>> {
    let one = |name: &String| {
        let plain = |sql: &str| By { name: name.clone(), sql: sql.into(), day: false, label: None };
        match name.as_str() {
            "kernel" | "cpu_model" | "host" | "machine" | "labels" => Ok(plain(name)),
            "cpus" => Ok(plain("CAST(cpus AS STRING)")),
            "day" => {
                Ok(By { day: true, ..plain("CAST(CAST(floor(at_us / 86400000000) AS BIGINT) AS STRING)") })
            }
            _ => match name.strip_prefix("label:").filter(|key| labels::is_key(key)) {
                Some(key) => Ok(By { label: Some(key.into()), ..plain(&labels::sql(key)) }),
                None => Err(Error::Usage(format!(
                    "--by {name}: unknown key; expected kernel, cpu_model, cpus, host, machine, day, labels or label:KEY"
                ))),
            },
        }
    };
    columns.iter().map(one).collect()
}

/// The SQL of a condition, with `label:KEY` replaced outside of strings, and these keys.
fn condition(text: &str) -> Result<(String, Vec<String>)> {
    let mut keys = Vec::new();
    let mut out = String::new();
    for (i, piece) in text.split('\'').enumerate() {
        if i > 0 {
            out.push('\'');
        }
        if i % 2 == 1 {
            out += piece;
            continue;
        }
        let mut rest = piece;
        while let Some((before, after)) = rest.split_once("label:") {
            let end = after
                .find(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)))
                .unwrap_or(after.len());
            if end == 0 {
                return Err(Error::Usage(format!(
                    "--where {text}: `label:` needs a key, as in label:type = 'web'"
                )));
            }
            out += before;
            out += &labels::sql(&after[..end]);
            keys.push(after[..end].to_string());
            rest = &after[end..];
        }
        out += rest;
    }
    if text.matches('\'').count() % 2 == 1 {
        return Err(Error::Usage(format!("--where {text}: unclosed quote")));
    }
    Ok((out, keys))
}

/// A fleet, and an engine that answers questions about it.
pub struct Asked {
    store: Box<dyn Store>,
    engine: Option<Engine>,
    kind: Option<Kind>,
    scope: Scope,
    /// Notes for the user.
    pub notes: Vec<String>,
    _held: Box<dyn std::any::Any + Send>,
}

impl Asked {
    /// Opens the fleet, and connects to the engine unless the SQL is only printed.
    ///
    /// # Errors
    /// The fleet or the engine does not exist.
    pub fn open(scope: &Scope) -> Result<Asked> {
        let store = store::open(&scope.root)?;
        let held = compact::not_compacted(store.as_ref(), Hold::Ask)?;
        let mut asked =
            Asked { store, engine: None, kind: None, scope: scope.clone(), notes: Vec::new(), _held: held };
        if parts::list(asked.store.as_ref(), Kept::Recordings, None)?.is_empty() {
            return Err(Error::Fleet(format!(
                "{0} has no recordings yet; `ncpu fleet add {0} DIR…` adds some",
                scope.root
            )));
        }
        if !scope.explain {
            let kind = Kind::parse(&scope.engine)?;
            let mut engine = Engine::open(kind.clone())?;
            asked.notes.append(&mut engine.notes);
            asked.engine = Some(engine);
            asked.kind = Some(kind);
            asked.seen()?;
        }
        Ok(asked)
    }

    /// A server that cannot reach the fleet, or that reads another one of the same name, answers with no rows
    /// instead of an error.
    fn seen(&mut self) -> Result<()> {
        if !matches!(self.kind, Some(Kind::Flight(_))) {
            return Ok(());
        }
        let from = self.relation(Kept::Recordings, &Period::ALL)?;
        let table = self.send("check", &format!("SELECT CAST(count(*) AS BIGINT) AS n FROM {from} AS r"))?;
        if table.int(0, "n").unwrap_or(0) == 0 {
            return Err(Error::Engine(format!(
                "{} sees no recordings in {}, which has some: it must reach the fleet at the same path, or at \
                 --engine-root",
                self.scope.engine, self.scope.root
            )));
        }
        Ok(())
    }

    /// A table as a relation of the engine.
    fn relation(&self, table: Kept, period: &Period) -> Result<String> {
        let store = self.store.as_ref();
        let (from, to) = period.dates();
        let mut parts = parts::list(store, table, None)?;
        if parts.is_empty() {
            return Ok(table.nothing());
        }
        if let Some(Kind::Flight(_)) = &self.kind {
            // DuckDB reads a directory file by file. From a Delta log Sail makes a task for each file, which
            // does not pay for small fleets on few workers.
            let asked = self.scope.engine_root.as_deref().unwrap_or("");
            let (log, root) = asked.strip_prefix("delta:").map_or((false, asked), |root| (true, root));
            if log && !delta::current(store, table, &parts)? {
                return Err(Error::Fleet(format!(
                    "{0} has no Delta log: `ncpu fleet delta {0}` writes one",
                    store.root()
                )));
            }
            let root = if root.is_empty() { absolute(store)? } else { root.to_string() };
            let path = format!("{}/{}", root.trim_end_matches('/'), table.name()).replace('`', "``");
            return Ok(format!("{}.`{path}`", if log { "delta" } else { "parquet" }));
        }
        let all = parts.len();
        parts.retain(|p| p.span.meets(from.as_deref(), to.as_deref()));
        if parts.is_empty() {
            return Ok(table.nothing());
        }
        let files = match store.directory() {
            Some(root) if parts.len() == all => {
                vec![format!("{}/{}/date=*/hour=*/part-*.parquet", engine::literal(root), table.name())]
            }
            Some(root) => {
                let pattern = |span: &parts::Span| match span.date() {
                    Some(date) => format!("{}/date={date}/hour=*/part-*.parquet", table.name()),
                    None => span.pattern(table),
                };
                let patterns: BTreeSet<String> = parts.iter().map(|p| pattern(&p.span)).collect();
                let root = engine::literal(root);
                patterns.iter().map(|pattern| format!("{root}/{pattern}")).collect()
            }
            None => {
                let files = copies::fetch(store, &parts)?;
                files.iter().map(|f| engine::literal(f)).collect()
            }
        };
        let files: Vec<String> = files.iter().map(|f| engine::quoted(f)).collect();
        Ok(format!("read_parquet([{}], hive_partitioning = false)", files.join(", ")))
    }

    /// Builds the SQL of a question.
    ///
    /// # Errors
    /// An option is invalid, or the fleet cannot be read.
    pub fn sql(&self, template: &str, question: &Question) -> Result<String> {
        let names: Vec<String> = (1..=question.by.len().max(1)).map(|i| format!("k{i}")).collect();
        let keys = match question.by.is_empty() {
            true => vec!["'' AS k1".to_string()],
            false => names.iter().zip(&question.by).map(|(n, by)| format!("{} AS {n}", by.sql)).collect(),
        };
        let last = match question.by.is_empty() {
            true => vec!["'' AS k1".to_string()],
            false => names
                .iter()
                .zip(&question.by)
                .map(|(n, by)| format!("max_by({}, at_us) AS {n}", by.sql))
                .collect(),
        };
        let group: Vec<String> = (1..=names.len()).map(|i| i.to_string()).collect();
        let of = |alias: &str| names.iter().map(|n| format!("{alias}.{n}")).collect::<Vec<_>>().join(", ");
        let same =
            |of: &str| names.iter().map(|n| format!("p.{n} = {of}.{n}")).collect::<Vec<_>>().join(" AND ");
        let within = |p: &Period| {
            let mut out = Vec::new();
            if p.from != i64::MIN {
                out.push(format!("at_us >= {}", p.from));
            }
            if p.to != i64::MAX {
                out.push(format!("at_us < {}", p.to));
            }
            if out.is_empty() { "1 = 1".to_string() } else { out.join(" AND ") }
        };
        let mut conditions = vec![within(&question.period)];
        if let Some(filter) = &self.scope.filter {
            conditions.push(format!("({})", condition(filter)?.0));
        }
        let mut out = template.to_string();
        let top = question.top.unwrap_or(ALL);
        for (place, value) in [
            ("{keys}", keys.join(", ")),
            ("{last}", last.join(", ")),
            ("{names}", names.join(", ")),
            ("{p.names}", of("p")),
            ("{n.names}", of("n")),
            ("{group}", group.join(", ")),
            ("{same}", same("w")),
            ("{v.same}", same("v")),
            ("{top}", top.to_string()),
            ("{recoverable}", rollup::recoverable()),
            ("{before}", format!("({})", within(&question.before))),
            ("{after}", format!("({})", within(&question.after))),
            ("{where}", conditions.join(" AND ")),
        ] {
            out = out.replace(place, &value);
        }
        let period = question.all();
        for table in Kept::ALL {
            let place = format!("{{{}}}", table.name());
            if out.contains(&place) {
                out = out.replace(&place, &self.relation(table, &period)?);
            }
        }
        Ok(out)
    }

    /// Runs a question; group columns get the user's names. `None` if the SQL is only printed: it is then a
    /// note.
    ///
    /// # Errors
    /// The engine refuses or is unreachable.
    pub fn ask(&mut self, name: &str, template: &str, question: &Question) -> Result<Table> {
        let sql = self.sql(template, question)?;
        self.labels_exist(question)?;
        let table = self.send(name, &sql)?;
        grouped(&table, &question.by)
    }

    /// A label that no recording has would put all recordings in one group, or match none.
    fn labels_exist(&mut self, question: &Question) -> Result<()> {
        let mut asked: Vec<(&str, String)> = Vec::new();
        asked.extend(question.by.iter().filter_map(|by| Some(("--by", by.label.clone()?))));
        if let Some(filter) = &self.scope.filter {
            asked.extend(condition(filter)?.1.into_iter().map(|key| ("--where", key)));
        }
        if asked.is_empty() {
            return Ok(());
        }
        let from = self.relation(Kept::Recordings, &Period::ALL)?;
        let table = self.send("labels", &format!("SELECT DISTINCT labels FROM {from} AS r"))?;
        let rows = (0..table.num_rows()).filter_map(|r| table.text(r, "labels"));
        let keys: BTreeSet<String> = rows.flat_map(labels::keys).map(String::from).collect();
        match asked.into_iter().find(|(_, key)| !keys.contains(key)) {
            None => Ok(()),
            Some((option, key)) if keys.is_empty() => {
                Err(Error::Usage(format!("{option} label:{key}: no recording of the fleet has labels")))
            }
            Some((option, key)) => {
                let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
                Err(Error::Usage(format!("{option}: unknown label `{key}`; expected one of: {keys}")))
            }
        }
    }

    /// Runs the user's own SQL: `locks` is the table of that name.
    ///
    /// # Errors
    /// As [`Asked::ask`].
    pub fn query(&mut self, sql: &str) -> Result<Table> {
        let views = self.views(sql)?;
        for view in views {
            self.send("view", &view)?;
        }
        self.send("answer", sql)
    }

    /// The statements that make the tables known by their names.
    ///
    /// # Errors
    /// The fleet cannot be read.
    pub fn views(&self, sql: &str) -> Result<Vec<String>> {
        let used = Kept::ALL.into_iter().filter(|t| sql.contains(t.name()));
        let make = |table: Kept| {
            let from = self.relation(table, &Period::ALL)?;
            Ok(format!("CREATE OR REPLACE TEMPORARY VIEW {} AS SELECT * FROM {from} AS t", table.name()))
        };
        used.map(make).collect()
    }

    /// Where the fleet is.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The condition that recordings are chosen by.
    pub fn filter(&self) -> Option<String> {
        self.scope.filter.clone()
    }

    /// The user's name of the fleet.
    pub fn root(&self) -> &str {
        &self.scope.root
    }

    fn send(&mut self, name: &str, sql: &str) -> Result<Table> {
        match &mut self.engine {
            Some(engine) => engine.ask(name, sql),
            None => Err(Error::Engine("no engine was opened".into())),
        }
    }
}

/// A question.
#[derive(Clone, Debug)]
pub struct Question {
    /// The keys of groups.
    pub by: Vec<By>,
    /// The selected recordings.
    pub period: Period,
    /// Recordings before a change.
    pub before: Period,
    /// Recordings after the change.
    pub after: Period,
    /// The most rows of the answer.
    pub top: Option<u64>,
}

impl Question {
    /// A question about recordings in a period. With a beginning but no end, recordings with clocks more than
    /// a day ahead are left out.
    ///
    /// # Errors
    /// An option is invalid.
    pub fn new(by: Vec<By>, since: Option<&str>, until: Option<&str>, top: Option<u64>) -> Result<Question> {
        let now = when::now();
        let mut period = Period::ALL;
        if let Some(since) = since {
            period.from = when::ago(since, now)?;
            period.to = now + 86_400_000_000;
        }
        if let Some(until) = until {
            period.to = when::ago(until, now)?;
        }
        if period.to <= period.from {
            return Err(Error::Usage("--until is before --since".into()));
        }
        Ok(Question { by, period, before: Period::ALL, after: Period::ALL, top })
    }

    /// A question about a change.
    ///
    /// # Errors
    /// The periods overlap.
    pub fn of_change(by: Vec<By>, before: Period, after: Period) -> Result<Question> {
        if !before.apart(&after) {
            return Err(Error::Usage("--before and --after have times in common".into()));
        }
        Ok(Question { by, period: Period::ALL, before, after, top: None })
    }

    /// The period that contains all its recordings.
    fn all(&self) -> Period {
        let from = self.period.from.max(self.before.from.min(self.after.from));
        Period { from, to: self.period.to.min(self.before.to.max(self.after.to)) }
    }
}

/// The groups' columns under their names; without groups the placeholder column is removed.
fn grouped(table: &Table, by: &[By]) -> Result<Table> {
    let mut columns: Vec<Column> = by.iter().map(|b| Column::text(&b.name, "the group")).collect();
    let rest: Vec<Column> = table.columns().iter().filter(|c| !is_key(&c.name)).cloned().collect();
    columns.extend(rest.iter().cloned());
    let mut out = Table::builder(table.name(), &columns);
    for r in 0..table.num_rows() {
        let mut row = out.row();
        for (i, by) in by.iter().enumerate() {
            let value = table.text(r, &format!("k{}", i + 1)).unwrap_or("");
            row = match by.day {
                true => row.text(
                    value.parse::<i64>().map_or_else(|_| value.into(), |d| when::date(d * 86_400_000_000)),
                ),
                false => row.text(labels::decoded(value)),
            };
        }
        for column in &rest {
            row = match column.ty {
                ncpu_table::Type::Text => row.text_opt(table.text(r, &column.name)),
                ncpu_table::Type::Int => row.int_opt(table.int(r, &column.name)),
                ncpu_table::Type::Float => row.float_opt(table.number(r, &column.name)),
            };
        }
    }
    Ok(out.finish())
}

fn is_key(name: &str) -> bool {
    name.strip_prefix('k').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The root as an absolute path, for other programs on this machine.
fn absolute(store: &dyn Store) -> Result<String> {
    match store.directory() {
        None => Ok(store.root().into()),
        Some(path) => std::fs::canonicalize(path)
            .map(|p| p.display().to_string())
            .map_err(|e| Error::store(store.root(), "find", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_in_conditions() {
        assert_eq!(
            condition("kernel = 'label:x' AND label:type = 'it''s' OR label:rack-1='7'").unwrap().0,
            "kernel = 'label:x' AND split_part(split_part(labels, ';type=', 2), ';', 1) = 'it''s' OR \
             split_part(split_part(labels, ';rack-1=', 2), ';', 1)='7'"
        );
        assert!(condition("label: = 'x'").is_err() && condition("host = 'x").is_err());
        let names = |list: &[&str]| by(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(names(&["kernel", "label:type", "day"]).is_ok());
        for wrong in ["kernal", "label:", "label:it's", "1"] {
            assert!(names(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn periods_must_be_apart() {
        let p = |text| Period::parse(text).unwrap();
        assert!(Question::of_change(Vec::new(), p("2026-11-10..12"), p("2026-11-12..")).is_err());
        let q = Question::of_change(Vec::new(), p("2026-11-10..12"), p("2026-11-14..")).unwrap();
        assert_eq!(q.all(), Period { from: p("2026-11-10").from, to: i64::MAX });
        assert!(Question::new(Vec::new(), Some("1d"), Some("2d"), None).is_err());
    }
}

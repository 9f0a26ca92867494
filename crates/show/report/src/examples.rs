//! Examples of the rule book's entries: recordings in miniature, written as rows of tables.

use ncpu_record::{Manifest, Recording};
use ncpu_schema::{
    CpuState, IdleReason, Layer, Per, Purpose, SampleClass, cpu_time, idle_time, samples, summary,
};
use ncpu_table::{Column, Table, Type};
use toml::{Table as Row, Value};

use crate::causes::{Cause, Causes, Tables};
use crate::findings::Findings;
use crate::onion::Onion;

/// The most rows that an example may have.
const MOST: i64 = 10_000;

/// Whether an entry's examples bear it out: in each of its layers its example gets its advice, and its look-alike does not.
///
/// # Errors
/// The example or look-alike is missing, or it fails.
pub fn check(cause: &Cause, causes: &Causes) -> Result<(), String> {
    let example = cause.example.as_ref().ok_or("no example")?;
    let look_alike = cause.look_alike.as_ref().ok_or("no look-alike")?;
    for &layer in &cause.layers {
        for (what, tables, wanted) in [("example", example, true), ("look-alike", look_alike, false)] {
            let recording = recording(layer, tables).map_err(|why| format!("{what}: {why}"))?;
            if cause.title.is_some() {
                let found = Findings::with(&recording, causes).map_err(|e| format!("{what}: {e}"))?;
                if found.list.iter().any(|found| found.id == cause.id) != wanted {
                    let ids: Vec<&str> = found.list.iter().map(|found| &*found.id).collect();
                    let ids = if ids.is_empty() { "no cause".into() } else { ids.join(", ") };
                    return Err(format!("{what}: {} shows {ids}", layer.name()));
                }
                continue;
            }
            let onion = Onion::peel_with(&recording, causes).map_err(|e| format!("{what}: {e}"))?;
            let row = onion.rows.iter().find(|row| row.layer == layer);
            let given: Vec<&str> =
                row.map_or(Vec::new(), |row| row.advice.iter().map(|advice| &*advice.id).collect());
            if given.contains(&&*cause.id) != wanted {
                let given = if given.is_empty() { "no advice".into() } else { given.join(", ") };
                return Err(format!("{what}: {} gets {given}", layer.name()));
            }
        }
    }
    Ok(())
}

/// Two CPUs for ten seconds with time in a layer, and the tables of an example in place of those.
fn recording(layer: Layer, tables: &Tables) -> Result<Recording, String> {
    let mut times = cpu_time::Rows::new();
    for cpu in 0..2 {
        let spent = Per::new(|state| {
            Some(match state {
                CpuState::Idle | CpuState::Program => 3.0,
                CpuState::Others | CpuState::Spin | CpuState::Hardirq | CpuState::Softirq => 1.0,
                CpuState::Ncpu | CpuState::Tlb => 0.0,
            })
        });
        let kernel = (layer == Layer::Kernel).then_some(1.0);
        times.push(cpu_time::Row { time: Some(10.0), cpu: Some(cpu), spent, kernel });
    }
    let mut idle = idle_time::Rows::new();
    let any = IdleReason::ALL.iter().any(|&reason| Layer::from(reason) == layer);
    let idles = |reason: IdleReason| match any {
        true => Layer::from(reason) == layer,
        false => reason == IdleReason::Asleep,
    };
    let mut first = true;
    let spent = Per::new(|reason| Some(if idles(reason) && std::mem::take(&mut first) { 6.0 } else { 0.0 }));
    idle.push(idle_time::Row { time: Some(10.0), spent });
    let mut sampled = samples::Rows::new();
    let user = (layer != Layer::User).then_some(SampleClass::User);
    for class in SampleClass::ALL.iter().copied().filter(|&class| Layer::from(class) == layer).chain(user) {
        sampled.push(samples::Row {
            at: Some(CpuState::Program),
            class: Some(class),
            detail: "work".into(),
            process: "program".into(),
            samples: Some(100),
            time: None,
        });
    }
    let mut whole = summary::Rows::new();
    whole.push(summary::Row { elapsed: Some(10.0), cpus: Some(2), ..Default::default() });
    let manifest = Manifest::new(Purpose::Run, 2, vec!["program".into()], 1.0);
    let base = [times.finish(), idle.finish(), sampled.finish(), whole.finish()];
    let recording = base.into_iter().fold(Recording::new(manifest), Recording::with);
    tables.iter().try_fold(recording, |recording, (name, rows)| Ok(recording.with(table(name, rows)?)))
}

/// Rows as a table of the schema.
fn table(name: &str, rows: &[Row]) -> Result<Table, String> {
    let definition = ncpu_schema::definition(name).ok_or_else(|| format!("unknown table `{name}`"))?;
    let columns = (definition.columns)();
    let mut out = definition.builder();
    for row in rows {
        let known = |key: &String| columns.iter().any(|c| c.name == *key) || key == "copies" || key == "step";
        if let Some(key) = row.keys().find(|key| !known(key)) {
            let all: Vec<&str> = columns.iter().map(|c| &*c.name).collect();
            return Err(format!("unknown column `{key}` of `{name}`; expected one of: {}", all.join(", ")));
        }
        let copies = row.get("copies").and_then(Value::as_integer).unwrap_or(1);
        if !(1..=MOST).contains(&copies) {
            return Err(format!("copies = {copies}; expected 1 to {MOST}"));
        }
        let step = row.get("step").and_then(Value::as_array);
        let steps = |c: &Column| step.is_some_and(|step| step.iter().any(|s| s.as_str() == Some(&*c.name)));
        for copy in 0..copies {
            let mut cells = out.row();
            for column in &columns {
                let added = if steps(column) { copy } else { 0 };
                let value = row.get(&column.name);
                let wrong = || format!("`{}` of `{name}` has another type", column.name);
                cells = match (column.ty, value) {
                    (Type::Float, None) if column.name == "t" => cells.float(10.0),
                    (_, None) => cells.null(),
                    (Type::Text, Some(value)) => cells.text(value.as_str().ok_or_else(wrong)?),
                    (Type::Int, Some(value)) => {
                        let n = value.as_integer().and_then(|n| u64::try_from(n.checked_add(added)?).ok());
                        cells.int(n.ok_or_else(wrong)?)
                    }
                    (Type::Float, Some(value)) => {
                        let x = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
                        cells.float(x.ok_or_else(wrong)?)
                    }
                };
            }
        }
    }
    Ok(out.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_gets_its_advice_and_no_look_alike_does() {
        let causes = Causes::default();
        let failed: Vec<String> = causes
            .list()
            .iter()
            .filter_map(|cause| Some(format!("{}: {}", cause.id, check(cause, &causes).err()?)))
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

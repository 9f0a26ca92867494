//! The onion of some CPUs only.

use ncpu_machine::CpuSet;
use ncpu_record::Recording;
use ncpu_schema::{CpuState, Error, IdleReason, cpu_time, idle_time, summary};
use ncpu_table::{Table, Type};

/// The part of an observation on some CPUs, those a program is bound to, so that its capacity is theirs alone. The
/// reasons are not known by CPU: the idle time of the other CPUs is subtracted from the reasons, lowest
/// [`IdleReason::bearing`] first.
///
/// # Errors
/// A table is not what the schema says.
pub fn within(recording: &Recording, cpus: &CpuSet) -> Result<Recording, Error> {
    let mut out = recording.clone();
    let Some(whole) = recording.tables.get(cpu_time::NAME) else { return Ok(out) };
    let all = cpu_time::Reader::need(recording)?;
    let inside =
        |r: usize| all.cpu.get(r).is_some_and(|cpu| u32::try_from(cpu).is_ok_and(|cpu| cpus.contains(cpu)));
    let kept = rows(whole, inside, |_, x| x);
    let part = kept.num_rows() as f64 / all.len().max(1) as f64;
    if let Some(why) = idle_time::Reader::open(recording)? {
        let of_reasons: f64 = IdleReason::ALL.into_iter().map(|r| why.spent.sum(r)).sum();
        let idle = |of: &cpu_time::Reader<'_>| of.spent.sum(CpuState::Idle);
        // The leader's ticks and the CPUs' own clocks differ a little.
        let of_kept = idle(&cpu_time::Reader::of(&kept)?) / idle(&all).max(f64::MIN_POSITIVE);
        let mut others = of_reasons * (1.0 - of_kept);
        let mut keep = Vec::new();
        for reason in IdleReason::by_bearing() {
            let has = why.spent.sum(reason);
            let taken = others.min(has).max(0.0);
            others -= taken;
            keep.push((reason.name(), if has > 0.0 { 1.0 - taken / has } else { 1.0 }));
        }
        let of =
            |column: &str, x: f64| x * keep.iter().find(|(name, _)| *name == column).map_or(1.0, |k| k.1);
        if let Some(why) = recording.tables.get(idle_time::NAME) {
            out = out.with(rows(why, |_| true, of));
        }
    }
    if let Some(summary) = recording.tables.get(summary::NAME) {
        // Steal is known of the whole machine only.
        let of = |column: &str, x: f64| if column == summary::col::steal { x * part } else { x };
        out = out.with(rows(summary, |_| true, of));
    }
    Ok(out.with(kept))
}

/// The part of an observation between two moments: the rows of tables over time that lie in it, with times from its
/// beginning on. Tables of the whole observation are left out, but for its summary. Rows of the `last` part may lie
/// past its end: tables that were too large have coarser times.
///
/// # Errors
/// A table is not what the schema says.
pub fn during(recording: &Recording, from: f64, to: f64, last: bool) -> Result<Recording, Error> {
    let mut out = Recording { tables: Default::default(), ..recording.clone() };
    out.manifest.notes.clear();
    out.notes.clear();
    let is_in = |t: f64| t > from + 1e-9 && (last || t <= to + 1e-9);
    for table in recording.tables.values() {
        if table.index(TIME).is_ok() {
            let part = rows(
                table,
                |r| table.number(r, TIME).is_some_and(is_in),
                |column, x| if column == TIME { x - from } else { x },
            );
            out = out.with(part);
        }
    }
    if let Some(whole) = recording.tables.get(summary::NAME) {
        let elapsed = summary::Reader::need(recording)?.elapsed.get(0).unwrap_or(to);
        let part = (to - from) / elapsed.max(f64::MIN_POSITIVE);
        let of = |column: &str, x: f64| match column {
            summary::col::elapsed => to - from,
            summary::col::steal | summary::col::iowait => x * part,
            _ => x,
        };
        // The command's own accounts are of the whole.
        let mut table = Table::builder(whole.name(), whole.columns());
        let gone = [summary::col::user, summary::col::system, summary::col::status];
        let mut row = table.row();
        for c in whole.columns() {
            let gone = gone.contains(&c.name.as_str());
            row = match c.ty {
                Type::Text => row.text_opt(whole.text(0, &c.name)),
                Type::Int => row.int_opt(whole.int(0, &c.name).filter(|_| !gone)),
                Type::Float => {
                    row.float_opt(whole.number(0, &c.name).filter(|_| !gone).map(|x| of(&c.name, x)))
                }
            };
        }
        let _ = row;
        out = out.with(table.finish());
    }
    Ok(out)
}

/// The column of times.
const TIME: &str = "t";

/// The rows that `keep` chooses, with numbers changed by `of`.
fn rows(table: &Table, keep: impl Fn(usize) -> bool, of: impl Fn(&str, f64) -> f64) -> Table {
    let mut out = Table::builder(table.name(), table.columns());
    for r in (0..table.num_rows()).filter(|&r| keep(r)) {
        let mut row = out.row();
        for c in table.columns() {
            row = match c.ty {
                Type::Text => row.text_opt(table.text(r, &c.name)),
                Type::Int => row.int_opt(table.int(r, &c.name)),
                Type::Float => row.float_opt(table.number(r, &c.name).map(|x| of(&c.name, x))),
            };
        }
    }
    out.finish()
}

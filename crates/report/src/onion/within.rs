//! The onion of some CPUs only.

use ncpu_machine::CpuSet;
use ncpu_record::Recording;
use ncpu_table::{Table, Type};

use super::sum;

/// Reasons for idling, the least telling of bound CPUs first: what others idle for, a thread that waits for a CPU it
/// may not use among it, is taken from these in turn.
const REASONS: [&str; 6] = ["asleep", "serial", "runq", "io", "ulock", "klock"];

/// What an observation of a program bound to `cpus` tells of those alone, so that its capacity is theirs. Which CPU
/// idled for what is not known: the idle time of the others is taken from the reasons that bear least on the program.
pub fn within(recording: &Recording, cpus: &CpuSet) -> Recording {
    let mut out = Recording {
        manifest: recording.manifest.clone(),
        tables: recording.tables.clone(),
        recovered: recording.recovered.clone(),
        notes: recording.notes.clone(),
    };
    let Some(cpu_time) = recording.tables.get("cpu_time") else { return out };
    let inside = |r: usize| {
        cpu_time.int(r, "CPU").is_some_and(|cpu| u32::try_from(cpu).is_ok_and(|cpu| cpus.contains(cpu)))
    };
    let kept = rows(cpu_time, inside, |_, x| x);
    let part = kept.num_rows() as f64 / cpu_time.num_rows().max(1) as f64;
    if let Some(why) = recording.tables.get("idle_time") {
        let told: f64 = REASONS.iter().map(|c| sum(why, c)).sum();
        // The leader's ticks and the CPUs' own clocks differ a little.
        let mut others = told * (1.0 - sum(&kept, "idle") / sum(cpu_time, "idle").max(f64::MIN_POSITIVE));
        let mut keep = [1.0; 6];
        for (keep, column) in keep.iter_mut().zip(REASONS) {
            let has = sum(why, column);
            let taken = others.min(has).max(0.0);
            others -= taken;
            *keep = if has > 0.0 { 1.0 - taken / has } else { 1.0 };
        }
        let of = |column: &str, x: f64| match REASONS.iter().position(|c| *c == column) {
            Some(i) => x * keep[i],
            None => x,
        };
        out.tables.insert("idle_time".into(), rows(why, |_| true, of));
    }
    if let Some(summary) = recording.tables.get("summary") {
        // Steal is known of the whole machine only.
        let of = |column: &str, x: f64| if column == "steal" { x * part } else { x };
        out.tables.insert("summary".into(), rows(summary, |_| true, of));
    }
    out.tables.insert("cpu_time".into(), kept);
    out
}

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

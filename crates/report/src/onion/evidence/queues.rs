//! Behind whom the program's threads stood on run queues, and why.

use ncpu_machine::CpuSet;
use ncpu_schema::queued::{self, col};
use ncpu_schema::{CpuState, bound, cpu_time};

use super::Context;
use super::threads::length;

/// Other programs behind which the program's threads stood, by name and by what gave them the right to go first.
struct Ahead {
    process: String,
    seconds: f64,
    cause: Option<String>,
    remedy: Option<String>,
}

/// Those with most time first.
fn ahead(context: &Context<'_>) -> Vec<Ahead> {
    let keys = [col::at, col::process, col::cause, col::remedy];
    let Some(t) = context.ranked(queued::NAME, &keys, col::seconds) else { return Vec::new() };
    let row = |r: usize| {
        (t.text(r, col::at) == Some(CpuState::Others.name())).then_some(())?;
        let text = |column| t.text(r, column).filter(|s| !s.is_empty()).map(str::to_string);
        Some(Ahead {
            process: text(col::process).unwrap_or_else(|| "[others]".into()),
            seconds: t.number(r, col::seconds)?,
            cause: text(col::cause),
            remedy: text(col::remedy),
        })
    };
    (0..t.num_rows()).filter_map(row).collect()
}

/// How long threads stood behind other programs, behind which, and why those went first.
pub(super) fn behind(context: &Context<'_>) -> Vec<String> {
    let all = ahead(context);
    let total: f64 = all.iter().map(|a| a.seconds).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    let mut by_name: Vec<(&str, f64)> = Vec::new();
    for a in &all {
        match by_name.iter_mut().find(|(name, _)| *name == a.process) {
            Some((_, sum)) => *sum += a.seconds,
            None => by_name.push((&a.process, a.seconds)),
        }
    }
    by_name.sort_by(|a, b| b.1.total_cmp(&a.1));
    let names: Vec<String> =
        by_name.iter().take(3).map(|(name, s)| format!("{name} {}", length(*s))).collect();
    let mut out = vec![format!(
        "the program's threads stood {} on run queues behind them: {}",
        length(total),
        names.join(", ")
    )];
    let why = |a: &Ahead| a.cause.as_ref().map(|cause| format!("{} goes first: {cause}", a.process));
    out.extend(all.iter().filter(|a| a.seconds >= 0.05 * total).filter_map(why).take(2));
    out
}

/// The CPUs that the program may use, where it may not use all and others idled meanwhile; and what says so.
pub(in crate::onion) struct Bound {
    pub cpus: String,
    pub by: String,
    /// CPU-seconds that the others idled.
    pub idle: f64,
}

impl Bound {
    pub fn told(&self) -> String {
        format!(
            "the program may use CPUs {} only ({}); the others idled {} meanwhile",
            self.cpus,
            self.by,
            length(self.idle)
        )
    }
}

/// Where that is a twentieth of capacity.
pub(in crate::onion) fn bound(context: &Context<'_>) -> Option<Bound> {
    let t = bound::Reader::open(context.recording).ok()??;
    // The last is what it ended with.
    let last = t.rows().last()?;
    let (cpus, by) = (t.cpus.get(last)?.to_string(), t.by.get(last)?.to_string());
    let allowed = CpuSet::parse_list(&cpus).ok()?;
    let time = cpu_time::Reader::open(context.recording).ok()??;
    let outside = |r: &usize| {
        time.cpu.get(*r).is_some_and(|cpu| !u32::try_from(cpu).is_ok_and(|cpu| allowed.contains(cpu)))
    };
    let idle: f64 = time.rows().filter(outside).filter_map(|r| time.spent.get(r, CpuState::Idle)).sum();
    (idle >= 0.05 * context.capacity).then_some(Bound { cpus, by, idle })
}

/// What helps against standing behind other programs, where that is a twentieth of the observation or more.
pub(in crate::onion) fn way_past(context: &Context<'_>) -> Option<String> {
    let all = ahead(context);
    let total: f64 = all.iter().map(|a| a.seconds).sum();
    if total < 0.05 * context.elapsed {
        return None;
    }
    if let Some(bound) = bound(context) {
        return Some(match bound.by.as_str() {
            "affinity" => format!("let the program use more CPUs than {} (taskset)", bound.cpus),
            file => format!("let the program use more CPUs than {}: {file} allows no others", bound.cpus),
        });
    }
    let with = all.iter().find(|a| a.remedy.is_some() && a.seconds >= 0.25 * total);
    Some(match with.and_then(|a| Some((a, a.remedy.as_ref()?))) {
        Some((a, remedy)) => format!("{} need not go first: {remedy}", a.process),
        None => "these have the same right to the CPUs: give the program CPUs of its own (a cpuset), more weight than theirs, or run them at another time".into(),
    })
}

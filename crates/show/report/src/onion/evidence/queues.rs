//! Behind whom the program's threads stood on run queues, and why.

use std::collections::HashMap;
use std::fmt;

use ncpu_machine::CpuSet;
use ncpu_schema::queued::{self, col};
use ncpu_schema::{Counter, CpuState, bound, cpu_time};

use super::kinds::{Behind, Bound, CpuSeconds, Evidence, GoesFirst, Length, Seconds};
use super::threads::length;
use super::{Context, counter};
use crate::causes::When;
use crate::onion::case::Case;

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
pub(super) fn behind(context: &Context<'_>) -> Vec<Evidence> {
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
    let length = |&(name, s): &(&str, f64)| Length { name: name.into(), seconds: Seconds(s) };
    let programs = by_name.iter().take(3).map(length).collect();
    let mut out = vec![Evidence::from(Behind { stood: Seconds(total), programs })];
    let why = |a: &Ahead| Some(GoesFirst { process: a.process.clone(), cause: a.cause.clone()? }.into());
    out.extend(all.iter().filter(|a| a.seconds >= 0.05 * total).filter_map(why).take(2));
    out
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs: Vec<String> =
            self.programs.iter().map(|p| format!("{} {}", p.name, length(p.seconds.0))).collect();
        let stood = length(self.stood.0);
        write!(f, "the program's threads stood {stood} on run queues behind them: {}", programs.join(", "))
    }
}

impl fmt::Display for GoesFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} goes first: {}", self.process, self.cause)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound_threads {
            None => f.write_str("the program")?,
            Some(1) => write!(f, "1 thread of {}", self.process)?,
            Some(n) => write!(f, "{n} threads of {}", self.process)?,
        }
        write!(f, " may use CPUs {} only ({})", self.cpus, self.bound_by)?;
        if let Some(stood) = self.stood {
            write!(f, " and stood {} on run queues", length(stood.0))?;
        }
        write!(f, "; the other CPUs idled {} meanwhile", length(self.idle.0))
    }
}

impl Bound {
    /// These threads, for the rule book.
    pub(in crate::onion) fn case(self) -> Case {
        match self.bound_by.as_str() {
            "affinity" => Case::new(When::BoundAffinity).of(self.process).with("cpus", self.cpus),
            _ => {
                let case = Case::new(When::BoundCpuset).of(self.process).with("cpus", self.cpus);
                case.with("file", self.bound_by)
            }
        }
    }
}

/// Threads that may use some CPUs only: those that stood on run queues longest.
pub(crate) fn confined(context: &Context<'_>) -> Option<Bound> {
    let t = bound::Reader::open(context.recording).ok()??;
    let mut all: Vec<Bound> = Vec::new();
    let mut counted: HashMap<(u64, &str), u64> = HashMap::new();
    for row in t.rows() {
        let (Some(cpus), Some(by)) = (t.cpus.get(row), t.by.get(row)) else { continue };
        let process = t.process.get(row).unwrap_or("[gone]");
        // Of each process the most that there were at once, and all processes of a name.
        let threads = t.threads.get(row).map(|threads| {
            let known = counted.entry((t.pid.get(row).unwrap_or(0), cpus)).or_default();
            let more = threads.saturating_sub(*known);
            *known += more;
            more
        });
        let stood = t.queued.get(row).map(Seconds);
        match all.iter_mut().find(|b| b.cpus == cpus && b.bound_by == by && b.process == process) {
            Some(b) => {
                b.bound_threads = b.bound_threads.zip(threads).map(|(a, b)| a + b).or(b.bound_threads);
                b.stood = b.stood.zip(stood).map(|(a, b)| Seconds(a.0 + b.0));
            }
            None => all.push(Bound {
                process: process.into(),
                cpus: cpus.into(),
                bound_by: by.into(),
                bound_threads: threads,
                stood,
                idle: CpuSeconds(0.0),
            }),
        }
    }
    // Older recordings do not hold how long threads stood: the last mask counts.
    let stood = |b: &Bound| b.stood.map_or(0.0, |s| s.0);
    let mut top = all.into_iter().max_by(|a, b| stood(a).total_cmp(&stood(b)))?;
    let allowed = CpuSet::parse_list(&top.cpus).ok()?;
    let time = cpu_time::Reader::open(context.recording).ok()??;
    let outside = |r: &usize| {
        time.cpu.get(*r).is_some_and(|cpu| !u32::try_from(cpu).is_ok_and(|cpu| allowed.contains(cpu)))
    };
    let idle: f64 = time.rows().filter(outside).filter_map(|r| time.spent.get(r, CpuState::Idle)).sum();
    top.idle = CpuSeconds(idle);
    Some(top)
}

/// [`confined`], where the CPUs that they may not use idled a twentieth of capacity.
pub(in crate::onion) fn bound(context: &Context<'_>) -> Option<Bound> {
    confined(context).filter(|bound| bound.idle.0 >= 0.05 * context.capacity)
}

/// [`bound`], where that is why threads stood on run queues: most of the time that they did.
pub(crate) fn bound_queues(context: &Context<'_>) -> Option<Bound> {
    let stood = counter(context, Counter::RunQueueMicroseconds) / 1e6;
    bound(context).filter(|b| b.stood.is_none_or(|s| s.0 >= 0.5 * stood))
}

/// Why threads stood behind other programs, where that is a twentieth of the observation or more.
pub(in crate::onion) fn way_past(context: &Context<'_>) -> Option<Case> {
    let all = ahead(context);
    let total: f64 = all.iter().map(|a| a.seconds).sum();
    if total < 0.05 * context.elapsed {
        return None;
    }
    if let Some(bound) = bound_queues(context) {
        return Some(bound.case());
    }
    let first =
        all.into_iter().filter(|a| a.seconds >= 0.25 * total).find_map(|a| Some((a.process, a.remedy?)));
    Some(match first {
        Some((process, remedy)) => {
            Case::new(When::GoesFirst).of(process.clone()).with("process", process).with("remedy", remedy)
        }
        None => Case::new(When::SameRight),
    })
}

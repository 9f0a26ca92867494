//! Threads: where they sleep, how often, which is busiest, and which are short.

use std::collections::{HashMap, HashSet};
use std::fmt;

use ncpu_schema::sleepers::{self, col};
use ncpu_schema::{Counter, sleeps, threads};

use super::kinds::{Asleep, BusiestThread, Part, PerSecond, Seconds, Share, Sleeper};
use super::{Context, counter, listed};

/// Where the program's threads slept, by system call.
pub(super) fn sleeping(context: &Context<'_>) -> Option<Asleep> {
    let ranked = context.ranked(sleeps::NAME, &[sleeps::col::call], sleeps::col::seconds)?;
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, sleeps::col::seconds)).sum();
    let calls: Vec<_> = (0..ranked.num_rows().min(3))
        .filter_map(|r| {
            Some(Part {
                name: ranked.text(r, sleeps::col::call)?.to_string(),
                share: Share(ranked.number(r, sleeps::col::seconds)? / total),
            })
        })
        .collect();
    (!calls.is_empty()).then_some(Asleep { calls })
}

impl fmt::Display for Asleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "threads asleep in {}", listed(&self.calls))
    }
}

/// Processes that sleep often, by call, with the number and length of their sleeps: each sleep is two
/// switches and an interrupt.
pub(super) fn sleepers(context: &Context<'_>) -> Vec<Sleeper> {
    let (Some(ranked), Some(each)) = (
        context.ranked(sleepers::NAME, &[col::call, col::process], col::count),
        context.ranked(sleepers::NAME, &[col::call, col::process, col::pid], col::count),
    ) else {
        return Vec::new();
    };
    // The most of an interval of each process, together.
    let threads_of = |call: &str, process: &str| -> u64 {
        let of =
            |&r: &usize| each.text(r, col::call) == Some(call) && each.text(r, col::process) == Some(process);
        super::total((0..each.num_rows()).filter(of).filter_map(|r| each.int(r, col::threads)))
    };
    let per_second = |n: f64| n / context.elapsed.max(f64::MIN_POSITIVE);
    (0..ranked.num_rows())
        .filter_map(|r| {
            let (call, process) = (ranked.text(r, col::call)?, ranked.text(r, col::process)?);
            let (count, asked) = (ranked.number(r, col::count)?, ranked.number(r, col::asked)?);
            let (slept, threads) = (ranked.number(r, col::slept)?, threads_of(call, process).max(1));
            // Fewer than one a second do not matter.
            (per_second(count) >= 1.0).then(|| Sleeper {
                process: process.into(),
                call: call.into(),
                threads,
                per_second: PerSecond(per_second(count)),
                asked: Seconds(asked / count),
                slept: Seconds(slept / count),
            })
        })
        .take(2)
        .collect()
}

impl fmt::Display for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sleeper { process, call, threads, per_second, asked, slept } = self;
        write!(
            f,
            "{threads} thread{} of {process} asleep in {call}: {:.0} sleeps/s, {} asked for, {} slept on average",
            if *threads == 1 { "" } else { "s" },
            per_second.0,
            length(asked.0),
            length(slept.0)
        )
    }
}

/// A time with the unit that suits it.
pub(crate) fn length(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

/// The call that most sleeps with a timeout are in, with the process and its part of all switches.
pub(in crate::onion) fn top_sleeper(context: &Context<'_>) -> Option<(String, String, f64)> {
    let ranked = context.ranked(sleepers::NAME, &[col::call, col::process], col::count)?;
    let switches = counter(context, Counter::Switches);
    if ranked.num_rows() == 0 || switches <= 0.0 {
        return None;
    }
    // A sleep is a switch away and one back.
    let share = 2.0 * ranked.number(0, col::count)? / switches;
    Some((ranked.text(0, col::call)?.into(), ranked.text(0, col::process)?.into(), share))
}

/// Processes that a name stands for which ran alone, where those are many short ones.
pub(in crate::onion) fn short_processes(context: &Context<'_>, name: &str) -> Option<usize> {
    const FEW: usize = 5;
    const SHORT: f64 = 0.25;
    let table = context.table(threads::NAME)?;
    let mut lived: HashMap<u64, f64> = HashMap::new();
    for row in (0..table.num_rows()).filter(|&r| table.text(r, threads::col::thread) == Some(name)) {
        *lived.entry(table.int(row, threads::col::pid)?).or_default() += crate::threads::lived(table, row);
    }
    let short = lived.values().filter(|&&time| time < SHORT * context.elapsed).count();
    (short >= FEW && 10 * short >= 9 * lived.len()).then_some(short)
}

/// Whether most of what began and ended are threads of processes that went on.
pub(in crate::onion) fn threads_begin(context: &Context<'_>) -> bool {
    const MANY: f64 = 10.0;
    let Some(table) = context.table(threads::NAME) else { return false };
    let mut of: HashMap<u64, HashSet<u64>> = HashMap::new();
    for row in 0..table.num_rows() {
        if let (Some(pid), Some(tid)) = (table.int(row, threads::col::pid), table.int(row, threads::col::tid))
        {
            of.entry(pid).or_default().insert(tid);
        }
    }
    let more: usize = of.values().map(|threads| threads.len() - 1).sum();
    // A pool has no more threads than work at once.
    more > of.len() && more as f64 >= MANY * context.elapsed.max(1.0)
}

/// The thread that was on CPU longest.
pub(super) fn busiest(context: &Context<'_>) -> Option<BusiestThread> {
    let grouped = context
        .table(threads::NAME)?
        .group_by(&[threads::col::tid, threads::col::process, threads::col::thread])
        .ok()?;
    let busy = crate::threads::on_cpu;
    let top = (0..grouped.num_rows()).max_by(|&a, &b| busy(&grouped, a).total_cmp(&busy(&grouped, b)))?;
    let share = busy(&grouped, top) / context.elapsed.max(f64::MIN_POSITIVE);
    let thread = grouped.text(top, threads::col::thread)?.to_string();
    Some(BusiestThread { thread, tid: grouped.int(top, threads::col::tid)?, share: Share(share) })
}

impl fmt::Display for BusiestThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BusiestThread { thread, tid, share } = self;
        write!(f, "busiest thread {thread}/{tid}, on CPU {:.0} % of the time", share.percent())
    }
}

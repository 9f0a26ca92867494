//! Evidence from processors: shootdowns of each other's TLBs, and their counters.

use std::fmt;

use ncpu_schema::{Counter, CpuState, Layer, SampleClass};

use super::kinds::{
    CpuSeconds, Evidence, Instructions, PerSecond, Share, ShootdownSenders, ShootdownTime, Shootdowns,
};
use super::{By, Context, count, counter, listed, of_layer, spent};

/// How many shootdowns, their cost at both ends, and who sends them for what.
pub(super) fn shootdowns(context: &Context<'_>) -> Vec<Evidence> {
    let per_second = |n: f64| PerSecond(n / context.elapsed.max(f64::MIN_POSITIVE));
    let (sent, received) =
        (counter(context, Counter::ShootdownsSent), counter(context, Counter::ShootdownsReceived));
    let mut out = vec![Evidence::from(Shootdowns {
        sent: per_second(sent),
        received: per_second(received),
        answered: received / sent.max(1.0),
    })];
    let all = count(context, CpuState::Program, |_| true);
    let seconds = |n: u64| CpuSeconds(spent(context, CpuState::Program) * n as f64 / all.max(1) as f64);
    let waiting = count(context, CpuState::Program, |c| c == SampleClass::TlbWait);
    let flushing = count(context, CpuState::Program, |c| c == SampleClass::Tlb);
    let time = ShootdownTime {
        waiting: seconds(waiting),
        flushing: seconds(flushing),
        answering: CpuSeconds(spent(context, CpuState::Tlb)),
    };
    out.push(time.into());
    let processes = of_layer(context, Layer::Tlb, By::Process, 3);
    let calls = of_layer(context, Layer::Tlb, By::Detail, 3);
    if !processes.is_empty() {
        out.push(ShootdownSenders { processes, calls }.into());
    }
    out
}

impl fmt::Display for Shootdowns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, received, answered) = (self.sent.0, self.received.0, self.answered);
        write!(f, "{sent:.0}/s sent, {received:.0}/s received: {answered:.1} CPUs answered each on average")
    }
}

impl fmt::Display for ShootdownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "senders sending and waiting {:.3} CPU-s, the rest of their flushes {:.3} (both sampled); receivers answering {:.3}",
            self.waiting.0, self.flushing.0, self.answering.0
        )
    }
}

impl fmt::Display for ShootdownSenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent by {}; for {}", listed(&self.processes), listed(&self.calls))
    }
}

/// From this number of misses in 1000 instructions on it is worth looking for the lines that move.
const LINES_MOVE: f64 = 2.0;

/// Use of cycles by user code, if the machine has counters for that.
pub(super) fn hardware(context: &Context<'_>) -> Option<Instructions> {
    let t = context.table("counters")?;
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let mut rows = (0..t.num_rows()).filter(|&r| t.text(r, "event").is_some_and(wanted)).peekable();
        rows.peek()?;
        // A sum is known only if all its events were counted.
        rows.map(|r| t.number(r, "count")).sum::<Option<f64>>()
    };
    let cycles = sum(&|e| e == "cycles:u").filter(|n| *n > 0.0)?;
    let instructions = sum(&|e| e == "instructions:u").filter(|n| *n > 0.0)?;
    Some(Instructions {
        per_cycle: instructions / cycles,
        misses: sum(&|e| e == "LLC-load-misses:u").map(|misses| 1000.0 * misses / instructions),
        page_walks: sum(&|e| e.contains("_misses.walk_")).map(|walks| Share(walks / cycles)),
    })
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user code of all programs: {:.2} instructions a cycle", self.per_cycle)?;
        if let Some(misses) = self.misses {
            write!(f, ", {misses:.2} cache misses to memory in 1000 of them")?;
            if misses >= LINES_MOVE {
                f.write_str(" (`ncpu lines -- CMD` samples which lines move between CPUs)")?;
            }
        }
        self.page_walks
            .map_or(Ok(()), |walks| write!(f, ", {:.1} % of cycles in page walks", walks.percent()))
    }
}

//! What processors tell: shootdowns of each other's TLBs, and their counters.

use ncpu_schema::{Counter, CpuState, Layer, SampleClass};

use super::{By, Context, count, counter, listed, of_layer, spent};

/// How many shootdowns, their cost at both ends, and who sends them for what.
pub(super) fn shootdowns(context: &Context<'_>) -> Vec<String> {
    let per_second = |n: f64| format!("{:.0}/s", n / context.elapsed.max(f64::MIN_POSITIVE));
    let (sent, received) =
        (counter(context, Counter::ShootdownsSent), counter(context, Counter::ShootdownsReceived));
    let mut out = vec![format!(
        "{} sent, {} received: {:.1} CPUs answered each on average",
        per_second(sent),
        per_second(received),
        received / sent.max(1.0)
    )];
    let all = count(context, CpuState::Program, |_| true);
    let seconds = |n: u64| spent(context, CpuState::Program) * n as f64 / all.max(1) as f64;
    let waiting = count(context, CpuState::Program, |c| c == SampleClass::TlbWait);
    let flushing = count(context, CpuState::Program, |c| c == SampleClass::Tlb);
    out.push(format!(
        "senders sending and waiting {:.3} CPU-s, the rest of their flushes {:.3} (both sampled); receivers answering {:.3}",
        seconds(waiting),
        seconds(flushing),
        spent(context, CpuState::Tlb)
    ));
    let who = of_layer(context, Layer::Tlb, By::Process, 3);
    let what = of_layer(context, Layer::Tlb, By::Detail, 3);
    if !who.is_empty() {
        out.push(format!("sent by {}; for {}", listed(&who), listed(&what)));
    }
    out
}

/// From so many misses in 1000 instructions on it is worth asking whose lines they are.
const LINES_MOVE: f64 = 2.0;

/// What user code does with the cycles it gets, where the machine has counters for that.
pub(super) fn hardware(context: &Context<'_>) -> Option<String> {
    let t = context.table("counters")?;
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let mut rows = (0..t.num_rows()).filter(|&r| t.text(r, "event").is_some_and(wanted)).peekable();
        rows.peek()?;
        // What was not counted everywhere is not known.
        rows.map(|r| t.number(r, "count")).sum::<Option<f64>>()
    };
    let cycles = sum(&|e| e == "cycles:u").filter(|n| *n > 0.0)?;
    let instructions = sum(&|e| e == "instructions:u").filter(|n| *n > 0.0)?;
    let mut said = format!("user code of all programs: {:.2} instructions a cycle", instructions / cycles);
    if let Some(misses) = sum(&|e| e == "LLC-load-misses:u") {
        let rate = 1000.0 * misses / instructions;
        said += &format!(", {rate:.2} cache misses to memory in 1000 of them");
        if rate >= LINES_MOVE {
            said += " (`ncpu lines -- CMD` samples which lines move between CPUs)";
        }
    }
    if let Some(walks) = sum(&|e| e.contains("_misses.walk_")) {
        said += &format!(", {:.1} % of cycles in page walks", 100.0 * walks / cycles);
    }
    Some(said)
}

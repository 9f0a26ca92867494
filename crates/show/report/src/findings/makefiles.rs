//! Shells that make runs for `$(shell …)`: of variables that are expanded again at each use.

use std::collections::BTreeMap;

use super::claim::Claim;
use super::view::View;
use crate::causes::When;

/// The function of GNU Make that runs a shell and reads its output.
const SHELL: &str = "func_shell_base";

/// The part of the observation for which make waits for such output from which it is a cause.
const LEAST: f64 = 0.2;

/// The part of a claim for short processes that `$(shell …)` has: the part of make's waits that are for output of such shells.
pub(super) fn shells(view: &View<'_>, processes: &Claim) -> Option<Claim> {
    // By process: the waits for output of shells, and all.
    let mut of: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for s in view.slept.iter().filter(|s| s.wait != "run queue") {
        let (output, all) = of.entry(s.process).or_default();
        *output += if s.user.contains(&SHELL) { s.seconds } else { 0.0 };
        *all += s.seconds;
    }
    let (process, (output, all)) = of.into_iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    if output < LEAST * view.elapsed() {
        return None;
    }
    let part = (output / all).min(1.0);
    let waits = format!("{:.0} %", 100.0 * output / view.elapsed());
    let mut claim = Claim::new(processes.kind, [When::ShellsOfMake], process)
        .with("process", process)
        .with("waits", waits);
    claim.key = format!("shells of make {process}");
    claim.asks = processes.asks.clone();
    claim.asks.iter_mut().for_each(|ask| ask.seconds *= part);
    claim.lines.clone_from(&processes.lines);
    Some(claim)
}

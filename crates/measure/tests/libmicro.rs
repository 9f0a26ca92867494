//! Every standard invocation of libMicro runs, without an error.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ncpu_measure::{Failure, Plan, cases, runner, suite};

#[test]
fn every_invocation_runs_and_nothing_fails() {
    let machine = ncpu_machine::Topology::read("/".as_ref()).unwrap();
    let files = suite::Files::default();
    let quick =
        Plan { min_samples: 2, duration: Duration::from_millis(4), precision: 1.0, ..Plan::default() };
    let mut wrong = Vec::new();
    for invocation in suite::libmicro() {
        let case = cases::find(invocation.case).unwrap_or_else(|| panic!("no case {}", invocation.case));
        // Small batches: what is tested is that they go well. Those of hundreds of processes stay few.
        let (mut plan, own) = invocation.resolve(&quick, &files).unwrap();
        plan.processes = plan.processes.min(20);
        plan.threads = plan.threads.min(50);
        plan.batch = match plan.batch {
            None if plan.processes * plan.threads > 1 => Some(2),
            batch => batch.map(|n| n.min(20)),
        };
        match runner::run(case, &own, &plan, &machine, &AtomicBool::new(false)) {
            Ok(o) if o.errors() == 0 && o.samples.iter().all(|s| s.nanos >= 0.0) && !o.samples.is_empty() => {
            }
            Ok(o) => wrong.push(format!("{}: {} errors, {:?}", invocation.name, o.errors(), o.summary())),
            // Not a fault of the case: no terminal, say.
            Err(Failure::Lacks(why)) => eprintln!("{}: {why}", invocation.name),
            Err(e) => wrong.push(format!("{}: {e}", invocation.name)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

//! Real processes and threads, with cases whose figures are known.

use super::*;
use crate::case::{Alone, Batch, each};
use crate::shared::Shared;
use std::sync::atomic::AtomicU64;

fn machine() -> Topology {
    Topology::read("/".as_ref()).unwrap()
}

fn quick() -> Plan {
    Plan { min_samples: 5, duration: Duration::from_millis(50), ..Plan::default() }
}

fn case(setup: fn(&Options) -> Result<Box<dyn Bench>, Failure>) -> Case {
    Case { name: "test", about: "a test", flags: &[], setup }
}

/// One run at a time: each disturbs the others, and forks best while nobody else holds a lock.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn go(case: &Case, plan: &Plan) -> Result<Outcome, Failure> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    run(case, &[], plan, &machine(), &AtomicBool::new(false))
}

/// Counts what it was asked to do.
struct Counter {
    done: Shared<AtomicU64>,
    batches: Shared<AtomicU64>,
}

struct Count<'a>(&'a Counter, u64);

impl Batch for Count<'_> {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        self.1 = n;
        Ok(())
    }
    fn run(&mut self, n: u64) -> u64 {
        assert_eq!(n, self.1);
        self.0.done.fetch_add(n, Relaxed);
        1
    }
    fn after(&mut self, n: u64) {
        assert_eq!(n, self.1);
        self.0.batches.fetch_add(1, Relaxed);
    }
}

impl Bench for Counter {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Count(self, 0)))
    }
    fn batch(&self) -> Option<u64> {
        Some(7)
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![("done", self.done.load(Relaxed) as f64), ("batches", self.batches.load(Relaxed) as f64)]
    }
}

fn counter(_: &Options) -> Result<Box<dyn Bench>, Failure> {
    Ok(Box::new(Counter { done: Shared::new(AtomicU64::new(0))?, batches: Shared::new(AtomicU64::new(0))? }))
}

#[test]
fn every_worker_of_every_process_does_every_batch() {
    let plan = Plan { processes: 2, threads: 3, ..quick() };
    let o = go(&case(counter), &plan).unwrap();
    let figure = |name: &str| o.figures.iter().find(|(n, _)| n == name).map(|(_, x)| *x).unwrap();
    assert_eq!(o.batch, 7);
    assert_eq!(figure("done"), 7.0 * figure("batches"));
    assert_eq!(figure("batches") as u64 % 6, 0, "6 workers");
    assert!(figure("batches") as usize / 6 >= o.samples.len() && o.samples.len() >= 3);
    assert!(o.samples.iter().all(|s| s.errors == 6), "each worker told one error a batch");
}

#[test]
fn a_batch_is_calibrated_to_the_clock() {
    let o = go(
        &case(|_| {
            Ok(Box::new(Alone(|_| {
                Ok(each(|| {
                    std::hint::black_box(1);
                }))
            })))
        }),
        &quick(),
    )
    .unwrap();
    assert!(o.batch > 1000, "{} operations of under a nanosecond", o.batch);
    let one = case(|_| Ok(Box::new(Alone(|_| Ok(each(|| std::thread::sleep(Duration::from_millis(5))))))));
    let o = go(&one, &quick()).unwrap();
    assert_eq!(o.batch, 1);
    assert!(o.summary().min >= 5e6, "never shorter than the sleep: {}", o.summary().min);
    assert!(o.busy < 0.9);
}

#[test]
fn what_goes_wrong_is_told_once() {
    let told = |setup| go(&case(setup), &Plan { processes: 2, threads: 2, ..quick() }).unwrap_err();
    assert_eq!(told(|_| Err(Failure::Lacks("no such thing".into()))), Failure::Lacks("no such thing".into()));
    let e = told(|_| {
        Ok(Box::new(Alone(|me: Worker| match me.index {
            3 => Err(Failure::Failed("worker 3 is ill".into())),
            _ => Ok(each(|| ())),
        })))
    });
    assert_eq!(e, Failure::Failed("worker 3 is ill".into()));
    let e = told(|_| Ok(Box::new(Alone(|_| Ok(each(|| panic!("on purpose")))))));
    assert!(e.to_string().contains("panicked"), "{e}");
    let e = told(|_| {
        Ok(Box::new(Alone(|_| {
            Ok(each(|| {
                std::process::abort();
            }))
        })))
    });
    assert!(e.to_string().contains("signal"), "{e}");
}

#[test]
fn a_stop_keeps_what_is_done() {
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let setter = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Relaxed);
        })
    };
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    // No clock is that exact.
    let endless = Plan { duration: Duration::from_secs(1000), precision: 1e-12, ..Plan::default() };
    let o =
        run(&case(|_| Ok(Box::new(Alone(|_| Ok(each(|| ())))))), &[], &endless, &machine(), &stop).unwrap();
    setter.join().unwrap();
    assert!(o.stopped);
}

//! Work for several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Error, Result};

/// Does something to each of many, by several threads; `None` for those that were not done when it was stopped.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    of: &[T],
    stop: &AtomicBool,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<Option<R>>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let run = || -> Result<Vec<(usize, R)>> {
        let mut out = Vec::new();
        while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = of.get(at) else { break };
            out.push((at, work(one).inspect_err(|_| failed.store(true, Ordering::Relaxed))?));
        }
        Ok(out)
    };
    let done: Vec<Result<Vec<(usize, R)>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, of.len().max(1))).map(|_| scope.spawn(run)).collect();
        let died = || Error::Fleet("a thread of ncpu died; please report it".into());
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err(died()))).collect()
    });
    let mut out: Vec<Option<R>> = std::iter::repeat_with(|| None).take(of.len()).collect();
    for part in done {
        for (at, one) in part? {
            out[at] = Some(one);
        }
    }
    Ok(out)
}

//! Work for several threads.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::{Error, Result};

/// Does something to each of many, by several threads; `None` for those that were not done when it was stopped.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    of: &[T],
    stop: &AtomicBool,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<Option<R>>> {
    let none = |e| Error::Fleet(format!("threads cannot be started: {e}"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build().map_err(none)?;
    let one = |one| if stop.load(Ordering::Relaxed) { Ok(None) } else { work(one).map(Some) };
    pool.install(|| of.par_iter().map(one).collect())
}

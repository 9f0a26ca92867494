//! Work for several threads.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::{Error, Result};

/// Applies a function to each item, with several threads; `None` for items that were not processed before the
/// stop.
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

//! The same thing done to many items, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies a function to all items on all cores, begun in their order; results are in that order too.
pub fn each<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    let begun = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = begun.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, of(item)));
        }
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, r)| r).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_order() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(super::each(&items, |n| n * n), items.iter().map(|n| n * n).collect::<Vec<u64>>());
        assert!(super::each(&[] as &[u64], |n| *n).is_empty());
    }
}

//! The algorithms' own sources under a model checker (shuttle), which chooses the schedule.
//!
//! `LIBNCPU_MODELS=N` sets the schedules per model (200 if unset); `make test-deep` sets many more.

#![allow(missing_docs, dead_code, unused_imports, clippy::undocumented_unsafe_blocks)]

#[path = "../../src/counters/mod.rs"]
mod counters;
#[path = "../../src/locks/mod.rs"]
mod locks;
#[path = "../../src/percpu.rs"]
mod percpu;
#[path = "../../src/ranges/mod.rs"]
mod ranges;
mod sys;
#[path = "../../src/timers/mod.rs"]
mod timers;
#[path = "../../src/environment"]
mod environment {
    pub mod env_list;
}
pub use ranges::{arena::Arena, vmem::Vmem};

mod checks;

use shuttle::sync::Arc;
use shuttle::thread;

/// Runs a model under random schedules and under schedules of few preemptions (PCT), which find other bugs.
fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    let n = std::env::var("LIBNCPU_MODELS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let model = move || {
        sys::restart();
        model();
    };
    shuttle::check_random(model, n);
    shuttle::check_pct(model, n, 3);
}

/// Runs `body` on `n` threads, each with its number, and returns their results.
fn threads<T: Send + 'static>(n: u64, body: impl Fn(u64) -> T + Send + Sync + 'static) -> Vec<T> {
    let body = Arc::new(body);
    let handles: Vec<_> = (0..n)
        .map(|i| {
            let body = body.clone();
            thread::spawn(move || body(i))
        })
        .collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).collect()
}

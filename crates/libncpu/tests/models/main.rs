//! The algorithms' own sources under a model checker (shuttle), which chooses the schedule.
//!
//! `LIBNCPU_MODELS=N` sets the schedules per model (200 if unset); `make test-deep` sets many more.

#![allow(missing_docs, dead_code, clippy::undocumented_unsafe_blocks)]

#[path = "../../src/arena.rs"]
mod arena;
#[path = "../../src/backoff.rs"]
mod backoff;
#[path = "../../src/bounded.rs"]
mod bounded;
#[path = "../../src/env_list.rs"]
mod env_list;
#[path = "../../src/magazine/mod.rs"]
mod magazine;
#[path = "../../src/mcs.rs"]
mod mcs;
#[path = "../../src/mutex.rs"]
mod mutex;
#[path = "../../src/numa_lock.rs"]
mod numa_lock;
#[path = "../../src/objects.rs"]
mod objects;
#[path = "../../src/percpu.rs"]
mod percpu;
#[path = "../../src/probe.rs"]
mod probe;
#[path = "../../src/raw_mutex.rs"]
mod raw_mutex;
#[path = "../../src/raw_rwlock.rs"]
mod raw_rwlock;
#[path = "../../src/raw_timer/mod.rs"]
mod raw_timer;
#[path = "../../src/request.rs"]
mod request;
mod sys;
#[path = "../../src/turn.rs"]
mod turn;
#[path = "../../src/vmem.rs"]
mod vmem;
#[path = "../../src/wheel.rs"]
mod wheel;

mod arenas;
mod counters;
mod env;
mod locks;
mod mutexes;
mod timers;

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

/// Runs `body` on so many threads, each with its number, and returns what they return.
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

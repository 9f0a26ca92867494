//! Ctrl-C and SIGTERM end an observation, which still reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;

/// A flag that is set by the first SIGINT or SIGTERM; the second ends ncpu at once.
pub fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Registered first, so that it acts only when the flag is set already.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("catching Ctrl-C")?;
    }
    Ok(stop)
}

/// Sleeps until then or until the flag is set.
pub fn wait(until: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let left =
            rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Unlike the standard library's sleep, this one ends at a signal.
        let _ = rustix::thread::nanosleep(&left);
    }
}

//! State of the observation, shared by the feed and all requests.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ncpu_feed::{Packed, Settings};
use ncpu_record::{Manifest, Recording};
use ncpu_table::Table;
use tokio::sync::{Semaphore, watch};

use crate::bands::{self, Bands};
use crate::history::{Held, History};
use crate::merge::{self, Error};
use crate::metrics::{Metrics, Outcome};

/// Requests that are computed at a time: what observes wants CPUs too.
pub const AT_ONCE: usize = 2;

/// Requests that may wait for a profile.
const WAITING: usize = 16;

/// All of it.
pub struct State {
    /// The observation.
    pub about: Manifest,
    /// A request that waits for a profile holds one of these.
    pub waiting: Semaphore,
    /// Requests that compute, or wait for it.
    pub computing: AtomicUsize,
    /// A request that computes holds one of these.
    pub work: Semaphore,
    /// The end of the newest interval.
    newest: watch::Sender<f64>,
    connections: AtomicUsize,
    history: Mutex<History>,
    bands: Mutex<Bands>,
    metrics: Mutex<Metrics>,
}

/// A panic elsewhere leaves the state valid: nothing is left half done.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Size of the history.
pub struct Extent {
    /// When the first interval whose tables are held begins.
    pub from: f64,
    /// When the newest ends.
    pub to: f64,
    /// When the first begins whose layers are held.
    pub bands_from: f64,
    /// Intervals with tables.
    pub intervals: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl State {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> State {
        State {
            waiting: Semaphore::new(WAITING),
            computing: AtomicUsize::new(0),
            work: Semaphore::new(AT_ONCE),
            newest: watch::Sender::new(0.0),
            connections: AtomicUsize::new(0),
            history: Mutex::new(History::new(settings.history)),
            bands: Mutex::default(),
            metrics: Mutex::new(Metrics::new(&settings.manifest.ncpu_version)),
            about: settings.manifest,
        }
    }

    /// Takes the newest interval.
    ///
    /// # Errors
    /// It is damaged, or not as the schema has it.
    pub fn add(&self, interval: Packed) -> io::Result<()> {
        let one = Arc::new(Held::new(&interval)?);
        let recording =
            merge::recording(&self.about, std::slice::from_ref(&one)).map_err(io::Error::other)?;
        // Where nothing was counted, as in an interval that a signal ended at once, there are no layers.
        if recording.tables.contains_key("cpu_time") {
            let (layers, capacity) = bands::layers(&recording).map_err(io::Error::other)?;
            held(&self.bands).add(interval.head.start, interval.head.end, &layers, capacity);
            let count = held(&self.history).extent().map_or(0, |(_, _, count, _)| count);
            held(&self.metrics).add(&interval.head, &recording, count + 1).map_err(io::Error::other)?;
        }
        held(&self.history).add(one);
        self.newest.send_replace(interval.head.end);
        Ok(())
    }

    /// The history; nothing before the first interval.
    pub fn extent(&self) -> Option<Extent> {
        let (from, to, intervals, bytes) = held(&self.history).extent()?;
        let bands_from = held(&self.bands).since().unwrap_or(from);
        Some(Extent { from, to, bands_from, intervals, bytes })
    }

    /// Waits for the end of the newest interval to be so late.
    pub async fn wait_until(&self, end: f64) {
        // It never ends: the sender is in this very struct.
        let _ = self.newest.subscribe().wait_for(|newest| *newest >= end).await;
    }

    /// Intervals that overlap a time.
    pub fn between(&self, from: f64, to: f64) -> Vec<Arc<Held>> {
        held(&self.history).between(from, to)
    }

    /// The newest.
    pub fn last(&self) -> Option<Arc<Held>> {
        held(&self.history).newest().cloned()
    }

    /// Intervals put together.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn merged(&self, intervals: &[Arc<Held>]) -> Result<Recording, Error> {
        merge::recording(&self.about, intervals)
    }

    /// Layers over time.
    pub fn bands(&self, from: f64, to: f64, rows: usize) -> Table {
        held(&self.bands).table(from, to, rows)
    }

    /// What Prometheus is given.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn metrics(&self, open: bool) -> Result<String, std::fmt::Error> {
        held(&self.metrics).text(self.connections.load(Ordering::Relaxed), open)
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        held(&self.metrics).answered(status);
    }

    /// Counts a message to a collector.
    pub fn sent(&self, outcome: Outcome) {
        held(&self.metrics).sent(outcome);
    }

    /// Reports the number of connections.
    pub fn connected(&self, count: usize) {
        self.connections.store(count, Ordering::Relaxed);
    }
}

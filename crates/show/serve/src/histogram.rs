//! Lengths as Prometheus has them: cumulative counts below few and fixed bounds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ncpu_report::lengths::Bins;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Powers of two from 1.024 microseconds to 68.7 seconds: bins of lengths end there.
const FIRST: u32 = 10;
const BOUNDS: usize = 27;

/// Counts so far.
#[derive(Clone, Debug, Default)]
struct Counts {
    below: [u64; BOUNDS],
    beyond: u64,
    sum: f64,
}

/// Lengths of one kind.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Mutex<Counts>>);

impl Histogram {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds those of an interval.
    pub fn add(&self, bins: &Bins) {
        let mut counts = self.counts();
        counts.sum += bins.sum();
        for (_, to, count) in bins.iter() {
            let bound = to.next_power_of_two().ilog2().saturating_sub(FIRST) as usize;
            match counts.below.get_mut(bound) {
                Some(below) => *below += count,
                None => counts.beyond += count,
            }
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.counts().clone();
        let bound = |i: usize| (1u64 << (FIRST as usize + i)) as f64 / 1e9;
        let mut buckets: Vec<(f64, u64)> =
            counts.below.iter().enumerate().map(|(i, count)| (bound(i), *count)).collect();
        buckets.push((f64::INFINITY, counts.beyond));
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(counts.sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

//! State shared by the workers of a run and its watcher.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::barrier::Barrier;
use super::clock::Look;
use crate::failure::Failure;
use crate::shared::Shared;

/// Samples kept at most.
pub const MAX_SAMPLES: usize = 100_000;

const TEXT: usize = 1024;

/// The workers' next step.
pub mod phase {
    /// Run a batch.
    pub const BATCH: u32 = 0;
    /// Look at the CPUs.
    pub const LOOK: u32 = 1;
    /// Go home.
    pub const STOP: u32 = 2;
}

/// Why a sample is not to be trusted: bits of [`Sample::marks`].
pub mod mark {
    /// A worker waited for a CPU that others had, more than 2 % of the batch.
    pub const DELAYED: u32 = 1;
    /// The workers ran beside each other for less than 70 % of the batch.
    pub const APART: u32 = 2;
    /// The CPUs were taken away by something the scheduler does not know: interrupts, another guest.
    pub const GAPS: u32 = 4;
}

/// A worker's last batch.
#[derive(Default)]
#[repr(align(128))]
pub struct Slot {
    pub begin: AtomicU64,
    pub end: AtomicU64,
    pub errors: AtomicU64,
    pub delay: AtomicU64,
    pub cpu: AtomicU64,
    pace: AtomicU64,
    lost: AtomicU64,
    took: AtomicU64,
}

impl Slot {
    pub fn set_look(&self, look: Look) {
        self.pace.store(look.pace, Ordering::Relaxed);
        self.lost.store(look.lost, Ordering::Relaxed);
        self.took.store(look.took, Ordering::Relaxed);
    }

    pub fn look(&self) -> Look {
        Look {
            pace: self.pace.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            took: self.took.load(Ordering::Relaxed),
        }
    }
}

/// One batch of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Sample {
    /// From the first worker's begin to the last one's end, over the operations of one worker, ns.
    pub nanos: f64,
    /// Share of that time in which a worker was at work, on average.
    pub overlap: f64,
    /// Operations of all workers that failed.
    pub errors: u64,
    /// See [`mark`].
    pub marks: u32,
}

#[repr(C)]
pub struct Control {
    pub barrier: Barrier,
    pub phase: AtomicU32,
    pub batch: AtomicU64,
    /// Samples that count so far; those below are written.
    pub samples: AtomicU64,
    /// Samples thrown away for their marks.
    pub retried: AtomicU64,
    /// Nanoseconds on CPU, all workers, and of wall time, in batches that count.
    pub cpu: AtomicU64,
    pub wall: AtomicU64,
    pub fastest: AtomicU64,
    pub slowest: AtomicU64,
    pub lost: AtomicU64,
    pub looked: AtomicU64,
    /// The leader is to end the run after the batch.
    pub stop: AtomicU32,
    failed: AtomicU32,
    message: [AtomicU32; TEXT],
    figures: [AtomicU32; TEXT],
}

/// In the place of a failure's kind while its words are written.
const WRITING: u32 = 4;

/// All of it.
pub struct Board {
    pub control: Shared<Control>,
    pub slots: Shared<[Slot]>,
    samples: Shared<[[AtomicU64; 4]]>,
}

fn put(at: &[AtomicU32; TEXT], text: &str) {
    for (cell, c) in at.iter().zip(text.chars().map(u32::from).chain([0])) {
        cell.store(c, Ordering::Relaxed);
    }
}

fn get(at: &[AtomicU32; TEXT]) -> String {
    at.iter().map(|c| c.load(Ordering::Relaxed)).take_while(|&c| c != 0).filter_map(char::from_u32).collect()
}

impl Board {
    pub fn new(workers: usize) -> std::io::Result<Board> {
        let zero = || AtomicU64::new(0);
        let text = || std::array::from_fn(|_| AtomicU32::new(0));
        let control = Control {
            barrier: Barrier::default(),
            phase: AtomicU32::new(phase::BATCH),
            batch: AtomicU64::new(1),
            samples: zero(),
            retried: zero(),
            cpu: zero(),
            wall: zero(),
            fastest: AtomicU64::new(u64::MAX),
            slowest: zero(),
            lost: zero(),
            looked: zero(),
            stop: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            message: text(),
            figures: text(),
        };
        Ok(Board {
            control: Shared::new(control)?,
            slots: Shared::slice(workers, |_| Slot::default())?,
            // Fresh pages are zero already: 3 MB are not touched before they are needed.
            samples: Shared::zeroed(MAX_SAMPLES)?,
        })
    }

    pub fn push(&self, sample: Sample) {
        let n = self.control.samples.load(Ordering::Relaxed);
        let cell = &self.samples[n as usize];
        cell[0].store(sample.nanos.to_bits(), Ordering::Relaxed);
        cell[1].store(sample.overlap.to_bits(), Ordering::Relaxed);
        cell[2].store(sample.errors, Ordering::Relaxed);
        cell[3].store(sample.marks.into(), Ordering::Relaxed);
        // Release: a thread that reads the count also reads the sample.
        self.control.samples.store(n + 1, Ordering::Release);
    }

    pub fn samples(&self) -> Vec<Sample> {
        let n = self.control.samples.load(Ordering::Acquire).min(MAX_SAMPLES as u64) as usize;
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        self.samples[..n]
            .iter()
            .map(|c| Sample {
                nanos: f64::from_bits(load(&c[0])),
                overlap: f64::from_bits(load(&c[1])),
                errors: load(&c[2]),
                marks: load(&c[3]) as u32,
            })
            .collect()
    }

    /// The first failure counts; the others follow from it.
    pub fn fail(&self, failure: &Failure) {
        let (code, text) = match failure {
            Failure::Lacks(text) => (1, text),
            Failure::Failed(text) => (2, text),
            Failure::Usage(text) => (3, text),
        };
        if self.control.failed.compare_exchange(0, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            put(&self.control.message, text);
            self.control.failed.store(code, Ordering::Release);
        }
        self.control.barrier.break_up();
    }

    pub fn failure(&self) -> Option<Failure> {
        match self.control.failed.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Failure::Lacks(get(&self.control.message))),
            3 => Some(Failure::Usage(get(&self.control.message))),
            _ => Some(Failure::Failed(get(&self.control.message))),
        }
    }

    pub fn set_figures(&self, figures: &[(&'static str, f64)]) {
        let text: Vec<String> = figures.iter().map(|(name, x)| format!("{name}\t{x}")).collect();
        put(&self.control.figures, &text.join("\n"));
    }

    pub fn figures(&self) -> Vec<(String, f64)> {
        let text = get(&self.control.figures);
        text.lines()
            .filter_map(|l| l.split_once('\t'))
            .filter_map(|(n, x)| Some((n.into(), x.parse().ok()?)))
            .collect()
    }
}

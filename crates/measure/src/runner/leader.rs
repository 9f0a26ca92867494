//! The first worker decides what all do next: how large a batch is, what counts, when it is enough.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Plan;
use super::clock::{Clock, now};
use super::control::{Board, MAX_SAMPLES, Sample, mark, phase};
use crate::case::Bench;
use crate::stats::{Summary, quantile};

/// The least length of a batch of one worker.
const ALONE: Duration = Duration::from_micros(100);
/// Of several it is longer, since they do not all begin at once.
const TOGETHER: Duration = Duration::from_millis(2);
/// Batches in a row that have to agree before sampling begins.
const STEADY: usize = 5;
/// A batch that seems long enough is run this many times before it is believed.
const TRIES: u32 = 5;
/// A share of the CPUs' time that may be lost.
const TOLERATED: f64 = 0.02;
/// Interval between looks at the CPUs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

enum Stage {
    Calibrate,
    WarmUp(Vec<f64>),
    Sample,
}

pub struct Leader<'a> {
    board: &'a Board,
    plan: &'a Plan,
    clock: Clock,
    workers: usize,
    /// There is a CPU for each worker, so that waiting for one is others' doing.
    room: bool,
    fixed: bool,
    most: u64,
    stage: Stage,
    /// Shortest time of a batch of the present size, nanoseconds, and how many there were.
    tried: (u64, u32),
    began: u64,
    stage_began: u64,
    looked: u64,
    looks: u32,
    gaps: bool,
    nanos: Vec<f64>,
    next_check: usize,
}

impl<'a> Leader<'a> {
    pub fn new(board: &'a Board, plan: &'a Plan, clock: Clock, room: bool, bench: &dyn Bench) -> Leader<'a> {
        let control = &board.control;
        let batch = plan.batch.or(bench.batch());
        control.batch.store(batch.unwrap_or(1).max(1), Relaxed);
        control.phase.store(phase::BATCH, Relaxed);
        let t = now();
        Leader {
            board,
            plan,
            clock,
            workers: board.slots.len(),
            room,
            fixed: batch.is_some(),
            most: bench.most().unwrap_or(u64::MAX).max(1),
            stage: Stage::Calibrate,
            tried: (u64::MAX, 0),
            began: t,
            stage_began: t,
            looked: 0,
            looks: 0,
            gaps: false,
            nanos: Vec::new(),
            next_check: plan.min_samples.max(6),
        }
    }

    /// After each batch or look, while the others wait.
    pub fn decide(&mut self) {
        let control = &self.board.control;
        if control.stop.load(Relaxed) != 0 {
            control.phase.store(phase::STOP, Relaxed);
            return;
        }
        if control.phase.load(Relaxed) == phase::LOOK {
            self.take_look();
        } else {
            self.take_batch();
        }
        if control.phase.load(Relaxed) == phase::STOP {
            return;
        }
        let due = now() - self.looked > LOOK_EVERY.as_nanos() as u64;
        let next = if matches!(self.stage, Stage::Sample) && due { phase::LOOK } else { phase::BATCH };
        control.phase.store(next, Relaxed);
    }

    fn take_look(&mut self) {
        let control = &self.board.control;
        let (mut lost, mut took) = (0, 0);
        for look in self.board.slots.iter().map(|s| s.look()) {
            lost += look.lost;
            took += look.took;
            control.fastest.fetch_min(look.pace, Relaxed);
            control.slowest.fetch_max(look.pace, Relaxed);
        }
        // With more workers than CPUs they take time from each other.
        self.gaps = self.room && lost as f64 > TOLERATED * took as f64;
        control.lost.fetch_add(lost, Relaxed);
        control.looked.fetch_add(took, Relaxed);
        self.looks += 1;
        // A disturbance may pass: look a few times before measuring in spite of it.
        if !self.gaps || self.looks >= 5 {
            self.looked = now();
            self.looks = 0;
        }
    }

    fn take_batch(&mut self) {
        let control = &self.board.control;
        let n = control.batch.load(Relaxed);
        let load = |f: fn(&super::control::Slot) -> &std::sync::atomic::AtomicU64| {
            self.board.slots.iter().map(move |s| f(s).load(Relaxed))
        };
        let begin = load(|s| &s.begin).min().unwrap_or(0);
        let end = load(|s| &s.end).max().unwrap_or(0);
        let wall = (end - begin).saturating_sub(self.clock.overhead);
        let worked: u64 = self.board.slots.iter().map(|s| s.end.load(Relaxed) - s.begin.load(Relaxed)).sum();
        let delay: u64 = load(|s| &s.delay).sum();
        let sample = Sample {
            nanos: wall as f64 / n as f64,
            overlap: worked as f64 / (self.workers as u64 * (end - begin).max(1)) as f64,
            errors: load(|s| &s.errors).sum(),
            marks: 0,
        };
        let elapsed = end - self.stage_began;
        let budget = self.plan.duration.as_nanos() as u64;
        match &mut self.stage {
            Stage::Calibrate => {
                let target = if self.workers > 1 { TOGETHER } else { ALONE };
                // Many samples in a short time want shorter batches.
                let share = budget / self.plan.min_samples.max(1) as u64;
                let target = (target.as_nanos() as u64).max(1000 * self.clock.resolution).min(share.max(1));
                // Whatever disturbs makes a batch longer, and workers begin apart: the shortest of a few of any
                // worker's tells its length.
                let own = self.board.slots.iter().map(|s| s.end.load(Relaxed) - s.begin.load(Relaxed)).min();
                let (shortest, tries) = (self.tried.0.min(own.unwrap_or(wall)), self.tried.1 + 1);
                self.tried = (shortest, tries);
                let reached = shortest * 10 >= target * 7;
                if self.fixed || n >= self.most || (reached && (tries >= TRIES || elapsed > budget / 10)) {
                    self.stage = Stage::WarmUp(Vec::new());
                    self.stage_began = end;
                } else if !reached {
                    self.tried = (u64::MAX, 0);
                    let more = (target as f64 / shortest.max(1) as f64).clamp(1.5, 16.0);
                    control.batch.store(((n as f64 * more).ceil() as u64).min(self.most), Relaxed);
                }
            }
            Stage::WarmUp(seen) => {
                seen.push(sample.nanos);
                let middle = |part: &[f64]| {
                    let mut part = part.to_vec();
                    part.sort_by(f64::total_cmp);
                    quantile(&part, 0.5)
                };
                let steady = seen.len() >= 2 * STEADY && {
                    let (before, last) = seen[seen.len() - 2 * STEADY..].split_at(STEADY);
                    (middle(last) / middle(before).max(f64::MIN_POSITIVE) - 1.0).abs() < 0.03
                };
                if steady || elapsed > budget / 5 {
                    self.stage = Stage::Sample;
                    self.stage_began = end;
                }
            }
            Stage::Sample => {
                let mut marks = 0;
                if self.room && delay as f64 > TOLERATED * worked as f64 {
                    marks |= mark::DELAYED;
                }
                if self.room && self.workers > 1 && sample.overlap < 0.7 {
                    marks |= mark::APART;
                }
                if self.gaps {
                    marks |= mark::GAPS;
                }
                let retried = control.retried.load(Relaxed);
                if marks != 0 && retried < 4 + self.nanos.len() as u64 / 4 && elapsed < budget {
                    control.retried.store(retried + 1, Relaxed);
                    return;
                }
                self.board.push(Sample { marks, ..sample });
                self.nanos.push(sample.nanos);
                control.cpu.fetch_add(load(|s| &s.cpu).sum(), Relaxed);
                control.wall.fetch_add(wall, Relaxed);
                if self.enough(elapsed, budget, end - self.began) {
                    control.phase.store(phase::STOP, Relaxed);
                }
            }
        }
    }

    fn enough(&mut self, elapsed: u64, budget: u64, all: u64) -> bool {
        let n = self.nanos.len();
        if n >= MAX_SAMPLES {
            return true;
        }
        // A case with batches of seconds is not run for minutes.
        if n < self.plan.min_samples {
            return n >= 3 && all > 10 * budget;
        }
        if elapsed >= budget {
            return true;
        }
        // Sorting is not free: look again when there is a quarter more.
        if n < self.next_check {
            return false;
        }
        self.next_check = n + n / 4 + 1;
        let known = Summary::of(&self.nanos);
        // Samples that are all alike are known no better than to a step of the clock.
        let batch = self.board.control.batch.load(Relaxed) as f64;
        let step = self.clock.resolution as f64 / batch / known.median;
        known.uncertainty().max(step) <= self.plan.precision
    }
}

//! Waits of first waiters in a lock's queue, and the hold time that follows from them.
//!
//! A thread that finds only the holder waits for the residual hold time. For hold times with mean S and distribution F,
//! the residual has the density (1 - F(x)) / S, which falls from 1 / S: so S is one over the density of these waits
//! where it is highest, for any F. Mean waits alone give S (1 + cv^2) / 2.

/// Waits by length: four bins an octave of nanoseconds, as the engine counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(Vec<u64>);

/// Waits of at least `from` and less than `to` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// From.
    pub from: f64,
    /// To.
    pub to: f64,
    /// How many.
    pub count: f64,
}

impl Waits {
    /// Adds a wait of `ps` picoseconds.
    pub fn add(&mut self, ps: u64) {
        let ns = (ps / 1000).max(4);
        let octave = ns.ilog2() - 2;
        let at = (octave * 4) as usize + (ns >> octave & 3) as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }

    /// Adds those of another lock.
    pub fn merge(&mut self, other: &Waits) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(sum, n)| *sum += n);
    }

    /// Bins with waits.
    pub fn bins(&self) -> Vec<Bin> {
        let bin = |(at, count): (usize, &u64)| {
            let (octave, part) = (at / 4, at % 4);
            let step = 2f64.powi(octave as i32);
            let from = if at == 0 { 0.0 } else { (4 + part) as f64 * step };
            Bin { from, to: (5 + part) as f64 * step, count: *count as f64 }
        };
        self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(bin).collect()
    }
}

/// Hold times that follow from first waiters' waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// How long the lock is held, ns.
    pub ns: f64,
    /// How long the first waited on average, ns.
    pub wait: f64,
    /// The shortest of these waits, ns, but for a few: the hand-over took this long, however short the residual hold
    /// time was.
    pub least: f64,
}

/// Fewer waits tell nothing.
const LEAST: f64 = 50.0;
/// The density is taken where it is highest over bins that hold this share of the waits: over fewer, chance decides; over
/// more, it has fallen already.
const SHARE: f64 = 0.12;
/// And at least this many of them, or a third: the highest of many densities is too high by chance
/// otherwise.
const LEAST_INSIDE: f64 = 100.0;

/// Of the shortest waits this share is left out: a few were measured across an interrupt, or by clocks that differ.
const STRAY: f64 = 0.02;

/// The length that this share of the waits falls short of.
fn shorter(bins: &[Bin], share: f64) -> f64 {
    let mut left = share * bins.iter().map(|b| b.count).sum::<f64>();
    for b in bins {
        if left <= b.count {
            return b.from + (b.to - b.from) * left / b.count;
        }
        left -= b.count;
    }
    bins.last().map_or(0.0, |b| b.to)
}

/// How long a lock is held, by the waits of who was first in its queue, shortest first; `None` where they are too few.
pub fn hold(bins: &[Bin]) -> Option<Hold> {
    let all: f64 = bins.iter().map(|b| b.count).sum();
    if all < LEAST {
        return None;
    }
    let wait = bins.iter().map(|b| b.count * (b.from + b.to) / 2.0).sum::<f64>() / all;
    let wanted = (SHARE * all).max((all / 3.0).min(LEAST_INSIDE));
    let mut densest = 0.0f64;
    for (i, first) in bins.iter().enumerate() {
        let mut inside = 0.0;
        for last in &bins[i..] {
            inside += last.count;
            if inside >= wanted {
                densest = densest.max(inside / (last.to - first.from));
                break;
            }
        }
    }
    // Of waits that begin at 0 this share lies below its part of the hold time.
    let least = |ns: f64| (shorter(bins, STRAY) - STRAY * ns).max(0.0);
    (densest > 0.0).then(|| Hold { ns: all / densest, wait, least: least(all / densest) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, Time};

    /// Residuals of times of this distribution at random moments, with `more` ns to take the lock over.
    fn left(time: Time, more: u64, n: usize) -> Waits {
        let mut random = Random::new(7);
        let mut waits = Waits::default();
        // A random moment falls into a long time more often than into a short one: a walk along the times.
        let times: Vec<u64> = (0..200_000).map(|_| time.draw(&mut random)).collect();
        let mut ends = Vec::with_capacity(times.len());
        let mut sum = 0u64;
        for t in &times {
            sum += t;
            ends.push(sum);
        }
        for _ in 0..n {
            let at = (random.unit() * sum as f64) as u64;
            let which = ends.partition_point(|end| *end <= at).min(ends.len() - 1);
            waits.add(ends[which].saturating_sub(at) + more * 1000);
        }
        waits
    }

    #[test]
    fn bins_follow_one_another() {
        let mut waits = Waits::default();
        (0..100_000).for_each(|ns| waits.add(ns * 1000));
        let bins = waits.bins();
        assert!(bins.windows(2).all(|b| b[0].to == b[1].from), "{bins:?}");
        // All but the last are full.
        assert!(bins[1..bins.len() - 1].iter().all(|b| b.count == b.to - b.from), "{bins:?}");
        assert_eq!(bins.iter().map(|b| b.count).sum::<f64>(), 100_000.0);
    }

    #[test]
    fn the_density_of_waits_near_zero_tells_how_long_a_lock_is_held() {
        for cv in [0.0, 0.5, 1.0, 2.0] {
            for (ns, more) in [(1_000.0, 0), (20_000.0, 200), (300_000.0, 1000)] {
                let time = Time { mean: ns * 1e3, cv };
                for n in [500, 20_000] {
                    let found = hold(&left(time, more, n).bins()).unwrap();
                    let by_density = found.ns / ns;
                    // By the mean alone, where cv is taken to be 0.5 as without waits of the first.
                    let by_mean = (found.wait - more as f64) / 0.625 / ns;
                    println!("cv {cv}, {ns} ns, {n}: {by_density:.2}, by the mean {by_mean:.2}");
                    assert!((0.76..1.24).contains(&by_density), "cv {cv}, {ns} ns, {n}: {by_density}");
                    if cv == 2.0 {
                        assert!(by_mean > 2.0, "{by_mean}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_shortest_waits_tell_what_handing_over_takes() {
        for cv in [0.0, 0.5, 1.0] {
            for more in [0, 100, 600] {
                let time = Time { mean: 300e3, cv };
                let found = hold(&left(time, more, 20_000).bins()).unwrap();
                assert!(
                    (found.least - more as f64).abs() < 0.15 * more as f64 + 8.0,
                    "cv {cv}: {found:?} for {more}"
                );
            }
        }
    }

    #[test]
    fn a_few_waits_tell_nothing() {
        let mut waits = Waits::default();
        (0..49).for_each(|i| waits.add(i * 100_000));
        assert_eq!(hold(&waits.bins()), None);
        assert_eq!(hold(&[]), None);
    }
}

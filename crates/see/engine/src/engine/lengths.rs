//! How long what happens often takes: the counts of lengths.h.

use std::collections::HashMap;

use ncpu_schema::Length;

use super::layout::Lengths;
use super::{Engine, layout};

/// `LENGTH_BITS`, `LENGTH_PARTS`, and the bins of an array, of engine.h.
const BITS: u32 = 5;
const PARTS: u64 = 1 << BITS;
pub(super) const BINS: usize = (PARTS * (36 - BITS as u64 + 1)) as usize;
/// `LENGTHS_OF`.
pub(super) const ARRAYS: usize = 4;

/// Lengths of one kind in one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LengthCount {
    /// The kind of event that has these lengths.
    pub of: Length,
    /// The lock, device or call, in the code of its kind; 1: nothing.
    pub what: u64,
    /// The process; 0 for all.
    pub tgid: u32,
    /// ns from which on lengths are in this bin, and up to which.
    pub from: u64,
    pub to: u64,
    pub count: u64,
    /// Of those, the lengths that were seen; the others are taken to be like them. Of a row it is known by octave, so that its bins
    /// have the same part.
    pub seen: f64,
}

/// The ends of a bin of an array, ns.
fn bin(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < PARTS {
        return (index, index + 1);
    }
    let step = 1 << (index / PARTS - 1);
    let from = (PARTS + index % PARTS) * step;
    (from, from + step)
}

/// The ends of a bin of a row.
fn bin_of(octave: u64, part: u64) -> (u64, u64) {
    let step = 1 << octave.saturating_sub(BITS.into()).min(40);
    let from = (PARTS + part) * step;
    (from, from + step)
}

/// `enum length_of`.
fn kind(raw: u32) -> Option<Length> {
    Length::ALL.get(raw as usize).copied()
}

impl Engine {
    /// The arrays of all CPUs together, as they are.
    pub(super) fn length_arrays(&self) -> Vec<u32> {
        let mut sums = vec![0u32; ARRAYS * BINS];
        for cpu in 0..self.tables.lengths.len() {
            // One that nothing ran on has none.
            if self.tables.slots.get(cpu).switches == 0 {
                continue;
            }
            let of: Lengths = self.tables.lengths.get(cpu);
            sums.iter_mut()
                .zip(of.count.iter().flatten().flatten())
                .for_each(|(sum, n)| *sum = sum.wrapping_add(*n));
        }
        sums
    }

    /// Takes what was counted since the last call: `half` of the table, and what is new in the arrays.
    pub(super) fn length_counts(&mut self, half: usize) -> Vec<LengthCount> {
        let now = self.length_arrays();
        let before = std::mem::replace(&mut self.length_before, now);
        let mut out = Vec::new();
        for (i, (now, before)) in self.length_before.iter().zip(before).enumerate() {
            let count = now.wrapping_sub(before);
            let (from, to) = bin(i % BINS);
            if count > 0 {
                // Long ones are all seen, and of short ones there are thousands.
                let (count, seen) = (count.into(), count.into());
                out.push(LengthCount { of: Length::ALL[i / BINS], what: 1, tgid: 0, from, to, count, seen });
            }
        }
        // Kind, object, process, octave, and part of the octave.
        type Bin = (u32, u64, u32, u64, usize);
        let mut sums: HashMap<Bin, (u64, f64)> = HashMap::new();
        let rows = layout::of_half(self.tables.length_rows.len(), half);
        for row in self.tables.length_rows.take(rows) {
            let all: u64 = row.count.iter().map(|count| u64::from(*count)).sum();
            let seen = 1.0 - (row.unseen as f64 / all.max(1) as f64).min(1.0);
            for (part, count) in row.count.iter().enumerate().filter(|(_, count)| **count > 0) {
                let sum = sums.entry((row.of, row.what, row.tgid, row.octave, part)).or_default();
                sum.0 += u64::from(*count);
                sum.1 += f64::from(*count) * seen;
            }
        }
        let first = out.len();
        out.extend(sums.into_iter().filter_map(|((of, what, tgid, octave, part), (count, seen))| {
            let (from, to) = bin_of(octave, part as u64);
            Some(LengthCount { of: kind(of)?, what, tgid, from, to, count, seen })
        }));
        out[first..].sort_by_key(|l| (l.of, l.what, l.tgid, l.from));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_one_another_and_are_narrow() {
        let mut end = 0;
        for i in 0..BINS {
            let (from, to) = bin(i);
            assert_eq!(from, end);
            assert!(i < 64 || (to - from) as f64 / (from as f64) <= 1.0 / 32.0);
            end = to;
        }
        assert_eq!(end, 1 << 36);
    }

    #[test]
    fn bins_of_rows_are_those_of_arrays() {
        for octave in 5..36 {
            for part in 0..PARTS {
                let index = (octave - 4) * PARTS + part;
                assert_eq!(bin_of(octave, part), bin(index as usize), "{octave} {part}");
            }
        }
    }
}

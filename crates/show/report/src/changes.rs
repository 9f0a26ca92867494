//! Where a series changes: the phases of a program.
//!
//! The method is E-divisive (Matteson and James, "A nonparametric approach for multiple change point analysis of
//! multivariate data", JASA 2014). A stretch is divided where the energy distance between the columns before and after
//! is largest, if a permutation test shows that this is not chance, and then the parts likewise. It supposes nothing
//! about how columns scatter, as shares made of a few samples do. The distance of two columns is the part of capacity
//! that lies in another layer. Three things keep it from finding changes in noise: columns are permuted in blocks,
//! because neighbours are alike without any change; a change must be as unlikely as [`CHANCE`]; and it must move
//! [`LEAST_MOVED`] of capacity from one phase to the next.

/// A division is kept if no more than this part of permutations divides as well.
const CHANCE: f64 = 0.01;
/// Permutations of a stretch.
const PERMUTATIONS: usize = 199;
/// Columns of a phase, at least.
const LEAST: usize = 3;
/// Capacity that lies in other layers than in the phase before, at least.
const LEAST_MOVED: f64 = 0.1;
/// The most phases that are shown: those that differ most from their neighbours.
const MOST: usize = 12;

/// The first columns of all phases but the first. Each column holds shares of capacity by layer.
pub(crate) fn changes(columns: &[Vec<f64>]) -> Vec<usize> {
    let distances = Distances::of(columns);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut found = Vec::new();
    let mut todo = vec![(0, columns.len())];
    while let Some((from, to)) = todo.pop() {
        if to - from < 2 * LEAST {
            continue;
        }
        let order: Vec<usize> = (from..to).collect();
        let (at, strength) = distances.division(&order);
        let at = from + at;
        if moved(columns, from, at, to) >= LEAST_MOVED && distances.is_no_chance(&order, strength, &mut dice)
        {
            found.push(at);
            todo.extend([(from, at), (at, to)]);
        }
    }
    found.sort_unstable();
    // A part may be like its neighbour although both lay in parts that were not alike.
    while let Some((weakest, by)) = weakest(columns, &found) {
        if by >= LEAST_MOVED && found.len() < MOST {
            break;
        }
        found.remove(weakest);
    }
    found
}

/// The change that moves least, and how much.
fn weakest(columns: &[Vec<f64>], found: &[usize]) -> Option<(usize, f64)> {
    let by = |i: usize| {
        let from = if i == 0 { 0 } else { found[i - 1] };
        moved(columns, from, found[i], found.get(i + 1).copied().unwrap_or(columns.len()))
    };
    (0..found.len()).map(|i| (i, by(i))).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// How much of capacity lies in other layers in `at..to` than in `from..at`.
fn moved(columns: &[Vec<f64>], from: usize, at: usize, to: usize) -> f64 {
    let mean = |part: &[Vec<f64>]| {
        let layers = part.first().map_or(0, Vec::len);
        let sum = |layer: usize| part.iter().map(|c| c[layer]).sum::<f64>();
        (0..layers).map(|layer| sum(layer) / part.len().max(1) as f64).collect::<Vec<f64>>()
    };
    distance(&mean(&columns[from..at]), &mean(&columns[at..to]))
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    0.5 * a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>()
}

/// Of all columns from each other.
struct Distances {
    columns: usize,
    of: Vec<f64>,
}

impl Distances {
    fn of(columns: &[Vec<f64>]) -> Distances {
        let of = columns.iter().flat_map(|a| columns.iter().map(|b| distance(a, b))).collect();
        Distances { columns: columns.len(), of }
    }

    fn between(&self, a: usize, b: usize) -> f64 {
        self.of[a * self.columns + b]
    }

    /// Where columns in this order divide best, and the scaled energy distance there.
    fn division(&self, order: &[usize]) -> (usize, f64) {
        let n = order.len();
        // Sums of the distances among those before, among those after, and across.
        let (mut before, mut after, mut across) = (0.0, 0.0, 0.0);
        for (i, a) in order.iter().enumerate() {
            after += order[..i].iter().map(|b| self.between(*a, *b)).sum::<f64>();
        }
        let mut best = (0, f64::NEG_INFINITY);
        for (i, a) in order.iter().enumerate().take(n - LEAST) {
            let earlier: f64 = order[..i].iter().map(|b| self.between(*a, *b)).sum();
            let later: f64 = order[i + 1..].iter().map(|b| self.between(*a, *b)).sum();
            before += earlier;
            after -= later;
            across += later - earlier;
            let (left, right) = (i + 1, n - i - 1);
            if left < LEAST {
                continue;
            }
            let [l, r] = [left, right].map(|n| n as f64);
            let energy =
                2.0 * across / (l * r) - 2.0 * before / (l * (l - 1.0)) - 2.0 * after / (r * (r - 1.0));
            let strength = l * r / (l + r) * energy;
            if strength > best.1 {
                best = (left, strength);
            }
        }
        best
    }

    /// Whether columns in another order hardly ever divide as well.
    fn is_no_chance(&self, order: &[usize], strength: f64, dice: &mut Dice) -> bool {
        let n = order.len();
        // Few columns have too few orders to spare.
        let block = if n < 24 { 1 } else { (n as f64).cbrt().round() as usize };
        let may = (CHANCE * (PERMUTATIONS + 1) as f64) as usize - 1;
        let mut as_well = 0;
        for _ in 0..PERMUTATIONS {
            // Blocks begin anywhere.
            let turn = dice.below(n);
            let turned: Vec<usize> = order[turn..].iter().chain(&order[..turn]).copied().collect();
            let mut blocks: Vec<&[usize]> = turned.chunks(block).collect();
            for i in (1..blocks.len()).rev() {
                blocks.swap(i, dice.below(i + 1));
            }
            as_well += usize::from(self.division(&blocks.concat()).1 >= strength);
            if as_well > may {
                return false;
            }
        }
        true
    }
}

/// The same numbers each time: a report of the same recording says the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Dice {
        fn part(&mut self) -> f64 {
            self.below(1 << 24) as f64 / f64::from(1 << 24)
        }
    }

    /// A column as `samples` samples of these shares show it, which drift by `drift`.
    fn column(dice: &mut Dice, shares: &[f64], samples: usize, drift: f64) -> Vec<f64> {
        let mut out = vec![0.0; shares.len()];
        for _ in 0..samples {
            let mut at = dice.part();
            let shifted =
                |i: usize| shares[i] + if i == 0 { drift } else { -drift / (shares.len() - 1) as f64 };
            let mut i = 0;
            while i + 1 < shares.len() && at >= shifted(i) {
                at -= shifted(i);
                i += 1;
            }
            out[i] += 1.0 / samples as f64;
        }
        out
    }

    #[test]
    fn noise_has_no_phases() {
        let (mut alarms, series) = (0, 100);
        for seed in 0..series {
            let mut dice = Dice(seed * 7919 + 1);
            let (length, samples) = (20 + dice.below(40), 10 + dice.below(40));
            // In half of them neighbours are alike, with a correlation of 0.5.
            let mut drift = 0.0;
            let columns: Vec<Vec<f64>> = (0..length)
                .map(|_| {
                    let push = 0.1 * (dice.part() + dice.part() - 1.0);
                    drift = if seed % 2 == 0 { 0.0 } else { 0.5 * drift + push };
                    column(&mut dice, &[0.5, 0.3, 0.15, 0.05], samples, drift)
                })
                .collect();
            alarms += usize::from(!changes(&columns).is_empty());
        }
        assert!(alarms <= 3, "{alarms} of {series} series without a change were said to have one");
    }

    #[test]
    fn phases_are_found_where_they_begin() {
        let (mut missed, mut worst) = (0, 0);
        for seed in 1..9 {
            let mut dice = Dice(seed * 104_729);
            let lengths = [12 + dice.below(20), 8 + dice.below(20), 10 + dice.below(30)];
            let shares = [[0.5, 0.5, 0.0, 0.0], [0.3, 0.1, 0.6, 0.0], [0.35, 0.05, 0.1, 0.5]];
            let mut columns = Vec::new();
            for (n, shares) in lengths.iter().zip(shares) {
                columns.extend((0..*n).map(|_| column(&mut dice, &shares, 20, 0.0)));
            }
            let truth = [lengths[0], lengths[0] + lengths[1]];
            let found = changes(&columns);
            if found.len() == 2 {
                worst = truth.iter().zip(&found).map(|(a, b)| a.abs_diff(*b)).max().unwrap().max(worst);
            } else {
                missed += 1;
            }
        }
        assert_eq!((missed, worst), (0, 0));
    }

    #[test]
    fn nothing_and_little_have_one_phase() {
        assert!(changes(&[]).is_empty());
        assert!(changes(&vec![vec![1.0, 0.0]; 5]).is_empty());
        assert!(changes(&vec![vec![0.5, 0.5]; 100]).is_empty());
        // A change that hardly moves anything is none that a reader would care for.
        let small = |i: usize| if i < 50 { vec![0.50, 0.50] } else { vec![0.55, 0.45] };
        assert!(changes(&(0..100).map(small).collect::<Vec<_>>()).is_empty());
        let large = |i: usize| if i < 50 { vec![0.50, 0.50] } else { vec![0.65, 0.35] };
        assert_eq!(changes(&(0..100).map(large).collect::<Vec<_>>()), [50]);
    }

    #[test]
    fn phases_that_come_without_end_are_some() {
        let columns: Vec<Vec<f64>> =
            (0..120).map(|i| if i / 6 % 2 == 0 { vec![1.0, 0.0] } else { vec![0.0, 1.0] }).collect();
        assert!(changes(&columns).len() < MOST);
    }
}

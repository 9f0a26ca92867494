//! The name of a placement, and the share of its accesses that are likely remote.

use std::collections::BTreeMap;
use std::fmt;

/// Memory or CPU time that lies on one node "but for a little": this share of it does.
const MOST: f64 = 0.8;
/// Less CPU time than this (seconds) supports no verdict.
const LEAST_CPU: f64 = 0.002;

/// The kind of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nobody ran, so nobody is remote.
    Idle,
    /// The memory is where its users run.
    Local,
    /// The memory is dealt out page by page.
    Interleaved,
    /// The memory is on several nodes, neither dealt out evenly nor where its users run.
    Spread,
    /// The memory is on some nodes, its users run on others.
    Misplaced,
    /// One node has all the memory that several nodes use.
    Cyclops(u32),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Idle => f.write_str("idle"),
            Verdict::Local => f.write_str("local"),
            Verdict::Interleaved => f.write_str("interleaved"),
            Verdict::Spread => f.write_str("spread"),
            Verdict::Misplaced => f.write_str("misplaced"),
            Verdict::Cyclops(node) => write!(f, "Cyclops({node})"),
        }
    }
}

/// Distances between nodes.
#[derive(Clone, Debug, Default)]
pub struct Distances(pub BTreeMap<(u32, u32), f64>);

impl Distances {
    /// The firmware's distance. Where the firmware has none: 10 to itself and 20 elsewhere.
    pub fn get(&self, from: u32, to: u32) -> f64 {
        self.0.get(&(from, to)).copied().unwrap_or(if from == to { 10.0 } else { 20.0 })
    }
}

/// Memory and CPU time of something by node, and what that comes to.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Bytes by node.
    pub memory: BTreeMap<u32, u64>,
    /// CPU-seconds by node.
    pub cpu: BTreeMap<u32, f64>,
    /// Its kind.
    pub verdict: Verdict,
    /// Share of accesses that are likely remote, by the model the verdict calls for.
    pub remote: f64,
    /// Were every access to the nearest page there is: at least this share is remote.
    pub least: f64,
    /// Mean distance of an access; 10 is local.
    pub distance: f64,
}

/// Further properties of a placement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Share of the memory whose policy deals it out.
    pub interleaved: f64,
    /// Of neighbouring pages, the share on one node.
    pub together: Option<f64>,
}

impl Placement {
    /// Judges. The model: an access comes from node `n` with `n`'s share of the CPU time, and goes to node
    /// `m` with `m`'s share of the memory, wherever it comes from; remote is the sum over nodes of cpu(n) ×
    /// (1 − memory(n)). Memory that lies in blocks on the nodes of the threads that touched it is used in
    /// another way: there each thread is taken to use the nearest memory as far as it goes, and remote is
    /// the sum of the rest, max(0, cpu(n) − memory(n)).
    pub fn judge(
        memory: BTreeMap<u32, u64>,
        cpu: BTreeMap<u32, f64>,
        hints: Hints,
        distances: &Distances,
    ) -> Placement {
        let bytes: f64 = memory.values().map(|b| *b as f64).sum();
        let seconds: f64 = cpu.values().sum();
        let m = |n: u32| memory.get(&n).map_or(0.0, |b| *b as f64 / bytes.max(1.0));
        let c = |n: u32| cpu.get(&n).map_or(0.0, |s| s / seconds.max(f64::MIN_POSITIVE));
        let uniform: f64 = cpu.keys().map(|&n| c(n) * (1.0 - m(n))).sum();
        let least: f64 = cpu.keys().map(|&n| (c(n) - m(n)).max(0.0)).sum();
        let mean = || -> f64 {
            cpu.keys().map(|&n| memory.keys().map(|&k| c(n) * m(k) * distances.get(n, k)).sum::<f64>()).sum()
        };
        let top = memory.iter().max_by_key(|(_, b)| **b).map_or(0, |(n, _)| *n);
        // A program that runs on one node and has memory on it and others.
        let busiest = cpu.iter().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(n, _)| *n);
        let blocks = hints.together.is_some_and(|t| t >= 0.9) && hints.interleaved < 0.5;
        let verdict = if seconds < LEAST_CPU || bytes == 0.0 {
            Verdict::Idle
        } else if m(top) >= MOST {
            match (c(top) >= MOST, c(busiest) >= MOST) {
                (true, _) => Verdict::Local,
                (false, true) => Verdict::Misplaced,
                (false, false) => Verdict::Cyclops(top),
            }
        } else if hints.interleaved >= 0.5 || hints.together.is_some_and(|t| t < 0.6) {
            Verdict::Interleaved
        } else if least < 1.0 - MOST && (blocks || c(busiest) >= MOST) {
            Verdict::Local
        } else if least >= 0.5 {
            Verdict::Misplaced
        } else {
            Verdict::Spread
        };
        let (remote, distance) = match verdict {
            Verdict::Idle => (0.0, 10.0),
            Verdict::Local if blocks => {
                let far = if uniform > 0.0 { (mean() - 10.0 * (1.0 - uniform)) / uniform } else { 10.0 };
                (least, 10.0 * (1.0 - least) + least * far)
            }
            _ => (uniform, mean()),
        };
        Placement { memory, cpu, verdict, remote, least, distance }
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.values().sum()
    }

    /// CPU-seconds.
    pub fn seconds(&self) -> f64 {
        // An empty sum of floats is -0.
        self.cpu.values().fold(0.0, |sum, s| sum + s)
    }

    /// CPU-seconds whose accesses are likely remote: what ranks placements.
    pub fn cost(&self) -> f64 {
        self.seconds() * self.remote
    }

    /// The share of the memory on a node.
    pub fn memory_share(&self, node: u32) -> f64 {
        self.memory.get(&node).map_or(0.0, |b| *b as f64 / (self.bytes() as f64).max(1.0))
    }

    /// The share of the CPU time on a node.
    pub fn cpu_share(&self, node: u32) -> f64 {
        self.cpu.get(&node).map_or(0.0, |s| s / self.seconds().max(f64::MIN_POSITIVE))
    }

    /// The node with most of the memory.
    pub fn eye(&self) -> Option<u32> {
        self.memory.iter().max_by_key(|(_, b)| **b).map(|(n, _)| *n)
    }

    /// Nodes its threads ran on for at least 1 % of the time.
    pub fn ran_on(&self) -> Vec<u32> {
        self.cpu.keys().copied().filter(|&n| self.cpu_share(n) >= 0.01).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(memory: &[u64], cpu: &[f64], hints: Hints) -> Placement {
        let by = |n: usize| n as u32;
        let memory = memory.iter().enumerate().filter(|(_, b)| **b > 0).map(|(n, b)| (by(n), *b << 20));
        let cpu = cpu.iter().enumerate().filter(|(_, s)| **s > 0.0).map(|(n, s)| (by(n), *s));
        Placement::judge(memory.collect(), cpu.collect(), hints, &Distances::default())
    }

    #[test]
    fn each_verdict() {
        let none = Hints::default();
        let blocks = Hints { together: Some(0.99), ..none };
        let cases = [
            (judge(&[0, 0, 0, 97], &[1.0, 1.0, 1.0, 1.0], none), Verdict::Cyclops(3), 0.75),
            (judge(&[97, 3, 0, 0], &[4.0, 0.0, 0.0, 0.0], none), Verdict::Local, 0.03),
            (judge(&[97, 0, 0, 0], &[0.0, 4.0, 0.0, 0.0], none), Verdict::Misplaced, 1.0),
            (
                judge(&[10; 4], &[1.0; 4], Hints { interleaved: 1.0, together: Some(0.0) }),
                Verdict::Interleaved,
                0.75,
            ),
            (judge(&[10; 4], &[1.0; 4], Hints { together: Some(0.1), ..none }), Verdict::Interleaved, 0.75),
            (judge(&[10; 4], &[1.0; 4], blocks), Verdict::Local, 0.0),
            (judge(&[10; 4], &[1.0; 4], none), Verdict::Spread, 0.75),
            (judge(&[10, 10, 0, 0], &[0.0, 0.0, 1.0, 1.0], blocks), Verdict::Misplaced, 1.0),
            (judge(&[10; 4], &[0.0; 4], none), Verdict::Idle, 0.0),
            (judge(&[0; 4], &[1.0; 4], none), Verdict::Idle, 0.0),
        ];
        for (got, verdict, remote) in cases {
            assert_eq!(got.verdict, verdict, "{got:?}");
            assert!((got.remote - remote).abs() < 1e-9, "{got:?}");
        }
    }

    #[test]
    fn distance_is_weighed() {
        let far = Distances(BTreeMap::from([((0, 1), 22.0), ((1, 0), 22.0), ((0, 0), 10.0), ((1, 1), 10.0)]));
        let p = Placement::judge(
            BTreeMap::from([(0, 100)]),
            BTreeMap::from([(0, 1.0), (1, 1.0)]),
            Hints::default(),
            &far,
        );
        assert_eq!((p.verdict, p.remote, p.distance), (Verdict::Cyclops(0), 0.5, 16.0));
        assert_eq!((p.eye(), p.ran_on()), (Some(0), vec![0, 1]));
    }
}

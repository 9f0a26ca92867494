//! Laws of a curve: what a program's throughput is at N, given the machine.
//!
//! All laws use C, the cores' worth of work that N threads get, with second strands, turbo and the number of CPUs. The
//! **knee** is 1/X = Z/C + S: Z is the work of a unit, and S the part that passes through one place after another: a
//! serial part and line transfers. The mean distance of a transfer grows with the machine in use, and each further
//! waiter makes a transfer longer. The **USL** is Gunther's, over C instead of N: 1/X = Z (1 + a (C - 1) + b C (C - 1))
//! / C. The **power** law leaves open how S grows and how sharply it takes over: (1/X)^s = (Z/C)^s + (S C^b D^d)^s,
//! with D the mean distance of a transfer. Each goes astray where the others do not: the first where a collapse
//! outgrows distances and waiters, the second where a machine's packages part, the third where few points are fitted.

use serde::{Deserialize, Serialize};

use ncpu_foresee::hardware::{Hardware, Order};

/// The most parameters a law has.
pub const MOST: usize = 8;

/// Parameters: logarithms, so that each may be any number. A law with fewer uses the first.
pub type Parameters = [f64; MOST];

/// A law.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// Work, and what passes through one place after another.
    Knee,
    /// The Universal Scalability Law over the cores that are had.
    Usl,
    /// Work, and what passes through one place after another and grows as a power of the cores.
    Power,
}

impl Law {
    /// All of them.
    pub const ALL: [Law; 3] = [Law::Knee, Law::Usl, Law::Power];

    /// Its parameters, and their weak prior for any program before a curve is seen: mean and standard deviation. The
    /// first is the work of a unit; the last is the spread of measured ln X about the law.
    pub fn parameters(self) -> &'static [(&'static str, f64, f64)] {
        match self {
            Law::Knee => &[
                ("work", 0.0, 0.5),
                ("serial", -4.0, 2.0),
                ("transfers", -3.5, 2.0),
                ("waiters", -2.5, 2.0),
                ("strands", -1.0, 1.0),
                ("turbo", 0.5, 1.5),
                ("noise", -3.2, 0.6),
            ],
            Law::Usl => &[
                ("work", 0.0, 0.5),
                ("contention", -3.5, 2.0),
                ("coherency", -7.0, 2.5),
                ("strands", -1.0, 1.0),
                ("turbo", 0.5, 1.5),
                ("noise", -3.2, 0.6),
            ],
            Law::Power => &[
                ("work", 0.0, 0.5),
                ("through", -3.0, 1.5),
                ("growth", 0.2, 0.5),
                ("distance", 0.0, 1.5),
                ("strands", -1.0, 1.0),
                ("turbo", 0.5, 1.5),
                ("sharpness", 0.0, 0.5),
                ("noise", -3.2, 0.6),
            ],
        }
    }

    /// How many parameters it has.
    pub fn size(self) -> usize {
        self.parameters().len()
    }

    /// Throughput.
    pub fn throughput(self, p: &Parameters, at: &At) -> f64 {
        let z = p[0].exp();
        match self {
            Law::Knee => {
                let c = capacity(p[4], p[5], at);
                1.0 / (z / c + z * p[1].exp() * at.threads() / c + z * transfers(p[2], p[3], at))
            }
            Law::Usl => {
                let c = capacity(p[3], p[4], at);
                let others = (c - 1.0).max(0.0);
                c / (z * (1.0 + p[1].exp() * others + p[2].exp() * others * c))
            }
            Law::Power => {
                let c = capacity(p[4], p[5], at);
                let sharp = p[6].exp();
                let (apart, through) =
                    (-c.ln(), p[1] + p[2] * c.ln() + logistic(p[3]) * at.distance.max(1.0).ln());
                // The longer of both, and a little more where they are near each other.
                let (more, less) = (apart.max(through), apart.min(through));
                (-p[0] - more - (sharp * (less - more)).exp().ln_1p() / sharp).exp()
            }
        }
    }

    /// Standard deviation of a measured ln X about the law.
    pub fn noise(self, p: &Parameters) -> f64 {
        p[self.size() - 1].exp()
    }
}

/// The time of line transfers in a unit's work, with the part that waiters add: one waiter for each other thread, at
/// most one per core.
fn transfers(transfers: f64, waiters: f64, at: &At) -> f64 {
    let others = (at.threads() - 1.0).max(0.0);
    transfers.exp() * (at.distance * others / at.threads() + waiters.exp() * others.min(at.cores))
}

/// Cores' worth of work: second strands add a part of one, and cores slow down as their package fills.
fn capacity(strands: f64, turbo: f64, at: &At) -> f64 {
    let speed = 1.0 - (0.5 - 0.5 * logistic(turbo)) * at.filled;
    speed * (at.cores + logistic(strands) * at.strands)
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A machine with N threads on it, as a law sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// N.
    pub n: f64,
    /// Cores with a thread.
    pub cores: f64,
    /// Strands beyond a core's first with a thread.
    pub strands: f64,
    /// Share of the packages' cores at work, of those packages in use.
    pub filled: f64,
    /// Packages with a thread.
    pub packages: f64,
    /// Mean cost of a line's transfer between two of the CPUs, over that within a cluster.
    pub distance: f64,
}

impl At {
    /// Looks at a machine with `n` threads, each of which keeps `busy` CPUs busy.
    pub fn of(hardware: &Hardware, order: Order, n: f64, busy: f64) -> At {
        let cpus = hardware.shape.cpus();
        let used = ((n * busy).ceil() as usize).clamp(1, cpus);
        let places = hardware.places(used, order);
        let mut cores: Vec<u32> = places.iter().map(|p| p.core).collect();
        cores.sort_unstable();
        cores.dedup();
        let packages: std::collections::BTreeSet<u32> = places.iter().map(|p| p.package).collect();
        // Between whole numbers of CPUs; N sets how many are used.
        let part = (n * busy).min(cpus as f64) / used as f64;
        At {
            n,
            cores: cores.len() as f64 * part,
            strands: (used - cores.len()) as f64 * part,
            filled: cores.len() as f64
                / (packages.len() as f64 * f64::from(hardware.shape.cores_a_package())),
            packages: packages.len() as f64,
            distance: hardware.mean_move_ns(&places) / hardware.transfer.cluster.max(1e-9),
        }
    }
}

impl At {
    /// Threads at work.
    pub fn threads(&self) -> f64 {
        self.cores + self.strands
    }
}

/// A change of the one thing that all pass through, as the law can express it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// None.
    Nothing,
    /// The lock goes. All threads still write the data it guarded: half of the line transfers stay, and a tenth of
    /// the serial part.
    Removed,
    /// Each waiter spins on a line of its own: a waiter more costs the others nothing.
    Queue,
    /// The same, and it stays in a package while a thread there waits: of k threads in each package, one transfer of k
    /// leaves it.
    Numa,
    /// So many locks instead of one: each has its part of the traffic.
    Split(f64),
}

impl std::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["nothing"] => Ok(Change::Nothing),
            ["lock", "removed"] => Ok(Change::Removed),
            ["lock", "qspin"] => Ok(Change::Queue),
            ["lock", "numa"] => Ok(Change::Numa),
            ["lock", "split", k] => match k.parse::<f64>() {
                Ok(k) if k >= 1.0 => Ok(Change::Split(k)),
                _ => Err(format!("`{k}`: a lock is split 1 or more ways")),
            },
            _ => Err(format!(
                "fix `{text}`: there are nothing, lock removed, lock qspin, lock numa, lock split K"
            )),
        }
    }
}

/// Other bottlenecks, which a change does not touch: a curve shows the time in bottlenecks, but not in which of
/// them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// Share of the serial part and of the transfers that stays.
    pub through: f64,
    /// Share of what waiters add that stays. Of a lock that is gone nobody waits.
    pub waiters: f64,
}

impl Rest {
    /// No other bottleneck: the lock is the only one.
    pub const NONE: Rest = Rest { through: 0.0, waiters: 0.0 };
}

/// Throughput with a change over that without, by [`Law::Knee`].
pub fn ratio(p: &Parameters, at: &At, change: Change, rest: Rest) -> f64 {
    let c = capacity(p[4], p[5], at);
    let serial = p[1].exp() * at.threads() / c;
    let moves = transfers(p[2], f64::NEG_INFINITY, at);
    let waiters = transfers(p[2], p[3], at) - moves;
    let (mut waiters_rest, each) = (rest.waiters, (at.threads() / at.packages).max(1.0));
    let (serial_after, moves_after, waiters_after) = match change {
        Change::Nothing => return 1.0,
        Change::Removed => {
            waiters_rest = 0.0;
            (0.1 * serial, 0.5 * moves, 0.0)
        }
        Change::Queue => (serial, moves, 0.0),
        Change::Numa => {
            let near = (1.0 / at.distance.max(1.0)) * (1.0 - 1.0 / each) + 1.0 / each;
            (serial, moves * near, 0.0)
        }
        Change::Split(k) => (serial / k, moves / k, waiters / (k * k)),
    };
    let left = |before: f64, after: f64, rest: f64| after + rest * (before - after);
    let after = left(serial, serial_after, rest.through)
        + left(moves, moves_after, rest.through)
        + left(waiters, waiters_after, waiters_rest);
    (1.0 / c + serial + moves + waiters) / (1.0 / c + after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: usize) -> At {
        At::of(&Hardware::of_shape("2x16x2".parse().unwrap()), Order::Spread, n as f64, 1.0)
    }

    #[test]
    fn without_anything_shared_throughput_is_the_cores() {
        // No serial part, transfers or waiters; strands add nothing and turbo takes nothing.
        let none = f64::NEG_INFINITY;
        for (law, p) in [
            (Law::Knee, [0.0, none, none, none, none, f64::INFINITY, 0.0, 0.0]),
            (Law::Usl, [0.0, none, none, none, f64::INFINITY, 0.0, 0.0, 0.0]),
            (Law::Power, [0.0, none, 0.2, 0.0, none, f64::INFINITY, 0.0, 0.0]),
        ] {
            for (n, x) in [(1, 1.0), (2, 2.0), (32, 32.0), (64, 32.0)] {
                assert!((law.throughput(&p, &at(n)) / x - 1.0).abs() < 1e-9, "{law:?} {n}");
            }
        }
    }

    #[test]
    fn the_power_law_is_sharp_or_soft() {
        // Where both are the same, a soft knee has half of what a sharp one has.
        let p = |sharp: f64| [0.0, -(16f64.ln()), 0.0, 0.0, -1.0, f64::INFINITY, sharp, 0.0];
        let there = At::of(&Hardware::of_shape("1x64".parse().unwrap()), Order::Spread, 16.0, 1.0);
        assert!((Law::Power.throughput(&p(0.0), &there) / 8.0 - 1.0).abs() < 1e-9);
        assert!((Law::Power.throughput(&p(9.0), &there) / 16.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn changes_help_no_more_than_what_they_leave() {
        let p: Parameters = [0.0, -2.0, -3.0, -2.0, -1.0, 0.5, -3.0, 0.0];
        let there = at(64);
        let with = |change, through, waiters| ratio(&p, &there, change, Rest { through, waiters });
        let split = with(Change::Split(64.0), 0.0, 0.0);
        assert!(split > 2.0, "{split}");
        assert!((with(Change::Split(64.0), 1.0, 1.0) - 1.0).abs() < 1e-9);
        let half = with(Change::Split(64.0), 0.5, 0.5);
        assert!(half > 1.0 && half < split, "{half}");
        assert_eq!(with(Change::Nothing, 0.0, 0.0), 1.0);
        // Waiters of a lock that is gone do not stay.
        assert!(with(Change::Removed, 1.0, 1.0) > 1.1);
        let (queue, numa) = (with(Change::Queue, 0.0, 0.0), with(Change::Numa, 0.0, 0.0));
        assert!(numa > queue && queue >= 1.0);
        // With a thread in each package there is nobody near to hand the lock to.
        let apart = at(2);
        let same = |change| ratio(&p, &apart, change, Rest::NONE);
        assert!((same(Change::Numa) - same(Change::Queue)).abs() < 1e-9);
    }
}

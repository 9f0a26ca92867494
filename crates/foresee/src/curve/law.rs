//! The law of a curve: what a program's throughput is at N, given the machine.
//!
//! 1/X(N) = ((Z(N)/C(N))^p + S(N)^p)^(1/p). C is how many cores' worth of work N threads get, with second strands, turbo
//! and the number of CPUs; Z is the work of a unit, which grows where threads leave the first package; S is what passes
//! through one place after another: a serial part, line transfers whose mean distance grows with the machine in use,
//! and what each further waiter adds. p says how sharp the knee is: 1 is many resources, each a little busy; the larger,
//! the more it is one.

use crate::hardware::{Hardware, Order};

/// How many parameters the law has.
pub const PARAMETERS: usize = 10;

/// Names of the parameters, in order.
pub const NAMES: [&str; PARAMETERS] = [
    "work",
    "serial",
    "transfers",
    "waiters",
    "remote work",
    "strands",
    "turbo",
    "sharpness",
    "noise",
    "crowding",
];

/// Parameters: logarithms, so that each may be any number.
pub type Parameters = [f64; PARAMETERS];

/// What the law needs to know of a machine with N threads on it.
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
    /// Mean cost of a line's transfer between two of the CPUs, over that within a cluster.
    pub distance: f64,
    /// Share of other CPUs' memory and lines that is in other packages.
    pub remote: f64,
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
        let mut packages = std::collections::BTreeMap::<u32, f64>::new();
        for p in &places {
            *packages.entry(p.package).or_default() += 1.0;
        }
        let same: f64 = packages.values().map(|k| k * k).sum::<f64>() / (used * used) as f64;
        // Between whole CPUs, of which there are as many as N says.
        let part = (n * busy).min(cpus as f64) / used as f64;
        At {
            n,
            cores: cores.len() as f64 * part,
            strands: (used - cores.len()) as f64 * part,
            filled: cores.len() as f64
                / (packages.len() as f64 * f64::from(hardware.shape.cores_a_package())),
            distance: hardware.mean_move_ns(&places) / hardware.transfer.cluster.max(1e-9),
            remote: 1.0 - same,
        }
    }
}

/// Throughput by the law.
pub fn throughput(p: &Parameters, at: &At) -> f64 {
    let z = p[0].exp();
    let (serial, transfers, waiters) = (z * p[1].exp(), z * p[2].exp(), z * p[3].exp());
    let speed = 1.0 - (1.0 - turbo(p)) * at.filled;
    let capacity = speed * (at.cores + (strands(p) - 1.0) * at.strands);
    let threads = at.cores + at.strands;
    let slow = threads / capacity;
    let work = z * (1.0 + p[4].exp() * at.remote) / capacity;
    let others = (threads - 1.0).max(0.0);
    let through = serial * slow
        + transfers * at.distance * (others / threads)
        + waiters * others.min(at.cores).powf(crowding(p));
    let sharp = 1.0 + p[7].exp();
    // Scaled by the larger, lest a power overflow.
    let most = work.max(through);
    1.0 / (most * ((work / most).powf(sharp) + (through / most).powf(sharp)).powf(1.0 / sharp))
}

/// A change of the one thing that all pass through, as the law can express it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// None.
    Nothing,
    /// The lock goes. What it guarded is still written by all: half of the line transfers stay, and a tenth of the
    /// serial part.
    Removed,
    /// Each waiter spins on a line of its own: a waiter more costs the others nothing.
    Queue,
    /// The same, and it stays in a package for long: a transfer is nearly always one within the package.
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

/// Throughput with a change over that without.
pub fn ratio(p: &Parameters, at: &At, change: Change) -> f64 {
    let mut q = *p;
    let mut there = *at;
    match change {
        Change::Nothing => {}
        Change::Removed => {
            q[1] += 0.1f64.ln();
            q[2] += 0.5f64.ln();
            q[3] = f64::NEG_INFINITY;
        }
        Change::Queue => q[3] = f64::NEG_INFINITY,
        Change::Numa => {
            q[3] = f64::NEG_INFINITY;
            there.distance = there.distance.min(1.0);
        }
        Change::Split(k) => {
            for x in &mut q[1..4] {
                *x -= k.ln();
            }
        }
    }
    throughput(&q, &there) / throughput(p, at)
}

/// What a core's strands do over one.
pub fn strands(p: &Parameters) -> f64 {
    1.0 + logistic(p[5])
}

/// Speed of a core with its package full, over alone.
pub fn turbo(p: &Parameters) -> f64 {
    0.5 + 0.5 * logistic(p[6])
}

/// The power of the number of waiters that their cost goes with.
pub fn crowding(p: &Parameters) -> f64 {
    1.2 * logistic(p[9])
}

/// Standard deviation of a measured ln X about the law.
pub fn noise(p: &Parameters) -> f64 {
    p[8].exp()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

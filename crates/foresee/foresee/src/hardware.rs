//! The machine that is simulated: which CPUs share a core, a cluster, a package, and what distance costs.

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its core, counted over the machine.
    pub core: u32,
    /// Its cluster: the cores that share a last-level cache.
    pub cluster: u32,
    /// Its package.
    pub package: u32,
}

/// The cost of moving a cache line, one way, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Between the strands of a core.
    pub sibling: f64,
    /// Between cores that share a last-level cache.
    pub cluster: f64,
    /// Between clusters of a package.
    pub package: f64,
    /// Between packages that are neighbours.
    pub remote: f64,
    /// More for each further hop between packages.
    pub hop: f64,
}

/// Latency and bandwidth of the memory of a package.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Idle latency to the package's own memory, ns.
    pub local_ns: f64,
    /// Idle latency to another package's, ns.
    pub remote_ns: f64,
    /// Bandwidth of a package's controllers, bytes a nanosecond (GB/s).
    pub bandwidth: f64,
}

/// The time that a bank of memory is busy with a line, ns: the row cycle time of DDR3 to DDR5. A package is taken to
/// have the number of banks that its bandwidth needs: latency then rises with load about as Intel's Memory Latency
/// Checker has measured it.
const BANK_NS: f64 = 46.0;

impl Memory {
    /// How many banks serve a package.
    pub(crate) fn banks(&self) -> usize {
        (self.bandwidth * BANK_NS / 64.0).round().max(1.0) as usize
    }
}

/// How many packages, clusters, cores and strands a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Packages.
    pub packages: u32,
    /// Clusters (last-level caches) of a package.
    pub clusters: u32,
    /// Cores of a cluster.
    pub cores: u32,
    /// Strands of a core.
    pub strands: u32,
}

/// A shape that no machine has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Not numbers between crosses.
    #[error(
        "unknown machine `{0}`; expected a number of CPUs, PACKAGESxCORES or PACKAGESxCORESxSTRANDS, as in 8x64x2, a name of `ncpu foresee --machines`, a directory that holds a topology tree, or a file MACHINE.toml"
    )]
    Form(String),
    /// A count of 0.
    #[error("`{0}`: a machine has at least one package, one core and one strand")]
    Zero(String),
    /// More CPUs than are simulated.
    #[error("`{asked}`: {cpus} CPUs are more than the {most} that can be simulated")]
    Large {
        /// The shape as given.
        asked: String,
        /// Its CPUs.
        cpus: u64,
        /// The most there may be.
        most: u64,
    },
}

/// The most CPUs a simulated machine may have.
pub const MOST_CPUS: u64 = 65_536;

impl std::str::FromStr for Shape {
    type Err = ShapeError;

    /// `PACKAGESxCORES[xSTRANDS]` or, with clusters, `PACKAGESxCLUSTERSxCORESxSTRANDS`; cores are those of a package in
    /// the first, of a cluster in the second. A number alone is that of the cores of one package.
    fn from_str(text: &str) -> Result<Shape, ShapeError> {
        let numbers: Option<Vec<u64>> = text.split('x').map(|n| n.parse().ok()).collect();
        let (packages, clusters, cores, strands) = match numbers.as_deref() {
            Some([c]) => (1, 1, *c, 1),
            Some([p, c]) => (*p, 1, *c, 1),
            Some([p, c, s]) => (*p, 1, *c, *s),
            Some([p, l, c, s]) => (*p, *l, *c, *s),
            _ => return Err(ShapeError::Form(text.into())),
        };
        if [packages, clusters, cores, strands].contains(&0) {
            return Err(ShapeError::Zero(text.into()));
        }
        let cpus = [clusters, cores, strands].into_iter().fold(packages, u64::saturating_mul);
        if cpus > MOST_CPUS {
            return Err(ShapeError::Large { asked: text.into(), cpus, most: MOST_CPUS });
        }
        // Each is at most the number of CPUs.
        let small = |n: u64| n as u32;
        Ok(Shape {
            packages: small(packages),
            clusters: small(clusters),
            cores: small(cores),
            strands: small(strands),
        })
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.clusters {
            1 => write!(f, "{}x{}x{}", self.packages, self.cores, self.strands),
            clusters => write!(f, "{}x{clusters}x{}x{}", self.packages, self.cores, self.strands),
        }
    }
}

impl Shape {
    /// CPUs.
    pub fn cpus(&self) -> usize {
        (self.packages * self.clusters * self.cores * self.strands) as usize
    }

    /// Cores of a package.
    pub fn cores_a_package(&self) -> u32 {
        self.clusters * self.cores
    }
}

/// Which CPUs a program takes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A core of each package in turn, second strands last.
    #[default]
    Spread,
    /// The first package's cores, then its second strands, then the next package.
    Pack,
    /// Cores of the first package, then of the next; second strands last of all.
    Fill,
}

/// A machine to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Line transfers.
    pub transfer: Transfer,
    /// A line that CPUs of a last-level cache wait to read is fetched once for all of them. Where it is not, each CPU fetches it
    /// from the one that wrote it, one after another.
    pub shared_reads: bool,
    /// Memory.
    pub memory: Memory,
    /// Speed of all strands of a core together over that of one alone.
    pub smt: f64,
    /// Speed of a core when all of its package work, over its speed alone.
    pub turbo: f64,
    /// Speed of a core over that of the machine the program's times were taken on.
    pub speed: f64,
    /// Switching threads, ns.
    pub switch_ns: f64,
    /// Waking a thread on another CPU, ns, from the waker's call to the first instruction.
    pub wake_ns: f64,
    /// How long a CPU that idles takes until it runs what another CPU woke, ns: long where a hypervisor must first give it
    /// one. It counts as idle meanwhile.
    pub halt_ns: f64,
    /// A contended spinlock reaches another CPU this much later than a line's transfer takes, ns: the waiter's way out of the
    /// queue, probes that observe it there, and virtual CPUs that the hypervisor has put to sleep.
    pub handover_ns: f64,
    /// Sending an interrupt to one CPU, ns.
    pub ipi_send_ns: f64,
    /// Handling it there, ns.
    pub ipi_handle_ns: f64,
    /// Where its figures are from, and what was taken from a machine of its kind.
    pub source: String,
}

impl Hardware {
    /// A machine of a shape with no other figure known: those of a current two-package server.
    pub fn of_shape(shape: Shape) -> Hardware {
        Hardware {
            name: shape.to_string(),
            shape,
            transfer: Transfer { sibling: 8.0, cluster: 47.0, package: 60.0, remote: 110.0, hop: 60.0 },
            shared_reads: true,
            memory: Memory { local_ns: 90.0, remote_ns: 140.0, bandwidth: 100.0 },
            smt: 1.25,
            turbo: 0.85,
            speed: 1.0,
            switch_ns: 1200.0,
            wake_ns: 3000.0,
            halt_ns: 0.0,
            handover_ns: 0.0,
            ipi_send_ns: 150.0,
            ipi_handle_ns: 700.0,
            source: "typical of two-package servers".into(),
        }
    }

    /// A machine on which nothing but the program's own times takes time.
    pub fn ideal(cpus: u32) -> Hardware {
        let shape = Shape { packages: 1, clusters: 1, cores: cpus, strands: 1 };
        Hardware {
            transfer: Transfer { sibling: 0.0, cluster: 0.0, package: 0.0, remote: 0.0, hop: 0.0 },
            smt: 1.0,
            turbo: 1.0,
            switch_ns: 0.0,
            wake_ns: 0.0,
            ipi_send_ns: 0.0,
            ipi_handle_ns: 0.0,
            source: "nothing costs anything".into(),
            ..Hardware::of_shape(shape)
        }
    }

    /// The CPUs that a program on `n` of them has.
    pub fn places(&self, n: usize, order: Order) -> Vec<Place> {
        let s = self.shape;
        let mut all: Vec<(u64, Place)> = Vec::with_capacity(s.cpus());
        for package in 0..s.packages {
            for cluster in 0..s.clusters {
                for core in 0..s.cores {
                    for strand in 0..s.strands {
                        let in_package = u64::from(cluster * s.cores + core);
                        let (p, t) = (u64::from(package), u64::from(strand));
                        let (cores, packages) = (u64::from(s.cores_a_package()), u64::from(s.packages));
                        // Clusters of a package in turn too, as a scheduler spreads.
                        let turn = u64::from(core * s.clusters + cluster);
                        let key = match order {
                            Order::Spread => (t * cores + turn) * packages + p,
                            Order::Pack => (p * u64::from(s.strands) + t) * cores + in_package,
                            Order::Fill => (t * packages + p) * cores + in_package,
                        };
                        let cluster = package * s.clusters + cluster;
                        all.push((key, Place { core: cluster * s.cores + core, cluster, package }));
                    }
                }
            }
        }
        all.sort_by_key(|(key, _)| *key);
        all.truncate(n);
        all.into_iter().map(|(_, place)| place).collect()
    }

    /// Whether the first `n` CPUs use the same number of strands of each core in two orders.
    pub fn same_places(&self, n: usize, a: Order, b: Order) -> bool {
        let cores = |order| {
            let mut cores: Vec<u32> = self.places(n, order).iter().map(|p| p.core).collect();
            cores.sort_unstable();
            cores
        };
        cores(a) == cores(b)
    }

    /// Hops between two packages: all are neighbours up to four; beyond, packages stand in groups of four, as the
    /// boards of large machines do, and each group further is a hop more.
    pub fn hops(&self, a: u32, b: u32) -> u32 {
        if a == b { 0 } else { 1 + u32::from(a / 4 != b / 4) }
    }

    /// The cost of moving a line from one CPU's cache to another's, ns.
    pub fn move_ns(&self, from: Place, to: Place) -> f64 {
        let t = &self.transfer;
        if from.core == to.core {
            t.sibling
        } else if from.cluster == to.cluster {
            t.cluster
        } else if from.package == to.package {
            t.package
        } else {
            t.remote + t.hop * f64::from(self.hops(from.package, to.package) - 1)
        }
    }

    /// A CPU of a cluster, no matter which of its cores.
    pub fn place_in(&self, cluster: u32) -> Place {
        Place { core: u32::MAX, cluster, package: cluster / self.shape.clusters }
    }

    /// Mean cost of moving a line between two different CPUs of these, ns.
    pub fn mean_move_ns(&self, places: &[Place]) -> f64 {
        let n = places.len();
        if n < 2 {
            return 0.0;
        }
        // Counted by package, cluster and core instead of by pair: the sets are few, the pairs many.
        let mut packages = std::collections::BTreeMap::<u32, f64>::new();
        let mut clusters = std::collections::BTreeMap::<u32, f64>::new();
        let mut cores = std::collections::BTreeMap::<u32, f64>::new();
        for p in places {
            *packages.entry(p.package).or_default() += 1.0;
            *clusters.entry(p.cluster).or_default() += 1.0;
            *cores.entry(p.core).or_default() += 1.0;
        }
        let same = |m: &std::collections::BTreeMap<u32, f64>| m.values().map(|k| k * k).sum::<f64>();
        let (in_package, in_cluster, in_core) = (same(&packages), same(&clusters), same(&cores));
        let t = &self.transfer;
        let mut sum = (in_core - n as f64) * t.sibling
            + (in_cluster - in_core) * t.cluster
            + (in_package - in_cluster) * t.package;
        for (a, x) in &packages {
            for (b, y) in packages.iter().filter(|(b, _)| *b != a) {
                sum += x * y * (t.remote + t.hop * f64::from(self.hops(*a, *b) - 1));
            }
        }
        sum / (n * (n - 1)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let shape: Shape = "8x64x2".parse().unwrap();
        assert_eq!((shape.cpus(), shape.to_string().as_str()), (1024, "8x64x2"));
        assert_eq!("2x8x8x2".parse::<Shape>().unwrap().cpus(), 256);
        assert_eq!("8".parse::<Shape>().unwrap().to_string(), "1x8x1");
        for (text, expect) in [
            ("0x4", "at least one"),
            ("4x0x2", "at least one"),
            ("1000x1000", "1000000 CPUs are more than the 65536"),
            ("99999999999x99999999999", "more than"),
            ("8*64", "unknown machine"),
            ("8x-1", "unknown machine"),
            ("", "unknown machine"),
            ("1x1x1x1x1", "unknown machine"),
        ] {
            let told = text.parse::<Shape>().unwrap_err().to_string();
            assert!(told.contains(expect), "{text}: {told}");
        }
    }

    #[test]
    fn orders_take_each_cpu_once() {
        let machine = Hardware::of_shape("2x4x2".parse().unwrap());
        for order in [Order::Spread, Order::Pack, Order::Fill] {
            let places = machine.places(16, order);
            for core in 0..8 {
                assert_eq!(places.iter().filter(|p| p.core == core).count(), 2);
            }
        }
        let package = |order, n| machine.places(n, order).iter().map(|p| p.package).collect::<Vec<_>>();
        assert_eq!(package(Order::Spread, 4), [0, 1, 0, 1]);
        assert_eq!(package(Order::Pack, 9), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(package(Order::Fill, 9), [0, 0, 0, 0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn the_mean_of_transfers_is_that_over_pairs() {
        let machine = Hardware::of_shape("8x2x4x2".parse().unwrap());
        for (n, order) in [(2, Order::Spread), (7, Order::Pack), (100, Order::Fill), (128, Order::Spread)] {
            let places = machine.places(n, order);
            let mut sum = 0.0;
            for i in 0..n {
                for j in (0..n).filter(|j| *j != i) {
                    sum += machine.move_ns(places[i], places[j]);
                }
            }
            let mean = sum / (n * (n - 1)) as f64;
            assert!((machine.mean_move_ns(&places) / mean - 1.0).abs() < 1e-9);
        }
    }
}

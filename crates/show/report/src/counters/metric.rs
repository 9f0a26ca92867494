//! Metrics computed from several counts: pure functions of sums.

use ncpu_machine::events::{Role, Sources, Width};

/// A figure computed of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Instructions a cycle that a strand was not halted.
    Ipc,
    /// Share of the time the strands were not halted.
    Busy,
    /// Share of the issue slots of the elapsed time that instructions filled: `corestat`'s utilisation.
    Pipe,
    /// Share of branches mispredicted.
    BranchMisses,
    /// Share of LLC loads that missed.
    LlcMisses,
    /// LLC load misses in a thousand instructions.
    LlcPerKilo,
    /// Share of reads of memory that another node served.
    Remote,
    /// Share of cycles in page walks for loads.
    WalkLoad,
    /// For stores.
    WalkStore,
    /// For instructions.
    WalkCode,
    /// For all of them: `trapstat -T`'s time.
    Walk,
}

/// Properties of a machine that its figures are computed with.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Instructions a core can issue in a cycle.
    pub width: Width,
    /// Whether reads of local memory are counted together with the remote ones.
    pub local_is_all: bool,
    /// MHz to take for the frequency where it is not measured.
    pub mhz: Option<f64>,
    local: Option<&'static str>,
    remote: Option<&'static str>,
    walks: [Option<&'static str>; 3],
}

impl Facts {
    /// The facts of a machine.
    pub fn of(sources: &Sources, mhz: Option<f64>) -> Facts {
        Facts {
            width: sources.width(),
            local_is_all: sources.local_is_all(),
            mhz,
            local: sources.role(Role::MemoryLocal),
            remote: sources.role(Role::MemoryRemote),
            walks: [Role::WalkLoad, Role::WalkStore, Role::WalkCode].map(|role| sources.role(role)),
        }
    }

    /// The events of page walks.
    pub(super) fn walks(&self) -> impl Iterator<Item = &'static str> {
        self.walks.into_iter().flatten()
    }

    /// The events of reads of memory: local, remote.
    pub(super) fn memory(&self) -> impl Iterator<Item = &'static str> {
        [self.local, self.remote].into_iter().flatten()
    }
}

/// Counts put together, of whose figures are wanted.
pub trait Counts {
    /// An event's count by name; `None` where it was not counted or is not known.
    fn count(&self, event: &str) -> Option<f64>;
    /// CPU-seconds counted over, where that is of whole CPUs.
    fn cpu_seconds(&self) -> Option<f64>;
    /// Cores divided by strands: 0.5 where every core has two.
    fn cores_a_strand(&self) -> Option<f64>;
}

/// The events of the clocks by which the time is known in which a strand was not halted.
pub(super) const CLOCKS: [&str; 2] = ["msr/mperf/", "msr/tsc/"];

impl Metric {
    /// All of them, in the order of columns.
    pub(super) const ALL: [Metric; 11] = {
        use Metric::*;
        [Busy, Ipc, Pipe, BranchMisses, LlcMisses, LlcPerKilo, Remote, WalkLoad, WalkStore, WalkCode, Walk]
    };

    /// Column name, whether it is per cent, and what it says.
    pub(super) fn describe(self) -> (&'static str, bool, &'static str) {
        match self {
            Metric::Ipc => ("IPC", false, "instructions a cycle not halted"),
            Metric::Busy => ("busy", true, "time the strands were not halted"),
            Metric::Pipe => ("pipe", true, "issue slots of the elapsed time that instructions filled"),
            Metric::BranchMisses => ("brmiss", true, "branches mispredicted"),
            Metric::LlcMisses => {
                ("llcmiss", true, "loads that missed the last-level cache, of those that reached it")
            }
            Metric::LlcPerKilo => ("llc/ki", false, "last-level cache load misses in 1000 instructions"),
            Metric::Remote => ("remote", true, "reads of memory that another node served"),
            Metric::WalkLoad => ("wload", true, "cycles in page walks for loads"),
            Metric::WalkStore => ("wstore", true, "cycles in page walks for stores"),
            Metric::WalkCode => ("wcode", true, "cycles in page walks for instructions"),
            Metric::Walk => ("walk", true, "cycles in page walks: the time TLB misses take"),
        }
    }

    /// The events it needs; `None` where this machine has none for it.
    pub(super) fn needs(self, facts: &Facts) -> Option<Vec<&'static str>> {
        let walk = |i: usize| Some(vec![facts.walks[i]?, "cycles"]);
        Some(match self {
            Metric::Ipc => vec!["instructions", "cycles"],
            Metric::Busy => CLOCKS.to_vec(),
            Metric::Pipe => vec!["instructions", "cycles"],
            Metric::BranchMisses => vec!["branch-misses", "branches"],
            Metric::LlcMisses => vec!["LLC-load-misses", "LLC-loads"],
            Metric::LlcPerKilo => vec!["LLC-load-misses", "instructions"],
            Metric::Remote => vec![facts.local?, facts.remote?],
            Metric::WalkLoad => walk(0)?,
            Metric::WalkStore => walk(1)?,
            Metric::WalkCode => walk(2)?,
            Metric::Walk => facts.walks().chain(["cycles"]).collect::<Vec<_>>(),
        })
        .filter(|needs| self != Metric::Walk || needs.len() > 1)
    }

    /// The figure: a ratio, or per cent.
    pub fn value(self, counts: &dyn Counts, facts: &Facts) -> Option<f64> {
        let ratio = |part: &str, whole: &str| over(counts.count(part)?, counts.count(whole)?);
        let percent = |part: &str, whole: &str| ratio(part, whole).map(|r| 100.0 * r);
        match self {
            Metric::Ipc => ratio("instructions", "cycles"),
            Metric::Busy => percent(CLOCKS[0], CLOCKS[1]),
            Metric::Pipe => pipe(counts, facts),
            Metric::BranchMisses => percent("branch-misses", "branches"),
            Metric::LlcMisses => percent("LLC-load-misses", "LLC-loads"),
            Metric::LlcPerKilo => ratio("LLC-load-misses", "instructions").map(|r| 1000.0 * r),
            Metric::Remote => {
                let (local, remote) = (counts.count(facts.local?)?, counts.count(facts.remote?)?);
                let all = if facts.local_is_all { local } else { local + remote };
                over(remote, all).map(|r| 100.0 * r)
            }
            Metric::WalkLoad => percent(facts.walks[0]?, "cycles"),
            Metric::WalkStore => percent(facts.walks[1]?, "cycles"),
            Metric::WalkCode => percent(facts.walks[2]?, "cycles"),
            Metric::Walk => {
                let walks: Option<f64> = facts.walks().map(|w| counts.count(w)).sum();
                over(walks?, counts.count("cycles")?).map(|r| 100.0 * r)
            }
        }
    }
}

/// Instructions over the issue slots of the elapsed time: what the cores could have issued had no strand
/// been halted, at the frequency they ran at. That frequency is cycles over the time not halted, which
/// `mperf` counts in ticks of the TSC; without it, the rated one stands in. The strands of a core share its
/// slots.
fn pipe(counts: &dyn Counts, facts: &Facts) -> Option<f64> {
    let clocks = || over(counts.count("cycles")? * counts.count(CLOCKS[1])?, counts.count(CLOCKS[0])?);
    let elapsed = clocks().or_else(|| Some(counts.cpu_seconds()? * facts.mhz? * 1e6))?;
    let slots = elapsed * counts.cores_a_strand()? * f64::from(facts.width.slots);
    over(counts.count("instructions")?, slots).map(|r| 100.0 * r)
}

fn over(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made(&'static [(&'static str, f64)], Option<f64>, Option<f64>);

    impl Counts for Made {
        fn count(&self, event: &str) -> Option<f64> {
            self.0.iter().find(|(name, _)| *name == event).map(|(_, n)| *n)
        }
        fn cpu_seconds(&self) -> Option<f64> {
            self.1
        }
        fn cores_a_strand(&self) -> Option<f64> {
            self.2
        }
    }

    fn facts() -> Facts {
        Facts {
            width: Width { slots: 4, from: "test".into() },
            local_is_all: false,
            mhz: None,
            local: Some("near"),
            remote: Some("far"),
            walks: [Some("wl"), Some("ws"), None],
        }
    }

    #[test]
    fn ratios() {
        let made = Made(
            &[
                ("instructions", 3000.0),
                ("cycles", 2000.0),
                ("LLC-loads", 50.0),
                ("LLC-load-misses", 10.0),
                ("wl", 100.0),
                ("ws", 60.0),
            ],
            None,
            None,
        );
        let value = |m: Metric| m.value(&made, &facts());
        assert_eq!(value(Metric::Ipc), Some(1.5));
        assert_eq!(value(Metric::LlcMisses), Some(20.0));
        assert_eq!(value(Metric::LlcPerKilo), Some(10.0 / 3.0));
        assert_eq!(value(Metric::WalkLoad), Some(5.0));
        assert_eq!(value(Metric::Walk), Some(8.0));
        assert_eq!(value(Metric::WalkCode), None);
        assert_eq!(value(Metric::Remote), None);
        assert_eq!(value(Metric::Pipe), None);
        let idle = Made(&[("instructions", 0.0), ("cycles", 0.0)], None, None);
        assert_eq!(Metric::Ipc.value(&idle, &facts()), None);
    }

    #[test]
    fn remote_of_all_reads_by_what_local_counts() {
        let made = Made(&[("near", 400.0), ("far", 100.0)], None, None);
        assert_eq!(Metric::Remote.value(&made, &facts()), Some(20.0));
        let all = Facts { local_is_all: true, ..facts() };
        assert_eq!(Metric::Remote.value(&made, &all), Some(25.0));
    }

    #[test]
    fn a_core_of_two_strands() {
        // A second at a TSC of 2000 ticks: one strand all the time, the other half of it, at 3000
        // cycles a second.
        let made = Made(
            &[("instructions", 6000.0), ("cycles", 4500.0), ("msr/mperf/", 3000.0), ("msr/tsc/", 4000.0)],
            Some(2.0),
            Some(0.5),
        );
        assert_eq!(Metric::Busy.value(&made, &facts()), Some(75.0));
        // 3000 cycles of 4 slots.
        assert_eq!(Metric::Pipe.value(&made, &facts()), Some(50.0));
        let rated = Facts { mhz: Some(0.002), ..facts() };
        let without = Made(&[("instructions", 4000.0), ("cycles", 4500.0)], Some(2.0), Some(0.5));
        assert_eq!(Metric::Pipe.value(&without, &rated), Some(50.0));
    }
}

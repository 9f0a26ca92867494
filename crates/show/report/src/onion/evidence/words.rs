//! Evidence in words, of kinds that name parts of a layer or a single figure.

use std::fmt;

use super::kinds::{
    Calls, Functions, KernelEntries, KernelFunctions, Overhead, Placement, Probes, Processes, RunQueues,
    Spinning, Switches, UnnamedCode, WakeUps, Zeroing,
};
use super::listed;
use super::threads::length;

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(&self.processes))
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(&self.calls))
    }
}

impl fmt::Display for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}", listed(&self.functions))
    }
}

impl fmt::Display for KernelFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(&self.functions))
    }
}

impl fmt::Display for UnnamedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} % in generated code without names: `node --perf-basic-prof` and its like write them to /tmp/perf-PID.map",
            self.share.percent()
        )
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placement { process, pid, node, node_share, memory_nodes, cpu_nodes, .. } = self;
        let plural = |n: u64| if n == 1 { "1 node".to_string() } else { format!("{n} nodes") };
        match node_share.0 {
            share if *memory_nodes == 1 || share >= 0.5 => {
                write!(f, "memory: {:.0} % of {process} {pid}'s pages on node {node}", node_share.percent())?;
            }
            _ => write!(f, "memory: {process} {pid}'s pages on {}", plural(*memory_nodes))?,
        }
        write!(
            f,
            ", its threads ran on {}: {}; likely remote {:.0} %, mean distance {:.1} (10 is local)",
            plural(*cpu_nodes),
            self.verdict,
            self.remote.percent(),
            self.distance
        )?;
        self.policy.as_ref().map_or(Ok(()), |policy| {
            let no = self.effect.as_deref() == Some(crate::numa::Effect::No.word());
            let effect = if no { "did not take effect" } else { "took effect in part" };
            write!(f, "; {policy} was asked for and {effect}")
        })
    }
}

impl fmt::Display for Spinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} CPU-s spinning in {}", self.seconds.0, listed(&self.functions))
    }
}

impl fmt::Display for Zeroing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} % of it zeroing pages", self.share.percent())
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s", self.per_second.0)
    }
}

impl fmt::Display for KernelEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates: Vec<String> =
            self.rates.iter().map(|r| format!("{:.0}/s {}", r.per_second.0, r.name)).collect();
        f.write_str(&rates.join(", "))
    }
}

impl fmt::Display for RunQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} threads queued behind others on average", self.queued_threads)
    }
}

impl fmt::Display for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, each) = (self.per_second.0, length(self.each.0));
        write!(f, "idle CPUs woke {rate:.0}/s for threads of the program, {each} each")
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} % of capacity", self.share.percent())
    }
}

impl fmt::Display for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} % in probes on the program's locks", self.share.percent())
    }
}

//! CPU time of processes by NUMA node, as it was read.

use std::collections::{BTreeMap, HashMap};

/// ns by node.
pub type ByNode = BTreeMap<u32, u64>;

/// A process's time on CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTime {
    /// Its name; empty where it is not known.
    pub name: String,
    /// ns by node, of all its threads, ended ones too.
    pub nodes: ByNode,
    /// The same by thread, of threads that live.
    pub threads: HashMap<u32, ByNode>,
}

/// The time on CPU of every process that ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// By process.
    pub processes: HashMap<u32, ProcessTime>,
}

impl Times {
    /// The time added since `before`.
    pub fn since(&self, before: &Times) -> Times {
        let less = |now: &ByNode, before: Option<&ByNode>| -> ByNode {
            let was = |node| before.and_then(|b| b.get(node)).copied().unwrap_or(0);
            now.iter().map(|(n, t)| (*n, t.saturating_sub(was(n)))).filter(|(_, t)| *t > 0).collect()
        };
        let mut out = Times::default();
        for (pid, now) in &self.processes {
            let was = before.processes.get(pid);
            let nodes = less(&now.nodes, was.map(|w| &w.nodes));
            if nodes.is_empty() {
                continue;
            }
            let threads = now
                .threads
                .iter()
                .map(|(tid, t)| (*tid, less(t, was.and_then(|w| w.threads.get(tid)))))
                .filter(|(_, t)| !t.is_empty())
                .collect();
            out.processes.insert(*pid, ProcessTime { name: now.name.clone(), nodes, threads });
        }
        out
    }
}

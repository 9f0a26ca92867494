//! CPU time of processes by NUMA node: exact by BPF, else from samples of /proc.

use std::collections::HashMap;

use ncpu_machine::Topology;

use super::load::NodeTime;
use super::procfs::Proc;
use super::times::Times;
use crate::bpf_support::{Error, Result};

/// Where the times come from.
pub(super) enum Source {
    /// BPF at each switch.
    Exact(Box<NodeTime>),
    /// /proc, read ten times a second.
    Sampled(Sampler),
}

impl Source {
    /// BPF where it is available; else /proc, with a line that says so.
    pub fn open(topology: &Topology) -> (Source, Option<String>) {
        match NodeTime::attach() {
            Ok(time) => (Source::Exact(Box::new(time)), None),
            Err(e) => {
                let why = match e {
                    Error::NotPermitted => "BPF needs root".to_string(),
                    e => e.to_string(),
                };
                let note = format!(
                    "CPU time by node is sampled from /proc, a thread's time since the sample before going to the node it is found on: {why}"
                );
                (Source::Sampled(Sampler::new(topology)), Some(note))
            }
        }
    }

    /// Times since it was opened, and ns that could not be charged to a node.
    pub fn read(&mut self, proc: &Proc, pids: &[u32]) -> Result<(Times, u64)> {
        match self {
            Source::Exact(time) => time.read(),
            Source::Sampled(sampler) => {
                sampler.sample(proc, pids);
                Ok((sampler.times.clone(), 0))
            }
        }
    }

    /// Between readings: samples where that is the source.
    pub fn poll(&mut self, proc: &Proc, pids: &[u32]) {
        if let Source::Sampled(sampler) = self {
            sampler.sample(proc, pids);
        }
    }
}

/// Charges each thread's run time since the last sample to the node of the CPU it was last on.
pub(super) struct Sampler {
    node_of: HashMap<u32, u32>,
    /// Run time of each thread at the last sample.
    last: HashMap<u32, u64>,
    first: bool,
    times: Times,
}

impl Sampler {
    pub fn new(topology: &Topology) -> Sampler {
        let node_of = topology.cpus.iter().filter_map(|c| Some((c.id, topology.nodes[c.node?].id))).collect();
        Sampler { node_of, last: HashMap::new(), first: true, times: Times::default() }
    }

    pub fn sample(&mut self, proc: &Proc, pids: &[u32]) {
        let mut kept = HashMap::with_capacity(self.last.len());
        for &pid in pids {
            for tid in proc.threads(pid) {
                let Some((cpu, ran)) = proc.thread_time(pid, tid) else { continue };
                kept.insert(tid, ran);
                let before = match self.last.get(&tid) {
                    Some(before) => *before,
                    // Time before the observation is not part of it; a thread born since then counts whole.
                    None if self.first => ran,
                    None => 0,
                };
                let ns = ran.saturating_sub(before);
                let Some(&node) = self.node_of.get(&cpu).filter(|_| ns > 0) else { continue };
                let process = self.times.processes.entry(pid).or_default();
                *process.nodes.entry(node).or_default() += ns;
                *process.threads.entry(tid).or_default().entry(node).or_default() += ns;
            }
        }
        self.last = kept;
        self.first = false;
    }
}

#[cfg(test)]
mod tests {
    use crate::numa::times::ByNode;
    use std::path::Path;

    use ncpu_machine_trees::generate::{Shape, write};
    use ncpu_machine_trees::put;

    use super::*;

    fn thread(root: &Path, tid: u32, cpu: u32, ran: u64) {
        let dir = root.join(format!("proc/7/task/{tid}"));
        let zeros = |n| "0 ".repeat(n);
        put(&dir, "stat", &format!("{tid} (db) R 1 {}{cpu} 0", zeros(34)));
        put(&dir, "schedstat", &format!("{ran} 5 6\n"));
    }

    #[test]
    fn run_time_goes_to_the_node_a_thread_is_found_on() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 2, threads: 1 }).unwrap();
        let proc = Proc::new(dir.path());
        let mut sampler = Sampler::new(&Topology::read(dir.path()).unwrap());
        thread(dir.path(), 7, 0, 1_000);
        sampler.sample(&proc, &[7]);
        assert_eq!(sampler.times, Times::default());
        // It ran on node 0, then on node 1; another was born there.
        thread(dir.path(), 7, 1, 1_400);
        sampler.sample(&proc, &[7]);
        let before = sampler.times.clone();
        thread(dir.path(), 7, 2, 1_500);
        thread(dir.path(), 8, 3, 30);
        sampler.sample(&proc, &[7, 99]);
        assert_eq!(sampler.times.processes[&7].nodes, ByNode::from([(0, 400), (1, 130)]));
        let since = sampler.times.since(&before);
        assert_eq!(since.processes[&7].nodes, ByNode::from([(1, 130)]));
        assert_eq!(since.processes[&7].threads.len(), 2);
        assert_eq!(since.since(&since), Times::default());
    }
}

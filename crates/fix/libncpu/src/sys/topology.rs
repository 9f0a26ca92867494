//! The machine's topology, as far as the primitives need it: which CPUs are near each other.

use std::path::Path;

/// The NUMA nodes that have CPUs, in the order of their numbers, and their CPUs.
#[derive(Debug, PartialEq, Eq)]
pub struct Topology {
    /// By CPU: the index of its node.
    node: Vec<usize>,
    /// By node: all nodes, nearest first, beginning with itself.
    near: Vec<Vec<usize>>,
    /// By node: its number in the kernel.
    ids: Vec<usize>,
}

impl Topology {
    /// Reads a tree like `/sys/devices/system`. If information is missing, one node with all usable CPUs
    /// takes its place.
    pub fn read(root: &Path) -> Topology {
        let text = |path: String| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let possible = list(&text("cpu/possible".into()));
        let usable = std::thread::available_parallelism().map_or(1, |n| n.get());
        let cpus = possible.last().map_or(usable, |last| last + 1);
        let mut node = vec![0; cpus];
        let mut nodes = Vec::new();
        for id in list(&text("node/possible".into())) {
            let own = list(&text(format!("node/node{id}/cpulist")));
            if own.is_empty() {
                continue;
            }
            for cpu in own {
                if cpu < cpus {
                    node[cpu] = nodes.len();
                }
            }
            nodes.push(id);
        }
        if nodes.is_empty() {
            nodes.push(0);
        }
        let online = list(&text("node/online".into()));
        let near = (0..nodes.len())
            .map(|from| {
                // A distance to each node that is online.
                let distances: Vec<u32> = text(format!("node/node{}/distance", nodes[from]))
                    .split_whitespace()
                    .filter_map(|d| d.parse().ok())
                    .collect();
                let distance = |to: usize| {
                    let at = online.iter().position(|&id| id == nodes[to]);
                    at.and_then(|at| distances.get(at)).copied().unwrap_or(u32::MAX)
                };
                let mut order: Vec<usize> = (0..nodes.len()).collect();
                order.sort_by_key(|&to| (to != from, distance(to), to));
                order
            })
            .collect();
        Topology { node, near, ids: nodes }
    }

    /// A machine of `nodes` nodes in a row with `cpus` CPUs each, for tests.
    #[doc(hidden)]
    pub fn row(nodes: usize, cpus: usize) -> Topology {
        let near = |from: usize| {
            let mut order: Vec<usize> = (0..nodes).collect();
            order.sort_by_key(|&to| from.abs_diff(to));
            order
        };
        Topology {
            node: (0..nodes * cpus).map(|cpu| cpu / cpus).collect(),
            near: (0..nodes).map(near).collect(),
            ids: (0..nodes).collect(),
        }
    }

    /// CPUs that the machine may ever have, at least 1.
    pub fn cpus(&self) -> usize {
        self.node.len()
    }

    /// NUMA nodes with CPUs, at least 1.
    pub fn nodes(&self) -> usize {
        self.near.len()
    }

    /// The node of a CPU; CPUs that were not possible at start count to the first.
    pub fn node_of(&self, cpu: usize) -> usize {
        self.node.get(cpu).copied().unwrap_or(0)
    }

    /// The kernel's number of a node; `node` is below [`Topology::nodes`].
    pub fn id_of(&self, node: usize) -> usize {
        self.ids[node]
    }

    /// The node with the kernel's number `id`; `None` if it had no CPUs at start.
    pub fn with_id(&self, id: usize) -> Option<usize> {
        self.ids.iter().position(|&own| own == id)
    }

    /// All nodes, nearest to `node` first, itself included.
    pub fn nearest(&self, node: usize) -> &[usize] {
        &self.near[node]
    }
}

/// Numbers of a list like `0-3,8`, ascending; invalid parts are left out.
fn list(text: &str) -> Vec<usize> {
    // More CPUs than Linux supports: the file is broken.
    const MOST: usize = 1 << 16;
    let mut all = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            all.extend(first..=last.min(MOST));
        }
    }
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list(""), []);
        assert_eq!(list("x,2"), [2]);
    }

    #[test]
    fn nodes_by_distance() {
        let root = std::env::temp_dir().join(format!("libncpu-topology-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
            std::fs::write(path, text).expect("file");
        };
        write("cpu/possible", "0-7\n");
        // Node 1 has memory only, and node 3 is offline.
        write("node/possible", "0-4\n");
        write("node/online", "0-2,4\n");
        for (id, cpus, distance) in
            [(0, "0-1,6", "10 20 32 16"), (1, "", "20 10 20 20"), (2, "2-3", "32 20 10 16")]
        {
            write(&format!("node/node{id}/cpulist"), cpus);
            write(&format!("node/node{id}/distance"), distance);
        }
        write("node/node4/cpulist", "4-5");
        write("node/node4/distance", "16 20 16 10");
        let topology = Topology::read(&root);
        std::fs::remove_dir_all(&root).expect("clean up");
        assert_eq!((topology.cpus(), topology.nodes()), (8, 3));
        assert_eq!(
            (0..10).map(|cpu| topology.node_of(cpu)).collect::<Vec<_>>(),
            [0, 0, 1, 1, 2, 2, 0, 0, 0, 0]
        );
        assert_eq!(topology.nearest(0), [0, 2, 1]);
        assert_eq!(topology.nearest(1), [1, 2, 0]);
        assert_eq!([0, 1, 2, 4].map(|id| topology.with_id(id)), [Some(0), None, Some(1), Some(2)]);
        assert_eq!(topology.id_of(2), 4);
    }

    #[test]
    fn nothing_known() {
        let topology = Topology::read(Path::new("/nowhere"));
        assert!(topology.cpus() >= 1);
        assert_eq!(topology.nodes(), 1);
        assert_eq!(topology.nearest(0), [0]);
    }
}

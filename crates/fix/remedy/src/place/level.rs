//! Levelling: assigns threads so that at every level of the machine its groups have running threads in proportion to
//! their CPUs, to one thread. Pure: no system call is made here.

use std::collections::HashMap;

use ncpu_machine::{CpuSet, Topology};

use crate::partition::parts::last_level;

/// A level of the machine, from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// NUMA nodes.
    Node,
    /// CPUs that share a last-level cache.
    Cache,
    /// Cores. The kernel is left to choose a core in a cache; where it does not, a thread is nudged.
    Core,
}

impl Level {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Level::Node => "node",
            Level::Cache => "cache",
            Level::Core => "core",
        }
    }
}

/// The machine as groups of CPUs.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Node numbers and their CPUs.
    pub nodes: Vec<(u32, CpuSet)>,
    /// For each node its caches' CPUs.
    pub caches: Vec<Vec<CpuSet>>,
    /// For each node and cache its cores' CPUs.
    pub cores: Vec<Vec<Vec<CpuSet>>>,
    /// Distances between nodes, as indices of `nodes`.
    distances: Vec<Vec<u32>>,
}

impl Tree {
    /// Of the CPUs of a machine that may be used.
    pub fn of(machine: &Topology) -> Tree {
        let usable = machine.online.and(&machine.allowed);
        let at: Vec<usize> =
            (0..machine.nodes.len()).filter(|&i| machine.nodes[i].cpus.intersects(&usable)).collect();
        let mut nodes: Vec<(u32, CpuSet)> =
            at.iter().map(|&i| (machine.nodes[i].id, machine.nodes[i].cpus.and(&usable))).collect();
        if nodes.is_empty() {
            nodes.push((0, usable.clone()));
        }
        let distance = |a: usize, b: usize| {
            machine.distances.get(a).and_then(|row| row.get(b)).copied().unwrap_or(if a == b {
                10
            } else {
                20
            })
        };
        let distances = at.iter().map(|&a| at.iter().map(|&b| distance(a, b)).collect()).collect();
        let last = last_level(machine);
        // CPUs of a node outside all groups form one of their own.
        let within = |whole: &CpuSet, groups: &mut dyn Iterator<Item = &CpuSet>| {
            let mut out: Vec<CpuSet> = groups.map(|g| g.and(whole)).filter(|g| !g.is_empty()).collect();
            let rest = out.iter().fold(whole.clone(), |rest, g| rest.minus(g));
            if !rest.is_empty() {
                out.push(rest);
            }
            out
        };
        let caches: Vec<Vec<CpuSet>> = nodes.iter().map(|(_, cpus)| within(cpus, &mut last.iter())).collect();
        let cores = caches
            .iter()
            .map(|caches| {
                let of = |cache| within(cache, &mut machine.cores.iter().map(|c| &c.cpus));
                caches.iter().map(of).collect()
            })
            .collect();
        Tree { nodes, caches, cores, distances }
    }

    /// The node, as an index, that has a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<usize> {
        self.nodes.iter().position(|(_, cpus)| cpus.contains(cpu))
    }
}

/// A thread that runs.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The CPU it ran on last.
    pub cpu: u32,
    /// It may not be moved: it chose its CPUs, or was moved a moment ago.
    pub fixed: bool,
    /// Share of its process's memory on each node, as indices of the tree's nodes; empty where it is not known.
    pub memory: Vec<f64>,
}

/// A thread goes from one group to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// At this level.
    pub level: Level,
    /// CPUs of the group it leaves.
    pub from: CpuSet,
    /// CPUs of the group it goes to.
    pub to: CpuSet,
    /// Running threads of the two before.
    pub counts: (usize, usize),
}

/// The moves that level the threads, top-down: nodes first, then in each node its caches, then in each cache its cores.
pub fn plan(tree: &Tree, threads: &[Thread]) -> Vec<Move> {
    let mut moves = Vec::new();
    let groups: Vec<&CpuSet> = tree.nodes.iter().map(|(_, c)| c).collect();
    let at = |t: &Thread| tree.node_of(t.cpu);
    let near = |a: usize, b: usize| tree.distances.get(a).and_then(|r| r.get(b)).copied().unwrap_or(20);
    let nodes = level(Level::Node, &groups, threads, at, near, &mut moves);
    for (node, members) in nodes.into_iter().enumerate() {
        let groups: Vec<&CpuSet> = tree.caches[node].iter().collect();
        // A thread that comes from another node is not in any of these groups yet.
        let at = |t: &Thread| groups.iter().position(|g| g.contains(t.cpu));
        let caches = level(Level::Cache, &groups, &members, at, |_, _| 0, &mut moves);
        for (cache, members) in caches.into_iter().enumerate() {
            let groups: Vec<&CpuSet> = tree.cores[node][cache].iter().collect();
            let at = |t: &Thread| groups.iter().position(|g| g.contains(t.cpu));
            level(Level::Core, &groups, &members, at, |_, _| 0, &mut moves);
        }
    }
    // A thread that changes its node needs no move to a core of it too.
    let mut first: HashMap<u32, Level> = HashMap::new();
    moves.retain(|m| {
        let level = *first.entry(m.tid).or_insert(m.level);
        level == m.level || m.level == Level::Cache
    });
    // The last word on a thread's mask is its cache in the node it goes to.
    let mut merged: Vec<Move> = Vec::new();
    for each in moves {
        match merged.iter_mut().find(|m| m.tid == each.tid) {
            Some(before) => before.to = each.to,
            None => merged.push(each),
        }
    }
    merged
}

/// The CPU of a thread that is about to change its group: the kernel will choose.
const SOMEWHERE: u32 = u32::MAX;

/// Levels the threads of one group among its parts; the threads of each part after that.
fn level(
    level: Level,
    groups: &[&CpuSet],
    threads: &[Thread],
    at: impl Fn(&Thread) -> Option<usize>,
    near: impl Fn(usize, usize) -> u32,
    moves: &mut Vec<Move>,
) -> Vec<Vec<Thread>> {
    let mut members: Vec<Vec<Thread>> = vec![Vec::new(); groups.len()];
    if groups.is_empty() {
        return members;
    }
    let mut homeless = Vec::new();
    for thread in threads {
        match at(thread) {
            Some(group) => members[group].push(thread.clone()),
            None => homeless.push(thread.clone()),
        }
    }
    // Threads of a CPU, as a fraction, so that parts of different sizes compare.
    let load = |group: usize, extra: isize, members: &[Vec<Thread>]| {
        (members[group].len() as isize + extra) as f64 / groups[group].len().max(1) as f64
    };
    for mut thread in homeless {
        let least = (0..groups.len()).min_by(|&a, &b| load(a, 1, &members).total_cmp(&load(b, 1, &members)));
        let Some(to) = least else { continue };
        let mv = Move {
            tid: thread.tid,
            pid: thread.pid,
            level,
            from: Some(thread.cpu).filter(|&c| c != SOMEWHERE).into_iter().collect(),
            to: groups[to].clone(),
            counts: (1, members[to].len()),
        };
        if !thread.fixed {
            moves.push(mv);
        }
        thread.cpu = SOMEWHERE;
        members[to].push(thread);
    }
    // Each round brings the fullest and the emptiest closer; there are not more rounds than threads.
    for _ in 0..threads.len() {
        let mut best: Option<(usize, usize, usize, f64)> = None;
        for from in 0..groups.len() {
            for to in (0..groups.len()).filter(|&to| to != from) {
                // Worth it only if the fuller of the two is less full after it: else they only change places.
                let before = load(from, 0, &members).max(load(to, 0, &members));
                let gain = before - load(from, -1, &members).max(load(to, 1, &members));
                let useful = match level {
                    Level::Core => members[from].len() > 1 && members[to].is_empty(),
                    _ => gain > 1e-9,
                };
                if !useful {
                    continue;
                }
                let fit = candidate(&members[from], &members[to], to);
                let Some(which) = fit else { continue };
                // The largest gap first; of equal ones the nearest.
                let gap = load(from, 0, &members) - load(to, 0, &members);
                let score = gap - f64::from(near(from, to)) / 1e6;
                if best.is_none_or(|(_, _, _, s)| score > s) {
                    best = Some((from, to, which, score));
                }
            }
        }
        let Some((from, to, which, _)) = best else { break };
        let counts = (members[from].len(), members[to].len());
        let mut thread = members[from].remove(which);
        moves.push(Move {
            tid: thread.tid,
            pid: thread.pid,
            level,
            from: groups[from].clone(),
            to: groups[to].clone(),
            counts,
        });
        thread.cpu = SOMEWHERE;
        thread.fixed = true;
        members[to].push(thread);
    }
    members
}

/// The thread of a group to give away: one of a process that is there already rather than here, then one with its
/// memory there.
fn candidate(from: &[Thread], to: &[Thread], group: usize) -> Option<usize> {
    let of = |all: &[Thread], pid| all.iter().filter(|t| t.pid == pid).count() as f64;
    let score = |t: &Thread| {
        let siblings = of(to, t.pid) - (of(from, t.pid) - 1.0);
        (siblings, t.memory.get(group).copied().unwrap_or(0.0))
    };
    let movable = from.iter().enumerate().filter(|(_, t)| !t.fixed);
    let best = movable.max_by(|(_, a), (_, b)| {
        let (a, b) = (score(a), score(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    best.map(|(at, _)| at)
}

/// The largest difference of running threads between two groups of a level, beyond what their CPUs deserve.
pub fn imbalance(groups: &[CpuSet], cpus: &[u32]) -> f64 {
    let total: usize = groups.iter().map(CpuSet::len).sum();
    if total == 0 {
        return 0.0;
    }
    let beyond = groups.iter().map(|g| {
        let own = cpus.iter().filter(|&&c| g.contains(c)).count() as f64;
        own - cpus.len() as f64 * g.len() as f64 / total as f64
    });
    let (low, high) = beyond.fold((0.0f64, 0.0f64), |(low, high), b| (low.min(b), high.max(b)));
    high - low
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    fn tree(nodes: u32, cores: u32, threads: u32) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes, cores, threads }).unwrap();
        Tree::of(&Topology::read(dir.path()).unwrap())
    }

    fn thread(tid: u32, cpu: u32) -> Thread {
        Thread { tid, pid: tid / 100, cpu, fixed: false, memory: Vec::new() }
    }

    /// Carries moves out; the CPUs of threads after that.
    fn after(threads: &mut [Thread], moves: &[Move]) -> Vec<u32> {
        for m in moves {
            let used: Vec<u32> = threads.iter().map(|t| t.cpu).collect();
            let t = threads.iter_mut().find(|t| t.tid == m.tid).unwrap();
            // As the kernel would: an idle CPU of the mask.
            t.cpu = m.to.iter().find(|c| !used.contains(c)).or(m.to.first()).unwrap();
        }
        threads.iter().map(|t| t.cpu).collect()
    }

    #[test]
    fn all_on_one_node_are_spread_to_one_thread_at_every_level() {
        let tree = tree(8, 4, 2);
        for n in 1..=64 {
            let mut threads: Vec<Thread> = (0..n).map(|i| thread(100 + i, i % 4)).collect();
            let mut cpus = Vec::new();
            for _ in 0..4 {
                let moves = plan(&tree, &threads);
                cpus = after(&mut threads, &moves);
            }
            let nodes: Vec<CpuSet> = tree.nodes.iter().map(|(_, c)| c.clone()).collect();
            let over = imbalance(&nodes, &cpus);
            assert!(over <= 1.0 + 1e-9, "{n} threads: {over}");
            // And then nothing moves any more.
            let again: Vec<Move> =
                plan(&tree, &threads).into_iter().filter(|m| m.level != Level::Core).collect();
            assert_eq!(again, [], "{n}");
        }
    }

    #[test]
    fn what_is_level_is_left_alone() {
        let tree = tree(4, 2, 1);
        let threads: Vec<Thread> = (0..8).map(|i| thread(100 + i, i)).collect();
        assert_eq!(plan(&tree, &threads), []);
        // One more than there are CPUs cannot be levelled further.
        let threads: Vec<Thread> = (0..9).map(|i| thread(100 + i, i % 8)).collect();
        assert_eq!(plan(&tree, &threads), []);
        assert_eq!(plan(&tree, &[]), []);
        // One of three to an idle node, none back.
        assert_eq!(plan(&tree, &[thread(1, 0), thread(2, 0), thread(3, 2)]).len(), 1);
    }

    #[test]
    fn fixed_threads_count_but_stay() {
        let tree = tree(2, 2, 1);
        let mut threads: Vec<Thread> = (0..4).map(|i| thread(100 + i, i % 2)).collect();
        threads.iter_mut().take(3).for_each(|t| t.fixed = true);
        let moves = plan(&tree, &threads);
        assert_eq!(moves.iter().map(|m| m.tid).collect::<Vec<_>>(), [103]);
        threads.iter_mut().for_each(|t| t.fixed = true);
        assert_eq!(plan(&tree, &threads), []);
    }

    #[test]
    fn a_thread_goes_where_its_process_and_its_memory_are() {
        let tree = tree(2, 4, 1);
        // Process 1 has most threads on node 1; its stray goes there, not one of process 2.
        let mut threads = vec![thread(101, 4), thread(102, 5), thread(103, 0)];
        threads.extend((0..4).map(|i| thread(200 + i, i % 4)));
        let moves = plan(&tree, &threads);
        assert_eq!(moves.iter().map(|m| m.tid).collect::<Vec<_>>(), [103], "{moves:?}");
        let mut threads: Vec<Thread> = (0..2).map(|i| thread(100 * (i + 1), 0)).collect();
        threads[0].memory = vec![0.1, 0.9];
        threads[1].memory = vec![0.9, 0.1];
        assert_eq!(plan(&tree, &threads)[0].tid, 100);
    }

    #[test]
    fn two_strands_of_a_core_are_parted_when_another_core_is_idle() {
        let tree = tree(1, 2, 2);
        let moves = plan(&tree, &[thread(1, 0), thread(2, 2)]);
        assert_eq!((moves.len(), moves[0].level), (1, Level::Core), "{moves:?}");
        assert_eq!(moves[0].to.to_list(), "1,3");
        assert_eq!(plan(&tree, &[thread(1, 0), thread(2, 1), thread(3, 2)]), []);
    }

    #[test]
    fn nodes_of_different_sizes_get_what_they_deserve() {
        let tree = Tree {
            nodes: vec![(0, (0..6).collect()), (1, (6..8).collect())],
            caches: vec![vec![(0..6).collect()], vec![(6..8).collect()]],
            cores: vec![
                vec![(0..6).map(|c| [c].into_iter().collect()).collect()],
                vec![vec![[6].into_iter().collect(), [7].into_iter().collect()]],
            ],
            distances: vec![vec![10, 20], vec![20, 10]],
        };
        let mut threads: Vec<Thread> = (0..8).map(|i| thread(100 + i, 6 + i % 2)).collect();
        let moves: Vec<Move> = plan(&tree, &threads);
        let cpus = after(&mut threads, &moves);
        assert_eq!(cpus.iter().filter(|c| **c < 6).count(), 6, "{cpus:?}");
    }
}

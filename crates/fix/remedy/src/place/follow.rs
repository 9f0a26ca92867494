//! Memory follows the threads: which areas are looked at when, whose wish moves what several processes share, and how
//! much is moved between two looks at the threads.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use ncpu_files::reader::process_text;
use ncpu_machine::CpuSet;

use super::Done;
use super::level::{Thread, Tree};
use super::memory::{self, Area, Sampled, Wish};

/// Interval between looks at memory.
const EACH: Duration = Duration::from_secs(2);

/// The longest time for which moving memory may keep the balancer from its threads.
const LONGEST: Duration = Duration::from_millis(50);

/// The memory of a process as of the last look.
#[derive(Default)]
struct Memory {
    looked: Option<Instant>,
    /// Nodes its threads ran on at the last look.
    homes: Vec<u32>,
    /// Whether those were the same at the look before.
    settled: bool,
    areas: Vec<(Area, Vec<(u32, u64)>)>,
    /// Areas to move, the position to go on from, and the bytes moved.
    queue: Vec<(Wish, u64, u64)>,
}

/// Follows the threads of processes.
pub struct Follower {
    begin: Instant,
    processes: HashMap<u32, Memory>,
    /// The process of the last move.
    last: u32,
}

impl Follower {
    /// Begins; nothing is looked at yet.
    pub fn new(begin: Instant) -> Follower {
        Follower { begin, processes: HashMap::new(), last: 0 }
    }

    /// Share of a process's memory on each node of the tree; empty where it is not known.
    pub fn shares(&self, pid: u32, tree: &Tree) -> Vec<f64> {
        let areas = self.processes.get(&pid).map_or(&[][..], |m| &m.areas);
        let all = || areas.iter().flat_map(|(_, nodes)| nodes);
        let total: u64 = all().map(|n| n.1).sum();
        if total == 0 {
            return Vec::new();
        }
        let on = |node: u32| all().filter(|n| n.0 == node).map(|n| n.1).sum::<u64>() as f64 / total as f64;
        tree.nodes.iter().map(|(n, _)| on(*n)).collect()
    }

    /// Whether memory of a process is on its way to its threads.
    pub fn moves(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|m| !m.queue.is_empty())
    }

    /// Looks where memory lies, if it is time, and moves a step of each process's. Returns the moves, and the share of
    /// all memory that lay where it should.
    pub fn look(
        &mut self,
        tree: &Tree,
        running: &[Thread],
        names: &dyn Fn(u32) -> String,
        dry_run: bool,
    ) -> (Vec<Done>, Option<f64>) {
        let mut homes: HashMap<u32, Vec<u32>> = HashMap::new();
        for thread in running {
            if let Some(node) = tree.node_of(thread.cpu) {
                homes.entry(thread.pid).or_default().push(tree.nodes[node].0);
            }
        }
        self.processes.retain(|pid, m| homes.contains_key(pid) || !m.queue.is_empty());
        let seed = self.begin.elapsed().as_micros() as u64;
        let mut fresh = HashSet::new();
        for (&pid, nodes) in &mut homes {
            nodes.sort_unstable();
            nodes.dedup();
            let m = self.processes.entry(pid).or_default();
            m.settled = m.homes == *nodes;
            m.homes.clone_from(nodes);
            let due = m.looked.is_none_or(|at| at.elapsed() >= EACH);
            // Threads that move are followed when they have settled for two looks.
            if due && m.settled && m.queue.is_empty() {
                m.looked = Some(Instant::now());
                let maps = process_text(format!("/proc/{pid}").as_ref(), pid, "maps").unwrap_or_default();
                let one = |area: Area| Some((area.clone(), memory::sample(pid, &area, seed).ok()?));
                m.areas = memory::areas(&maps).into_iter().filter_map(one).collect();
                fresh.insert(pid);
            }
        }
        let sampled = self.sampled();
        for (pid, areas) in sampled.iter().filter(|(pid, _)| fresh.contains(pid)) {
            let Some(m) = self.processes.get_mut(pid) else { continue };
            m.queue = memory::wishes(areas).into_iter().map(|w| (w.clone(), w.area.start, 0)).collect();
        }
        let total: u64 = sampled.values().flatten().map(Sampled::bytes).sum();
        let home: u64 = sampled.values().map(|areas| memory::at_home(areas)).sum();
        let share = (total > 0).then(|| home as f64 / total as f64);
        let mut done = Vec::new();
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        // Another process comes first each time, so that the time is enough for each.
        pids.sort_unstable_by_key(|pid| (*pid <= self.last, *pid));
        let until = Instant::now() + LONGEST;
        for pid in pids {
            if Instant::now() >= until {
                break;
            }
            self.last = pid;
            done.extend(self.step(pid, names, dry_run, until));
        }
        (done, share)
    }

    /// The areas of each process with the homes of the threads that use them. An area that several processes map is
    /// listed once, for the process that has touched most of it.
    fn sampled(&self) -> HashMap<u32, Vec<Sampled>> {
        struct Shared {
            homes: Vec<u32>,
            owner: (u64, u32),
        }
        let bytes = |nodes: &[(u32, u64)]| nodes.iter().map(|n| n.1).sum::<u64>();
        let mut shared: HashMap<((u32, u32), u64), Shared> = HashMap::new();
        for (&pid, m) in &self.processes {
            for (area, now) in &m.areas {
                let Some(key) = area.shared else { continue };
                let known = shared.entry(key).or_insert(Shared { homes: Vec::new(), owner: (0, pid) });
                known.homes.extend(&m.homes);
                known.owner = known.owner.max((bytes(now), pid));
            }
        }
        for known in shared.values_mut() {
            known.homes.sort_unstable();
            known.homes.dedup();
        }
        let of = |(&pid, m): (&u32, &Memory)| {
            let one = |(area, now): &(Area, Vec<(u32, u64)>)| {
                let homes = match area.shared.and_then(|key| shared.get(&key)) {
                    Some(known) if known.owner.1 != pid => return None,
                    Some(known) => known.homes.clone(),
                    None => m.homes.clone(),
                };
                Some(Sampled { area: area.clone(), now: now.clone(), homes })
            };
            (pid, m.areas.iter().filter_map(one).collect())
        };
        self.processes.iter().map(of).collect()
    }

    /// Moves a step of the first area that is to be moved.
    fn step(
        &mut self,
        pid: u32,
        names: &dyn Fn(u32) -> String,
        dry_run: bool,
        until: Instant,
    ) -> Option<Done> {
        let m = self.processes.get_mut(&pid)?;
        let (wish, at, moved) = m.queue.first_mut()?;
        let list = |nodes: &mut dyn Iterator<Item = u32>| nodes.collect::<CpuSet>().to_list();
        let mut done = Done {
            at: self.begin.elapsed().as_secs_f64(),
            pid,
            tid: None,
            name: names(pid),
            what: "memory",
            from: format!("node {}", list(&mut wish.now.iter().map(|n| n.0))),
            to: format!("node {}", list(&mut wish.homes.iter().copied())),
            bytes: None,
            reason: format!("{}: {}", wish.area.name, wish.reason),
            done: "no".into(),
        };
        let finished = if dry_run {
            done.bytes = Some(wish.now.iter().map(|n| n.1).sum());
            // Told once.
            m.looked = Some(Instant::now() + Duration::from_secs(1 << 30));
            true
        } else {
            match memory::step(pid, wish, *at, until) {
                Ok((next, bytes)) => {
                    (*at, *moved) = (next, *moved + bytes);
                    done.bytes = Some(*moved);
                    done.done = "yes".into();
                    next >= wish.area.end
                }
                Err(e) => {
                    done.done = e.to_string();
                    true
                }
            }
        };
        if !finished {
            return None;
        }
        m.queue.remove(0);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_map_is_listed_once_with_the_homes_of_all() {
        let area = |shared: bool| Area {
            start: 0,
            end: 1 << 24,
            name: String::new(),
            shared: shared.then_some(((0, 1), 7)),
        };
        let mut follower = Follower::new(Instant::now());
        for (pid, home, touched) in [(10, 0, 4), (11, 1, 16), (12, 2, 8)] {
            let areas = vec![(area(true), vec![(0, touched << 20)]), (area(false), vec![(0, 1 << 20)])];
            follower.processes.insert(pid, Memory { homes: vec![home], areas, ..Memory::default() });
        }
        let all = follower.sampled();
        assert_eq!([all[&10].len(), all[&11].len(), all[&12].len()], [1, 2, 1]);
        assert_eq!((&all[&11][0].homes, &all[&11][1].homes), (&vec![0, 1, 2], &vec![1]));
    }
}

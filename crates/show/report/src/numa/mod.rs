//! `ncpu numa`: verdicts on where memory lies, from the tables of the collector.

mod requests;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

use std::collections::{BTreeMap, HashMap};

use ncpu_machine::CpuSet;
use ncpu_machine::numa_maps::{Mode, Policy};
use ncpu_schema::{
    Error, Ints, Tables, numa_cpu, numa_distances, numa_events, numa_memory, numa_nodes, numa_processes,
    numa_segment_memory, numa_segments, numa_settings,
};

pub use requests::{Effect, Request};
pub use text::render;
pub use verdict::{Distances, Hints, Placement, Verdict};

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its online CPUs; none for memory only.
    pub cpus: CpuSet,
    /// Its memory when it was last looked at.
    pub memory: NodeMemory,
    /// Pages taken in all intervals.
    pub pages: NodePages,
}

/// Bytes of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeMemory {
    /// All.
    pub total: Option<u64>,
    /// Free.
    pub free: Option<u64>,
    /// In transparent huge pages.
    pub thp: Option<u64>,
    /// In pools of huge pages.
    pub hugetlb: Option<u64>,
    /// Of the pools, not handed out.
    pub hugetlb_free: Option<u64>,
}

/// Pages taken from a node, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodePages {
    /// As intended.
    pub hit: Option<u64>,
    /// Meant for another node.
    pub miss: Option<u64>,
    /// Meant for this node, taken from another.
    pub foreign: Option<u64>,
    /// By interleaving, as intended.
    pub interleave_hit: Option<u64>,
    /// By its own CPUs.
    pub local: Option<u64>,
    /// By other nodes' CPUs.
    pub other: Option<u64>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its threads when it was looked at, or the CPUs it kept busy where those are more.
    pub threads: u64,
    /// Where its memory and its CPU time are. The text of its programs and libraries counts only if there
    /// is nothing else.
    pub placement: Placement,
    /// Bytes in transparent huge pages.
    pub thp: Option<u64>,
    /// Bytes in hugetlb pages by page size and node.
    pub hugetlb: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Its requests.
    pub requests: Vec<Request>,
    /// Whether any policy but the default holds for any of its memory.
    pub asked: bool,
    /// Whether libnuma is loaded.
    pub libnuma: bool,
    /// Nodes its cpuset allows.
    pub mems: Option<CpuSet>,
    /// Share of NUMA hint faults that were remote, and how many there were.
    pub faults: Option<(f64, u64)>,
    /// Pages looked at where not all were.
    pub sampled: Option<u64>,
}

/// A shared segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// sysv, tmpfs, memfd, anonymous or hugetlb.
    pub kind: String,
    /// Bytes it is long.
    pub size: u64,
    /// Bytes of it resident.
    pub resident: Option<u64>,
    /// The processes that map it.
    pub pids: Vec<u32>,
    /// Where it is, and where the processes that map it ran.
    pub placement: Placement,
    /// Policy of the segment and of its mount, judged.
    pub requests: Vec<Request>,
    /// Its policy's words.
    pub policy: Option<String>,
    /// How its nodes are known.
    pub how: String,
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Numa {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// How far they are from one another.
    pub distances: Distances,
    /// Processes, those whose placement costs most first.
    pub processes: Vec<Process>,
    /// Segments, likewise.
    pub segments: Vec<Segment>,
    /// CPU-seconds of processes that ended before their memory was looked at.
    pub gone: f64,
    /// Counters of /proc/vmstat.
    pub events: BTreeMap<String, u64>,
    /// Settings, the last known.
    pub settings: BTreeMap<String, String>,
    /// Seconds observed.
    pub elapsed: f64,
}

/// The rows of the last time of each key.
fn last_rows<K: std::hash::Hash + Eq>(
    times: &ncpu_schema::Floats<'_>,
    rows: std::ops::Range<usize>,
    key: impl Fn(usize) -> Option<K>,
) -> Vec<usize> {
    let time = |row| times.get(row).unwrap_or(0.0);
    let mut last: HashMap<K, f64> = HashMap::new();
    for row in rows.clone() {
        let Some(key) = key(row) else { continue };
        let at = last.entry(key).or_insert(f64::MIN);
        *at = at.max(time(row));
    }
    rows.filter(|&r| key(r).and_then(|k| last.get(&k).copied()) == Some(time(r))).collect()
}

/// CPU-seconds of processes by node.
type CpuTime = HashMap<u32, BTreeMap<u32, f64>>;

impl Numa {
    /// Reads the tables: memory as it was at each process's last look, CPU time of all intervals.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn read(tables: &impl Tables) -> Result<Numa, Error> {
        let mut numa = Numa::default();
        if let Some(t) = numa_distances::Reader::open(tables)? {
            for r in t.rows() {
                if let (Some(from), Some(to), Some(d)) = (id(&t.from, r), id(&t.to, r), t.distance.get(r)) {
                    numa.distances.0.insert((from, to), d as f64);
                }
            }
        }
        if let Some(t) = numa_nodes::Reader::open(tables)? {
            numa.read_nodes(&t);
        }
        if let Some(t) = numa_settings::Reader::open(tables)? {
            for r in last_rows(&t.time, t.rows(), |r| t.setting.get(r)) {
                if let (Some(name), Some(value)) = (t.setting.get(r), t.value.get(r)) {
                    numa.settings.insert(name.into(), value.into());
                }
            }
        }
        if let Some(t) = numa_events::Reader::open(tables)? {
            for r in t.rows() {
                if let (Some(name), Some(n)) = (t.event.get(r), t.count.get(r)) {
                    *numa.events.entry(name.into()).or_default() += n;
                }
            }
        }
        let mut cpu = CpuTime::new();
        if let Some(t) = numa_cpu::Reader::open(tables)? {
            for r in t.rows() {
                if let (Some(pid), Some(node), Some(s)) = (id(&t.pid, r), id(&t.node, r), t.cpu.get(r)) {
                    *cpu.entry(pid).or_default().entry(node).or_default() += s;
                }
            }
        }
        if let (Some(t), Some(memory)) =
            (numa_segments::Reader::open(tables)?, numa_segment_memory::Reader::open(tables)?)
        {
            numa.read_segments(&t, &memory, &cpu);
        }
        if let Some(t) = numa_processes::Reader::open(tables)? {
            numa.read_processes(&t, numa_memory::Reader::open(tables)?.as_ref(), &mut cpu);
        }
        numa.gone = cpu.values().flat_map(|c| c.values()).fold(0.0, |sum, s| sum + s);
        Ok(numa)
    }

    /// The process whose placement costs most, where the cost is at least 5 % of all CPU time, and the remedy.
    pub(crate) fn worst(&self) -> Option<(&Process, String)> {
        let all: f64 = self.processes.iter().map(|p| p.placement.seconds()).sum::<f64>() + self.gone;
        let worst = self.processes.first().filter(|p| p.placement.cost() >= 0.05 * all)?;
        Some((worst, worst.remedy()?))
    }

    fn read_nodes(&mut self, t: &numa_nodes::Reader<'_>) {
        for r in last_rows(&t.time, t.rows(), |r| id(&t.node, r)) {
            let Some(id) = id(&t.node, r) else { continue };
            let cpus = t.cpus.get(r).and_then(|c| CpuSet::parse_list(c).ok()).unwrap_or_default();
            let memory = NodeMemory {
                total: t.total.get(r),
                free: t.free.get(r),
                thp: t.thp.get(r),
                hugetlb: t.hugetlb.get(r),
                hugetlb_free: t.hugetlb_free.get(r),
            };
            self.nodes.push(Node { id, cpus, memory, pages: NodePages::default() });
        }
        self.nodes.sort_by_key(|n| n.id);
        // Counts are summed over all intervals.
        for node in &mut self.nodes {
            let mut elapsed = 0.0;
            for r in t.rows().filter(|&r| id(&t.node, r) == Some(node.id)) {
                elapsed += t.elapsed.get(r).unwrap_or(0.0);
                let pages = &mut node.pages;
                for (sum, column) in [
                    (&mut pages.hit, &t.hit),
                    (&mut pages.miss, &t.miss),
                    (&mut pages.foreign, &t.foreign),
                    (&mut pages.interleave_hit, &t.interleave_hit),
                    (&mut pages.local, &t.local),
                    (&mut pages.other, &t.other),
                ] {
                    if let Some(n) = column.get(r) {
                        *sum = Some(sum.unwrap_or(0).saturating_add(n));
                    }
                }
            }
            self.elapsed = self.elapsed.max(elapsed);
        }
    }

    fn read_processes(
        &mut self,
        t: &numa_processes::Reader<'_>,
        memory: Option<&numa_memory::Reader<'_>>,
        cpu: &mut CpuTime,
    ) {
        let mut pages_of: HashMap<u32, Vec<Pages<'_>>> = HashMap::new();
        if let Some(m) = memory {
            for r in last_rows(&m.time, m.rows(), |r| id(&m.pid, r)) {
                let (Some(pid), Some(node), Some(bytes), Some(object)) =
                    (id(&m.pid, r), id(&m.node, r), m.bytes.get(r), m.object.get(r))
                else {
                    continue;
                };
                let (policy, page) = (m.policy.get(r).unwrap_or("default"), m.page.get(r).unwrap_or(4096));
                pages_of.entry(pid).or_default().push(Pages { node, bytes, object, policy, page });
            }
        }
        for r in last_rows(&t.time, t.rows(), |r| id(&t.pid, r)) {
            let Some(pid) = id(&t.pid, r) else { continue };
            let pages = pages_of.remove(&pid).unwrap_or_default();
            let cpu = cpu.remove(&pid).unwrap_or_default();
            let process = self.process(t, r, pid, &pages, cpu);
            self.processes.push(process);
        }
        self.processes.sort_by(|a, b| {
            let key = |p: &Process| (p.placement.cost(), p.placement.seconds(), p.placement.bytes() as f64);
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal).then(a.pid.cmp(&b.pid))
        });
    }

    fn process(
        &self,
        t: &numa_processes::Reader<'_>,
        r: usize,
        pid: u32,
        pages: &[Pages<'_>],
        cpu: BTreeMap<u32, f64>,
    ) -> Process {
        let (mut all, mut data): (BTreeMap<u32, u64>, BTreeMap<u32, u64>) = Default::default();
        let mut hugetlb: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut places: BTreeMap<(&str, &str, u64), BTreeMap<u32, u64>> = BTreeMap::new();
        let small = 1 << 20;
        for &Pages { node, bytes, object, policy, page } in pages {
            *all.entry(node).or_default() += bytes;
            if object != "code" {
                *data.entry(node).or_default() += bytes;
                *places.entry((object, policy, page)).or_default().entry(node).or_default() += bytes;
            }
            if page >= small {
                *hugetlb.entry(page).or_default().entry(node).or_default() += bytes;
            }
        }
        let thp = t.thp.get(r);
        let total: u64 = data.values().sum();
        let mut interleaved = 0;
        let mut requests = Vec::new();
        let mut asked = false;
        for ((object, policy, page), nodes) in &places {
            let policy = Policy::parse(policy);
            let bytes: u64 = nodes.values().sum();
            asked |= !matches!(policy.mode, Mode::Default | Mode::Other);
            if policy.mode == Mode::Interleave {
                interleaved += bytes;
            }
            let huge = *page >= small || (thp.unwrap_or(0) > 0 && *object != "stack");
            if let Some((effect, why)) = requests::judge(&policy, nodes, *page, huge) {
                requests.push(Request {
                    pid: Some(pid),
                    object: (*object).into(),
                    asked: policy.text,
                    bytes,
                    effect,
                    why,
                });
            }
        }
        let mems = t.mems.get(r).and_then(|m| CpuSet::parse_list(m).ok()).filter(|m| !m.is_empty());
        if let Some(mems) = &mems
            && let Some((effect, why, bytes)) = requests::outside_cpuset(mems, &data)
        {
            let asked = format!("cpuset nodes {mems}");
            requests.push(Request { pid: Some(pid), object: "all".into(), asked, bytes, effect, why });
        }
        requests.sort_by_key(|q| (std::cmp::Reverse(q.effect), std::cmp::Reverse(q.bytes)));
        let hints =
            Hints { interleaved: interleaved as f64 / total.max(1) as f64, together: t.together.get(r) };
        let memory = if total > 0 { data } else { all };
        // Looked at before it made its threads, it has had them all the same.
        let ran = cpu.values().fold(0.0, |sum, s| sum + s) / self.elapsed.max(f64::MIN_POSITIVE);
        Process {
            pid,
            name: t.process.get(r).unwrap_or("?").into(),
            threads: t.threads.get(r).unwrap_or(1).max(ran.round() as u64),
            placement: Placement::judge(memory, cpu, hints, &self.distances),
            thp,
            hugetlb,
            requests,
            asked,
            libnuma: t.libnuma.get(r) == Some("yes"),
            mems,
            faults: t.faults_remote.get(r).zip(t.faults.get(r)),
            sampled: t.sampled.get(r),
        }
    }

    fn read_segments(
        &mut self,
        t: &numa_segments::Reader<'_>,
        m: &numa_segment_memory::Reader<'_>,
        cpu: &CpuTime,
    ) {
        let mut nodes_of: HashMap<&str, BTreeMap<u32, u64>> = HashMap::new();
        for r in last_rows(&m.time, m.rows(), |r| m.segment.get(r)) {
            let (Some(name), Some(node), Some(bytes)) = (m.segment.get(r), id(&m.node, r), m.bytes.get(r))
            else {
                continue;
            };
            *nodes_of.entry(name).or_default().entry(node).or_default() += bytes;
        }
        for r in last_rows(&t.time, t.rows(), |r| t.segment.get(r)) {
            let Some(name) = t.segment.get(r) else { continue };
            let memory = nodes_of.get(name).cloned().unwrap_or_default();
            let pids: Vec<u32> =
                t.pids.get(r).unwrap_or("").split(' ').filter_map(|p| p.parse().ok()).collect();
            let mut time: BTreeMap<u32, f64> = BTreeMap::new();
            for (node, s) in pids.iter().filter_map(|p| cpu.get(p)).flatten() {
                *time.entry(*node).or_default() += s;
            }
            let bytes: u64 = memory.values().sum();
            let page = t.page.get(r).unwrap_or(4096);
            let (mut requests, mut interleaved) = (Vec::new(), 0.0);
            let own = t.policy.get(r);
            // A segment has its mount's policy unless it was given another.
            for (of_mount, policy) in [(false, own), (true, t.mpol.get(r).filter(|mpol| own != Some(mpol)))] {
                let Some(policy) = policy.map(Policy::parse) else { continue };
                if policy.mode == Mode::Interleave && !of_mount {
                    interleaved = 1.0;
                }
                if let Some((effect, mut why)) = requests::judge(&policy, &memory, page, false) {
                    if of_mount && effect >= Effect::Partly {
                        why += "; a remount's mpol= holds for files made afterwards";
                    }
                    let asked = format!("{}{}", if of_mount { "mpol=" } else { "" }, policy.text);
                    requests.push(Request { pid: None, object: name.into(), asked, bytes, effect, why });
                }
            }
            let hints = Hints { interleaved, together: t.together.get(r) };
            self.segments.push(Segment {
                name: name.into(),
                kind: t.kind.get(r).unwrap_or("").into(),
                size: t.size.get(r).unwrap_or(0),
                resident: t.resident.get(r),
                pids,
                placement: Placement::judge(memory, time, hints, &self.distances),
                requests,
                policy: own.map(str::to_string),
                how: t.how.get(r).unwrap_or("").into(),
            });
        }
        self.segments.sort_by(|a, b| {
            let key = |s: &Segment| (s.placement.cost(), s.placement.bytes() as f64);
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal).then(a.name.cmp(&b.name))
        });
    }
}

fn id(column: &Ints<'_>, row: usize) -> Option<u32> {
    column.get(row).and_then(|n| u32::try_from(n).ok())
}

/// Pages of a process on a node, of one object, policy and size.
struct Pages<'a> {
    node: u32,
    bytes: u64,
    object: &'a str,
    policy: &'a str,
    page: u64,
}

impl Process {
    /// The command that would bring its memory to its threads; `None` where nothing is to be gained.
    pub fn remedy(&self) -> Option<String> {
        remedy(&self.placement, self.threads, !self.asked)
    }
}

impl Segment {
    /// The command that would bring it to its users.
    pub fn remedy(&self) -> Option<String> {
        remedy(&self.placement, 2, true)
    }
}

fn remedy(p: &Placement, threads: u64, nothing_asked: bool) -> Option<String> {
    if p.cost() <= 0.0 {
        return None;
    }
    let eye = p.eye()?;
    let nodes = |n: Vec<u32>| n.into_iter().collect::<CpuSet>().to_list();
    Some(match p.verdict {
        Verdict::Cyclops(_) if threads > 1 => format!(
            "let each thread touch first what it will use; or interleave it over nodes {}{}",
            nodes(p.ran_on()),
            if nothing_asked {
                ": set_mempolicy(MPOL_INTERLEAVE) before the first touch, mpol=interleave for tmpfs, huge pages"
            } else {
                ""
            }
        ),
        Verdict::Cyclops(_) => {
            format!("let it run on node {eye}, beside its memory")
        }
        Verdict::Misplaced => {
            let at = nodes(p.ran_on());
            let from = nodes(p.memory.keys().copied().filter(|&n| p.memory_share(n) >= 0.01).collect());
            format!(
                "let its memory come from node {at}, where it runs, when it starts; as it runs, move the memory from node {from} to {at}, or the threads"
            )
        }
        Verdict::Interleaved if p.ran_on().len() == 1 => {
            format!("all its threads run on one node: let its memory come from node {}", nodes(p.ran_on()))
        }
        Verdict::Spread => {
            "let each thread touch first what it will use and stay on its node, or interleave".into()
        }
        _ => return None,
    })
}

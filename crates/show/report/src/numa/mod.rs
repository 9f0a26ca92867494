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
use ncpu_table::Table;

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
    /// The row of `numa_nodes` by column, for what is only shown.
    pub numbers: BTreeMap<String, f64>,
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
    /// Where its memory and its CPU time are. Without its programs' and libraries' text, unless that is
    /// all there is.
    pub placement: Placement,
    /// Bytes in transparent huge pages.
    pub thp: Option<u64>,
    /// Bytes in hugetlb pages by page size and node.
    pub hugetlb: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// What it asked for.
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

/// The rows of the last `t` of each key.
fn last_rows<K: std::hash::Hash + Eq>(table: &Table, key: impl Fn(usize) -> Option<K>) -> Vec<usize> {
    let t = |row| table.number(row, "t").unwrap_or(0.0);
    let mut last: HashMap<K, f64> = HashMap::new();
    for row in 0..table.num_rows() {
        let Some(key) = key(row) else { continue };
        let at = last.entry(key).or_insert(f64::MIN);
        *at = at.max(t(row));
    }
    (0..table.num_rows()).filter(|&r| key(r).and_then(|k| last.get(&k).copied()) == Some(t(r))).collect()
}

impl Numa {
    /// Reads the tables: memory as it was at each process's last look, CPU time of all intervals.
    pub fn read<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Numa {
        let tables: HashMap<&str, &Table> = tables.into_iter().map(|t| (t.name(), t)).collect();
        let get = |name: &str| tables.get(name).copied();
        let mut numa = Numa::default();
        if let Some(t) = get("numa_distances") {
            for r in 0..t.num_rows() {
                let (Some(from), Some(to), Some(d)) =
                    (id(t, r, "from"), id(t, r, "to"), t.number(r, "distance"))
                else {
                    continue;
                };
                numa.distances.0.insert((from, to), d);
            }
        }
        if let Some(t) = get("numa_nodes") {
            numa.read_nodes(t);
        }
        if let Some(t) = get("numa_settings") {
            for r in last_rows(t, |r| t.text(r, "setting")) {
                let (Some(name), Some(value)) = (t.text(r, "setting"), t.text(r, "value")) else { continue };
                numa.settings.insert(name.into(), value.into());
            }
        }
        if let Some(t) = get("numa_events") {
            for r in 0..t.num_rows() {
                let (Some(name), Some(n)) = (t.text(r, "event"), t.int(r, "count")) else { continue };
                *numa.events.entry(name.into()).or_default() += n;
            }
        }
        let mut cpu: HashMap<u32, BTreeMap<u32, f64>> = HashMap::new();
        if let Some(t) = get("numa_cpu") {
            for r in 0..t.num_rows() {
                let (Some(pid), Some(node), Some(s)) =
                    (id(t, r, "pid"), id(t, r, "node"), t.number(r, "cpu"))
                else {
                    continue;
                };
                *cpu.entry(pid).or_default().entry(node).or_default() += s;
            }
        }
        numa.read_segments(get("numa_segments"), get("numa_segment_memory"), &cpu);
        if let Some(t) = get("numa_processes") {
            numa.read_processes(t, get("numa_memory"), &mut cpu);
        }
        numa.gone = cpu.values().flat_map(|c| c.values()).fold(0.0, |sum, s| sum + s);
        numa
    }

    /// The process whose placement costs most, where the cost is at least 5 % of all CPU time, and the remedy.
    pub(crate) fn worst(&self) -> Option<(&Process, String)> {
        let all: f64 = self.processes.iter().map(|p| p.placement.seconds()).sum::<f64>() + self.gone;
        let worst = self.processes.first().filter(|p| p.placement.cost() >= 0.05 * all)?;
        Some((worst, worst.remedy()?))
    }

    fn read_nodes(&mut self, t: &Table) {
        for r in last_rows(t, |r| id(t, r, "node")) {
            let Some(id) = id(t, r, "node") else { continue };
            let cpus = t.text(r, "cpus").and_then(|c| CpuSet::parse_list(c).ok()).unwrap_or_default();
            let numbers =
                t.columns().iter().filter_map(|c| Some((c.name.clone(), t.number(r, &c.name)?))).collect();
            self.nodes.push(Node { id, cpus, numbers });
        }
        // What was counted is of all intervals.
        for r in 0..t.num_rows() {
            let Some(node) = id(t, r, "node").and_then(|id| self.nodes.iter_mut().find(|n| n.id == id))
            else {
                continue;
            };
            if Some(&t.number(r, "t").unwrap_or(0.0)) == node.numbers.get("t") {
                continue;
            }
            for c in ["elapsed", "hit", "miss", "foreign", "interleave_hit", "local", "other"] {
                *node.numbers.entry(c.into()).or_default() += t.number(r, c).unwrap_or(0.0);
            }
        }
        self.nodes.sort_by_key(|n| n.id);
        self.elapsed =
            self.nodes.iter().filter_map(|n| n.numbers.get("elapsed").copied()).fold(0.0, f64::max);
    }

    fn read_processes(
        &mut self,
        t: &Table,
        memory: Option<&Table>,
        cpu: &mut HashMap<u32, BTreeMap<u32, f64>>,
    ) {
        let mut rows_of: HashMap<u32, Vec<usize>> = HashMap::new();
        if let Some(m) = memory {
            for r in last_rows(m, |r| id(m, r, "pid")) {
                let Some(pid) = id(m, r, "pid") else { continue };
                rows_of.entry(pid).or_default().push(r);
            }
        }
        for r in last_rows(t, |r| id(t, r, "pid")) {
            let Some(pid) = id(t, r, "pid") else { continue };
            let rows = rows_of.remove(&pid).unwrap_or_default();
            let cpu = cpu.remove(&pid).unwrap_or_default();
            let process = self.process(t, r, pid, memory, &rows, cpu);
            self.processes.push(process);
        }
        self.processes.sort_by(|a, b| {
            let key = |p: &Process| (p.placement.cost(), p.placement.seconds(), p.placement.bytes() as f64);
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal).then(a.pid.cmp(&b.pid))
        });
    }

    fn process(
        &self,
        t: &Table,
        r: usize,
        pid: u32,
        memory: Option<&Table>,
        rows: &[usize],
        cpu: BTreeMap<u32, f64>,
    ) -> Process {
        let (mut all, mut data): (BTreeMap<u32, u64>, BTreeMap<u32, u64>) = Default::default();
        let mut hugetlb: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut places: BTreeMap<(String, String, u64), BTreeMap<u32, u64>> = BTreeMap::new();
        let small = 1 << 20;
        for (&r, m) in rows.iter().zip(std::iter::repeat(memory)) {
            let Some(m) = m else { continue };
            let (Some(node), Some(bytes), Some(object)) =
                (id(m, r, "node"), m.int(r, "bytes"), m.text(r, "object"))
            else {
                continue;
            };
            let (policy, page) = (m.text(r, "policy").unwrap_or("default"), m.int(r, "page").unwrap_or(4096));
            *all.entry(node).or_default() += bytes;
            if object != "code" {
                *data.entry(node).or_default() += bytes;
                let key = (object.to_string(), policy.to_string(), page);
                *places.entry(key).or_default().entry(node).or_default() += bytes;
            }
            if page >= small {
                *hugetlb.entry(page).or_default().entry(node).or_default() += bytes;
            }
        }
        let thp = t.int(r, "thp");
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
            let huge = *page >= small || (thp.unwrap_or(0) > 0 && object != "stack");
            if let Some((effect, why)) = requests::judge(&policy, nodes, *page, huge) {
                requests.push(Request {
                    pid: Some(pid),
                    object: object.clone(),
                    asked: policy.text,
                    bytes,
                    effect,
                    why,
                });
            }
        }
        let mems = t.text(r, "mems").and_then(|m| CpuSet::parse_list(m).ok()).filter(|m| !m.is_empty());
        if let Some(mems) = &mems
            && let Some((effect, why, bytes)) = requests::outside_cpuset(mems, &data)
        {
            let asked = format!("cpuset nodes {mems}");
            requests.push(Request { pid: Some(pid), object: "all".into(), asked, bytes, effect, why });
        }
        requests.sort_by_key(|q| (std::cmp::Reverse(q.effect), std::cmp::Reverse(q.bytes)));
        let hints = Hints {
            interleaved: interleaved as f64 / total.max(1) as f64,
            together: t.number(r, "together"),
        };
        let memory = if total > 0 { data } else { all };
        // Looked at before it made its threads, it has had them all the same.
        let ran = cpu.values().fold(0.0, |sum, s| sum + s) / self.elapsed.max(f64::MIN_POSITIVE);
        Process {
            pid,
            name: t.text(r, "process").unwrap_or("?").into(),
            threads: t.int(r, "threads").unwrap_or(1).max(ran.round() as u64),
            placement: Placement::judge(memory, cpu, hints, &self.distances),
            thp,
            hugetlb,
            requests,
            asked,
            libnuma: t.text(r, "libnuma") == Some("yes"),
            mems,
            faults: t.number(r, "faults_remote").zip(t.int(r, "faults")),
            sampled: t.int(r, "sampled"),
        }
    }

    fn read_segments(
        &mut self,
        table: Option<&Table>,
        memory: Option<&Table>,
        cpu: &HashMap<u32, BTreeMap<u32, f64>>,
    ) {
        let (Some(t), Some(m)) = (table, memory) else { return };
        let mut nodes_of: HashMap<&str, BTreeMap<u32, u64>> = HashMap::new();
        for r in last_rows(m, |r| m.text(r, "segment")) {
            let (Some(name), Some(node), Some(bytes)) =
                (m.text(r, "segment"), id(m, r, "node"), m.int(r, "bytes"))
            else {
                continue;
            };
            *nodes_of.entry(name).or_default().entry(node).or_default() += bytes;
        }
        for r in last_rows(t, |r| t.text(r, "segment")) {
            let Some(name) = t.text(r, "segment") else { continue };
            let memory = nodes_of.get(name).cloned().unwrap_or_default();
            let pids: Vec<u32> =
                t.text(r, "pids").unwrap_or("").split(' ').filter_map(|p| p.parse().ok()).collect();
            let mut time: BTreeMap<u32, f64> = BTreeMap::new();
            for (node, s) in pids.iter().filter_map(|p| cpu.get(p)).flatten() {
                *time.entry(*node).or_default() += s;
            }
            let bytes: u64 = memory.values().sum();
            let page = t.int(r, "page").unwrap_or(4096);
            let (mut requests, mut interleaved) = (Vec::new(), 0.0);
            for (prefix, column) in [("", "policy"), ("mpol=", "mpol")] {
                let Some(policy) = t.text(r, column).map(Policy::parse) else { continue };
                // A segment has its mount's policy unless it was given another.
                if column == "mpol" && t.text(r, "policy") == Some(&policy.text) {
                    continue;
                }
                if policy.mode == Mode::Interleave && column == "policy" {
                    interleaved = 1.0;
                }
                if let Some((effect, mut why)) = requests::judge(&policy, &memory, page, false) {
                    if column == "mpol" && effect >= Effect::Partly {
                        why += "; a remount's mpol= holds for files made afterwards";
                    }
                    let asked = format!("{prefix}{}", policy.text);
                    requests.push(Request { pid: None, object: name.into(), asked, bytes, effect, why });
                }
            }
            let hints = Hints { interleaved, together: t.number(r, "together") };
            self.segments.push(Segment {
                name: name.into(),
                kind: t.text(r, "kind").unwrap_or("").into(),
                size: t.int(r, "size").unwrap_or(0),
                resident: t.int(r, "resident"),
                pids,
                placement: Placement::judge(memory, time, hints, &self.distances),
                requests,
                policy: t.text(r, "policy").map(str::to_string),
                how: t.text(r, "how").unwrap_or("").into(),
            });
        }
        self.segments.sort_by(|a, b| {
            let key = |s: &Segment| (s.placement.cost(), s.placement.bytes() as f64);
            key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal).then(a.name.cmp(&b.name))
        });
    }
}

fn id(t: &Table, row: usize, column: &str) -> Option<u32> {
    t.int(row, column).and_then(|n| u32::try_from(n).ok())
}

impl Process {
    /// What would bring its memory to its threads; `None` where nothing is to be gained.
    pub fn remedy(&self) -> Option<String> {
        remedy(&self.placement, self.threads, !self.asked)
    }
}

impl Segment {
    /// What would bring it to its users.
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

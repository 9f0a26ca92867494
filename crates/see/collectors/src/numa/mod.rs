//! Where memory lies and where its users run: pages of processes and of shared segments by NUMA
//! node, CPU time by node, policies, huge pages, NUMA balancing.
//!
//! A small program at `sched_switch` (`numa.bpf.c`) keeps each thread's CPU time by node in its task storage, and the processes with
//! most of it have their numa_maps read now and then. `ncpu run` and `watch` use the same code on machines of several nodes, so that
//! the onion can say under user code whose memory lies where.

mod layout;
mod load;
mod probe;
mod procfs;
mod segments;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;
mod tables;
mod time;
mod times;
mod wants;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ncpu_machine::numa_maps::{self, Mapping, Mode, What};
use ncpu_machine::{CpuSet, Topology};
use ncpu_table::Table;

pub use procfs::Proc;
use segments::Segments;
use time::Source;
use times::Times;
pub use wants::Wants;

/// The processes whose memory is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process's.
    All,
    /// A process's and its descendants'.
    Tree(u32),
    /// The processes of a cgroup and those below it, in any hierarchy (v1 or v2): a path below its
    /// mount.
    Cgroup(String),
    /// These processes'.
    Processes(Vec<u32>),
}

/// How much to look at.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose.
    pub scope: Scope,
    /// The machine's root directory; `/` for the running one, the only one whose CPU time is observed.
    pub root: PathBuf,
    /// A process of more resident bytes than this is sampled, not walked.
    pub sample_above: u64,
    /// Number of processes looked at, those with most CPU time; `None` for all.
    pub most: Option<usize>,
    /// Count transparent huge pages, which walks page tables once more.
    pub huge: bool,
    /// Look into segments that nobody maps or whose mappers do not show all of it.
    pub probe: bool,
}

impl Config {
    /// Everything about the processes of `scope`.
    pub fn of(scope: Scope) -> Config {
        Config { scope, root: "/".into(), sample_above: 64 << 30, most: None, huge: true, probe: true }
    }
}

/// A running observation.
pub struct Numa {
    config: Config,
    proc: Proc,
    topology: Topology,
    source: Option<Source>,
    before: Times,
    node_stats: HashMap<u32, BTreeMap<String, u64>>,
    vmstat: HashMap<String, u64>,
    started: Instant,
    last: Instant,
    dropped: u64,
    ticked: bool,
    notes: Vec<String>,
}

/// A process as it was looked at.
#[derive(Clone, Debug, Default)]
struct Process {
    pid: u32,
    name: String,
    threads: u64,
    /// Bytes resident.
    rss: u64,
    /// By object, segment, policy and page size: bytes by node.
    memory: BTreeMap<Place, BTreeMap<u32, u64>>,
    /// Nodes its cpuset allows.
    mems: Option<CpuSet>,
    /// Bytes in transparent huge pages.
    huge: Option<u64>,
    /// Of neighbouring pages of spread mappings, the share on one node.
    neighbours: Option<f64>,
    /// Share of hint faults on memory of another node than the thread's.
    faults_remote: Option<(f64, u64)>,
    /// Whether libnuma is mapped.
    libnuma: bool,
    /// Pages looked at where it was sampled.
    sampled: Option<u64>,
    /// Seconds the look took.
    took: f64,
}

/// The key by which memory is summed up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    object: String,
    segment: Option<String>,
    policy: String,
    page: u64,
}

impl Numa {
    /// Begins: from here on CPU time is charged to nodes.
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn begin(config: Config) -> ncpu_machine::Result<Numa> {
        let topology = Topology::read(&config.root)?;
        let mut notes = topology.warnings.clone();
        let live = config.root == Path::new("/");
        let source = live.then(|| Source::open(&topology)).map(|(source, note)| {
            notes.extend(note);
            source
        });
        let now = Instant::now();
        let mut numa = Numa {
            proc: Proc::new(&config.root),
            config,
            topology,
            source,
            before: Times::default(),
            node_stats: HashMap::new(),
            vmstat: HashMap::new(),
            started: now,
            last: now,
            dropped: 0,
            ticked: false,
            notes,
        };
        numa.poll();
        numa.before = numa.times();
        numa.node_stats = numa.read_node_stats();
        numa.vmstat = numa.proc.vmstat();
        Ok(numa)
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Parts that could not be observed, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where CPU time is sampled, takes a sample; to be called some ten times a second.
    pub fn poll(&mut self) {
        if !matches!(self.source, Some(Source::Sampled(_))) {
            return;
        }
        let pids = self.pids();
        if let Some(source) = &mut self.source {
            source.poll(&self.proc, &pids);
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn times(&mut self) -> Times {
        let pids = self.pids();
        let Some(source) = &mut self.source else { return Times::default() };
        match source.read(&self.proc, &pids) {
            Ok((times, dropped)) => {
                if dropped > self.dropped {
                    let ms = (dropped - self.dropped) as f64 / 1e6;
                    self.dropped = dropped;
                    self.note(format!(
                        "dropped: {ms:.1} ms of CPU time that no thread's record had room for"
                    ));
                }
                times
            }
            Err(e) => {
                self.note(format!("no CPU time by node: {e}"));
                self.before.clone()
            }
        }
    }

    /// The processes in scope.
    fn pids(&self) -> Vec<u32> {
        match &self.config.scope {
            Scope::All => self.proc.pids(),
            Scope::Processes(pids) => pids.clone(),
            Scope::Tree(root) => {
                let parents: Vec<(u32, u32)> = self
                    .proc
                    .pids()
                    .into_iter()
                    .filter_map(|pid| Some((pid, self.proc.stat(pid)?.parent)))
                    .collect();
                let mut tree = BTreeSet::from([*root]);
                // Numbers wrap around, so a child's may be below its parent's.
                loop {
                    let before = tree.len();
                    tree.extend(
                        parents.iter().filter(|(_, p)| tree.contains(p)).map(|(c, _)| *c).collect::<Vec<_>>(),
                    );
                    if tree.len() == before {
                        return tree.into_iter().collect();
                    }
                }
            }
            Scope::Cgroup(path) => {
                let path = format!("/{}", path.trim_matches('/'));
                let below = |c: &String| {
                    c.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let all = self.proc.pids();
                all.into_iter()
                    .filter(|pid| path == "/" || self.proc.cgroups(*pid).iter().any(below))
                    .collect()
            }
        }
    }

    /// [`Numa::tick`] of these processes.
    pub fn look_at(&mut self, pids: Vec<u32>) -> Vec<Table> {
        self.config.scope = Scope::Processes(pids);
        self.tick()
    }

    /// Changes since the last tick, and the current places of memory. Distances, which do not change, come
    /// with the first.
    pub fn tick(&mut self) -> Vec<Table> {
        let began = Instant::now();
        let t = (began - self.started).as_secs_f64();
        let elapsed = (began - self.last).as_secs_f64();
        self.last = began;
        let times = self.times();
        let spent = times.since(&self.before);
        self.before = times;

        let pids = self.chosen(&spent);
        let mut segments = Segments::new(&self.proc);
        let mut processes = Vec::new();
        let mut refused = 0usize;
        for pid in pids {
            match self.process(pid, &spent, &mut segments) {
                Look::Seen(process) => processes.push(*process),
                Look::Refused => refused += 1,
                Look::Gone => {}
            }
        }
        if refused > 0 {
            let what = if refused == 1 { "1 process is".into() } else { format!("{refused} processes are") };
            let why = match rustix::process::geteuid().is_root() {
                true => "the kernel does not let it be seen (another user namespace, or a security module)",
                false => "seeing other users' pages needs root",
            };
            self.note(format!("{what} left out: {why}"));
        }
        segments.complete(&self.proc, self.config.probe, self.config.scope == Scope::All);
        let stats = self.read_node_stats();
        let vmstat = self.proc.vmstat();
        let first = !std::mem::replace(&mut self.ticked, true);
        let distances = first.then(|| tables::distances(&self.topology));
        let mut out = vec![
            tables::nodes(t, elapsed, &self.topology, &stats, &self.node_stats),
            tables::processes(t, &processes),
            tables::memory(t, &processes),
            tables::cpu(t, &spent, &self.in_scope(&spent, &processes)),
            tables::segments(t, &segments),
            tables::segment_memory(t, &segments),
            tables::events(t, &vmstat, &self.vmstat),
            tables::settings(t, &self.settings(began.elapsed())),
        ];
        out.extend(distances);
        self.node_stats = stats;
        self.vmstat = vmstat;
        out
    }

    /// Processes that ran and are in scope: those that ended before they were looked at are known by
    /// their CPU time alone.
    fn in_scope(&self, spent: &Times, processes: &[Process]) -> HashSet<u32> {
        match &self.config.scope {
            Scope::All => spent.processes.keys().copied().collect(),
            Scope::Processes(pids) => pids.iter().copied().collect(),
            _ => processes.iter().map(|p| p.pid).collect(),
        }
    }

    /// The processes to look at, most CPU time first.
    fn chosen(&self, spent: &Times) -> Vec<u32> {
        let mut pids = self.pids();
        let ran = |pid: &u32| -> u64 { spent.processes.get(pid).map_or(0, |p| p.nodes.values().sum()) };
        pids.retain(|&pid| pid != std::process::id());
        pids.sort_by_key(|pid| (std::cmp::Reverse(ran(pid)), *pid));
        if let Some(most) = self.config.most {
            pids.truncate(most);
        }
        pids
    }

    fn process(&mut self, pid: u32, spent: &Times, segments: &mut Segments) -> Look {
        let Some(stat) = self.proc.stat(pid) else { return Look::Gone };
        // Kernel threads have no memory of their own.
        if stat.rss == 0 {
            return Look::Gone;
        }
        let began = Instant::now();
        let rss = stat.rss.saturating_mul(rustix::param::page_size() as u64);
        let mut process = Process { pid, name: stat.name, threads: stat.threads, rss, ..Process::default() };
        process.mems = self.proc.mems_allowed(pid);
        let many = self.topology.nodes.len() > 1;
        let sampled =
            (rss > self.config.sample_above && self.live()).then(|| sample(&self.proc, pid, rss)).flatten();
        let regions = self.proc.maps(pid);
        let maps = match sampled {
            Some((maps, pages)) => {
                process.sampled = Some(pages);
                maps
            }
            None => {
                match self.proc.numa_maps(pid) {
                    Ok(maps) => maps,
                    Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Look::Refused,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound && self.proc.stat(pid).is_some() => {
                        // The kernel is built without CONFIG_NUMA: all there is lies on its one node.
                        self.note("this kernel tells no numa_maps (CONFIG_NUMA is off): pages are counted on node 0".into());
                        let place = Place {
                            object: "resident".into(),
                            segment: None,
                            policy: "default".into(),
                            page: rustix::param::page_size() as u64,
                        };
                        process.memory.insert(place, BTreeMap::from([(0, rss)]));
                        return Look::Seen(Box::new(process));
                    }
                    Err(_) => return Look::Gone,
                }
            }
        };
        let by_start: HashMap<u64, &procfs::Region> = regions.iter().map(|r| (r.range.0, r)).collect();
        process.libnuma =
            regions.iter().any(|r| r.name.rsplit('/').next().is_some_and(|n| n.starts_with("libnuma.so")));
        // Programs and libraries: their text is in caches, so where it lies says little.
        let code: HashSet<(u64, u64)> =
            regions.iter().filter(|r| r.code && r.inode != 0).map(|r| (r.device, r.inode)).collect();
        // Large mappings with a policy of their own are listed one by one.
        let asks = |m: &Mapping| !matches!(m.policy.mode, Mode::Default | Mode::Other);
        let mut placed: Vec<&Mapping> = maps.iter().filter(|m| asks(m) && m.bytes() >= 1 << 20).collect();
        placed.sort_by_key(|m| std::cmp::Reverse(m.bytes()));
        let alone: HashSet<u64> = placed.iter().take(64).map(|m| m.start).collect();
        for m in &maps {
            let region = by_start.get(&m.start).copied();
            let segment = region.and_then(|r| segments.add(&self.proc, &process, r, m));
            if m.nodes.is_empty() {
                continue;
            }
            let object = match (&segment, &m.what) {
                (Some(segment), _) => segment.clone(),
                (_, What::Anonymous) if alone.contains(&m.start) => format!("anonymous {:x}", m.start),
                (_, What::Anonymous) => "anonymous".into(),
                (_, What::Heap) => "heap".into(),
                (_, What::Stack) => "stack".into(),
                (_, What::File(_)) if region.is_some_and(|r| code.contains(&(r.device, r.inode))) => {
                    "code".into()
                }
                (_, What::File(_)) => "files".into(),
            };
            let place = Place { object, segment, policy: m.policy.text.clone(), page: m.page };
            let nodes = process.memory.entry(place).or_default();
            for (node, bytes) in &m.nodes {
                *nodes.entry(*node).or_default() += bytes;
            }
        }
        if many && self.live() {
            process.neighbours = neighbours(pid, &maps, &regions);
            process.faults_remote = self.faults(pid, spent);
        }
        if self.config.huge && process.sampled.is_none() {
            process.huge = self.proc.huge_bytes(pid);
        }
        process.took = began.elapsed().as_secs_f64();
        Look::Seen(Box::new(process))
    }

    fn live(&self) -> bool {
        self.config.root == Path::new("/")
    }

    /// NUMA balancing makes threads fault on their pages now and then, and counts on which node those
    /// lie: with where each thread ran, a measured share of remote accesses.
    fn faults(&self, pid: u32, spent: &Times) -> Option<(f64, u64)> {
        let threads = &spent.processes.get(&pid)?.threads;
        let (mut remote, mut total) = (0.0, 0u64);
        for (tid, ran) in threads.iter().take(256) {
            let faults = self.proc.hint_faults(pid, *tid);
            let time: u64 = ran.values().sum();
            for (node, n) in faults {
                let here = ran.get(&node).copied().unwrap_or(0) as f64 / time.max(1) as f64;
                remote += n as f64 * (1.0 - here);
                total = total.saturating_add(n);
            }
        }
        (total > 0).then(|| (remote / total as f64, total))
    }

    /// `numastat` of each node, and its transparent huge pages.
    fn read_node_stats(&self) -> HashMap<u32, BTreeMap<String, u64>> {
        let dir = self.config.root.join("sys/devices/system/node");
        self.topology
            .nodes
            .iter()
            .map(|n| {
                let text = |f: &str| {
                    std::fs::read_to_string(dir.join(format!("node{}/{f}", n.id))).unwrap_or_default()
                };
                let mut stats = node_words(&text("numastat"));
                stats.extend(node_meminfo(&text("meminfo")));
                (n.id, stats)
            })
            .collect()
    }

    fn settings(&self, took: Duration) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        for (name, file) in [
            ("numa_balancing", "kernel/numa_balancing"),
            ("zone_reclaim_mode", "vm/zone_reclaim_mode"),
            ("nr_hugepages", "vm/nr_hugepages"),
        ] {
            out.extend(self.proc.sysctl(file).map(|v| (name, v)));
        }
        let off = self.proc.cmdline();
        out.extend(
            off.split_ascii_whitespace().find(|w| w.starts_with("numa=")).map(|w| ("cmdline", w.to_string())),
        );
        let exact = match self.source {
            Some(Source::Exact(_)) => "exact",
            Some(Source::Sampled(_)) => "sampled",
            None => "none",
        };
        out.push(("cpu_time", exact.into()));
        out.push(("looking_s", format!("{:.3}", took.as_secs_f64())));
        out
    }
}

enum Look {
    Seen(Box<Process>),
    Refused,
    Gone,
}

/// `numa_hit 123` lines.
fn node_words(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, n)| Some((name.to_string(), n.trim().parse().ok()?)))
        .collect()
}

/// `Node 0 AnonHugePages:  2048 kB` lines: what is free and the huge ones, in bytes.
fn node_meminfo(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|l| {
            let mut words = l.split_ascii_whitespace().skip(2);
            let name = words.next()?.strip_suffix(':')?;
            let kb: u64 = words.next()?.parse().ok()?;
            let wanted = ["MemFree", "AnonHugePages", "ShmemHugePages", "FileHugePages"].contains(&name);
            wanted.then(|| Some((name.to_string(), kb.checked_mul(1024)?)))?
        })
        .collect()
}

/// Whether neighbouring pages of the largest mappings that are spread over nodes lie together: those
/// that threads touched first in blocks do, interleaved ones do not.
fn neighbours(pid: u32, maps: &[Mapping], regions: &[procfs::Region]) -> Option<f64> {
    let spread = |m: &&Mapping| {
        let most = m.nodes.iter().map(|n| n.1).max().unwrap_or(0);
        m.bytes() >= 1 << 20 && (most as f64) < 0.98 * m.bytes() as f64
    };
    let total: u64 = maps.iter().map(Mapping::bytes).sum();
    let mut large: Vec<&Mapping> = maps.iter().filter(spread).collect();
    large.sort_by_key(|m| std::cmp::Reverse(m.bytes()));
    let seen: u64 = large.iter().map(|m| m.bytes()).sum();
    // Mappings that lie on a single node count as together.
    let (mut together, mut weight) = (total.saturating_sub(seen) as f64, total.saturating_sub(seen) as f64);
    for m in large.iter().take(8) {
        let region = regions.iter().find(|r| r.range.0 == m.start)?;
        let pages = (region.range.1 - region.range.0) / m.page;
        let pairs = 256.min(pages / 2);
        let addresses: Vec<u64> = (0..pairs)
            .flat_map(|i| {
                let at = m.start + (u128::from(i) * u128::from(pages) / u128::from(pairs)) as u64 * m.page;
                [at, at + m.page]
            })
            .collect();
        let nodes = probe::nodes_of(pid, &addresses).ok()?;
        let pairs = || nodes.chunks(2).filter(|n| n.iter().all(Option::is_some));
        let n = pairs().count();
        if n >= 16 {
            let same = pairs().filter(|n| n[0] == n[1]).count();
            together += m.bytes() as f64 * same as f64 / n as f64;
            weight += m.bytes() as f64;
        }
    }
    (weight > 0.0).then(|| together / weight)
}

/// A very large process by `move_pages` queries at even distances, instead of a walk of all its page
/// tables: mappings as numa_maps would tell them but for policies. `None` where too few of the
/// places are resident to stand for the rest.
fn sample(proc: &Proc, pid: u32, rss: u64) -> Option<(Vec<Mapping>, u64)> {
    const PLACES: u64 = 65_536;
    let regions = proc.maps(pid);
    let mapped = |r: &procfs::Region| r.range.1.saturating_sub(r.range.0);
    let total: u64 = regions.iter().map(mapped).fold(0, u64::saturating_add);
    let step = (total / PLACES).max(4096).next_multiple_of(4096);
    let mut maps = Vec::new();
    let (mut seen, mut hits, mut carry) = (Vec::new(), 0u64, 0u64);
    for r in &regions {
        let mut addresses = Vec::new();
        let mut at = r.range.0.saturating_add(carry);
        while at < r.range.1 {
            addresses.push(at);
            at = at.saturating_add(step);
        }
        carry = at.saturating_sub(r.range.1).min(step);
        let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
        for node in probe::nodes_of(pid, &addresses).ok()?.into_iter().flatten() {
            *nodes.entry(node).or_default() += 1;
            hits += 1;
        }
        seen.push((r, nodes));
    }
    if hits < 2048 {
        return None;
    }
    for (r, nodes) in seen {
        let what = match r.name.as_str() {
            "[heap]" => What::Heap,
            "[stack]" => What::Stack,
            "" => What::Anonymous,
            name if name.starts_with('[') => What::Anonymous,
            name => What::File(name.into()),
        };
        let scale = |n: u64| (n as f64 / hits as f64 * rss as f64) as u64;
        let policy = numa_maps::Policy::parse("not read");
        let nodes = nodes.into_iter().map(|(node, n)| (node, scale(n))).collect();
        maps.push(Mapping { start: r.range.0, policy, what, huge: false, page: 4096, nodes });
    }
    Some((maps, hits))
}

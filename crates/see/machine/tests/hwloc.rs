//! Every available tree is read as by hwloc: objects, their CPUs, memory, caches.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ncpu_machine::{CacheType, CpuSet, Topology};
use ncpu_machine_trees::{self as trees, generate};

/// One line per object, with the data that hwloc's XML and our model have in common.
fn ours(t: &Topology) -> Vec<String> {
    let id = |id: Option<u32>| id.map_or("-".into(), |id| id.to_string());
    let mut lines = Vec::new();
    lines.extend(t.cpus.iter().map(|c| format!("PU {} {}", c.id, c.id)));
    lines.extend(t.cores.iter().map(|c| format!("Core {} {}", id(c.id), c.cpus)));
    lines.extend(t.packages.iter().map(|p| format!("Package {} {}", id(p.id), p.cpus)));
    lines.extend(t.dies.iter().map(|d| format!("Die {} {}", id(d.id), d.cpus)));
    lines.extend(t.books.iter().map(|d| format!("Book {} {}", id(d.id), d.cpus)));
    lines.extend(t.drawers.iter().map(|d| format!("Drawer {} {}", id(d.id), d.cpus)));
    lines.extend(t.caches.iter().map(|c| {
        let kind = match c.ty {
            CacheType::Unified => 0,
            CacheType::Data => 1,
            CacheType::Instruction => 2,
        };
        format!("Cache L{} type {kind} size {} line {} ways {} {}", c.level, c.size, c.line, c.ways, c.cpus)
    }));
    lines.extend(
        t.nodes.iter().map(|n| format!("NUMANode {} memory {} {}", n.id, n.total.unwrap_or(0), n.local_cpus)),
    );
    lines.extend(t.nodes.iter().flat_map(|n| {
        n.side_caches.iter().map(|s| format!("MemCache {} size {} {}", s.level, s.size, n.local_cpus))
    }));
    lines.sort();
    lines
}

fn lstopo(root: &Path, options: &[&str]) -> Option<Vec<String>> {
    let out = Command::new("lstopo-no-graphics")
        .args(["--if", "fsroot", "--of", "xml", "--no-io", "--input"])
        .arg(root)
        .args(options)
        .output()
        .ok()?;
    assert!(out.status.success(), "lstopo: {}", String::from_utf8_lossy(&out.stderr));
    let xml = String::from_utf8(out.stdout).unwrap();
    let mut lines: Vec<String> = xml.split("<object ").skip(1).filter_map(object).collect();
    lines.sort();
    Some(lines)
}

fn object(tag: &str) -> Option<String> {
    let tag = &tag[..tag.find('>')?];
    let mut attributes = BTreeMap::new();
    let mut rest = tag;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        attributes.insert(key.trim(), value);
        rest = next;
    }
    let get = |key: &str| attributes.get(key).copied().unwrap_or("0");
    let id = attributes.get("os_index").copied().unwrap_or("-");
    // hwloc writes a group of zeros as an empty string.
    let group = |g: &str| if g.is_empty() { "0".into() } else { g.replace("0x", "") };
    let mask = get("cpuset").split(',').map(group).collect::<Vec<_>>().join(",");
    let cpus = CpuSet::parse_mask(&mask).unwrap();
    let line = match get("type") {
        kind @ ("PU" | "Core" | "Package" | "Die") => format!("{kind} {id} {cpus}"),
        "NUMANode" => format!("NUMANode {id} memory {} {cpus}", get("local_memory")),
        "MemCache" => format!("MemCache {} size {} {cpus}", get("depth"), get("cache_size")),
        "Group" => match get("subtype") {
            kind @ ("Book" | "Drawer") => format!("{kind} {id} {cpus}"),
            _ => return None,
        },
        kind if kind.starts_with('L') => format!(
            "Cache L{} type {} size {} line {} ways {} {cpus}",
            get("depth"),
            get("cache_type"),
            get("cache_size"),
            get("cache_linesize"),
            get("cache_associativity"),
        ),
        _ => return None,
    };
    Some(line)
}

fn compare(name: &str, root: &Path) -> bool {
    let t = Topology::read(root).unwrap();
    for (options, t) in [(&["--disallowed"][..], &t), (&[], &t.allowed_only())] {
        let Some(theirs) = lstopo(root, options) else {
            println!("skipped: lstopo-no-graphics is not installed (Debian: hwloc-nox)");
            return false;
        };
        let ours = ours(t);
        let only = |a: &[String], b: &[String]| {
            a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>().join("\n  ")
        };
        assert!(
            ours == theirs,
            "{name} {options:?}\nonly here:\n  {}\nonly hwloc:\n  {}",
            only(&ours, &theirs),
            only(&theirs, &ours)
        );
    }
    true
}

#[test]
fn gathered_trees() {
    let dir = tempfile::tempdir().unwrap();
    for machine in trees::machines() {
        let root = trees::unpack(&machine, dir.path());
        if !compare(&machine.display().to_string(), &root) {
            return;
        }
    }
}

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// A generated machine with a change, read as by hwloc.
struct Made(tempfile::TempDir);

impl Made {
    fn new(nodes: u32, cores: u32, threads: u32) -> Made {
        let dir = tempfile::tempdir().unwrap();
        generate::write(dir.path(), &generate::Shape { nodes, cores, threads }).unwrap();
        Made(dir)
    }

    fn put(self, path: &str, text: &str) -> Made {
        trees::put(self.0.path(), path, &format!("{text}\n"));
        self
    }

    fn drop(self, path: &str) -> Made {
        let path = self.0.path().join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        self
    }

    fn cpu(self, cpu: u32, file: &str, set: &str) -> Made {
        let mask = CpuSet::parse_list(set).unwrap().to_mask();
        self.put(&format!("{CPU}/cpu{cpu}/{file}"), &mask)
    }

    /// An x86 processor that quirks apply to.
    fn processor(self, vendor: &str, family: u32, model: u32) -> Made {
        let info =
            format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
        self.put("proc/cpuinfo", &info).put("proc/hwloc-nofile-info", "Architecture: x86_64")
    }

    fn node(self, node: u32, cpus: &str, distance: &str) -> Made {
        let mask = CpuSet::parse_list(cpus).unwrap().to_mask();
        self.put(&format!("{NODE}/node{node}/cpumap"), &mask)
            .put(&format!("{NODE}/node{node}/meminfo"), &format!("Node {node} MemTotal: 1048576 kB"))
            .put(&format!("{NODE}/node{node}/distance"), distance)
    }

    fn check(&self, name: &str) -> Topology {
        compare(name, self.0.path());
        Topology::read(self.0.path()).unwrap()
    }
}

#[test]
fn generated() {
    Made::new(3, 5, 3).check("generated");
    Made::new(1, 1, 1).check("one CPU");
}

#[test]
fn dies() {
    let mut made = Made::new(2, 4, 1);
    for (cpus, id) in [("0-1", 0), ("2-3", 1), ("4-5", 0), ("6-7", 1)] {
        for cpu in CpuSet::parse_list(cpus).unwrap().iter() {
            made = made.cpu(cpu, "topology/die_cpus", cpus);
            made = made.put(&format!("{CPU}/cpu{cpu}/topology/die_id"), &id.to_string());
        }
    }
    assert_eq!(made.check("two dies a package").dies.len(), 4);
    let made = made.put(&format!("{CPU}/cpu2/topology/die_id"), "-1");
    assert_eq!(made.check("a die without a number").dies[1].id, None);
}

#[test]
fn offline_and_sparse() {
    let made = Made::new(2, 3, 2).put(&format!("{CPU}/online"), "0,2-3,5-8,10");
    let t = made.check("offline CPUs");
    assert_eq!(t.offline().to_list(), "1,4,9,11");
    let made = made.drop(&format!("{CPU}/cpu3/topology"));
    made.check("an online CPU without a topology");
}

#[test]
fn memory_only_nodes() {
    let online = format!("{NODE}/online");
    let made = Made::new(2, 2, 1)
        .put(&online, "0-2")
        .node(0, "0-1", "10 21 17")
        .node(1, "2-3", "21 10 28")
        .node(2, "", "17 28 10");
    let t = made.check("memory nearest to node 0");
    assert_eq!((t.nodes[2].cpus.len(), t.nodes[2].local_cpus.to_list()), (0, "0-1".into()));
    let made = made.node(2, "", "28 28 10");
    assert!(made.check("memory as far from all").nodes[2].local_cpus.is_empty());
    let made = made.put(&format!("{NODE}/node2/access0/initiators/node1/x"), "");
    assert_eq!(made.check("memory with an initiator").nodes[2].local_cpus.to_list(), "2-3");
    let made = made
        .put(&format!("{NODE}/node2/memory_side_cache/index1/size"), "4194304")
        .put(&format!("{NODE}/node2/memory_side_cache/index1/line_size"), "64")
        .put(&format!("{NODE}/node2/memory_side_cache/index1/indexing"), "0");
    assert_eq!(made.check("a memory-side cache").nodes[2].side_caches.len(), 1);
    let made = made.put("proc/driver/nvidia/gpus/0000:01:00.0/numa_status", "Node: 2");
    assert_eq!(made.check("a GPU's memory").nodes.len(), 2);
    let made = made.node(1, "1-3", "21 10 28");
    assert_eq!(made.check("nodes that overlap").nodes.len(), 1);
}

#[test]
fn knights_landing() {
    let l3 =
        |t: &Topology| t.caches.iter().filter(|c| c.memory_side).map(|c| c.size >> 30).collect::<Vec<_>>();
    let knl = |nodes, cores| {
        let mut made = Made::new(nodes, cores, 4).processor("GenuineIntel", 6, 87);
        for cpu in 0..nodes * cores * 4 {
            made = made.drop(&format!("{CPU}/cpu{cpu}/cache/index3"));
        }
        made
    };
    assert_eq!(l3(&knl(1, 4).check("KNL, MCDRAM a cache")), [16]);
    assert_eq!(l3(&knl(4, 2).check("KNL, SNC4, MCDRAM a cache")), [4, 4, 4, 4]);
    let flat = knl(1, 4).put(&format!("{NODE}/online"), "0-1").node(0, "0-15", "10 31").node(1, "", "31 10");
    let t = flat.check("KNL, flat");
    assert!(l3(&t).is_empty());
    assert_eq!(t.nodes[1].local_cpus.to_list(), "0-15");
    let flat = knl(2, 2)
        .put(&format!("{NODE}/online"), "0-3")
        .node(0, "0-1,4-5,8-9,12-13", "10 21 31 41")
        .node(1, "2-3,6-7,10-11,14-15", "21 10 41 31")
        .node(2, "", "31 41 10 41")
        .node(3, "", "41 31 41 10");
    assert_eq!(flat.check("KNL, SNC2, flat").nodes[3].local_cpus.first(), Some(2));
}

#[test]
fn compute_units() {
    let mut made = Made::new(1, 2, 2).processor("AuthenticAMD", 21, 1);
    made.check("AMD, threads with a core's number");
    for cpu in 0..4u32 {
        made = made.put(&format!("{CPU}/cpu{cpu}/topology/core_id"), &cpu.to_string()).cpu(
            cpu,
            "cache/index0/shared_cpu_map",
            &cpu.to_string(),
        );
    }
    assert_eq!(made.check("AMD compute units").cores.len(), 4);
}

#[test]
fn old_kernels() {
    let mut made = Made::new(2, 2, 2);
    for cpu in 0..8 {
        for file in ["core_cpus", "package_cpus", "die_cpus", "cluster_cpus", "die_id", "cluster_id"] {
            made = made.drop(&format!("{CPU}/cpu{cpu}/topology/{file}"));
        }
    }
    made = made.drop(&format!("{CPU}/online")).put(&format!("{CPU}/cpu3/online"), "0");
    made.check("thread_siblings and cpuN/online");
    made = made.drop(NODE);
    assert_eq!(made.check("no NUMA").nodes.len(), 1);
}

#[test]
fn cpusets() {
    for (mount, name, files) in [
        ("cgroup2 /cg cgroup2 rw 0 0", "0::/job", ["cpuset.cpus.effective", "cpuset.mems.effective"]),
        ("cgroup /cg cgroup rw,cpuset 0 0", "4:cpuset:/job", ["cpuset.cpus", "cpuset.mems"]),
        ("none /cg cgroup rw,cpuset,noprefix 0 0", "4:cpuset:/job", ["cpus", "mems"]),
        ("none /cg cpuset rw 0 0", "4:cpuset:/job", ["cpus", "mems"]),
    ] {
        let made = Made::new(4, 2, 2)
            .put("proc/mounts", mount)
            .put("proc/self/cgroup", name)
            .put("cg/cgroup.controllers", "cpu cpuset io")
            .put(&format!("cg/job/{}", files[0]), "1-2,9")
            .put(&format!("cg/job/{}", files[1]), "0,3");
        let t = made.check(mount);
        assert_eq!((t.allowed.to_list(), t.allowed_nodes.to_list()), ("1-2,9".into(), "0,3".into()));
    }
}

#[test]
fn contradictions() {
    let made = Made::new(2, 4, 1)
        .cpu(2, "topology/package_cpus", "2-5")
        .cpu(4, "topology/package_cpus", "2-5")
        .cpu(5, "cache/index2/shared_cpu_map", "5-6")
        .cpu(6, "cache/index1/shared_cpu_map", "6-7")
        .cpu(1, "topology/core_cpus", "1-2");
    made.check("maps that contradict each other");
    // A level is not read again if size and neighbours are alike, so the size differs too.
    let made = made
        .cpu(0, "cache/index0/shared_cpu_map", "")
        .put(&format!("{CPU}/cpu3/cache/index1/size"), "99K")
        .put(&format!("{CPU}/cpu3/cache/index1/level"), "9");
    made.check("an empty map and a level that is none");
}

#[test]
fn this_machine() {
    // For its own machine hwloc also queries the processors, so it reads this machine as a tree.
    let t = Topology::read("/".as_ref()).unwrap();
    assert!(t.ncpu() > 0);
    assert_eq!(t.ncpu(), t.online.len());
    assert!(t.allowed.is_subset(&t.online));
}

//! Generates the sysfs tree of an invented machine, for tests and benchmarks.

use std::fs;
use std::io;
use std::path::Path;

use ncpu_machine::CpuSet;

/// The machine to write.
#[derive(Clone, Debug)]
pub struct Shape {
    /// NUMA nodes; each a package with one L3.
    pub nodes: u32,
    /// Cores of a node.
    pub cores: u32,
    /// Strands of a core; strand `s` of core `c` is CPU `s * all cores + c`, as on x86.
    pub threads: u32,
}

impl Shape {
    /// 2048 CPUs: 32 nodes of 32 cores of 2 strands.
    pub const LARGE: Shape = Shape { nodes: 32, cores: 32, threads: 2 };

    /// How many CPUs that is.
    pub fn ncpu(&self) -> u32 {
        self.nodes * self.cores * self.threads
    }
}

/// Writes the files a Linux 6.x on x86 would have, all that a reader may look at, below `root`.
///
/// # Errors
/// A file cannot be written.
pub fn write(root: &Path, shape: &Shape) -> io::Result<()> {
    let cores = shape.nodes * shape.cores;
    let all: CpuSet = (0..shape.ncpu()).collect();
    let strands = |core: u32| (0..shape.threads).map(move |s| s * cores + core);
    let node_cpus =
        |node: u32| -> CpuSet { (node * shape.cores..(node + 1) * shape.cores).flat_map(strands).collect() };
    let put = |path: String, text: String| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, text + "\n")
    };
    let mask = |set: &CpuSet| {
        // The kernel pads to the width of all possible CPUs.
        let groups = shape.ncpu().div_ceil(32) as usize;
        let text = set.to_mask();
        let (head, rest) = text.split_once(',').map_or((text.as_str(), ""), |(h, r)| (h, r));
        let have = text.split(',').count();
        let mut out = "00000000,".repeat(groups.saturating_sub(have));
        out.push_str(&format!("{head:0>8}"));
        if !rest.is_empty() {
            out.push_str(&format!(",{rest}"));
        }
        out
    };
    let cpu_dir = "sys/devices/system/cpu";
    for list in ["online", "present", "possible"] {
        put(format!("{cpu_dir}/{list}"), all.to_list())?;
    }
    let mut cpuinfo = String::new();
    for node in 0..shape.nodes {
        let package = node_cpus(node);
        for core in node * shape.cores..(node + 1) * shape.cores {
            let own: CpuSet = strands(core).collect();
            for cpu in strands(core) {
                let dir = format!("{cpu_dir}/cpu{cpu}");
                put(format!("{dir}/online"), "1".into())?;
                for (name, set) in [
                    ("core_cpus", &own),
                    ("thread_siblings", &own),
                    ("cluster_cpus", &own),
                    ("die_cpus", &package),
                    ("package_cpus", &package),
                    ("core_siblings", &package),
                ] {
                    put(format!("{dir}/topology/{name}"), mask(set))?;
                }
                for (name, id) in [
                    ("core_id", core % shape.cores),
                    ("cluster_id", core),
                    ("die_id", 0),
                    ("physical_package_id", node),
                ] {
                    put(format!("{dir}/topology/{name}"), id.to_string())?;
                }
                for (index, level, ty, kib, sets, ways, set) in [
                    (0, 1, "Data", 32, 64, 8, &own),
                    (1, 1, "Instruction", 32, 64, 8, &own),
                    (2, 2, "Unified", 1024, 1024, 16, &own),
                    (3, 3, "Unified", 49152, 49152, 16, &package),
                ] {
                    let cache = format!("{dir}/cache/index{index}");
                    for (name, text) in [
                        ("level", level.to_string()),
                        ("type", ty.to_string()),
                        ("size", format!("{kib}K")),
                        ("number_of_sets", sets.to_string()),
                        ("ways_of_associativity", ways.to_string()),
                        ("coherency_line_size", "64".into()),
                        ("physical_line_partition", "1".into()),
                        ("shared_cpu_map", mask(set)),
                        ("shared_cpu_list", set.to_list()),
                    ] {
                        put(format!("{cache}/{name}"), text)?;
                    }
                }
                put(format!("{dir}/cpufreq/cpuinfo_max_freq"), "3800000".into())?;
                put(format!("{dir}/cpufreq/base_frequency"), "2400000".into())?;
            }
        }
        let dir = format!("sys/devices/system/node/node{node}");
        put(format!("{dir}/cpumap"), mask(&package))?;
        put(format!("{dir}/cpulist"), package.to_list())?;
        put(
            format!("{dir}/meminfo"),
            format!("Node {node} MemTotal:       67108864 kB\nNode {node} MemFree:        33554432 kB"),
        )?;
        let row = (0..shape.nodes).map(|n| if n == node { "10" } else { "21" });
        put(format!("{dir}/distance"), row.collect::<Vec<_>>().join(" "))?;
        for kib in [2048, 1_048_576] {
            for file in ["nr_hugepages", "free_hugepages"] {
                put(format!("{dir}/hugepages/hugepages-{kib}kB/{file}"), "0".into())?;
            }
        }
    }
    put("sys/devices/system/node/online".into(), format!("0-{}", shape.nodes - 1))?;
    // As long as real ones: the flags alone are over a kilobyte.
    let flags = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat ".repeat(20);
    for cpu in all.iter() {
        let core = cpu % cores;
        cpuinfo.push_str(&format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
             model name\t: Generated CPU @ 2.40GHz\ncpu MHz\t\t: 2400.000\nphysical id\t: {}\n\
             siblings\t: {}\ncore id\t\t: {}\nflags\t\t: {flags}\n\n",
            core / shape.cores,
            shape.cores * shape.threads,
            core % shape.cores,
        ));
    }
    put("proc/cpuinfo".into(), cpuinfo)?;
    put("proc/meminfo".into(), format!("MemTotal:       {} kB", u64::from(shape.nodes) * 67_108_864))
}

//! [`Topology::read`]: combines the results of the other modules.

use std::path::Path;

use crate::cpus::{Found, Lists, Quirks};
use crate::root::{self, Dir};
use crate::{CpuSet, Kind, Package, Result, Topology, allowed, cpuinfo, cpus, knl, nodes};

impl Topology {
    /// Reads the machine whose `sys` and `proc` lie below `path` (`/` for the running one).
    ///
    /// Objects are defined as in hwloc: one exists if its lowest CPU names it. Of two that overlap without
    /// one holding the other, the later found is left out.
    ///
    /// # Errors
    /// The directory cannot be opened, contains no `sys/devices/system/cpu`, or an essential list is
    /// malformed. Other malformed files become [`Topology::warnings`].
    pub fn read(path: &Path) -> Result<Topology> {
        let live = path.canonicalize().is_ok_and(|p| p == Path::new("/"));
        let dir = Dir::root(path)?;
        let lists = Lists::read(path, &dir)?;
        let arch = architecture(&dir, live);
        // Its first page determines the quirks. The rest, megabytes on a large machine, is read and parsed
        // while the CPUs are walked.
        let mut buf = Vec::new();
        let rest = dir.head("proc/cpuinfo", &mut buf);
        let head = cpuinfo::parse(&String::from_utf8_lossy(&buf)).0;
        let quirks = Quirks::detect(&arch, head.first().map(|(_, info)| info));
        let (infos, found) = std::thread::scope(|scope| {
            let infos = scope.spawn(|| {
                if let Some(file) = rest {
                    root::rest(file, &mut buf);
                }
                let (mut cpus, global) = cpuinfo::parse(&String::from_utf8_lossy(&buf));
                cpus.sort_by_key(|c| c.0);
                (cpus, global)
            });
            let found = cpus::find(&lists, &quirks);
            (infos.join(), found)
        });
        let (infos, global) = infos.unwrap_or_default();
        let Found { mut t, known, rates } = found;
        t.possible = lists.possible;
        t.present = lists.present;
        t.online = known;
        let limits = if live { allowed::of_this_process(&dir)? } else { allowed::of_gathered_tree(&dir)? };
        t.allowed = limits.0.map_or_else(|| t.online.clone(), |a| a.and(&t.online));

        nodes::find(&dir, &mut t)?;
        if quirks.knl {
            knl::apply(&dir, &mut t);
        }
        let all: CpuSet = t.nodes.iter().map(|n| n.id).collect();
        t.allowed_nodes = limits.1.map_or_else(|| all.clone(), |a| a.and(&all));
        let by_cpu = |cpu: u32| infos.binary_search_by_key(&cpu, |i| i.0).map_or(&global, |i| &infos[i].1);
        let models = models(&t.online, |cpu| by_cpu(cpu).model.clone());
        t.kinds = kinds(&dir, &t, &rates, &models)?;
        let rated = |cpu: u32| rates.mhz.get(&cpu).copied();
        let rated_by_core: Vec<Option<f64>> =
            t.cores.iter().map(|c| c.cpus.first().and_then(rated)).collect();
        t.link();
        for cpu in &mut t.cpus {
            let core = cpu.core.and_then(|c| rated_by_core[c]);
            cpu.mhz = rated(cpu.id).or(core).or(by_cpu(cpu.id).mhz).or(global.mhz);
        }
        let clocks: Vec<Option<f64>> =
            t.packages.iter().map(|p| p.cpus.first().and_then(|c| t.cpu(c)).and_then(|c| c.mhz)).collect();
        for (package, mhz) in t.packages.iter_mut().zip(clocks) {
            let info = package.cpus.first().map_or(&global, by_cpu);
            let several: Vec<&str> =
                models.iter().filter(|m| m.1.intersects(&package.cpus)).map(|m| m.0.as_str()).collect();
            let model = if several.len() > 1 { Some(several.join(" and ")) } else { info.model.clone() };
            *package = Package {
                vendor: info.vendor.clone().or_else(|| global.vendor.clone()),
                model: model.or_else(|| global.model.clone()),
                mhz,
                ..std::mem::take(package)
            };
        }
        Ok(t)
    }
}

/// `uname -m` of the machine: of this one, or as recorded by `hwloc-gather-topology`. Without that record it
/// is unknown, and no quirk of an architecture applies.
fn architecture(dir: &Dir, live: bool) -> String {
    if live {
        return rustix::system::uname().machine().to_string_lossy().into_owned();
    }
    let mut buf = Vec::new();
    let text = dir.read("proc/hwloc-nofile-info", &mut buf).unwrap_or_default();
    text.lines().find_map(|l| l.strip_prefix("Architecture: ")).unwrap_or_default().trim().to_string()
}

/// The CPUs of each model in /proc/cpuinfo, in the order of their lowest CPU; empty if it lacks a model for
/// some CPU.
fn models(online: &CpuSet, model: impl Fn(u32) -> Option<String>) -> Vec<(String, CpuSet)> {
    let mut models: Vec<(String, Vec<u32>)> = Vec::new();
    for cpu in online.iter() {
        let Some(name) = model(cpu) else { return Vec::new() };
        match models.iter_mut().find(|m| m.0 == name) {
            Some((_, cpus)) => cpus.push(cpu),
            None => models.push((name, vec![cpu])),
        }
    }
    models.into_iter().map(|(name, cpus)| (name, cpus.into_iter().collect())).collect()
}

/// Kinds of core: by the kernel's PMUs, otherwise by models, otherwise by capacities, otherwise by rated
/// clocks that differ.
fn kinds(dir: &Dir, t: &Topology, rates: &cpus::Rates, models: &[(String, CpuSet)]) -> Result<Vec<Kind>> {
    let mut buf = Vec::new();
    let mut named = Vec::new();
    for name in ["cpu_lowpower", "cpu_atom", "cpu_core"] {
        if let Some(cpus) = dir.list(&format!("sys/devices/{name}/cpus"), &mut buf)? {
            let cpus = cpus.and(&t.online);
            if !cpus.is_empty() {
                named.push(Kind { name: name.into(), cpus });
            }
        }
    }
    if named.len() > 1 {
        return Ok(named);
    }
    if models.len() > 1 {
        let mut kinds: Vec<Kind> =
            models.iter().map(|(name, cpus)| Kind { name: name.clone(), cpus: cpus.clone() }).collect();
        let fastest = |values: &std::collections::HashMap<u32, u64>, kind: &Kind| {
            kind.cpus.iter().filter_map(|cpu| values.get(&cpu)).max().copied()
        };
        kinds.sort_by_key(|k| (fastest(&rates.capacity, k), fastest(&rates.base_mhz, k)));
        return Ok(kinds);
    }
    for (values, unit) in [(&rates.capacity, "capacity"), (&rates.base_mhz, "MHz")] {
        let mut kinds: Vec<(u64, CpuSet)> = Vec::new();
        for core in &t.cores {
            let Some(&value) = core.cpus.first().and_then(|c| values.get(&c)) else { continue };
            match kinds.iter_mut().find(|k| k.0 == value) {
                Some(kind) => kind.1 = kind.1.or(&core.cpus),
                None => kinds.push((value, core.cpus.clone())),
            }
        }
        if kinds.len() > 1 {
            kinds.sort();
            let name = |v: u64| if unit == "MHz" { format!("{v} MHz") } else { format!("{unit} {v}") };
            return Ok(kinds.into_iter().map(|(v, cpus)| Kind { name: name(v), cpus }).collect());
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Error, online_cpus};
    use ncpu_machine_trees::generate::{Shape, write};

    #[test]
    fn a_machine_that_tells_only_its_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join("sys/devices/system/cpu");
        fs::create_dir_all(cpu.join("cpu0")).unwrap();
        fs::write(cpu.join("online"), "0,4095\n").unwrap();
        let t = Topology::read(dir.path()).unwrap();
        assert_eq!((t.ncpu(), t.cores.len(), t.packages.len(), t.nodes.len()), (2, 0, 0, 1));
        assert_eq!(t.node_of(4095).map(|n| n.cpus.to_list()), Some("0,4095".into()));
        assert_eq!(online_cpus(dir.path()).unwrap().to_list(), "0,4095");
        assert!(t.core_of(4095).is_none() && t.package_of(7).is_none());
    }

    #[test]
    fn what_is_no_machine_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let error = Topology::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("holds no sys/devices/system/cpu: give the directory"), "{error}");
        assert!(matches!(Topology::read(&dir.path().join("none")).unwrap_err(), Error::Root { .. }));
        write(dir.path(), &Shape { nodes: 1, cores: 2, threads: 1 }).unwrap();
        fs::write(dir.path().join("sys/devices/system/cpu/online"), "0-\u{7}x").unwrap();
        let error = Topology::read(dir.path()).unwrap_err();
        assert_eq!(
            error.whole().split("cpu/").nth(1),
            Some(
                "online holds no set of CPUs: invalid CPU list item `0-?x`; expected a number or a range, as in 0-3,8"
            )
        );
    }

    #[test]
    fn a_malformed_map_is_left_out_and_told() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 2, threads: 1 }).unwrap();
        let cpu = dir.path().join("sys/devices/system/cpu/cpu2");
        fs::write(cpu.join("topology/package_cpus"), "zz\n").unwrap();
        fs::write(cpu.join("cache/index2/size"), "99999999999999999999K\n").unwrap();
        fs::write(dir.path().join("proc/cpuinfo"), b"processor : 1\nmodel name : a\xffb\n").unwrap();
        let t = Topology::read(dir.path()).unwrap();
        assert_eq!(t.packages.len(), 1);
        assert_eq!(t.warnings.len(), 1);
        assert!(t.warnings[0].ends_with("package_cpus holds no set of CPUs: invalid mask `zz`; expected groups as in ff,ffffffff; left out"), "{}", t.warnings[0]);
    }

    #[test]
    fn two_models_are_two_kinds() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 1, cores: 4, threads: 1 }).unwrap();
        let (mut cpuinfo, mut capacities) = (String::new(), Vec::new());
        for cpu in 0..4 {
            // Not all fast cores have the same capacity.
            let (part, capacity) = if cpu < 2 { ("0xd87", 718) } else { ("0xd85", 1022 + cpu - 2) };
            cpuinfo += &format!("processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n");
            capacities.push(capacity);
        }
        fs::write(dir.path().join("proc/cpuinfo"), cpuinfo).unwrap();
        for (cpu, capacity) in capacities.iter().enumerate() {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
            fs::write(dir.path().join(file), format!("{capacity}\n")).unwrap();
        }
        let t = Topology::read(dir.path()).unwrap();
        let kinds: Vec<_> = t.kinds.iter().map(|k| (k.name.as_str(), k.cpus.to_list())).collect();
        assert_eq!(kinds, [("Cortex-A725", "0-1".into()), ("Cortex-X925", "2-3".into())]);
        assert_eq!(t.packages[0].model.as_deref(), Some("Cortex-A725 and Cortex-X925"));
        assert_eq!(t.cpu(3).and_then(|c| c.kind), Some(1));
    }

    #[test]
    fn distances_are_of_the_nodes_that_the_row_is_of() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 3, cores: 1, threads: 1 }).unwrap();
        let node = dir.path().join("sys/devices/system/node");
        // Node 0 is not listed as online, and the rows cover all three.
        fs::write(node.join("online"), "1-2\n").unwrap();
        let t = Topology::read(dir.path()).unwrap();
        assert_eq!((t.nodes.len(), &t.distances), (2, &vec![vec![10, 21], vec![21, 10]]));
        // Rows of the online nodes, as a kernel prints them.
        fs::write(node.join("node1/distance"), "10 17\n").unwrap();
        fs::write(node.join("node2/distance"), "17 10\n").unwrap();
        assert_eq!(Topology::read(dir.path()).unwrap().distances, [[10, 17], [17, 10]]);
        // A row in which a node is nearer to another than to itself is invalid.
        fs::write(node.join("node2/distance"), "10 17\n").unwrap();
        let t = Topology::read(dir.path()).unwrap();
        assert!(
            t.distances.is_empty() && t.warnings[0].contains("node 2: 2 distances do not belong"),
            "{:?}",
            t.warnings
        );
    }

    #[test]
    fn memory_of_gpus_is_kept_apart_and_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 4, cores: 1, threads: 1 }).unwrap();
        for node in [2, 3] {
            ncpu_machine_trees::put(
                dir.path(),
                format!("proc/driver/nvidia/gpus/000{node}:01:00.0/numa_status"),
                &format!("Node: {node}\n"),
            );
            ncpu_machine_trees::put(dir.path(), format!("sys/devices/system/node/node{node}/cpumap"), "0\n");
        }
        let t = Topology::read(dir.path()).unwrap();
        assert_eq!(t.nodes.iter().map(|n| n.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            t.device_nodes.iter().map(|n| (n.id, n.total)).collect::<Vec<_>>(),
            [(2, Some(64 << 30)), (3, Some(64 << 30))]
        );
        assert_eq!((t.distances.len(), t.device_distances.len()), (2, 12));
        assert_eq!(t.device_distances.get(&(0, 3)), Some(&21));
        assert_eq!(t.memory(), 128 << 30, "a device's memory is not the machine's");
    }

    #[test]
    fn lookups() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 3, threads: 2 }).unwrap();
        let t = Topology::read(dir.path()).unwrap();
        assert_eq!(t.core_of(10).map(|c| c.cpus.to_list()), Some("4,10".into()));
        assert_eq!(t.cpu(10).map(|c| (c.thread, c.mhz)), Some((1, Some(2400.0))));
        assert_eq!(t.package_of(10).and_then(|p| p.id), Some(1));
        assert_eq!(t.node_of(10).and_then(|n| n.free), Some(32 << 30));
        assert_eq!(t.memory(), 128 << 30);
        assert_eq!(t.distances, [[10, 21], [21, 10]]);
    }
}

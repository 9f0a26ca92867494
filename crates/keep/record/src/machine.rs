//! The description of the machine in a manifest.

use std::path::Path;

use ncpu_machine::{CpuSet, Topology};

use crate::{Manifest, Shape};

/// The model of the processor, and how CPUs share cores and packages.
pub struct Machine {
    cpu_model: String,
    shape: Option<Shape>,
}

impl Machine {
    /// This machine. To be read after the observation, so that it costs the observation nothing.
    pub fn here() -> Machine {
        let topology = Topology::read(Path::new("/")).ok();
        let model = |t: &Topology| t.packages.iter().find_map(|p| p.model.clone());
        Machine {
            cpu_model: topology.as_ref().and_then(model).unwrap_or_default(),
            shape: topology.as_ref().and_then(shape),
        }
    }

    /// Adds it to a manifest.
    pub fn put(&self, manifest: &mut Manifest) {
        manifest.cpu_model.clone_from(&self.cpu_model);
        manifest.shape.clone_from(&self.shape);
    }
}

/// The arrangement of the CPUs; `None` if packages or cores differ.
fn shape(topology: &Topology) -> Option<Shape> {
    let of = |package: &CpuSet| -> Option<Vec<Vec<u32>>> {
        let cores: Vec<&CpuSet> =
            topology.cores.iter().map(|c| &c.cpus).filter(|c| c.is_subset(package)).collect();
        let strands = cores.first()?.len();
        let alike = cores.iter().all(|c| c.len() == strands) && cores.len() * strands == package.len();
        alike.then(|| cores.iter().map(|c| c.iter().collect()).collect())
    };
    let packages: Vec<Vec<Vec<u32>>> =
        topology.packages.iter().map(|p| of(&p.cpus)).collect::<Option<_>>()?;
    let first = packages.first()?;
    let (cores, strands) = (first.len(), first.first()?.len());
    if packages.iter().any(|p| p.len() != cores || p[0].len() != strands) {
        return None;
    }
    let list = |cores: &[Vec<u32>], strand: usize| {
        let cpus: Vec<u32> = cores.iter().map(|c| c[strand]).collect();
        // The kernel's lists are in the order of CPUs.
        cpus.is_sorted().then(|| cpus.into_iter().collect::<CpuSet>().to_list())
    };
    let lists = |cores: &Vec<Vec<u32>>| (0..strands).map(|s| list(cores, s)).collect::<Option<Vec<String>>>();
    let cpus = packages.iter().map(lists).collect::<Option<Vec<_>>>()?;
    Some(Shape {
        packages: packages.len() as u32,
        cores: cores as u32,
        strands: strands as u32,
        cpus: if packages.len() * strands > 1 { cpus } else { Vec::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_tells_which_cpus_share_a_core() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, nodes, cores, threads| {
            let root = dir.path().join(name);
            let generated = ncpu_machine_trees::generate::Shape { nodes, cores, threads };
            ncpu_machine_trees::generate::write(&root, &generated).unwrap();
            (shape(&Topology::read(&root).unwrap()), root)
        };
        let (Some(large), root) = of("large", 2, 3, 2) else { panic!("no shape") };
        assert_eq!((large.packages, large.cores, large.strands), (2, 3, 2));
        let all: CpuSet = large
            .cpus
            .iter()
            .flatten()
            .flat_map(|l| CpuSet::parse_list(l))
            .fold(CpuSet::new(), |all, some| all.or(&some));
        assert_eq!(all.len(), 12);
        let topology = Topology::read(&root).unwrap();
        for (package, lists) in large.cpus.iter().enumerate() {
            let cpus: Vec<Vec<u32>> =
                lists.iter().map(|l| CpuSet::parse_list(l).unwrap().iter().collect()).collect();
            for core in 0..3 {
                let strands: CpuSet = cpus.iter().map(|strand| strand[core]).collect();
                assert!(topology.cores.iter().any(|c| c.cpus == strands), "{package} {core}: {large:?}");
            }
        }
        let (plain, _) = of("plain", 1, 4, 1);
        assert_eq!(plain, Some(Shape { packages: 1, cores: 4, strands: 1, cpus: Vec::new() }));
        // A core that has lost a strand.
        let (_, root) = of("less", 1, 2, 2);
        let cpu = root.join("sys/devices/system/cpu");
        std::fs::write(cpu.join("online"), "0-2\n").unwrap();
        std::fs::remove_dir_all(cpu.join("cpu3")).unwrap();
        assert_eq!(shape(&Topology::read(&root).unwrap()), None);
    }
}

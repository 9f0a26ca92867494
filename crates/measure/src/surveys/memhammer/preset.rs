//! The scripts of the Silly Little Benchmark: which CPUs hammer at once.

use ncpu_machine::{CpuSet, Topology};

use crate::failure::Failure;
use crate::place::Place;

/// Names of the presets, and what they were called.
pub const NAMES: [(&str, &str); 7] = [
    ("one", "one thread"),
    ("same-core", "two threads, same core"),
    ("same-socket", "two threads, same socket, on cores of their own where it has two"),
    ("different-sockets", "two threads, different sockets"),
    ("per-socket", "one thread on each socket"),
    ("all", "one thread on each CPU"),
    ("script", "all of these that the machine has, in turn"),
];

/// A set of CPUs that hammer at once, one worker on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// As the scripts echo it.
    pub title: String,
    /// CPUs.
    pub cpus: Vec<u32>,
}

/// The preset of a name, or all of them for `script`.
///
/// # Errors
/// No preset has this name, or the machine lacks what the preset needs.
pub fn find(name: &str, machine: &Topology) -> Result<Vec<Preset>, Failure> {
    if name == "script" {
        let names = NAMES.iter().map(|(n, _)| *n).filter(|n| *n != "script");
        return Ok(names.filter_map(|n| one(n, machine).ok()).collect());
    }
    one(name, machine).map(|p| vec![p])
}

fn one(name: &str, machine: &Topology) -> Result<Preset, Failure> {
    let order = Place::Spread.order(machine).map_err(|e| Failure::Failed(e.to_string()))?.unwrap_or_default();
    let usable = machine.online.and(&machine.allowed);
    let first = *order.first().ok_or_else(|| Failure::Lacks("no CPU to use".into()))?;
    // A machine that reports no packages counts as one package.
    let socket = |cpu: u32| machine.package_of(cpu).map_or(&usable, |p| &p.cpus);
    let core = |cpu: u32| machine.core_of(cpu).map(|c| &c.cpus);
    let mut heads: Vec<u32> = Vec::new();
    for &cpu in &order {
        if !heads.iter().any(|&h| socket(h).contains(cpu)) {
            heads.push(cpu);
        }
    }
    // The first two of one socket or core, tried from each CPU.
    let two = |near: &dyn Fn(u32, u32) -> bool| {
        order.iter().find_map(|&a| order.iter().find(|&&b| b != a && near(a, b)).map(|&b| vec![a, b]))
    };
    let lacks = |what: &str| Failure::Lacks(format!("-w {name}: this machine has no {what}"));
    let (title, cpus) = match name {
        "one" => ("One thread".into(), vec![first]),
        "same-core" => {
            let same = |a: u32, b: u32| core(a).is_some_and(|c: &CpuSet| c.contains(b));
            let cpus = two(&same).ok_or_else(|| lacks("two usable CPUs on one core"))?;
            ("Two threads, same core".into(), cpus)
        }
        "same-socket" => {
            let apart =
                |a: u32, b: u32| socket(a).contains(b) && !core(a).is_some_and(|c: &CpuSet| c.contains(b));
            let any = |a: u32, b: u32| socket(a).contains(b);
            let cpus =
                two(&apart).or_else(|| two(&any)).ok_or_else(|| lacks("two usable CPUs on one socket"))?;
            ("Two threads, same socket".into(), cpus)
        }
        "different-sockets" => {
            if heads.len() < 2 {
                return Err(lacks("two sockets"));
            }
            ("Two threads, different sockets".into(), heads[..2].to_vec())
        }
        "per-socket" => (of(heads.len(), heads.len()), heads),
        "all" => (of(order.len(), heads.len()), order),
        _ => {
            let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
            return Err(Failure::Usage(format!("-w {name}: give {}", names.join(", "))));
        }
    };
    Ok(Preset { title, cpus })
}

fn of(threads: usize, sockets: usize) -> String {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    format!("{threads} thread{}, {sockets} socket{}", s(threads), s(sockets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    fn presets(nodes: u32, cores: u32, threads: u32, name: &str) -> Result<Vec<(String, Vec<u32>)>, String> {
        let dir = tempfile::tempdir().unwrap();
        let shape = Shape { nodes, cores, threads };
        write(dir.path(), &shape).unwrap();
        let machine = Topology::read(dir.path()).unwrap();
        find(name, &machine)
            .map(|all| all.into_iter().map(|p| (p.title, p.cpus)).collect())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn the_documents_machine_gives_the_documents_scripts() {
        // Four sockets of two cores: 0,1 2,3 4,5 6,7.
        let all = presets(4, 2, 1, "script").unwrap();
        let titles: Vec<&str> = all.iter().map(|(t, _)| t.as_str()).collect();
        assert_eq!(
            titles,
            [
                "One thread",
                "Two threads, same socket",
                "Two threads, different sockets",
                "4 threads, 4 sockets",
                "8 threads, 4 sockets"
            ]
        );
        assert_eq!((&all[1].1, &all[2].1, &all[3].1), (&vec![0, 1], &vec![0, 2], &vec![0, 2, 4, 6]));
        assert_eq!(all[4].1.len(), 8);
    }

    #[test]
    fn what_the_machine_has_not_is_told() {
        assert_eq!(presets(1, 2, 2, "same-core").unwrap()[0].1, [0, 2]);
        assert_eq!(presets(1, 2, 2, "same-socket").unwrap()[0].1, [0, 1]);
        let e = presets(1, 2, 1, "different-sockets").unwrap_err();
        assert!(e.contains("has no two sockets"), "{e}");
        assert!(presets(1, 2, 1, "same-core").unwrap_err().contains("two usable CPUs on one core"));
        assert!(presets(1, 1, 1, "some").unwrap_err().contains("give one, same-core"));
    }
}

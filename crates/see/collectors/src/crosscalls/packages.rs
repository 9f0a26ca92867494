//! Which CPUs lie on one package, and what a message to each package instead of to each CPU would send.
//!
//! "Solaris need only send an xcall to one CPU per socket, rather than sending an xcall to every CPU. This
//! achieves a 48X reduction in xcalls on M5-32, and a 128X reduction in xcalls on T5-8, for mappings such as
//! kernel pages that are used on every CPU" (Massive Solaris Scalability for the T5-8 and M5-32, part 2).

use ncpu_machine::Topology;

/// The package of each of `cpus` possible CPUs, counted from 0; one package where the machine does not say.
pub fn of(machine: &Topology, cpus: usize) -> Vec<u32> {
    let mut packages = vec![0; cpus];
    for cpu in &machine.cpus {
        if let (Some(slot), Some(package)) = (packages.get_mut(cpu.id as usize), cpu.package) {
            *slot = package as u32;
        }
    }
    packages
}

/// As if the CPUs, in the order of their numbers, lay on `packages` packages of equal size.
pub fn spread(cpus: usize, packages: u32) -> Vec<u32> {
    (0..cpus).map(|cpu| (cpu as u64 * u64::from(packages) / cpus.max(1) as u64) as u32).collect()
}

/// Messages that reach `targets`: one to each CPU, and one to each package. The kernel side counts the
/// same, call by call.
pub fn messages(targets: impl IntoIterator<Item = usize>, package_of: &[u32]) -> (u64, u64) {
    let mut cpus = 0;
    let mut packages = std::collections::HashSet::<u32>::new();
    for cpu in targets {
        cpus += 1;
        packages.extend(package_of.get(cpu));
    }
    (cpus, packages.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_arithmetic() {
        // A mapping used on every CPU: M5-32, 1536 CPUs on 32 sockets, and T5-8, 1024 on 8.
        for (cpus, sockets, times) in [(1536, 32, 48), (1024, 8, 128)] {
            let (sent, batched) = messages(0..cpus, &spread(cpus, sockets));
            assert_eq!((sent, batched), (cpus as u64, u64::from(sockets)));
            assert_eq!(sent / batched, times);
        }
        // "For user page mappings, one xcall is sent to each socket on which the process runs."
        let (sent, batched) = messages((0..48).chain(96..100), &spread(1536, 32));
        assert_eq!((sent, batched), (52, 2));
    }

    #[test]
    fn packages_are_as_equal_as_can_be() {
        assert_eq!(spread(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!(spread(2, 4), [0, 2]);
        assert!(spread(0, 3).is_empty());
    }
}

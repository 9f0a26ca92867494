//! Sets of CPUs and of NUMA nodes, of a fixed size, so that they need no memory.

use super::cpu::{cpu_and_node, topology};
use super::kernel::call;

/// CPUs, of at most 8192: the limit of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpus([u64; Cpus::WORDS]);

impl Cpus {
    const WORDS: usize = 128;

    /// The empty set.
    pub const fn none() -> Cpus {
        Cpus([0; Cpus::WORDS])
    }

    /// The CPUs that this thread may run on; `None` if the kernel does not report them.
    pub fn allowed() -> Option<Cpus> {
        let mut cpus = Cpus::none();
        let bytes = size_of_val(&cpus.0);
        // SAFETY: writes at most that many bytes.
        unsafe { call(libc::SYS_sched_getaffinity, [0, bytes, cpus.0.as_mut_ptr() as usize, 0, 0, 0]) }
            .ok()?;
        Some(cpus)
    }

    /// Confines this thread to these CPUs. If that fails it runs where it may: slower, but correct.
    pub fn confine(&self) {
        let bytes = size_of_val(&self.0);
        // SAFETY: reads that many bytes.
        let _ = unsafe { call(libc::SYS_sched_setaffinity, [0, bytes, self.0.as_ptr() as usize, 0, 0, 0]) };
    }

    /// Adds a CPU; numbers that Linux cannot have are left out.
    pub fn add(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether the set contains the CPU.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The number of CPUs in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The intersection of two sets.
    pub fn and(&self, other: &Cpus) -> Cpus {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        both
    }
}

/// NUMA nodes, of at most 1024: the limit of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes([u64; Nodes::WORDS]);

impl Nodes {
    const WORDS: usize = 16;
    /// The length that the kernel expects for its sets of nodes.
    pub(crate) const BITS: usize = Nodes::WORDS * 64;

    /// The empty set.
    pub const fn none() -> Nodes {
        Nodes([0; Nodes::WORDS])
    }

    /// One node; `None` for a number that Linux cannot have.
    pub fn one(node: usize) -> Option<Nodes> {
        let mut nodes = Nodes::none();
        nodes.add(node).then_some(nodes)
    }

    /// Adds a node; false for a number that Linux cannot have.
    pub fn add(&mut self, node: usize) -> bool {
        let word = self.0.get_mut(node / 64);
        word.map(|word| *word |= 1 << (node % 64)).is_some()
    }

    /// Whether the set contains the node.
    pub fn contains(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; Nodes::WORDS]
    }

    /// The nodes from which this thread may take memory; only the first on a kernel without NUMA.
    pub fn allowed() -> Nodes {
        const MEMS_ALLOWED: usize = 4;
        let mut nodes = Nodes::none();
        match nodes.ask(0, MEMS_ALLOWED) {
            Ok(_) if !nodes.is_empty() => nodes,
            _ => Nodes::none().with_first(),
        }
    }

    fn with_first(mut self) -> Nodes {
        self.0[0] |= 1;
        self
    }

    /// The policy of the memory at an address, and its nodes.
    pub(crate) fn of_policy(at: usize) -> Result<(i32, Nodes), i32> {
        const ADDRESS: usize = 2;
        let mut nodes = Nodes::none();
        let mode = nodes.ask(at, ADDRESS)?;
        Ok((mode, nodes))
    }

    /// `get_mempolicy`.
    fn ask(&mut self, at: usize, flags: usize) -> Result<i32, i32> {
        let mut mode = 0i32;
        let nodes = self.0.as_mut_ptr() as usize;
        let place = (&raw mut mode) as usize;
        // SAFETY: the mode and a set of this many bits are writable.
        unsafe { call(libc::SYS_get_mempolicy, [place, nodes, Nodes::BITS, at, flags, 0]) }?;
        Ok(mode)
    }

    /// For system calls that read a set of [`Nodes::BITS`].
    pub(crate) fn as_ptr(&self) -> *const u64 {
        self.0.as_ptr()
    }

    /// From words of 64 bits each; `None` if there are numbers that Linux cannot have.
    pub fn from_words(words: &[u64]) -> Option<Nodes> {
        let mut nodes = Nodes::none();
        let (known, beyond) = words.split_at(words.len().min(Nodes::WORDS));
        nodes.0[..known.len()].copy_from_slice(known);
        beyond.iter().all(|&word| word == 0).then_some(nodes)
    }
}

/// The CPUs of these nodes, as they were when the topology was read.
pub(crate) fn of_nodes(wanted: impl Fn(usize) -> bool) -> Cpus {
    let topology = topology();
    let mut cpus = Cpus::none();
    (0..topology.cpus())
        .filter(|&cpu| wanted(topology.id_of(topology.node_of(cpu))))
        .for_each(|cpu| cpus.add(cpu));
    cpus
}

/// The CPUs near memory at an address: those of the nodes that its pages come from, as far as this thread may
/// use them. `None` if all CPUs are equally near, or the kernel does not report it.
///
/// Memory without a policy comes from the node of the thread that touches it first: helpers on other nodes
/// would place it differently than the caller alone.
pub(crate) fn near(at: usize) -> Option<Cpus> {
    const PREFERRED: i32 = 1;
    const LOCAL: i32 = 4;
    // MPOL_F_STATIC_NODES and similar flags.
    const FLAGS: i32 = 7 << 13;
    if topology().nodes() < 2 {
        return None;
    }
    let (mode, nodes) = Nodes::of_policy(at).ok()?;
    let local = match mode & !FLAGS {
        libc::MPOL_DEFAULT | LOCAL => true,
        PREFERRED => nodes.is_empty(),
        _ => false,
    };
    let cpus = if local {
        let here = cpu_and_node().1 as usize;
        of_nodes(|node| node == here)
    } else {
        of_nodes(|node| nodes.contains(node))
    };
    let cpus = cpus.and(&Cpus::allowed()?);
    // A node without CPUs, or without CPUs that this thread may use.
    (cpus.count() > 0).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_ends() {
        let mut cpus = Cpus::none();
        [0, 63, 64, 8191, 8192, usize::MAX].into_iter().for_each(|cpu| cpus.add(cpu));
        assert_eq!(cpus.count(), 4);
        assert!(cpus.contains(8191) && !cpus.contains(1) && !cpus.contains(usize::MAX));
        let mut other = Cpus::none();
        other.add(64);
        assert_eq!(cpus.and(&other), other);
        assert!(Nodes::one(1023).is_some_and(|nodes| nodes.contains(1023)));
        assert_eq!(Nodes::one(1024), None);
        assert_eq!(Nodes::from_words(&[2, 0]), Nodes::one(1));
        let mut words = [0; 17];
        assert_eq!(Nodes::from_words(&words), Some(Nodes::none()));
        words[16] = 1;
        assert_eq!(Nodes::from_words(&words), None);
    }

    #[test]
    fn the_kernel_tells_what_is_allowed() {
        // A cgroup's quota may allow fewer.
        let cpus = Cpus::allowed().expect("affinity");
        assert!(cpus.count() >= std::thread::available_parallelism().map_or(1, |n| n.get()));
        assert!(!Nodes::allowed().is_empty());
    }
}

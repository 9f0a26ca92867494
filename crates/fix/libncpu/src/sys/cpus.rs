//! Sets of CPUs and of NUMA nodes, of a fixed size, so that they need no memory.

use super::cpu::{cpu_and_node, topology};
use super::kernel::call;

/// CPUs, of at most 8192: Linux has no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpus([u64; Cpus::WORDS]);

impl Cpus {
    const WORDS: usize = 128;

    /// None.
    pub const fn none() -> Cpus {
        Cpus([0; Cpus::WORDS])
    }

    /// Those that this thread may run on; `None` where the kernel doesn't tell.
    pub fn allowed() -> Option<Cpus> {
        let mut cpus = Cpus::none();
        let bytes = size_of_val(&cpus.0);
        // SAFETY: writes at most so many bytes.
        unsafe { call(libc::SYS_sched_getaffinity, [0, bytes, cpus.0.as_mut_ptr() as usize, 0, 0, 0]) }
            .ok()?;
        Some(cpus)
    }

    /// Puts this thread on them. Where that fails it stays where it may be: it is slower there, not wrong.
    pub fn confine(&self) {
        let bytes = size_of_val(&self.0);
        // SAFETY: reads so many bytes.
        let _ = unsafe { call(libc::SYS_sched_setaffinity, [0, bytes, self.0.as_ptr() as usize, 0, 0, 0]) };
    }

    /// Adds one; CPUs that Linux cannot have are left out.
    pub fn add(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether it is among them.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Those that are among the others too.
    pub fn and(&self, other: &Cpus) -> Cpus {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        both
    }
}

/// NUMA nodes, of at most 1024: Linux has no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nodes([u64; Nodes::WORDS]);

impl Nodes {
    const WORDS: usize = 16;
    /// What the kernel takes for the length of its sets of nodes.
    pub(crate) const BITS: usize = Nodes::WORDS * 64;

    /// None.
    pub const fn none() -> Nodes {
        Nodes([0; Nodes::WORDS])
    }

    /// One node; `None` for a number that Linux cannot have.
    pub fn one(node: usize) -> Option<Nodes> {
        let mut nodes = Nodes::none();
        nodes.add(node).then_some(nodes)
    }

    /// Adds one; false for a number that Linux cannot have.
    pub fn add(&mut self, node: usize) -> bool {
        let word = self.0.get_mut(node / 64);
        word.map(|word| *word |= 1 << (node % 64)).is_some()
    }

    /// Whether it is among them.
    pub fn contains(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; Nodes::WORDS]
    }

    /// Those whose memory this thread may have; the first alone on a kernel without NUMA.
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

    /// The policy that memory at an address has, and its nodes.
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
        // SAFETY: the mode and a set of so many bits are writable.
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

/// The CPUs of these nodes, as they were when the machine was first looked at.
pub(crate) fn of_nodes(wanted: impl Fn(usize) -> bool) -> Cpus {
    let topology = topology();
    let mut cpus = Cpus::none();
    (0..topology.cpus())
        .filter(|&cpu| wanted(topology.id_of(topology.node_of(cpu))))
        .for_each(|cpu| cpus.add(cpu));
    cpus
}

/// The CPUs near memory at an address: those of the nodes that its pages come from, as far as this thread may use
/// them. `None` where all CPUs are as near, or the kernel doesn't tell.
///
/// Memory without a policy comes from the node of whoever touches it: with helpers on other nodes it would lie
/// elsewhere than without them.
pub(crate) fn near(at: usize) -> Option<Cpus> {
    const PREFERRED: i32 = 1;
    const LOCAL: i32 = 4;
    // MPOL_F_STATIC_NODES and its like.
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
    // A node without CPUs, or none that are ours.
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
        // A cgroup's quota may be for fewer.
        let cpus = Cpus::allowed().expect("affinity");
        assert!(cpus.count() >= std::thread::available_parallelism().map_or(1, |n| n.get()));
        assert!(!Nodes::allowed().is_empty());
    }
}

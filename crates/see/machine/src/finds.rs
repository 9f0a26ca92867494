//! Parts of the machine, as found CPU by CPU.

use crate::root::Dir;
use crate::{Cache, Core, CpuSet, Group, Package};

/// A part found, before it is known to nest.
pub(crate) enum Object {
    Core(Core),
    Package(Package),
    Die(Group),
    Cluster(Group),
    Book(Group),
    Drawer(Group),
    Cache(Cache),
}

/// Objects with the CPU at which each was found, ascending, and warnings.
#[derive(Default)]
pub(crate) struct Finds {
    pub objects: Vec<(u32, Object)>,
    pub warnings: Vec<String>,
}

impl Finds {
    /// Reads a map of a CPU; a malformed one causes a warning.
    pub fn map(&mut self, dir: &Dir, cpu: u32, file: &str, buf: &mut Vec<u8>) -> Option<CpuSet> {
        dir.mask(&format!("cpu{cpu}/{file}"), buf).unwrap_or_else(|error| {
            self.warnings.push(format!("{}; left out", error.whole()));
            None
        })
    }
}

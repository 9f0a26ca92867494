//! CPU demand of each thread, read in one go from the kernel's own sums by an iterator of `numa.bpf.c`.

use libbpf_rs::Link;
use ncpu_machine::Wanted;

use super::layout::Want;
use super::load::{all_of, iterator};
use super::skel;
use crate::bpf_support::{Error, Feature, Result, load, namespace, read};

/// The iterator, loaded until dropped.
pub struct Wants {
    link: Link,
    /// Held: the program must stay loaded with its link.
    _skel: Box<skel::NumaSkel<'static>>,
}

impl Wants {
    /// Loads it.
    ///
    /// # Errors
    /// BPF is not to be had; or this is a PID namespace, whose numbers are not those that BPF tells.
    pub fn load() -> Result<Wants> {
        let bpf = |doing| move |source| Error::Bpf { doing, source };
        if namespace::is_own() {
            return Err(Error::PidNamespace);
        }
        libbpf_rs::set_print(None);
        let types = load::Types::read()?;
        types.require(&[Feature::TaskStorage])?;
        let mut open = types
            .open(skel::NumaSkelBuilder::default(), load::storage())
            .map_err(bpf("opening the BPF object"))?;
        let progs = &mut open.progs;
        for unused in [&mut progs.on_switch, &mut progs.on_exit, &mut progs.mark, &mut progs.dump] {
            unused.set_autoload(false);
        }
        open.maps.gone.set_autocreate(false).map_err(bpf("leaving a table out"))?;
        let skel = Box::new(open.load().map_err(load::refused)?);
        Ok(Wants { link: iterator(&skel.progs.wants)?, _skel: skel })
    }

    /// Every thread but the kernel's.
    ///
    /// # Errors
    /// The kernel does not let it be read.
    pub fn read(&self) -> Result<Vec<Wanted>> {
        let bytes = all_of(&self.link)?;
        let one = |w: Want| Wanted { pid: w.tgid, tid: w.tid, parent: w.parent, cpu: w.cpu, spent: w.spent };
        Ok(bytes.chunks_exact(size_of::<Want>()).filter_map(read::<Want>).map(one).collect())
    }
}

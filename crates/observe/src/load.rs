//! What loading and attaching has in common, whatever the programs are for.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{ErrorKind, Link, ProgramMut};

use crate::engine::{Error, Result};

/// The tracepoints of this kernel.
pub(crate) struct Tracepoints {
    btf: Btf<'static>,
    /// For tests: tracepoints to do without, as an older kernel does.
    hidden: String,
}

impl Tracepoints {
    pub fn read() -> Result<Tracepoints> {
        let btf = Btf::from_vmlinux().map_err(|_| Error::NoBtf)?;
        Ok(Tracepoints { btf, hidden: std::env::var("NCPU_HIDE_TRACEPOINTS").unwrap_or_default() })
    }

    pub fn has(&self, tracepoint: &str) -> bool {
        !self.hidden.split(',').any(|h| h == tracepoint)
            && self.btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
    }
}

/// Checks that the kernel tells its types, which all programs need.
pub(crate) fn check_btf() -> Result<()> {
    std::path::Path::new("/sys/kernel/btf/vmlinux").exists().then_some(()).ok_or(Error::NoBtf)
}

/// How many parts a table has that each CPU has its own of.
pub(crate) fn possible_cpus() -> Result<usize> {
    libbpf_rs::num_possible_cpus().map_err(|source| Error::Bpf { doing: "counting possible CPUs", source })
}

/// Why the kernel did not load programs.
pub(crate) fn refused(source: libbpf_rs::Error) -> Error {
    match source.kind() {
        ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => Error::Bpf { doing: "loading the BPF programs", source },
    }
}

/// Attaches those of the programs that were loaded, in this order, to their tracepoints.
pub(crate) fn attach<'a, 'p: 'a>(
    programs: impl IntoIterator<Item = &'a ProgramMut<'p>>,
) -> Result<Vec<Link>> {
    let attach = |program: &ProgramMut<'p>| {
        program
            .attach()
            .map_err(|source| Error::Bpf { doing: "attaching to the kernel's tracepoints", source })
    };
    programs.into_iter().filter(|program| program.autoload()).map(attach).collect()
}

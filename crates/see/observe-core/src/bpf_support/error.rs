//! What keeps a collector from beginning.

/// What stops an observation before it begins.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// BPF needs privileges.
    #[error(
        "observing the kernel needs root (or CAP_BPF and CAP_PERFMON): run with sudo; without it there are `ncpu run` and `watch -p` of your own processes (with fewer layers), `topology`, `limits`, `cpus`, `memory` (an estimate), `lines FILE`, `bench`, `scale`, `populate`, `preload` and `report`"
    )]
    NotPermitted,
    /// Which process is meant is not known where numbers are others.
    #[error(
        "this is a PID namespace, as of a container, and the kernel tells the machine's numbers of processes: run ncpu in the machine's own (docker run --pid=host, nsenter -t 1 -p), or observe a cgroup (-c) or all (-a)"
    )]
    PidNamespace,
    /// CO-RE needs the kernel's types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux): observing needs one built with CONFIG_DEBUG_INFO_BTF, as every distribution's since 2021 is"
    )]
    NoBtf,
    /// A tracepoint that everything rests on.
    #[error("this kernel has no tracepoint {0}, which every observation rests on")]
    NoTracepoint(&'static str),
    /// The programs need what this kernel lacks.
    #[error("{0}")]
    OldKernel(super::OldKernel),
    /// The cgroup cannot be found.
    #[error(
        "cgroup {path}: {source}; give a path below the cgroup v2 mount, such as system.slice/postgresql.service"
    )]
    Cgroup {
        /// The path tried.
        path: String,
        /// Why it cannot be used.
        source: std::io::Error,
    },
    /// BPF takes a descriptor for each program, map and CPU.
    #[error("only {0} files may be open at once (ulimit -n): observing this machine takes {1}")]
    Descriptors(u64, u64),
    /// libbpf refused.
    #[error("{doing}: {source}")]
    Bpf {
        /// What was being done.
        doing: &'static str,
        /// libbpf's own words.
        source: libbpf_rs::Error,
    },
    /// The kernel refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's own words.
        source: std::io::Error,
    },
}

/// A result of a collector.
pub type Result<T, E = Error> = std::result::Result<T, E>;

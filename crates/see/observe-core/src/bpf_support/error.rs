//! Errors that prevent a collector from starting.

/// An error that stops an observation before it begins.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// BPF needs privileges.
    #[error(
        "observing the kernel needs root (or CAP_BPF and CAP_PERFMON): run with sudo; without it there are `ncpu run` and `watch -p` of your own processes (with fewer layers), `topology`, `limits`, `cpus`, `memory` (an estimate), `lines FILE`, `bench`, `scale`, `populate`, `preload` and `report`"
    )]
    NotPermitted,
    /// In a PID namespace the kernel's process IDs differ from those of `/proc`.
    #[error(
        "this is a PID namespace, as in a container, and the kernel reports the machine's process IDs; run ncpu in the machine's own namespace (docker run --pid=host, nsenter -t 1 -p), or observe a cgroup (-c) or all (-a)"
    )]
    PidNamespace,
    /// CO-RE needs the kernel's types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux); observing needs CONFIG_DEBUG_INFO_BTF, which every distribution has enabled since 2021"
    )]
    NoBtf,
    /// Nothing is known of any process, this one among them.
    #[error("/proc is not mounted here; mount it: mount -t proc proc /proc")]
    NoProc,
    /// A tracepoint that every observation needs.
    #[error("this kernel has no tracepoint {0}, which every observation needs")]
    NoTracepoint(&'static str),
    /// The programs need a feature that this kernel lacks.
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
    #[error("only {0} files may be open at once (ulimit -n); observing this machine needs {1}")]
    Descriptors(u64, u64),
    /// libbpf refused.
    #[error("{doing}: {source}")]
    Bpf {
        /// The failed operation.
        doing: &'static str,
        /// The error from libbpf.
        source: libbpf_rs::Error,
    },
    /// The kernel refused.
    #[error("{doing}: {source}")]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The error from the system.
        source: std::io::Error,
    },
}

/// The result type of collectors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

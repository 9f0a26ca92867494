//! BPF features that some supported kernels lack. Each is detected by a name in the kernel's own types, so
//! features that a distribution has backported count too.

use std::fmt;

/// A feature that some of the programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Task storage: a separate record for each thread.
    TaskStorage,
    /// The registers with which a thread entered the kernel.
    TaskRegisters,
    /// Loops of any length.
    Loop,
}

impl Feature {
    /// All features.
    pub const ALL: [Feature; 3] = [Feature::TaskStorage, Feature::TaskRegisters, Feature::Loop];

    /// The name in the kernel's types that proves the feature (include/uapi/linux/bpf.h).
    pub(super) fn sign(self) -> &'static str {
        match self {
            Feature::TaskStorage => "BPF_MAP_TYPE_TASK_STORAGE",
            Feature::TaskRegisters => "BPF_FUNC_task_pt_regs",
            Feature::Loop => "BPF_FUNC_loop",
        }
    }

    /// The Linux release that introduced it.
    pub fn since(self) -> &'static str {
        match self {
            Feature::TaskStorage => "5.11",
            Feature::TaskRegisters => "5.15",
            Feature::Loop => "5.17",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::TaskStorage => "BPF task storage",
            Feature::TaskRegisters => "BPF access to the registers of threads",
            Feature::Loop => "bpf_loop",
        })
    }
}

/// A kernel that lacks a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldKernel {
    /// `uname -r`.
    pub release: String,
    /// The missing feature.
    pub lacks: Feature,
}

impl OldKernel {
    pub(super) fn running(lacks: Feature) -> OldKernel {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        OldKernel { release: release.trim().into(), lacks }
    }
}

impl fmt::Display for OldKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OldKernel { release, lacks } = self;
        write!(f, "this kernel ({release}) has no {lacks}, which came with Linux {}", lacks.since())
    }
}

impl std::error::Error for OldKernel {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_one_line_that_names_the_release_needed() {
        let old = OldKernel { release: "5.10.0-32-amd64".into(), lacks: Feature::TaskStorage };
        assert_eq!(
            old.to_string(),
            "this kernel (5.10.0-32-amd64) has no BPF task storage, which came with Linux 5.11"
        );
        let number = |since: &str| since.strip_prefix("5.").unwrap().parse::<u32>().unwrap();
        assert!(Feature::ALL.windows(2).all(|two| number(two[0].since()) < number(two[1].since())));
    }
}

//! Settings that protect a tenant from another: of systemd, Kubernetes, the container runtime or the kernel.

use ncpu_machine::shell_word;
use ncpu_machine::tenant::{KERNEL, Tenant};
use ncpu_schema::Loss;

use super::onions::OWN;
use super::{Lost, Tenancy};

/// The setting that helps against a loss; `None` where no setting does.
pub(super) fn of(lost: &Lost, tenancy: &Tenancy) -> Option<String> {
    match lost.cause {
        Loss::RunQueue => {
            let culprit =
                lost.culprit.as_deref().filter(|name| ![KERNEL, OWN, &lost.victim].contains(name))?;
            if let Some(policy) = tenancy.real_time.get(culprit) {
                return Some(format!(
                    "{culprit} has threads of {policy}, which go first whatever the weights are: chrt -o -a -p 0 PID makes them ordinary, a cpuset keeps them apart"
                ));
            }
            Some(format!("give {culprit} less weight: {}", weight(tenancy.members.get(culprit)?)))
        }
        Loss::Quota => {
            let victim = tenancy.members.get(&lost.victim)?;
            if let Some(culprit) = another(lost) {
                return Some(shared(victim, culprit, tenancy.members.get(culprit)?));
            }
            Some(format!("raise the CPU limit of {}: {}", lost.victim, limit(victim)))
        }
        Loss::Interrupts if another(lost).is_some() => {
            let culprit = another(lost)?;
            Some(format!("have {culprit} call other CPUs less often: `ncpu crosscalls` shows where it does"))
        }
        Loss::Interrupts => Some(format!(
            "keep interrupts off the CPUs of {}: /proc/irq/*/smp_affinity, or a cpuset for it",
            lost.victim
        )),
        Loss::Network => {
            let culprit = lost.culprit.as_deref().filter(|name| *name != lost.victim)?;
            Some(format!(
                "keep packets of {culprit} off the CPUs of {}: /sys/class/net/*/queues/rx-*/rps_cpus and IRQ affinity, or a limit (tc)",
                lost.victim
            ))
        }
        Loss::KernelLock => {
            let culprit = lost.culprit.as_deref().filter(|name| *name != lost.victim)?;
            let lock = lost.lock.as_deref().unwrap_or("the lock");
            let why = match lock.contains("mmap_lock") {
                true => {
                    " (readers of /proc/PID/maps and smaps hold it: read them less often, or smaps_rollup)"
                }
                false => "",
            };
            Some(format!("have {culprit} take {lock} less often{why}"))
        }
        Loss::Device => {
            let culprit = another(lost)?;
            Some(format!("give {culprit} less of the device: {}", io_weight(tenancy.members.get(culprit)?)))
        }
        Loss::Reclaim => {
            let culprit = another(lost)?;
            Some(format!("hold {culprit} to less memory: {}", memory(tenancy.members.get(culprit)?, "high")))
        }
        Loss::MemoryLimit => {
            if let Some(culprit) = another(lost) {
                let less = memory(tenancy.members.get(culprit)?, "max");
                return Some(format!("give {culprit} a memory limit of its own: {less}"));
            }
            let victim = tenancy.members.get(&lost.victim)?;
            Some(format!("raise the memory limit of {}: {}", lost.victim, memory(victim, "max")))
        }
        Loss::WakeUp | Loss::Spin | Loss::Shootdown | Loss::Steal => None,
    }
}

/// Several programs that no group holds have no setting in common.
const WHICH: &str = "--by program shows which of its programs";

/// The command or setting that lowers a tenant's share of CPUs.
fn weight(tenant: &Tenant) -> String {
    if let Some(pod) = &tenant.pod {
        return format!("lower resources.requests.cpu of {pod}");
    }
    if let Some(container) = &tenant.container {
        return format!("podman or docker update --cpu-shares 256 {}", shell_word(container));
    }
    if let Some(job) = &tenant.job {
        return format!("fewer CPUs for job {job} (--cpus-per-task)");
    }
    match &tenant.unit {
        Some(unit) => format!("systemctl set-property {} CPUWeight=20", shell_word(unit)),
        None if tenant.cgroup.len() > 1 => {
            format!("cpu.weight (version 1: cpu.shares) of {}", tenant.cgroup)
        }
        None if tenant.program.is_empty() => WHICH.into(),
        None => format!("renice -n 10 -p $(pidof {})", shell_word(&tenant.program)),
    }
}

/// The culprit, where it is another tenant that settings can bind.
fn another(lost: &Lost) -> Option<&str> {
    lost.culprit.as_deref().filter(|name| ![KERNEL, OWN, &lost.victim].contains(name))
}

/// The command or setting that lowers a tenant's share of devices.
fn io_weight(tenant: &Tenant) -> String {
    if let Some(pod) = &tenant.pod {
        return format!("io.max of {pod} (Kubernetes has no setting for it), or a volume of its own");
    }
    if let Some(container) = &tenant.container {
        return format!("docker or podman run --blkio-weight 10, for {}", shell_word(container));
    }
    match &tenant.unit {
        Some(unit) => format!("systemctl set-property {} IOWeight=10", shell_word(unit)),
        None if tenant.cgroup.len() > 1 => {
            format!("io.weight (version 1: blkio.weight) of {}", tenant.cgroup)
        }
        None if tenant.program.is_empty() => WHICH.into(),
        None => format!("ionice -c idle -p $(pidof {})", shell_word(&tenant.program)),
    }
}

/// The command or setting that bounds a tenant's memory.
fn memory(tenant: &Tenant, bound: &str) -> String {
    if let Some(pod) = &tenant.pod {
        return format!("resources.limits.memory of {pod}");
    }
    if let Some(container) = &tenant.container {
        return format!("podman or docker update --memory N {}", shell_word(container));
    }
    match &tenant.unit {
        Some(unit) => {
            let property = if bound == "high" { "MemoryHigh" } else { "MemoryMax" };
            format!("systemctl set-property {} {property}=N", shell_word(unit))
        }
        None if tenant.cgroup.len() > 1 => {
            format!("memory.{bound} (version 1: memory.limit_in_bytes) of {}", tenant.cgroup)
        }
        None if tenant.program.is_empty() => WHICH.into(),
        None => format!("systemd-run -p MemoryHigh=N {}", shell_word(&tenant.program)),
    }
}

/// Settings against another tenant below the same limit, which is that of a group above both.
fn shared(victim: &Tenant, culprit: &str, other: &Tenant) -> String {
    if let (Some(ours), Some(theirs)) = (&victim.pod, &other.pod)
        && ours == theirs
    {
        return format!("give {culprit} a limit of its own, below that of {ours}, or raise that of {ours}");
    }
    let mut above = victim.clone();
    super::keep_common(&mut above, other);
    format!("give {culprit} a limit of its own: {}; or raise that of {}", quota_of(other), above.cgroup)
}

/// The setting that bounds a tenant's CPU time.
fn quota_of(tenant: &Tenant) -> String {
    match (&tenant.container, &tenant.unit) {
        (Some(container), _) => format!("podman or docker update --cpus N {}", shell_word(container)),
        (None, Some(unit)) => format!("systemctl set-property {} CPUQuota=N%", shell_word(unit)),
        (None, None) => format!("cpu.max (version 1: cpu.cfs_quota_us) of {}", tenant.cgroup),
    }
}

/// The command or setting that lifts a tenant's limit.
fn limit(tenant: &Tenant) -> String {
    if let Some(pod) = &tenant.pod {
        return format!("raise or drop resources.limits.cpu of {pod}");
    }
    if let Some(container) = &tenant.container {
        return format!("podman or docker update --cpus N {}", shell_word(container));
    }
    match &tenant.unit {
        Some(unit) => format!("systemctl set-property {} CPUQuota=", shell_word(unit)),
        None => format!("cpu.max (version 1: cpu.cfs_quota_us) of {}", tenant.cgroup),
    }
}

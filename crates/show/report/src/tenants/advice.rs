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
            Some(format!("give {culprit} less weight: {}", weight(tenancy.members.get(culprit)?)))
        }
        Loss::Quota => {
            let victim = tenancy.members.get(&lost.victim)?;
            Some(format!("raise the CPU limit of {}: {}", lost.victim, limit(victim)))
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
        Loss::WakeUp | Loss::Spin | Loss::Shootdown | Loss::Steal => None,
    }
}

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
        None => format!("renice -n 10 -p $(pidof {})", shell_word(&tenant.program)),
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

//! Tenants: the owner of a process at the level that people name: a pod, container, job, service or session
//! of a user; otherwise its program.

mod files;
mod path;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

pub use files::{Known, Rules};
pub use path::{Container, Job, Place, Runtime};

/// The tenant of the kernel's own threads, interrupts and softirqs.
pub const KERNEL: &str = "kernel";
/// The tenant of processes that exceed the table.
pub const OTHERS: &str = "other";

/// The level at which processes are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// Pod, container, job, unit, session or group, whichever comes first; otherwise the program.
    #[default]
    Tenant,
    /// Unit of systemd.
    Unit,
    /// Pod of Kubernetes.
    Pod,
    /// Container, also within a pod.
    Container,
    /// Job of a batch system, and its step.
    Job,
    /// User.
    User,
    /// Program.
    Program,
    /// Control group, down to this depth.
    Cgroup(usize),
}

impl By {
    /// The words that [`FromStr`] reads.
    pub const WORDS: &str = "tenant, unit, pod, container, job, user, program or cgroup=DEPTH";
}

impl FromStr for By {
    type Err = String;

    fn from_str(word: &str) -> Result<By, String> {
        Ok(match word {
            "tenant" => By::Tenant,
            "unit" => By::Unit,
            "pod" => By::Pod,
            "container" => By::Container,
            "job" => By::Job,
            "user" => By::User,
            "program" => By::Program,
            "cgroup" => By::Cgroup(usize::MAX),
            _ => {
                let depth = word.strip_prefix("cgroup=").and_then(|depth| depth.parse().ok());
                return depth
                    .filter(|depth| *depth > 0)
                    .map(By::Cgroup)
                    .ok_or_else(|| format!("unknown level {word:?}; expected {}", By::WORDS));
            }
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Tenant => "tenant",
            By::Unit => "unit",
            By::Pod => "pod",
            By::Container => "container",
            By::Job => "job",
            By::User => "user",
            By::Program => "program",
            By::Cgroup(usize::MAX) => "cgroup",
            By::Cgroup(depth) => return write!(f, "cgroup={depth}"),
        })
    }
}

/// Names of a tenant at each level, as recordings keep them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tenant {
    /// Path of the control group, from the root of its hierarchy.
    pub cgroup: String,
    /// Name of the program: that of its process.
    pub program: String,
    /// Unit of systemd.
    pub unit: Option<String>,
    /// Pod: `namespace/name` if known, otherwise its UID.
    pub pod: Option<String>,
    /// Container: its name if known, otherwise runtime and ID.
    pub container: Option<String>,
    /// Job: `slurm 123`.
    pub job: Option<String>,
    /// Name that its user gave the job.
    pub job_name: Option<String>,
    /// Step of the job.
    pub step: Option<String>,
    /// User: name or number.
    pub user: Option<String>,
    /// Session of the user.
    pub session: Option<String>,
    /// Whether it is the kernel itself.
    pub kernel: bool,
}

/// The first components of a path; all of a shorter one.
fn prefix(path: &str, depth: usize) -> String {
    let components: Vec<&str> = path.split('/').filter(|c| !c.is_empty()).take(depth).collect();
    format!("/{}", components.join("/"))
}

impl Tenant {
    /// Derives a tenant from the path of its group; `known` looks up names.
    pub fn find(cgroup: &str, program: &str, uid: u32, known: &mut Known) -> Tenant {
        let place = Place::parse(cgroup);
        let pod = place.pod.as_ref();
        let names = place.container.as_ref().and_then(|container| known.container(container));
        let pod_name = pod.map(|uid| {
            let of_container = names.as_ref().and_then(|names| names.pod.clone());
            of_container.or_else(|| known.pod(uid)).unwrap_or_else(|| format!("pod {uid}"))
        });
        let container = place.container.as_ref().map(|container| {
            let name = names.map(|names| names.name).filter(|name| !name.is_empty());
            name.unwrap_or_else(|| container.short())
        });
        let (job, step) = match place.job {
            Some(job) => (Some(format!("{} {}", job.system, job.id)), job.step),
            None => (None, None),
        };
        Tenant {
            cgroup: cgroup.into(),
            program: program.into(),
            unit: place.unit,
            pod: pod_name,
            container,
            job,
            job_name: None,
            step,
            user: Some(known.user(place.user.unwrap_or(uid))),
            session: place.session,
            kernel: false,
        }
    }

    /// The kernel's own.
    pub fn kernel() -> Tenant {
        Tenant { cgroup: "/".into(), program: KERNEL.into(), kernel: true, ..Tenant::default() }
    }

    /// Its name at a level.
    pub fn name(&self, by: By) -> String {
        if self.kernel {
            return KERNEL.into();
        }
        let or = |name: Option<&String>, none: &str| name.cloned().unwrap_or_else(|| none.into());
        match by {
            By::Tenant => self.best(),
            By::Unit => or(self.unit.as_ref(), "(no unit)"),
            By::Pod => or(self.pod.as_ref(), "(no pod)"),
            By::Container => match (&self.pod, &self.container) {
                (Some(pod), Some(container)) => format!("{pod}/{container}"),
                (_, Some(container)) => container.clone(),
                _ => "(no container)".into(),
            },
            By::Job => match (&self.job, &self.step) {
                (Some(job), Some(step)) => self.named_job(format!("{job}.{step}")),
                (Some(job), None) => self.named_job(job.clone()),
                _ => "(no job)".into(),
            },
            By::User => or(self.user.as_ref(), "(unknown user)"),
            By::Program => self.program.clone(),
            By::Cgroup(depth) => prefix(&self.cgroup, depth),
        }
    }

    /// A job's number with the name that its user gave it.
    fn named_job(&self, number: String) -> String {
        match &self.job_name {
            Some(name) => format!("{number} {name}"),
            None => number,
        }
    }

    /// The most specific name that people use for it.
    fn best(&self) -> String {
        if let Some(name) = self.pod.as_ref().or(self.container.as_ref()) {
            return name.clone();
        }
        if let Some(job) = &self.job {
            return self.named_job(job.clone());
        }
        if let Some(unit) = &self.unit {
            return unit.clone();
        }
        match (&self.session, &self.user) {
            (Some(session), Some(user)) => return format!("{user}, session {session}"),
            _ if self.cgroup.len() > 1 => return self.cgroup.clone(),
            _ => {}
        }
        self.program.clone()
    }
}

/// Gives all tenants of a job the name that one of them has: not every process of a job has the name in its
/// environment.
pub fn name_jobs(tenants: &mut [(u64, Tenant)]) {
    let name = |tenant: &Tenant| Some((tenant.job.clone()?, tenant.job_name.clone()?));
    let names: HashMap<String, String> = tenants.iter().filter_map(|(_, tenant)| name(tenant)).collect();
    for (_, tenant) in tenants {
        let name = tenant.job.as_ref().and_then(|job| names.get(job));
        tenant.job_name = name.cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_written() {
        for word in ["tenant", "unit", "pod", "container", "job", "user", "program", "cgroup", "cgroup=2"] {
            assert_eq!(word.parse::<By>().unwrap().to_string(), word);
        }
        for wrong in ["", "cgroup=0", "cgroup=x", "Tenant"] {
            assert!(wrong.parse::<By>().unwrap_err().contains("expected tenant, unit"), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_has_a_name_at_each_level() {
        let mut known = Known::default();
        let mut at = |path: &str, by: By| Tenant::find(path, "postgres", 123_456, &mut known).name(by);
        let service = "/system.slice/postgresql.service/inner";
        assert_eq!(at(service, By::Tenant), "postgresql.service");
        assert_eq!(at(service, By::Cgroup(1)), "/system.slice");
        assert_eq!(at(service, By::Cgroup(9)), service);
        assert_eq!(at(service, By::Program), "postgres");
        assert_eq!(at(service, By::Pod), "(no pod)");
        assert_eq!(at(service, By::User), "123456");
        assert_eq!(at("/", By::Tenant), "postgres");
        assert_eq!(at("/batch/night", By::Tenant), "/batch/night");
        assert_eq!(at("/user.slice/user-4321.slice/session-3.scope", By::Tenant), "4321, session 3");
        let step = "/slurm/uid_4321/job_7/step_0/task_1";
        assert_eq!((at(step, By::Tenant), at(step, By::Job)), ("slurm 7".into(), "slurm 7.0".into()));
        assert_eq!(at("/", By::Job), "(no job)");
        let job = |path: &str, name: Option<&str>| {
            let tenant = Tenant::find(path, "sh", 0, &mut Known::default());
            (0, Tenant { job_name: name.map(String::from), ..tenant })
        };
        let mut jobs = [
            job(step, None),
            job("/slurm_vm/uid_0/job_7/step_extern", Some("night")),
            job("/slurm/job_8", None),
        ];
        name_jobs(&mut jobs);
        let names: Vec<String> = jobs.iter().map(|(_, tenant)| tenant.name(By::Tenant)).collect();
        assert_eq!(names, ["slurm 7 night", "slurm 7 night", "slurm 8"]);
        assert_eq!(jobs[0].1.name(By::Job), "slurm 7.0 night");
        assert_eq!(Tenant::kernel().name(By::Unit), "kernel");
    }
}

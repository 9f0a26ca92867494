//! `-p`, `-c`, `-a`: whose threads are observed.

use clap::Args;
use ncpu_machine::process;
use ncpu_observe_core::program::Target;

/// Threads to observe [default: the whole machine].
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct TargetArgs {
    /// Observe process PID, its threads and all it starts
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Observe the processes of a cgroup (v2), a path below its mount
    #[arg(short, long, value_name = "CGROUP")]
    pub cgroup: Option<String>,

    /// Observe every process of the machine (the default)
    #[arg(short, long)]
    pub all: bool,
}

impl TargetArgs {
    /// The target, checked to exist.
    pub fn target(&self) -> anyhow::Result<Target> {
        if let Some(pid) = self.pid {
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                anyhow::bail!("there is no process {pid}; `ps -e` lists those there are");
            }
            return Ok(Target::Tree(pid));
        }
        match &self.cgroup {
            Some(path) => Ok(Target::cgroup(path)?),
            None => Ok(Target::All),
        }
    }

    /// Words for the headline.
    pub fn words(&self) -> Vec<String> {
        match (self.pid, &self.cgroup) {
            (Some(pid), _) => {
                let name = process::name(format!("/proc/{pid}").as_ref()).unwrap_or_default();
                vec![format!("process {pid}"), format!("({name})")]
            }
            (_, Some(cgroup)) => vec![format!("cgroup {cgroup}")],
            _ => vec!["the machine".into()],
        }
    }
}

/// A descriptor that becomes readable when a watched process ends.
pub fn pidfd(target: &Target) -> Option<std::os::fd::OwnedFd> {
    let Target::Tree(pid) = target else { return None };
    let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

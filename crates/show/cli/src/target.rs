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
            must_run(pid)?;
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

/// That a process is there, and that one of its threads has not ended: its first one may have before the others.
///
/// # Errors
/// There is none, or it has ended.
pub fn must_run(pid: u32) -> anyhow::Result<()> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        anyhow::bail!("there is no process {pid}; `ps -e` lists those there are");
    };
    let lives = |task: std::fs::DirEntry| {
        let text = process::read(&task.path().join("stat")).ok()?;
        Some(!process::Stat::parse(&text)?.has_ended())
    };
    let lives = tasks.flatten().filter_map(lives).any(|lives| lives);
    anyhow::ensure!(lives, "process {pid} has ended (zombie): its parent has not waited for it yet");
    Ok(())
}

/// A descriptor that becomes readable when a watched process ends.
pub fn pidfd(target: &Target) -> Option<std::os::fd::OwnedFd> {
    let Target::Tree(pid) = target else { return None };
    let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).ok()?)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

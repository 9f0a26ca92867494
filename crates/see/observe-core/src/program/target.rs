//! The threads that count as the program.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::bpf_support::{Error, Result, namespace};

/// The threads that count as the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every thread of the machine except `ncpu`'s own.
    All,
    /// A process, its threads and all its descendants.
    Tree(u32),
    /// A cgroup (v2) and its descendants.
    Cgroup {
        /// Inode of the cgroup directory, which is the cgroup's ID.
        id: u64,
        /// Depth below the root of the hierarchy.
        level: u32,
    },
}

impl Target {
    /// The cgroup at `path`: absolute, or below the cgroup v2 mount.
    ///
    /// # Errors
    /// No cgroup v2 is mounted, or the directory does not exist.
    pub fn cgroup(path: &str) -> Result<Target> {
        let mount = cgroup2_mount().ok_or_else(|| Error::Cgroup {
            path: path.into(),
            source: std::io::Error::other("no cgroup v2 hierarchy is mounted"),
        })?;
        let dir = if Path::new(path).starts_with(&mount) {
            PathBuf::from(path)
        } else {
            mount.join(path.trim_start_matches('/'))
        };
        let meta = std::fs::metadata(&dir)
            .map_err(|source| Error::Cgroup { path: dir.display().to_string(), source })?;
        let below = dir.strip_prefix(&mount).unwrap_or(&dir);
        Ok(Target::Cgroup { id: meta.ino(), level: below.components().count() as u32 })
    }

    /// Those of `pids` that are in the cgroup; all of them for other targets.
    pub fn among(&self, pids: Vec<u32>) -> Vec<u32> {
        let (&Target::Cgroup { id, level }, Some(mount)) = (self, cgroup2_mount()) else { return pids };
        let mut known: HashMap<PathBuf, bool> = HashMap::new();
        let within = |pid: &u32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
            let path: Option<PathBuf> =
                path.map(|p| Path::new(p).components().take(level as usize).collect());
            path.is_some_and(|path| {
                let dir = mount.join(&path);
                *known
                    .entry(path)
                    .or_insert_with(|| std::fs::metadata(dir).is_ok_and(|meta| meta.ino() == id))
            })
        };
        pids.into_iter().filter(within).collect()
    }

    /// The settings of `target.h`: all, the process, the cgroup and its level.
    ///
    /// # Errors
    /// The target is a process, but `ncpu` is in a PID namespace.
    pub fn settings(&self) -> Result<(u32, u32, u64, u32)> {
        Ok(match *self {
            Target::All => (1, 0, 0, 0),
            Target::Tree(_) if namespace::is_own() => return Err(Error::PidNamespace),
            Target::Tree(pid) => (0, pid, 0, 0),
            Target::Cgroup { id, level } => (0, 0, id, level),
        })
    }
}

fn cgroup2_mount() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mounts").ok()?;
    Some(Path::new("/").join(ncpu_machine::limits::Mounts::parse(&text).unified?))
}

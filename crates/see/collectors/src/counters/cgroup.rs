//! The directory of a cgroup, for both versions: the hierarchy with the controller perf_event, which is
//! that of version 2 unless version 1 mounts it.

use std::fs::File;
use std::path::{Path, PathBuf};

use ncpu_machine::limits::Mounts;

use super::{Error, Result};

/// Opens the directory of a cgroup: a path below the mount, or an absolute one in it.
pub fn open(root: &Path, path: &str) -> Result<File> {
    let fail = |source| Error::Cgroup { path: path.into(), source };
    let mounts = std::fs::read_to_string(root.join("proc/self/mounts")).map_err(fail)?;
    let mount = mount(&mounts).ok_or_else(|| {
        fail(std::io::Error::other("neither cgroup v2 nor a v1 hierarchy with perf_event is mounted"))
    })?;
    let dir = directory(&mount, path);
    let below = root.join(dir.strip_prefix("/").unwrap_or(&dir));
    File::open(&below).map_err(|e| {
        let there = format!("{e}: {}; perf_event's hierarchy is {}", dir.display(), mount.display());
        fail(std::io::Error::new(e.kind(), there))
    })
}

fn directory(mount: &Path, path: &str) -> PathBuf {
    if Path::new(path).starts_with(mount) {
        return path.into();
    }
    mount.join(path.trim_start_matches('/'))
}

fn mount(mounts: &str) -> Option<PathBuf> {
    let mut mounts = Mounts::parse(mounts);
    let dir = mounts.by_controller.remove("perf_event").or(mounts.unified)?;
    Some(Path::new("/").join(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_where_it_has_perf_event_else_2() {
        let both = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                    cgroup /sys/fs/cgroup/perf_event cgroup rw,relatime,perf_event 0 0\n\
                    cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount(both), Some("/sys/fs/cgroup/perf_event".into()));
        assert_eq!(mount(&both.replace("perf_event", "other")), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount("tmpfs /tmp tmpfs rw 0 0\nx"), None);
    }

    #[test]
    fn a_path_is_below_the_mount() {
        let mount = Path::new("/sys/fs/cgroup");
        assert_eq!(directory(mount, "/user.slice/a"), Path::new("/sys/fs/cgroup/user.slice/a"));
        assert_eq!(directory(mount, "/sys/fs/cgroup/x"), Path::new("/sys/fs/cgroup/x"));
        assert_eq!(directory(mount, "/"), Path::new("/sys/fs/cgroup/"));
    }
}

//! Control groups with their own CPUs and memory nodes: cpuset of version 2, or of version 1.

use std::path::{Path, PathBuf};

use ncpu_machine::CpuSet;

use crate::journal::{Journal, Undo};

/// Where a control group with a cpuset can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The group in which ours is made.
    parent: PathBuf,
    /// Version 2.
    unified: bool,
    /// `cgroup.subtree_control` files, from the top, in which `cpuset` is still to be switched on.
    switch_on: Vec<PathBuf>,
}

/// A group of ours.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its directory.
    pub path: PathBuf,
    unified: bool,
}

/// A line of /proc/PID/mountinfo, as far as it is of use.
struct Mount<'a> {
    root: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mounts(mountinfo: &str) -> Vec<Mount<'_>> {
    let one = |line| {
        let (before, after) = str::split_once(line, " - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
        Some(Mount { root, at, kind, options })
    };
    mountinfo.lines().filter_map(one).collect()
}

impl Hierarchy {
    /// Where it can be; else why not.
    ///
    /// # Errors
    /// In words for the user.
    pub fn find(root: &Path) -> Result<Hierarchy, String> {
        let read = |name: &str| {
            std::fs::read_to_string(root.join(name)).map_err(|e| format!("cannot read /{name}: {e}"))
        };
        let (mountinfo, own) = (read("proc/self/mountinfo")?, read("proc/self/cgroup")?);
        Hierarchy::of(root, &mountinfo, &own)
    }

    fn of(root: &Path, mountinfo: &str, own: &str) -> Result<Hierarchy, String> {
        let mounts = mounts(mountinfo);
        // `9:cpuset:/path` of version 1, `0::/path` of version 2.
        let path_of = |controller: &str| {
            own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                controllers.split(',').any(|c| c == controller).then_some(path)
            })
        };
        // The mount may show only a part of the hierarchy.
        let below = |mount: &Mount<'_>, own: &str| {
            let rest = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or("");
            let rest = rest.trim_start_matches('/');
            let at = root.join(mount.at.trim_start_matches('/'));
            if rest.is_empty() { at } else { at.join(rest) }
        };
        let mut why = "no cgroup file system is mounted".to_string();
        if let (Some(mount), Some(own)) = (mounts.iter().find(|m| m.kind == "cgroup2"), path_of("")) {
            match unified(&root.join(mount.at.trim_start_matches('/')), &below(mount, own)) {
                Ok(found) => return Ok(found),
                Err(words) => why = words,
            }
        }
        let v1 = mounts.iter().find(|m| m.kind == "cgroup" && m.options.split(',').any(|o| o == "cpuset"));
        if let (Some(mount), Some(own)) = (v1, path_of("cpuset")) {
            let parent = below(mount, own);
            if !parent.join("cpuset.cpus").exists() {
                return Err(format!("{} has no cpuset.cpus", parent.display()));
            }
            if rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_err() {
                return Err(format!("no group can be made in {}", parent.display()));
            }
            return Ok(Hierarchy { parent, unified: false, switch_on: Vec::new() });
        }
        Err(why)
    }

    /// Makes a group, which is in the journal before it exists.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(&self, journal: &mut Journal, name: &str) -> Result<Group, crate::Error> {
        for file in &self.switch_on {
            journal.will(Undo::Controller { path: file.into(), controller: "cpuset".into() })?;
            std::fs::write(file, "+cpuset").map_err(|e| crate::Error::file(file, e))?;
        }
        let path = self.parent.join(name);
        journal.will(Undo::Cgroup { path: (&path).into() })?;
        std::fs::create_dir(&path).map_err(|e| crate::Error::file(&path, e))?;
        if self.unified {
            let control = path.join("cgroup.subtree_control");
            std::fs::write(&control, "+cpuset").map_err(|e| crate::Error::file(&control, e))?;
        } else {
            // Empty at first, and groups in it can have no more than it has.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let from = self.parent.join(file);
                let text = std::fs::read(&from).map_err(|e| crate::Error::file(&from, e))?;
                let to = path.join(file);
                std::fs::write(&to, text).map_err(|e| crate::Error::file(&to, e))?;
            }
        }
        Ok(Group { path, unified: self.unified })
    }
}

/// A group of version 2 in whose children cpuset can be switched on.
fn unified(top: &Path, own: &Path) -> Result<Hierarchy, String> {
    let lists = |dir: &Path, file: &str| {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().any(|c| c == "cpuset")
    };
    // A group with processes can hand no controller to its children, except the top; so ours is made beside our own.
    let parent = if own == top { top } else { own.parent().unwrap_or(top) };
    let mut chain: Vec<&Path> = parent.ancestors().take_while(|p| p.starts_with(top)).collect();
    chain.reverse();
    if !lists(top, "cgroup.controllers") {
        return Err("cgroup v2 has no cpuset controller here".into());
    }
    let switch_on: Vec<PathBuf> = chain
        .iter()
        .filter(|dir| !lists(dir, "cgroup.subtree_control"))
        .map(|dir| dir.join("cgroup.subtree_control"))
        .collect();
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if let Some(file) = switch_on.iter().find(|f| !writable(f)).map(PathBuf::as_path) {
        return Err(format!("{} cannot be written", file.display()));
    }
    if !writable(parent) {
        return Err(format!("no group can be made in {}", parent.display()));
    }
    Ok(Hierarchy { parent: parent.to_owned(), unified: true, switch_on })
}

impl Group {
    /// Makes a group in this one with these CPUs and memory nodes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn child(&self, name: &str, cpus: &CpuSet, nodes: &CpuSet) -> Result<Group, crate::Error> {
        let path = self.path.join(name);
        std::fs::create_dir(&path).map_err(|e| crate::Error::file(&path, e))?;
        for (file, set) in [("cpuset.cpus", cpus), ("cpuset.mems", nodes)] {
            let file = path.join(file);
            std::fs::write(&file, set.to_list()).map_err(|e| crate::Error::file(&file, e))?;
        }
        Ok(Group { path, unified: self.unified })
    }

    /// The file by which a process joins.
    pub fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<u32> {
        crate::group::processes(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::remove;
    use ncpu_machine_trees::put;

    const V2: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn beside_our_own_group_of_version_2() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let groups = "sys/fs/cgroup";
        put(root, format!("{groups}/cgroup.controllers"), "cpuset cpu memory\n");
        put(root, format!("{groups}/cgroup.subtree_control"), "cpuset cpu\n");
        put(root, format!("{groups}/user.slice/cgroup.subtree_control"), "cpu\n");
        put(root, format!("{groups}/user.slice/s.scope/cgroup.procs"), "1\n");
        let found = Hierarchy::of(root, V2, "0::/user.slice/s.scope\n").unwrap();
        assert_eq!(found.parent, root.join("sys/fs/cgroup/user.slice"));
        assert_eq!(found.switch_on, [root.join("sys/fs/cgroup/user.slice/cgroup.subtree_control")]);
        let top = Hierarchy::of(root, V2, "0::/\n").unwrap();
        assert_eq!((top.parent, top.switch_on), (root.join(groups), vec![]));
    }

    #[test]
    fn version_1_where_version_2_has_no_cpuset() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n");
        put(dir.path(), "sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-1\n");
        let mountinfo = "34 25 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                         41 25 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchy::of(dir.path(), mountinfo, "3:cpuset:/a\n0::/\n").unwrap();
        assert_eq!((found.unified, found.parent), (false, dir.path().join("sys/fs/cgroup/cpuset/a")));
        let none = Hierarchy::of(dir.path(), "", "0::/\n").unwrap_err();
        assert!(none.contains("no cgroup file system"), "{none}");
    }

    #[test]
    fn groups_of_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("system.slice");
        std::fs::create_dir(&group).unwrap();
        assert!(remove(&group).is_err());
        assert!(group.exists());
        assert!(!remove(&dir.path().join("ncpu-gone")).unwrap());
    }

    #[test]
    fn a_group_is_made_confines_and_is_removed_with_its_processes() {
        let hierarchy = match Hierarchy::find("/".as_ref()) {
            Ok(found) if rustix::process::geteuid().is_root() => found,
            other => return eprintln!("skipped: {other:?}"),
        };
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(&dir.path().join("undo"), &[]).unwrap();
        let group = hierarchy.make(&mut journal, &format!("ncpu-test-{}", std::process::id())).unwrap();
        let cpu: CpuSet = crate::sys::affinity(0).unwrap().first().into_iter().collect();
        let part = group.child("0", &cpu, &[0].into_iter().collect()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::write(part.procs(), child.id().to_string()).unwrap();
        assert_eq!(part.processes(), [child.id()]);
        assert_eq!(crate::sys::affinity(child.id()).unwrap(), cpu);
        let replayed = journal.finish();
        assert!(replayed.failed.is_empty(), "{replayed:?}");
        assert!(!group.path.exists());
        assert!(!child.wait().unwrap().success());
    }
}

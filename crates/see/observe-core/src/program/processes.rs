//! Lists the current processes and threads, below any root's `/proc`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::{fs, io};

use ncpu_machine::process::{self, Stat};

/// The threads of a process; empty if it has ended.
pub fn threads(root: &Path, pid: u32) -> Vec<u32> {
    process::threads(&root.join(format!("proc/{pid}")))
}

/// Every process, ascending.
pub fn all(root: &Path) -> Vec<u32> {
    process::pids(&root.join("proc")).unwrap_or_default()
}

/// A process and all its descendants, the process first.
pub fn tree(root: &Path, top: u32) -> Vec<u32> {
    let mut listed = true;
    let found = walk(top, |pid| {
        let children = children(root, pid);
        listed &= children.is_some();
        children.unwrap_or_default()
    });
    if listed {
        return found;
    }
    let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all(root) {
        let stat = process::read(&root.join(format!("proc/{pid}/stat"))).unwrap_or_default();
        if let Some(parent) = Stat::parse(&stat).and_then(|stat| stat.parent()) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    walk(top, |pid| by_parent.remove(&pid).unwrap_or_default())
}

/// Walks down from a process. Files are read one after another, so a reused process ID can make a cycle.
fn walk(top: u32, mut children: impl FnMut(u32) -> Vec<u32>) -> Vec<u32> {
    let (mut found, mut at) = (vec![top], 0);
    let mut seen = HashSet::from([top]);
    while let Some(&pid) = found.get(at) {
        found.extend(children(pid).into_iter().filter(|c| seen.insert(*c)));
        at += 1;
    }
    found
}

/// The children of a process, without reading other processes; `None` if the kernel does not list them
/// (`CONFIG_PROC_CHILDREN`).
fn children(root: &Path, pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for tid in threads(root, pid) {
        let task = root.join(format!("proc/{pid}/task/{tid}"));
        match started_by(&task) {
            Ok(children) => found.extend(children),
            Err(_) if task.exists() => return None,
            // The thread has ended.
            Err(_) => {}
        }
    }
    Some(found)
}

/// The children that a thread started, by its directory below `/proc/PID/task`.
///
/// # Errors
/// The thread has ended, or the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn started_by(task: &Path) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(task.join("children"))?;
    Ok(text.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect())
}

/// The name of a process; empty if it has ended.
pub fn name(root: &Path, pid: u32) -> String {
    process::name(&root.join(format!("proc/{pid}"))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_odd_names_and_a_circle() {
        let root = tempfile::tempdir().unwrap();
        for (pid, comm, ppid) in [
            (1, "init", 0),
            (10, "a) R 1 (", 1),
            (11, "b b", 10),
            (12, "c", 11),
            (20, "x", 21),
            (21, "y", 20),
        ] {
            let dir = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(dir.join(format!("task/{pid}"))).unwrap();
            fs::write(dir.join("stat"), format!("{pid} ({comm}) S {ppid} 0 0")).unwrap();
        }
        assert_eq!(tree(root.path(), 10), [10, 11, 12]);
        assert_eq!(tree(root.path(), 20), [20, 21]);
        assert_eq!(tree(root.path(), 99), [99]);
        assert_eq!(threads(root.path(), 11), [11]);
        assert_eq!(threads(root.path(), 99), [0u32; 0]);
        assert_eq!(all(root.path()), [1, 10, 11, 12, 20, 21]);
    }

    #[test]
    fn children_as_the_kernel_lists_them() {
        let root = tempfile::tempdir().unwrap();
        for (pid, tid, children) in [(10, 10, "11 "), (10, 13, "12 14 "), (11, 11, ""), (12, 12, "10 ")] {
            let dir = root.path().join(format!("proc/{pid}/task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("children"), children).unwrap();
        }
        assert_eq!(tree(root.path(), 10), [10, 11, 12, 14]);
        // As this process sees its own.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = tree(Path::new("/"), std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()), "{found:?}");
    }
}

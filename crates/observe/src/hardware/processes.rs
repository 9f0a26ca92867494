//! Which processes and threads there are now, below any root's `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// The threads of a process; none if it is gone.
pub fn threads(root: &Path, pid: u32) -> Vec<u32> {
    numbers(&root.join(format!("proc/{pid}/task")))
}

/// Every process, ascending.
pub fn all(root: &Path) -> Vec<u32> {
    numbers(&root.join("proc"))
}

/// A process and everything below it, the process first.
pub fn tree(root: &Path, top: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all(root) {
        let stat = fs::read_to_string(root.join(format!("proc/{pid}/stat"))).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut at) = (vec![top], 0);
    // Files read one after another may show a circle where a number was used again.
    let mut seen = HashSet::from([top]);
    while let Some(pid) = found.get(at) {
        found.extend(children.remove(pid).into_iter().flatten().filter(|c| seen.insert(*c)));
        at += 1;
    }
    found
}

/// The name a process goes by; empty if it is gone.
pub fn name(root: &Path, pid: u32) -> String {
    fs::read_to_string(root.join(format!("proc/{pid}/comm"))).unwrap_or_default().trim().to_string()
}

/// The fourth word of `/proc/PID/stat`; the second, in parentheses, may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn numbers(dir: &Path) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
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
    fn stat_cut_short_has_no_parent() {
        for text in ["", "1 (x", "1 (x)", "1 (x) S", "1 (x) S y"] {
            assert_eq!(parent(text), None);
        }
    }
}

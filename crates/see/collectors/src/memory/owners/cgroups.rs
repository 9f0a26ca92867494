//! Pages by cgroup.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use ncpu_schema::cgroups;
use ncpu_table::Table;

use super::{Class, Owned, bytes, percent};

/// A row for each cgroup, the largest first. `owned` is by inode number of the cgroup's directory.
pub(super) fn table(root: &Path, owned: &Owned, page_size: u64, all: u64) -> Table {
    let names = paths(root);
    let mut rows = cgroups::Rows::new();
    let mut sorted: Vec<_> = owned.iter().collect();
    sorted.sort_by_key(|(id, counts)| (std::cmp::Reverse(counts.total()), **id));
    for (id, counts) in sorted {
        let name = names.get(id).cloned().unwrap_or_else(|| format!("[gone: {id}]"));
        let of = |classes: &[Class]| Some(bytes(counts, classes, page_size));
        rows.push(cgroups::Row {
            cgroup: name.into(),
            bytes: Some(counts.total() * page_size),
            share: Some(percent(counts.total(), all)),
            anon: of(&[Class::Anon, Class::AnonThp]),
            shared: of(&[Class::Shared, Class::SharedThp]),
            file: of(&[Class::Exec, Class::Mapped, Class::Cache]),
            hugetlb: of(&[Class::Hugetlb]),
            kernel: of(&[Class::PageTables, Class::Kernel]),
        });
    }
    rows.finish()
}

/// The path of each cgroup that may own memory, by inode number: of cgroup v2, or of v1's memory
/// controller.
fn paths(root: &Path) -> HashMap<u64, String> {
    use std::os::unix::fs::MetadataExt;
    let mut paths = HashMap::new();
    let top = root.join("sys/fs/cgroup");
    for top in [top.join("memory"), top.join("unified"), top] {
        if top.join("cgroup.procs").exists()
            && let Ok(meta) = fs::metadata(&top)
        {
            paths.insert(meta.ino(), "/".into());
            walk(&top, String::new(), &mut paths);
        }
    }
    paths
}

fn walk(dir: &Path, name: String, paths: &mut HashMap<u64, String>) {
    let mut todo: Vec<(PathBuf, String)> = vec![(dir.into(), name)];
    while let Some((dir, name)) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                let name = format!("{name}/{}", entry.file_name().to_string_lossy());
                paths.entry(entry.ino()).or_insert_with(|| name.clone());
                todo.push((entry.path(), name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::memory::Counts;

    #[test]
    fn the_largest_first_with_their_paths() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/fs/cgroup/a.slice/b.service");
        fs::create_dir_all(&dir).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.procs"), "").unwrap();
        let mut owned = Owned::new();
        let mut counts = Counts::default();
        counts[Class::Anon] = 3;
        owned.insert(fs::metadata(&dir).unwrap().ino(), counts);
        counts[Class::Exec] = 5;
        counts[Class::Cache] = 1;
        owned.insert(u64::MAX, counts);
        let t = table(root.path(), &owned, 4096, 100);
        assert_eq!(
            (t.text(0, "cgroup"), t.int(0, "file")),
            (Some("[gone: 18446744073709551615]"), Some(6 * 4096))
        );
        assert_eq!((t.text(1, "cgroup"), t.int(1, "bytes")), (Some("/a.slice/b.service"), Some(3 * 4096)));
        assert_eq!(t.number(0, "share"), Some(9.0));
    }
}

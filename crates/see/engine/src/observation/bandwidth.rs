//! Memory bandwidth and cache of groups of processes, by interval, where the machine counts them (resctrl).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ncpu_machine::resctrl::{self, Counts};
use ncpu_schema::bandwidth;
use ncpu_table::Table;

/// Where the file system is mounted, if it is.
const MOUNT: &str = "/sys/fs/resctrl";

/// Counts of the groups as they were last read.
pub(super) struct Bandwidth {
    mount: PathBuf,
    last: BTreeMap<String, Counts>,
}

impl Bandwidth {
    /// `None` where nothing is monitored: then nothing is read again.
    pub fn begin() -> Option<Bandwidth> {
        Bandwidth::at(Path::new(MOUNT))
    }

    fn at(mount: &Path) -> Option<Bandwidth> {
        let last = resctrl::groups(mount);
        (!last.is_empty()).then(|| Bandwidth { mount: mount.into(), last })
    }

    /// Table `bandwidth`: what groups moved since the last one, and the cache that they have. Of a group that was made meanwhile
    /// all that it has moved.
    pub fn table(&mut self, t: f64) -> Table {
        let now = resctrl::groups(&self.mount);
        let mut rows = bandwidth::Rows::new();
        for (group, counts) in &now {
            let before = self.last.get(group).copied().unwrap_or_default();
            let new = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
            rows.push(bandwidth::Row {
                time: Some(t),
                group: group.into(),
                cgroup: self.cgroup(group).into(),
                bytes: new(counts.total, before.total),
                local: new(counts.local, before.local),
                cache: counts.cache,
            });
        }
        self.last = now;
        rows.finish()
    }

    /// The control group that the first threads of a group share. The machine's own group has all that is in no other.
    fn cgroup(&self, group: &str) -> Option<String> {
        let of = |task: u32| {
            let text = std::fs::read_to_string(format!("/proc/{task}/cgroup")).ok()?;
            let deepest =
                text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).max_by_key(|path| path.len());
            deepest.map(String::from)
        };
        let mut groups =
            resctrl::tasks(&self.mount, group).into_iter().filter(|_| group != "/").filter_map(of);
        let first = groups.next()?;
        groups.all(|other| other == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_was_moved_in_it() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        assert!(Bandwidth::at(root.path()).is_none());
        write("mon_data/mon_L3_00/mbm_total_bytes", "5000\n");
        write("mon_groups/job/mon_data/mon_L3_00/mbm_total_bytes", "1000\n");
        write("mon_groups/job/mon_data/mon_L3_00/llc_occupancy", "77\n");
        write("mon_groups/job/tasks", &format!("{}\n", std::process::id()));
        let mut bandwidth = Bandwidth::at(root.path()).expect("two groups");
        write("mon_data/mon_L3_00/mbm_total_bytes", "5600\n");
        write("mon_groups/job/mon_data/mon_L3_00/mbm_total_bytes", "1500\n");
        write("mon_groups/new/mon_data/mon_L3_00/mbm_total_bytes", "Unavailable\n");
        let table = bandwidth.table(1.0);
        let rows = bandwidth::Reader::of(&table).expect("its columns");
        let row = |i| (rows.group.get(i), rows.bytes.get(i), rows.local.get(i), rows.cache.get(i));
        assert_eq!(row(0), (Some("/"), Some(100), None, None));
        assert_eq!(row(1), (Some("mon_groups/job"), Some(500), None, Some(77)));
        assert_eq!(row(2), (Some("mon_groups/new"), None, None, None));
        assert_eq!(rows.cgroup.get(0), None);
        assert!(rows.cgroup.get(1).is_some_and(|path| path.starts_with('/')));
    }
}

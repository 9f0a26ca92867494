//! Memory bandwidth and cache by group of processes, where the machine counts them: the file system resctrl
//! (Documentation/filesystems/resctrl.rst in the kernel's sources).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Groups that are read.
const MOST_GROUPS: usize = 1024;
/// Threads of a group that are looked at for what it is.
const MOST_TASKS: usize = 32;
/// Bytes of a file that are read.
const MOST_BYTES: usize = 1 << 16;
/// Directories beside the groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_groups", "mon_data"];

/// Counts of a group since it was made. Sums over the caches of the last level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read from and written to memory; `None` where the machine does not count them.
    pub total: Option<u64>,
    /// Of those, from and to memory of the CPU's own node.
    pub local: Option<u64>,
    /// Bytes of the cache that hold its data at the moment.
    pub cache: Option<u64>,
}

/// The groups of the file system at `mount` by path: `batch`, `batch/mon_groups/job7`; the machine's own is `/`. A group has what
/// its threads have, without the groups in it. Empty where nothing is mounted there or nothing is monitored.
pub fn groups(mount: &Path) -> BTreeMap<String, Counts> {
    let mut groups = BTreeMap::new();
    let mut control = vec![String::new()];
    control.extend(directories(mount).into_iter().filter(|name| !NO_GROUPS.contains(&name.as_str())));
    for name in control {
        let dir = mount.join(&name);
        let Some(mut own) = counts(&dir) else { continue };
        for inner in directories(&dir.join("mon_groups")) {
            if groups.len() >= MOST_GROUPS {
                return groups;
            }
            let path = format!("{name}/mon_groups/{inner}");
            let Some(counts) = counts(&mount.join(path.trim_start_matches('/'))) else { continue };
            // A group that controls counts what the groups that monitor a part of it count.
            own = less(own, counts);
            groups.insert(path.trim_start_matches('/').to_string(), counts);
        }
        if groups.len() >= MOST_GROUPS {
            return groups;
        }
        groups.insert(if name.is_empty() { "/".into() } else { name }, own);
    }
    groups
}

/// Numbers of the first threads of a group.
pub fn tasks(mount: &Path, group: &str) -> Vec<u32> {
    let text = text(&mount.join(group.trim_start_matches('/')).join("tasks")).unwrap_or_default();
    text.lines().take(MOST_TASKS).filter_map(|line| line.trim().parse().ok()).collect()
}

fn less(all: Counts, part: Counts) -> Counts {
    let less = |all: Option<u64>, part: Option<u64>| Some(all?.saturating_sub(part.unwrap_or(0)));
    Counts {
        total: less(all.total, part.total),
        local: less(all.local, part.local),
        cache: less(all.cache, part.cache),
    }
}

fn counts(group: &Path) -> Option<Counts> {
    let data = group.join("mon_data");
    let mut counts = Counts::default();
    let mut any = false;
    for domain in directories(&data) {
        any = true;
        for (of, file) in [
            (&mut counts.total, "mbm_total_bytes"),
            (&mut counts.local, "mbm_local_bytes"),
            (&mut counts.cache, "llc_occupancy"),
        ] {
            // "Unavailable" or "Error" stands where nothing was counted.
            let read = text(&data.join(&domain).join(file)).and_then(|text| text.trim().parse::<u64>().ok());
            if let Some(n) = read {
                *of = Some(of.unwrap_or(0).saturating_add(n));
            }
        }
    }
    any.then_some(counts)
}

/// Names of the directories in one, sorted.
fn directories(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .take(MOST_GROUPS)
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MOST_BYTES as u64).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
    }

    #[test]
    fn a_group_has_what_its_own_threads_have() {
        let root = tempfile::tempdir().expect("a directory");
        write(
            root.path(),
            &[
                ("info/L3_MON/num_rmids", "256\n"),
                ("mon_data/mon_L3_00/mbm_total_bytes", "1000\n"),
                ("mon_data/mon_L3_00/mbm_local_bytes", "600\n"),
                ("mon_data/mon_L3_00/llc_occupancy", "64\n"),
                ("mon_data/mon_L3_01/mbm_total_bytes", "500\n"),
                ("mon_data/mon_L3_01/mbm_local_bytes", "Unavailable\n"),
                ("mon_data/mon_L3_01/llc_occupancy", "Error\n"),
                ("mon_groups/pod7/mon_data/mon_L3_00/mbm_total_bytes", "300\n"),
                ("mon_groups/pod7/tasks", "17\n18\n"),
                ("batch/mon_data/mon_L3_00/mbm_total_bytes", "40\n"),
                ("batch/schemata", "L3:0=f\n"),
                ("empty/schemata", "L3:0=f\n"),
            ],
        );
        let total = |total| Counts { total: Some(total), ..Counts::default() };
        let expected = [
            ("/".to_string(), Counts { total: Some(1200), local: Some(600), cache: Some(64) }),
            ("batch".to_string(), total(40)),
            ("mon_groups/pod7".to_string(), total(300)),
        ];
        assert_eq!(groups(root.path()), BTreeMap::from(expected));
        assert_eq!(tasks(root.path(), "mon_groups/pod7"), [17, 18]);
        assert_eq!(tasks(root.path(), "/"), [0u32; 0]);
    }

    #[test]
    fn without_the_file_system_there_are_no_groups() {
        assert!(groups(Path::new("/nonexistent")).is_empty());
    }
}

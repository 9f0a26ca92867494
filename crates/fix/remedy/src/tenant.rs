//! Settings of control groups that protect a tenant from another, without a restart of either.

use std::path::{Path, PathBuf};

use ncpu_machine::limits::Mounts;
use ncpu_machine::tenant::Tenant;
use ncpu_schema::Loss;

use crate::fix::{Remedy, lifted};

/// A hierarchy of control groups that has weights and limits of CPU time.
struct Hierarchy {
    mount: PathBuf,
    unified: bool,
}

/// The hierarchy that CPU time is divided in: that of version 1 where there is one.
fn hierarchy(root: &Path) -> Option<Hierarchy> {
    let text = std::fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default();
    let mounts = Mounts::parse(&text);
    let (dir, unified) = match mounts.by_controller.get("cpu") {
        Some(dir) => (dir, false),
        None => (mounts.unified.as_ref()?, true),
    };
    Some(Hierarchy { mount: root.join(dir), unified })
}

impl Hierarchy {
    fn group(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    /// The file of a group's weight, and its value.
    fn weight(&self, path: &str) -> Option<(PathBuf, u64)> {
        let file = self.group(path).join(if self.unified { "cpu.weight" } else { "cpu.shares" });
        let value = number(&file)?;
        Some((file, value))
    }

    /// Least and most that a weight can be.
    fn weights(&self) -> (u64, u64) {
        if self.unified { (1, 10_000) } else { (2, 262_144) }
    }
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Below the deepest group that holds both: the groups in which the first and the second lie. `None` where one holds the other, whose
/// weights say nothing of each other.
fn apart<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let mut end = 0;
    let next = |path: &str, from: usize| path[from + 1..].find('/').map_or(path.len(), |at| from + 1 + at);
    loop {
        if one.len() <= end + 1 || other.len() <= end + 1 {
            return None;
        }
        let (to, of_other) = (next(one, end), next(other, end));
        if one[end..to] != other[end..of_other] {
            return Some((&one[..to], &other[..of_other]));
        }
        end = to;
    }
}

/// Settings that may give a tenant back what it loses by a cause, and because of another tenant where there is one.
pub fn settings(root: &Path, victim: &Tenant, culprit: Option<&Tenant>, cause: Loss) -> Vec<Remedy> {
    let Some(hierarchy) = hierarchy(root) else { return Vec::new() };
    let mut out = Vec::new();
    let mut add = |name: String, why: &str, file: PathBuf, value: String| {
        let mut remedy = lifted("", why, file, value);
        remedy.name = name;
        out.push(remedy);
    };
    match (cause, culprit) {
        (Loss::RunQueue, Some(culprit)) => {
            let Some((ours, theirs)) = apart(&victim.cgroup, &culprit.cgroup) else { return out };
            let (least, most) = hierarchy.weights();
            let (own, other) = (hierarchy.weight(ours), hierarchy.weight(theirs));
            if let Some((file, weight)) = other {
                for part in [4, 16] {
                    let lower = (weight / part).max(least);
                    if lower < weight {
                        let name = format!("weight of {theirs} {weight} to {lower}");
                        add(
                            name,
                            "less of the CPUs for the neighbour where both want them",
                            file.clone(),
                            lower.to_string(),
                        );
                    }
                }
            }
            if let Some((file, weight)) = own {
                let higher = (weight * 8).min(most);
                if higher > weight {
                    let name = format!("weight of {ours} {weight} to {higher}");
                    add(name, "more of the CPUs where others want them", file, higher.to_string());
                }
            }
        }
        (Loss::Quota, _) => quota(&hierarchy, &victim.cgroup, &mut add),
        _ => {}
    }
    out
}

/// A burst up to the whole quota, and twice the limit, for the innermost group that has a limit.
fn quota(hierarchy: &Hierarchy, path: &str, add: &mut dyn FnMut(String, &str, PathBuf, String)) {
    let group = hierarchy.group(path);
    for dir in group.ancestors().take_while(|dir| dir.starts_with(&hierarchy.mount)) {
        let name = Path::new("/").join(dir.strip_prefix(&hierarchy.mount).unwrap_or(dir));
        let name = name.display();
        let (limit, burst) = match hierarchy.unified {
            true => ("cpu.max", "cpu.max.burst"),
            false => ("cpu.cfs_quota_us", "cpu.cfs_burst_us"),
        };
        let text = std::fs::read_to_string(dir.join(limit)).unwrap_or_default();
        let mut words = text.split_ascii_whitespace();
        let Some(quota) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let rest = words.next().map(|period| format!(" {period}")).unwrap_or_default();
        let why = "what is left of one period may be used in the next";
        if number(&dir.join(burst)).is_some_and(|saved| saved < quota) {
            add(format!("burst of {name} to {quota} us"), why, dir.join(burst), quota.to_string());
        }
        let more = 2 * quota;
        let why = "twice the CPU time";
        add(format!("limit of {name} {quota} to {more} us"), why, dir.join(limit), format!("{more}{rest}"));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::put;

    fn tenant(cgroup: &str) -> Tenant {
        Tenant { cgroup: cgroup.into(), ..Tenant::default() }
    }

    fn named(root: &Path, victim: &str, culprit: Option<&str>, cause: Loss) -> Vec<(String, String)> {
        let culprit = culprit.map(tenant);
        let found = settings(root, &tenant(victim), culprit.as_ref(), cause);
        let setting = |remedy: Remedy| {
            let (file, value) = &remedy.settings[0];
            (remedy.name, format!("{}={value}", file.strip_prefix(root).unwrap().display()))
        };
        found.into_iter().map(setting).collect()
    }

    #[test]
    fn weights_are_of_the_groups_below_what_both_share() {
        assert_eq!(apart("/a.slice/x", "/a.slice/y/z"), Some(("/a.slice/x", "/a.slice/y")));
        assert_eq!(apart("/a/x", "/b"), Some(("/a", "/b")));
        assert_eq!(apart("/a", "/ab"), Some(("/a", "/ab")));
        for (one, other) in
            [("/a", "/a/x"), ("/a/x", "/a"), ("/", "/a"), ("/a", "/a"), ("/", "/"), ("", "/a")]
        {
            assert_eq!(apart(one, other), None, "{one} {other}");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(named(root, "/a/x", Some("/b"), Loss::RunQueue).is_empty());
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\n");
        put(root, "cg/a/cpu.weight", "100\n");
        put(root, "cg/b/cpu.weight", "3\n");
        let expected = [
            ("weight of /b 3 to 1", "cg/b/cpu.weight=1"),
            ("weight of /a 100 to 800", "cg/a/cpu.weight=800"),
        ];
        let found = named(root, "/a/x", Some("/b"), Loss::RunQueue);
        assert_eq!(found[0], (expected[0].0.into(), expected[0].1.into()));
        assert_eq!(found.last().unwrap(), &(expected[1].0.to_string(), expected[1].1.to_string()));
        assert!(named(root, "/a/x", Some("/"), Loss::RunQueue).is_empty());
        assert!(named(root, "/a/x", Some("/b"), Loss::Network).is_empty());
        // Version 1 goes first, for it is what divides CPUs.
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\nc /v1 cgroup rw,cpu,cpuacct 0 0\n");
        put(root, "v1/b/cpu.shares", "1024\n");
        assert_eq!(named(root, "/a/x", Some("/b"), Loss::RunQueue)[0].1, "v1/b/cpu.shares=256");
    }

    #[test]
    fn a_limit_is_that_of_the_innermost_group_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\n");
        put(root, "cg/a/b/cpu.max", "max 100000\n");
        put(root, "cg/a/cpu.max", "50000 100000\n");
        put(root, "cg/a/cpu.max.burst", "0\n");
        let found = named(root, "/a/b", None, Loss::Quota);
        let expected = [
            ("burst of /a to 50000 us", "cg/a/cpu.max.burst=50000"),
            ("limit of /a 50000 to 100000 us", "cg/a/cpu.max=100000 100000"),
        ];
        assert_eq!(found, expected.map(|(name, setting)| (name.to_string(), setting.to_string())));
    }
}

//! The room that control groups have left for tasks and memory, and how often they had none: for an
//! observation that reports the limits its program reached.

use std::path::Path;

use super::files::{field, first};
use super::throttle::Hierarchy;
use crate::Result;

/// A limit of a group, and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file that sets it: `pids.max`, `memory.max`, `memory.high`, `memory.limit_in_bytes`.
    pub limit: &'static str,
    /// Its value; `None` is unlimited.
    pub max: Option<u64>,
    /// Current use: tasks, or bytes.
    pub used: u64,
    /// How often the limit was exceeded, since the group was made: forks that were refused, pages that had to
    /// be reclaimed first.
    pub refused: u64,
    /// Processes killed by the limit, since the group was made.
    pub killed: u64,
    /// Pages that were read again soon after the limit made the kernel drop them, since the group was made; 0
    /// without a limit.
    pub refaults: u64,
    /// The command that removes the limit.
    pub lift: String,
}

/// The hierarchies of the controllers that limit tasks and memory.
#[derive(Default)]
pub struct Rooms(Vec<Hierarchy>);

impl Rooms {
    /// Finds the hierarchies below a root.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn find(root: &Path) -> Result<Rooms> {
        let found = ["pids", "memory"].map(|controller| Hierarchy::find(root, controller));
        Ok(Rooms(found.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()))
    }

    /// The groups of a process, with the index of the hierarchy.
    pub fn groups_of(&self, pid: u32) -> Vec<(usize, String)> {
        self.0.iter().enumerate().filter_map(|(n, h)| Some((n, h.group_of(pid)?))).collect()
    }

    /// The limits of a group; empty if it no longer exists, or is the root of version 2.
    pub fn read(&self, hierarchy: usize, group: &str) -> Vec<Room> {
        self.0.get(hierarchy).map_or(Vec::new(), |h| {
            rooms(h.controller(), |name| h.text(group, name), |name| h.path(group, name), h.unified())
        })
    }
}

fn rooms(
    controller: &str,
    text: impl Fn(&str) -> Option<String>,
    path: impl Fn(&str) -> String,
    unified: bool,
) -> Vec<Room> {
    let number = |name: &str| first::<u64>(&text(name)?);
    // `max` is not a number. Version 1 uses the largest number of whole pages.
    let limit = |name: &str| number(name).filter(|n| *n < 1 << 62);
    let at = |events: &Option<String>, key: &str| events.as_deref().and_then(|e| field(e, key)).unwrap_or(0);
    let lift = |name: &str, none: &str| format!("echo {none} > {}", path(name));
    // Of the group and its descendants: in version 1 that is `total_`.
    let refaults = |max: Option<u64>| {
        let Some(stat) = max.and_then(|_| text("memory.stat")) else { return 0 };
        let of = |start: &str| -> u64 {
            let lines = stat.lines().filter_map(|line| line.strip_prefix(start)?.split_once(' '));
            lines.filter_map(|(_, n)| n.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
        };
        of("total_workingset_refault").max(of("workingset_refault"))
    };
    let mut out = Vec::new();
    if controller == "pids" {
        let Some(used) = number("pids.current") else { return out };
        let refused = at(&text("pids.events"), "max ");
        let (max, lift) = (limit("pids.max"), lift("pids.max", "max"));
        out.push(Room { limit: "pids.max", max, used, refused, killed: 0, refaults: 0, lift });
    } else if unified {
        if let Some(used) = number("memory.current") {
            let events = text("memory.events");
            for (name, key) in [("memory.max", "max "), ("memory.high", "high ")] {
                let killed = if name == "memory.max" { at(&events, "oom_kill ") } else { 0 };
                let (max, refused) = (limit(name), at(&events, key));
                let refaults = refaults(max);
                let lift = lift(name, "max");
                out.push(Room { limit: name, max, used, refused, killed, refaults, lift });
            }
        }
    } else if let Some(used) = number("memory.usage_in_bytes") {
        let max = limit("memory.limit_in_bytes");
        out.push(Room {
            limit: "memory.limit_in_bytes",
            max,
            used,
            refused: number("memory.failcnt").unwrap_or(0),
            killed: at(&text("memory.oom_control"), "oom_kill "),
            refaults: refaults(max),
            lift: lift("memory.limit_in_bytes", "-1"),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms_of(files: &[(&str, &str)], unified: bool) -> Vec<Room> {
        let text = |name: &str| files.iter().find(|f| f.0 == name).map(|f| f.1.to_owned());
        let of = |controller| rooms(controller, text, |name| format!("/sys/fs/cgroup/a/{name}"), unified);
        [of("pids"), of("memory")].concat()
    }

    #[test]
    fn limits_of_both_versions() {
        let v2 = rooms_of(
            &[
                ("pids.current", "97\n"),
                ("pids.max", "100\n"),
                ("pids.events", "max 3\n"),
                ("memory.current", "4096\n"),
                ("memory.max", "max\n"),
                ("memory.high", "8192\n"),
                ("memory.stat", "anon 4096\nworkingset_refault_anon 2\nworkingset_refault_file 40\n"),
                ("memory.events", "low 0\nhigh 7\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n"),
            ],
            true,
        );
        let rooms: Vec<_> = v2.iter().map(|r| (r.limit, r.max, r.used, r.refused, r.killed)).collect();
        assert_eq!(
            rooms,
            [
                ("pids.max", Some(100), 97, 3, 0),
                ("memory.max", None, 4096, 2, 1),
                ("memory.high", Some(8192), 4096, 7, 0)
            ]
        );
        // Without a limit no page is dropped for it.
        assert_eq!(v2.iter().map(|r| r.refaults).collect::<Vec<_>>(), [0, 0, 42]);
        assert_eq!(v2[0].lift, "echo max > /sys/fs/cgroup/a/pids.max");
        let v1 = rooms_of(
            &[
                ("memory.usage_in_bytes", "4096"),
                ("memory.limit_in_bytes", "9223372036854771712"),
                ("memory.failcnt", "5"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2"),
            ],
            false,
        );
        assert_eq!(v1.len(), 1);
        assert_eq!((v1[0].max, v1[0].refused, v1[0].killed), (None, 5, 2));
        let limited = [
            ("memory.usage_in_bytes", "4096"),
            ("memory.limit_in_bytes", "8192"),
            ("memory.stat", "workingset_refault_file 3\ntotal_workingset_refault_file 7\n"),
        ];
        assert_eq!(rooms_of(&limited, false)[0].refaults, 7);
        assert!(rooms_of(&[], true).is_empty() && rooms_of(&[("pids.current", "x")], true).is_empty());
    }

    #[test]
    fn groups_of_a_gathered_tree() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| ncpu_machine_trees::put(root.path(), path, text);
        put("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
        put("proc/7/cgroup", "0::/a/b\n");
        put("sys/fs/cgroup/a/b/pids.current", "3\n");
        put("sys/fs/cgroup/a/b/pids.max", "4\n");
        let rooms = Rooms::find(root.path()).unwrap();
        assert_eq!(rooms.groups_of(7), [(0, "/a/b".to_owned()), (1, "/a/b".to_owned())]);
        assert_eq!(rooms.groups_of(8), []);
        let read = rooms.read(0, "/a/b");
        assert_eq!((read[0].used, read[0].max), (3, Some(4)));
        assert!(rooms.read(0, "/gone").is_empty() && rooms.read(9, "/a/b").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(a in "(max|oom_kill|-?[0-9]{0,25})?\\PC*") {
            for unified in [false, true] {
                for controller in ["pids", "memory"] {
                    let _ = rooms(controller, |_| Some(a.clone()), |n| n.into(), unified);
                }
            }
        }
    }
}

//! Whether the program's control groups and processes reached their limits on tasks, memory and open files,
//! or came near to.
//!
//! Costs two small files for each group and a `stat` for each of a few processes, an interval.

use std::collections::HashMap;
use std::path::Path;

use ncpu_machine::limits::parse_rlimits;
use ncpu_machine::limits::room::{self, Rooms};
use ncpu_schema::limits_met;
use ncpu_table::Table;

use super::throttle::{Looks, chain};
use crate::bpf_support::namespace::process_dir;
use crate::program::Target;

/// Processes whose open files are counted.
const PROCESSES: usize = 64;
/// Processes whose open files are remembered, and groups; of processes that are more only those near their limit.
const MAX_PROCESSES: usize = 4096;
const MAX_GROUPS: usize = 4096;

/// The limits of the program's groups and processes, and their highest use.
#[derive(Default)]
pub(crate) struct Room {
    rooms: Rooms,
    looks: Looks,
    /// By hierarchy and group: limits as they were met first, and the most that was used.
    groups: HashMap<(usize, String), Vec<Seen>>,
    /// By process: open files allowed, and the most there were.
    files: HashMap<u32, (u64, u64)>,
}

struct Seen {
    first: room::Room,
    last: room::Room,
    most: u64,
}

impl Room {
    /// Begins with the process that is observed, whose groups are known before it runs.
    pub fn begin(target: &Target) -> Room {
        let mut out = Room { rooms: Rooms::find(Path::new("/")).unwrap_or_default(), ..Room::default() };
        if let Target::Tree(pid) = target {
            out.met(std::iter::once(*pid));
        }
        out
    }

    fn met(&mut self, living: impl Iterator<Item = u32>) {
        for pid in self.looks.due(living) {
            for (hierarchy, group) in self.rooms.groups_of(pid) {
                for group in chain(&group) {
                    let key = (hierarchy, group.to_owned());
                    if !self.groups.contains_key(&key) && self.groups.len() < MAX_GROUPS {
                        let seen = |r: room::Room| Seen { most: r.used, last: r.clone(), first: r };
                        let read = self.rooms.read(hierarchy, group);
                        self.groups.insert(key, read.into_iter().map(seen).collect());
                    }
                }
            }
        }
    }

    /// Looks at the groups and the processes that live.
    pub fn look(&mut self, living: &[u32]) {
        self.met(living.iter().copied());
        for ((hierarchy, group), seen) in &mut self.groups {
            for now in self.rooms.read(*hierarchy, group) {
                if let Some(seen) = seen.iter_mut().find(|s| s.first.limit == now.limit) {
                    seen.most = seen.most.max(now.used);
                    seen.last = now;
                }
            }
        }
        if self.files.len() > MAX_PROCESSES {
            self.files.retain(|_, (allowed, most)| near(*most, *allowed));
        }
        for &pid in living.iter().take(PROCESSES) {
            // The size of the directory is the number of open files since Linux 6.2; 0 before.
            let Ok(open) = std::fs::metadata(process_dir(pid).join("fd")).map(|m| m.len()) else { continue };
            if open == 0 {
                continue;
            }
            // A process may change its limit before it opens many.
            if self.files.get(&pid).is_none_or(|(_, most)| open > *most)
                && let Some(allowed) = open_files(pid)
            {
                self.files.insert(pid, (allowed, open));
            }
        }
    }

    /// From now on counts what happens from now on.
    pub fn turn(&mut self) {
        // Groups that are gone.
        self.groups.retain(|(hierarchy, group), _| !self.rooms.read(*hierarchy, group).is_empty());
        for seen in self.groups.values_mut().flatten() {
            (seen.first, seen.most) = (seen.last.clone(), seen.last.used);
        }
        self.files.clear();
    }

    /// The limits that were reached, or nine tenths used.
    pub fn table(&self) -> Table {
        let mut out = limits_met::Rows::new();
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(key, _)| *key);
        for ((_, group), seen) in groups {
            for Seen { first, last, most } in seen {
                let refused = last.refused.saturating_sub(first.refused);
                let killed = last.killed.saturating_sub(first.killed);
                let refaults = last.refaults.saturating_sub(first.refaults);
                // A group's memory is usually full of page cache, so only refused requests are reported.
                let full = first.limit == "pids.max" && last.max.is_some_and(|max| near(*most, max));
                if refused + killed > 0 || full {
                    out.push(limits_met::Row {
                        limit: first.limit.into(),
                        of: group.into(),
                        allowed: last.max,
                        used: Some(*most),
                        refused: Some(refused),
                        killed: Some(killed),
                        refaults: Some(refaults),
                        lift: (&last.lift).into(),
                    });
                }
            }
        }
        let mut files: Vec<_> =
            self.files.iter().filter(|(_, (allowed, most))| near(*most, *allowed)).collect();
        files.sort_unstable();
        for (pid, (allowed, most)) in files {
            let lift = format!("prlimit --pid {pid} --nofile={}", allowed.saturating_mul(4));
            out.push(limits_met::Row {
                limit: "RLIMIT_NOFILE".into(),
                of: format!("process {pid}").into(),
                allowed: Some(*allowed),
                used: Some(*most),
                refused: Some(0),
                killed: Some(0),
                refaults: None,
                lift: lift.into(),
            });
        }
        out.finish()
    }
}

/// Whether nine tenths are used.
fn near(used: u64, allowed: u64) -> bool {
    allowed > 0 && used as f64 >= 0.9 * allowed as f64
}

/// The soft limit of a process's open files.
fn open_files(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(process_dir(pid).join("limits")).ok()?;
    parse_rlimits(&text).into_iter().find(|(name, _)| *name == "Max open files")?.1.0
}

//! CPU bandwidth of control groups (`cpu.max`, `cpu.cfs_quota_us`) and how often it was used up: for an
//! observation that reports whether its threads were throttled.

use std::path::Path;

use super::files::{Files, field, first};
use super::mounts::Mounts;
use crate::Result;
use crate::root::Dir;

/// A group's `cpu.stat` since the group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Periods with runnable threads.
    pub periods: u64,
    /// Periods of these in which the quota was used up.
    pub throttled: u64,
    /// Microseconds for which run queues were throttled, summed over CPUs.
    pub throttled_us: u64,
}

impl Bandwidth {
    /// Parses text like `cpu.stat` of either version.
    pub fn parse(text: &str) -> Bandwidth {
        let n = |key: &str| field(text, key);
        Bandwidth {
            periods: n("nr_periods ").unwrap_or(0),
            throttled: n("nr_throttled ").unwrap_or(0),
            throttled_us: n("throttled_usec ").or(n("throttled_time ").map(|ns| ns / 1000)).unwrap_or(0),
        }
    }

    /// The difference since `before`.
    pub fn since(self, before: Bandwidth) -> Bandwidth {
        Bandwidth {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            throttled_us: self.throttled_us.saturating_sub(before.throttled_us),
        }
    }
}

/// Thousandths of a CPU that a quota allows, and its period in µs.
pub(super) type Quota = (Option<u64>, u64);

fn milli(quota: u64, period: u64) -> Option<u64> {
    Some((u128::from(quota) * 1000 / u128::from(period)).min(u64::MAX.into()) as u64)
}

/// Parses text like `cpu.max`: `max 100000` or `50000 100000`.
pub(super) fn cpu_max(text: &str) -> Option<Quota> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next().map_or(Some(100_000), |w| w.parse().ok())?);
    if period == 0 {
        return None;
    }
    match quota {
        "max" => Some((None, period)),
        n => Some((milli(n.parse().ok()?, period), period)),
    }
}

/// Parses texts like `cpu.cfs_quota_us`, -1 for unlimited, and `cpu.cfs_period_us`.
pub(super) fn cpu_quota(quota: &str, period: &str) -> Option<Quota> {
    let period: u64 = first(period).filter(|&p| p > 0)?;
    let quota: i64 = first(quota)?;
    Some((u64::try_from(quota).ok().and_then(|q| milli(q, period)), period))
}

/// The hierarchy of a controller.
pub struct Hierarchy {
    dir: Dir,
    mount: String,
    controller: &'static str,
    unified: bool,
}

impl Hierarchy {
    /// Finds the hierarchy of a controller (`cpu`, `memory`, `pids`) below a root; `None` if no hierarchy has
    /// it.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn find(root: &Path, controller: &'static str) -> Result<Option<Hierarchy>> {
        let dir = Dir::root(root)?;
        let files = Files::new(&dir, false);
        let mut mounts = Mounts::read(&files);
        let (mount, unified) = match mounts.by_controller.remove(controller) {
            Some(mount) => (mount, false),
            None => {
                let Some(mount) = mounts.unified else { return Ok(None) };
                let list = files.text(&format!("{mount}/cgroup.controllers")).unwrap_or_default();
                if !list.split_ascii_whitespace().any(|c| c == controller) {
                    return Ok(None);
                }
                (mount, true)
            }
        };
        Ok(Some(Hierarchy { dir, mount, controller, unified }))
    }

    /// The group of a process; `None` if it has ended.
    pub fn group_of(&self, pid: u32) -> Option<String> {
        let files = Files::new(&self.dir, false);
        let text = files.fetch(&format!("proc/{pid}/cgroup")).ok()?;
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let ours = if self.unified {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|c| c == self.controller)
            };
            ours.then(|| path.to_string())
        })
    }

    /// A group's limit in thousandths of a CPU, and its effect; `None` if the group no longer exists or has
    /// no such files (the root of version 2).
    pub fn read(&self, group: &str) -> Option<(Option<u64>, Bandwidth)> {
        let text = |name: &str| self.text(group, name);
        let quota = if self.unified {
            cpu_max(&text("cpu.max")?)?
        } else {
            cpu_quota(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?)?
        };
        Some((quota.0, Bandwidth::parse(&text("cpu.stat")?)))
    }

    /// Microseconds of CPU time that the processes of a group and its descendants have used since it was
    /// made; `None` if it no longer exists, or without accounting.
    pub fn usage(&self, group: &str) -> Option<u64> {
        match self.unified {
            true => field(&self.text(group, "cpu.stat")?, "usage_usec "),
            false => self.text(group, "cpuacct.usage").and_then(|text| first(&text)).map(|ns: u64| ns / 1000),
        }
    }

    /// A group's share of CPU time relative to its siblings: the file that contains it, and its number;
    /// `None` for the root.
    pub fn weight(&self, group: &str) -> Option<(String, u64)> {
        let name = if self.unified { "cpu.weight" } else { "cpu.shares" };
        let weight = self.text(group, name).and_then(|text| first(&text))?;
        (group != "/").then(|| (self.path(group, name), weight))
    }

    /// The weight of a thread in the parent group itself, relative to a group's weight, at nice 0.
    pub fn thread_weight(&self) -> u64 {
        if self.unified { 100 } else { 1024 }
    }

    /// The CPUs that a group's cpuset allows, as a list, and the file that sets them.
    pub fn cpus(&self, group: &str) -> Option<(String, String)> {
        let effective = if self.unified { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        let text = self.text(group, effective).or_else(|| self.text(group, "cpuset.cpus"))?;
        Some((text.trim().to_string(), self.path(group, "cpuset.cpus")))
    }

    /// The text of a group's file.
    pub(super) fn text(&self, group: &str, name: &str) -> Option<String> {
        let files = Files::new(&self.dir, false);
        files.fetch(&format!("{}{}/{name}", self.mount, group.trim_end_matches('/'))).ok()
    }

    /// The path of a group's file.
    pub(super) fn path(&self, group: &str, name: &str) -> String {
        format!("/{}{}/{name}", self.mount, group.trim_end_matches('/'))
    }

    /// The controller.
    pub(super) fn controller(&self) -> &'static str {
        self.controller
    }

    /// Whether it has version 2.
    pub(super) fn unified(&self) -> bool {
        self.unified
    }

    /// The name of the limit.
    pub fn limit(&self) -> &'static str {
        if self.unified { "cpu.max" } else { "cpu.cfs_quota_us" }
    }

    /// The command that removes a group's limit.
    pub fn remedy(&self, group: &str) -> String {
        let none = if self.unified { "max" } else { "-1" };
        format!("echo {none} > {}", crate::shell_word(&self.path(group, self.limit())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(cpu_max("50000 100000\n"), Some((Some(500), 100_000)));
        assert_eq!(cpu_max("max 100000\n"), Some((None, 100_000)));
        assert_eq!(cpu_max("50000 0\n"), None);
        assert_eq!(cpu_quota("-1\n", "100000\n"), Some((None, 100_000)));
        assert_eq!(cpu_quota("250000\n", "100000\n"), Some((Some(2500), 100_000)));
        let v1 = Bandwidth::parse("nr_periods 10\nnr_throttled 4\nthrottled_time 2500000\n");
        let v2 = Bandwidth::parse("usage_usec 1\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500\n");
        assert_eq!(v1, v2);
        assert_eq!(v1.since(v2), Bandwidth::default());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(a in "(max|-?[0-9]{0,20})?\\PC*", b in "[0-9]{0,20}\\PC*") {
            let _ = (cpu_max(&format!("{a} {b}")), cpu_quota(&a, &b), Bandwidth::parse(&format!("nr_periods {a}")));
        }
    }
}

//! Limits of control groups, version 1, 2 and both at once.
//!
//! A group is bound by its own limit and by those of all groups above it. The tightest applies, and a row
//! with a looser limit says so.

use std::collections::BTreeMap;

use super::files::{Files, field};
use super::mounts::Mounts;
use super::throttle::{Bandwidth, cpu_max, cpu_quota};
use super::{Area, Found, Knob, Reading, Scope, Size, Unit};
use crate::CpuSet;

/// At most this many groups are walked; a line reports that there were more.
const MOST: usize = 200_000;
/// The kernel allows any depth; a loop of symbolic links in a gathered tree would be endless.
const DEEPEST: usize = 64;

/// A control group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Its directory below the root.
    pub dir: String,
    /// Its path below the mount.
    pub path: String,
}

/// The groups of cgroup v2, except the root: the root's pressure is the machine's.
pub(super) fn unified(files: &Files<'_>) -> Vec<Group> {
    let Some(mount) = Mounts::read(files).unified else { return Vec::new() };
    let mut out = walk(files, &mount).0;
    out.retain(|g| g.path != "/");
    out
}

/// All groups below a mount, each before its children; and whether the list is complete.
fn walk(files: &Files<'_>, mount: &str) -> (Vec<Group>, bool) {
    let mut out = vec![Group { dir: mount.into(), path: "/".into() }];
    let mut at = 0;
    while at < out.len() {
        let Group { dir, path } = out[at].clone();
        at += 1;
        if path.matches('/').count() > DEEPEST {
            continue;
        }
        let Some(open) = files.dir.dir(&dir) else { continue };
        let mut names = open.subdirectories();
        names.sort_unstable();
        for name in names {
            if out.len() >= MOST {
                return (out, false);
            }
            let path = format!("{}/{name}", path.trim_end_matches('/'));
            out.push(Group { dir: format!("{dir}/{name}"), path });
        }
    }
    (out, true)
}

/// A limit of a group and related data.
struct Limit {
    name: &'static str,
    unit: Unit,
    value: Option<u64>,
    used: Option<u64>,
    peak: Option<u64>,
    hits: Option<u64>,
    enough: Option<u64>,
    note: Option<String>,
    knob: Knob,
}

pub(super) fn read(files: &Files<'_>, size: Size, found: &mut Found) {
    let mounts = Mounts::read(files);
    if let Some(mount) = &mounts.unified {
        each(files, mount, found, |g| {
            let mut out = pids(files, g);
            out.extend(memory2(files, g));
            out.extend(cpu2(files, g, size));
            out.extend(cpuset(files, g, size, "cpuset.cpus.effective"));
            out
        });
    }
    for (controller, mount) in &mounts.by_controller {
        match controller.as_str() {
            "pids" => each(files, mount, found, |g| pids(files, g)),
            "memory" => each(files, mount, found, |g| memory1(files, g)),
            "cpu" => {
                let accounts = mounts.by_controller.get("cpuacct");
                each(files, mount, found, |g| cpu1(files, g, size, accounts));
            }
            "cpuset" => each(files, mount, found, |g| cpuset(files, g, size, "cpuset.effective_cpus")),
            _ => {}
        }
    }
}

/// Reads every group of a hierarchy and notes for each limit which limit above it is tighter.
fn each(files: &Files<'_>, mount: &str, found: &mut Found, limits: impl Fn(&Group) -> Vec<Limit>) {
    let (groups, all) = walk(files, mount);
    if !all {
        found.unread.push(format!("control groups beyond the first {MOST} of /{mount}"));
    }
    // limit's name and group -> the tightest limit there, and its group
    let mut tightest: BTreeMap<(&'static str, String), (u64, String)> = BTreeMap::new();
    for group in groups {
        let above = group.path.rsplit_once('/').map_or("/", |(up, _)| if up.is_empty() { "/" } else { up });
        for limit in limits(&group) {
            let inherited = (group.path != "/")
                .then(|| tightest.get(&(limit.name, above.to_string())).cloned())
                .flatten();
            let own = limit.value.map(|v| (v, group.path.clone()));
            let bound = [inherited.clone(), own].into_iter().flatten().min_by_key(|t| t.0);
            if let Some(bound) = bound {
                tightest.insert((limit.name, group.path.clone()), bound);
            }
            if limit.value.is_none() {
                continue;
            }
            let overruled = inherited
                .filter(|i| limit.value.is_some_and(|v| i.0 < v))
                .map(|(v, by)| format!("{by} above allows only {}", amount(v, limit.unit)));
            let note = [overruled, limit.note].into_iter().flatten().collect::<Vec<_>>().join("; ");
            let mut reading = Reading::new(limit.name, Area::Cgroups, limit.unit, limit.value, limit.knob)
                .scope(Scope::Cgroup(group.path.clone()))
                .used(limit.used)
                .peak(limit.peak)
                .hits(limit.hits)
                .note(Some(note).filter(|n| !n.is_empty()));
            reading.enough = limit.enough;
            found.readings.push(reading);
        }
    }
}

fn amount(n: u64, unit: Unit) -> String {
    match unit {
        Unit::MilliCpus => format!("{} CPUs", n as f64 / 1000.0),
        Unit::Bytes if n >= 1 << 20 => format!("{} MiB", n >> 20),
        _ => n.to_string(),
    }
}

/// A file's number; `max` and v1's largest page-aligned number are unlimited. The outer `None`: the file does
/// not exist.
fn maximum(files: &Files<'_>, path: &str) -> Option<Option<u64>> {
    const UNLIMITED_V1: u64 = (i64::MAX as u64) & !0xffff;
    let text = files.text(path)?;
    match text.trim() {
        "max" => Some(None),
        n => n.parse::<u64>().ok().map(|n| (n < UNLIMITED_V1).then_some(n)),
    }
}

fn pids(files: &Files<'_>, g: &Group) -> Vec<Limit> {
    let at = |name: &str| format!("{}/{name}", g.dir);
    let Some(value) = maximum(files, &at("pids.max")) else { return Vec::new() };
    let limited = value.is_some();
    let number = |name: &str| limited.then(|| files.number(&at(name))).flatten();
    let events = if limited { files.text(&at("pids.events")) } else { None };
    vec![Limit {
        name: "pids.max",
        unit: Unit::Count,
        value,
        used: number("pids.current"),
        peak: number("pids.peak"),
        hits: events.and_then(|t| field(&t, "max ")),
        enough: None,
        note: None,
        knob: Knob::File(format!("/{}", at("pids.max"))),
    }]
}

fn memory2(files: &Files<'_>, g: &Group) -> Vec<Limit> {
    let at = |name: &str| format!("{}/{name}", g.dir);
    let mut out = Vec::new();
    let events = files.text(&at("memory.events")).unwrap_or_default();
    for (name, used, peak, event) in [
        ("memory.max", "memory.current", "memory.peak", "max "),
        ("memory.high", "memory.current", "memory.peak", "high "),
        ("memory.swap.max", "memory.swap.current", "memory.swap.peak", ""),
    ] {
        let Some(value) = maximum(files, &at(name)) else { continue };
        let limited = value.is_some();
        let number = |name: &str| limited.then(|| files.number(&at(name))).flatten();
        let mut note = Vec::new();
        if limited && name != "memory.swap.max" {
            note.extend(cache(files, g, "inactive_file "));
            for (event, word) in [("oom ", "out of memory"), ("oom_kill ", "processes killed")] {
                note.extend(field(&events, event).filter(|&n| n > 0).map(|n| format!("{word}: {n}")));
            }
        }
        out.push(Limit {
            name,
            unit: Unit::Bytes,
            value,
            used: number(used),
            peak: number(peak),
            hits: if event.is_empty() { None } else { field(&events, event) },
            enough: None,
            note: Some(note.join("; ")).filter(|n| !n.is_empty()),
            knob: Knob::File(format!("/{}", at(name))),
        });
    }
    out
}

/// The part of a group's memory that is file cache, which can be reclaimed without harm.
fn cache(files: &Files<'_>, g: &Group, key: &str) -> Option<String> {
    let stat = files.text(&format!("{}/memory.stat", g.dir))?;
    let bytes = field(&stat, key).filter(|&n| n >= 1 << 20)?;
    Some(format!("{} MiB of it idle file cache", bytes >> 20))
}

fn memory1(files: &Files<'_>, g: &Group) -> Vec<Limit> {
    let at = |name: &str| format!("{}/{name}", g.dir);
    let mut out = Vec::new();
    for (name, used, peak, fails) in [
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt"),
        (
            "memory.memsw.limit_in_bytes",
            "memory.memsw.usage_in_bytes",
            "memory.memsw.max_usage_in_bytes",
            "memory.memsw.failcnt",
        ),
    ] {
        let Some(value) = maximum(files, &at(name)) else { continue };
        let limited = value.is_some();
        let number = |name: &str| limited.then(|| files.number(&at(name))).flatten();
        let mut note = Vec::new();
        if limited {
            note.extend(cache(files, g, "total_inactive_file "));
            let kills = files.text(&at("memory.oom_control")).and_then(|t| field(&t, "oom_kill "));
            note.extend(kills.filter(|&n| n > 0).map(|n| format!("processes killed: {n}")));
        }
        out.push(Limit {
            name,
            unit: Unit::Bytes,
            value,
            used: number(used),
            peak: number(peak),
            hits: number(fails),
            enough: None,
            note: Some(note.join("; ")).filter(|n| !n.is_empty()),
            knob: Knob::File(format!("/{}", at(name))),
        });
    }
    out
}

fn cpu2(files: &Files<'_>, g: &Group, size: Size) -> Vec<Limit> {
    let path = format!("{}/cpu.max", g.dir);
    let Some((quota, period)) = files.text(&path).and_then(|t| cpu_max(&t)) else { return Vec::new() };
    let stat = files.text(&format!("{}/cpu.stat", g.dir)).unwrap_or_default();
    let used = field(&stat, "usage_usec ");
    vec![bandwidth("cpu.max", quota, period, &stat, used, Knob::CpuMax(format!("/{path}"), period), size)]
}

fn cpu1(files: &Files<'_>, g: &Group, size: Size, accounts: Option<&String>) -> Vec<Limit> {
    let text = |name: &str| files.text(&format!("{}/{name}", g.dir));
    let (Some(quota), Some(period)) = (text("cpu.cfs_quota_us"), text("cpu.cfs_period_us")) else {
        return Vec::new();
    };
    let Some((quota, period)) = cpu_quota(&quota, &period) else { return Vec::new() };
    let stat = if quota.is_some() { text("cpu.stat").unwrap_or_default() } else { String::new() };
    let used = accounts
        .filter(|_| quota.is_some())
        .and_then(|mount| files.number(&format!("{mount}{}/cpuacct.usage", g.path)))
        .map(|ns| ns / 1000);
    let knob = Knob::CpuQuota(format!("/{}/cpu.cfs_quota_us", g.dir), period);
    vec![bandwidth("cpu.cfs_quota_us", quota, period, &stat, used, knob, size)]
}

/// CPU bandwidth: how often it was used up, and the limit that would have been enough: run time plus
/// throttled time, over the periods with runnable threads.
fn bandwidth(
    name: &'static str,
    quota: Option<u64>,
    period: u64,
    stat: &str,
    used_us: Option<u64>,
    knob: Knob,
    size: Size,
) -> Limit {
    let b = Bandwidth::parse(stat);
    // Without accounting of run time: at least the quota, in each period that used it up.
    let used_us =
        used_us.or(quota.map(|milli| (milli as f64 / 1000.0 * period as f64 * b.throttled as f64) as u64));
    let enough = used_us.filter(|_| quota.is_some() && b.throttled > 0 && b.periods > 0).map(|used| {
        let wanted = (used as f64 + b.throttled_us as f64) / (b.periods as f64 * period as f64);
        ((wanted * 1000.0).ceil() as u64).min(size.cpus.saturating_mul(1000))
    });
    let note = (b.throttled > 0).then(|| {
        format!(
            "throttled in {} of {} periods, {:.1} CPU-s held back",
            b.throttled,
            b.periods,
            b.throttled_us as f64 / 1e6
        )
    });
    Limit {
        name,
        unit: Unit::MilliCpus,
        value: quota,
        used: None,
        peak: None,
        hits: quota.map(|_| b.throttled),
        enough,
        note,
        knob,
    }
}

/// The CPUs that a group may use, if these are not all.
fn cpuset(files: &Files<'_>, g: &Group, size: Size, effective: &str) -> Vec<Limit> {
    let path = format!("{}/cpuset.cpus", g.dir);
    let Some(own) = files.text(&path).filter(|t| !t.trim().is_empty()) else { return Vec::new() };
    let list = files.text(&format!("{}/{effective}", g.dir)).unwrap_or(own);
    let Ok(cpus) = CpuSet::parse_list(&list) else { return Vec::new() };
    let n = cpus.len() as u64;
    if n == 0 || n >= size.cpus {
        return Vec::new();
    }
    vec![Limit {
        name: "cpuset.cpus",
        unit: Unit::Count,
        value: Some(n),
        used: None,
        peak: None,
        hits: None,
        enough: None,
        note: Some(format!("CPUs {cpus}")),
        knob: Knob::Fixed,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_hybrid_machine() {
        let text = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                    cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n";
        let m = Mounts::parse(text);
        assert_eq!(m.unified.as_deref(), Some("sys/fs/cgroup/unified"));
        assert_eq!(m.by_controller["cpuacct"], "sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(m.by_controller["cpu"], m.by_controller["cpuacct"]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*( cgroup2? [a-z,]{0,9}\n)?\\PC*", quota: u64, period: u64) {
            let _ = Mounts::parse(&text);
            let size = Size { cpus: 2, memory: 1, nodes: 1, page: 4096 };
            let stat = format!("nr_periods {period}\nnr_throttled {quota}\nthrottled_usec {text}");
            let l = bandwidth("x", Some(quota), period, &stat, Some(quota), Knob::Fixed, size);
            assert!(l.enough.is_none_or(|e| e <= 2000));
        }
    }
}

//! The CPUs and nodes that a process may use: its affinity on the running machine, its cpuset in a gathered
//! tree.

use crate::process::Fields;
use crate::root::Dir;
use crate::{CpuSet, Result};

/// Allowed CPUs and nodes; `None` if nothing limits them.
pub(crate) type Allowed = (Option<CpuSet>, Option<CpuSet>);

/// `Cpus_allowed_list` and `Mems_allowed_list` of `/proc/self/status`: affinity and cpuset together.
pub(crate) fn of_this_process(root: &Dir) -> Result<Allowed> {
    let mut buf = Vec::new();
    let Some(status) = root.read("proc/self/status", &mut buf) else { return Ok((None, None)) };
    let status = Fields(status.as_bytes());
    let list = |key: &str| status.get(key).and_then(|list| CpuSet::parse_list(list).ok());
    Ok((list("Cpus_allowed_list"), list("Mems_allowed_list")))
}

/// The cpuset of the process that gathered the tree. `/proc/mounts` names the mount points of cpusets,
/// `/proc/self/cpuset` (or `cgroup`) the cpuset, and its files contain the limits.
pub(crate) fn of_gathered_tree(root: &Dir) -> Result<Allowed> {
    let (Some((mount, style)), Some(name)) = (cpuset_mount(root), cpuset_name(root)) else {
        return Ok((None, None));
    };
    let mut buf = Vec::new();
    let mut limit = |what: &str| {
        let file = match style {
            Style::Cgroup2 => format!("cpuset.{what}.effective"),
            Style::Cgroup1 => format!("cpuset.{what}"),
            Style::Cpuset => what.to_string(),
        };
        root.list(&format!("{mount}{name}/{file}"), &mut buf)
    };
    Ok((limit("cpus")?, limit("mems")?))
}

enum Style {
    Cgroup2,
    Cgroup1,
    /// The old cpuset file system, or cgroup with `noprefix`, whose files are called `cpus` and `mems`.
    Cpuset,
}

fn cpuset_mount(root: &Dir) -> Option<(String, Style)> {
    let (mut buf, mut controllers) = (Vec::new(), Vec::new());
    for line in root.read("proc/mounts", &mut buf)?.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(dir), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let has = |option: &str| options.split(',').any(|o| o == option);
        let style = match kind {
            "cgroup2" => {
                let file = format!("{dir}/cgroup.controllers");
                let list = root.read(&file, &mut controllers).unwrap_or_default();
                if !list.split_ascii_whitespace().any(|c| c == "cpuset") {
                    continue;
                }
                Style::Cgroup2
            }
            "cpuset" => Style::Cpuset,
            "cgroup" if has("cpuset") && has("noprefix") => Style::Cpuset,
            "cgroup" if has("cpuset") => Style::Cgroup1,
            _ => continue,
        };
        return Some((dir.to_string(), style));
    }
    None
}

fn cpuset_name(root: &Dir) -> Option<String> {
    let mut buf = Vec::new();
    if let Some(name) = root.read("proc/self/cpuset", &mut buf).and_then(|t| t.lines().next()) {
        return Some(name.to_string());
    }
    let text = root.read("proc/self/cgroup", &mut buf)?;
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.strip_prefix("cpuset:").or_else(|| rest.strip_prefix(':')).map(String::from)
    })
}

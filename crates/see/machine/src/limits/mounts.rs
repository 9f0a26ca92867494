//! Mount points of control groups.

use std::collections::BTreeMap;

use super::files::Files;

/// Mount points of control groups: paths without leading and trailing slashes, so that a root can be put
/// before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Version 2.
    pub unified: Option<String>,
    /// Version 1, by controller.
    pub by_controller: BTreeMap<String, String>,
}

impl Mounts {
    /// Parses text like /proc/mounts.
    pub fn parse(text: &str) -> Mounts {
        let mut out = Mounts::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (Some(dir), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let dir = dir.trim_matches('/').to_string();
            match kind {
                "cgroup2" => {
                    out.unified.get_or_insert(dir);
                }
                "cgroup" => {
                    for option in options.split(',') {
                        if matches!(option, "cpu" | "cpuacct" | "memory" | "perf_event" | "pids" | "cpuset") {
                            out.by_controller.entry(option.into()).or_insert_with(|| dir.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        out
    }

    pub(super) fn read(files: &Files<'_>) -> Mounts {
        // In a gathered tree /proc/self is not this process, but the one that gathered it.
        Mounts::parse(&files.text("proc/mounts").unwrap_or_default())
    }
}

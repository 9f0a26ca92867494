//! Settings in the environment that bound how many threads of a program work at once, or what memory its collector leaves it; and
//! whether the scheduler takes threads of a program first.

use std::collections::HashSet;

use ncpu_files::reader::process_text;
use ncpu_machine::process::{self, Stat};
use ncpu_schema::settings;
use ncpu_table::Table;

use super::bounds::Names;
use crate::bpf_support::namespace::process_dir;

/// Variables that say how many threads of a runtime work, or how often its collector does.
const VARIABLES: [&str; 14] = [
    "GOMAXPROCS",
    "UV_THREADPOOL_SIZE",
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "JULIA_NUM_THREADS",
    "DOTNET_PROCESSOR_COUNT",
    "POLARS_MAX_THREADS",
    "GOGC",
    "GOMEMLIMIT",
];

/// Processes that are looked at in an interval: some 20 µs each.
const MOST: usize = 64;

/// Processes that are remembered.
const KNOWN: usize = 4096;

/// Threads of a process that are looked at.
const THREADS: usize = 64;

/// Processes whose environment has been read.
#[derive(Default)]
pub(super) struct Settings {
    looked: HashSet<u32>,
    new: Vec<u32>,
    /// Those of which it is known how their threads are scheduled.
    scheduled: HashSet<u32>,
    /// Processes with real-time threads: the policy and the priority.
    real_time: Vec<(u32, &'static str, u64)>,
}

/// The policy and the priority of a real-time thread, by its `stat`.
fn real_time(stat: &[u8]) -> Option<(&'static str, u64)> {
    let stat = Stat::parse(stat)?;
    let policy = match stat.policy()? {
        1 => "SCHED_FIFO",
        2 => "SCHED_RR",
        6 => "SCHED_DEADLINE",
        _ => return None,
    };
    Some((policy, stat.priority()?))
}

/// The same of the first real-time thread of a process.
fn real_time_thread(tgid: u32) -> Option<(&'static str, u64)> {
    let threads = std::fs::read_dir(process_dir(tgid).join("task")).ok()?.flatten().take(THREADS);
    threads.filter_map(|thread| real_time(&process::read(&thread.path().join("stat")).ok()?)).next()
}

impl Settings {
    /// A process of the program has been met on CPU.
    pub fn met(&mut self, tgid: u32) {
        if self.new.len() < MOST && self.looked.len() < KNOWN && self.looked.insert(tgid) {
            self.new.push(tgid);
        }
    }

    /// Others stood behind threads of these processes on run queues.
    pub fn stood_behind(&mut self, processes: &[u32]) {
        for tgid in processes.iter().take(MOST) {
            if self.scheduled.len() >= KNOWN || !self.scheduled.insert(*tgid) {
                continue;
            }
            if let Some((policy, priority)) = real_time_thread(*tgid) {
                self.real_time.push((*tgid, policy, priority));
            }
        }
    }

    /// The settings of processes that appeared since the last table.
    pub fn table(&mut self, t: f64, processes: &Names) -> Table {
        let mut rows = settings::Rows::new();
        for tgid in self.new.drain(..) {
            // A process may be gone, or belong to a user whose environment is not readable.
            let Ok(environment) = process_text(&process_dir(tgid), tgid, "environ") else { continue };
            for (name, value) in found(&environment) {
                rows.push(settings::Row {
                    time: Some(t),
                    process: processes.of(tgid).into(),
                    pid: Some(tgid.into()),
                    name: Some(name).into(),
                    value: Some(value),
                });
            }
        }
        for (tgid, policy, priority) in self.real_time.drain(..) {
            rows.push(settings::Row {
                time: Some(t),
                process: processes.of(tgid).into(),
                pid: Some(tgid.into()),
                name: Some(policy).into(),
                value: Some(priority),
            });
        }
        rows.finish()
    }
}

/// The variables of an environment that are known, with their values where these are numbers.
fn found(environment: &[u8]) -> impl Iterator<Item = (&'static str, u64)> {
    environment.split(|byte| *byte == 0).filter_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        let (name, value) = entry.split_once('=')?;
        let name = VARIABLES.iter().find(|known| **known == name)?;
        Some((*name, number(value)?))
    })
}

/// A number, or a size with its unit, in bytes.
fn number(value: &str) -> Option<u64> {
    const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];
    let unit = UNITS.iter().find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((value, 0));
    // `parse` takes a sign.
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(())?;
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_variables_are_found() {
        let environment =
            b"PATH=/bin\0GOMAXPROCS=2\0XGOMAXPROCS=3\0OMP_NUM_THREADS=all\0\xff=1\0UV_THREADPOOL_SIZE=8";
        let all: Vec<_> = found(environment).collect();
        assert_eq!(all, [("GOMAXPROCS", 2), ("UV_THREADPOOL_SIZE", 8)]);
    }

    #[test]
    fn real_time_threads() {
        let stat = |priority: u64, policy: u64| {
            let mut fields = vec!["0".to_string(); 50];
            (fields[36], fields[37]) = (priority.to_string(), policy.to_string());
            format!("7 (a b) R {}", fields.join(" "))
        };
        assert_eq!(real_time(stat(10, 1).as_bytes()), Some(("SCHED_FIFO", 10)));
        assert_eq!(real_time(stat(0, 0).as_bytes()), None);
        assert_eq!(real_time_thread(std::process::id()), None);
    }

    #[test]
    fn sizes_are_bytes() {
        let size = |value: &str| {
            let entry = format!("GOMEMLIMIT={value}");
            found(entry.as_bytes()).next().map(|(_, size)| size)
        };
        assert_eq!(
            (size("72MiB"), size("100"), size("5B"), size("1TiB")),
            (Some(72 << 20), Some(100), Some(5), Some(1 << 40))
        );
        for bad in
            ["", "off", "MiB", "-1MiB", "+1", "1.5GiB", "1MB", "99999999999TiB", "99999999999999999999"]
        {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}

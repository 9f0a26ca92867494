//! The exact command that sets a limit.

use std::fmt::Write;
use std::path::PathBuf;

use ncpu_machine::limits::{Knob, Limits, Reading, Scope, Size};
use ncpu_machine::shell_word;

use super::{Status, is_sysctl, judge, planned};

/// The command that sets `reading` to `fit`; `None` where nothing sets it.
pub(super) fn command(reading: &Reading, fit: u64) -> Option<String> {
    Some(match &reading.knob {
        Knob::Sysctl(_) | Knob::Field { .. } => {
            let (name, value) = sysctl(&reading.knob, fit)?;
            if value.contains(' ') {
                format!("sysctl -w {name}='{value}'")
            } else {
                format!("sysctl -w {name}={value}")
            }
        }
        Knob::File(path) => format!("echo {fit} > {}", shell_word(path)),
        Knob::CpuMax(path, period) => {
            format!("echo '{} {period}' > {}", quota(fit, *period), shell_word(path))
        }
        Knob::CpuQuota(path, period) => format!("echo {} > {}", quota(fit, *period), shell_word(path)),
        // The soft limit alone, where the hard one has room.
        Knob::Prlimit { pid, option, hard } => match hard {
            Some(hard) if *hard < fit => format!("prlimit --pid {pid} --{option}={fit}:{fit}"),
            _ => format!("prlimit --pid {pid} --{option}={fit}:"),
        },
        Knob::Boot(parameter) => format!("{parameter}={fit} on the kernel's command line"),
        Knob::Build("CONFIG_NODES_SHIFT") => {
            format!("build the kernel with CONFIG_NODES_SHIFT={}", fit.max(1).next_power_of_two().ilog2())
        }
        Knob::Build(option) => format!("build the kernel with {option}={fit}"),
        Knob::Listen => format!("listen(fd, {fit}) in the program; net.core.somaxconn caps it"),
        Knob::Fixed => return None,
    })
}

fn quota(milli: u64, period: u64) -> u64 {
    (u128::from(milli) * u128::from(period) / 1000).min(u64::MAX.into()) as u64
}

/// A sysctl's name and all of its numbers.
fn sysctl(knob: &Knob, fit: u64) -> Option<(&'static str, String)> {
    match knob {
        Knob::Sysctl(name) => Some((name, fit.to_string())),
        // Ports: the range grows downwards, and the last is 65535.
        Knob::Field { name: name @ "net.ipv4.ip_local_port_range", .. } => {
            Some((name, format!("{} 65535", 65_536u64.saturating_sub(fit).max(1024))))
        }
        // Thresholds in a proportion that the kernel chose.
        Knob::Field { name: name @ ("net.ipv4.tcp_mem" | "net.ipv4.udp_mem"), all, at } => {
            let of = u128::from(*all.get(*at)?).max(1);
            let scaled: Vec<String> =
                all.iter().map(|&n| (u128::from(n) * u128::from(fit) / of).to_string()).collect();
            Some((name, scaled.join(" ")))
        }
        Knob::Field { name, all, at } => {
            let mut all = all.clone();
            *all.get_mut(*at)? = fit;
            Some((name, all.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")))
        }
        _ => None,
    }
}

/// A file to write to lift a limit that was reached, or nearly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lift {
    /// The limit.
    pub limit: String,
    /// Why it is too small.
    pub why: String,
    /// The file that sets it.
    pub file: PathBuf,
    /// The value to write.
    pub value: String,
}

/// Files to write to lift the limits that were reached, or nearly, and that bind a program of the control groups with
/// these paths: sysctls, and files of these groups and of those above them. CPU limits are not among them.
pub fn lifts(limits: &Limits, groups: &[String]) -> Vec<Lift> {
    let binds = |group: &str| {
        let below =
            |own: &String| own == group || own.starts_with(&format!("{}/", group.trim_end_matches('/')));
        groups.iter().any(below)
    };
    let found = judge(limits).into_iter().filter(|j| matches!(j.status, Status::Hit | Status::Near));
    let lift = |j: super::Judged<'_>| {
        let fit = j.fit?;
        let (file, value) = match (&j.reading.knob, &j.reading.scope) {
            (Knob::File(path), Scope::Cgroup(group)) if binds(group) => {
                (PathBuf::from(path), fit.to_string())
            }
            (knob, Scope::Machine) => {
                let (name, value) = sysctl(knob, fit)?;
                (PathBuf::from("/proc/sys").join(name.replace('.', "/")), value)
            }
            _ => return None,
        };
        Some(Lift { limit: j.reading.limit.clone(), why: j.why, file, value })
    };
    found.filter_map(lift).collect()
}

/// A line of that file before it is written.
struct Line {
    knob: Knob,
    fit: u64,
    whys: Vec<String>,
}

/// Lines for a file of /etc/sysctl.d: what is not as it should be on this machine, or on the planned
/// one.
pub fn sysctl_file(limits: &Limits, size: Option<Size>) -> String {
    let of = size.unwrap_or(limits.size);
    let mut out = format!(
        "# For {} CPUs and {} GiB, by ncpu limits; put it into /etc/sysctl.d and run `sysctl --system`\n",
        of.cpus,
        of.memory >> 30
    );
    let mut lines: Vec<Line> = Vec::new();
    let mut line = |reading: &Reading, fit: u64, why: &str| {
        // Two numbers of one sysctl are one line.
        let mut knob = reading.knob.clone();
        let other = lines.iter().position(|l| match (&l.knob, &knob) {
            (Knob::Field { name: a, .. }, Knob::Field { name: b, .. }) => a == b,
            _ => false,
        });
        let mut whys = vec![why.to_string()];
        if let Some(other) = other.map(|at| lines.remove(at)) {
            if let (Knob::Field { all, .. }, Knob::Field { all: old, at: set, .. }) = (&mut knob, &other.knob)
                && let (Some(to), Some(_)) = (all.get_mut(*set), old.get(*set))
            {
                *to = other.fit;
            }
            whys.splice(0..0, other.whys);
        }
        lines.push(Line { knob, fit, whys });
    };
    match size {
        None => judge(limits)
            .iter()
            .filter(|j| j.status != Status::Ok && is_sysctl(&j.reading.knob))
            .filter_map(|j| Some((j, j.fit?)))
            .for_each(|(j, fit)| line(j.reading, fit, &j.why)),
        Some(size) => planned(limits, size)
            .iter()
            .filter(|p| p.small && is_sysctl(&p.reading.knob))
            .for_each(|p| line(p.reading, p.fit, p.why)),
    }
    for line in lines {
        if let Some((name, value)) = sysctl(&line.knob, line.fit) {
            out.push('\n');
            line.whys.iter().for_each(|why| out.push_str(&format!("# {why}\n")));
            let _ = writeln!(out, "{name} = {value}");
        }
    }
    out
}

/// Parameters for the kernel's command line, of the machine or of the planned one.
pub fn boot_parameters(limits: &Limits, size: Option<Size>) -> Vec<String> {
    let parameter = |reading: &Reading, fit: u64| match &reading.knob {
        Knob::Boot(name) => Some(format!("{name}={fit}")),
        Knob::File(path) if path.contains("rcutree") => Some(format!("{}={fit}", reading.limit)),
        _ => None,
    };
    match size {
        None => judge(limits)
            .iter()
            .filter(|j| j.status != Status::Ok)
            .filter_map(|j| parameter(j.reading, j.fit?))
            .collect(),
        Some(size) => planned(limits, size)
            .iter()
            .filter(|p| p.small)
            .filter_map(|p| parameter(p.reading, p.fit))
            .collect(),
    }
}

//! Interrupts of devices, and the CPUs that serve packets: kept off the CPUs of a tenant.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ncpu_machine::CpuSet;

/// Interrupts that are moved at most: those that came most often on the CPUs.
const MOST: usize = 16;

/// Interrupts of devices by number, most often on `home` since boot first.
fn busiest(root: &Path, home: &CpuSet) -> Vec<u32> {
    let text = std::fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut counts: Vec<(u64, u32)> = lines
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let number = number.trim().parse().ok()?;
            let counts = rest.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
            let here = cpus.iter().zip(counts).filter(|(cpu, _)| home.contains(**cpu));
            let sum = here.fold(0u64, |sum, (_, n)| sum.saturating_add(n));
            (sum > 0).then_some((sum, number))
        })
        .collect();
    counts.sort_by_key(|&(sum, number)| (std::cmp::Reverse(sum), number));
    counts.into_iter().map(|(_, number)| number).take(MOST).collect()
}

/// Files that keep interrupts of devices off `home`, and what they are to hold. The kernel chooses the CPUs of some interrupts
/// itself; their files cannot be written.
pub(crate) fn devices(root: &Path, home: &CpuSet, online: &CpuSet) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    for number in busiest(root, home) {
        let file = root.join(format!("proc/irq/{number}/smp_affinity_list"));
        let writable = std::fs::metadata(&file).is_ok_and(|meta| meta.permissions().mode() & 0o200 != 0);
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let Ok(now) = CpuSet::parse_list(text.trim()) else { continue };
        let mut to = now.minus(home);
        if to.is_empty() {
            to = online.minus(home);
        }
        if writable && to != now && !to.is_empty() {
            out.push((file, to.to_list()));
        }
    }
    out
}

/// Files that name the CPUs that serve received packets, where these are in `home`, and what they are to hold.
pub(crate) fn packets(root: &Path, home: &CpuSet, online: &CpuSet) -> Vec<(PathBuf, String)> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    let mut out = Vec::new();
    for device in list(&root.join("sys/class/net")) {
        for queue in list(&device.join("queues")) {
            let file = queue.join("rps_cpus");
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let Ok(now) = CpuSet::parse_mask(text.trim()) else { continue };
            let mut to = now.minus(home);
            // An empty mask means that the CPU of the interrupt serves them.
            if to.is_empty() {
                to = online.minus(home);
            }
            if now.intersects(home) && !to.is_empty() && out.len() < MOST {
                out.push((file, like(&to.to_mask(), text.trim())));
            }
        }
    }
    out
}

/// A mask with the digits and commas of `pattern`, so that it can be compared with the kernel's text.
fn like(mask: &str, pattern: &str) -> String {
    let digits: String = mask.chars().filter(char::is_ascii_hexdigit).collect();
    let width = pattern.chars().filter(char::is_ascii_hexdigit).count();
    let digits = digits.trim_start_matches('0');
    let mut padded = format!("{digits:0>width$}").into_bytes().into_iter();
    if width < digits.len() {
        return mask.into();
    }
    let next = |c: char| if c == ',' { ',' } else { padded.next().map_or('0', char::from) };
    pattern.chars().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::put;

    fn cpus(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    #[test]
    fn masks_are_as_wide_as_the_kernels() {
        assert_eq!(like("2", "3"), "2");
        assert_eq!(like("f0", "00000000,000000ff"), "00000000,000000f0");
        assert_eq!(like("00000001,00000000", "00000000,000000ff"), "00000001,00000000");
        assert_eq!(like("100", "ff"), "100");
    }

    #[test]
    fn interrupts_that_came_to_the_tenants_cpus_are_moved() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let text = "           CPU0       CPU1\n  5:          0        9  x  timer\n 24:         10          2  PCI-MSI  net0\n \
                    25:       7000          0  PCI-MSI  disk\n 26:   3 0 PCI managed\nLOC:     900000     900000  Local timer\n";
        put(root, "proc/interrupts", text);
        for (number, list) in [(5, "0-1"), (24, "0-1"), (25, "0"), (26, "0")] {
            put(root, format!("proc/irq/{number}/smp_affinity_list"), list);
        }
        let managed = root.join("proc/irq/26/smp_affinity_list");
        std::fs::set_permissions(&managed, std::fs::Permissions::from_mode(0o444)).unwrap();
        let short = |(file, value): (PathBuf, String)| {
            (file.strip_prefix(root).unwrap().display().to_string(), value)
        };
        let found: Vec<_> = devices(root, &cpus("0"), &cpus("0-1")).into_iter().map(short).collect();
        let expected = [("proc/irq/25/smp_affinity_list", "1"), ("proc/irq/24/smp_affinity_list", "1")];
        assert_eq!(found, expected.map(|(file, value)| (file.to_string(), value.to_string())));
        put(root, "sys/class/net/lo/queues/rx-0/rps_cpus", "1\n");
        put(root, "sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n");
        let found: Vec<_> = packets(root, &cpus("0"), &cpus("0-1")).into_iter().map(short).collect();
        assert_eq!(found, [("sys/class/net/lo/queues/rx-0/rps_cpus".to_string(), "2".to_string())]);
        assert!(devices(root, &cpus("0-1"), &cpus("0-1")).is_empty());
    }
}

//! Settings of the kernel's build and boot: hash tables, CPUs, ticks, RCU.

use std::collections::BTreeMap;
use std::io::Read;

use super::files::{Files, field, first};
use super::{Area, Found, Knob, Reading, Size, Unit};

/// A hash table of the boot log, its boot parameter, and the file with its size, if there is one.
const HASHES: &[(&str, &str, Option<&str>)] = &[
    ("Dentry cache", "dhash_entries", None),
    ("Inode-cache", "ihash_entries", None),
    ("Mount-cache", "mhash_entries", None),
    ("Mountpoint-cache", "mphash_entries", None),
    ("futex", "", None),
    ("TCP established", "thash_entries", Some("proc/sys/net/ipv4/tcp_ehash_entries")),
    ("TCP bind", "", None),
    ("UDP", "uhash_entries", Some("proc/sys/net/ipv4/udp_hash_entries")),
    ("posixtimers", "", None),
];

/// Sizes of hash tables in a boot log: name and entries.
///
/// A line is `Dentry cache hash table entries: 131072 (order: 8, 1048576 bytes, linear)`, with or
/// without the time in front.
pub fn parse_boot_log(text: &str) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once("hash table entries:") else { continue };
        // `[    0.032787] ` or /dev/kmsg's `6,240,32787,-;`
        let name = before.rsplit([']', ';']).next().unwrap_or("");
        let name = name.trim().trim_start_matches("VFS: ");
        let Some(entries) = first::<u64>(after) else { continue };
        if !name.is_empty() && name.len() <= 64 {
            out.insert(name.to_string(), entries);
        }
    }
    out
}

/// The kernel's messages since boot, as far as it still has them.
fn boot_log(files: &Files<'_>) -> String {
    let mut text = String::new();
    if files.live {
        text = kernel_messages(files);
    }
    for name in ["var/log/dmesg", "var/log/boot.log", "dmesg"] {
        if text.contains("hash table entries:") {
            break;
        }
        text.push_str(&files.fetch(name).unwrap_or_default());
    }
    text
}

/// /dev/kmsg returns one record per read, and EAGAIN after the last one.
fn kernel_messages(files: &Files<'_>) -> String {
    const LONGEST: usize = 32 << 20;
    let mut file = match files.dir.open("dev/kmsg") {
        Ok(file) => file,
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            files.refuse("dev/kmsg", "permission denied");
            return String::new();
        }
        Err(_) => return String::new(),
    };
    let (mut text, mut record) = (String::new(), [0; 8192]);
    while text.len() < LONGEST {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => text.push_str(&String::from_utf8_lossy(&record[..n])),
            // The oldest record was overwritten before it was read: continue with the next.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => break,
        }
    }
    text
}

/// The kernel's configuration: /proc/config.gz, otherwise /boot.
fn config(files: &Files<'_>) -> Option<(String, String)> {
    const LONGEST: u64 = 8 << 20;
    if let Ok(file) = files.dir.open("proc/config.gz") {
        let mut text = Vec::new();
        if flate2::read::GzDecoder::new(file).take(LONGEST).read_to_end(&mut text).is_ok() {
            return Some((String::from_utf8_lossy(&text).into_owned(), "proc/config.gz".into()));
        }
    }
    let release = files.text("proc/sys/kernel/osrelease")?;
    let release = release.trim();
    [format!("boot/config-{release}"), format!("lib/modules/{release}/config")]
        .into_iter()
        .find_map(|name| Some((files.fetch(&name).ok()?, name)))
}

/// A value of the configuration: `CONFIG_HZ=250`.
fn option(config: &str, name: &str) -> Option<u64> {
    config.lines().find_map(|l| first(l.strip_prefix(name)?.strip_prefix('=')?))
}

/// Reads all of these; returns the ticks per second.
pub(super) fn read(files: &Files<'_>, size: Size, found: &mut Found) -> Option<u64> {
    hashes(files, found);
    let config = config(files);
    let hz = ticks(files, config.as_ref(), found);
    kernel(files, config.as_ref(), size, found);
    command_line(files, found);
    rcu(files, found);
    hz
}

fn hashes(files: &Files<'_>, found: &mut Found) {
    let log = parse_boot_log(&boot_log(files));
    let entries = |line: Option<String>, at: usize| -> Option<u64> {
        line?.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    let dentries = entries(files.text("proc/sys/fs/dentry-state"), 0);
    let inodes = entries(files.text("proc/sys/fs/inode-nr"), 0);
    let sockstat = files.text("proc/net/sockstat").unwrap_or_default();
    let sockets = |line: &str, keys: &[&str]| -> Option<u64> {
        let rest: Vec<&str> =
            sockstat.lines().find_map(|l| l.strip_prefix(line))?.split_ascii_whitespace().collect();
        let of = |key: &str| {
            rest.iter().position(|w| *w == key).and_then(|i| rest.get(i + 1)?.parse::<u64>().ok())
        };
        Some(keys.iter().filter_map(|k| of(k)).fold(0, u64::saturating_add))
    };
    let cmdline = files.text("proc/cmdline").unwrap_or_default();
    // The requested size of the command line is rounded up, as in the kernel.
    let asked = |parameter: &str| {
        let words = cmdline.split_ascii_whitespace().take_while(|w| *w != "--");
        let values = words.filter_map(|w| w.strip_prefix(parameter)?.strip_prefix('=')?.parse::<u64>().ok());
        values.last().filter(|_| !parameter.is_empty()).and_then(u64::checked_next_power_of_two)
    };
    let mut missing = Vec::new();
    for &(name, parameter, file) in HASHES {
        let Some(value) = log
            .get(name)
            .copied()
            .or_else(|| file.and_then(|f| files.number(f)))
            .or_else(|| asked(parameter))
        else {
            missing.push(name);
            continue;
        };
        // A negative number means that the namespace shares the machine's table.
        let used = match name {
            "Dentry cache" => dentries,
            "Inode-cache" => inodes,
            "TCP established" => sockets("TCP:", &["inuse", "tw"]),
            "UDP" => sockets("UDP:", &["inuse"]),
            _ => None,
        };
        let knob = if parameter.is_empty() { Knob::Fixed } else { Knob::Boot(parameter) };
        found.readings.push(
            Reading::new(format!("{name} hash"), Area::Hashes, Unit::Count, Some(value), knob).used(used),
        );
    }
    if missing.len() == HASHES.len() {
        found.unread.push("no hash tables: the boot log is unavailable (dmesg, /var/log/dmesg)".into());
    } else if !missing.is_empty() {
        found.unread.push(format!("sizes of hash tables not found in the boot log: {}", missing.join(", ")));
    }
}

/// Ticks per second: from the configuration, otherwise by counting jiffies.
fn ticks(files: &Files<'_>, config: Option<&(String, String)>, found: &mut Found) -> Option<u64> {
    let configured = config.and_then(|(text, from)| Some((option(text, "CONFIG_HZ")?, format!("/{from}"))));
    let (hz, source) =
        configured.or_else(|| Some((measured(files)?, "/proc/timer_list, measured".into())))?;
    found.set("timer", "CONFIG_HZ", Some(hz.to_string()), &source);
    Some(hz)
}

/// Counts jiffies over 50 ms, and takes the nearest rate that the kernel can be built for.
fn measured(files: &Files<'_>) -> Option<u64> {
    if !files.live {
        return None;
    }
    // now at 11262329646088 nsecs / jiffies: 4297707878
    let look = || {
        let text = files.text("proc/timer_list")?;
        let now: u64 = text.lines().find_map(|l| first(l.strip_prefix("now at ")?))?;
        let jiffies: u64 = text.lines().find_map(|l| first(l.trim_start().strip_prefix("jiffies: ")?))?;
        Some((now, jiffies))
    };
    let before = look()?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    let after = look()?;
    let seconds = after.0.checked_sub(before.0).filter(|&n| n > 0)? as f64 / 1e9;
    let rate = after.1.checked_sub(before.1)? as f64 / seconds;
    [100, 250, 300, 1000].into_iter().min_by_key(|&hz| (rate - hz as f64).abs() as u64)
}

/// The limits of the kernel's build, and the address range of the processors.
fn kernel(files: &Files<'_>, config: Option<&(String, String)>, size: Size, found: &mut Found) {
    if let Some(last) = files.number("sys/devices/system/cpu/kernel_max") {
        found.readings.push(
            Reading::new(
                "CONFIG_NR_CPUS",
                Area::Kernel,
                Unit::Count,
                last.checked_add(1),
                Knob::Build("CONFIG_NR_CPUS"),
            )
            .used(Some(size.cpus))
            .note(Some("CPUs the kernel was built for; used: possible CPUs".into())),
        );
    }
    let shift = config.and_then(|(text, _)| option(text, "CONFIG_NODES_SHIFT")).filter(|&s| s < 32);
    if let Some(shift) = shift {
        found.readings.push(
            Reading::new(
                "CONFIG_NODES_SHIFT",
                Area::Kernel,
                Unit::Count,
                Some(1 << shift),
                Knob::Build("CONFIG_NODES_SHIFT"),
            )
            .used(Some(size.nodes))
            .note(Some("NUMA nodes the kernel was built for (2^NODES_SHIFT)".into())),
        );
    }
    let bits = files.text("proc/cpuinfo").and_then(|text| {
        // address sizes	: 46 bits physical, 48 bits virtual
        let line = text.lines().find(|l| l.starts_with("address sizes"))?.split_once(':')?.1.to_string();
        first::<u32>(&line)
    });
    if let Some(bits) = bits.filter(|b| (32..64).contains(b)) {
        found.readings.push(
            Reading::new("physical addresses", Area::Kernel, Unit::Bytes, Some(1 << bits), Knob::Fixed)
                .used(Some(size.memory))
                .note(Some(format!("{bits} bits (/proc/cpuinfo); devices need a part of them"))),
        );
    }
    if let Some((text, from)) = config {
        for name in ["CONFIG_NO_HZ_FULL", "CONFIG_NO_HZ_IDLE", "CONFIG_HZ_PERIODIC", "CONFIG_RCU_NOCB_CPU"] {
            let set = text.lines().any(|l| l.strip_prefix(name) == Some("=y"));
            found.set("timer", name, Some(if set { "y" } else { "n" }.into()), from);
        }
        for name in ["CONFIG_RCU_FANOUT", "CONFIG_RCU_FANOUT_LEAF"] {
            found.set("RCU", name, option(text, name).map(|n| n.to_string()), from);
        }
    }
}

/// Parameters of the command line that keep work off CPUs or limit the machine.
fn command_line(files: &Files<'_>, found: &mut Found) {
    let Some(text) = files.text("proc/cmdline") else { return };
    for word in text.split_ascii_whitespace().take_while(|w| *w != "--") {
        let name = word.split('=').next().unwrap_or(word);
        let about = match name {
            "nohz_full" | "isolcpus" | "irqaffinity" | "skew_tick" | "nohz" | "highres" | "clocksource"
            | "tsc" => "timer",
            "rcu_nocbs" | "rcu_nocb_poll" => "RCU",
            "nr_cpus"
            | "maxcpus"
            | "possible_cpus"
            | "nosmt"
            | "mem"
            | "numa"
            | "numa_balancing"
            | "hugepages"
            | "hugepagesz"
            | "default_hugepagesz"
            | "transparent_hugepage"
            | "mitigations" => "boot",
            _ if name.starts_with("rcutree.") || name.starts_with("rcupdate.") => "RCU",
            _ if name.ends_with("hash_entries") => "boot",
            _ => continue,
        };
        let value = word.split_once('=').map_or("set", |(_, v)| v);
        found.set(about, name, Some(value.into()), "proc/cmdline");
    }
    for (name, about) in [("nohz_full", "timer"), ("isolated", "timer")] {
        let path = format!("sys/devices/system/cpu/{name}");
        let value =
            files.text(&path).map(|t| t.trim().to_string()).filter(|t| !t.is_empty() && t != "(null)");
        found.set(about, &format!("cpu/{name}"), value, &path);
    }
}

/// The tuning of RCU. Its parameters are fixed at boot.
fn rcu(files: &Files<'_>, found: &mut Found) {
    let dir = "sys/module/rcutree/parameters";
    for name in ["jiffies_till_first_fqs", "jiffies_till_next_fqs"] {
        let Some(value) = files.number(&format!("{dir}/{name}")) else { continue };
        let knob = Knob::File(format!("/{dir}/{name}"));
        found.readings.push(
            Reading::new(format!("rcutree.{name}"), Area::Kernel, Unit::Jiffies, Some(value), knob)
                .note(Some("jiffies before idle CPUs are looked for".into())),
        );
    }
    for name in [
        "jiffies_to_sched_qs",
        "rcu_fanout_leaf",
        "rcu_fanout_exact",
        "gp_preinit_delay",
        "gp_init_delay",
        "gp_cleanup_delay",
        "qhimark",
        "blimit",
        "kthread_prio",
        "use_softirq",
    ] {
        let path = format!("{dir}/{name}");
        found.set("RCU", name, files.text(&path), &path);
    }
    for name in ["rcu_expedited", "rcu_normal"] {
        let path = format!("sys/kernel/{name}");
        found.set("RCU", name, files.text(&path), &path);
    }
    let meminfo = files.text("proc/meminfo").unwrap_or_default();
    found.set("memory", "Percpu KiB", field(&meminfo, "Percpu:").map(|n| n.to_string()), "proc/meminfo");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_log() {
        let text = "[    0.032787] Dentry cache hash table entries: 131072 (order: 8, 1048576 bytes, linear)\n\
                    6,240,65226,-;futex hash table entries: 512 (32768 bytes on 1 NUMA nodes, total 32 KiB, linear).\n\
                    [    0.1] VFS: Dquot-cache hash table entries: 512 (order 0, 4096 bytes)\n\
                    TCP established hash table entries: 524288 (order: 10, 4194304 bytes)\n\
                    [ 9.9] hash table entries: 7\nFoo hash table entries: many\n";
        let log = parse_boot_log(text);
        assert_eq!(
            log.into_iter().collect::<Vec<_>>(),
            [
                ("Dentry cache".to_string(), 131_072),
                ("Dquot-cache".into(), 512),
                ("TCP established".into(), 524_288),
                ("futex".into(), 512),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_log_panics(text in "(\\PC|hash table entries:|\n|\\]|;| [0-9]{1,30}){0,40}") {
            assert!(parse_boot_log(&text).keys().all(|k| !k.is_empty() && k.len() <= 64));
        }
    }
}

//! Limits below /proc/sys, and their use.

use super::files::{Files, field, numbers};
use super::process::{Processes, fullest, key_users, most};
use super::{Area, Found, Knob, Reading, Scope, Size, Unit};

use Area::{Files as Fd, Ipc, Memory, Network, Tasks};

/// The use of a limit.
#[derive(Default)]
struct Use {
    used: Option<u64>,
    peak: Option<u64>,
    hits: Option<u64>,
    scope: Option<Scope>,
    note: Option<String>,
}

/// Limits that are one number of one file, by sysctl name.
const SINGLE: &[(&str, Area, Unit)] = &[
    ("kernel.pid_max", Tasks, Unit::Count),
    ("kernel.threads-max", Tasks, Unit::Count),
    ("fs.file-max", Fd, Unit::Count),
    ("fs.nr_open", Fd, Unit::Count),
    ("fs.aio-max-nr", Fd, Unit::Count),
    ("fs.inotify.max_user_instances", Fd, Unit::Count),
    ("fs.inotify.max_user_watches", Fd, Unit::Count),
    ("fs.inotify.max_queued_events", Fd, Unit::Count),
    ("fs.fanotify.max_user_groups", Fd, Unit::Count),
    ("fs.epoll.max_user_watches", Fd, Unit::Count),
    ("fs.pipe-user-pages-soft", Fd, Unit::Pages),
    ("fs.pipe-max-size", Fd, Unit::Bytes),
    ("fs.mount-max", Fd, Unit::Count),
    ("vm.max_map_count", Memory, Unit::Count),
    ("vm.min_free_kbytes", Memory, Unit::KiB),
    ("vm.user_reserve_kbytes", Memory, Unit::KiB),
    ("vm.admin_reserve_kbytes", Memory, Unit::KiB),
    ("net.core.somaxconn", Network, Unit::Count),
    ("net.core.netdev_max_backlog", Network, Unit::Count),
    ("net.core.netdev_budget", Network, Unit::Count),
    ("net.core.optmem_max", Network, Unit::Bytes),
    ("net.core.rmem_max", Network, Unit::Bytes),
    ("net.core.wmem_max", Network, Unit::Bytes),
    ("net.core.rps_sock_flow_entries", Network, Unit::Count),
    ("net.ipv4.tcp_max_syn_backlog", Network, Unit::Count),
    ("net.ipv4.tcp_max_orphans", Network, Unit::Count),
    ("net.ipv4.tcp_max_tw_buckets", Network, Unit::Count),
    ("net.ipv4.neigh.default.gc_thresh3", Network, Unit::Count),
    ("net.ipv6.neigh.default.gc_thresh3", Network, Unit::Count),
    ("net.unix.max_dgram_qlen", Network, Unit::Count),
    ("net.netfilter.nf_conntrack_max", Network, Unit::Count),
    ("net.netfilter.nf_conntrack_expect_max", Network, Unit::Count),
    ("kernel.shmmax", Ipc, Unit::Bytes),
    ("kernel.shmall", Ipc, Unit::Pages),
    ("kernel.shmmni", Ipc, Unit::Count),
    ("kernel.msgmni", Ipc, Unit::Count),
    ("fs.mqueue.queues_max", Ipc, Unit::Count),
    ("kernel.keys.maxkeys", Ipc, Unit::Count),
    ("kernel.keys.maxbytes", Ipc, Unit::Bytes),
    ("kernel.keys.root_maxkeys", Ipc, Unit::Count),
    ("kernel.keys.root_maxbytes", Ipc, Unit::Bytes),
    ("kernel.pty.max", Ipc, Unit::Count),
    ("user.max_user_namespaces", Tasks, Unit::Count),
    ("user.max_net_namespaces", Tasks, Unit::Count),
];

/// One number of several in a file: name, index, and the name of that number.
const FIELDS: &[(&str, usize, &str, Area, Unit)] = &[
    ("kernel.sem", 1, "SEMMNS, semaphores", Ipc, Unit::Count),
    ("kernel.sem", 3, "SEMMNI, semaphore sets", Ipc, Unit::Count),
    ("net.ipv4.tcp_mem", 2, "TCP buffers at most", Network, Unit::Pages),
    ("net.ipv4.udp_mem", 2, "UDP buffers at most", Network, Unit::Pages),
    ("net.ipv4.tcp_rmem", 2, "receive buffer of a connection", Network, Unit::Bytes),
    ("net.ipv4.tcp_wmem", 2, "send buffer of a connection", Network, Unit::Bytes),
];

/// `kernel.pid_max` below the root.
fn file(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// The numbers in the file of the limit.
fn values(files: &Files<'_>, name: &str) -> Option<Vec<u64>> {
    let values = numbers(&files.text(&file(name))?);
    (!values.is_empty()).then_some(values)
}

pub(super) fn read(files: &Files<'_>, meminfo: &str, processes: &Processes, size: Size, found: &mut Found) {
    let sources = Sources::read(files, meminfo);
    for &(name, area, unit) in SINGLE {
        let Some(value) = values(files, name).map(|v| v[0]) else { continue };
        let u = sources.usage(name, processes);
        let mut r = Reading::new(name, area, unit, Some(value), Knob::Sysctl(name))
            .used(u.used)
            .peak(u.peak)
            .hits(u.hits)
            .note(u.note);
        r.scope = u.scope.unwrap_or(Scope::Machine);
        // Zero switches this one off.
        if name == "net.core.rps_sock_flow_entries" && value == 0 {
            r.note = Some("0: receive flow steering is off".into());
        }
        found.readings.push(r);
    }
    for &(name, at, note, area, unit) in FIELDS {
        let Some(all) = values(files, name) else { continue };
        let Some(&value) = all.get(at) else { continue };
        let used = match (name, at) {
            ("kernel.sem", 1) => sources.semaphores.map(|s| s.1),
            ("kernel.sem", _) => sources.semaphores.map(|s| s.0),
            ("net.ipv4.tcp_mem", _) => sources.socket("TCP:", "mem"),
            ("net.ipv4.udp_mem", _) => sources.socket("UDP:", "mem"),
            _ => None,
        };
        let limit = format!("{name}[{}]", at + 1);
        found.readings.push(
            Reading::new(limit, area, unit, Some(value), Knob::Field { name, all, at })
                .used(used)
                .note(Some(note.into())),
        );
    }
    ports(files, &sources, found);
    overcommit(files, meminfo, found);
    dirty(files, size, found);
    scheduler(files, found);
}

/// Ports available to a connection without a fixed port, to one destination.
fn ports(files: &Files<'_>, sources: &Sources, found: &mut Found) {
    let name = "net.ipv4.ip_local_port_range";
    let Some(all) = values(files, name) else { return };
    let (Some(&low), Some(&high)) = (all.first(), all.get(1)) else { return };
    if high < low || high > u64::from(u16::MAX) {
        return;
    }
    let inuse = sources.socket("TCP:", "inuse");
    let used = match sources.local_ports {
        Some(ref ports) => Some(ports.iter().filter(|&&p| (low..=high).contains(&p.into())).count() as u64),
        None => inuse.map(|n| n.saturating_add(sources.socket("TCP:", "tw").unwrap_or(0))),
    };
    found.readings.push(
        Reading::new(name, Network, Unit::Count, Some(high - low + 1), Knob::Field { name, all, at: 0 })
            .used(used)
            .note(Some(format!(
                "{low}-{high}: ports to one destination; used: distinct local ports, TIME_WAIT included"
            ))),
    );
}

/// The memory that the kernel promises, if it refuses to promise more.
fn overcommit(files: &Files<'_>, meminfo: &str, found: &mut Found) {
    let name = "vm.overcommit_memory";
    let Some(mode) = files.number(&file(name)) else { return };
    let used = field(meminfo, "Committed_AS:");
    let limit = field(meminfo, "CommitLimit:").filter(|_| mode == 2);
    let note = match mode {
        2 => "2: at most CommitLimit is promised",
        1 => "1: everything is promised",
        _ => "0: only obviously excessive requests are refused",
    };
    found.readings.push(
        Reading::new(name, Memory, Unit::KiB, limit, Knob::Sysctl("vm.overcommit_ratio"))
            .used(used)
            .note(Some(note.into())),
    );
}

/// Dirty pages before writers must wait.
fn dirty(files: &Files<'_>, size: Size, found: &mut Found) {
    let vmstat = files.text("proc/vmstat").unwrap_or_default();
    for (ratio, bytes, threshold) in [
        ("vm.dirty_ratio", "vm.dirty_bytes", "nr_dirty_threshold"),
        ("vm.dirty_background_ratio", "vm.dirty_background_bytes", "nr_dirty_background_threshold"),
    ] {
        let set = files.number(&file(bytes)).unwrap_or(0);
        let (name, note) = match (set, files.number(&file(ratio))) {
            (0, Some(r)) => (ratio, format!("{r} % of the available memory, in bytes")),
            (0, None) => continue,
            _ => (bytes, String::new()),
        };
        let Some(value) = field(&vmstat, threshold).map(|pages| pages.saturating_mul(size.page)) else {
            continue;
        };
        let used = field(&vmstat, "nr_dirty ").map(|pages| pages.saturating_mul(size.page));
        let note = Some(note).filter(|n| !n.is_empty());
        found.readings.push(
            Reading::new(name, Memory, Unit::Bytes, Some(value), Knob::Sysctl(bytes)).used(used).note(note),
        );
    }
}

/// Settings that affect how threads are spread.
fn scheduler(files: &Files<'_>, found: &mut Found) {
    for (about, name) in [
        ("scheduler", "kernel.sched_cfs_bandwidth_slice_us"),
        ("scheduler", "kernel.sched_rt_runtime_us"),
        ("scheduler", "kernel.sched_autogroup_enabled"),
        ("scheduler", "kernel.sched_schedstats"),
        ("memory", "kernel.numa_balancing"),
        ("memory", "vm.zone_reclaim_mode"),
        ("memory", "vm.watermark_scale_factor"),
        ("memory", "vm.percpu_pagelist_high_fraction"),
        ("memory", "vm.swappiness"),
        ("memory", "vm.stat_interval"),
        ("timer", "kernel.timer_migration"),
        ("timer", "kernel.watchdog_thresh"),
        ("network", "net.ipv4.tcp_syncookies"),
        ("network", "net.core.default_qdisc"),
    ] {
        found.set(about, name, files.text(&file(name)), &file(name));
    }
    zones(files, found);
    for name in ["features", "migration_cost_ns", "nr_migrate", "base_slice_ns", "tunable_scaling"] {
        let path = format!("sys/kernel/debug/sched/{name}");
        found.set("scheduler", &format!("sched/{name}"), files.text(&path), &path);
    }
}

/// Watermarks of the zones that hold memory.
fn zones(files: &Files<'_>, found: &mut Found) {
    for (zone, [free, min, low, high]) in
        files.text("proc/zoneinfo").map(|t| watermarks(&t)).unwrap_or_default()
    {
        let value = format!("free {free}, min {min}, low {low}, high {high} pages");
        found.set("memory", &zone, Some(value), "proc/zoneinfo");
    }
}

/// Free pages and watermarks of the zones in text like /proc/zoneinfo.
fn watermarks(text: &str) -> Vec<(String, [u64; 4])> {
    let mut out: Vec<(String, [u64; 4])> = Vec::new();
    let mut managed = true;
    for line in text.lines() {
        if line.starts_with("Node ") {
            if !managed {
                out.pop();
            }
            managed = false;
            let name = line.replace(", zone", "").split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            out.push((name, [0; 4]));
            continue;
        }
        let Some((_, marks)) = out.last_mut() else { continue };
        let mut words = line.split_ascii_whitespace().skip_while(|w| *w == "pages");
        let (Some(key), Some(Ok(n))) = (words.next(), words.next().map(str::parse::<u64>)) else { continue };
        match key {
            "free" => marks[0] = n,
            "min" => marks[1] = n,
            "low" => marks[2] = n,
            // Per-CPU lists have a `high:` of their own.
            "high" => marks[3] = n,
            "managed" => managed = n > 0,
            _ => {}
        }
    }
    if !managed {
        out.pop();
    }
    out
}

impl Found {
    /// Adds a setting if it exists.
    pub fn set(&mut self, about: &'static str, name: &str, value: Option<String>, source: &str) {
        if let Some(value) = value {
            let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            self.settings.push(super::Setting {
                about,
                name: name.into(),
                value,
                source: format!("/{}", source.trim_start_matches('/')),
            });
        }
    }
}

/// The files with the use of limits.
struct Sources {
    tasks: Option<u64>,
    open: Vec<u64>,
    aio: Option<u64>,
    sockstat: String,
    semaphores: Option<(u64, u64)>,
    /// Segments and their bytes.
    segments: Option<(u64, u64)>,
    largest_segment: Option<u64>,
    queues: Option<u64>,
    keys: Vec<(u32, [u64; 4])>,
    pty: Option<u64>,
    mounts: Option<u64>,
    arp: Option<u64>,
    conntrack: Option<u64>,
    expected: Option<u64>,
    backlog_drops: Option<u64>,
    netstat: String,
    free: Option<u64>,
    /// Local ports of TCP sockets that do not listen.
    local_ports: Option<std::collections::BTreeSet<u16>>,
}

impl Sources {
    fn read(files: &Files<'_>, meminfo: &str) -> Sources {
        let lines = |name: &str, header: usize| {
            files.text(name).map(|t| t.lines().count().saturating_sub(header) as u64)
        };
        let columns = |name: &str, at: usize| -> Option<Vec<u64>> {
            let text = files.text(name)?;
            Some(
                text.lines()
                    .skip(1)
                    .filter_map(|l| l.split_ascii_whitespace().nth(at)?.parse().ok())
                    .collect(),
            )
        };
        let shm = columns("proc/sysvipc/shm", 3);
        let sum = |v: &Vec<u64>| v.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let drops = files.text("proc/net/softnet_stat").map(|t| {
            t.lines()
                .filter_map(|l| u64::from_str_radix(l.split_ascii_whitespace().nth(1)?, 16).ok())
                .fold(0u64, u64::saturating_add)
        });
        let mut sockstat = files.text("proc/net/sockstat").unwrap_or_default();
        sockstat.push_str(&files.text("proc/net/sockstat6").unwrap_or_default());
        let loadavg = files.text("proc/loadavg").unwrap_or_default();
        Sources {
            tasks: loadavg.split_ascii_whitespace().nth(3).and_then(|w| w.split_once('/')?.1.parse().ok()),
            open: files.text("proc/sys/fs/file-nr").map(|t| numbers(&t)).unwrap_or_default(),
            aio: files.number("proc/sys/fs/aio-nr"),
            sockstat,
            semaphores: columns("proc/sysvipc/sem", 3).map(|v| (v.len() as u64, sum(&v))),
            largest_segment: shm.as_ref().and_then(|v| v.iter().copied().max()),
            segments: shm.map(|v| (v.len() as u64, sum(&v))),
            queues: lines("proc/sysvipc/msg", 1),
            keys: files.text("proc/key-users").map(|t| key_users(&t)).unwrap_or_default(),
            pty: files.number("proc/sys/kernel/pty/nr"),
            mounts: lines("proc/self/mountinfo", 0),
            arp: lines("proc/net/arp", 1),
            conntrack: files.number("proc/sys/net/netfilter/nf_conntrack_count"),
            expected: lines("proc/net/nf_conntrack_expect", 0),
            backlog_drops: drops,
            netstat: files.text("proc/net/netstat").unwrap_or_default(),
            free: field(meminfo, "MemFree:"),
            local_ports: super::sockets::local_ports(files),
        }
    }

    /// A number of /proc/net/sockstat: `TCP: inuse 1 orphan 0 …`.
    fn socket(&self, line: &str, key: &str) -> Option<u64> {
        let rest = self.sockstat.lines().find_map(|l| l.strip_prefix(line))?;
        let mut words = rest.split_ascii_whitespace();
        words.find(|w| *w == key)?;
        words.next()?.parse().ok()
    }

    fn usage(&self, name: &str, processes: &Processes) -> Use {
        let used = |used: Option<u64>| Use { used, ..Use::default() };
        let user = |of: Option<(u32, u64)>| Use {
            used: of.map(|u| u.1),
            scope: of.map(|u| Scope::User(u.0)),
            ..Use::default()
        };
        let key = |root: bool, at: usize| {
            user(most(self.keys.iter().filter(|(u, _)| (*u == 0) == root).map(|(u, n)| (*u, n[at]))))
        };
        match name {
            "kernel.pid_max" | "kernel.threads-max" => used(self.tasks),
            "fs.file-max" => used(self.open.first().copied()),
            "fs.nr_open" => {
                let (used, scope) = fullest(&processes.files);
                Use { used, scope, ..Use::default() }
            }
            "vm.max_map_count" => {
                let (used, scope) = fullest(&processes.maps);
                Use { used, scope, ..Use::default() }
            }
            "fs.aio-max-nr" => used(self.aio),
            "fs.inotify.max_user_instances" => user(most(processes.inotify.iter().map(|(u, n)| (*u, n.0)))),
            "fs.inotify.max_user_watches" => user(most(processes.inotify.iter().map(|(u, n)| (*u, n.1)))),
            "fs.epoll.max_user_watches" => user(most(processes.epoll.iter().map(|(u, n)| (*u, *n)))),
            "fs.mount-max" => used(self.mounts),
            "vm.min_free_kbytes" => Use {
                note: self.free.map(|f| format!("a reserve, not a maximum: {} MiB are free", f / 1024)),
                ..Use::default()
            },
            "net.core.somaxconn" => Use {
                hits: super::sockets::counter(&self.netstat, "ListenOverflows"),
                note: Some("hits: ListenOverflows, of any listener; see the listeners' own rows".into()),
                ..Use::default()
            },
            "net.core.netdev_max_backlog" => Use {
                hits: self.backlog_drops,
                note: Some("of each CPU; hits: packets dropped (/proc/net/softnet_stat)".into()),
                ..Use::default()
            },
            "net.ipv4.tcp_max_syn_backlog" => Use {
                hits: match (
                    super::sockets::counter(&self.netstat, "TCPReqQFullDoCookies"),
                    super::sockets::counter(&self.netstat, "TCPReqQFullDrop"),
                ) {
                    (None, None) => None,
                    (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
                },
                ..Use::default()
            },
            "net.ipv4.tcp_max_orphans" => used(self.socket("TCP:", "orphan")),
            "net.ipv4.tcp_max_tw_buckets" => Use {
                used: self.socket("TCP:", "tw"),
                hits: super::sockets::counter(&self.netstat, "TCPTimeWaitOverflow"),
                ..Use::default()
            },
            "net.ipv4.neigh.default.gc_thresh3" => used(self.arp),
            "net.netfilter.nf_conntrack_max" => used(self.conntrack),
            "net.netfilter.nf_conntrack_expect_max" => used(self.expected),
            "kernel.shmmax" => used(self.largest_segment),
            "kernel.shmall" => used(self.segments.map(|s| s.1.div_ceil(rustix::param::page_size() as u64))),
            "kernel.shmmni" => used(self.segments.map(|s| s.0)),
            "kernel.msgmni" => used(self.queues),
            "kernel.keys.maxkeys" => key(false, 0),
            "kernel.keys.maxbytes" => key(false, 2),
            "kernel.keys.root_maxkeys" => key(true, 0),
            "kernel.keys.root_maxbytes" => key(true, 2),
            "kernel.pty.max" => used(self.pty),
            _ => Use::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_hold_memory() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 7\n  pages free     3840\n        \
                    boost    0\n        min      8\n        low      10\n        high     12\n        managed  3840\n  \
                    pagesets\n    cpu: 0\n              high:  99\nNode 0, zone  Movable\n  pages free     0\n        \
                    managed  0\n";
        assert_eq!(watermarks(text), [("Node 0 DMA".to_string(), [3840, 8, 10, 12])]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(Node [0-9], zone|pages free|managed|high| [0-9]{1,22}|\n|\\PC){0,60}") {
            let _ = watermarks(&text);
            let _ = key_users(&text);
        }
    }
}

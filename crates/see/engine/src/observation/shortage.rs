//! How the machine's memory changed meanwhile, and how long work stalled because a resource was short:
//! /proc/meminfo, /proc/vmstat and /proc/pressure; and what TCP delayed, dropped and sent again: /proc/net/netstat. All are read when the observation begins and at each interval.

use std::collections::BTreeMap;

use ncpu_machine::limits::parse_pressure;
use ncpu_schema::{memory_change, memory_events, pressure};
use ncpu_table::Table;

/// Classes of /proc/meminfo that a program changes.
const CLASSES: [&str; 12] = [
    "MemFree",
    "MemAvailable",
    "Cached",
    "AnonPages",
    "AnonHugePages",
    "Shmem",
    "PageTables",
    "KernelStack",
    "Slab",
    "Mlocked",
    "SwapFree",
    "HugePages_Free",
];

/// Events of /proc/vmstat that mean that memory was short, by the beginnings of their names.
const EVENTS: [&str; 14] = [
    "allocstall_",
    "pgscan_direct",
    "pgscan_kswapd",
    "pgsteal_direct",
    "pgsteal_kswapd",
    "compact_stall",
    "compact_fail",
    "pswpin",
    "pswpout",
    "oom_kill",
    "thp_fault_alloc",
    "thp_fault_fallback",
    "workingset_refault_",
    "pgmigrate_success",
];

/// Before, meanwhile and after.
pub(crate) struct Shortage {
    before: Now,
    most: BTreeMap<&'static str, u64>,
    last: Now,
}

#[derive(Clone, Default)]
struct Now {
    memory: BTreeMap<&'static str, u64>,
    events: BTreeMap<String, u64>,
    /// Microseconds, by resource and kind.
    pressure: BTreeMap<(&'static str, &'static str), u64>,
    /// What TCP did, in the network namespace of this process.
    tcp: Tcp,
}

/// Counts of TCP and UDP.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    /// Acknowledgements that it delayed.
    pub delayed_acks: u64,
    /// Requests for connections that it dropped because the queue of a listening socket was full.
    pub listen_overflows: u64,
    /// Times that it sent again because no acknowledgement had come.
    pub timeouts: u64,
    /// Datagrams that UDP dropped because the buffer of a receiving socket was full.
    pub datagrams: u64,
}

impl Tcp {
    fn of(netstat: &str, snmp: &[String]) -> Tcp {
        let counted = |name| counted(netstat, "TcpExt:", name).unwrap_or(0);
        Tcp {
            delayed_acks: counted("DelayedACKs"),
            listen_overflows: counted("ListenOverflows"),
            timeouts: counted("TCPTimeouts"),
            datagrams: datagrams(snmp),
        }
    }

    fn since(self, before: Tcp) -> Tcp {
        Tcp {
            delayed_acks: self.delayed_acks.saturating_sub(before.delayed_acks),
            listen_overflows: self.listen_overflows.saturating_sub(before.listen_overflows),
            timeouts: self.timeouts.saturating_sub(before.timeouts),
            datagrams: self.datagrams.saturating_sub(before.datagrams),
        }
    }
}

impl Now {
    fn read() -> Now {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let pressure = ["cpu", "memory", "io", "irq"]
            .into_iter()
            .flat_map(|r| parse_pressure(&text(&format!("/proc/pressure/{r}")), r, None))
            .map(|p| ((p.resource, p.kind), p.total_us))
            .collect();
        Now {
            memory: memory(&text("/proc/meminfo")),
            events: events(&text("/proc/vmstat")),
            pressure,
            tcp: Tcp::of(
                &text("/proc/self/net/netstat"),
                &[text("/proc/self/net/snmp"), text("/proc/self/net/snmp6")],
            ),
        }
    }
}

/// Bytes by class.
fn memory(meminfo: &str) -> BTreeMap<&'static str, u64> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let class = CLASSES.into_iter().find(|c| *c == name)?;
        let mut words = rest.split_ascii_whitespace();
        let n: u64 = words.next()?.parse().ok()?;
        Some((class, if words.next() == Some("kB") { n.saturating_mul(1024) } else { n }))
    };
    meminfo.lines().filter_map(line).collect()
}

/// A counter of /proc/net/netstat: a line of names, then one of numbers, each with its group first.
fn counted(netstat: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with(group));
    let at = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    lines.next()?.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Datagrams that found no room in the buffer of their socket: /proc/net/snmp has them as `netstat` has its counters, /proc/net/snmp6
/// as a name and a number in each line.
fn datagrams(snmp: &[String]) -> u64 {
    let of = |text: &String| {
        let line =
            || text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"))?.trim().parse().ok();
        counted(text, "Udp:", "RcvbufErrors").or_else(line).unwrap_or(0)
    };
    snmp.iter().map(of).fold(0, u64::saturating_add)
}

/// The same event of several zones is one.
fn events(vmstat: &str) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for line in vmstat.lines() {
        let Some((name, n)) = line.split_once(' ') else { continue };
        let known =
            EVENTS.iter().find(|e| if e.ends_with('_') { name.starts_with(**e) } else { name == **e });
        if let (Some(event), Ok(n)) = (known, n.trim().parse::<u64>()) {
            let sum: &mut u64 = out.entry(event.trim_end_matches('_').to_owned()).or_default();
            *sum = sum.saturating_add(n);
        }
    }
    out
}

impl Shortage {
    /// Reads what was before.
    pub fn begin() -> Shortage {
        let before = Now::read();
        Shortage { most: before.memory.clone(), last: before.clone(), before }
    }

    /// Reads what is now. Returns what TCP did since the look before.
    pub fn look(&mut self) -> Tcp {
        let before = std::mem::replace(&mut self.last, Now::read());
        for (class, n) in &self.last.memory {
            let most = self.most.entry(class).or_default();
            *most = (*most).max(*n);
        }
        self.last.tcp.since(before.tcp)
    }

    /// Starts anew: the next tables show changes from this moment on.
    pub fn turn(&mut self) {
        self.before = self.last.clone();
        self.most = self.last.memory.clone();
    }

    /// Tables `memory_change`, `memory_events` and `pressure`, of what changed.
    pub fn tables(&self) -> [Table; 3] {
        let mut memory = memory_change::Rows::new();
        for (class, before) in &self.before.memory {
            let (most, after) = (self.most.get(class), self.last.memory.get(class));
            memory.push(memory_change::Row {
                class: (*class).into(),
                before: Some(*before),
                most: most.copied(),
                after: after.copied(),
            });
        }
        let mut events = memory_events::Rows::new();
        for (event, now) in &self.last.events {
            let new = now.saturating_sub(self.before.events.get(event).copied().unwrap_or(*now));
            if new > 0 {
                events.push(memory_events::Row { event: event.into(), count: Some(new) });
            }
        }
        let mut pressure = pressure::Rows::new();
        for ((resource, kind), now) in &self.last.pressure {
            let before = self.before.pressure.get(&(*resource, *kind)).copied().unwrap_or(*now);
            pressure.push(pressure::Row {
                resource: (*resource).into(),
                kind: (*kind).into(),
                seconds: Some(now.saturating_sub(before) as f64 / 1e6),
            });
        }
        [memory.finish(), events.finish(), pressure.finish()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_events() {
        let m = memory("MemTotal: 100 kB\nMemFree:   7 kB\nAnonPages: x kB\nHugePages_Free:  3\nSlab\n");
        assert_eq!(m.into_iter().collect::<Vec<_>>(), [("HugePages_Free", 3), ("MemFree", 7168)]);
        let e = events(
            "allocstall_dma32 2\nallocstall_normal 3\npgscan_direct 9\npgscan_direct_throttle 4\nx 1\noom_kill z\n",
        );
        assert_eq!(
            e.into_iter().collect::<Vec<_>>(),
            [("allocstall".to_owned(), 5), ("pgscan_direct".to_owned(), 9)]
        );
    }

    #[test]
    fn a_counter_stands_below_its_name() {
        let netstat = "TcpExt: SyncookiesSent DelayedACKs\nTcpExt: 0 17\nIpExt: InNoRoutes\nIpExt: 3\n";
        assert_eq!(counted(netstat, "TcpExt:", "DelayedACKs"), Some(17));
        assert_eq!(counted(netstat, "IpExt:", "DelayedACKs"), None);
        assert_eq!(counted("TcpExt: DelayedACKs\n", "TcpExt:", "DelayedACKs"), None);
        let snmp = [
            "Udp: InDatagrams RcvbufErrors\nUdp: 90 4\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 7\n"
                .into(),
            "Udp6InDatagrams 8\nUdp6RcvbufErrors 3\nUdpLite6RcvbufErrors 5\n".into(),
        ];
        let before = Tcp::of("TcpExt: ListenOverflows TCPTimeouts DelayedACKs\nTcpExt: 5 9 17\n", &snmp);
        assert_eq!(before.datagrams, 7, "of IPv4 and IPv6");
        assert_eq!((before.listen_overflows, before.timeouts, before.delayed_acks), (5, 9, 17));
        let now = Tcp { listen_overflows: 8, timeouts: 9, delayed_acks: 4, datagrams: 7 };
        assert_eq!(
            now.since(before),
            Tcp { listen_overflows: 3, ..Tcp::default() },
            "a count that fell says nothing"
        );
    }

    #[test]
    fn this_machine_tells() {
        let mut shortage = Shortage::begin();
        shortage.look();
        let [memory, _, _] = shortage.tables();
        let row = (0..memory.num_rows()).find(|&r| memory.text(r, "class") == Some("MemFree"));
        assert!(row.is_some_and(|r| memory.int(r, "most") >= memory.int(r, "before")), "{memory:?}");
    }
}

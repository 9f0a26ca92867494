//! The values of limits that a machine of a size needs, and why.
//!
//! Three sources only: the kernel's own formula, where it sizes the limit at boot; the number of
//! things the kernel or the C library makes for each CPU; and figures the kernel itself uses per CPU:
//!
//! - 1024 tasks a CPU: `PIDS_PER_CPU_DEFAULT` (include/linux/threads.h), by which `pid_max` grows;
//! - 8 tasks a CPU: `PIDS_PER_CPU_MIN` there, below which the kernel refuses to set `pid_max`: the
//!   least to reckon with on a machine whose CPUs are all in use;
//! - 64 packets: `dev_weight`, what a CPU takes in a poll of the network before anything else runs;
//! - 128 requests: `BLKDEV_DEFAULT_RQ` (include/linux/blkdev.h), what a disk queue holds, a queue a CPU.

use ncpu_machine::limits::Size;

/// The machine a rule is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    pub size: Size,
    pub hz: Option<u64>,
}

/// A rule.
pub(super) struct Rule {
    /// The limit, as [`ncpu_machine::limits::Reading::limit`] names it.
    pub limit: &'static str,
    /// The kernel's value at boot on such a machine; `None` where it is one number for all machines.
    pub boot: Option<fn(Machine) -> u64>,
    /// The value that such a machine needs.
    pub need: fn(Machine) -> u64,
    /// The need in words, and where it is from.
    pub why: &'static str,
}

const PIDS_PER_CPU_DEFAULT: u64 = 1024;
const PIDS_PER_CPU_MIN: u64 = 8;
const DEV_WEIGHT: u64 = 64;
const BLKDEV_DEFAULT_RQ: u64 = 128;

/// `PID_MAX_LIMIT` of 64-bit kernels (include/linux/threads.h).
const PID_MAX_LIMIT: u64 = 4 << 20;
/// `THREAD_SIZE` of x86-64 and aarch64, a task's kernel stack.
const THREAD_SIZE: u64 = 16 << 10;
/// `FUTEX_TID_MASK` (include/uapi/linux/futex.h): a task's number must fit beside a futex's flags.
const MAX_THREADS: u64 = 0x3fff_ffff;

fn a_cpu(m: Machine, n: u64) -> u64 {
    m.size.cpus.saturating_mul(n)
}

/// `pid_idr_init` (kernel/pid.c).
fn pid_max(m: Machine) -> u64 {
    a_cpu(m, PIDS_PER_CPU_DEFAULT).clamp(32_768, PID_MAX_LIMIT)
}

/// `set_max_threads` (kernel/fork.c): kernel stacks in an eighth of memory.
fn threads_max(m: Machine) -> u64 {
    (m.size.memory / (8 * THREAD_SIZE)).clamp(20, MAX_THREADS)
}

/// `files_maxfiles_init` (fs/file_table.c): a tenth of memory at 1 KiB a file.
fn file_max(m: Machine) -> u64 {
    (m.size.memory / 1024 / 10).max(8192)
}

/// `alloc_large_system_hash` (mm/mm_init.c): an entry for every 2^`scale` bytes, fewer above 64 GiB where
/// `most` is none, and no more than a sixteenth of memory.
fn system_hash(m: Machine, scale: u32, bucket: u64, most: Option<u64>) -> u64 {
    let mut scale = scale;
    if most.is_none() {
        let mut adapt = 64u64 << 30;
        while adapt < m.size.memory {
            scale += 1;
            adapt = adapt.saturating_mul(4);
        }
    }
    let entries = (m.size.memory >> scale).max(m.size.page / bucket).max(1).next_power_of_two();
    let most = most.unwrap_or(m.size.memory / 16 / bucket).clamp(1, 1 << 31);
    // Rounded down, as the kernel takes the logarithm of it.
    1 << entries.min(most).ilog2()
}

fn dentries(m: Machine) -> u64 {
    system_hash(m, 13, 8, None)
}

fn inodes(m: Machine) -> u64 {
    system_hash(m, 14, 8, None)
}

fn mounts(m: Machine) -> u64 {
    system_hash(m, 19, 8, None)
}

/// `tcp_init` (net/ipv4/tcp.c): an entry for every 128 KiB, 512 Ki at most.
fn established(m: Machine) -> u64 {
    system_hash(m, 17, 8, Some(512 << 10))
}

/// `udp_table_init` (net/ipv4/udp.c): an entry for every 2 MiB, 256 to 64 Ki.
fn udp(m: Machine) -> u64 {
    system_hash(m, 21, 8, Some(64 << 10)).max(256)
}

/// `futex_init` (kernel/futex/core.c): 256 for each possible CPU, on each node its part.
fn futexes(m: Machine) -> u64 {
    (a_cpu(m, 256) / m.size.nodes.max(1)).max(4).next_power_of_two()
}

/// `posixtimer_init` (kernel/time/posix-timers.c).
fn posix_timers(m: Machine) -> u64 {
    a_cpu(m, 512).next_power_of_two()
}

/// `tcp_sk_init` (net/ipv4/tcp_ipv4.c).
fn syn_backlog(m: Machine) -> u64 {
    (established(m) / 128).max(128)
}

/// `tcp_init_mem` (net/ipv4/tcp.c): 3/32 of the pages.
fn tcp_pages(m: Machine) -> u64 {
    m.size.memory / m.size.page.max(1) / 32 * 3
}

/// `udp_init` (net/ipv4/udp.c): 3/16 of the pages.
fn udp_pages(m: Machine) -> u64 {
    m.size.memory / m.size.page.max(1) / 16 * 3
}

/// `calculate_min_free_kbytes` (mm/page_alloc.c) without its upper bound.
fn min_free(m: Machine) -> u64 {
    (m.size.memory / 1024).saturating_mul(16).isqrt().max(128)
}

/// `set_recommended_min_free_kbytes` (mm/khugepaged.c): 11 blocks of 2 MiB a zone, to keep huge pages
/// to be had. A machine has a zone a node and two small ones.
fn unfragmented(m: Machine) -> u64 {
    m.size.nodes.saturating_add(2).saturating_mul(11 << 11).min(m.size.memory / 1024 / 20)
}

/// `rcu_init_geometry` and `rcu_bootup_announce_oddness` (kernel/rcu/tree.c).
fn first_fqs(m: Machine) -> u64 {
    let hz = m.hz.unwrap_or(250);
    1 + u64::from(hz > 250) + u64::from(hz > 500) + m.size.cpus / 256
}

/// The rules, most telling first.
pub(super) const RULES: &[Rule] = &[
    Rule {
        limit: "kernel.pid_max",
        boot: Some(pid_max),
        need: pid_max,
        why: "1024 a CPU, the kernel's default at boot (kernel/pid.c); every thread takes a number",
    },
    Rule {
        limit: "kernel.threads-max",
        boot: Some(threads_max),
        need: |m| threads_max(m).min(pid_max(m)),
        why: "one for each pid number, if their stacks (16 KiB) fit into 1/8 of memory (kernel/fork.c)",
    },
    Rule {
        limit: "CONFIG_NR_CPUS",
        boot: None,
        need: |m| m.size.cpus,
        why: "CPUs beyond it stay off: the kernel must be built for them",
    },
    Rule {
        limit: "CONFIG_NODES_SHIFT",
        boot: None,
        need: |m| m.size.nodes,
        why: "memory of nodes beyond it stays off: the kernel must be built for them",
    },
    Rule {
        limit: "physical addresses",
        boot: None,
        need: |m| m.size.memory,
        why: "memory beyond what the processors can address",
    },
    Rule {
        limit: "fs.file-max",
        boot: Some(file_max),
        need: file_max,
        why: "a tenth of memory at 1 KiB a file, the kernel's default at boot (fs/file_table.c)",
    },
    Rule {
        limit: "fs.nr_open",
        boot: None,
        need: |m| a_cpu(m, 1024).max(1 << 20),
        why: "INR_OPEN_CUR, 1024 files, for each CPU's thread of one process (include/uapi/linux/fs.h)",
    },
    Rule {
        limit: "fs.aio-max-nr",
        boot: None,
        need: |m| a_cpu(m, BLKDEV_DEFAULT_RQ).max(65_536),
        why: "a full disk queue a CPU: BLKDEV_DEFAULT_RQ, 128 requests (include/linux/blkdev.h)",
    },
    Rule {
        limit: "fs.inotify.max_user_instances",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(128),
        why: "one for each of 8 tasks a CPU, the fewest the kernel reckons with (PIDS_PER_CPU_MIN)",
    },
    Rule {
        limit: "fs.inotify.max_user_watches",
        boot: Some(inotify_watches),
        need: inotify_watches,
        why: "1 % of memory, 8 Ki to 1 Mi: the kernel's default at boot (fs/notify/inotify/inotify_user.c)",
    },
    Rule {
        limit: "fs.epoll.max_user_watches",
        boot: Some(epoll_watches),
        need: epoll_watches,
        why: "4 % of memory: the kernel's default at boot (fs/eventpoll.c)",
    },
    Rule {
        limit: "fs.pipe-user-pages-soft",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN * 16).max(16_384),
        why: "a pipe of 16 pages (PIPE_DEF_BUFFERS) for each of 8 tasks a CPU; beyond it new pipes get 2 pages (fs/pipe.c)",
    },
    Rule {
        limit: "vm.max_map_count",
        boot: None,
        // glibc: 2 mappings a stack (with its guard), 2 an arena, 8 arenas a CPU (mallopt(3)).
        need: |m| a_cpu(m, 2 * 8 * (2 + 2)).max(65_530),
        why: "twice 8 threads a CPU × 4 mappings: stack, its guard, and glibc's arena (8 a CPU, mallopt(3)) in two parts",
    },
    Rule {
        limit: "vm.min_free_kbytes",
        boot: Some(|m| min_free(m).min(262_144).max(unfragmented(m))),
        need: min_free,
        why: "4 √(memory in KiB), the kernel's formula (mm/page_alloc.c) without its bound of 256 MiB",
    },
    Rule {
        limit: "net.core.somaxconn",
        boot: None,
        need: |m| a_cpu(m, DEV_WEIGHT).max(4096),
        why: "one poll of the network (dev_weight, 64 packets) a CPU may end in one listener before anyone accepts",
    },
    Rule {
        limit: "net.ipv4.tcp_max_syn_backlog",
        boot: Some(syn_backlog),
        need: syn_backlog,
        why: "1/128 of the TCP hash, the kernel's default at boot (net/ipv4/tcp_ipv4.c)",
    },
    Rule {
        limit: "net.ipv4.tcp_max_tw_buckets",
        boot: Some(|m| established(m) / 2),
        need: |m| established(m) / 2,
        why: "half the TCP hash, the kernel's default at boot (net/ipv4/tcp_ipv4.c)",
    },
    Rule {
        limit: "net.ipv4.tcp_max_orphans",
        boot: Some(|m| established(m) / 2),
        need: |m| established(m) / 2,
        why: "half the TCP hash, the kernel's default at boot (net/ipv4/tcp.c)",
    },
    Rule {
        limit: "net.ipv4.tcp_mem[3]",
        boot: Some(tcp_pages),
        need: tcp_pages,
        why: "3/32 of memory, the kernel's default at boot (net/ipv4/tcp.c)",
    },
    Rule {
        limit: "net.ipv4.udp_mem[3]",
        boot: Some(udp_pages),
        need: udp_pages,
        why: "3/16 of memory, the kernel's default at boot (net/ipv4/udp.c)",
    },
    Rule {
        limit: "net.ipv4.ip_local_port_range",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN * 2).clamp(28_232, 64_512),
        why: "for each of 8 tasks a CPU a connection to one server, and one in TIME_WAIT",
    },
    Rule {
        limit: "net.ipv4.neigh.default.gc_thresh3",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(1024),
        why: "a container with an address of its own for each of 8 tasks a CPU",
    },
    Rule {
        limit: "net.ipv6.neigh.default.gc_thresh3",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(1024),
        why: "a container with an address of its own for each of 8 tasks a CPU",
    },
    Rule {
        limit: "net.netfilter.nf_conntrack_max",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_DEFAULT),
        why: "a connection for each of the 1024 tasks a CPU that pid_max allows for",
    },
    Rule {
        limit: "kernel.shmmax",
        boot: None,
        need: |m| m.size.memory,
        why: "a segment may be all of memory (a database's buffer)",
    },
    Rule {
        limit: "kernel.shmall",
        boot: None,
        need: |m| m.size.memory / m.size.page.max(1),
        why: "all segments together may be all of memory",
    },
    Rule {
        limit: "kernel.shmmni",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).clamp(4096, 32_768),
        why: "a segment for each of 8 tasks a CPU, IPCMNI (32 Ki) at most",
    },
    Rule {
        limit: "kernel.keys.maxkeys",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(200),
        why: "a session's key for each of 8 tasks a CPU (a container has one)",
    },
    Rule {
        limit: "kernel.keys.maxbytes",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(200) * 100,
        why: "100 bytes for each key, the kernel's proportion (security/keys/key.c)",
    },
    Rule {
        limit: "kernel.pty.max",
        boot: None,
        need: |m| a_cpu(m, PIDS_PER_CPU_MIN).max(4096),
        why: "a terminal for each of 8 tasks a CPU",
    },
    Rule {
        limit: "Dentry cache hash",
        boot: Some(dentries),
        need: dentries,
        why: "an entry for 8 KiB of memory, fewer above 64 GiB: the kernel's default (fs/dcache.c, mm/mm_init.c)",
    },
    Rule {
        limit: "Inode-cache hash",
        boot: Some(inodes),
        need: inodes,
        why: "an entry for 16 KiB of memory, fewer above 64 GiB: the kernel's default (fs/inode.c, mm/mm_init.c)",
    },
    Rule {
        limit: "Mount-cache hash",
        boot: Some(mounts),
        need: mounts,
        why: "an entry for 512 KiB of memory, fewer above 64 GiB: the kernel's default (fs/namespace.c)",
    },
    Rule {
        limit: "Mountpoint-cache hash",
        boot: Some(mounts),
        need: mounts,
        why: "an entry for 512 KiB of memory, fewer above 64 GiB: the kernel's default (fs/namespace.c)",
    },
    Rule {
        limit: "futex hash",
        boot: Some(futexes),
        need: futexes,
        why: "256 for each possible CPU, on each node its part (kernel/futex/core.c)",
    },
    Rule {
        limit: "posixtimers hash",
        boot: Some(posix_timers),
        need: posix_timers,
        why: "512 for each possible CPU (kernel/time/posix-timers.c)",
    },
    Rule {
        limit: "TCP established hash",
        boot: Some(established),
        need: |m| established(m).max(a_cpu(m, 256).next_power_of_two()),
        why: "an entry for 128 KiB of memory (net/ipv4/tcp.c stops at 512 Ki), and 256 a CPU as the futex hash has",
    },
    Rule {
        limit: "UDP hash",
        boot: Some(udp),
        need: udp,
        why: "an entry for 2 MiB of memory, 64 Ki at most: the kernel's default (net/ipv4/udp.c)",
    },
    Rule {
        limit: "rcutree.jiffies_till_first_fqs",
        boot: Some(first_fqs),
        need: first_fqs,
        why: "1, 2 or 3 by HZ, and 1 for every 256 CPUs: the kernel's default (kernel/rcu/tree.c)",
    },
];

/// `inotify_user_setup`: 1 % of memory; a watch costs two inodes and a mark, 1.3 KiB.
fn inotify_watches(m: Machine) -> u64 {
    (m.size.memory / 100 / 1313).clamp(8192, 1 << 20)
}

/// `eventpoll_init`: 4 % of memory; a watch costs `EP_ITEM_COST`, 184 bytes.
fn epoll_watches(m: Machine) -> u64 {
    m.size.memory / 25 / 184
}

/// The rule of a limit.
pub(super) fn of(limit: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.limit == limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: u64, memory: u64, nodes: u64) -> Machine {
        Machine { size: Size { cpus, memory, nodes, page: 4096 }, hz: Some(250) }
    }

    /// A machine of 2 CPUs and 24 GiB, Linux 6.18: what its kernel said at boot.
    #[test]
    fn a_real_machines_boot() {
        let m = machine(2, 24_731_708 << 10, 1);
        assert_eq!(pid_max(m), 32_768);
        assert_eq!((established(m), futexes(m), posix_timers(m)), (262_144, 512, 1024));
        assert_eq!(syn_backlog(m), 2048);
        assert_eq!(mounts(m), 65_536);
        assert_eq!(udp(m), 16_384);
        // Limits that follow memory are estimated from MemTotal, a little less than the kernel saw when it set them.
        for (ours, kernels) in [
            (threads_max(m), 193_102),
            (file_max(m), 2_470_938),
            (tcp_pages(m), 576_918),
            (inotify_watches(m), 192_908),
            (epoll_watches(m), 5_502_130),
            (unfragmented(m), 67_584),
        ] {
            let ratio = ours as f64 / kernels as f64;
            assert!((0.98..1.02).contains(&ratio), "{ours} against {kernels}");
        }
    }

    #[test]
    fn the_blogs_machine() {
        // M5-32: 1536 CPUs, 32 TB. Solaris 10's pidmax of 30000 left 20 processes a CPU.
        let m = machine(1536, 32 << 40, 32);
        assert_eq!(30_000 / 1536, 19);
        assert_eq!(pid_max(m) / 1536, 1024);
        assert_eq!(dentries(m), 1 << 27);
        assert_eq!(established(m), 512 << 10);
        assert_eq!(first_fqs(m), 7);
    }

    #[test]
    fn no_size_overflows() {
        for cpus in [1, 2, 8192, u64::MAX] {
            for memory in [0, 1, 1 << 20, 1 << 50, u64::MAX] {
                for page in [4096, 65_536] {
                    let m =
                        Machine { size: Size { cpus: cpus.min(1 << 40), memory, nodes: 1, page }, hz: None };
                    for rule in RULES {
                        let need = (rule.need)(m);
                        let boot = rule.boot.map_or(0, |b| b(m));
                        assert!(need > 0 || memory == 0 || memory < page * 32, "{} {boot}", rule.limit);
                    }
                }
            }
        }
    }

    #[test]
    fn every_limit_has_one_rule() {
        let mut names: Vec<_> = RULES.iter().map(|r| r.limit).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}

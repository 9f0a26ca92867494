//! Whole trees: a small machine with both versions of cgroups, a bare one, and the gathered ones.

use std::fs;
use std::path::Path;

use super::*;
use ncpu_machine_trees::generate::{Shape, write};
use ncpu_machine_trees::{self as trees, put};

fn reading<'a>(l: &'a Limits, limit: &str, scope: &Scope) -> &'a Reading {
    let found = l.readings.iter().find(|r| r.limit == limit && r.scope == *scope);
    found.unwrap_or_else(|| panic!("no {limit} of {scope:?}"))
}

fn cgroup(path: &str) -> Scope {
    Scope::Cgroup(path.into())
}

const MOUNTS: &str = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
    cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
    cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";

/// 8 CPUs, 2 nodes, hybrid cgroups, three processes.
fn machine(root: &Path) {
    write(root, &Shape { nodes: 2, cores: 4, threads: 1 }).unwrap();
    put(root, "proc/meminfo", "MemTotal:       67108864 kB\nCommitted_AS: 900 kB\nCommitLimit: 1000 kB\n");
    put(root, "proc/mounts", MOUNTS);
    put(root, "proc/loadavg", "0.1 0.2 0.3 4/30000 99\n");
    put(root, "proc/sys/kernel/pid_max", "32768\n");
    put(root, "proc/sys/vm/overcommit_memory", "2\n");
    put(root, "proc/sys/fs/file-nr", "7\t0\t100\n");
    put(root, "proc/sys/fs/file-max", "100\n");
    put(root, "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    put(root, "proc/sys/kernel/sem", "32000\t1024000000\t500\t32000\n");
    put(root, "proc/sysvipc/sem", "key semid perms nsems\n 0 1 600 250\n 0 2 600 3\n");
    put(
        root,
        "proc/net/tcp",
        "  sl  local_address rem_address   st tx_queue rx_queue\n\
         \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000 0 0 1 1\n\
         \x20  1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 0 0 1 1\n",
    );
    put(root, "proc/net/netstat", "TcpExt: A ListenOverflows TCPReqQFullDrop\nTcpExt: 1 7 5\n");
    put(root, "proc/net/softnet_stat", "0001 0000000a 0\n0001 00000001 0\n");
    put(root, "proc/sys/net/core/somaxconn", "128\n");
    put(root, "proc/sys/net/core/netdev_max_backlog", "1000\n");
    put(root, "proc/pressure/cpu", "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\n");
    put(root, "proc/cmdline", "ro isolcpus=2-3 dhash_entries=1024 -- hugepages=9\n");
    put(
        root,
        "var/log/dmesg",
        "[ 0.1] Dentry cache hash table entries: 1024 (order: 1, 8192 bytes, linear)\n",
    );
    put(root, "proc/sys/fs/dentry-state", "5000 4000 45 0 9 0\n");
    let pool = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
    for (file, n) in [("nr_hugepages", 10), ("free_hugepages", 4), ("surplus_hugepages", 1)] {
        put(root, format!("{pool}/{file}"), &format!("{n}\n"));
    }

    let unified = "sys/fs/cgroup/unified";
    put(root, format!("{unified}/cgroup.controllers"), "pids\n");
    for (group, max, current, events) in [
        ("a", "100", "40", "max 0"),
        ("a/b", "500", "40", "max 3"),
        ("a/b/c", "max", "1", "max 0"),
        ("d", "10", "1", ""),
    ] {
        let dir = format!("{unified}/{group}");
        put(root, format!("{dir}/pids.max"), &format!("{max}\n"));
        put(root, format!("{dir}/pids.current"), &format!("{current}\n"));
        put(root, format!("{dir}/pids.peak"), "60\n");
        put(root, format!("{dir}/pids.events"), &format!("{events}\n"));
    }
    put(root, format!("{unified}/a/memory.pressure"), "some avg10=9.00 avg60=9.00 avg300=9.00 total=1\n");

    let cpu = "sys/fs/cgroup/cpu,cpuacct";
    put(root, format!("{cpu}/cpu.cfs_quota_us"), "-1\n");
    put(root, format!("{cpu}/cpu.cfs_period_us"), "100000\n");
    put(root, format!("{cpu}/job/cpu.cfs_quota_us"), "200000\n");
    put(root, format!("{cpu}/job/cpu.cfs_period_us"), "100000\n");
    put(root, format!("{cpu}/job/cpu.stat"), "nr_periods 100\nnr_throttled 50\nthrottled_time 10000000000\n");
    put(root, format!("{cpu}/job/cpuacct.usage"), "20000000000\n");

    let memory = "sys/fs/cgroup/memory";
    put(root, format!("{memory}/memory.limit_in_bytes"), "9223372036854771712\n");
    put(root, format!("{memory}/job/memory.limit_in_bytes"), "1073741824\n");
    put(root, format!("{memory}/job/memory.usage_in_bytes"), "1000000000\n");
    put(root, format!("{memory}/job/memory.max_usage_in_bytes"), "1073741824\n");
    put(root, format!("{memory}/job/memory.failcnt"), "12\n");

    for (pid, uid, files, soft) in [(10, 0, 3, 1024), (11, 7, 5, 1024), (12, 7, 9, 10)] {
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max processes             40                   unlimited            processes \n\
             Max open files            {soft:<20} 4096                 files     \n"
        );
        let status = format!(
            "Name:\tp{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmSize:\t 100 kB\nVmLck:\t 0 kB\nThreads:\t20\n"
        );
        put(root, format!("proc/{pid}/limits"), &limits);
        put(root, format!("proc/{pid}/status"), &status);
        put(root, format!("proc/{pid}/maps"), &"00-01 r--p 00 00:00 0\n".repeat(pid as usize));
        fs::create_dir_all(root.join(format!("proc/{pid}/fd"))).unwrap();
        for fd in 0..files {
            let target = if fd == 1 { "anon_inode:inotify" } else { "/dev/null" };
            std::os::unix::fs::symlink(target, root.join(format!("proc/{pid}/fd/{fd}"))).unwrap();
        }
        put(root, format!("proc/{pid}/fdinfo/1"), "pos: 0\ninotify wd:1\ninotify wd:2\n");
    }
    // A process that is ending.
    fs::create_dir_all(root.join("proc/13")).unwrap();
    put(root, "proc/13/status", "Name:\tgone\n");
}

#[test]
fn a_machine_and_its_use() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let l = Limits::read(dir.path()).unwrap();
    assert_eq!((l.size.cpus, l.size.memory, l.size.nodes), (8, 64 << 30, 2));
    let machine = |limit: &str| reading(&l, limit, &Scope::Machine);
    assert_eq!(machine("kernel.pid_max").used, Some(30_000));
    assert_eq!(machine("fs.file-max").used, Some(7));
    assert_eq!(machine("net.core.somaxconn").hits, Some(7));
    assert_eq!(machine("net.core.netdev_max_backlog").hits, Some(11));
    assert_eq!(machine("kernel.sem[4]").used, Some(2));
    assert_eq!(machine("kernel.sem[2]").used, Some(253));
    let ports = machine("net.ipv4.ip_local_port_range");
    assert_eq!((ports.value, ports.used), (Some(28_232), Some(1)));
    let commit = machine("vm.overcommit_memory");
    assert_eq!((commit.value, commit.used), (Some(1000), Some(900)));
    let dentries = machine("Dentry cache hash");
    assert_eq!((dentries.value, dentries.used), (Some(1024), Some(5000)));
    let listener = reading(&l, "listen backlog", &Scope::Listener("127.0.0.1:8080".into()));
    assert_eq!((listener.used, listener.value), (Some(3), None));
    let pool = reading(&l, "huge pages of 2 MiB", &Scope::Node(1));
    assert_eq!((pool.value, pool.used), (Some(10), Some(6)));
    assert_eq!(
        l.pressure.iter().map(|p| (p.cgroup.as_deref(), p.total_us)).collect::<Vec<_>>(),
        [(None, 4_000_000), (Some("/a"), 1)]
    );
    assert!(l.settings.iter().any(|s| s.name == "isolcpus" && s.value == "2-3"));
    assert!(!l.settings.iter().any(|s| s.name == "hugepages"), "arguments after -- belong to init");
    assert!(l.unread.iter().any(|u| u.starts_with("sizes of hash tables not found")), "{:?}", l.unread);
}

#[test]
fn the_tightest_of_a_chain_of_groups_wins() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let l = Limits::read(dir.path()).unwrap();
    let b = reading(&l, "pids.max", &cgroup("/a/b"));
    assert_eq!((b.value, b.used, b.peak, b.hits), (Some(500), Some(40), Some(60), Some(3)));
    assert_eq!(b.note.as_deref(), Some("/a above allows only 100"));
    assert_eq!(reading(&l, "pids.max", &cgroup("/a")).note, None);
    assert!(!l.readings.iter().any(|r| r.scope == cgroup("/a/b/c")), "it has no limit of its own");
    let cpu = reading(&l, "cpu.cfs_quota_us", &cgroup("/job"));
    // 20 s ran and 10 s were throttled in 100 periods of 0.1 s: 3 CPUs would have been enough.
    assert_eq!((cpu.value, cpu.hits, cpu.enough), (Some(2000), Some(50), Some(3000)));
    let memory = reading(&l, "memory.limit_in_bytes", &cgroup("/job"));
    assert_eq!((memory.peak, memory.hits), (Some(1 << 30), Some(12)));
    assert!(!l.readings.iter().any(|r| r.limit == "memory.limit_in_bytes" && r.scope == cgroup("/")));
}

#[test]
fn processes_and_what_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let l = Limits::read(dir.path()).unwrap();
    let of = |pid: u32| Scope::Process { pid, comm: format!("p{pid}") };
    let near = reading(&l, "RLIMIT_NOFILE", &of(12));
    assert_eq!((near.value, near.used, near.note.as_deref()), (Some(10), Some(9), Some("hard limit 4096")));
    let rest = reading(&l, "RLIMIT_NOFILE", &of(11));
    assert_eq!((rest.value, rest.used), (Some(1024), Some(5)));
    assert!(rest.note.as_deref().unwrap().starts_with("the fullest of 2 processes"));
    // 40 threads of user 7 at a limit of 40: both its processes are near; root is exempt.
    let nproc: Vec<_> = l.readings.iter().filter(|r| r.limit == "RLIMIT_NPROC").map(|r| r.used).collect();
    assert_eq!(nproc, [Some(40), Some(40)]);
    let watches = |limit: &str| l.readings.iter().find(|r| r.limit == limit);
    assert!(watches("fs.inotify.max_user_watches").is_none(), "no such file in this tree");
    put(dir.path(), "proc/sys/fs/inotify/max_user_watches", "100\n");
    put(dir.path(), "proc/sys/vm/max_map_count", "65530\n");
    let l = Limits::read(dir.path()).unwrap();
    assert_eq!(reading(&l, "fs.inotify.max_user_watches", &Scope::User(7)).used, Some(4));
    assert_eq!(reading(&l, "vm.max_map_count", &of(12)).used, Some(12));
}

#[test]
fn a_bare_tree_has_its_gaps_told() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &Shape { nodes: 1, cores: 2, threads: 1 }).unwrap();
    let l = Limits::read(dir.path()).unwrap();
    assert!(l.unread.iter().any(|u| u.contains("boot log")), "{:?}", l.unread);
    assert!(l.unread.iter().any(|u| u.contains("CONFIG_PSI")), "{:?}", l.unread);
}

#[test]
fn hostile_files_are_borne_with() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path());
    let mut names = Vec::new();
    let mut dirs = vec![dir.path().to_path_buf()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            match entry.file_type().unwrap() {
                t if t.is_dir() => dirs.push(entry.path()),
                t if t.is_file() => names.push(entry.path()),
                _ => {}
            }
        }
    }
    for text in [
        "",
        "max",
        "-1",
        "18446744073709551615 18446744073709551615 18446744073709551615",
        "\u{0}\u{7f} : / ,",
    ] {
        for name in names
            .iter()
            .filter(|n| !n.to_string_lossy().contains("/system/cpu/") && !n.ends_with("proc/mounts"))
        {
            fs::write(name, text).unwrap();
        }
        if let Ok(l) = Limits::read(dir.path()) {
            assert!(l.readings.iter().all(|r| !r.limit.is_empty()));
        }
    }
}

#[test]
fn the_gathered_machines() {
    let dir = tempfile::tempdir().unwrap();
    for machine in trees::machines() {
        let root = trees::unpack(&machine, dir.path());
        let l = Limits::read(&root).unwrap_or_else(|e| panic!("{}: {e}", machine.display()));
        assert!(l.size.cpus >= 2, "{}", machine.display());
    }
}

#[test]
fn this_machine() {
    let l = Limits::read(Path::new("/")).unwrap();
    let pid_max = reading(&l, "kernel.pid_max", &Scope::Machine);
    assert!(pid_max.used.is_some_and(|n| n >= 1) && pid_max.used < pid_max.value);
    assert!(l.readings.iter().any(|r| r.limit == "RLIMIT_NOFILE"), "this process has a limit and open files");
}

//! Processes, shared segments and mounts in /proc, below any root directory. A process may end at any
//! moment: files that can no longer be read are left out.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ncpu_files::reader::process_text;
use ncpu_machine::CpuSet;
use ncpu_machine::numa_maps::{self, Mapping, Policy, unescape};
use ncpu_machine::process::{self, Fields};

/// The /proc of a machine.
pub struct Proc {
    root: PathBuf,
}

/// Of `/proc/PID/stat`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// The process's name.
    pub name: String,
    /// Its parent.
    pub parent: u32,
    /// Threads.
    pub threads: u64,
    /// Resident pages of 4 KiB or what the architecture has.
    pub rss: u64,
    /// CPU it last ran on.
    pub cpu: u32,
    /// User and system time in clock ticks.
    pub ticks: u64,
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address and the one behind the last.
    pub range: (u64, u64),
    /// Mapped shared, not private.
    pub shared: bool,
    /// May be executed.
    pub code: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file's device, major << 32 | minor.
    pub device: u64,
    /// The file's inode; 0 for none.
    pub inode: u64,
    /// Its name.
    pub name: String,
}

/// A line of `/proc/sysvipc/shm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysvSegment {
    /// Its id, which is also its inode.
    pub id: u64,
    /// Its key.
    pub key: i64,
    /// Bytes.
    pub size: u64,
    /// Attachments.
    pub attached: u64,
    /// Bytes resident; before Linux 2.6.37 not told.
    pub resident: Option<u64>,
}

/// A mount of tmpfs or hugetlbfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device, major << 32 | minor.
    pub device: u64,
    /// Where.
    pub dir: String,
    /// `tmpfs` or `hugetlbfs`.
    pub kind: String,
    /// The option `mpol=`.
    pub policy: Option<Policy>,
}

impl Proc {
    /// The /proc below `root`.
    pub fn new(root: &Path) -> Proc {
        Proc { root: root.join("proc") }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        process::read(&self.root.join(name))
    }

    fn text(&self, name: &str) -> Option<String> {
        self.read(name).ok().map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    /// Every process.
    pub fn pids(&self) -> Vec<u32> {
        process::pids(&self.root).unwrap_or_default()
    }

    /// A process's threads.
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        process::threads(&self.root.join(pid.to_string()))
    }

    /// `/proc/PID/stat`.
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        stat(&self.read(&format!("{pid}/stat")).ok()?)
    }

    /// The CPU a thread was last on and the ns it has run (schedstat, else clock ticks).
    pub fn thread_time(&self, pid: u32, tid: u32) -> Option<(u32, u64)> {
        let dir = format!("{pid}/task/{tid}");
        let stat = stat(&self.read(&format!("{dir}/stat")).ok()?)?;
        let exact = self
            .text(&format!("{dir}/schedstat"))
            .and_then(|t| t.split_ascii_whitespace().next()?.parse::<u64>().ok());
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Some((stat.cpu, exact.unwrap_or(stat.ticks.saturating_mul(1_000_000_000 / ticks))))
    }

    /// Nodes a process may take memory from, by its cpuset (`Mems_allowed_list` of its status).
    pub fn mems_allowed(&self, pid: u32) -> Option<CpuSet> {
        let status = self.read(&format!("{pid}/status")).ok()?;
        let list = Fields(&status).get("Mems_allowed_list")?;
        CpuSet::parse_list(list).ok()
    }

    /// Bytes of a process in transparent huge pages: anonymous and of shared memory. Walks its page
    /// tables once more.
    pub fn huge_bytes(&self, pid: u32) -> Option<u64> {
        let text = process_text(&self.root.join(pid.to_string()), pid, "smaps_rollup").ok()?;
        let fields = Fields(&text);
        fields.bytes("AnonHugePages")?.checked_add(fields.bytes("ShmemPmdMapped").unwrap_or(0))
    }

    /// `/proc/PID/numa_maps`. Walks all page tables of the process under its mmap_lock, mapping by
    /// mapping.
    ///
    /// # Errors
    /// The process is another user's, or has ended, or the kernel is built without CONFIG_NUMA.
    pub fn numa_maps(&self, pid: u32) -> io::Result<Vec<Mapping>> {
        Ok(numa_maps::parse(&process_text(&self.root.join(pid.to_string()), pid, "numa_maps")?))
    }

    /// `/proc/PID/maps`.
    pub fn maps(&self, pid: u32) -> Vec<Region> {
        let text = process_text(&self.root.join(pid.to_string()), pid, "maps").unwrap_or_default();
        process::mappings(&text).map(region).collect()
    }

    /// The cgroups of a process, in every hierarchy: paths below their mounts.
    pub fn cgroups(&self, pid: u32) -> Vec<String> {
        let text = self.text(&format!("{pid}/cgroup")).unwrap_or_default();
        text.lines().filter_map(|l| Some(l.splitn(3, ':').nth(2)?.to_string())).collect()
    }

    /// Mounts of tmpfs and hugetlbfs that a process sees (`None`: this one).
    pub fn mounts(&self, pid: Option<u32>) -> Vec<Mount> {
        let name = pid.map_or("self/mountinfo".to_string(), |p| format!("{p}/mountinfo"));
        self.text(&name).unwrap_or_default().lines().filter_map(mount).collect()
    }

    /// SysV shared memory of this process's IPC namespace.
    pub fn sysv(&self) -> Vec<SysvSegment> {
        sysv(&self.text("sysvipc/shm").unwrap_or_default())
    }

    /// Counters of /proc/vmstat whose names begin with `numa_`, and migrations.
    pub fn vmstat(&self) -> HashMap<String, u64> {
        let text = self.text("vmstat").unwrap_or_default();
        let wanted = |name: &str| name.starts_with("numa_") || name.starts_with("pgmigrate_");
        text.lines()
            .filter_map(|l| l.split_once(' '))
            .filter(|(name, _)| wanted(name))
            .filter_map(|(name, n)| Some((name.to_string(), n.trim().parse().ok()?)))
            .collect()
    }

    /// A file of /proc/sys as one trimmed line.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        Some(self.text(&format!("sys/{name}"))?.trim().to_string())
    }

    /// The kernel's command line.
    pub fn cmdline(&self) -> String {
        self.text("cmdline").unwrap_or_default()
    }

    /// Hint faults of a thread by the node of the memory, where NUMA balancing counts them
    /// (`numa_faults` of /proc/PID/task/TID/sched).
    pub fn hint_faults(&self, pid: u32, tid: u32) -> Vec<(u32, u64)> {
        hint_faults(&self.text(&format!("{pid}/task/{tid}/sched")).unwrap_or_default())
    }

    /// The name under which a mapped file can be opened even if it was deleted.
    pub fn map_file(&self, pid: u32, range: (u64, u64)) -> PathBuf {
        self.root.join(format!("{pid}/map_files/{:x}-{:x}", range.0, range.1))
    }
}

/// Of `/proc/PID/stat`.
fn stat(text: &[u8]) -> Option<Stat> {
    let stat = process::Stat::parse(text)?;
    let [user, system, ..] = stat.times()?;
    Some(Stat {
        name: stat.name().chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        parent: stat.parent()?,
        threads: stat.threads()?,
        rss: stat.resident()?,
        cpu: stat.cpu()?,
        ticks: user.saturating_add(system),
    })
}

fn device(text: &str, radix: u32) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let part = |t: &str| u32::from_str_radix(t, radix).ok().map(u64::from);
    Some(part(major)? << 32 | part(minor)?)
}

fn region(m: process::Mapping) -> Region {
    Region {
        range: (m.start, m.end),
        shared: m.shared,
        code: m.execute,
        offset: m.offset,
        device: u64::from(m.device.0) << 32 | u64::from(m.device.1),
        inode: m.inode,
        name: String::from_utf8_lossy(&process::Mapping::plain(m.name)).into_owned(),
    }
}

fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let (dev, _root, dir) = (left.next()?, left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
    if kind != "tmpfs" && kind != "hugetlbfs" {
        return None;
    }
    // A list of nodes has commas of its own: mpol=bind:0,2,size=...
    let policy = options.split_once("mpol=").map(|(_, p)| {
        let end = p
            .match_indices(',')
            .map(|(at, _)| at)
            .find(|&at| !p[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
            .unwrap_or(p.len());
        Policy::parse(&p[..end])
    });
    Some(Mount { device: device(dev, 10)?, dir: unescape(dir), kind: kind.into(), policy })
}

fn sysv(text: &str) -> Vec<SysvSegment> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or("").split_ascii_whitespace().collect();
    let at = |name: &str| head.iter().position(|h| *h == name);
    let (Some(key), Some(id), Some(size), Some(nattch)) = (at("key"), at("shmid"), at("size"), at("nattch"))
    else {
        return Vec::new();
    };
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let number = |at: usize| words.get(at)?.parse::<u64>().ok();
            Some(SysvSegment {
                id: number(id)?,
                key: words.get(key)?.parse().ok()?,
                size: number(size)?,
                attached: number(nattch)?,
                resident: at("rss").and_then(number),
            })
        })
        .collect()
}

/// Lines `numa_faults node=0 task_private=1 task_shared=2 group_private=3 group_shared=4`.
fn hint_faults(text: &str) -> Vec<(u32, u64)> {
    text.lines()
        .filter_map(|l| l.strip_prefix("numa_faults "))
        .filter_map(|l| {
            let value = |key: &str| {
                l.split_ascii_whitespace()
                    .find_map(|w| w.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok())
            };
            let node = u32::try_from(value("node")?).ok().filter(|n| *n <= numa_maps::MAX_NODE)?;
            Some((node, value("task_private")?.saturating_add(value("task_shared")?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_process_is_read() {
        let proc = Proc::new(Path::new("/"));
        let me = std::process::id();
        let stat = proc.stat(me).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
        assert!(proc.pids().contains(&me) && proc.threads(me).contains(&me));
        assert!(proc.maps(me).iter().any(|r| r.name == "[stack]"));
        assert!(proc.thread_time(me, me).is_some());
        // Kernels built without CONFIG_NUMA have no such file.
        if let Ok(maps) = proc.numa_maps(me) {
            assert!(maps.iter().any(|m| m.what == numa_maps::What::Stack && m.bytes() > 0));
        }
        assert!(proc.stat(u32::MAX).is_none() && proc.maps(u32::MAX).is_empty());
    }

    #[test]
    fn names_with_anything_in_them() {
        let text = format!("7 (a) R (b\n) S 1 {}", "9 ".repeat(49));
        let stat = stat(text.as_bytes()).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.cpu, stat.ticks), ("a) R (b?", 1, 9, 18));
        let line = b"7f00-7f10 rw-s 00001000 00:01 32769      /SYSV00000000 (deleted)";
        let r = process::mappings(line).map(region).next().unwrap();
        assert_eq!((r.inode, r.shared, r.name.as_str()), (32769, true, "/SYSV00000000 (deleted)"));
    }

    #[test]
    fn mount_options() {
        let line = |o: &str| format!("36 25 0:30 / /dev/shm\\040x rw,nosuid shared:3 - tmpfs tmpfs {o}");
        let of = |o: &str| mount(&line(o)).unwrap().policy.map(|p| (p.text, p.nodes.to_list()));
        assert_eq!(of("rw,size=1k"), None);
        assert_eq!(of("rw,mpol=bind:0,2,inode64"), Some(("bind:0,2".into(), "0,2".into())));
        assert_eq!(of("rw,mpol=interleave:0-7"), Some(("interleave:0-7".into(), "0-7".into())));
        assert_eq!(of("rw,mpol=prefer=static:1,size=9k").unwrap().0, "prefer=static:1");
        assert_eq!(mount(&line("rw")).unwrap().dir, "/dev/shm x");
        assert!(mount("36 25 0:30 / / rw - ext4 /dev/sda rw").is_none());
    }

    #[test]
    fn segments_of_sysv() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n 1938033652    1179653   660             5773459456  1 2 35 54 5 54 5 1 2 3 5773459456 0\n bad\n";
        let found = sysv(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id, found[0].attached, found[0].resident), (1179653, 35, Some(5773459456)));
        assert!(sysv("").is_empty());
    }

    #[test]
    fn faults_by_node() {
        let text = "x (1, #threads: 1)\nnuma_faults node=0 task_private=3 task_shared=4 group_private=0 group_shared=0\nnuma_faults node=9999999 task_private=1 task_shared=1\n";
        assert_eq!(hint_faults(text), [(0, 7)]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", line in "[0-9a-f:,\\-( )=Nn\\\\.]{0,120}") {
            for t in [&text, &line] {
                let _ = (stat(t.as_bytes()), mount(t), sysv(t), hint_faults(t), unescape(t));
                let _ = mount(&format!("1 2 0:3 / {t} rw - tmpfs {t} mpol={t}"));
            }
        }
    }
}

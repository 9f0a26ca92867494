//! The part of a process on huge pages, by object and size, and why the rest is not: from /proc/PID/smaps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ncpu_machine::process::{self, Fields};

/// The object that a mapping is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// `brk` and arenas of malloc.
    Heap,
    /// Private memory without a name.
    Anonymous,
    /// The main thread's stack.
    Stack,
    /// Executable parts of files.
    Text,
    /// Shared memory: System V, POSIX, memfd, shared anonymous.
    Shared,
    /// Other files.
    File,
}

impl Object {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Object::Heap => "heap",
            Object::Anonymous => "anonymous",
            Object::Stack => "stack",
            Object::Text => "text",
            Object::Shared => "shm",
            Object::File => "file",
        }
    }
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// `rwxp`.
    pub mode: String,
    /// The file or the name in brackets; empty for private memory.
    pub name: String,
    /// Bytes resident.
    pub resident: u64,
    /// Of those on huge pages of 2 MiB made by the kernel: anonymous, shared memory, files.
    pub thp: u64,
    /// Bytes on larger pages than the smallest that entries of those map; `None` where it is not known.
    pub larger: Option<u64>,
    /// Bytes of a pool (hugetlbfs).
    pub pool: u64,
    /// Size of a page of the pool.
    pub page: u64,
    /// Bytes that are the process's own, not shared with another.
    pub private: u64,
    /// The kernel may use huge pages here.
    pub eligible: bool,
    /// Huge pages were asked for (`MADV_HUGEPAGE`).
    pub asked: bool,
    /// Huge pages were forbidden (`MADV_NOHUGEPAGE`).
    pub forbidden: bool,
}

impl Mapping {
    /// Bytes in whole, aligned huge pages.
    pub fn fits(&self, huge: u64) -> u64 {
        (self.end / huge * huge).saturating_sub(self.start.next_multiple_of(huge))
    }

    /// The object that it is part of.
    pub fn object(&self) -> Object {
        let shared = self.mode.ends_with('s');
        let memory = ["/dev/zero", "/dev/shm/", "/SYSV", "/memfd:", "/anon_hugepage"];
        match self.name.as_str() {
            "" if shared => Object::Shared,
            "" => Object::Anonymous,
            "[heap]" => Object::Heap,
            "[stack]" => Object::Stack,
            name if name.starts_with("[anon:glibc: malloc") => Object::Heap,
            name if name.starts_with("[anon") => Object::Anonymous,
            name if memory.iter().any(|p| name.starts_with(p))
                && (shared || !name.starts_with("/memfd:")) =>
            {
                Object::Shared
            }
            _ if self.mode.contains('x') => Object::Text,
            _ => Object::File,
        }
    }
}

/// Reads a text as /proc/PID/smaps. A mapping cut short by the process's end counts with what there is of it.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    process::smaps(text).map(|(mapping, fields)| one(&mapping, fields)).collect()
}

fn one(m: &process::Mapping, fields: Fields) -> Mapping {
    let sum = |keys: &[&str]| keys.iter().filter_map(|key| fields.bytes(key)).fold(0, u64::saturating_add);
    let flag =
        |flag| fields.get("VmFlags").is_some_and(|all| all.split_ascii_whitespace().any(|f| f == flag));
    let mode = [(m.read, 'r'), (m.write, 'w'), (m.execute, 'x')];
    let mode = mode.iter().map(|&(has, letter)| if has { letter } else { '-' });
    Mapping {
        start: m.start,
        end: m.end,
        mode: mode.chain([if m.shared { 's' } else { 'p' }]).collect(),
        name: m.path().to_string_lossy().into_owned(),
        resident: sum(&["Rss"]),
        thp: sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]),
        larger: None,
        // Pages of a pool are not in Rss.
        pool: sum(&["Shared_Hugetlb", "Private_Hugetlb"]),
        page: sum(&["KernelPageSize"]),
        private: sum(&["Private_Clean", "Private_Dirty"]),
        eligible: fields.number("THPeligible") == Some(1),
        asked: flag("hg"),
        forbidden: flag("nh"),
    }
}

/// Settings of the machine for all processes, and limits of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Bytes of a huge page.
    pub huge: u64,
    /// `always`, `madvise` or `never`.
    pub enabled: String,
    /// The same for shared memory.
    pub shmem: String,
    /// The process has forbidden them to itself (`prctl`).
    pub off: bool,
    /// Free pieces of memory as large as a huge page, or larger.
    pub free: u64,
    /// The process's control group is at its memory limit: there is no room for a huge page.
    pub full: bool,
}

impl Allowed {
    /// Reads the settings and limits of a process.
    pub fn read(pid: u32) -> Allowed {
        let thp = "/sys/kernel/mm/transparent_hugepage";
        let setting = |name: &str| {
            let text = std::fs::read_to_string(format!("{thp}/{name}")).unwrap_or_default();
            crate::journal::chosen(&text).to_string()
        };
        let huge = setting("hpage_pmd_size").parse().unwrap_or(2 << 20);
        let status = process::read(format!("/proc/{pid}/status").as_ref()).unwrap_or_default();
        let buddies = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
        let pages = huge / ncpu_machine::page_size();
        Allowed {
            huge,
            enabled: setting("enabled"),
            shmem: setting("shmem_enabled"),
            off: Fields(&status).get("THP_enabled") == Some("0"),
            free: free_pieces(&buddies, pages.trailing_zeros() as usize),
            full: full(Path::new("/"), pid, huge),
        }
    }
}

/// Whether a control group that a process is in, or one above it, has less than a huge page left of its memory limit.
fn full(root: &Path, pid: u32, huge: u64) -> bool {
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let groups = std::fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).unwrap_or_default();
    groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        let (top, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            c if c.split(',').any(|c| c == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return false,
        };
        let top = root.join(top);
        let group = top.join(path.trim_start_matches('/'));
        group.ancestors().take_while(|dir| dir.starts_with(&top)).any(|dir| {
            let room = number(dir.join(limit)).zip(number(dir.join(used)));
            room.is_some_and(|(limit, used)| limit < used.saturating_add(huge))
        })
    })
}

/// Blocks of memory as large as a huge page that hold nothing but movable pages, of which compaction can make huge ones,
/// and all blocks: from /proc/pagetypeinfo, which is root's.
pub fn blocks(pagetypeinfo: &str) -> Option<(u64, u64)> {
    let mut lines = pagetypeinfo.lines().skip_while(|l| !l.starts_with("Number of blocks type"));
    let kinds: Vec<&str> = lines.next()?.split_ascii_whitespace().skip(4).collect();
    let movable = kinds.iter().position(|k| *k == "Movable")?;
    let (mut able, mut all) = (0, 0);
    for line in lines {
        // `Node 0, zone   Normal   12   345   6   0`
        let Some((_, rest)) = line.split_once("zone") else { break };
        let counts: Vec<u64> = rest.split_ascii_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
        able += counts.get(movable).copied().unwrap_or(0);
        all += counts.iter().sum::<u64>();
    }
    Some((able, all))
}

/// Free pieces of at least 2^order pages, counted in pieces of just that, from /proc/buddyinfo.
pub fn free_pieces(buddyinfo: &str, order: usize) -> u64 {
    let zone = |line: &str| {
        let counts = line.split_once("zone")?.1.split_ascii_whitespace().skip(1);
        let free = counts.enumerate().skip(order);
        Some(free.map(|(o, n)| n.parse::<u64>().unwrap_or(0) << (o - order)).sum::<u64>())
    };
    buddyinfo.lines().filter_map(zone).sum()
}

/// Why part of a mapping is not on huge pages; `None` if all of it is that could be.
pub fn why(mapping: &Mapping, allowed: &Allowed) -> Option<&'static str> {
    let fits = mapping.fits(allowed.huge);
    if mapping.pool > 0 || mapping.resident == 0 || mapping.thp >= mapping.resident.min(fits) && fits > 0 {
        return None;
    }
    if fits == 0 {
        return Some("holds no whole aligned huge page");
    }
    if allowed.off {
        return Some("the process has switched them off (prctl)");
    }
    if mapping.forbidden {
        return Some("the program has forbidden them (MADV_NOHUGEPAGE)");
    }
    let object = mapping.object();
    Some(match object {
        Object::Text | Object::File if !mapping.eligible => {
            "files get none; `ncpu hugepages -- CMD` gives text some"
        }
        Object::Shared if !mapping.eligible => "shared memory gets none (shmem_enabled)",
        _ if allowed.enabled == "never" => "switched off on this machine (transparent_hugepage/enabled)",
        _ if allowed.enabled == "madvise" && !mapping.asked => {
            "not asked for, and this machine gives them on request only"
        }
        _ if !mapping.eligible => "the kernel allows none here",
        _ if allowed.full => "its control group has no memory left for one (memory.max)",
        _ if allowed.free == 0 => {
            "memory is in pieces: no free block is large enough; --apply has the kernel make some"
        }
        _ => "made of small pages before, or touched in part; --apply puts them together",
    })
}

/// Sums over the mappings of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Mappings.
    pub mappings: u64,
    /// Bytes resident, pools included.
    pub resident: u64,
    /// On 2 MiB pages made by the kernel.
    pub thp: u64,
    /// On larger pages than the smallest that entries of those map; `None` where it is not known.
    pub larger: Option<u64>,
    /// On pages of a pool of 2 MiB or less.
    pub pool: u64,
    /// On pages of a pool of more, 1 GiB.
    pub giant: u64,
    /// Small pages that lie in whole aligned huge pages: what can be put together.
    pub could: u64,
    /// Bytes by reason.
    pub why: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Share on huge pages of any size, 0–1.
    pub fn share(&self) -> f64 {
        (self.thp + self.pool + self.giant) as f64 / (self.resident.max(1)) as f64
    }

    /// The reason that keeps most bytes from huge pages.
    pub fn reason(&self) -> Option<&'static str> {
        self.why.iter().max_by_key(|(_, bytes)| **bytes).map(|(why, _)| *why)
    }

    /// Adds a mapping.
    pub fn add(&mut self, mapping: &Mapping, allowed: &Allowed) {
        self.mappings += 1;
        self.resident += mapping.resident + mapping.pool;
        self.thp += mapping.thp;
        if let Some(larger) = mapping.larger {
            *self.larger.get_or_insert(0) += larger;
        }
        if mapping.page > allowed.huge {
            self.giant += mapping.pool;
        } else {
            self.pool += mapping.pool;
        }
        let small = mapping.resident.saturating_sub(mapping.thp);
        let anonymous = !matches!(mapping.object(), Object::Text | Object::File);
        if anonymous {
            self.could += small.min(mapping.fits(allowed.huge).saturating_sub(mapping.thp));
        }
        if small > 0
            && let Some(reason) = why(mapping, allowed)
        {
            *self.why.entry(reason).or_default() += small;
        }
    }
}

/// Coverage by object.
pub fn by_object(mappings: &[Mapping], allowed: &Allowed) -> BTreeMap<Object, Coverage> {
    let mut out: BTreeMap<Object, Coverage> = BTreeMap::new();
    for (i, mapping) in mappings.iter().enumerate() {
        let object = heap_or(mapping, mappings.get(i + 1));
        out.entry(object).or_default().add(mapping, allowed);
    }
    out.retain(|_, c| c.resident > 0);
    out
}

/// An arena of malloc: it begins at a multiple of 64 MiB, and what it has not used of these is mapped behind it without
/// access.
fn heap_or(mapping: &Mapping, next: Option<&Mapping>) -> Object {
    const ARENA: u64 = 64 << 20;
    let rest = |n: &Mapping| {
        n.start == mapping.end && n.mode.starts_with("---") && n.end == mapping.start.saturating_add(ARENA)
    };
    match mapping.object() {
        Object::Anonymous if mapping.start.is_multiple_of(ARENA) && next.is_some_and(rest) => Object::Heap,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: u64 = 2 << 20;

    const SMAPS: &str = "\
01000000-01a00000 rw-p 00000000 00:00 0                                  [heap]
Size:              10240 kB
KernelPageSize:        4 kB
Rss:                8192 kB
Private_Dirty:      8192 kB
AnonHugePages:      4096 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg 
02000000-02600000 r-xp 00001000 08:01 77                                 /bin/a b
Rss:                6144 kB
FilePmdMapped:         0 kB
THPeligible:           0
VmFlags: rd ex mr mw me 
7f0000100000-7f0000200000 rw-p 00000000 00:00 0                          [anon: x:y]
Rss:                1024 kB
THPeligible:           0
7f0040000000-7f0080000000 rw-s 00000000 00:0f 5                          /anon_hugepage (deleted)
Rss:                   0 kB
Private_Hugetlb: 1048576 kB
KernelPageSize:  1048576 kB
THPeligible:           0
";

    fn allowed(enabled: &str) -> Allowed {
        Allowed {
            huge: HUGE,
            enabled: enabled.into(),
            shmem: "never".into(),
            off: false,
            free: 5,
            full: false,
        }
    }

    #[test]
    fn mappings_are_read() {
        let all = parse(SMAPS.as_bytes());
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].resident, all[0].thp, all[0].asked), (8 << 20, 4 << 20, true));
        assert_eq!((all[1].name.as_str(), all[1].object()), ("/bin/a b", Object::Text));
        assert_eq!((all[2].object(), all[2].fits(HUGE)), (Object::Anonymous, 0));
        assert_eq!((all[3].pool, all[3].page, all[3].object()), (1 << 30, 1 << 30, Object::Shared));
        for cut in 0..SMAPS.len() {
            parse(&SMAPS.as_bytes()[..cut]);
        }
    }

    #[test]
    fn coverage_and_reasons() {
        let by = by_object(&parse(SMAPS.as_bytes()), &allowed("madvise"));
        let heap = &by[&Object::Heap];
        // Half is huge, and the rest could be; its ends are aligned.
        assert_eq!((heap.share(), heap.could), (0.5, 4 << 20));
        assert!(heap.reason().unwrap().contains("--apply"), "{heap:?}");
        assert!(by[&Object::Text].reason().unwrap().starts_with("files get none"));
        assert!(by[&Object::Anonymous].reason().unwrap().contains("no whole aligned"));
        assert_eq!((by[&Object::Shared].giant, by[&Object::Shared].share()), (1 << 30, 1.0));
        assert_eq!(by[&Object::Shared].reason(), None);
        let mapping = |f: &dyn Fn(&mut Mapping)| {
            let mut m = Mapping {
                start: 0,
                end: 8 << 20,
                mode: "rw-p".into(),
                resident: 8 << 20,
                eligible: true,
                ..Mapping::default()
            };
            f(&mut m);
            m
        };
        let reason = |m: &Mapping, a: &Allowed| why(m, a).unwrap_or("none");
        assert!(reason(&mapping(&|_| ()), &allowed("madvise")).contains("on request only"));
        assert!(reason(&mapping(&|m| m.forbidden = true), &allowed("always")).contains("NOHUGEPAGE"));
        assert!(reason(&mapping(&|_| ()), &allowed("never")).contains("switched off on this machine"));
        assert!(reason(&mapping(&|_| ()), &Allowed { off: true, ..allowed("always") }).contains("prctl"));
        assert!(
            reason(&mapping(&|_| ()), &Allowed { full: true, ..allowed("always") }).contains("memory.max")
        );
        assert!(reason(&mapping(&|_| ()), &Allowed { free: 0, ..allowed("always") }).contains("in pieces"));
        assert_eq!(reason(&mapping(&|m| m.thp = 8 << 20), &allowed("always")), "none");
    }

    #[test]
    fn an_arena_is_told_from_other_memory() {
        let map = |start, end, mode: &str| Mapping {
            start,
            end,
            mode: mode.into(),
            resident: 4096,
            ..Mapping::default()
        };
        let arena = 64 << 20;
        let all = [map(arena, arena + 8192, "rw-p"), map(arena + 8192, 2 * arena, "---p")];
        assert!(by_object(&all, &allowed("always")).contains_key(&Object::Heap));
        let other = [map(arena, 2 * arena, "rw-p"), map(2 * arena, 3 * arena, "---p")];
        assert!(!by_object(&other, &allowed("always")).contains_key(&Object::Heap));
    }

    #[test]
    fn a_group_at_its_limit_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| ncpu_machine_trees::put(dir.path(), file, text);
        put("proc/7/cgroup", "4:memory:/a/b\n0::/c\n");
        put("sys/fs/cgroup/c/memory.max", "max\n");
        put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10000000\n");
        put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5000000\n");
        assert!(!full(dir.path(), 7, HUGE) && !full(dir.path(), 8, HUGE));
        put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "9000000\n");
        assert!(full(dir.path(), 7, HUGE));
        put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5000000\n");
        put("sys/fs/cgroup/c/memory.max", "3000000\n");
        put("sys/fs/cgroup/c/memory.current", "2900000\n");
        assert!(full(dir.path(), 7, HUGE));
    }

    #[test]
    fn blocks_are_counted_by_what_they_hold() {
        let text = "Page block order: 9\nPages per block:  512\n\n\
                    Free pages count per migrate type at order       0      1 \n\
                    Node    0, zone      DMA, type    Unmovable      1      2 \n\n\
                    Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic \n\
                    Node 0, zone      DMA            3            5            0            0 \n\
                    Node 0, zone   Normal          100         2000           30            1 \n\n\
                    Number of mixed blocks    Unmovable      Movable \n\
                    Node 0, zone      DMA            9            9 \n";
        assert_eq!(blocks(text), Some((2005, 8 + 2131)));
        assert_eq!(blocks(""), None);
    }

    #[test]
    fn free_pieces_of_all_orders_count() {
        let text = "Node 0, zone      DMA      1      1      1      0      2      1      1      0      1      1      3 \n\
                    Node 0, zone   Normal      4      5      6      7      8      9     10     11     12     13     14 \n";
        assert_eq!(free_pieces(text, 9), 1 + 2 * 3 + 13 + 2 * 14);
        assert_eq!(free_pieces(text, 10), 3 + 14);
        assert_eq!(free_pieces("", 9), 0);
    }
}

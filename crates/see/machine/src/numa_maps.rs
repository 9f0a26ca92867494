//! `/proc/PID/numa_maps`: pages of each mapping by node, and its policy (fs/proc/task_mmu.c,
//! `show_numa_map`; the policy's words are mm/mempolicy.c's `mpol_to_str`).

use crate::{CpuSet, process};

/// A node number above this is treated as corrupt (`MAX_NUMNODES` is at most 1024).
pub const MAX_NODE: u32 = 4095;

/// The kind of placement that a policy requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// No policy: the node of the CPU that touches first.
    Default,
    /// The node of the CPU that touches first, requested explicitly.
    Local,
    /// One or several nodes; others when they are full.
    Prefer,
    /// These nodes and no other.
    Bind,
    /// Page by page over these nodes, by weight or evenly.
    Interleave,
    /// A word that this version does not know.
    Other,
}

/// A memory policy as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Policy {
    /// The kind of placement.
    pub mode: Mode,
    /// The nodes it names; empty for default and local.
    pub nodes: CpuSet,
    /// The kernel's words, as `interleave=static:0-3`.
    pub text: String,
}

impl Policy {
    /// Parses the words of numa_maps (`interleave:0-3`) or of a tmpfs mount option (`bind=static:1`).
    pub fn parse(text: &str) -> Policy {
        let (head, nodes) = text.split_once(':').unwrap_or((text, ""));
        let mode = match head.split('=').next().unwrap_or("").trim() {
            "default" => Mode::Default,
            "local" => Mode::Local,
            "prefer" | "prefer (many)" => Mode::Prefer,
            "bind" => Mode::Bind,
            "interleave" | "weighted interleave" => Mode::Interleave,
            _ => Mode::Other,
        };
        let nodes = CpuSet::parse_list(nodes).unwrap_or_default();
        Policy { mode, nodes, text: text.chars().filter(|c| !c.is_control()).take(200).collect() }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { mode: Mode::Default, nodes: CpuSet::new(), text: "default".into() }
    }
}

/// The object that a mapping maps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// A file, a shared memory segment or a device.
    File(String),
    /// The heap (`brk`).
    Heap,
    /// The main thread's stack.
    Stack,
    /// Private memory without a name.
    Anonymous,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Its effective policy: its own, otherwise its task's.
    pub policy: Policy,
    /// The mapped object.
    pub what: What,
    /// Whether it is of hugetlbfs.
    pub huge: bool,
    /// Page size in bytes as counted here. Transparent huge pages count as small ones.
    pub page: u64,
    /// Bytes by node, ascending; empty if no page is resident.
    pub nodes: Vec<(u32, u64)>,
}

impl Mapping {
    /// Resident bytes.
    pub fn bytes(&self) -> u64 {
        self.nodes.iter().fold(0, |sum, n| sum.saturating_add(n.1))
    }
}

/// Parses the file's lines. Malformed lines are left out, and so is a last one cut short by the process's
/// end.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&b| b == b'\n').filter_map(|l| line(&String::from_utf8_lossy(l))).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let (address, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(address, 16).ok()?;
    // Two policies consist of two words; each may have flags and nodes: "weighted interleave=static:0-1".
    let second = match rest {
        r if r.starts_with("weighted interleave") => "weighted ".len(),
        r if r.starts_with("prefer (many)") => "prefer ".len(),
        _ => 0,
    };
    let end = rest[second..].find(' ').map_or(rest.len(), |at| at + second);
    let policy = Policy::parse(&rest[..end]);
    let (mut what, mut huge, mut page, mut counts) = (What::Anonymous, false, 4096, Vec::new());
    for word in rest[end..].split_ascii_whitespace() {
        match word.split_once('=') {
            None if word == "heap" => what = What::Heap,
            None if word == "stack" => what = What::Stack,
            None if word == "huge" => huge = true,
            Some(("file", path)) => what = What::File(unescape(path)),
            Some(("kernelpagesize_kB", kb)) => page = kb.parse::<u64>().ok()?.checked_mul(1024)?,
            Some((key, n)) => {
                if let Some(node) = key.strip_prefix('N').and_then(|n| n.parse::<u32>().ok()) {
                    if node > MAX_NODE {
                        return None;
                    }
                    counts.push((node, n.parse::<u64>().ok()?));
                }
            }
            None => {}
        }
    }
    let mut nodes: Vec<(u32, u64)> = Vec::with_capacity(counts.len());
    for (node, pages) in counts {
        nodes.push((node, pages.checked_mul(page)?));
    }
    nodes.sort_unstable();
    Some(Mapping { start, policy, what, huge, page, nodes })
}

/// A path in which the kernel wrote blanks as `\040` and the like.
pub fn unescape(path: &str) -> String {
    String::from_utf8_lossy(&process::unescape(path.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_several_kernels() {
        let text = b"00400000 default file=/bin/true mapped=2 mapmax=3 active=0 N0=1 N3=1 kernelpagesize_kB=4\n\
            7f0000000000 interleave:0-3 file=/dev/shm/a\\040b dirty=8 N0=2 N1=2 N2=2 N3=2 kernelpagesize_kB=4\n\
            7f1000000000 weighted interleave:0-1 anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n\
            7f2000000000 prefer (many)=static:1,3 heap anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n\
            7f3000000000 bind=static|balancing:2 file=/SYSV00000000\\040(deleted) huge dirty=4 N2=4 kernelpagesize_kB=2048\n\
            7ffc00000000 local stack anon=2 dirty=2 N7=2 kernelpagesize_kB=4\n\
            7fff00000000 default\n\
            7fff10000000 default anon=1 N0=";
        let maps = parse(text);
        assert_eq!(maps.len(), 7, "{maps:#?}");
        assert_eq!(maps[0].nodes, [(0, 4096), (3, 4096)]);
        assert_eq!(maps[1].what, What::File("/dev/shm/a b".into()));
        let modes: Vec<_> = maps.iter().map(|m| (m.policy.mode, m.policy.nodes.to_list())).collect();
        let want = [
            (Mode::Default, ""),
            (Mode::Interleave, "0-3"),
            (Mode::Interleave, "0-1"),
            (Mode::Prefer, "1,3"),
            (Mode::Bind, "2"),
            (Mode::Local, ""),
            (Mode::Default, ""),
        ];
        assert_eq!(modes, want.map(|(m, n)| (m, n.to_string())));
        assert!(maps[4].huge && maps[4].bytes() == 8 << 20);
        assert_eq!(maps[6].bytes(), 0);
    }

    #[test]
    fn damage_is_left_out() {
        for bad in [
            "xyz default N0=1",
            "1000 default N0=99999999999999999999",
            "1000 default N0=18446744073709551615 kernelpagesize_kB=4",
            "1000 default N999999=1",
            "1000 default kernelpagesize_kB=x",
            "",
            "1000",
        ] {
            assert_eq!(parse(bad.as_bytes()), [], "{bad}");
        }
        assert_eq!(unescape("a\\0"), "a\\0");
        assert_eq!(unescape("\\777\\101"), "\\777A");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }

        #[test]
        fn nothing_like_the_real_thing_panics(
            text in "([0-9a-f]{1,12} (default|prefer \\(many\\)|weighted interleave|bind:0-9|é)( (N[0-9]{1,3}|file|anon|kernelpagesize_kB)=[0-9a-zé\\\\]{0,22}| huge| heap)*\n){0,5}"
        ) {
            for m in parse(text.as_bytes()) {
                prop_assert!(m.nodes.iter().all(|n| n.0 <= MAX_NODE));
            }
        }

        #[test]
        fn what_is_written_is_read(
            start in any::<u64>(),
            pages in proptest::collection::btree_map(0u32..64, 1u64..1_000_000, 0..6),
        ) {
            let mut text = format!("{start:x} interleave:0-7 anon=1");
            for (node, n) in &pages {
                text += &format!(" N{node}={n}");
            }
            let maps = parse((text + " kernelpagesize_kB=4\n").as_bytes());
            let want: Vec<_> = pages.iter().map(|(n, p)| (*n, p * 4096)).collect();
            prop_assert_eq!(&maps[0].nodes, &want);
            prop_assert_eq!(maps[0].start, start);
        }
    }
}

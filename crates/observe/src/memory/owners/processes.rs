//! Memory by process: the sums that the kernel makes of each one's page tables.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ncpu_table::{Column, Kind, Table, Unit};

use crate::memory::exec::processes;

/// Keys of `/proc/PID/smaps_rollup`, their columns and meanings.
const FIELDS: [(&str, &[&str], &str); 7] = [
    ("pss", &["Pss"], "memory, that shared with others divided among them, hugetlb pages left out"),
    ("rss", &["Rss"], "memory in its page tables"),
    ("anon", &["Pss_Anon"], "of pss: anonymous"),
    ("file", &["Pss_File"], "of pss: files"),
    ("shared", &["Pss_Shmem"], "of pss: shared memory"),
    ("hugetlb", &["Shared_Hugetlb", "Private_Hugetlb"], "hugetlb pages mapped, shared ones not divided"),
    ("swap", &["SwapPss"], "swapped out, what is shared divided"),
];

struct Process {
    pid: u32,
    name: String,
    bytes: [u64; FIELDS.len()],
}

/// A row for each process, the largest first; and how many may not be looked at. One read a process, in
/// which the kernel walks its page tables huge page by huge page.
pub(super) fn table(proc: &Path, threads: usize, stop: &AtomicBool) -> io::Result<(Table, u64)> {
    let pids = processes(proc)?;
    let next = AtomicUsize::new(0);
    let found: Mutex<(Vec<Process>, u64)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(pids.len()).max(1) {
            scope.spawn(|| {
                while let Some(&pid) = pids.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let dir = proc.join(pid.to_string());
                    let text = match fs::read_to_string(dir.join("smaps_rollup")) {
                        Ok(text) => text,
                        // It ended meanwhile, or is a thread of the kernel.
                        Err(e) => {
                            let hidden = e.kind() == io::ErrorKind::PermissionDenied;
                            found.lock().unwrap_or_else(|e| e.into_inner()).1 += u64::from(hidden);
                            continue;
                        }
                    };
                    let Some(bytes) = parse(&text) else { continue };
                    let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
                    let process = Process { pid, name: name.trim_end().into(), bytes };
                    found.lock().unwrap_or_else(|e| e.into_inner()).0.push(process);
                }
            });
        }
    });
    let (mut all, hidden) = found.into_inner().unwrap_or_else(|e| e.into_inner());
    all.sort_by_key(|p| (std::cmp::Reverse(p.bytes[0].saturating_add(p.bytes[5])), p.pid));
    let mut columns = vec![Column::id("pid", "process"), Column::text("process", "its name")];
    columns.extend(FIELDS.map(|(name, _, meaning)| Column::int(name, Unit::Bytes, Kind::Gauge, meaning)));
    let mut rows = Table::builder("processes", &columns);
    for p in all {
        let row = rows.row().int(p.pid.into()).text(&p.name);
        p.bytes.iter().fold(row, |row, &bytes| row.int(bytes));
    }
    Ok((rows.finish(), hidden))
}

/// The fields in bytes; `None` where there are none, which is so for a process without memory.
fn parse(text: &str) -> Option<[u64; FIELDS.len()]> {
    let mut bytes = [0u64; FIELDS.len()];
    let mut any = false;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let kib = value.split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        let at = FIELDS.iter().position(|(_, keys, _)| keys.contains(&key));
        if let (Some(kib), Some(at)) = (kib, at) {
            bytes[at] = bytes[at].saturating_add(kib.saturating_mul(1024));
            any = true;
        }
    }
    any.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROLLUP: &str = "\
55d0a3a5c000-7fff8b1fe000 ---p 00000000 00:00 0                          [rollup]
Rss:               10000 kB
Pss:                6000 kB
Pss_Dirty:          3000 kB
Pss_Anon:           4000 kB
Pss_File:           1500 kB
Pss_Shmem:           500 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:    4096 kB
Swap:                 16 kB
SwapPss:               8 kB
";

    #[test]
    fn the_largest_first() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, text) in [(7, "Pss: 10 kB\n"), (8, ROLLUP), (9, "")] {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("smaps_rollup"), text).unwrap();
            fs::write(dir.join("comm"), format!("p{pid}\n")).unwrap();
        }
        fs::create_dir(proc.path().join("self")).unwrap();
        let (t, hidden) = table(proc.path(), 3, &AtomicBool::new(false)).unwrap();
        assert_eq!((t.num_rows(), hidden), (2, 0));
        assert_eq!((t.int(0, "pid"), t.text(1, "process")), (Some(8), Some("p7")));
        assert_eq!(t.int(0, "hugetlb"), Some(6144 * 1024));
        assert_eq!(
            (t.int(0, "pss"), t.int(0, "swap"), t.int(1, "rss")),
            (Some(6000 * 1024), Some(8192), Some(0))
        );
    }

    #[test]
    fn this_process_is_among_them() {
        let (t, _) = table(Path::new("/proc"), 2, &AtomicBool::new(false)).unwrap();
        let me = (0..t.num_rows()).find(|&r| t.int(r, "pid") == Some(std::process::id().into())).unwrap();
        assert!(t.int(me, "rss") >= t.int(me, "pss") && t.int(me, "pss") > Some(100_000));
    }

    proptest! {
        #[test]
        fn any_rollup_is_borne(text in "((Pss|Rss|Swap|Private_Hugetlb): {1,4}[0-9]{0,22} kB\n|.{0,20}\n){0,12}") {
            parse(&text);
        }
    }
}

//! Memory by process: the sums that the kernel makes of each one's page tables.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ncpu_files::reader::process_text;
use ncpu_machine::process::{self, Fields};
use ncpu_schema::processes;
use ncpu_table::Table;

/// Keys of `/proc/PID/smaps_rollup` in the order of the columns of [`processes`]; several keys are added up.
const FIELDS: [&[&str]; 7] = [
    &["Pss"],
    &["Rss"],
    &["Pss_Anon"],
    &["Pss_File"],
    &["Pss_Shmem"],
    &["Shared_Hugetlb", "Private_Hugetlb"],
    &["SwapPss"],
];

/// The place of hugetlb pages among them.
const HUGETLB: usize = 5;

/// A file: major and minor number of its device, inode.
type File = ((u32, u32), u64);

struct Process {
    pid: u32,
    name: String,
    bytes: [u64; FIELDS.len()],
    /// Of its hugetlb pages those that it shares, by file.
    shared: HashMap<File, u64>,
}

/// A row for each process, the largest first; and how many may not be looked at. One read a process, in
/// which the kernel walks its page tables huge page by huge page.
pub(super) fn table(proc: &Path, threads: usize, stop: &AtomicBool) -> io::Result<(Table, u64)> {
    let pids = process::pids(proc)?;
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
                    let text = match process_text(&dir, pid, "smaps_rollup") {
                        Ok(text) => text,
                        // It ended meanwhile, or is a thread of the kernel.
                        Err(e) => {
                            let hidden = e.kind() == io::ErrorKind::PermissionDenied;
                            found.lock().unwrap_or_else(|e| e.into_inner()).1 += u64::from(hidden);
                            continue;
                        }
                    };
                    let fields = Fields(&text);
                    let Some(bytes) = parse(fields) else { continue };
                    let name = process::name(&dir).unwrap_or_default();
                    // `Pss` divides what is shared, but holds no hugetlb pages; who shares those, the mappings tell.
                    let shares = fields.bytes("Shared_Hugetlb").is_some_and(|n| n > 0);
                    let maps = if shares { process_text(&dir, pid, "smaps") } else { Ok(Vec::new()) };
                    let shared = shared_hugetlb(&maps.unwrap_or_default());
                    let process = Process { pid, name, bytes, shared };
                    found.lock().unwrap_or_else(|e| e.into_inner()).0.push(process);
                }
            });
        }
    });
    let (mut all, hidden) = found.into_inner().unwrap_or_else(|e| e.into_inner());
    divide(&mut all);
    all.sort_by_key(|p| (std::cmp::Reverse(p.bytes[0].saturating_add(p.bytes[HUGETLB])), p.pid));
    let mut rows = processes::Rows::new();
    for p in all {
        let [pss, rss, anon, file, shared, hugetlb, swap] = p.bytes.map(Some);
        let (pid, process) = (Some(p.pid.into()), p.name.into());
        rows.push(processes::Row { pid, process, pss, rss, anon, file, shared, hugetlb, swap });
    }
    Ok((rows.finish(), hidden))
}

/// Charges each process with its part of the hugetlb pages that it shares.
fn divide(all: &mut [Process]) {
    let mut users: HashMap<File, u64> = HashMap::new();
    for file in all.iter().flat_map(|p| p.shared.keys()) {
        *users.entry(*file).or_default() += 1;
    }
    for process in all {
        for (file, bytes) in &process.shared {
            let part = bytes / users.get(file).copied().unwrap_or(1).max(1);
            let whole = &mut process.bytes[HUGETLB];
            *whole = whole.saturating_sub(bytes - part);
        }
    }
}

/// The hugetlb pages that a process shares, by file.
fn shared_hugetlb(smaps: &[u8]) -> HashMap<File, u64> {
    let mut found = HashMap::new();
    for (mapping, fields) in process::smaps(smaps) {
        if let Some(bytes) = fields.bytes("Shared_Hugetlb").filter(|n| *n > 0) {
            *found.entry((mapping.device, mapping.inode)).or_default() += bytes;
        }
    }
    found
}

/// The fields in bytes; `None` for a process without memory, which has no such fields.
fn parse(fields: Fields) -> Option<[u64; FIELDS.len()]> {
    let mut bytes = [0u64; FIELDS.len()];
    let mut any = false;
    for (key, value) in fields.each_bytes() {
        if let Some(at) = FIELDS.iter().position(|keys| keys.contains(&key)) {
            bytes[at] = bytes[at].saturating_add(value);
            any = true;
        }
    }
    any.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn hugetlb_pages_that_are_shared_are_charged_once_in_all() {
        let proc = tempfile::tempdir().unwrap();
        let mapping = |range: &str, inode: u64, shared: u64, private: u64| {
            format!(
                "{range} rw-s 00000000 00:0f {inode}   /anon_hugepage (deleted)\nSize: 9 kB\nShared_Hugetlb: {shared} kB\nPrivate_Hugetlb: {private} kB\n"
            )
        };
        // 1 and 2 share 8 MB of file 7; 2 and 3 share 2 MB of file 8; 3 has 4 MB of its own.
        let maps = [
            mapping("1000-2000", 7, 8192, 0),
            mapping("3000-4000", 7, 8192, 0) + &mapping("5000-6000", 8, 2048, 0),
            mapping("7000-8000", 8, 2048, 0) + &mapping("9000-a000", 9, 0, 4096),
        ];
        for (pid, smaps) in (1..).zip(maps) {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            let sum = |key: &str| {
                let all = process::smaps(smaps.as_bytes()).filter_map(|(_, fields)| fields.bytes(key));
                all.sum::<u64>() / 1024
            };
            let (shared, private) = (sum("Shared_Hugetlb"), sum("Private_Hugetlb"));
            let rollup = format!("Pss: 0 kB\nShared_Hugetlb: {shared} kB\nPrivate_Hugetlb: {private} kB\n");
            fs::write(dir.join("smaps_rollup"), rollup).unwrap();
            fs::write(dir.join("smaps"), smaps).unwrap();
        }
        let (t, _) = table(proc.path(), 2, &AtomicBool::new(false)).unwrap();
        let of = |pid| {
            (0..3).find(|&r| t.int(r, "pid") == Some(pid)).and_then(|r| t.int(r, "hugetlb")).unwrap() >> 20
        };
        assert_eq!([of(1), of(2), of(3)], [4, 5, 5], "14 MB are there");
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
            parse(Fields(text.as_bytes()));
        }
    }
}

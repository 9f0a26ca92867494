//! Both sources on the running machine. Needs root; BPF where there is BTF.

use ncpu_trials::{MOST, hold};

use super::*;

fn open(source: Source) -> Option<Memory> {
    let options = Options { source: Some(source), rows: true, owners: true, ..Options::default() };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: physical pages are shown to root only");
        return None;
    }
    match Memory::open(&options) {
        Ok(memory) => Some(memory),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

/// A number of kB in `/proc/meminfo`, in pages.
fn meminfo(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|l| l.split(':').next() == Some(key));
    let kib = line.and_then(|l| l.split_ascii_whitespace().nth(1)).map_or(0, |n| n.parse().unwrap());
    kib * 1024 / rustix::param::page_size() as u64
}

/// Free pages of the zones, as a line of `/proc/meminfo`. Its own MemFree has more on machines whose host took memory
/// back (a balloon) and whose kernel goes on calling that free.
fn zones_free() -> String {
    let zones = std::fs::read_to_string("/proc/zoneinfo").unwrap();
    let free =
        zones.lines().filter_map(|l| l.trim().strip_prefix("pages free")?.trim().parse::<usize>().ok());
    format!("ZonesFree: {} kB\n", free.sum::<usize>() * (rustix::param::page_size() / 1024))
}

#[test]
fn a_part_and_its_rest_are_the_whole() {
    let Some(mut all) = open(Source::Bpf) else { return };
    let whole = all.look(&AtomicBool::new(false)).unwrap();
    let largest = all.chunks.iter().max_by_key(|c| c.end - c.start).copied().unwrap();
    // An odd frame, in the midst of whatever lies there.
    let cut = largest.start + (largest.end - largest.start) / 2 + 1;
    let mut pages = 0;
    for (frames, threads) in [(0..cut, 1), (cut..1 << 52, 3)] {
        let options =
            Options { source: Some(Source::Bpf), frames: Some(frames), threads, ..Options::default() };
        pages += Memory::open(&options).unwrap().look(&AtomicBool::new(false)).unwrap().total().total();
    }
    assert_eq!(pages, whole.total().total());
    let none = Options { frames: Some(1 << 51..1 << 52), ..Options::default() };
    assert!(matches!(Memory::open(&none), Err(Error::NoFrames(_))));
}

#[test]
fn every_page_is_a_row() {
    let Some(bpf) = open(Source::Bpf) else { return };
    let chunk = bpf.chunks.iter().find(|c| c.end - c.start > 100).copied().unwrap();
    for source in [Source::Bpf, Source::Kpageflags] {
        let frames = Some(chunk.start..chunk.start + 100);
        let options = Options { source: Some(source), frames, threads: 1, rows: true, owners: false };
        let Ok(mut memory) = Memory::open(&options) else { continue };
        let mut next = chunk.start;
        memory
            .rows(&AtomicBool::new(false), |table| -> Result<()> {
                for row in 0..table.num_rows() {
                    assert_eq!(table.int(row, "pfn"), Some(next));
                    assert!(
                        table.text(row, "class").is_some_and(|c| Class::ALL.iter().any(|k| k.name() == c))
                    );
                    assert_eq!(table.int(row, "refcount").is_some(), source == Source::Bpf);
                    next += 1;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(next, chunk.start + 100);
    }
}

#[test]
fn a_file_of_ours_is_an_owner() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("owned");
    let page = rustix::param::page_size();
    std::fs::write(&path, vec![1; 64 * page]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let inode = file.metadata().unwrap().ino();
    for source in [Source::Bpf, Source::Kpageflags] {
        let Some(mut memory) = open(source) else { continue };
        let files = memory.owners(By::File, &AtomicBool::new(false)).unwrap();
        let mine = (0..files.num_rows()).find(|&r| {
            files.int(r, "inode") == Some(inode)
                && files.text(r, "file").is_some_and(|f| f.ends_with("/owned") || f.ends_with("owned"))
        });
        // BPF names the thousand largest only, and ours may be smaller than those.
        match mine {
            Some(row) => assert!(files.int(row, "bytes") >= Some(64 * page as u64 / 2), "{}", source.word()),
            None => assert!(source == Source::Bpf && files.num_rows() > 1000, "{}", source.word()),
        }
    }
}

mod quiet {
    use super::*;

    /// The pages of `chunk` whose class differs in both orders of looking, so not for having changed.
    fn differing(
        bpf: &mut Memory,
        flags: &Memory,
        exec: &mut ExecFrames,
        chunk: &Chunk,
    ) -> Vec<(u64, Class, Class, String)> {
        let class = |row: &rows::Row| Class::from_raw(row.class);
        let mut suspects: Option<Vec<u64>> = None;
        let mut last = Vec::new();
        for round in 0..6 {
            if round > 0 {
                // Programs start and end; where they do so all the time, as tests beside do, each look finds others.
                *exec = ExecFrames::find().unwrap();
                bpf.find_exec().unwrap();
            }
            let before = bpf.page_rows(&ExecFrames::default(), chunk).unwrap();
            let theirs = flags.page_rows(exec, chunk).unwrap();
            let after = bpf.page_rows(&ExecFrames::default(), chunk).unwrap();
            assert_eq!((before.len(), theirs.len()), ((chunk.end - chunk.start) as usize, before.len()));
            last = (0..before.len())
                .filter(|&i| class(&before[i]) == class(&after[i]) && class(&before[i]) != class(&theirs[i]))
                .map(|i| {
                    let words = format!("bpf {} | {}", kpf::words(before[i].kpf), kpf::words(theirs[i].kpf));
                    (chunk.start + i as u64, class(&before[i]), class(&theirs[i]), words)
                })
                .filter(|d| suspects.as_ref().is_none_or(|s| s.contains(&d.0)))
                .collect();
            if last.is_empty() {
                break;
            }
            suspects = Some(last.iter().map(|d| d.0).collect());
        }
        last
    }

    #[test]
    fn both_sources_agree_page_by_page() {
        let (Some(mut bpf), Some(flags)) = (open(Source::Bpf), open(Source::Kpageflags)) else { return };
        let mut exec = ExecFrames::find().unwrap();
        bpf.find_exec().unwrap();
        let (mut pages, mut differ) = (0, Vec::new());
        let all: Vec<Chunk> = bpf.chunks.clone();
        // Some pages of each GiB, so all kinds of memory; all of it would take long on a large machine.
        for chunk in all.iter().filter(|c| c.online).take(64) {
            let end = chunk.end.min(chunk.start + rows::BATCH as u64 / 2);
            let chunk = Chunk { end, ..*chunk };
            pages += chunk.end - chunk.start;
            differ.extend(differing(&mut bpf, &flags, &mut exec, &chunk));
        }
        // A page may go back and forth in step with the looks; not one in ten thousand does.
        assert!(
            differ.len() as u64 * 10_000 <= pages,
            "{} of {pages} pages: {:#?}",
            differ.len(),
            differ.iter().take(20)
        );
    }

    #[test]
    fn sums_are_those_of_meminfo() {
        for source in [Source::Bpf, Source::Kpageflags] {
            let Some(mut memory) = open(source) else { continue };
            let map = MemoryMap::read(Path::new("/"), memory.page_size).unwrap();
            // Memory changes while it is looked at, and most looks are right where nobody else changes it.
            hold(MOST, source.word(), || {
                let read = || std::fs::read_to_string("/proc/meminfo").unwrap() + &zones_free();
                let before = read();
                let total = memory.look(&AtomicBool::new(false)).unwrap().total();
                let after = read();
                assert_eq!(total.total(), map.pages());
                let all = meminfo(&after, "MemTotal");
                // The kernel's own counters are some pages for each CPU behind; and some kernels do not show the pages
                // of their array of `struct page`, 1.6 % of memory, as reserved in /proc/kpageflags.
                let near = |what, ours: u64, keys: &[&str], less: &str| {
                    let of =
                        |text: &str| keys.iter().map(|k| meminfo(text, k)).sum::<u64>() - meminfo(text, less);
                    let (a, b) = (of(&before), of(&after));
                    let slack = all / 50;
                    let good = ours + slack >= a.min(b) && ours <= a.max(b) + slack;
                    if good { None } else { Some(format!("{what}: {ours}, meminfo {a} to {b}")) }
                };
                let sum = |classes: &[Class]| classes.iter().map(|&c| total[c]).sum();
                use Class::*;
                let wrong: Vec<String> = [
                    near("all", total.total() - total[Reserved], &["MemTotal"], ""),
                    near("free", total[Free], &["ZonesFree"], ""),
                    near("slab", total[Slab], &["Slab"], ""),
                    near("anon", sum(&[Anon, AnonThp]), &["AnonPages"], ""),
                    near("shared", sum(&[Shared, SharedThp]), &["Shmem"], ""),
                    near("hugetlb", total[Hugetlb], &["Hugetlb"], ""),
                    near("page tables", total[PageTables], &["PageTables", "SecPageTables"], ""),
                    near("files", sum(&[Exec, Mapped, Cache]), &["Cached", "Buffers"], "Shmem"),
                ]
                .into_iter()
                .flatten()
                .collect();
                assert!(wrong.is_empty(), "{}: {wrong:?}", source.word());
            });
        }
    }

    #[test]
    fn both_sources_see_the_same_cgroups() {
        let (Some(mut bpf), Some(mut flags)) = (open(Source::Bpf), open(Source::Kpageflags)) else { return };
        let total = |t: &ncpu_table::Table| (0..t.num_rows()).filter_map(|r| t.int(r, "bytes")).sum::<u64>();
        let stop = AtomicBool::new(false);
        if flags.owners(By::Cgroup, &stop).is_err() {
            return println!("skipped: no /proc/kpagecgroup");
        }
        hold(MOST, "bytes by BPF and by kpagecgroup", || {
            let a = total(&bpf.owners(By::Cgroup, &stop).unwrap());
            let b = total(&flags.owners(By::Cgroup, &stop).unwrap());
            assert!(a.abs_diff(b) * 20 <= a.max(b), "{a}, {b}");
        });
    }
}

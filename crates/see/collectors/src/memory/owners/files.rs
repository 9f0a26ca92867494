//! Pages by file.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_files::reader::{Source, Whose, process_text};
use ncpu_machine::process::{self, Mapping};
use ncpu_schema::files;
use ncpu_table::Table;

use super::{Class, Counts, Owned, bytes, percent};
use crate::memory::Pages;
use crate::memory::exec::local_file;
use crate::memory::named::Named;

/// Files that are given a name; the rest is one row.
const NAMED: usize = 1000;

/// A file and its pages.
pub(super) struct File {
    name: String,
    inode: Option<u64>,
    counts: Counts,
}

/// A row for each file, the largest first, those without a name last.
pub(super) fn table(mut found: Vec<File>, page_size: u64, all: u64) -> Table {
    found.sort_by(|a, b| {
        let key = |f: &File| (f.inode.is_none(), std::cmp::Reverse(f.counts.total()));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    let mut rows = files::Rows::new();
    for file in found.iter().filter(|f| f.counts.total() > 0) {
        let total = file.counts.total();
        let of = |classes: &[Class]| Some(bytes(&file.counts, classes, page_size));
        rows.push(files::Row {
            file: file.name.as_str().into(),
            inode: file.inode,
            bytes: Some(total * page_size),
            share: Some(percent(total, all)),
            exec: of(&[Class::Exec]),
            mapped: of(&[Class::Mapped]),
            cache: of(&[Class::Cache]),
            shared: of(&[Class::Shared, Class::SharedThp]),
        });
    }
    rows.finish()
}

/// Names the largest owners that a walk found: their keys are addresses of `struct address_space`.
pub(super) fn named_by_bpf(pages: &mut Pages, owned: Owned) -> Vec<File> {
    let mounts = Mounts::read(Path::new("/"));
    let mut sorted: Vec<_> = owned.into_iter().collect();
    sorted.sort_by_key(|(at, counts)| (std::cmp::Reverse(counts.total()), *at));
    let rest = sorted.split_off(sorted.len().min(NAMED));
    let mut files: Vec<File> = Vec::new();
    let mut segments = None;
    for (at, counts) in sorted {
        let (name, inode) = match pages.name(at) {
            Some(named) if named.fs == "tmpfs" && !mounts.0.contains_key(&named.device) => {
                let segments = segments.get_or_insert_with(|| Segments::read(Path::new("/proc")));
                (segments.name(&named).unwrap_or_else(|| mounts.path(&named)), Some(named.inode))
            }
            Some(named) => (mounts.path(&named), Some(named.inode)),
            None => ("[gone meanwhile]".into(), None),
        };
        files.push(File { name, inode, counts });
    }
    if !rest.is_empty() {
        let name = format!("[{} smaller files]", rest.len());
        let mut counts = Counts::default();
        rest.iter().for_each(|(_, c)| counts.add(c));
        files.push(File { name, inode: None, counts });
    }
    files
}

/// Shared memory without a path: SysV segments, memfds and shared anonymous memory live in a tmpfs of the kernel's
/// own. Their names are known only by processes that map them or have them open.
#[derive(Debug, Default)]
struct Segments {
    /// By device and inode.
    names: HashMap<((u32, u32), u64), String>,
    /// SysV segments: the inode is the segment's id.
    sysv: HashSet<u64>,
}

impl Segments {
    fn read(proc: &Path) -> Segments {
        let mut found = Segments::default();
        let shm = fs::read_to_string(proc.join("sysvipc/shm")).unwrap_or_default();
        let ids = shm.lines().skip(1).filter_map(|l| l.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
        found.sysv.extend(ids);
        for pid in process::pids(proc).unwrap_or_default() {
            let dir = proc.join(pid.to_string());
            let whose = Whose::process(&dir, pid);
            let maps = process_text(&dir, pid, "maps").unwrap_or_default();
            process::mappings(&maps).for_each(|mapping| found.mapping(&mapping));
            for entry in fs::read_dir(dir.join("fd")).into_iter().flatten().flatten() {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                let target = target.to_string_lossy();
                // A file of another file system may have such a name, too.
                if target.starts_with("/memfd:")
                    && let Ok(file) = Source::mapped(&entry.path(), whose)
                {
                    let (device, inode) = file.identity();
                    found.add((libc::major(device), libc::minor(device)), inode, &target);
                }
            }
        }
        found
    }

    /// Takes note of `7f00-7f10 rw-s 00000000 00:01 32769      /SYSV00000000 (deleted)`.
    fn mapping(&mut self, mapping: &Mapping) {
        let starts = [&b"/SYSV"[..], b"/memfd:", b"/dev/zero (deleted)"];
        if starts.iter().any(|start| mapping.name.starts_with(start)) {
            self.add(mapping.device, mapping.inode, &mapping.text());
        }
    }

    /// The same words as `ncpu numa` has.
    fn add(&mut self, device: (u32, u32), inode: u64, name: &str) {
        let name = name.trim_end_matches(" (deleted)");
        let name = match name {
            sysv if sysv.starts_with("/SYSV") => format!("shmid {inode}"),
            "/dev/zero" => format!("anonymous {inode}"),
            memfd => format!("{} {inode}", memfd.trim_start_matches('/')),
        };
        self.names.insert((device, inode), name);
    }

    fn name(&self, file: &Named) -> Option<String> {
        let known = self.names.get(&(file.device, file.inode)).cloned();
        // Nobody maps it, but it is there.
        known.or_else(|| {
            (file.path.is_empty() && self.sysv.contains(&file.inode)).then(|| format!("shmid {}", file.inode))
        })
    }
}

/// Where file systems are mounted, by device.
#[derive(Debug, Default)]
struct Mounts(HashMap<(u32, u32), (String, String)>);

impl Mounts {
    fn read(root: &Path) -> Mounts {
        Mounts::parse(&fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default())
    }

    fn parse(text: &str) -> Mounts {
        let mut mounts: HashMap<(u32, u32), (String, String)> = HashMap::new();
        for line in text.lines() {
            // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
            let mut words = line.split(' ').skip(2);
            let (Some(device), Some(root), Some(at)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Some((Ok(major), Ok(minor))) = device.split_once(':').map(|(a, b)| (a.parse(), b.parse()))
            else {
                continue;
            };
            let mount = mounts.entry((major, minor)).or_insert_with(|| (root.into(), at.into()));
            // Of several mounts the one that shows most of the file system.
            if root.len() < mount.0.len() {
                *mount = (root.into(), at.into());
            }
        }
        Mounts(mounts)
    }

    fn path(&self, file: &Named) -> String {
        if let Some((major, minor)) = file.rdev {
            let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
            let name = link.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
            return format!("[block device {}]", name.unwrap_or_else(|| format!("{major}:{minor}")));
        }
        if file.path.is_empty() {
            return format!("[{} inode {}]", file.fs, file.inode);
        }
        let path = format!("/{}", file.path);
        match self.0.get(&file.device) {
            Some((root, at)) if root == "/" => format!("{}{path}", at.trim_end_matches('/')),
            Some((root, at)) if path.starts_with(&format!("{root}/")) => {
                format!("{}{}", at.trim_end_matches('/'), &path[root.len()..])
            }
            // Not mounted where this process could see it: memfd, SysV shared memory, a container's.
            _ => format!("[{}]{path}", file.fs),
        }
    }
}

/// The files that processes have open or mapped, and how much of each is cached. `all` is what the whole
/// machine has of each class: what is left is one row.
pub(super) fn of_processes(proc: &Path, all: Counts, stop: &AtomicBool) -> io::Result<Vec<File>> {
    let mut found: HashMap<(u64, u64), File> = HashMap::new();
    for pid in process::pids(proc)? {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let dir = proc.join(pid.to_string());
        let whose = Whose::process(&dir, pid);
        let maps = process_text(&dir, pid, "maps").unwrap_or_default();
        for mapping in process::mappings(&maps).filter(Mapping::is_file) {
            let class = if mapping.execute { Class::Exec } else { Class::Mapped };
            add(&dir.join("map_files").join(mapping.link()), whose, &mapping.text(), class, &mut found);
        }
        for entry in fs::read_dir(dir.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            // Sockets, pipes and other things that are no files have no slash in front.
            if target.is_absolute() {
                add(&entry.path(), whose, &target.to_string_lossy(), Class::Cache, &mut found);
            }
        }
    }
    let mut files: Vec<File> = found.into_values().collect();
    let mut rest = Counts::default();
    for class in [Class::Cache, Class::Mapped, Class::Exec, Class::Shared] {
        let known: u64 = files.iter().map(|f| f.counts[class]).sum();
        rest[class] = all[class].saturating_sub(known);
    }
    files.push(File { name: "[files not open]".into(), inode: None, counts: rest });
    Ok(files)
}

/// Adds what is cached of the file behind a link of /proc, or only notes that it is mapped executable.
fn add(link: &Path, whose: Whose, name: &str, class: Class, found: &mut HashMap<(u64, u64), File>) {
    // A file that cannot be opened, or that another process or machine answers for, is among the files without a name.
    let file = match local_file(link, whose) {
        Ok(file) => file,
        // Another kind of file, in a file system that answers.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && is_block_device(link) => {
            let Ok(device) = fs::File::open(link) else { return };
            device
        }
        Err(_) => return,
    };
    let Ok(meta) = file.metadata() else { return };
    let rank = |c: Class| match c {
        Class::Exec => 2,
        Class::Mapped => 1,
        _ => 0,
    };
    if let Some(file) = found.get_mut(&(meta.dev(), meta.ino())) {
        let known = file.counts.iter().find(|(_, n)| *n > 0);
        if let Some((old, pages)) = known
            && rank(class) > rank(old)
            && !matches!(old, Class::Shared)
        {
            file.counts[old] = 0;
            file.counts[class] = pages;
        }
        return;
    }
    let mut counts = Counts::default();
    let tmpfs = rustix::fs::fstatfs(&file).is_ok_and(|s| s.f_type == TMPFS_MAGIC);
    counts[if tmpfs { Class::Shared } else { class }] = cached(&file).unwrap_or(0);
    found.insert((meta.dev(), meta.ino()), File { name: name.into(), inode: Some(meta.ino()), counts });
}

/// By the kernel's own knowledge: the file system may never answer.
fn is_block_device(link: &Path) -> bool {
    use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
    let known = statx(rustix::fs::CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    known.is_ok_and(|about| FileType::from_raw_mode(about.stx_mode.into()).is_block_device())
}

/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Pages of a file that are cached: `cachestat` (Linux 6.5), one call a file.
fn cached(file: &fs::File) -> io::Result<u64> {
    const CACHESTAT: libc::c_long = 451;
    let range = [0u64; 2];
    let mut stat = [0u64; 5];
    // SAFETY: `struct cachestat_range` is two and `struct cachestat` five 64-bit words.
    let rc = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0) };
    if rc == 0 { Ok(stat[0]) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn segments_have_the_names_that_their_users_see() {
        let mut segments = Segments::default();
        for line in [
            "7f00-7f10 rw-s 00000000 00:01 10      /SYSV0000beef (deleted)",
            "7f20-7f30 rw-s 00000000 00:01 11      /memfd:a pool (deleted)",
            "7f40-7f50 rw-s 00000000 00:01 12      /dev/zero (deleted)",
            "7f60-7f70 r-xp 00000000 fe:00 13      /usr/bin/SYSV",
        ] {
            segments.mapping(&Mapping::parse(line.as_bytes()).unwrap());
        }
        segments.sysv.insert(20);
        let name = |inode, path: &str| {
            let fs = "tmpfs".into();
            segments.name(&Named { inode, device: (0, 1), fs, path: path.into(), rdev: None })
        };
        assert_eq!(
            [10, 11, 12, 13, 20].map(|inode| name(inode, "")),
            [
                Some("shmid 10".into()),
                Some("memfd:a pool 11".into()),
                Some("anonymous 12".into()),
                None,
                Some("shmid 20".into())
            ]
        );
    }

    #[test]
    fn paths_from_mounts() {
        let mounts = Mounts::parse(
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 254:1 /sub/vol /data rw - btrfs /dev/vdb rw\n31 22 254:1 /sub /d rw - btrfs x y\n",
        );
        let file =
            |device, path: &str| Named { inode: 5, device, fs: "ext4".into(), path: path.into(), rdev: None };
        assert_eq!(mounts.path(&file((254, 0), "usr/bin/x")), "/usr/bin/x");
        assert_eq!(mounts.path(&file((254, 1), "sub/a")), "/d/a");
        assert_eq!(mounts.path(&file((254, 1), "elsewhere")), "[ext4]/elsewhere");
        assert_eq!(mounts.path(&file((0, 1), "memfd:x")), "[ext4]/memfd:x");
        assert_eq!(mounts.path(&file((0, 1), "")), "[ext4 inode 5]");

        let mut raw = vec![0; 48 + 24 * 64];
        assert_eq!(Named::parse(&raw), None);
        raw[8] = 5;
        raw[16..20].copy_from_slice(&0x0fe0_0001u32.to_ne_bytes());
        raw[28] = 2;
        raw[32..36].copy_from_slice(b"ext4");
        raw[48..49].copy_from_slice(b"a");
        raw[48 + 64..48 + 67].copy_from_slice(b"sub");
        assert_eq!(mounts.path(&Named::parse(&raw).unwrap()), "/d/a");
        raw[24..28].copy_from_slice(&0o060_600u32.to_ne_bytes());
        assert_eq!(Named::parse(&raw).unwrap().rdev, Some((0, 0)));
    }

    #[test]
    fn files_of_this_process_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cached");
        fs::write(&path, vec![1; 40960]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let Ok(pages) = cached(&file) else {
            println!("skipped: the kernel has no cachestat (Linux 6.5)");
            return;
        };
        let found = of_processes(Path::new("/proc"), Counts::default(), &AtomicBool::new(false)).unwrap();
        let mine = found.iter().find(|f| f.inode == Some(file.metadata().unwrap().ino())).unwrap();
        assert!(mine.counts.total() >= 1 && pages * rustix::param::page_size() as u64 >= 40960);
        let me = found.iter().find(|f| f.name == std::env::current_exe().unwrap().to_string_lossy());
        assert!(me.is_some_and(|f| f.counts[Class::Exec] > 0));
    }

    proptest! {
        #[test]
        fn any_answer_is_borne(raw in prop::collection::vec(any::<u8>(), 0..1700)) {
            Named::parse(&raw);
        }

        #[test]
        fn any_mountinfo_is_borne(text in "([0-9]{1,3} [0-9]{1,3} [0-9]{1,11}:[0-9]{1,3} /[a-z/]{0,8} /[a-z/]{0,8} rw\n|.{0,30}\n){0,12}", path in "[a-z/]{0,12}") {
            let mounts = Mounts::parse(&text);
            for device in mounts.0.keys() {
                mounts.path(&Named { device: *device, path: path.clone(), ..Named::default() });
            }
        }
    }
}

//! Shared segments: SysV and POSIX shared memory, memfds, shared anonymous memory, files of tmpfs and
//! of hugetlbfs; each counted once, however many processes map it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ncpu_files::reader::{Source, Whose};
use ncpu_machine::numa_maps::{Mapping, Policy};
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx};

use super::procfs::{Mount, Proc, Region};
use super::{Process, probe};

/// Files of tmpfs below this that nobody maps are left out.
const SMALLEST_FILE: u64 = 1 << 20;
/// Directory entries looked at to find them.
const MOST_FILES: usize = 20_000;

/// The identity of a segment: mappings with equal keys are mappings of the same segment. SysV ids are
/// inodes of their own, so the kind is part of it.
type Key = (u64, u64, &'static str);

/// One shared segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    /// Its name, unique within the table.
    pub name: String,
    /// sysv, tmpfs, memfd, anonymous or hugetlb.
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    /// Bytes that have pages, where that is known.
    pub resident: Option<u64>,
    /// Processes that map it.
    pub users: BTreeMap<u32, String>,
    /// The policy in the mappings' numa_maps.
    pub policy: Option<Policy>,
    /// The mount's `mpol=`.
    pub mount: Option<Policy>,
    /// Bytes by node.
    pub nodes: BTreeMap<u32, u64>,
    /// How those are known: `mapped`, `all pages` or `sampled`.
    pub how: &'static str,
    /// Of neighbouring pages, the share on one node.
    pub neighbours: Option<f64>,
    /// Bytes of a page where they are huge ones.
    pub huge: Option<u64>,
    views: Vec<View>,
    open: Option<PathBuf>,
    sysv: Option<u64>,
}

/// A part of a segment as one process's page table shows it.
#[derive(Clone, Debug)]
struct View {
    offsets: (u64, u64),
    nodes: Vec<(u32, u64)>,
    bytes: u64,
}

/// The segments met so far.
pub(super) struct Segments {
    found: BTreeMap<Key, Segment>,
    mounts: HashMap<u64, Mount>,
    names: HashMap<String, Key>,
}

impl Segments {
    pub fn new(proc: &Proc) -> Segments {
        let mounts = proc.mounts(None).into_iter().map(|m| (m.device, m)).collect();
        Segments { found: BTreeMap::new(), mounts, names: HashMap::new() }
    }

    /// In order of name.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.found.values()
    }

    /// Takes a process's mapping; gives the segment's name where it is of one.
    pub fn add(&mut self, proc: &Proc, process: &Process, region: &Region, m: &Mapping) -> Option<String> {
        let deleted = region.name.trim_end_matches(" (deleted)");
        // The first SysV segment after boot has id 0.
        if !region.shared || (region.inode == 0 && !deleted.starts_with("/SYSV")) {
            return None;
        }
        let kind = if deleted.starts_with("/SYSV") {
            "sysv"
        } else if deleted.starts_with("/memfd:") {
            "memfd"
        } else if deleted == "/dev/zero" {
            "anonymous"
        } else if deleted == "/anon_hugepage" || m.huge {
            "hugetlb"
        } else {
            // Another mount namespace may have mounts of its own.
            if region.device >> 32 == 0 && !self.mounts.contains_key(&region.device) {
                self.mounts.extend(proc.mounts(Some(process.pid)).into_iter().map(|m| (m.device, m)));
            }
            self.mounts.get(&region.device).map(|_| "tmpfs")?
        };
        let key = (region.device, region.inode, kind);
        let name = match kind {
            "sysv" => format!("shmid {}", region.inode),
            "anonymous" | "hugetlb" if deleted != region.name => format!("{kind} {}", region.inode),
            "memfd" => format!("{} {}", deleted.trim_start_matches('/'), region.inode),
            _ => deleted.to_string(),
        };
        let mount = self.mounts.get(&region.device).and_then(|m| m.policy.clone());
        let name = self.named(name, key);
        let segment = self.found.entry(key).or_insert_with(|| Segment {
            name,
            kind,
            mount,
            sysv: (kind == "sysv").then_some(region.inode),
            ..Segment::default()
        });
        segment.users.entry(process.pid).or_insert_with(|| process.name.clone());
        let length = region.range.1.saturating_sub(region.range.0);
        let end = region.offset.saturating_add(length);
        segment.size = segment.size.max(end);
        if m.huge {
            segment.huge = Some(m.page);
        }
        // A policy of the segment is seen by all; the process's own is not one of the segment.
        if segment.policy.as_ref().is_none_or(|p| p.text == "default") {
            segment.policy = Some(m.policy.clone());
        }
        let file = proc.map_file(process.pid, region.range);
        if segment.resident.is_none()
            && let Ok(meta) =
                known(&file, AtFlags::empty()).or_else(|_| known(Path::new(deleted), AtFlags::empty()))
            && meta.stx_ino == region.inode
        {
            segment.resident = Some(meta.stx_blocks.saturating_mul(512));
            segment.size = segment.size.max(meta.stx_size);
        }
        segment.open.get_or_insert(file);
        segment.views.push(View { offsets: (region.offset, end), nodes: m.nodes.clone(), bytes: m.bytes() });
        Some(segment.name.clone())
    }

    fn named(&mut self, name: String, key: Key) -> String {
        match self.names.get(&name) {
            Some(other) if *other != key => format!("{name} #{}", key.1),
            _ => {
                self.names.insert(name.clone(), key);
                name
            }
        }
    }

    /// Puts the views together, and looks into what they do not show.
    pub fn complete(&mut self, proc: &Proc, probe: bool, unmapped: bool) {
        let listed = proc.sysv();
        for s in &listed {
            let known = self.found.iter_mut().find(|(_, seg)| seg.sysv == Some(s.id)).map(|(_, seg)| seg);
            match known {
                Some(segment) => {
                    segment.size = s.size;
                    segment.resident = s.resident.or(segment.resident);
                }
                None if unmapped && s.attached == 0 => {
                    let key = (0, s.id, "sysv");
                    let name = self.named(format!("shmid {}", s.id), key);
                    let segment = Segment {
                        name,
                        kind: "sysv",
                        size: s.size,
                        resident: s.resident,
                        sysv: Some(s.id),
                        ..Segment::default()
                    };
                    self.found.insert(key, segment);
                }
                None => {}
            }
        }
        if unmapped && probe {
            self.unmapped_files();
        }
        for segment in self.found.values_mut() {
            segment.join();
            if probe {
                segment.look();
            }
        }
        self.found.retain(|_, s| !s.nodes.is_empty() || s.resident.unwrap_or(0) > 0);
    }

    /// Files of tmpfs that hold memory though no process maps them.
    fn unmapped_files(&mut self) {
        let mut dirs: Vec<(PathBuf, u64, Option<Policy>)> = self
            .mounts
            .values()
            .filter(|m| m.kind == "tmpfs")
            .map(|m| (PathBuf::from(&m.dir), m.device, m.policy.clone()))
            .collect();
        let mut left = MOST_FILES;
        while let Some((dir, device, policy)) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                let Ok(meta) = known(&entry.path(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
                // Mounts below are of another device.
                if u64::from(meta.stx_dev_major) << 32 | u64::from(meta.stx_dev_minor) != device {
                    continue;
                }
                let kind = FileType::from_raw_mode(meta.stx_mode.into());
                if kind.is_dir() {
                    dirs.push((entry.path(), device, policy.clone()));
                }
                let key = (device, meta.stx_ino, "tmpfs");
                let bytes = meta.stx_blocks.saturating_mul(512);
                if !kind.is_file() || bytes < SMALLEST_FILE || self.found.contains_key(&key) {
                    continue;
                }
                let name = self.named(entry.path().display().to_string(), key);
                let segment = Segment {
                    name,
                    kind: "tmpfs",
                    size: meta.stx_size,
                    resident: Some(bytes),
                    mount: policy.clone(),
                    open: Some(entry.path()),
                    ..Segment::default()
                };
                self.found.insert(key, segment);
            }
        }
    }
}

impl Segment {
    /// Several processes' page tables show the same pages: of views that overlap the fullest counts.
    fn join(&mut self) {
        self.how = "mapped";
        self.views.sort_by_key(|v| std::cmp::Reverse(v.bytes));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for view in &self.views {
            if taken.iter().any(|t| view.offsets.0 < t.1 && t.0 < view.offsets.1) {
                continue;
            }
            taken.push(view.offsets);
            for (node, bytes) in &view.nodes {
                *self.nodes.entry(*node).or_default() += bytes;
            }
        }
    }

    /// Looks at the pages themselves, where the page tables show less than 95 % of them.
    fn look(&mut self) {
        let seen: u64 = self.nodes.values().sum();
        let resident = self.resident.unwrap_or(0);
        let spread = self.nodes.values().max().is_some_and(|most| (*most as f64) < 0.98 * seen as f64);
        // Where it is all known, it is still not known whether neighbours lie together.
        if self.kind == "hugetlb" || self.huge.is_some() || (!spread && seen as f64 >= 0.95 * resident as f64)
        {
            return;
        }
        let size = self.size;
        let found = match (self.sysv, &self.open) {
            (Some(id), _) if self.views.is_empty() => probe::sysv(id, size),
            (_, Some(path)) => {
                open(path).and_then(|(file, bytes)| probe::file(&file, bytes.min(size.max(bytes))))
            }
            _ => return,
        };
        let Ok(found) = found else { return };
        self.neighbours = found.neighbours;
        let pages: u64 = found.pages.iter().map(|p| p.1).sum();
        if pages == 0 || seen as f64 >= 0.95 * resident as f64 {
            return;
        }
        let page = rustix::param::page_size() as u64;
        self.how = if found.whole { "all pages" } else { "sampled" };
        let scale = if found.whole { page as f64 } else { resident as f64 / pages as f64 };
        self.nodes = found.pages.iter().map(|(n, p)| (*n, (*p as f64 * scale) as u64)).collect();
    }
}

/// Describes a file by the kernel's own knowledge: the file system may never answer.
fn known(path: &Path, follow: AtFlags) -> rustix::io::Result<Statx> {
    let flags = follow | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(CWD, path, flags, StatxFlags::BASIC_STATS)
}

/// A file of tmpfs by name or by map_files; nothing else is opened, and never for writing.
fn open(path: &Path) -> std::io::Result<(File, u64)> {
    // Its user may have put another file system's file there meanwhile, which never answers.
    let file = Source::mapped(path, Whose::OWN)?.local()?;
    let meta = file.metadata()?;
    // For a file that the caller may not write, mincore reports every page as resident: touching it would
    // fill its holes.
    let me = rustix::process::geteuid();
    if !(me.is_root() || me.as_raw() == meta.uid()) {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok((file, meta.len()))
}

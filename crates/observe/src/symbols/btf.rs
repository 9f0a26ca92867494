//! The kernel's types, as far as naming locks needs them: which lock lies at an offset of a struct.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Deeper nesting than any real type has.
const MAX_DEPTH: u32 = 24;

/// The types the contention tracepoints report, by tag or typedef. A member of one of these is a
/// lock; what lies inside it at offset 0 is its own business.
const LOCK_TYPES: &[&str] = &[
    "spinlock_t",
    "spinlock",
    "raw_spinlock_t",
    "raw_spinlock",
    "arch_spinlock_t",
    "qspinlock",
    "rqspinlock_t",
    "rwlock_t",
    "arch_rwlock_t",
    "qrwlock",
    "mutex",
    "ww_mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "rt_mutex",
    "rt_mutex_base",
    "semaphore",
];

/// Objects embedded in many others, which people know by themselves: `inode.i_rwsem` is clearer
/// than `ext4_inode_info.vfs_inode.i_rwsem`.
const KNOWN_OBJECTS: &[&str] =
    &["inode", "sock", "zone", "lruvec", "kernfs_node", "super_block", "address_space"];

/// Why there are no kernel types.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is not BTF, or of a kind not known.
    #[error("{}: no BTF this program can read ({what})", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The kernel's types and those of modules, read from BTF when first asked for.
///
/// Loading indexes the types (about 6 ms and 6 MB); a look-up then is a search by name and a walk of
/// the members (a few µs).
#[derive(Debug)]
pub struct BtfMembers {
    dir: PathBuf,
    kernel: Section,
    modules: RefCell<HashMap<String, Option<Section>>>,
    found: RefCell<HashMap<String, Option<Definition>>>,
}

/// The module that defines a struct, if it is not the kernel proper, and the number of the type.
type Definition = (Option<String>, u32);

/// A variable of a data section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    pub name: String,
    pub range: Range<u64>,
    /// The name of its struct, where it is one.
    pub of: Option<String>,
}

impl BtfMembers {
    /// Reads `sys/kernel/btf/vmlinux` under `root` (`/` on a live system).
    pub fn load(root: &Path) -> Result<BtfMembers, BtfError> {
        let dir = root.join("sys/kernel/btf");
        let kernel = Section::read(&dir.join("vmlinux"), None)?;
        Ok(BtfMembers { dir, kernel, modules: RefCell::default(), found: RefCell::default() })
    }

    /// The size of `struct name`.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.with(name, |types, id| types.record(id).map(|r| u64::from(r.size)))?
    }

    /// The path of the lock at `offset` of `struct name`, such as `inode.i_rwsem`.
    pub fn lock_at(&self, name: &str, offset: u64) -> Option<String> {
        self.with(name, |types, id| {
            let path = types.lock_at(id, offset)?;
            Some(match path.known {
                Some((object, from)) => format!("{object}{}", &path.members[from..]),
                None => format!("{name}{}", path.members),
            })
        })?
    }

    /// The static variables of the per-CPU section, by offset.
    pub(super) fn percpu(&self) -> Vec<Variable> {
        let types = Types { base: None, own: &self.kernel };
        let section = [".data..percpu", ".data.percpu"].iter().find_map(|n| types.find_section(n));
        let Some(record) = section.and_then(|id| types.record(id)) else { return Vec::new() };
        let variable = |i| {
            let [var, start, size] = types.words(record.body + i * 12)?;
            let var = types.record(var)?;
            let (target, _) = types.resolve(var.size)?;
            let target = types.record(target)?;
            let of = (target.kind == STRUCT).then(|| types.string(target.name)).flatten();
            let range = u64::from(start)..u64::from(start) + u64::from(size);
            let name = types.string(var.name)?.to_owned();
            Some(Variable { name, range, of: of.filter(|n| !n.is_empty()).map(str::to_owned) })
        };
        let mut all: Vec<_> = (0..record.len).filter_map(variable).collect();
        all.sort_by_key(|v| v.range.start);
        all
    }

    /// Calls `f` with the types that define `struct name`: the kernel's, or those of the module that
    /// the first word of the name suggests.
    fn with<T>(&self, name: &str, f: impl FnOnce(&Types, u32) -> T) -> Option<T> {
        let known = self.found.borrow().get(name).cloned();
        let (module, id) = known.unwrap_or_else(|| {
            let found = self.locate(name);
            self.found.borrow_mut().insert(name.to_owned(), found.clone());
            found
        })?;
        let modules = self.modules.borrow();
        let types = match &module {
            None => Types { base: None, own: &self.kernel },
            Some(m) => Types { base: Some(&self.kernel), own: modules.get(m)?.as_ref()? },
        };
        Some(f(&types, id))
    }

    fn locate(&self, name: &str) -> Option<Definition> {
        if let Some(id) = (Types { base: None, own: &self.kernel }).find_struct(name) {
            return Some((None, id));
        }
        let module = name.split('_').next().filter(|m| !m.is_empty() && !m.contains('/'))?;
        let mut modules = self.modules.borrow_mut();
        let section = modules
            .entry(module.to_owned())
            .or_insert_with(|| Section::read(&self.dir.join(module), Some(&self.kernel)).ok());
        let types = Types { base: Some(&self.kernel), own: section.as_ref()? };
        Some((Some(module.to_owned()), types.find_struct(name)?))
    }
}

const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const TYPEDEF: u8 = 8;
const VOLATILE: u8 = 9;
const CONST: u8 = 10;
const RESTRICT: u8 = 11;
const DATASEC: u8 = 15;
const TYPE_TAG: u8 = 18;

/// One BTF file: its bytes and where each type starts.
#[derive(Debug)]
struct Section {
    bytes: Vec<u8>,
    types: Vec<u32>,
    strings: Range<usize>,
    /// Hash of the name and number of each named struct, sorted.
    structs: Vec<(u64, u32)>,
    /// The number of its first type, and the offset of its first string, in a module's numbering.
    first_type: u32,
    first_string: u32,
}

impl Section {
    fn read(path: &Path, base: Option<&Section>) -> Result<Section, BtfError> {
        let bytes = fs::read(path).map_err(|source| BtfError::Io { path: path.into(), source })?;
        Section::parse(bytes, base).map_err(|what| BtfError::Malformed { path: path.into(), what })
    }

    fn parse(bytes: Vec<u8>, base: Option<&Section>) -> Result<Section, &'static str> {
        let word = |at: usize| u32_at(&bytes, at).ok_or("cut short");
        if word(0)? & 0xffff != 0xeb9f {
            return Err("bad magic");
        }
        let part = |offset: u32, len: u32| {
            let start = (word(4).ok()? as usize).checked_add(offset as usize)?;
            let end = start.checked_add(len as usize)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let types = part(word(8)?, word(12)?).ok_or("cut short")?;
        let strings = part(word(16)?, word(20)?).ok_or("cut short")?;
        let mut starts = Vec::with_capacity(types.len() / 20);
        let mut at = types.start;
        while at < types.end {
            starts.push(at as u32);
            let info = word(at + 4)?;
            let len = (info & 0xffff) as usize;
            at += 12
                + match (info >> 24) & 0x1f {
                    1 | 14 | 17 => 4,
                    2 | 7..=12 | 16 | 18 => 0,
                    3 => 12,
                    4 | 5 | 15 | 19 => 12 * len,
                    6 | 13 => 8 * len,
                    _ => return Err("unknown kind of type"),
                };
        }
        let (first_type, first_string) = match base {
            // Type 0 is void and stands in no file.
            None => (1, 0),
            Some(b) => (b.first_type + b.types.len() as u32, b.strings.len() as u32),
        };
        let structs = Vec::new();
        let mut section = Section { types: starts, strings, structs, first_type, first_string, bytes };
        section.structs = Types { base, own: &section }.structs();
        Ok(section)
    }
}

/// The types of one section, on top of those of its base.
struct Types<'a> {
    base: Option<&'a Section>,
    own: &'a Section,
}

#[derive(Clone, Copy)]
struct Record {
    name: u32,
    kind: u8,
    len: usize,
    /// Whether offsets of members carry a bit field's width.
    bitfields: bool,
    /// The size, or the type it refers to, by kind.
    size: u32,
    /// Where what follows the common part starts.
    body: usize,
    own: bool,
}

/// The members from a struct down to a lock, and the innermost well-known object on the way.
struct LockPath<'a> {
    members: String,
    known: Option<(&'a str, usize)>,
}

impl<'a> Types<'a> {
    fn record(&self, id: u32) -> Option<Record> {
        let own = id >= self.own.first_type;
        let section = if own { self.own } else { self.base? };
        let at = *section.types.get(id.checked_sub(section.first_type)? as usize)? as usize;
        let info = u32_at(&section.bytes, at + 4)?;
        Some(Record {
            name: u32_at(&section.bytes, at)?,
            kind: ((info >> 24) & 0x1f) as u8,
            len: (info & 0xffff) as usize,
            bitfields: info >> 31 != 0,
            size: u32_at(&section.bytes, at + 8)?,
            body: at + 12,
            own,
        })
    }

    /// Three numbers of a type's body, which lies in the same section as the type.
    fn words(&self, at: usize) -> Option<[u32; 3]> {
        words(&self.own.bytes, at)
    }

    fn body(&self, record: &Record, i: usize) -> Option<[u32; 3]> {
        let section = if record.own { self.own } else { self.base? };
        words(&section.bytes, record.body + i * 12)
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let section = if offset >= self.own.first_string { self.own } else { self.base? };
        let text = section.bytes.get(section.strings.clone())?;
        let text = text.get((offset - section.first_string) as usize..)?;
        let end = text.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }

    fn own_ids(&self) -> Range<u32> {
        self.own.first_type..self.own.first_type + self.own.types.len() as u32
    }

    fn structs(&self) -> Vec<(u64, u32)> {
        let named = |id| {
            let r = self.record(id).filter(|r| r.kind == STRUCT && r.name != 0)?;
            Some((hash(self.string(r.name)?), id))
        };
        let mut all: Vec<_> = self.own_ids().filter_map(named).collect();
        all.sort_unstable();
        all
    }

    /// The struct of its own section that has this name.
    fn find_struct(&self, name: &str) -> Option<u32> {
        let wanted = hash(name);
        let first = self.own.structs.partition_point(|s| s.0 < wanted);
        let same = self.own.structs[first..].iter().take_while(|s| s.0 == wanted);
        same.map(|s| s.1).find(|&id| self.record(id).and_then(|r| self.string(r.name)) == Some(name))
    }

    /// The data section of its own section that has this name.
    fn find_section(&self, name: &str) -> Option<u32> {
        // They stand at the end.
        self.own_ids().rev().find(|&id| {
            self.record(id).is_some_and(|r| r.kind == DATASEC && self.string(r.name) == Some(name))
        })
    }

    /// The type behind typedefs and qualifiers, and whether it is a lock by any name on the way.
    fn resolve(&self, mut id: u32) -> Option<(u32, bool)> {
        let mut lock = false;
        for _ in 0..MAX_DEPTH {
            let r = self.record(id)?;
            let named = matches!(r.kind, TYPEDEF | STRUCT | UNION);
            lock |= named && self.string(r.name).is_some_and(|n| LOCK_TYPES.contains(&n));
            match r.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = r.size,
                _ => return Some((id, lock)),
            }
        }
        None
    }

    fn size(&self, id: u32, depth: u32) -> Option<u64> {
        let (id, _) = self.resolve(id)?;
        let r = self.record(id)?;
        match r.kind {
            ARRAY if depth < MAX_DEPTH => {
                let [element, _, count] = self.body(&r, 0)?;
                self.size(element, depth + 1)?.checked_mul(u64::from(count))
            }
            2 => Some(8),
            ARRAY => None,
            _ => Some(u64::from(r.size)),
        }
    }

    fn lock_at(&self, id: u32, offset: u64) -> Option<LockPath<'a>> {
        let mut path = LockPath { members: String::new(), known: None };
        self.descend(id, offset, 0, &mut path).then_some(path)
    }

    /// Extends `path` from the type `id` to the lock at `offset` of it, if there is one.
    fn descend(&self, id: u32, offset: u64, depth: u32, path: &mut LockPath<'a>) -> bool {
        let Some((id, lock)) = self.resolve(id).filter(|_| depth < MAX_DEPTH) else { return false };
        if lock && offset == 0 && depth > 0 {
            return true;
        }
        let Some(r) = self.record(id) else { return false };
        let before = (path.members.len(), path.known);
        match r.kind {
            STRUCT | UNION => {
                if let Some(name) = self.string(r.name).filter(|n| KNOWN_OBJECTS.contains(n)) {
                    path.known = Some((name, path.members.len()));
                }
                for i in 0..r.len {
                    let Some([name, member, bits]) = self.body(&r, i) else { break };
                    let (start, width) = if r.bitfields { (bits & 0xff_ffff, bits >> 24) } else { (bits, 0) };
                    let Some(inner) = offset.checked_sub(u64::from(start / 8)) else { continue };
                    if width != 0 || self.size(member, 0).is_none_or(|size| inner >= size) {
                        continue;
                    }
                    let here = path.members.len();
                    if let Some(name) = self.string(name).filter(|n| !n.is_empty()) {
                        path.members.push('.');
                        path.members.push_str(name);
                    }
                    if self.descend(member, inner, depth + 1, path) {
                        return true;
                    }
                    path.members.truncate(here);
                }
            }
            ARRAY => {
                if let Some([element, ..]) = self.body(&r, 0)
                    && let Some(size @ 1..) = self.size(element, 0)
                {
                    path.members.push_str(&format!("[{}]", offset / size));
                    if self.descend(element, offset % size, depth + 1, path) {
                        return true;
                    }
                }
            }
            _ => {}
        }
        path.members.truncate(before.0);
        path.known = before.1;
        false
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn words(bytes: &[u8], at: usize) -> Option<[u32; 3]> {
    Some([u32_at(bytes, at)?, u32_at(bytes, at.checked_add(4)?)?, u32_at(bytes, at.checked_add(8)?)?])
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_kernel() -> Option<BtfMembers> {
        let btf = BtfMembers::load(Path::new("/"));
        btf.inspect_err(|e| eprintln!("skipped: {e}")).ok()
    }

    /// The paths of all locks in a struct, found as the namer finds them: by offset.
    fn locks(btf: &BtfMembers, name: &str) -> Vec<String> {
        let size = btf.size_of(name).unwrap_or_else(|| panic!("no struct {name}"));
        (0..size).filter_map(|o| btf.lock_at(name, o)).collect()
    }

    #[test]
    fn locks_are_named_by_their_member() {
        let Some(btf) = this_kernel() else { return };
        for (of, lock) in [
            ("files_struct", "files_struct.file_lock"),
            ("mm_struct", "mm_struct.mmap_lock"),
            ("mm_struct", "mm_struct.mmap_lock.wait_lock"),
            ("inode", "inode.i_rwsem"),
            ("inode", "address_space.i_mmap_rwsem"),
            ("pipe_inode_info", "pipe_inode_info.mutex"),
            ("pipe_inode_info", "pipe_inode_info.rd_wait.lock"),
            ("dentry", "dentry.d_lockref.lock"),
            ("task_struct", "task_struct.pi_lock"),
            ("sighand_struct", "sighand_struct.siglock"),
            ("tcp_sock", "sock.sk_lock.slock"),
            ("rq", "rq.__lock"),
            ("super_block", "super_block.s_umount"),
        ] {
            let all = locks(&btf, of);
            assert!(all.iter().any(|l| l == lock), "{lock} is not among {all:?}");
        }
        if btf.size_of("ext4_inode_info").is_some() {
            assert!(locks(&btf, "ext4_inode_info").contains(&"inode.i_rwsem".to_owned()));
        }
        let zones = locks(&btf, "pglist_data");
        assert!(zones.iter().any(|l| l == "zone.lock" || l == "zone._lock"), "{zones:?}");
        assert_eq!(btf.lock_at("files_struct", 1 << 40), None);
        assert_eq!(btf.lock_at("no_such_struct", 0), None);
    }

    #[test]
    fn loading_is_quick_and_finds_the_per_cpu_variables() {
        let started = std::time::Instant::now();
        let Some(btf) = this_kernel() else { return };
        let load = started.elapsed();
        let started = std::time::Instant::now();
        btf.lock_at("files_struct", 64);
        let first = started.elapsed();
        let percpu = btf.percpu();
        eprintln!("load {load:?}, first struct {first:?}, {} per-CPU variables", percpu.len());
        let rq = percpu.iter().find(|v| v.name == "runqueues").expect("every SMP kernel has them");
        assert_eq!(rq.of.as_deref(), Some("rq"));
        assert_eq!(btf.size_of("rq"), Some(rq.range.end - rq.range.start));
    }

    #[test]
    fn damaged_files_are_refused_or_harmless() {
        let Ok(whole) = fs::read("/sys/kernel/btf/vmlinux") else { return };
        for cut in [0, 3, 23, 24, 1000, whole.len() / 2, whole.len() - 1] {
            assert!(Section::parse(whole[..cut].to_vec(), None).is_err(), "{cut} bytes");
        }
        let mut noise = 1u64;
        for _ in 0..4 {
            let mut bytes = whole[..].to_vec();
            for _ in 0..2000 {
                noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = 24 + noise as usize % (bytes.len() - 24);
                bytes[at] = (noise >> 56) as u8;
            }
            let Ok(kernel) = Section::parse(bytes, None) else { continue };
            let btf = BtfMembers {
                dir: "/nonexistent".into(),
                kernel,
                modules: RefCell::default(),
                found: RefCell::default(),
            };
            for name in ["mm_struct", "task_struct", "inode"] {
                let _ = (0..256).filter_map(|o| btf.lock_at(name, o * 8)).count();
            }
            let _ = btf.percpu();
        }
    }
}
